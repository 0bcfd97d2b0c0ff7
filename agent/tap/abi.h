/* What NCCL passes to a profiler plugin, versions 4 to 7 of its interface, as far as the tap reads it.
 *
 * The layouts are facts of NCCL's binary interface for 64-bit machines. Version 4 differs in the order of init's
 * arguments and in the width of an event's type; versions 6 and 7 add events and members that the tap does not read.
 */
#ifndef WIREWATCH_ABI_H
#define WIREWATCH_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of the mask that init hands out, and types of events. */
enum {
    NCCL_GROUP = 1 << 0,
    NCCL_COLL = 1 << 1,
    NCCL_P2P = 1 << 2,
    NCCL_KERNEL_CHANNEL = 1 << 6,
    NCCL_COLL_API = 1 << 9,
    NCCL_P2P_API = 1 << 10,
};
enum { NCCL_CHANNEL_STOPPED = 22 };           /* state of a channel's event: its kernel has stopped */
enum { NCCL_LOG_INFO = 3, NCCL_LOG_INIT = 1 }; /* level and subsystem of a line of NCCL's log */

typedef void (*nccl_log)(int level, unsigned long subsystem, const char *file, int line, const char *format, ...);

struct nccl_collective {
    uint64_t sequence;
    const char *function;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *datatype;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
};

struct nccl_p2p {
    const char *function;
    void *buffer;
    const char *datatype;
    size_t count;
    int peer;
};

struct nccl_collective_call {
    const char *function;
    size_t count;
    const char *datatype;
    int root;
    void *stream;
    bool captured; /* into a CUDA graph */
};

struct nccl_p2p_call {
    const char *function;
    size_t count;
    const char *datatype;
    void *stream;
    bool captured;
};

/* Where NCCL keeps what it knows of the call that a thread makes (2.28 to 2.30). Its own, and no part of the interface:
 * whoever reads or writes it makes sure first that it is there. The handle of a collective's call is written to
 * `collective`; `mask` was copied from the one of init before the tap hears of the call, and is asked afterwards.
 */
struct nccl_call_state {
    int depth, mask, state;
    void *group, *p2p, *collective;
};

struct nccl_channel {
    uint8_t channel;
    uint64_t started; /* the GPU's globaltimer */
};

struct nccl_event {
    union {
        uint8_t narrow; /* interface 4 */
        uint64_t wide;
    } type;
    void *parent;
    int rank;
    union {
        struct nccl_collective collective;
        struct nccl_p2p p2p;
        struct nccl_collective_call collective_call;
        struct nccl_p2p_call p2p_call;
        struct nccl_channel channel;
    } of;
};

union nccl_state {
    uint64_t channel_stopped; /* the GPU's globaltimer */
    void *data;
};

struct nccl_profiler_4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *name, uint64_t communicator, int nodes, int ranks, int rank,
                nccl_log log);
    int (*start)(void *context, void **handle, struct nccl_event *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, union nccl_state *values);
    int (*finalize)(void *context);
};

struct nccl_profiler_5 {
    const char *name;
    int (*init)(void **context, uint64_t communicator, int *mask, const char *name, int nodes, int ranks, int rank,
                nccl_log log);
    int (*start)(void *context, void **handle, struct nccl_event *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, union nccl_state *values);
    int (*finalize)(void *context);
};

_Static_assert(sizeof(void *) == 8, "NCCL runs on 64-bit machines only");
_Static_assert(offsetof(struct nccl_event, of) == 24, "layout of an event");
_Static_assert(offsetof(struct nccl_collective, channels) == 56, "layout of a collective");
_Static_assert(offsetof(struct nccl_collective, algorithm) == 64, "layout of a collective");
_Static_assert(offsetof(struct nccl_collective_call, captured) == 40, "layout of a call");
_Static_assert(offsetof(struct nccl_p2p_call, captured) == 32, "layout of a call");
_Static_assert(offsetof(struct nccl_call_state, mask) == 4, "layout of a thread's call");
_Static_assert(offsetof(struct nccl_call_state, collective) == 32, "layout of a thread's call");

#endif
