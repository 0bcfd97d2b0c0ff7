/* What the parts of the tap share.
 *
 * Rules that all of it keeps: a call of NCCL into the tap returns success, whatever happens, and is short. Events
 * allocate nothing, make no system call (the clock is read through the vDSO) and wait for nobody: a lock that
 * another thread holds is tried a few times, then the event is given up and counted.
 */
#ifndef WIREWATCH_TAP_H
#define WIREWATCH_TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "ring.h"

#define WW_TAP_VERSION "0.2.0"
#define WW_COMMUNICATORS 64  /* of one process; the rest are not watched */
#define WW_SLOTS 1024        /* collectives of a communicator in flight; CUDA queues no more kernels ahead */
#define WW_CHANNELS 64       /* as many as NCCL has */

#define WW_DIRECTORY 256     /* bytes of its path */

#define WW_BLOCK 32u         /* calls in a row that are timed or not: NCCL keeps the times of 64 a channel */
#define WW_HOLD_MS 10000u    /* for so long at least a rate of calls is remembered that took a coarser stride */

/* One collective between its enqueue and the stop of its last channel. Everything but `guard` belongs to the thread
 * that has set the guard's lowest bit; the rest of it is the collective's number in this entry of the table, which is
 * never given twice, or 0 where there is none.
 */
struct ww_slot {
    uint64_t guard;
    uint64_t ticket; /* of the communicator that took the slot */
    uint64_t collective, count, enqueued_ns;
    uint64_t started_ns, stopped_ns;
    uint64_t started, stopped, ended; /* channels, one bit each: started, stopped with a time, stopped at all */
    uint32_t longest_ns;
    uint8_t function, datatype, algorithm, protocol, channels, root;
} __attribute__((aligned(64)));

struct ww_pool {
    struct ww_slot slots[WW_SLOTS];
    uint32_t starts[WW_SLOTS][WW_CHANNELS]; /* low half of each channel's start; guarded by the slot */
};

/* The thread-local variables of a library: its module, as the dynamic linker numbers it, and their bytes. */
struct ww_block {
    unsigned long module;
    size_t size;
};

/* How often a communicator calls, and which calls are timed: pace.c. */
struct ww_pace {
    uint64_t id;     /* commId */
    uint64_t budget; /* timed calls a second, of all communicators of the process */
    uint64_t calls;  /* eager calls of collectives so far */
    uint64_t begun;  /* 1 and the number of the last block that is timed */
    uint64_t warmth, counted_ms;            /* the calls of the last seconds, and when they were counted */
    uint64_t most, most_before, period_ms;  /* the most of them in this period and in the one before; its begin */
    uint64_t share, shared_ms;              /* what of them may be timed, and when that was found */
};

struct ww_communicator {
    uint64_t ticket;     /* its handle while it is watched, else 0 */
    uint32_t taken;      /* 1 from init to the end of finalize: not to be given to another communicator */
    uint32_t publishing; /* 1 while a thread writes a record */
    uint64_t generation; /* how often this entry was given out */
    uint64_t collectives; /* of all communicators that had this entry */
    uint64_t since;       /* as many as there were when this one came */
    uint64_t lost;        /* the last that had no slot any more when its channels started */
    char *ring;          /* mapped once, for all communicators that come to have this entry */
    struct ww_pool *pool;
    int *mask;
    uint32_t ranks;
    uint32_t untimed;    /* enum ww_untimed: nothing leads back to 0 */
    uint32_t whole;      /* 1 where every call is timed from the first on, by the mask of init */
    struct ww_block block;        /* of the thread-local variables of this NCCL */
    struct ww_pace pace;
    uint32_t on_ms, period_ms; /* a copy: what stands in the file decides nothing in the job */
    int file;                  /* its descriptor and 1, while it is being made */
    char name[24];             /* of the ring's file in its directory */
    char directory[WW_DIRECTORY];
};

/* What init was called with. */
struct ww_called {
    void **context;
    int *mask;
    const char *name;
    uint64_t communicator;
    int nodes, ranks, rank;
    nccl_log log;
    uint32_t interface;
    int32_t nccl;
};

static inline void ww_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline struct ww_header *ww_header(const struct ww_communicator *communicator) {
    return (struct ww_header *)(void *)communicator->ring;
}

static inline bool ww_is_timed(const struct ww_communicator *communicator) {
    return !__atomic_load_n(&communicator->untimed, __ATOMIC_RELAXED);
}

/* A lock among threads of this process that nobody waits for: it is tried so often. */
static inline bool ww_lock(uint32_t *lock, uint32_t tries) {
    for (; tries; tries--) {
        uint32_t expected = 0;
        if (__atomic_compare_exchange_n(lock, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
        ww_relax();
    }
    return false;
}
static inline void ww_unlock(uint32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

static inline void ww_add(uint64_t *counter, uint64_t number) {
    __atomic_fetch_add(counter, number, __ATOMIC_RELAXED);
}

/* A handle is a number that names what it stands for, never an address: NCCL may hand back one that is long gone.
 * Bits from the lowest: kind 3, communicator 6, slot 10, channel 6, generation 39.
 */
enum ww_kind { WW_COMMUNICATOR = 1, WW_CALL, WW_COLLECTIVE, WW_CHANNEL };
#define WW_GENERATIONS ((UINT64_C(1) << 39) - 1)

static inline uint64_t ww_handle(enum ww_kind kind, uint32_t communicator, uint32_t slot, uint32_t channel,
                                 uint64_t generation) {
    return (uint64_t)kind | (uint64_t)communicator << 3 | (uint64_t)slot << 9 | (uint64_t)channel << 19
           | (generation & WW_GENERATIONS) << 25;
}
static inline enum ww_kind ww_kind(uint64_t handle) { return (enum ww_kind)(handle & 7); }
static inline uint32_t ww_number(uint64_t handle) { return (uint32_t)(handle >> 3) & (WW_COMMUNICATORS - 1); }
static inline uint32_t ww_slot(uint64_t handle) { return (uint32_t)(handle >> 9) & (WW_SLOTS - 1); }
static inline uint32_t ww_channel(uint64_t handle) { return (uint32_t)(handle >> 19) & (WW_CHANNELS - 1); }
static inline uint64_t ww_generation(uint64_t handle) { return handle >> 25; }

/* names.c: numbers of NCCL's words, 0 for others and for none */
uint8_t ww_function(const char *word);
uint8_t ww_datatype(const char *word);
uint8_t ww_algorithm(const char *word);
uint8_t ww_protocol(const char *word);
uint32_t ww_element_bytes(uint8_t datatype); /* 0: not known */
bool ww_counts_one_rank(uint8_t function);   /* its count is of one rank, its bytes are of all */

/* process.c: what is asked of the libraries of this process; an empty text or 0 where it cannot be had */
void ww_gpu_uuid(char *text, size_t size);
int32_t ww_nccl_version(nccl_log log);
struct ww_block ww_thread_block(nccl_log log); /* of the library that has this function; module 0: none */
bool ww_within(const struct ww_block *block, const void *place, size_t size); /* of the calling thread */
void ww_stay_loaded(void);

/* ring.c: a reason for the log where it fails, else NULL */
const char *ww_ring_open(struct ww_communicator *communicator, const struct ww_called *called);
bool ww_ring_close(struct ww_communicator *communicator, bool quiet); /* whether the entry may be used again */
void ww_ring_forget(struct ww_communicator *communicator); /* in a forked child */

/* sampling.c */
uint64_t ww_monotonic_ns(void);
uint64_t ww_realtime_ns(void);
void ww_sampling_settings(struct ww_communicator *communicator, const struct ww_called *called);
void ww_first_mask(struct ww_communicator *communicator);
void ww_time_call(struct ww_communicator *communicator, void **handle, const struct nccl_collective_call *called);
void ww_time_no_more(struct ww_communicator *communicator, enum ww_untimed why);

/* pace.c */
bool ww_is_chosen(uint64_t communicator, uint64_t block, uint32_t halvings);
void ww_pace_begin(struct ww_communicator *communicator, uint64_t id, uint32_t budget);
bool ww_is_due(struct ww_communicator *communicator, uint64_t now_ns); /* counts the call too */

/* plugin.c */
const struct ww_communicator *ww_watched(uint32_t number); /* NULL where there is none, or it is not timed */
void ww_settle_mask(const struct ww_communicator *of);

/* events.c */
uint64_t ww_start_collective(struct ww_communicator *communicator, uint64_t ticket,
                             const struct nccl_collective *collective);
void ww_count_p2p(struct ww_communicator *communicator, const struct nccl_p2p *p2p);
uint64_t ww_start_channel(struct ww_communicator *communicator, uint64_t ticket, uint64_t parent,
                          const struct nccl_channel *channel);
void ww_record_stop(struct ww_communicator *communicator, uint64_t handle, uint64_t stopped_ns);
void ww_stop_channel(struct ww_communicator *communicator, uint64_t handle);
void ww_count_unfinished(struct ww_communicator *communicator, uint64_t ticket);

#endif
