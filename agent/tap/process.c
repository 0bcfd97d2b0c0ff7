/* What is asked of the libraries of this process: NCCL's version and the GPU's UUID.
 *
 * No library is loaded for it. The dynamic linker's functions are weak and of an old version, so that the tap loads
 * with every glibc since 2.17: they moved from libdl to libc in 2.34.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "tap.h"

#pragma weak dlopen
#pragma weak dlsym
#pragma weak dladdr
#pragma weak dlclose
#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif
__asm__(".symver dlopen, dlopen@" OLDEST);
__asm__(".symver dlsym, dlsym@" OLDEST);
__asm__(".symver dladdr, dladdr@" OLDEST);
__asm__(".symver dlclose, dlclose@" OLDEST);
#endif

/* The loaded library that has this address in it, or NULL; to be closed. */
static void *library_of(void *address, int flags) {
    Dl_info found;
    if (!dlopen || !dladdr(address, &found)) return NULL;
    return dlopen(found.dli_fname, RTLD_NOW | RTLD_NOLOAD | flags);
}

/* Of a library, or of any that the process shows to all. */
static void *symbol(void *library, const char *name) { return dlsym ? dlsym(library, name) : NULL; }

static void close_library(void *library) {
    if (library) dlclose(library);
}

static void *address_of(nccl_log log) {
    void *address = NULL;
    memcpy(&address, &log, sizeof address);
    return address;
}

int32_t ww_nccl_version(nccl_log log) {
    int (*get_version)(int *) = NULL;
    int version = 0;
    void *library = library_of(address_of(log), 0);
    void *found = symbol(library, "ncclGetVersion");
    if (!found) found = symbol(RTLD_DEFAULT, "ncclGetVersion");
    memcpy(&get_version, &found, sizeof found);
    if (!get_version || get_version(&version)) version = 0;
    close_library(library);
    return version;
}

/* The library whose segments hold an address, and what it has of thread-local variables. */
struct search {
    uintptr_t address;
    struct ww_block found;
};

static int look(struct dl_phdr_info *library, size_t size, void *of) { /* glibc has modules since 2.4 */
    struct search *search = of;
    struct ww_block block = {0, 0};
    bool here = false;
    (void)size;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        if (part->p_type == PT_LOAD) here |= search->address - (library->dlpi_addr + part->p_vaddr) < part->p_memsz;
        if (part->p_type == PT_TLS) block = (struct ww_block){library->dlpi_tls_modid, part->p_memsz};
    }
    if (here) search->found = block;
    return here;
}

struct ww_block ww_thread_block(nccl_log log) {
    struct search search = {(uintptr_t)address_of(log), {0, 0}};
    dl_iterate_phdr(look, &search);
    return search.found;
}

extern void *__tls_get_addr(void *); /* of the dynamic linker: where the calling thread has a module's variables */

/* Of a block that is there. */
bool ww_within(const struct ww_block *block, const void *place, size_t size) {
    unsigned long index[2] = {block->module, 0};
    uintptr_t after = (uintptr_t)place - (uintptr_t)__tls_get_addr(index); /* more than any size where it is before */
    return size <= block->size && after <= block->size - size;
}

static bool uuid_of_current_context(void *cuda, unsigned char uuid[16]) {
    int (*get_device)(int *) = NULL;
    int (*get_uuid)(void *, int) = NULL;
    int device = 0;
    void *found = symbol(cuda, "cuCtxGetDevice");
    memcpy(&get_device, &found, sizeof found);
    found = symbol(cuda, "cuDeviceGetUuid_v2");
    if (!found) found = symbol(cuda, "cuDeviceGetUuid");
    memcpy(&get_uuid, &found, sizeof found);
    return get_device && get_uuid && !get_device(&device) && !get_uuid(uuid, device);
}

void ww_gpu_uuid(char *text, size_t size) {
    unsigned char u[16];
    void *cuda = dlopen ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) : NULL;
    text[0] = 0;
    if (uuid_of_current_context(cuda, u))
        snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
                 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    close_library(cuda);
}

/* As `-z nodelete` does, for a tap that was linked without it: its fork handler outlives the last communicator. */
void ww_stay_loaded(void) {
    static const char here;
    void *address = NULL;
    const void *own = &here;
    memcpy(&address, &own, sizeof own);
    close_library(library_of(address, RTLD_NODELETE));
}
