/* When channels are timed: for a short time of every period, by the machine's monotonic clock, so that all ranks of a
 * machine are timed at the same moments without a word between them. There is no thread: every enqueued collective
 * asks the clock, and writes NCCL's mask where it has to change. NCCL reads the mask at each call of its interface,
 * before the tap hears of the call: what is written holds from the next call on.
 *
 * A call that is captured into a CUDA graph keeps the mask of its capture, and with timed channels each replay would
 * cost. So the first captured call switches timing off, and it stays off until none was captured for a while.
 *
 * For its own communicator it stays off for good. NCCL finds the time of a kernel by a number of the kernel in its
 * channel, which it counts on the host and on the GPU. A replayed graph is counted on the GPU alone: from the first
 * replay on, NCCL hands out times of other collectives, late and with nothing that shows it (2.28 to 2.31).
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "tap.h"

enum { BASE = NCCL_COLL | NCCL_P2P | NCCL_COLL_API };
enum { DEFAULT_ON_MS = 200, DEFAULT_PERIOD_MS = 2000, MOST_MS = 86400000 };
#define MS UINT64_C(1000000)
#define HOLD_NS (10000 * MS) /* engines capture one graph after the other, with eager calls between */

static uint64_t held_until_ns;

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

void ww_sampling_settings(struct ww_communicator *communicator) {
    uint32_t on_ms = setting("WIREWATCH_TAP_ON_MS", 0, DEFAULT_ON_MS);
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

void ww_captured(struct ww_communicator *communicator, uint64_t now_ns) {
    __atomic_store_n(&communicator->graphs, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&held_until_ns, now_ns + HOLD_NS, __ATOMIC_RELAXED);
}

static bool open_at(const struct ww_communicator *communicator, uint64_t now_ns) {
    if (now_ns < __atomic_load_n(&held_until_ns, __ATOMIC_RELAXED)) return false;
    return now_ns % (__atomic_load_n(&communicator->period_ms, __ATOMIC_RELAXED) * MS)
           < __atomic_load_n(&communicator->on_ms, __ATOMIC_RELAXED) * MS;
}

void ww_sample(struct ww_communicator *communicator, uint64_t now_ns) {
    struct ww_header *header = ww_header(communicator);
    bool open = open_at(communicator, now_ns), timed = open && !ww_has_graphs(communicator);
    int wanted = open ? BASE | NCCL_KERNEL_CHANNEL : BASE;
    int *mask = __atomic_load_n(&communicator->mask, __ATOMIC_RELAXED);
    /* There is one mask for all communicators of an NCCL: one with graphs ends a moment of timing and begins none. */
    if ((timed || !open) && __atomic_load_n(mask, __ATOMIC_RELAXED) != wanted)
        __atomic_store_n(mask, wanted, __ATOMIC_RELAXED);
    if (__atomic_load_n(&header->timing, __ATOMIC_RELAXED) == (uint32_t)timed) return;
    if (__atomic_exchange_n(&header->timing, (uint32_t)timed, __ATOMIC_RELAXED) != (uint32_t)timed && timed)
        ww_add(&header->windows, 1);
}
