/* When channels are timed: for a short time of every period, by the machine's monotonic clock, so that all ranks of a
 * machine are timed at the same moments without a word between them. There is no thread: every call asks the clock.
 *
 * Each call is timed or not for itself. NCCL copies the mask of init for the thread that calls before it tells of the
 * call, and asks that copy afterwards: there the tap adds the channels, for this call alone. The mask of init never
 * has them, so that what a CUDA graph captures is never timed, nor a call of a communicator with graphs. Either would
 * be worse than slow: NCCL looks for the time of a kernel by a number of the kernel in its channel, which it counts on
 * the host and on the GPU, and a replayed graph is counted on the GPU alone. From the first replay on it finds times
 * of other collectives, or waits for one that never comes, and the job hangs when it destroys the communicator.
 *
 * The copy is NCCL's own, and its place no part of the interface. A word of the tap's in the mask shows that it is
 * there; where it is not found, nothing is timed and nothing written. Interface 4 tells of no calls: there the mask of
 * init is written while the job runs, and only where the job asks for it, since nothing shows what is captured.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "tap.h"

/* The highest byte are bits that NCCL gives no meaning: they show that a word is a copy of this mask. */
enum { BASE = 0x57 << 24 | NCCL_COLL | NCCL_P2P | NCCL_COLL_API };
enum { DEFAULT_ON_MS = 200, DEFAULT_PERIOD_MS = 2000, MOST_MS = 86400000 };
#define MS UINT64_C(1000000)

/* Read through the vDSO, where the machine's clock has one. */
static uint64_t nanoseconds(clockid_t clock) {
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t ww_monotonic_ns(void) { return nanoseconds(CLOCK_MONOTONIC); }
uint64_t ww_realtime_ns(void) { return nanoseconds(CLOCK_REALTIME); }

/* A whole decimal number of milliseconds, or `otherwise`. */
static uint32_t setting(const char *name, uint32_t least, uint32_t otherwise) {
    const char *text = getenv(name);
    uint32_t value = 0;
    if (!text || !*text) return otherwise;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return otherwise;
        value = value * 10 + (uint32_t)(*text - '0');
        if (value > MOST_MS) return otherwise;
    }
    return value < least ? otherwise : value;
}

void ww_sampling_settings(struct ww_communicator *communicator, uint32_t interface) {
    uint32_t on_ms = setting("WIREWATCH_TAP_ON_MS", 0, interface == 4 ? 0 : DEFAULT_ON_MS);
    uint32_t period_ms = setting("WIREWATCH_TAP_PERIOD_MS", 1, DEFAULT_PERIOD_MS);
    __atomic_store_n(&communicator->graphs, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&communicator->on_ms, on_ms, __ATOMIC_RELAXED);
    __atomic_store_n(&communicator->period_ms, period_ms, __ATOMIC_RELAXED);
}

/* Leaves what another communicator of the same NCCL has put there. */
void ww_first_mask(struct ww_communicator *communicator) {
    int *mask = __atomic_load_n(&communicator->mask, __ATOMIC_RELAXED);
    if (!__atomic_load_n(mask, __ATOMIC_RELAXED)) __atomic_store_n(mask, BASE, __ATOMIC_RELAXED);
}

static bool open_at(const struct ww_communicator *communicator, uint64_t now_ns) {
    return now_ns % (__atomic_load_n(&communicator->period_ms, __ATOMIC_RELAXED) * MS)
           < __atomic_load_n(&communicator->on_ms, __ATOMIC_RELAXED) * MS;
}

/* Writes down whether channels are timed now. */
static void note(struct ww_communicator *communicator, bool timed) {
    struct ww_header *header = ww_header(communicator);
    if (__atomic_load_n(&header->timing, __ATOMIC_RELAXED) == (uint32_t)timed) return;
    if (__atomic_exchange_n(&header->timing, (uint32_t)timed, __ATOMIC_RELAXED) != (uint32_t)timed && timed)
        ww_add(&header->windows, 1);
}

/* AddressSanitizer would have to know what lies before the handle, which is NCCL's. */
__attribute__((no_sanitize_address))
void ww_time_call(struct ww_communicator *communicator, void **handle, uint64_t now_ns) {
    struct nccl_call_state *call
        = (void *)((char *)(void *)handle - offsetof(struct nccl_call_state, collective));
    bool timed = open_at(communicator, now_ns) && !ww_has_graphs(communicator) && call->mask == BASE;
    if (timed) call->mask = BASE | NCCL_KERNEL_CHANNEL;
    note(communicator, timed);
}

void ww_captured(struct ww_communicator *communicator) {
    __atomic_store_n(&communicator->graphs, 1, __ATOMIC_RELAXED);
    note(communicator, false);
}

void ww_sample(struct ww_communicator *communicator, uint64_t now_ns) {
    bool open = open_at(communicator, now_ns);
    int wanted = open ? BASE | NCCL_KERNEL_CHANNEL : BASE;
    int *mask = __atomic_load_n(&communicator->mask, __ATOMIC_RELAXED);
    if (__atomic_load_n(mask, __ATOMIC_RELAXED) != wanted) __atomic_store_n(mask, wanted, __ATOMIC_RELAXED);
    note(communicator, open);
}
