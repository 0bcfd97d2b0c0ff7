/* Looks at a ring after every single store of the tap into it, as a reader might at that moment: a record that has a
 * number must be whole, and `written` must not be ahead of the records. Order of memory is asserted too, where a
 * machine may keep stores in another order: what follows the 0 of a record's number has to be a release.
 *
 * Prints how many stores were looked at; exit status 1 with a line at the first fault.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void stored(const void *place, int order);
/* A macro's own name is not expanded again inside it: the compiler's builtin. */
#define __atomic_store_n(place, value, order) (__atomic_store_n(place, value, order), stored(place, order))
#include "../../../../agent/tap/events.c"
#undef __atomic_store_n

enum { TURNS = 3, CHANNELS = 2 };
static char ring[WW_RING_BYTES] __attribute__((aligned(4096)));
static struct ww_pool pool;
static struct ww_communicator communicator = {.ring = ring, .pool = &pool, .ranks = 2, .on_ms = 1, .period_ms = 1};
static uint64_t looks;

uint64_t ww_monotonic_ns(void) { return 77; }
uint8_t ww_function(const char *word) { return word ? WW_ALL_REDUCE : 0; }
uint8_t ww_datatype(const char *word) { return word ? WW_FLOAT32 : 0; }
uint8_t ww_algorithm(const char *word) { return word ? WW_RING : 0; }
uint8_t ww_protocol(const char *word) { return word ? WW_SIMPLE : 0; }
uint32_t ww_element_bytes(uint8_t datatype) { return datatype ? 4 : 0; }
bool ww_counts_one_rank(uint8_t function) { return !function; }

static void fail(const char *why, uint64_t number) {
    printf("%s: record %lu\n", why, (unsigned long)number);
    exit(1);
}

/* The collective of record n is n, and its times follow from it. */
static bool whole(const struct ww_record *r) {
    uint64_t n = r->sequence;
    return r->collective == n && r->count == n * 3 && r->started_ns == n * 1000 && r->stopped_ns == n * 1000 + 600
           && r->enqueued_ns == 77 && r->longest_ns == 500 && r->channels == CHANNELS && r->stopped == CHANNELS
           && r->flags == WW_SAME_AT_STOP && r->function == WW_ALL_REDUCE && r->protocol == WW_SIMPLE;
}

static void stored(const void *place, int order) {
    size_t offset = (size_t)((const char *)place - ring);
    const struct ww_record *records = (const struct ww_record *)(const void *)(ring + WW_RING_HEADER);
    const struct ww_header *header = (const struct ww_header *)(const void *)ring;
    uint64_t written = header->written;
    if (offset >= sizeof ring) return; /* a lock, or a slot */
    looks++;
    if (written && records[(written - 1) % WW_RING_RECORDS].sequence != written) fail("written is ahead", written);
    if (offset < WW_RING_HEADER) return;
    const struct ww_record *record = &records[(offset - WW_RING_HEADER) / sizeof *record];
    if (record->sequence && !whole(record)) fail("torn", record->sequence);
    if (*(const uint64_t *)place && order != __ATOMIC_RELEASE) fail("out of order on other machines", written + 1);
}

int main(void) {
    communicator.ticket = ww_handle(WW_COMMUNICATOR, 0, 0, 0, 1);
    for (uint64_t n = 1; n <= TURNS * WW_RING_RECORDS; n++) {
        const struct nccl_collective collective = {.sequence = n, .function = "", .count = n * 3, .datatype = "",
                                                   .channels = CHANNELS, .algorithm = "", .protocol = ""};
        uint64_t parent = ww_start_collective(&communicator, communicator.ticket, &collective);
        for (uint8_t c = 0; c < CHANNELS; c++) {
            const struct nccl_channel channel = {c, n * 1000 + 100 * c};
            uint64_t handle = ww_start_channel(&communicator, communicator.ticket, parent, &channel);
            ww_record_stop(&communicator, handle, n * 1000 + 100 * c + 500);
            ww_stop_channel(&communicator, handle);
        }
    }
    if (((struct ww_header *)(void *)ring)->written != TURNS * WW_RING_RECORDS) fail("records are missing", 0);
    printf("%lu\n", (unsigned long)looks);
    return 0;
}
