/* Stands in for the driver and for NCCL in one library: what the tap asks them, and NCCL's log. */
#include <stdlib.h>
#include <string.h>

static int asked(const char *what) {
    const char *fails = getenv("FAILS");
    return fails && !strcmp(fails, what);
}

int cuCtxGetDevice(int *device) {
    *device = 3;
    return asked("context") ? 201 : 0;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0x10 * device + i);
    return asked("uuid") ? 100 : 0;
}

int ncclGetVersion(int *version) {
    *version = 22809;
    return asked("version") ? 1 : 0;
}

void library_log(int level, unsigned long subsystem, const char *file, int line, const char *format, ...) {
    (void)level, (void)subsystem, (void)file, (void)line, (void)format;
}
