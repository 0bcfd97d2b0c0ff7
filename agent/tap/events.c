/* Collectives from their enqueue to the stop of their last channel, and the record that follows.
 *
 * The enqueue comes from a thread of the job, the channels' starts and stops from NCCL's progress thread. A slot is
 * used by one thread at a time: the lock is the lowest bit of its guard, and the guard is also the name of what it
 * holds, so that an event of a collective that is gone finds another name there and does nothing.
 */
#include <string.h>

#include "tap.h"

enum { TRIES = 200 };
#define BUSY UINT64_C(1)

static bool lock_named(struct ww_slot *slot, uint64_t name) {
    for (int i = 0; i < TRIES; i++) {
        uint64_t expected = name << 1;
        if (__atomic_compare_exchange_n(&slot->guard, &expected, expected | BUSY, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return true;
        if (expected != (name << 1 | BUSY)) return false; /* another collective, or none */
        ww_relax();
    }
    return false;
}

/* Locks a slot whatever it holds, unless another thread is at it, and says whether timed channels are in it. */
static bool lock_any(struct ww_slot *slot, uint64_t ticket, bool *unfinished) {
    uint64_t guard = __atomic_fetch_or(&slot->guard, BUSY, __ATOMIC_ACQUIRE);
    if (guard & BUSY) return false;
    *unfinished = guard && slot->started && slot->ticket == ticket;
    return true;
}

static void unlock(struct ww_slot *slot, uint64_t name) { __atomic_store_n(&slot->guard, name << 1, __ATOMIC_RELEASE); }

/* The record's words in their order: its number is 0 until all others are there. */
static void write_record(struct ww_communicator *communicator, const struct ww_record *record) {
    struct ww_header *header = ww_header(communicator);
    uint64_t number = __atomic_load_n(&header->written, __ATOMIC_RELAXED) + 1;
    uint64_t words[WW_RING_RECORD / 8];
    uint64_t *place = (uint64_t *)(void *)(communicator->ring + WW_RING_HEADER
                                           + (number - 1) % WW_RING_RECORDS * WW_RING_RECORD);
    memcpy(words, record, sizeof words);
    __atomic_store_n(place, 0, __ATOMIC_RELAXED);
    for (size_t i = 1; i < WW_RING_RECORD / 8; i++) __atomic_store_n(place + i, words[i], __ATOMIC_RELEASE);
    __atomic_store_n(place, number, __ATOMIC_RELEASE);
    __atomic_store_n(&header->written, number, __ATOMIC_RELEASE);
}

static struct ww_record record_of(const struct ww_slot *slot) {
    struct ww_record record = {
        .collective = slot->collective,
        .count = slot->count,
        .started_ns = slot->started_ns,
        .stopped_ns = slot->stopped_ns,
        .enqueued_ns = slot->enqueued_ns,
        .longest_ns = slot->longest_ns,
        .function = slot->function,
        .datatype = slot->datatype,
        .algorithm = slot->algorithm,
        .protocol = slot->protocol,
        .channels = slot->channels,
        .stopped = (uint8_t)__builtin_popcountll(slot->stopped),
        .flags = slot->stopped == slot->started ? WW_SAME_AT_STOP : 0,
        .root = slot->root,
    };
    return record;
}

/* Of a collective that is complete. Finalize takes the same lock, after it has taken the ticket away. */
static void publish(struct ww_communicator *communicator, const struct ww_slot *slot) {
    struct ww_record record = record_of(slot);
    bool locked = ww_lock(&communicator->publishing, TRIES);
    if (__atomic_load_n(&communicator->ticket, __ATOMIC_ACQUIRE) == slot->ticket) {
        if (locked && slot->stopped) write_record(communicator, &record);
        else ww_add(&ww_header(communicator)->dropped, 1);
    }
    if (locked) ww_unlock(&communicator->publishing);
}

static void count_call(struct ww_communicator *communicator, uint8_t function, uint8_t datatype, uint64_t count) {
    struct ww_header *header = ww_header(communicator);
    uint64_t bytes = count * ww_element_bytes(datatype);
    if (ww_counts_one_rank(function)) bytes *= __atomic_load_n(&communicator->ranks, __ATOMIC_RELAXED);
    ww_add(&header->calls[function], 1);
    if (datatype == WW_DATATYPE_UNKNOWN) ww_add(&header->unsized[function], 1);
    else ww_add(&header->bytes[function], bytes);
}

void ww_count_p2p(struct ww_communicator *communicator, const struct nccl_p2p *p2p) {
    struct ww_header *header = ww_header(communicator);
    ww_add(&header->sends, 1);
    count_call(communicator, ww_function(p2p->function), ww_datatype(p2p->datatype), p2p->count);
    __atomic_store_n(&header->event_ns, ww_monotonic_ns(), __ATOMIC_RELAXED);
}

static void fill(struct ww_slot *slot, uint64_t ticket, const struct nccl_collective *collective, uint64_t now_ns) {
    slot->ticket = ticket;
    slot->collective = collective->sequence;
    slot->count = collective->count;
    slot->enqueued_ns = now_ns;
    slot->started_ns = UINT64_MAX;
    slot->stopped_ns = 0;
    slot->started = slot->stopped = slot->ended = 0;
    slot->longest_ns = 0;
    slot->algorithm = ww_algorithm(collective->algorithm);
    slot->protocol = ww_protocol(collective->protocol);
    slot->channels = collective->channels;
    slot->root = (uint32_t)collective->root < 255 ? (uint8_t)collective->root : 255;
}

/* Takes the next slot but those that another thread is at. What it held is as old as the pool is large. */
static uint64_t take_slot(struct ww_communicator *communicator, uint64_t ticket, struct ww_slot **taken) {
    for (int i = 0; i < TRIES; i++) {
        uint64_t name = __atomic_add_fetch(&communicator->collectives, 1, __ATOMIC_RELAXED) & WW_GENERATIONS;
        struct ww_slot *slot = &communicator->pool->slots[name % WW_SLOTS];
        bool unfinished = false;
        if (!name || !lock_any(slot, ticket, &unfinished)) continue;
        if (unfinished) ww_add(&ww_header(communicator)->dropped, 1);
        *taken = slot;
        return name;
    }
    return 0;
}

/* A channel starts whose collective had to give its slot away before any channel started: counted once. */
static void count_lost(struct ww_communicator *communicator, uint64_t ticket, uint64_t name) {
    if (name <= __atomic_load_n(&communicator->since, __ATOMIC_RELAXED)) return; /* of one that is gone */
    if (!ww_lock(&communicator->publishing, TRIES)) return;
    if (__atomic_load_n(&communicator->ticket, __ATOMIC_ACQUIRE) == ticket && communicator->lost != name) {
        communicator->lost = name;
        ww_add(&ww_header(communicator)->dropped, 1);
    }
    ww_unlock(&communicator->publishing);
}

uint64_t ww_start_collective(struct ww_communicator *communicator, uint64_t ticket,
                             const struct nccl_collective *collective) {
    struct ww_header *header = ww_header(communicator);
    uint64_t now_ns = ww_monotonic_ns(), name;
    uint8_t function = ww_function(collective->function), datatype = ww_datatype(collective->datatype);
    struct ww_slot *slot = NULL;
    ww_add(&header->enqueued, 1);
    count_call(communicator, function, datatype, collective->count);
    __atomic_store_n(&header->event_ns, now_ns, __ATOMIC_RELAXED);
    if (!ww_is_timed(communicator)) return 0;
    name = take_slot(communicator, ticket, &slot);
    if (!slot) {
        if (__atomic_load_n(&header->timing, __ATOMIC_RELAXED)) ww_add(&header->dropped, 1);
        return 0;
    }
    fill(slot, ticket, collective, now_ns);
    slot->function = function;
    slot->datatype = datatype;
    unlock(slot, name);
    return ww_handle(WW_COLLECTIVE, ww_number(ticket), (uint32_t)(name % WW_SLOTS), 0, name);
}

uint64_t ww_start_channel(struct ww_communicator *communicator, uint64_t ticket, uint64_t parent,
                          const struct nccl_channel *channel) {
    uint32_t number = channel->channel, index = ww_slot(parent);
    uint64_t name = ww_generation(parent), bit = UINT64_C(1) << (number & (WW_CHANNELS - 1));
    struct ww_slot *slot = &communicator->pool->slots[index];
    bool first;
    if (number >= WW_CHANNELS) return 0;
    if (!lock_named(slot, name)) {
        if (__atomic_load_n(&slot->guard, __ATOMIC_RELAXED) >> 1 > name) count_lost(communicator, ticket, name);
        return 0;
    }
    first = !(slot->started & bit);
    if (first) {
        slot->started |= bit;
        communicator->pool->starts[index][number] = (uint32_t)channel->started;
        if (channel->started < slot->started_ns) slot->started_ns = channel->started;
    }
    unlock(slot, name);
    return first ? ww_handle(WW_CHANNEL, ww_number(parent), index, number, name) : 0;
}

/* The channel's own time from the low halves of its clock; a collective that is too long for that has all ones. */
static void add_stop(struct ww_slot *slot, uint32_t started, uint64_t bit, uint64_t stopped_ns) {
    uint32_t channel_ns = (uint32_t)stopped_ns - started;
    if (stopped_ns < slot->started_ns) return; /* no time: clocks do not run backwards */
    if (stopped_ns - slot->started_ns > UINT32_MAX) channel_ns = UINT32_MAX;
    if (stopped_ns - slot->started_ns < channel_ns) return; /* before its own start */
    slot->stopped |= bit;
    if (stopped_ns > slot->stopped_ns) slot->stopped_ns = stopped_ns;
    if (channel_ns > slot->longest_ns) slot->longest_ns = channel_ns;
}

void ww_record_stop(struct ww_communicator *communicator, uint64_t handle, uint64_t stopped_ns) {
    uint32_t index = ww_slot(handle), number = ww_channel(handle);
    uint64_t name = ww_generation(handle), bit = UINT64_C(1) << number;
    struct ww_slot *slot = &communicator->pool->slots[index];
    if (!lock_named(slot, name)) return;
    if (!((slot->stopped | slot->ended) & bit))
        add_stop(slot, communicator->pool->starts[index][number], bit, stopped_ns);
    unlock(slot, name);
}

void ww_stop_channel(struct ww_communicator *communicator, uint64_t handle) {
    uint64_t name = ww_generation(handle), bit = UINT64_C(1) << ww_channel(handle);
    struct ww_slot *slot = &communicator->pool->slots[ww_slot(handle)];
    if (!lock_named(slot, name)) return;
    slot->ended |= bit;
    if (__builtin_popcountll(slot->ended) == slot->channels) {
        publish(communicator, slot);
        name = 0;
    }
    unlock(slot, name);
}

/* At the end: collectives whose channels started and that get no record any more. */
void ww_count_unfinished(struct ww_communicator *communicator, uint64_t ticket) {
    for (size_t i = 0; i < WW_SLOTS; i++) {
        struct ww_slot *slot = &communicator->pool->slots[i];
        bool unfinished = false;
        if (!lock_any(slot, ticket, &unfinished)) continue;
        if (unfinished) ww_add(&ww_header(communicator)->dropped, 1);
        unlock(slot, 0);
    }
}
