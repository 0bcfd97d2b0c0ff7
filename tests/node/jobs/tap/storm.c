/* Threads that call a tap all at once, as NCCL does and worse; a day of a job at compressed time; what an event costs.
 *
 *   storm TAP threads SECONDS   two threads enqueue into two communicators, a third one makes calls in both, four play
 *                               their channels: one the even, one the odd channels of a communicator; the main thread
 *                               forks now and then
 *   storm TAP churn SECONDS     communicators come and go while the threads still play channels of those that went
 *   storm TAP day HOURS         so many hours of enqueued, timed and captured collectives, on a clock that is drawn
 *   storm TAP cost              nanoseconds of an event
 *
 * Prints `name value` lines. Every number of a collective says when its channels started and stopped, so that a
 * reader of the ring sees torn records.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COMMUNICATORS = 2, CHANNELS = 24, QUEUE = 512, COLL = 2, CHANNEL = 64, CALL = 512, STOPPED = 22 };

struct plugin {
    const char *name;
    int (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
    int (*start)(void *, void **, void *);
    int (*stop)(void *);
    int (*record)(void *, int, void *);
    int (*finalize)(void *);
};

struct job { /* a collective to be played by one of two threads */
    void *handle;
    uint64_t number;
};
struct queue {
    pthread_mutex_t lock;
    struct job jobs[QUEUE];
    uint64_t put, taken;
};

static struct plugin *tap;
static void *contexts[COMMUNICATORS];
static struct queue queues[COMMUNICATORS][2];
static pthread_mutex_t users[COMMUNICATORS]; /* whoever destroys a communicator does not enqueue into it meanwhile */
static uint64_t enqueued[COMMUNICATORS], cycle;
static bool over;
static int mask;
static uint64_t drawn_clock_ns;

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*own)(clockid_t, struct timespec *); /* libc's, which asks the vDSO */
    if (!own) *(void **)&own = dlsym(RTLD_NEXT, "clock_gettime");
    if (!drawn_clock_ns) return own(clock, now);
    now->tv_sec = (time_t)(drawn_clock_ns / 1000000000u);
    now->tv_nsec = (long)(drawn_clock_ns % 1000000000u);
    return 0;
}

/* As NCCL's: the version that is timed, and a log in the library whose thread-local variables hold a call. */
int ncclGetVersion(int *version) {
    *version = 22809;
    return 0;
}
static void log_line(int level, unsigned long subsystem, const char *file, int line, const char *format, ...) {
    (void)level, (void)subsystem, (void)file, (void)line, (void)format;
}

static uint64_t real_ns(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Of the thread that calls, as NCCL keeps it. */
static _Thread_local struct {
    int depth, mask, state;
    void *group, *p2p, *collective;
} calling;

static void *call(void *context, bool captured) {
    uint64_t event[16] = {CALL};
    ((uint8_t *)event)[64] = captured;
    calling.mask = __atomic_load_n(&mask, __ATOMIC_RELAXED);
    tap->start(context, &calling.collective, event);
    tap->stop(calling.collective);
    return calling.collective;
}

static void *collective(void *context, void *parent, uint64_t number) {
    static const char *words[] = {"AllReduce", "ncclFloat32", "RING", "SIMPLE"};
    uint64_t event[16] = {COLL, 0, 0, number, 0, 0, 0, 1000 + number % 1000, 0, 0, CHANNELS};
    void *handle;
    memcpy(event + 1, &parent, 8);
    memcpy(event + 4, words, 8);
    memcpy(event + 9, words + 1, 8);
    memcpy(event + 11, words + 2, 16);
    tap->start(context, &handle, event);
    tap->stop(handle);
    return handle;
}

static void play(void *parent, uint64_t number, unsigned channel) {
    uint64_t event[16] = {CHANNEL, 0, 0, channel, number * 1000 + channel}, stopped = number * 1000 + 500 + channel;
    void *handle;
    memcpy(event + 1, &parent, 8);
    tap->start(NULL, &handle, event);
    tap->record(handle, STOPPED, &stopped);
    tap->stop(handle);
}

static bool put(struct queue *queue, struct job job) {
    bool room;
    pthread_mutex_lock(&queue->lock);
    room = queue->put - queue->taken < QUEUE;
    if (room) queue->jobs[queue->put++ % QUEUE] = job;
    pthread_mutex_unlock(&queue->lock);
    return room;
}

static bool take(struct queue *queue, struct job *job) {
    bool some;
    pthread_mutex_lock(&queue->lock);
    some = queue->put != queue->taken;
    if (some) *job = queue->jobs[queue->taken++ % QUEUE];
    pthread_mutex_unlock(&queue->lock);
    return some;
}

static bool ended(void) { return __atomic_load_n(&over, __ATOMIC_ACQUIRE); }

/* The thread of a job: it enqueues as fast as channels are played. */
static void *enqueue(void *which) {
    size_t c = (size_t)(uintptr_t)which;
    for (uint64_t n = 1; !ended(); n++) {
        struct job job = {NULL, 0};
        pthread_mutex_lock(&users[c]);
        job.number = __atomic_load_n(&cycle, __ATOMIC_ACQUIRE) << 32 | n;
        job.handle = collective(contexts[c], call(contexts[c], false), job.number);
        pthread_mutex_unlock(&users[c]);
        __atomic_fetch_add(&enqueued[c], 1, __ATOMIC_RELAXED);
        for (int half = 0; half < 2; half++)
            while (!put(&queues[c][half], job) && !ended()) sched_yield();
    }
    return NULL;
}

/* NCCL's progress thread, here two for a communicator, that share its channels. Some events come twice. */
static void *progress(void *which) {
    size_t c = (size_t)(uintptr_t)which / 2, half = (size_t)(uintptr_t)which % 2;
    struct job job;
    for (;;) {
        bool last = ended();
        if (!take(&queues[c][half], &job)) {
            if (last) return NULL;
            sched_yield();
            continue;
        }
        for (unsigned channel = (unsigned)half; channel < CHANNELS; channel += 2) play(job.handle, job.number, channel);
        if (job.number % 64 == 0) play(job.handle, job.number, (unsigned)half);
    }
}

static void begin(size_t c) {
    tap->init(&contexts[c], cycle << 32 | (100 + c), &mask, "storm", 1, 2, (int)c, (void *)(uintptr_t)log_line);
}

/* A thread of the job that makes calls beside those that enqueue, and nothing follows them. */
static void *make_calls(void *unused) {
    for (uint64_t n = 0; !ended(); n++) call(contexts[n % COMMUNICATORS], false);
    return unused;
}

/* A child does to the handles of its parent what it likes: nothing of it may reach the rings. */
static void fork_one(void) {
    pid_t child = fork();
    if (!child) {
        for (uint64_t n = 0; n < 1000; n++) play(collective(contexts[0], NULL, n), UINT64_C(1) << 60, 0);
        tap->finalize(contexts[0]);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void storm(double seconds, bool churn) {
    pthread_t threads[COMMUNICATORS * 3 + 1];
    uint64_t end = real_ns() + (uint64_t)(seconds * 1e9), forks = 0;
    int count = 0;
    for (size_t c = 0; c < COMMUNICATORS; c++) begin(c);
    for (size_t c = 0; c < COMMUNICATORS; c++) pthread_mutex_init(&users[c], NULL);
    for (size_t c = 0; c < COMMUNICATORS; c++)
        for (int half = 0; half < 2; half++) pthread_mutex_init(&queues[c][half].lock, NULL);
    for (uintptr_t c = 0; c < COMMUNICATORS; c++) pthread_create(&threads[count++], NULL, enqueue, (void *)c);
    for (uintptr_t p = 0; p < COMMUNICATORS * 2; p++) pthread_create(&threads[count++], NULL, progress, (void *)p);
    if (!churn) pthread_create(&threads[count++], NULL, make_calls, NULL);
    for (; real_ns() < end; forks++) {
        if (!churn) fork_one();
        usleep(2000);
        for (size_t c = 0; churn && c < COMMUNICATORS; c++) {
            pthread_mutex_lock(&users[c]);
            tap->finalize(contexts[c]);
            __atomic_fetch_add(&cycle, 1, __ATOMIC_ACQ_REL);
            begin(c);
            pthread_mutex_unlock(&users[c]);
        }
    }
    __atomic_store_n(&over, true, __ATOMIC_RELEASE);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (size_t c = 0; c < COMMUNICATORS; c++) printf("enqueued%zu %lu\n", c, (unsigned long)enqueued[c]);
    printf("rounds %lu\n", (unsigned long)forks);
}

static long resident_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) pages = -1;
    if (file) fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* One step of a job every 20 ms: 32 collectives in each communicator, timed where the call's mask says so; each 10 minutes
 * one communicator is made again, each hour another one captures graphs, and of every 1000th collective a channel never stops.
 */
static void day(double hours) {
    const uint64_t step_ns = 20000000, steps = (uint64_t)(hours * 3600e9 / (double)step_ns);
    uint64_t events = 0, number = 0, timed = 0;
    long first = 0;
    drawn_clock_ns = 1000000000;
    for (size_t c = 0; c < COMMUNICATORS; c++) begin(c);
    for (uint64_t s = 0; s < steps; s++, drawn_clock_ns += step_ns) {
        if (s == 30000) first = resident_kib();
        if (s % 30000 == 29999) {
            tap->finalize(contexts[1]);
            begin(1);
        }
        for (size_t c = 0; c < COMMUNICATORS; c++)
            for (int i = 0; i < 32; i++, number++, events += 4) {
                bool timing, capturing = !c && s % 180000 >= 179990;
                void *parent = call(contexts[c], capturing), *handle;
                if (capturing) continue;
                timing = calling.mask & CHANNEL;
                handle = collective(contexts[c], parent, number);
                for (unsigned channel = number % 1000 == 0; timing && channel < CHANNELS; channel++, events += 3)
                    play(handle, number, channel);
                timed += timing;
            }
    }
    printf("events %lu\ncollectives %lu\ntimed %lu\nfirst_kib %ld\nlast_kib %ld\n", (unsigned long)events,
           (unsigned long)number, (unsigned long)timed, first, resident_kib());
}

static void cost(void) {
    enum { UNTIMED = 5000000, TIMED = 400000 };
    uint64_t began, spent;
    void *handle = NULL;
    begin(0);
    began = real_ns();
    for (uint64_t n = 0; n < UNTIMED; n++) handle = collective(contexts[0], call(contexts[0], false), n);
    printf("untimed_ns %.1f\n", (double)(real_ns() - began) / UNTIMED);
    began = real_ns();
    for (uint64_t n = 0; n < UNTIMED; n++) call(contexts[0], true);
    printf("captured_ns %.1f\n", (double)(real_ns() - began) / UNTIMED);
    began = real_ns();
    for (uint64_t n = 0; n < UNTIMED; n++) call(NULL, false);
    printf("unwatched_ns %.1f\n", (double)(real_ns() - began) / UNTIMED);
    for (spent = 0, began = real_ns(); spent < TIMED; spent++) {
        handle = collective(contexts[0], call(contexts[0], false), spent);
        for (unsigned channel = 0; channel < CHANNELS; channel++) play(handle, spent, channel);
    }
    printf("timed_ns %.1f\nchannels %d\n", (double)(real_ns() - began) / TIMED, CHANNELS);
}

int main(int count, char **words) {
    void *library = count < 3 ? NULL : dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (library) tap = dlsym(library, "ncclProfiler_v5");
    if (!tap) return 2;
    if (!strcmp(words[2], "threads") || !strcmp(words[2], "churn"))
        storm(count > 3 ? atof(words[3]) : 1, !strcmp(words[2], "churn"));
    else if (!strcmp(words[2], "day")) day(count > 3 ? atof(words[3]) : 24);
    else cost();
    fflush(stdout);
    return 0;
}
