/* Stands in for libcuda.so.1 and for NCCL in a played rank: there is no GPU and no driver.
 *
 * The tap asks libraries that the process has loaded for the GPU's UUID and for NCCL's version. Here both are what the
 * player's environment says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuCtxGetDevice(int *device) {
    *device = 0;
    return 0;
}

int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
    const char *text = getenv("PLAYED_GPU_UUID");
    (void)device;
    if (!text || strncmp(text, "GPU-", 4)) return 1;
    text += 4;
    for (int i = 0; i < 16; i++) {
        unsigned int byte;
        if (*text == '-') text++;
        if (sscanf(text, "%2x", &byte) != 1) return 1;
        uuid[i] = (unsigned char)byte;
        text += 2;
    }
    return 0;
}

/* Of the thread that calls, and the log: the tap looks for both in one library, which is NCCL's. */
static _Thread_local struct {
    int depth, mask, state;
    void *group, *p2p, *collective;
} calling;
static void (*listener)(const char *format);

void *played_calling(void) { return &calling; }

void played_listen(void (*to)(const char *format)) { listener = to; }

void played_log(int level, unsigned long subsystem, const char *file, int line, const char *format, ...) {
    (void)level, (void)subsystem, (void)file, (void)line;
    if (listener) listener(format);
}

int ncclGetVersion(int *version) {
    const char *text = getenv("PLAYED_NCCL_VERSION");
    *version = text ? atoi(text) : 22809;
    return 0;
}
