/* The ring's file: made, locked and mapped at init; marked, removed and unmapped at finalize.
 *
 * Its pages exist before it is mapped, so that a full file system is an error here and no signal in the job later.
 * It lies on tmpfs only: the pages of a disk's file are written back, and a store waits for that. The lock is held
 * by the mapping, not by a descriptor, so that a job that closes all of its descriptors does not seem dead, and a
 * forked child, which does not get the mapping, does not seem alive.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tap.h"

#define TMPFS 0x01021994
#define RAMFS 0x858458f6
enum { INTERRUPTIONS = 100 };

/* Looked up once for each communicator: what is in the environment later is of no interest. */
static bool choose_directory(char *directory) {
    const char *chosen = getenv("WIREWATCH_TAP_DIR");
    int length = snprintf(directory, WW_DIRECTORY, "%s", chosen && *chosen ? chosen : "/run/wirewatch-jobs");
    return length < WW_DIRECTORY;
}

static int open_directory(const char *path) { return open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

/* Writes a name that nobody can guess. */
static bool choose_name(char *name, size_t size) {
    uint64_t random = 0;
    int source = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t got = read(source, &random, sizeof random);
    close(source);
    snprintf(name, size, "%016llx.ring", (unsigned long long)random);
    return got == (ssize_t)sizeof random;
}

/* Whether a file of the ring's size may be made: beyond the limit the kernel sends SIGXFSZ, which ends a job. */
static bool within_limit(void) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &limit);
    return limit.rlim_cur >= WW_RING_BYTES;
}

static const char *reserve(int file) {
    struct statfs about = {0};
    int failed = EINTR;
    fstatfs(file, &about);
    if ((uint32_t)about.f_type != TMPFS && (uint32_t)about.f_type != RAMFS)
        return "its directory is not on tmpfs, and a disk would delay the job";
    for (int i = 0; failed == EINTR && i < INTERRUPTIONS; i++) failed = posix_fallocate(file, 0, WW_RING_BYTES);
    errno = failed;
    if (failed) return "no space for the ring";
    if (fchmod(file, 0640)) return "the mode of the ring cannot be set"; /* whatever the job's umask is */
    if (flock(file, LOCK_EX | LOCK_NB)) return "the ring cannot be locked";
    return NULL;
}

static const char *map(struct ww_communicator *communicator, int file) {
    void *old = communicator->ring;
    int flags = MAP_SHARED | MAP_POPULATE | (old ? MAP_FIXED : 0);
    void *ring = mmap(old, WW_RING_BYTES, PROT_READ | PROT_WRITE, flags, file, 0);
    if (ring == MAP_FAILED) return "the ring cannot be mapped";
    if (!old) communicator->ring = ring;
    if (madvise(ring, WW_RING_BYTES, MADV_DONTFORK)) return "the ring cannot be kept from children";
    if (!communicator->pool) {
        void *pool = mmap(NULL, sizeof *communicator->pool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pool == MAP_FAILED) return "no memory";
        communicator->pool = pool;
    }
    return NULL;
}

/* What an event of another thread may still write to has to stay mapped: nowhere, to nobody. */
static bool map_nowhere(struct ww_communicator *communicator) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return !communicator->ring
           || mmap(communicator->ring, WW_RING_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

static void fill_header(struct ww_communicator *communicator, const struct ww_called *called) {
    struct ww_header *header = ww_header(communicator);
    uint64_t magic;
    header->version = WW_RING_VERSION;
    header->header_bytes = WW_RING_HEADER;
    header->record_bytes = WW_RING_RECORD;
    header->records = WW_RING_RECORDS;
    header->communicator = called->communicator;
    header->ranks = (uint32_t)called->ranks;
    header->rank = (uint32_t)called->rank;
    header->nodes = (uint32_t)called->nodes;
    header->interface = called->interface;
    ww_gpu_uuid(header->gpu_uuid, sizeof header->gpu_uuid);
    snprintf(header->name, sizeof header->name, "%s", called->name ? called->name : "");
    header->pid = getpid();
    header->created_unix_ns = ww_realtime_ns();
    header->created_ns = ww_monotonic_ns();
    snprintf(header->tap_version, sizeof header->tap_version, "%s", WW_TAP_VERSION);
    header->nccl_version = called->nccl;
    header->untimed = communicator->untimed;
    header->on_ms = communicator->on_ms;
    header->period_ms = communicator->period_ms;
    header->budget = communicator->whole ? 0 : (uint32_t)communicator->pace.budget;
    header->block = communicator->whole ? 0 : WW_BLOCK;
    header->stride = 1;
    header->event_ns = header->created_ns;
    header->state = WW_LIVE;
    memcpy(&magic, WW_RING_MAGIC, sizeof magic);
    __atomic_store_n((uint64_t *)(void *)header->magic, magic, __ATOMIC_RELEASE); /* last: now it may be read */
}

static void undo(struct ww_communicator *communicator, int directory) {
    int saved = errno;
    unlinkat(directory, communicator->name, 0);
    map_nowhere(communicator);
    errno = saved;
}

static const char *make(struct ww_communicator *communicator, int directory) {
    const char *failed;
    int file;
    if (!choose_name(communicator->name, sizeof communicator->name)) return "no random name";
    file = openat(directory, communicator->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (file < 0) return "the ring cannot be made in its directory";
    communicator->file = file + 1;
    failed = reserve(file);
    if (!failed) failed = map(communicator, file);
    if (failed) undo(communicator, directory);
    communicator->file = 0;
    close(file);
    return failed;
}

const char *ww_ring_open(struct ww_communicator *communicator, const struct ww_called *called) {
    const char *failed;
    int directory;
    if (!within_limit()) return "the limit of a file's size is below that of the ring";
    if (!choose_directory(communicator->directory)) return "the path of its directory is too long";
    directory = open_directory(communicator->directory);
    if (directory < 0) return "its directory cannot be opened";
    failed = make(communicator, directory);
    if (!failed) fill_header(communicator, called);
    close(directory);
    return failed;
}

/* `quiet`: no thread writes a record. Else the mapping stays as it is, and its entry cannot be used again.
 *
 * The file is removed here, since nobody else may be there to do it. A reader that has it open reads to the end.
 */
bool ww_ring_close(struct ww_communicator *communicator, bool quiet) {
    struct ww_header *header = ww_header(communicator);
    int directory = open_directory(communicator->directory);
    __atomic_store_n(&header->timing, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&header->event_ns, ww_monotonic_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&header->state, WW_FINALIZED, __ATOMIC_RELEASE);
    unlinkat(directory, communicator->name, 0);
    close(directory);
    return quiet && map_nowhere(communicator);
}

/* A child has no mapping of a ring: it was kept from it. What lies at the address now is not ours. A descriptor of
 * one that was being made would keep its lock.
 */
void ww_ring_forget(struct ww_communicator *communicator) {
    if (communicator->file) close(communicator->file - 1);
    communicator->file = 0;
    if (communicator->pool) munmap(communicator->pool, sizeof *communicator->pool);
    communicator->pool = NULL;
    communicator->ring = NULL;
    communicator->mask = NULL;
    communicator->ticket = 0;
    communicator->publishing = 0;
    communicator->taken = 0;
}
