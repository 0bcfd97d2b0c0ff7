/* The whole tap in one program, to bring about what no caller can: a lock that another thread holds, a call into
 * libc that fails, a place just beyond a limit. Each check has a name that says what must hold; those that do not are
 * printed, and the exit status is 1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../../../../agent/tap/tap.h"

static const char *failing = "";
static int error, calls, waits, most_waits, broken;
static bool at_zero, first_free;
static long kind_of_disk; /* 0: as it is */
static uint64_t *released; /* a guard whose thread is done after `most_waits` looks at it */

static bool fails(const char *call) {
    if (strcmp(failing, call)) return false;
    calls++;
    errno = error;
    return true;
}

static void waited(void) {
    if (released && ++waits == most_waits) *released &= ~UINT64_C(1);
    else if (!released) waits++;
}

static void *mapped(void *at, size_t size, int access, int flags, int file, off_t offset) {
    const char *what = flags & MAP_SHARED ? "map the ring" : at ? "map nowhere" : "map the pool";
    at_zero |= !at && flags & MAP_FIXED;
    return fails(what) ? MAP_FAILED : mmap(at, size, access, flags, file, offset);
}

static int asked_disk(int file, struct statfs *about) {
    int failed = fstatfs(file, about);
    if (kind_of_disk) about->f_type = kind_of_disk;
    return failed;
}

/* With `first_free` by the descriptor 0, as in a process that has closed it. */
static int made(int directory, const char *name, int how, mode_t mode) {
    int file = openat(directory, name, how, mode);
    if (!first_free || file < 0) return file;
    dup2(file, 0);
    close(file);
    return 0;
}

static void *(*linked_dlopen)(const char *, int) = dlopen; /* NULL where glibc has them in a library of its own */
static void *(*linked_dlsym)(void *, const char *) = dlsym;

#define ww_relax waited
#define mmap mapped
#define madvise(at, size, how) (fails("madvise") ? -1 : madvise(at, size, how))
#define read(file, to, size) (fails("read") ? -1 : read(file, to, size))
#define fchmod(file, mode) (fails("fchmod") ? -1 : fchmod(file, mode))
#define fstatfs asked_disk
#define openat made
#define flock(file, how) (fails("flock") ? -1 : flock(file, how))
#define posix_fallocate(file, from, size) (fails("posix_fallocate") ? error : posix_fallocate(file, from, size))
#define dlopen linked_dlopen
#define dlsym linked_dlsym
#include "../../../../agent/tap/events.c"
#include "../../../../agent/tap/names.c"
#include "../../../../agent/tap/pace.c"
#include "../../../../agent/tap/plugin.c"
#include "../../../../agent/tap/process.c"
#include "../../../../agent/tap/ring.c"
#include "../../../../agent/tap/sampling.c"
#undef mmap

static struct ww_communicator *const watched_one = &communicators[0];
static int mask;
static void *context;
static _Thread_local char own[100];

static void check(bool holds, const char *what) {
    if (!holds) printf("not so: %s\n", what);
    broken += !holds;
}

static void log_line(int level, unsigned long subsystem, const char *file, int line, const char *format, ...) {
    (void)level, (void)subsystem, (void)file, (void)line, (void)format;
}

static struct ww_header *header(void) { return ww_header(watched_one); }
static void begin(void) {
    init_7(&context, 7, &mask, "guards", 1, 2, 0, log_line);
    released = NULL;
    waits = 0;
}
static uint64_t enqueue(void) {
    const struct nccl_collective one = {.sequence = 1, .count = 1, .channels = 1};
    return ww_start_collective(watched_one, watched_one->ticket, &one);
}
static uint64_t channel_of(uint64_t parent, uint64_t ticket) {
    const struct nccl_channel channel = {0, 1000};
    return ww_start_channel(watched_one, ticket, parent, &channel);
}
static uint64_t start_of(uint64_t parent) { return channel_of(parent, watched_one->ticket); }
static struct ww_slot *slot_of(uint64_t handle) { return &watched_one->pool->slots[ww_slot(handle)]; }
static void play(uint64_t handle) {
    ww_record_stop(watched_one, handle, 2000);
    ww_stop_channel(watched_one, handle);
}

/* Nothing is held, and no other communicator kept out, once a call has ended. */
static bool all_free(void) { return !mask_lock && !watched_one->publishing && watched_one->taken == (context != NULL); }

static void ended(void) {
    finalize(context);
    context = NULL;
    check(all_free(), "a communicator that is gone holds nothing");
}

static void slots(void) {
    uint64_t first, handle;
    struct ww_slot *slot;
    begin();
    first = enqueue();
    slot = slot_of(first);
    slot->guard |= BUSY;
    check(!start_of(first) && waits == TRIES, "a slot that its own collective keeps busy is tried so often");
    check(!header()->dropped, "a collective whose slot is busy is not lost");
    released = &slot->guard, most_waits = 5, waits = 0;
    handle = start_of(first);
    check(handle && waits == 5, "a slot that becomes free meanwhile is taken");
    slot->guard |= BUSY;
    released = NULL;
    play(handle);
    check(slot->guard == (ww_generation(first) << 1 | BUSY) && !slot->stopped && !slot->ended,
          "a stop leaves a slot alone that another thread is at");
    slot->guard += 2 * WW_SLOTS - BUSY;
    waits = 0;
    check(!start_of(first) && !waits, "for a slot of another collective nobody waits");
    check(header()->dropped == 1, "a collective that gave its slot away is lost");
    slot->started = 0; /* what it holds has a name of its own */
    play(handle);
    check(slot->guard == (ww_generation(first) + WW_SLOTS) << 1, "a late stop gives no slot another name");
    check(all_free(), "the lock is free after each event");
    ended();
}

static void pool(void) {
    uint64_t handle, before;
    begin();
    before = watched_one->collectives;
    watched_one->pool->slots[(before + 1) % WW_SLOTS].guard = 8 | BUSY;
    handle = enqueue();
    check(ww_generation(handle) == before + 2, "a busy slot is passed over");
    check(watched_one->pool->slots[(before + 1) % WW_SLOTS].guard == (8 | BUSY), "and left to its thread");
    for (size_t i = 0; i < WW_SLOTS; i++) watched_one->pool->slots[i].guard |= BUSY;
    before = watched_one->collectives;
    check(!enqueue() && watched_one->collectives == before + TRIES, "so many slots are tried");
    check(!header()->dropped, "a collective that is not timed lacks no record");
    header()->timing = 1;
    check(!enqueue() && header()->dropped == 1, "one that is timed does");
    slot_of(handle)->started = 1;
    memset(watched_one->pool->starts, 0x22, sizeof watched_one->pool->starts);
    ww_count_unfinished(watched_one, watched_one->ticket);
    check(header()->dropped == 1 && slot_of(handle)->guard & BUSY, "at the end a busy slot is left to its thread");
    check(watched_one->pool->starts[0][0] == 0x22222222, "nothing beyond the slots is touched");
    for (size_t i = 0; i < WW_SLOTS; i++) watched_one->pool->slots[i].guard = 0;
    watched_one->collectives = WW_GENERATIONS;
    check(ww_generation(enqueue()) == 1, "no collective has the name of none");
    slot_of(2 << 9)->guard = 9 << 1;
    slot_of(2 << 9)->started = 1;
    slot_of(2 << 9)->ticket = 1;
    check(ww_generation(enqueue()) == 2 && header()->dropped == 1, "what another communicator left is not counted");
    ended();
    watched_one->collectives = watched_one->lost = 0;
}

static void records(void) {
    uint64_t handle, lost;
    begin();
    lost = enqueue();
    handle = start_of(enqueue());
    watched_one->publishing = 1;
    play(handle);
    check(header()->dropped == 1 && !header()->written, "no record is written beside another thread");
    slot_of(lost)->guard += 2 * WW_SLOTS;
    start_of(lost);
    check(header()->dropped == 1, "nothing is counted as lost beside another thread");
    check(watched_one->publishing, "its lock stays with it");
    watched_one->publishing = 0;
    channel_of(lost, watched_one->ticket + 1);
    check(header()->dropped == 1, "nothing is counted as lost for a communicator that came since");
    start_of(lost);
    check(header()->dropped == 2, "it is counted for its own");
    check(all_free(), "the lock is free after it");
    watched_one->publishing = 1;
    finalize(context);
    check(watched_one->taken && watched_one->publishing, "an entry that a thread writes to is given to nobody");
    watched_one->publishing = watched_one->taken = 0;
    context = NULL;
}

static void masks(void) {
    int before;
    begin();
    check(all_free(), "the mask's lock is free after init");
    mask_lock = 1;
    before = mask;
    ww_time_no_more(watched_one, WW_CAPTURED);
    check(mask == before && mask_lock, "a mask is left alone while another thread decides about it");
    mask_lock = 0;
    ww_settle_mask(watched_one);
    check(mask == BASE && all_free(), "one that nobody needs loses its channels");
    ended();
    check(!mask, "a mask goes with the last communicator");
}

/* A communicator is not watched, and the reason is the one of this call. */
static void refused(const char *call, int with, const char *why) {
    const struct ww_called called = {&context, &mask, "guards", 7, 1, 2, 0, NULL, 7, 0};
    const char *failed, *directory = "";
    failing = call, error = with, calls = errno = 0;
    failed = watch(&called, &directory);
    failing = "";
    check(failed && !strcmp(failed, why) && errno == with, why);
    check(!watched_one->taken && !watched_one->file, "its entry is free");
}

static bool maps_a_ring(void) {
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, ".ring") != NULL;
    if (maps) fclose(maps);
    return found;
}

static void folders(void) {
    char chosen[WW_DIRECTORY], *set = strdup(getenv("WIREWATCH_TAP_DIR"));
    unsetenv("WIREWATCH_TAP_DIR");
    check(choose_directory(chosen) && !strcmp(chosen, "/run/wirewatch-jobs"), "a node's folder unless another is set");
    setenv("WIREWATCH_TAP_DIR", "", 1);
    check(choose_directory(chosen) && !strcmp(chosen, "/run/wirewatch-jobs"), "an empty name sets none");
    setenv("WIREWATCH_TAP_DIR", set, 1);
    free(set);
    kind_of_disk = 0xef53; /* ext4 */
    refused("", 0, "its directory is not on tmpfs, and a disk would delay the job");
    kind_of_disk = RAMFS;
    begin();
    check(context, "a file system without swap is in memory too");
    kind_of_disk = 0;
    ended();
    first_free = true;
    begin();
    check(context, "a ring may have the descriptor 0");
    first_free = false;
    ended();
    close(0);
    begin();
    check(context, "and so may its folder");
    ended();
}

static void rings(void) {
    refused("read", EIO, "no random name");
    refused("posix_fallocate", EINTR, "no space for the ring");
    check(calls == INTERRUPTIONS, "a call that is interrupted is made again, so often");
    refused("posix_fallocate", ENOSPC, "no space for the ring");
    check(calls == 1, "one that fails is not");
    refused("fchmod", EPERM, "the mode of the ring cannot be set");
    refused("flock", EWOULDBLOCK, "the ring cannot be locked");
    refused("map the ring", ENOMEM, "the ring cannot be mapped");
    refused("madvise", EINVAL, "the ring cannot be kept from children");
    check(!maps_a_ring(), "a ring that is not used is not mapped");
    refused("map the pool", ENOMEM, "no memory");
    begin();
    failing = "map nowhere";
    finalize(context);
    failing = "";
    check(watched_one->taken, "an entry whose ring is still mapped is given to nobody");
    check(!at_zero, "nothing is mapped where null pointers point");
    watched_one->taken = watched_one->publishing = 0;
    context = NULL;
}

static void child(void) {
    int file, directory;
    void *slots;
    begin();
    slots = watched_one->pool;
    file = open("/dev/null", O_RDONLY);
    watched_one->file = file + 1;
    mask_lock = 1;
    forget_in_child();
    check(fcntl(file, F_GETFD) == -1, "a child keeps no descriptor of a ring that was being made");
    check(msync(slots, 1, MS_ASYNC) && errno == ENOMEM, "nor the slots");
    check(!mask_lock, "nor a lock of another thread");
    context = NULL;
    directory = open_directory(watched_one->directory);
    unlinkat(directory, watched_one->name, 0);
    close(directory);
}

static void places(void) {
    struct ww_block block = ww_thread_block(log_line), small = {block.module, 8}, none = ww_thread_block(NULL);
    char *first = __tls_get_addr((unsigned long[]){block.module, 0});
    const ElfW(Phdr) parts[] = {{.p_type = PT_LOAD, .p_memsz = 0x100},
                                {.p_type = PT_TLS, .p_memsz = 40},
                                {.p_type = PT_LOAD, .p_vaddr = 0x200, .p_memsz = 0x100}};
    struct dl_phdr_info drawn = {.dlpi_addr = 0x1000, .dlpi_phdr = parts, .dlpi_phnum = 2, .dlpi_tls_modid = 3};
    struct search within = {0x10ff, {0, 0}}, behind = {0x1100, {0, 0}}, beyond = {0x1200, {0, 0}};
    check(first <= own && own + sizeof own <= first + block.size, "a block holds the variables of its library");
    check(!none.module, "a function that is nowhere has none");
    check(ww_within(&block, first, block.size), "all of it is within");
    check(!ww_within(&block, first - 1, block.size), "one byte before is not");
    check(!ww_within(&block, first + 1, block.size), "nor one byte behind");
    check(!ww_within(&small, first, 9), "nor what is larger");
    check(look(&drawn, 0, &within) && within.found.module == 3 && within.found.size == 40, "a library is found");
    check(!look(&drawn, 0, &behind), "not by the first byte behind a part of it");
    check(!look(&drawn, 0, &beyond), "nor by a part that it does not have");
}

static void libraries(void) {
    char uuid[48] = "x";
    check(!ww_nccl_version(NULL), "a process without NCCL has no version of it");
    linked_dlopen = NULL;
    linked_dlsym = NULL;
    check(!ww_nccl_version(log_line), "nor one without the linker's functions");
    ww_stay_loaded();
    ww_gpu_uuid(uuid, sizeof uuid);
    check(!*uuid, "it has no GPU either");
}

int main(void) {
    void (*const parts[])(void) = {rings, folders, slots, pool, records, masks, child, places, libraries};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) parts[i]();
    return broken != 0;
}
