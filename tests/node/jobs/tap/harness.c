/* Plays what NCCL would call to a tap that it loads: one command a line from standard input, one line of answer each.
 *
 * The layouts of events are written down here once more, by their offsets, and share nothing with the tap's.
 * Words of a command: numbers in C's notation, `-` for a null pointer, `~` for an empty text.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 24, HANDLES = 4096, CONTEXTS = 128 };

struct plugin {
    const char *name;
    void *init;
    int (*start)(void *, void **, void *);
    int (*stop)(void *);
    int (*record)(void *, int, void *);
    int (*finalize)(void *);
};
typedef void (*logger)(int, unsigned long, const char *, int, const char *, ...);
typedef int (*init_4)(void **, int *, const char *, uint64_t, int, int, int, logger);
typedef int (*init_5)(void **, uint64_t, int *, const char *, int, int, int, logger);

static struct plugin *plugins[8];
static void *library;
static void *contexts[CONTEXTS], *handles[HANDLES];
static int masks[4], mask_of[CONTEXTS], lines;
static size_t handle_at = 128;
static char last_line[512];
static uint64_t drawn_clock_ns; /* 0: the machine's */
static int nccl = 22809, on_stack;

/* As NCCL's: the tap asks the process for it. */
int ncclGetVersion(int *version) {
    *version = nccl;
    return 0;
}

/* Stands before libc's for the tap too, so that a test may set the clock. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!drawn_clock_ns) return (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec = (time_t)(drawn_clock_ns / 1000000000u);
    now->tv_nsec = (long)(drawn_clock_ns % 1000000000u);
    return 0;
}

static void log_line(int level, unsigned long subsystem, const char *file, int line, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(last_line, sizeof last_line, format, values);
    va_end(values);
    (void)file;
    (void)line;
    lines += level == 3 && subsystem == 1 ? 1 : 1000000;
}

static logger logged_by = log_line;

static uint64_t number(const char *word) { return word ? strtoull(word, NULL, 0) : 0; }

static const char *text(const char *word) {
    if (!word || !strcmp(word, "-")) return NULL;
    return strcmp(word, "~") ? word : "";
}

static void put(void *event, size_t offset, const void *value, size_t size) {
    memcpy((char *)event + offset, value, size);
}
static void put_number(void *event, size_t offset, uint64_t value, size_t size) { put(event, offset, &value, size); }
static void put_text(void *event, size_t offset, const char *word) {
    const char *value = text(word);
    put(event, offset, &value, sizeof value);
}

/* Starts an event of this type; the union lies from byte 24 on. In version 4 only the first byte is the type. */
static int start(int version, char **w, uint64_t type, void *event) {
    int result;
    memset(event, version == 4 ? 0xa5 : 0, 8);
    put_number(event, 0, type, version == 4 ? 1 : 8);
    result = plugins[version]->start(contexts[number(w[2])], &handles[number(w[3])], event);
    return printf("%d %p\n", result, handles[number(w[3])]);
}

/* coll VERSION CONTEXT HANDLE PARENT SEQUENCE FUNCTION COUNT ROOT DATATYPE CHANNELS ALGORITHM PROTOCOL */
static int collective(int version, char **w) {
    uint64_t event[16] = {0};
    put(event, 8, &handles[number(w[4])], 8);
    put_number(event, 24, number(w[5]), 8);
    put_text(event, 32, w[6]);
    put_number(event, 56, number(w[7]), 8);
    put_number(event, 64, number(w[8]), 4);
    put_text(event, 72, w[9]);
    put_number(event, 80, number(w[10]), 1);
    put_text(event, 88, w[11]);
    put_text(event, 96, w[12]);
    return start(version, w, 2, event);
}

/* call VERSION CONTEXT HANDLE CAPTURED [FUNCTION] (of a collective): also what the call's mask is then, and how many bytes beside
 * it were changed. NCCL keeps handle and mask in one place of the calling thread; `layout WORDS` puts the handle
 * elsewhere in it, `layout` where nothing is before it, `stack 1` all of it where no thread-local variables are.
 */
static int call(int version, char **w) {
    static _Thread_local uint64_t own[32]; /* as NCCL's */
    uint64_t event[16] = {0}, stack[32], before[32], *place = on_stack ? stack : own;
    void *handle;
    int mask = masks[mask_of[number(w[2])]], result, changed = 0;
    memset(place, 0x33, sizeof own);
    put_number(place, 100, (uint64_t)mask, 4);
    memcpy(before, place, sizeof own);
    put_number(event, 0, 512, 8);
    put_text(event, 24, w[5] ? w[5] : "AllReduce");
    put_number(event, 64, number(w[4]), 1);
    if (version == 4) return printf("interface 4 tells of no calls\n");
    if (!handle_at) {
        void **alone = malloc(sizeof *alone);
        result = plugins[version]->start(contexts[number(w[2])], alone, event);
        handles[number(w[3])] = *alone;
        free(alone);
        return printf("%d %p %d 0\n", result, handles[number(w[3])], mask);
    }
    result = plugins[version]->start(contexts[number(w[2])], (void **)(void *)((char *)place + handle_at), event);
    memcpy(&handle, (char *)place + handle_at, sizeof handle);
    memcpy(&mask, (char *)place + 100, sizeof mask);
    for (size_t byte = 0; byte < sizeof own; byte++)
        changed += ((char *)place)[byte] != ((char *)before)[byte] && byte / 4 != 25 && byte / 8 != handle_at / 8;
    handles[number(w[3])] = handle;
    return printf("%d %p %d %d\n", result, handle, mask, changed);
}

/* pace VERSION CONTEXT CALLS EVERY_NS: so many calls, the clock before each of them later by so much. Prints the runs of
 * them that are timed, as FIRST+LENGTH, counted from 0.
 */
static int pace(int version, char **w) {
    static _Thread_local uint64_t own[32];
    uint64_t event[16] = {512}, calls = number(w[3]), run = 0;
    for (uint64_t n = 0; n <= calls; n++) {
        int mask = masks[mask_of[number(w[2])]];
        if (n < calls) {
            drawn_clock_ns += number(w[4]);
            put_number(own, 100, (uint64_t)mask, 4);
            plugins[version]->start(contexts[number(w[2])], (void **)(void *)((char *)own + handle_at), event);
            memcpy(&mask, (char *)own + 100, sizeof mask);
        }
        if (n < calls && mask & 64) run++;
        else if (run) {
            printf("%" PRIu64 "+%" PRIu64 " ", n - run, run);
            run = 0;
        }
    }
    return printf(".\n");
}

/* p2pcall VERSION CONTEXT HANDLE CAPTURED */
static int p2p_call(int version, char **w) {
    uint64_t event[16] = {0};
    put_number(event, 56, number(w[4]), 1);
    return start(version, w, 1024, event);
}

/* p2p VERSION CONTEXT HANDLE PARENT FUNCTION DATATYPE COUNT PEER */
static int p2p(int version, char **w) {
    uint64_t event[16] = {0};
    put(event, 8, &handles[number(w[4])], 8);
    put_text(event, 24, w[5]);
    put_text(event, 40, w[6]);
    put_number(event, 48, number(w[7]), 8);
    put_number(event, 56, number(w[8]), 4);
    return start(version, w, 4, event);
}

/* channel VERSION CONTEXT HANDLE PARENT CHANNEL STARTED */
static int channel(int version, char **w) {
    uint64_t event[16] = {0};
    put(event, 8, &handles[number(w[4])], 8);
    put_number(event, 24, number(w[5]), 1);
    put_number(event, 32, number(w[6]), 8);
    return start(version, w, 64, event);
}

/* other VERSION CONTEXT HANDLE TYPE: an event that nobody asked for */
static int other(int version, char **w) {
    uint64_t event[16] = {0};
    return start(version, w, number(w[4]), event);
}

/* init VERSION CONTEXT COMMUNICATOR NODES RANKS RANK NAME [MASK [LOG]] */
static int init(int version, char **w) {
    void **context = &contexts[number(w[2])];
    int nodes = (int)number(w[4]), ranks = (int)number(w[5]), rank = (int)number(w[6]), result;
    int *mask = w[8] && !text(w[8]) ? NULL : &masks[mask_of[number(w[2])] = (int)number(w[8]) & 3];
    logger log = w[9] ? NULL : logged_by;
    if (version == 4)
        result = ((init_4)plugins[4]->init)(context, mask, text(w[7]), number(w[3]), nodes, ranks, rank, log);
    else
        result = ((init_5)plugins[version]->init)(context, number(w[3]), mask, text(w[7]), nodes, ranks, rank, log);
    return printf("%d %p %d\n", result, *context, mask ? *mask : 0);
}

static int record(int version, char **w) {
    uint64_t value = number(w[4]);
    return printf("%d\n", plugins[version]->record(handles[number(w[2])], (int)number(w[3]), text(w[4]) ? &value : NULL));
}

static int load(char **w) {
    char name[] = "ncclProfiler_v0";
    library = dlopen(w[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return printf("%s\n", dlerror());
    for (int version = 1; version < 8; version++) {
        name[sizeof name - 2] = (char)('0' + version);
        plugins[version] = dlsym(library, name);
    }
    return printf("v4=%s v5=%s v6=%s v7=%s others=%d\n", plugins[4]->name, plugins[5]->name, plugins[6]->name,
                  plugins[7]->name, plugins[1] || plugins[2] || plugins[3]);
}

static int nulls(int version) {
    struct plugin *p = plugins[version];
    void *handle = &handle;
    uint64_t event[16] = {2};
    int sum = p->start(NULL, NULL, NULL) + p->start(NULL, NULL, event) + p->start(NULL, &handle, NULL)
              + p->start(NULL, &handle, event) + p->start(&sum, &handle, event) + p->stop(NULL)
              + p->record(NULL, 22, NULL) + p->record(NULL, 0, event) + p->finalize(NULL) + p->finalize(&sum);
    if (version == 4) sum += ((init_4)p->init)(NULL, NULL, NULL, 0, 0, 0, 0, NULL);
    else sum += ((init_5)p->init)(NULL, 0, NULL, NULL, 0, 0, 0, NULL);
    return printf("%d %p\n", sum, handle);
}

static void serve(void);

/* child ... end: the lines between are played by a forked child; raw: one that no fork handler knows of */
static int child(bool raw) {
    int status = 0;
    pid_t pid;
    fflush(stdout);
    pid = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (!pid) {
        printf("child\n");
        fflush(stdout);
        serve();
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return printf("%d\n", status);
}

static int limit(uint64_t bytes) {
    struct rlimit files = {bytes, bytes};
    return printf("%d\n", setrlimit(RLIMIT_FSIZE, &files));
}

/* Another library of the process; NCCL's log is its own from now on. */
static void *held;
static int load_other(const char *path) {
    void *log = (held = dlopen(path, RTLD_NOW | RTLD_LOCAL)) ? dlsym(held, "library_log") : NULL;
    if (log) memcpy(&logged_by, &log, sizeof log);
    return printf("%s\n", log ? "loaded" : dlerror());
}

/* Gives it back, and says whether nobody else holds it. */
static int unload_other(const char *path) {
    dlclose(held);
    return printf("%s\n", dlopen(path, RTLD_NOW | RTLD_NOLOAD) ? "still loaded" : "gone");
}

/* Takes the places that a ring may have had, or looks whether what was put there is still there. */
static int occupy(bool first) {
    enum { PLACES = 64, BYTES = 266240 };
    static unsigned char *places[PLACES];
    int lost = 0;
    for (int i = 0; i < PLACES; i++) {
        if (first) places[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (first) memset(places[i], 0x5a, BYTES);
        for (int byte = 0; byte < BYTES; byte += 64) lost += places[i][byte] != 0x5a;
    }
    return printf("%d\n", lost);
}

static int close_files(void) {
    for (int file = 3; file < 1024; file++) close(file);
    return printf("0\n");
}

/* The plain verbs, which need no layout of an event. */
static int plain(char **w) {
    if (!strcmp(w[0], "load")) return load(w);
    if (!strcmp(w[0], "library")) return load_other(w[1]);
    if (!strcmp(w[0], "unlibrary")) return unload_other(w[1]);
    if (!strcmp(w[0], "unload")) return printf("%d\n", dlclose(library));
    if (!strcmp(w[0], "clock")) return printf("%" PRIu64 "\n", drawn_clock_ns = number(w[1]));
    if (!strcmp(w[0], "mask")) return printf("%d\n", masks[number(w[1]) & 3]);
    if (!strcmp(w[0], "log")) return printf("%d %s\n", lines, last_line);
    if (!strcmp(w[0], "set")) return printf("%p\n", handles[number(w[1])] = (void *)(uintptr_t)number(w[2]));
    if (!strcmp(w[0], "context")) return printf("%p\n", contexts[number(w[1])] = (void *)(uintptr_t)number(w[2]));
    if (!strcmp(w[0], "setenv")) return printf("%d\n", w[2] ? setenv(w[1], w[2], 1) : unsetenv(w[1]));
    if (!strcmp(w[0], "maskset")) return printf("%d\n", masks[number(w[1]) & 3] = (int)number(w[2]));
    if (!strcmp(w[0], "nccl")) return printf("%d\n", nccl = (int)number(w[1]));
    if (!strcmp(w[0], "stack")) return printf("%d\n", on_stack = (int)number(w[1]));
    if (!strcmp(w[0], "layout")) return printf("%zu\n", handle_at = w[1] ? (size_t)(128 + 8 * atoi(w[1])) : 0);
    if (!strcmp(w[0], "limit")) return limit(number(w[1]));
    if (!strcmp(w[0], "child")) return child(w[1] != NULL);
    if (!strcmp(w[0], "user")) return printf("%d\n", setgid((gid_t)number(w[1])) || setuid((uid_t)number(w[1])));
    if (!strcmp(w[0], "strict")) return printf("%d\n", prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    if (!strcmp(w[0], "occupy")) return occupy(true);
    if (!strcmp(w[0], "occupied")) return occupy(false);
    if (!strcmp(w[0], "closefiles")) return close_files();
    if (!strcmp(w[0], "exit")) exit((int)number(w[1]));
    if (!strcmp(w[0], "kill")) return raise((int)number(w[1]));
    return printf("unknown command\n");
}

static int obey(char **w) {
    int version = (int)number(w[1]) & 7;
    if (!strcmp(w[0], "coll")) return collective(version, w);
    if (!strcmp(w[0], "call")) return call(version, w);
    if (!strcmp(w[0], "pace")) return pace(version, w);
    if (!strcmp(w[0], "p2p")) return p2p(version, w);
    if (!strcmp(w[0], "p2pcall")) return p2p_call(version, w);
    if (!strcmp(w[0], "channel")) return channel(version, w);
    if (!strcmp(w[0], "other")) return other(version, w);
    if (!strcmp(w[0], "record")) return record(version, w);
    if (!strcmp(w[0], "stop")) return printf("%d\n", plugins[version]->stop(handles[number(w[2])]));
    if (!strcmp(w[0], "finalize")) return printf("%d %d\n", plugins[version]->finalize(contexts[number(w[2])]), errno);
    if (!strcmp(w[0], "init")) return init(version, w);
    if (!strcmp(w[0], "nulls")) return nulls(version);
    return plain(w);
}

static void serve(void) {
    char line[1024], *words[WORDS];
    while (fgets(line, sizeof line, stdin)) {
        int count = 0;
        char *rest = NULL;
        for (char *w = strtok_r(line, " \n", &rest); w && count < WORDS - 1; w = strtok_r(NULL, " \n", &rest))
            words[count++] = w;
        for (int i = count; i < WORDS; i++) words[i] = NULL;
        if (!count) continue;
        if (!strcmp(words[0], "end")) return;
        obey(words);
        fflush(stdout);
    }
}

int main(void) {
    setvbuf(stdin, NULL, _IONBF, 0); /* a child must not read ahead of its parent */
    serve();
    return 0;
}
