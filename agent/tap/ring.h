/* The file in which one process writes what one of its communicators does: a header, then a ring of records.
 *
 * Written by the tap inside a job, read by the agent with pread. Both run on one machine: numbers are in its byte
 * order, which the magic shows. A reader trusts nothing in it. jobs/tap/rings.py holds the same layout.
 *
 * The magic is written last: a file without it is not finished (or its writer died at once). The writer holds an
 * exclusive flock from before the magic to its end, by its mapping: a file whose lock is free has no writer any more.
 * At finalize it sets WW_FINALIZED and removes the name; a reader that has the file open reads what was written last
 * through its descriptor. Whoever ends without finalize leaves the file, to be removed by the agent.
 *
 * Counters of the header only grow; each is written by atomic stores. A record is valid when its `sequence` is its
 * number (counted from 1) before and after the rest of it was read; 0 while it is written.
 */
#ifndef WIREWATCH_RING_H
#define WIREWATCH_RING_H

#include <stdint.h>

#define WW_RING_MAGIC "WWRING1"
#define WW_RING_VERSION 1u
#define WW_RING_HEADER 4096u
#define WW_RING_RECORD 64u
#define WW_RING_RECORDS 4096u
#define WW_RING_BYTES (WW_RING_HEADER + WW_RING_RECORDS * WW_RING_RECORD)
#define WW_FUNCTIONS 16

/* Numbers of what NCCL names by strings; 0 is "none of these". */
enum ww_function {
    WW_FUNCTION_UNKNOWN = 0, WW_ALL_GATHER, WW_ALL_REDUCE, WW_ALL_TO_ALL, WW_BROADCAST, WW_GATHER, WW_RECV,
    WW_REDUCE, WW_REDUCE_SCATTER, WW_SCATTER, WW_SEND_RECV, WW_SEND,
};
enum ww_datatype {
    WW_DATATYPE_UNKNOWN = 0, WW_INT8, WW_UINT8, WW_INT32, WW_UINT32, WW_INT64, WW_UINT64, WW_FLOAT16, WW_FLOAT32,
    WW_FLOAT64, WW_BFLOAT16, WW_FLOAT8E4M3, WW_FLOAT8E5M2,
};
enum ww_algorithm {
    WW_ALGORITHM_UNKNOWN = 0, WW_TREE, WW_RING, WW_COLLNET_DIRECT, WW_COLLNET_CHAIN, WW_NVLS, WW_NVLS_TREE, WW_PAT,
};
enum ww_protocol { WW_PROTOCOL_UNKNOWN = 0, WW_LL, WW_LL128, WW_SIMPLE };
enum ww_state { WW_LIVE = 1, WW_FINALIZED = 2 };
/* Why a communicator is not timed, or not any more; 0 while it is. */
enum ww_untimed {
    WW_TIMED = 0,
    WW_SWITCHED_OFF,  /* by WIREWATCH_TAP_ON_MS or WIREWATCH_TAP_BUDGET */
    WW_NOT_MEASURED,  /* this version of NCCL is not on the tap's list */
    WW_ELSEWHERE,     /* NCCL keeps the mask of a call in another place */
    WW_CAPTURED,      /* a call went into a CUDA graph */
    WW_BROADCASTS,    /* interface 7: NCCL counts a broadcast on the GPU alone */
    WW_MASK_CHANGED,  /* somebody else took the channels out of NCCL's mask */
};
enum ww_flags { WW_SAME_AT_STOP = 1 /* every channel that started has stopped */ };

struct ww_record {
    uint64_t sequence;      /* number of this record, from 1; 0 while it is written */
    uint64_t collective;    /* NCCL's seqNumber of this function in this communicator: the same on every rank */
    uint64_t count;         /* elements as in the call: of all_gather and reduce_scatter those of one rank */
    uint64_t started_ns;    /* GPU's globaltimer, the first channel's start */
    uint64_t stopped_ns;    /* the last channel's stop */
    uint64_t enqueued_ns;   /* CLOCK_MONOTONIC of the host at the enqueue */
    uint32_t longest_ns;    /* of one channel from its start to its stop; all ones where longer */
    uint8_t function, datatype, algorithm, protocol;
    uint8_t channels;       /* as NCCL announced */
    uint8_t stopped;        /* of those, how many have stopped */
    uint8_t flags;
    uint8_t root;           /* 255 where larger or none */
    uint32_t reserved;
};

struct ww_header {
    char magic[8];
    uint32_t version, header_bytes, record_bytes, records;
    uint64_t communicator;  /* commId: the same on every rank */
    uint32_t ranks, rank, nodes, interface; /* interface: version of NCCL's profiler interface in use */
    char gpu_uuid[48];      /* "GPU-...", empty where it could not be had */
    char name[64];          /* of the communicator, may be empty */
    int64_t pid;            /* as the process sees itself */
    uint64_t created_unix_ns, created_ns; /* CLOCK_REALTIME, CLOCK_MONOTONIC */
    char tap_version[16];
    int32_t nccl_version;   /* such as 22809; 0 where it could not be had */
    uint32_t untimed;       /* enum ww_untimed; 0 in rings of 0.2 */
    uint32_t on_ms, period_ms; /* calls are timed within on_ms of every period_ms alone: always where they are equal */
    /* Since 0.3, 0 before: of so many blocks of so many calls each one is timed now, to time about `budget` calls a
     * second in this process; the budget is 0 where every call is timed. */
    uint32_t budget, block, stride;
    uint8_t pad0[28];
    /* counters, from byte 256 on */
    uint64_t written;       /* records so far, also those that were overwritten since */
    uint64_t dropped;       /* timed collectives that got no record: no free handle, or the channels never stopped */
    uint64_t enqueued;      /* collectives that were enqueued, timed or not */
    uint64_t sends;         /* sends and receives, which are not judged */
    uint64_t event_ns;      /* CLOCK_MONOTONIC of the last event */
    uint64_t captured;      /* calls captured into CUDA graphs, where NCCL says so (interface 5 and later); after one
                             * this communicator is not timed any more */
    uint64_t windows;       /* how often timing began */
    uint32_t state;         /* enum ww_state */
    uint32_t timing;        /* 1 where the last call was timed */
    uint64_t calls[WW_FUNCTIONS];  /* enqueued, by function */
    uint64_t bytes[WW_FUNCTIONS];  /* message bytes as nccl-tests counts them; collectives of unknown type not counted */
    uint64_t unsized[WW_FUNCTIONS]; /* of these the type, and so the bytes, was not known */
};

_Static_assert(sizeof(struct ww_record) == WW_RING_RECORD, "layout of a record");
_Static_assert(sizeof(struct ww_header) <= WW_RING_HEADER, "layout of the header");
_Static_assert(__builtin_offsetof(struct ww_header, written) == 256, "layout of the counters");

#endif
