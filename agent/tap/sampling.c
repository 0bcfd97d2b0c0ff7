/* How calls are timed, and whether at all: only with versions of NCCL whose times were compared with CUDA events.
 *
 * NCCL looks for the time of a kernel by a number of the kernel in its channel, which it counts on the host and on the
 * GPU. Where the two drift apart it finds times of other collectives.
 *
 * Interfaces 5 and 6: pace.c chooses the calls by their numbers, so that all ranks time the same ones without a word
 * between them. Within a part of every period alone, by the machine's monotonic clock, where the job asks for that.
 * There is no thread: every call asks the clock. Each call is timed or not for itself. NCCL copies the mask of init for the thread that calls before it tells of the
 * call, and asks that copy afterwards: there the tap adds the channels, for this call alone. The mask of init never
 * has them, so that what a CUDA graph captures is never timed, nor a call of a communicator with graphs: a replay is
 * counted on the GPU alone, and the job hangs when it destroys the communicator. The copy is NCCL's own, and its place
 * no part of the interface. It must lie among the thread-local variables of that NCCL, and a word of the tap's in the
 * mask shows that it is there; else nothing is timed and nothing written.
 *
 * Interface 7: the host counts only calls that are timed, the GPU counts all. So every call is timed, from the
 * communicator's first on, by the mask of init. Once timing ends it never begins again: then the numbers differ. NCCL
 * 2.32.3 does not count a broadcast on the host; times after one are those of other collectives. No version is on the
 * list yet.
 *
 * Interface 4 tells of no calls, so that nothing shows what is captured: its calls are counted.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "tap.h"

/* The highest byte are bits that NCCL gives no meaning: they show that a word is a copy of this mask. */
enum { BASE = 0x57 << 24 | NCCL_COLL | NCCL_P2P | NCCL_COLL_API };
enum { DEFAULT_PERIOD_MS = 2000, DEFAULT_BUDGET = 50, MOST = 86400000 };
#define MS UINT64_C(1000000)

/* Read through the vDSO, where the machine's clock has one. */
static uint64_t nanoseconds(clockid_t clock) {
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t ww_monotonic_ns(void) { return nanoseconds(CLOCK_MONOTONIC); }
uint64_t ww_realtime_ns(void) { return nanoseconds(CLOCK_REALTIME); }

/* A whole decimal number up to MOST, or `otherwise`. */
static uint32_t setting(const char *name, uint32_t least, uint32_t otherwise) {
    const char *text = getenv(name);
    uint32_t value = 0;
    if (!text || !*text) return otherwise;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return otherwise;
        value = value * 10 + (uint32_t)(*text - '0');
        if (value > MOST) return otherwise;
    }
    return value < least ? otherwise : value;
}

/* Versions of NCCL that were measured on GPUs: proof/hardware/nccl.md. Others are counted. */
static bool measured(int32_t nccl) {
    static const int32_t versions[] = {22809};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (versions[i] == nccl) return true;
    return getenv("WIREWATCH_TAP_UNMEASURED") != NULL; /* for who measures it */
}

static enum ww_untimed first_reason(struct ww_communicator *communicator, const struct ww_called *called) {
    if (!communicator->on_ms || !communicator->pace.budget) return WW_SWITCHED_OFF;
    if (called->interface < 5 || !measured(called->nccl)) return WW_NOT_MEASURED;
    if (communicator->whole) return WW_TIMED;
    communicator->block = ww_thread_block(called->log);
    return communicator->block.module ? WW_TIMED : WW_ELSEWHERE;
}

void ww_sampling_settings(struct ww_communicator *communicator, const struct ww_called *called) {
    uint32_t period_ms = setting("WIREWATCH_TAP_PERIOD_MS", 1, DEFAULT_PERIOD_MS);
    uint32_t on_ms = setting("WIREWATCH_TAP_ON_MS", 0, period_ms);
    communicator->whole = called->interface >= 7;
    __atomic_store_n(&communicator->on_ms, on_ms && communicator->whole ? period_ms : on_ms, __ATOMIC_RELAXED);
    __atomic_store_n(&communicator->period_ms, period_ms, __ATOMIC_RELAXED);
    ww_pace_begin(communicator, called->communicator, setting("WIREWATCH_TAP_BUDGET", 0, DEFAULT_BUDGET));
    __atomic_store_n(&communicator->untimed, first_reason(communicator, called), __ATOMIC_RELAXED);
}

/* Leaves what another communicator of the same NCCL has put there, but for the channels of a whole communicator. */
void ww_first_mask(struct ww_communicator *communicator) {
    int *mask = __atomic_load_n(&communicator->mask, __ATOMIC_RELAXED);
    int now = __atomic_load_n(mask, __ATOMIC_RELAXED);
    if (!now) now = BASE;
    if (communicator->whole && ww_is_timed(communicator)) now |= NCCL_KERNEL_CHANNEL;
    __atomic_store_n(mask, now, __ATOMIC_RELAXED);
}

static bool open_at(const struct ww_communicator *communicator, uint64_t now_ns) {
    return now_ns % (__atomic_load_n(&communicator->period_ms, __ATOMIC_RELAXED) * MS)
           < __atomic_load_n(&communicator->on_ms, __ATOMIC_RELAXED) * MS;
}

/* Writes down whether channels are timed now. */
static void note(struct ww_communicator *communicator, bool timed) {
    struct ww_header *header = ww_header(communicator);
    if (__atomic_exchange_n(&header->timing, (uint32_t)timed, __ATOMIC_RELAXED) < (uint32_t)timed)
        ww_add(&header->windows, 1);
}

/* AddressSanitizer would have to know what lies before the handle, which is NCCL's. */
__attribute__((no_sanitize_address))
static bool time_this(struct ww_communicator *communicator, void **handle) {
    struct nccl_call_state *call
        = (struct nccl_call_state *)((uintptr_t)handle - offsetof(struct nccl_call_state, collective));
    if (!ww_within(&communicator->block, call, sizeof *call) || call->mask != BASE) return false;
    call->mask = BASE | NCCL_KERNEL_CHANNEL;
    return true;
}

static void time_whole(struct ww_communicator *communicator, const struct nccl_collective_call *called) {
    int *mask = __atomic_load_n(&communicator->mask, __ATOMIC_RELAXED);
    if (ww_function(called->function) == WW_BROADCAST) ww_time_no_more(communicator, WW_BROADCASTS);
    else if (!(__atomic_load_n(mask, __ATOMIC_RELAXED) & NCCL_KERNEL_CHANNEL))
        ww_time_no_more(communicator, WW_MASK_CHANGED);
    else note(communicator, true);
}

void ww_time_call(struct ww_communicator *communicator, void **handle, const struct nccl_collective_call *called) {
    uint64_t now_ns;
    if (!ww_is_timed(communicator)) return;
    if (communicator->whole) {
        time_whole(communicator, called);
        return;
    }
    now_ns = ww_monotonic_ns();
    note(communicator, ww_is_due(communicator, now_ns) && open_at(communicator, now_ns) && time_this(communicator, handle));
}

void ww_time_no_more(struct ww_communicator *communicator, enum ww_untimed why) {
    uint32_t timed = WW_TIMED;
    if (__atomic_compare_exchange_n(&communicator->untimed, &timed, why, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        __atomic_store_n(&ww_header(communicator)->untimed, why, __ATOMIC_RELAXED);
        ww_settle_mask(communicator);
    }
    note(communicator, false);
}
