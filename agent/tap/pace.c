/* Which calls are timed: so many a second, in blocks of consecutive calls, and the same ones on all ranks.
 *
 * All ranks of a communicator make the same calls in the same order. The tap counts them; WW_BLOCK in a row are a
 * block. With a stride of 2^n one block of each run of 2^n is timed. Which one of each two halves it lies in says a
 * hash of the communicator and of the run: so no part of a step is always or never timed, blocks are at most two
 * strides apart, and the blocks of a coarser stride are among those of a finer one. Ranks that differ in their stride
 * for a moment share the coarser one's.
 *
 * The stride follows the rate of calls. It rises with the first call that is too much, and falls when no moment of the
 * last WW_HOLD_MS needed it: a pause between two steps does not change it. Communicators of a process share the
 * budget, and what a slow one does not need is for the others. A block that has begun is timed to its end.
 *
 * Threads that call at once may lose each other's count of the rate, never of the calls.
 */
#include "tap.h"

enum { MEMORY_MS = 5000, UNIT = 256 /* of the rate's fractions */, ROUNDS = 8, SOON_MS = 100, MOST_HALVINGS = 30 };
#define MS UINT64_C(1000000)

static uint64_t get(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
static void set(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

static uint64_t mixed(uint64_t word) {
    for (int turn = 0; turn < 2; turn++) {
        word = (word ^ word >> 31) * UINT64_C(0x9e3779b97f4a7c15);
        word ^= word >> 29;
    }
    return word;
}

/* `halvings`: the stride as a power of two. */
bool ww_is_chosen(uint64_t communicator, uint64_t block, uint32_t halvings) {
    for (uint64_t level = 0; level < halvings; level++, block >>= 1)
        if ((block & 1) != (mixed(mixed(communicator ^ level) + (block >> 1)) >> 63)) return false;
    return true;
}

/* Calls of the last seconds, older ones weighing less: MEMORY_MS times the rate where that is steady. */
static uint64_t warm(struct ww_pace *pace, uint64_t now_ms) {
    uint64_t warmth = get(&pace->warmth), last_ms = get(&pace->counted_ms);
    if (now_ms > last_ms) {
        warmth = warmth * MEMORY_MS / (MEMORY_MS + now_ms - last_ms);
        set(&pace->counted_ms, now_ms);
    }
    set(&pace->warmth, warmth + UNIT);
    return warmth + UNIT;
}

/* Keeps the most of this period and of the one before it. */
static void keep_most(struct ww_pace *pace, uint64_t warmth, uint64_t now_ms) {
    uint64_t age_ms = now_ms - get(&pace->period_ms);
    if (now_ms >= get(&pace->period_ms) && age_ms >= WW_HOLD_MS) {
        set(&pace->most_before, age_ms < 2 * WW_HOLD_MS ? get(&pace->most) : 0);
        set(&pace->most, warmth);
        set(&pace->period_ms, now_ms);
    } else if (warmth > get(&pace->most)) set(&pace->most, warmth);
}

/* What a communicator needs where each of its calls is timed, as `warm` counts. */
static uint64_t need(const struct ww_pace *pace, uint64_t now_ms) {
    uint64_t period_ms = get(&pace->period_ms), age_ms = now_ms > period_ms ? now_ms - period_ms : 0;
    uint64_t most = get(&pace->most), before = get(&pace->most_before);
    if (age_ms >= 2 * WW_HOLD_MS) return 0;
    return age_ms < WW_HOLD_MS && before > most ? before : most;
}

/* What each communicator may have at most so that all have the budget: those that need less leave the rest. */
static uint64_t share(uint64_t budget, uint64_t now_ms) {
    uint64_t level = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t left = budget, hungry = 0, now;
        for (uint32_t number = 0; number < WW_COMMUNICATORS; number++) {
            const struct ww_communicator *one = ww_watched(number);
            uint64_t wanted = one ? need(&one->pace, now_ms) : 0;
            if (wanted > level) hungry++;
            else left -= wanted < left ? wanted : left;
        }
        now = hungry ? left / hungry : 0;
        if (now <= level) break;
        level = now;
    }
    return level;
}

/* The nearest power of two by which this communicator keeps to its share: half as much again at most. */
static uint32_t halvings(struct ww_communicator *communicator, bool begins, uint64_t now_ms) {
    struct ww_pace *pace = &communicator->pace;
    uint64_t wanted = need(pace, now_ms), most, found = 0;
    if (begins || now_ms >= get(&pace->shared_ms) + SOON_MS) {
        set(&pace->share, share(get(&pace->budget) * MEMORY_MS / 1000 * UNIT, now_ms));
        set(&pace->shared_ms, now_ms);
    }
    most = get(&pace->share) + get(&pace->share) / 2;
    while (found < MOST_HALVINGS && wanted >> found > most) found++;
    return (uint32_t)found;
}

void ww_pace_begin(struct ww_communicator *communicator, uint64_t id, uint32_t budget) {
    struct ww_pace *pace = &communicator->pace;
    uint64_t now_ms = ww_monotonic_ns() / MS;
    set(&pace->id, id);
    set(&pace->budget, budget);
    set(&pace->calls, 0);
    set(&pace->begun, 0);
    set(&pace->warmth, 0);
    set(&pace->counted_ms, now_ms);
    set(&pace->most, 0);
    set(&pace->most_before, 0);
    set(&pace->period_ms, now_ms);
    set(&pace->shared_ms, 0);
}

bool ww_is_due(struct ww_communicator *communicator, uint64_t now_ns) {
    struct ww_pace *pace = &communicator->pace;
    struct ww_header *header = ww_header(communicator);
    uint64_t now_ms = now_ns / MS, call = __atomic_fetch_add(&pace->calls, 1, __ATOMIC_RELAXED);
    uint64_t block = call / WW_BLOCK;
    uint32_t found;
    keep_most(pace, warm(pace, now_ms), now_ms);
    found = halvings(communicator, call % WW_BLOCK == 0, now_ms);
    if (__atomic_load_n(&header->stride, __ATOMIC_RELAXED) != 1u << found)
        __atomic_store_n(&header->stride, 1u << found, __ATOMIC_RELAXED);
    if (get(&pace->begun) == block + 1) return true;
    if (!ww_is_chosen(get(&pace->id), block, found)) return false;
    set(&pace->begun, block + 1);
    return true;
}
