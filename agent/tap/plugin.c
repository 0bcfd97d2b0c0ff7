/* The tap as NCCL sees it: a profiler plugin for versions 4 to 7 of the interface.
 *
 * It watches the communicators of one process, each into a ring of its own (ring.h), and never stands in a job's way:
 * where something fails, that communicator is not watched.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "tap.h"

#define EXPORTED __attribute__((visibility("default")))
enum { SHORT = 200, LONG = 1000000 /* tries of a lock where no job waits: some milliseconds */ };

static struct ww_communicator communicators[WW_COMMUNICATORS];
static uint32_t prepared, said;
static uint32_t mask_lock; /* who is watched, and the mask that follows from it */

/* Whether this process is the process of the rings. The kernel empties its page in every child, also in a child of a
 * bare clone, of which no fork handler hears; before Linux 4.14 it does not, and the handler alone knows.
 */
static uint32_t always = 1, *ours = &always;

static bool is_ours(void) { return __atomic_load_n(__atomic_load_n(&ours, __ATOMIC_RELAXED), __ATOMIC_RELAXED); }

static void mark_ours(void) {
    uint32_t *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    *page = 1;
    if (madvise(page, sizeof *page, MADV_WIPEONFORK)) munmap(page, sizeof *page);
    else __atomic_store_n(&ours, page, __ATOMIC_RELAXED);
}

/* The communicator of a handle of any kind while it is watched, or NULL. */
static struct ww_communicator *watched(uint64_t handle, uint64_t *ticket) {
    struct ww_communicator *communicator = &communicators[ww_number(handle)];
    *ticket = __atomic_load_n(&communicator->ticket, __ATOMIC_ACQUIRE);
    return *ticket && is_ours() ? communicator : NULL;
}

const struct ww_communicator *ww_watched(uint32_t number) {
    const struct ww_communicator *one = &communicators[number];
    return __atomic_load_n(&one->ticket, __ATOMIC_RELAXED) && ww_is_timed(one) ? one : NULL;
}

/* The child of a fork has neither the rings nor the threads that wrote to them. It starts again. */
static void forget_in_child(void) {
    for (uint32_t i = 0; i < WW_COMMUNICATORS; i++) ww_ring_forget(&communicators[i]);
    mask_lock = 0;
    *ours = 1;
}

static void say_once(nccl_log log, const char *directory, const char *failed) {
    if (!log || __atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) return;
    if (failed)
        log(NCCL_LOG_INFO, NCCL_LOG_INIT, "wirewatch", 0, "wirewatch tap %s: not watching: %s (errno %d)",
            WW_TAP_VERSION, failed, errno);
    else
        log(NCCL_LOG_INFO, NCCL_LOG_INIT, "wirewatch", 0, "wirewatch tap %s: watching, rings in %s", WW_TAP_VERSION,
            directory);
}

static struct ww_communicator *take_entry(uint32_t *number) {
    for (*number = 0; *number < WW_COMMUNICATORS; ++*number) {
        uint32_t expected = 0;
        if (__atomic_compare_exchange_n(&communicators[*number].taken, &expected, 1, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return &communicators[*number];
    }
    return NULL;
}

static const char *watch(const struct ww_called *called, const char **directory) {
    uint32_t number;
    const char *failed;
    uint64_t ticket;
    bool locked;
    struct ww_communicator *communicator = take_entry(&number);
    if (!communicator) return "this process has too many communicators";
    __atomic_store_n(&communicator->mask, called->mask, __ATOMIC_RELAXED);
    __atomic_store_n(&communicator->ranks, (uint32_t)called->ranks, __ATOMIC_RELAXED);
    __atomic_store_n(&communicator->since, __atomic_load_n(&communicator->collectives, __ATOMIC_RELAXED),
                     __ATOMIC_RELAXED);
    ww_sampling_settings(communicator, called);
    failed = ww_ring_open(communicator, called);
    if (failed) {
        __atomic_store_n(&communicator->taken, 0, __ATOMIC_RELEASE);
        return failed;
    }
    ticket = ww_handle(WW_COMMUNICATOR, number, 0, 0, ++communicator->generation);
    *called->context = (void *)(uintptr_t)ticket;
    *directory = communicator->directory;
    locked = ww_lock(&mask_lock, LONG);
    __atomic_store_n(&communicator->ticket, ticket, __ATOMIC_RELEASE);
    ww_first_mask(communicator);
    if (locked) ww_unlock(&mask_lock);
    return NULL;
}

static int init(const struct ww_called *called) {
    int saved = errno;
    const char *failed, *directory = "";
    if (!called->context) return 0;
    *called->context = NULL;
    if (!called->mask) return 0;
    if (!__atomic_exchange_n(&prepared, 1, __ATOMIC_RELAXED)) {
        ww_stay_loaded();
        mark_ours();
        pthread_atfork(NULL, NULL, forget_in_child);
    }
    if (!is_ours()) forget_in_child();
    errno = 0;
    failed = watch(called, &directory);
    say_once(called->log, directory, failed);
    errno = saved;
    return 0;
}

static int init_4(void **context, int *mask, const char *name, uint64_t communicator, int nodes, int ranks, int rank,
                  nccl_log log) {
    const struct ww_called called = {context, mask, name, communicator, nodes, ranks, rank, log, 4,
                                     ww_nccl_version(log)};
    return init(&called);
}

#define INIT(VERSION)                                                                                              \
    static int init_##VERSION(void **context, uint64_t communicator, int *mask, const char *name, int nodes,       \
                              int ranks, int rank, nccl_log log) {                                                 \
        const struct ww_called called = {context, mask, name, communicator, nodes, ranks, rank, log, VERSION,      \
                                         ww_nccl_version(log)};                                                    \
        return init(&called);                                                                                      \
    }
INIT(5)
INIT(6)
INIT(7)

/* A call of the interface. Only one that is not captured has a handle: NCCL raises the number of a captured
 * collective at each replay if it has one, on those ranks alone where channels were timed at the capture, and the
 * numbers of the ranks would drift apart. A collective with no such parent is a replay, or of interface 4: there
 * NCCL does not tell of calls, and tells of a collective only where its group has a handle.
 */
static uint64_t called(struct ww_communicator *communicator, uint64_t ticket, bool captured) {
    if (!captured) return ww_handle(WW_CALL, ww_number(ticket), 0, 0, 1);
    ww_add(&ww_header(communicator)->captured, 1);
    ww_time_no_more(communicator, WW_CAPTURED);
    return 0;
}

/* Times the call of an eager collective where it is time to. */
static void time_call(const struct nccl_event *event, uint64_t handle, void **place) {
    uint64_t ticket;
    struct ww_communicator *communicator
        = event->type.wide == NCCL_COLL_API && ww_kind(handle) == WW_CALL ? watched(handle, &ticket) : NULL;
    if (communicator) ww_time_call(communicator, place, &event->of.collective_call);
}

static uint64_t start_channel(const struct nccl_event *event) {
    uint64_t ticket, parent = (uint64_t)(uintptr_t)event->parent;
    struct ww_communicator *communicator = ww_kind(parent) == WW_COLLECTIVE ? watched(parent, &ticket) : NULL;
    return communicator ? ww_start_channel(communicator, ticket, parent, &event->of.channel) : 0;
}

static uint64_t start(uint64_t type, uint64_t context, const struct nccl_event *event, bool calls_are_told) {
    uint64_t ticket;
    struct ww_communicator *communicator;
    if (type == NCCL_KERNEL_CHANNEL) return start_channel(event);
    communicator = watched(context, &ticket);
    if (!communicator || ticket != context) return 0;
    switch (type) {
    case NCCL_GROUP:
        return calls_are_told ? 0 : ww_handle(WW_CALL, ww_number(ticket), 0, 0, 1);
    case NCCL_COLL:
        if (calls_are_told && ww_kind((uint64_t)(uintptr_t)event->parent) != WW_CALL) return 0;
        return ww_start_collective(communicator, ticket, &event->of.collective);
    case NCCL_P2P:
        if (calls_are_told && ww_kind((uint64_t)(uintptr_t)event->parent) != WW_CALL) return 0;
        ww_count_p2p(communicator, &event->of.p2p);
        return 0;
    case NCCL_COLL_API:
        return called(communicator, ticket, event->of.collective_call.captured);
    case NCCL_P2P_API:
        return called(communicator, ticket, event->of.p2p_call.captured);
    default:
        return 0;
    }
}

static int start_4(void *context, void **handle, struct nccl_event *event) {
    uint64_t number = (uint64_t)(uintptr_t)context;
    if (!handle) return 0;
    *handle = event ? (void *)(uintptr_t)start(event->type.narrow, number, event, false) : NULL;
    return 0;
}

static int start_5(void *context, void **handle, struct nccl_event *event) {
    uint64_t number = (uint64_t)(uintptr_t)context, made = 0;
    if (!handle) return 0;
    if (event) {
        made = start(event->type.wide, number, event, true);
        time_call(event, made, handle);
    }
    *handle = (void *)(uintptr_t)made;
    return 0;
}

static int stop(void *handle) {
    uint64_t ticket, number = (uint64_t)(uintptr_t)handle;
    struct ww_communicator *communicator = ww_kind(number) == WW_CHANNEL ? watched(number, &ticket) : NULL;
    if (communicator) ww_stop_channel(communicator, number);
    return 0;
}

static int record(void *handle, int state, union nccl_state *values) {
    uint64_t ticket, number = (uint64_t)(uintptr_t)handle;
    struct ww_communicator *communicator = ww_kind(number) == WW_CHANNEL ? watched(number, &ticket) : NULL;
    if (communicator && values && state == NCCL_CHANNEL_STOPPED)
        ww_record_stop(communicator, number, values->channel_stopped);
    return 0;
}

/* Takes the channels out of a mask once no communicator of its NCCL needs them; the first that does puts them back. */
void ww_settle_mask(const struct ww_communicator *of) {
    int *mask = __atomic_load_n(&of->mask, __ATOMIC_RELAXED);
    bool needed = false;
    if (!ww_lock(&mask_lock, SHORT)) return;
    for (uint32_t i = 0; i < WW_COMMUNICATORS; i++)
        needed |= __atomic_load_n(&communicators[i].ticket, __ATOMIC_ACQUIRE)
                  && __atomic_load_n(&communicators[i].mask, __ATOMIC_RELAXED) == mask
                  && ww_is_timed(&communicators[i]);
    if (!needed) __atomic_fetch_and(mask, ~NCCL_KERNEL_CHANNEL, __ATOMIC_RELAXED);
    ww_unlock(&mask_lock);
}

/* The mask is one for all communicators of an NCCL: it goes with the last. */
static void drop_mask(int *mask) {
    for (uint32_t i = 0; i < WW_COMMUNICATORS; i++)
        if (__atomic_load_n(&communicators[i].ticket, __ATOMIC_ACQUIRE)
            && __atomic_load_n(&communicators[i].mask, __ATOMIC_RELAXED) == mask)
            return;
    __atomic_store_n(mask, 0, __ATOMIC_RELAXED);
}

/* Whether it was watched under this ticket, which is so once. */
static bool unwatch(struct ww_communicator *communicator, uint64_t ticket) {
    bool locked = ww_lock(&mask_lock, LONG);
    bool was = __atomic_compare_exchange_n(&communicator->ticket, &ticket, 0, false, __ATOMIC_ACQ_REL,
                                           __ATOMIC_RELAXED);
    if (was) drop_mask(__atomic_load_n(&communicator->mask, __ATOMIC_RELAXED));
    if (locked) ww_unlock(&mask_lock);
    return was;
}

static int finalize(void *context) {
    uint64_t ticket = (uint64_t)(uintptr_t)context;
    struct ww_communicator *communicator = &communicators[ww_number(ticket)];
    int saved = errno;
    bool quiet;
    if (ww_kind(ticket) != WW_COMMUNICATOR || !is_ours() || !unwatch(communicator, ticket)) return 0;
    quiet = ww_lock(&communicator->publishing, LONG);
    ww_count_unfinished(communicator, ticket);
    if (ww_ring_close(communicator, quiet)) {
        ww_unlock(&communicator->publishing);
        __atomic_store_n(&communicator->taken, 0, __ATOMIC_RELEASE);
    }
    errno = saved;
    return 0;
}

EXPORTED const struct nccl_profiler_4 ncclProfiler_v4 = {"wirewatch-tap", init_4, start_4, stop, record, finalize};
EXPORTED const struct nccl_profiler_5 ncclProfiler_v5 = {"wirewatch-tap", init_5, start_5, stop, record, finalize};
EXPORTED const struct nccl_profiler_5 ncclProfiler_v6 = {"wirewatch-tap", init_6, start_5, stop, record, finalize};
EXPORTED const struct nccl_profiler_5 ncclProfiler_v7 = {"wirewatch-tap", init_7, start_5, stop, record, finalize};
