/* A reference for host links: pinned memory to a GPU and back, by CUDA's driver alone, as bandwidth tests do it.

   hostcopies BYTES RUNS UUID=CPUS...

   For each GPU one line: UUID, then seconds of one copy to it, from it, and of one each way at once. Memory is
   pinned from the CPUs given, such as 0-15,32; - leaves them as they are. No header of CUDA is needed:
   cc -O2 hostcopies.c -ldl. Nothing here is shared with the worker. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long device_memory;
typedef void *handle;

static void *library;

static void *symbol(const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "libcuda.so.1 has no %s\n", name);
    exit(2);
  }
  return found;
}

static void check(int status, const char *what) {
  if (status) {
    fprintf(stderr, "%s: the driver says %d\n", what, status);
    exit(2);
  }
}

#define CALL(name, types, ...) check(((int(*) types)symbol(#name))(__VA_ARGS__), #name)

static void pin_thread(const char *cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (!strcmp(cpus, "-")) return;
  for (const char *at = cpus; *at;) {
    char *end;
    long first = strtol(at, &end, 10), last = first;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) CPU_SET(cpu, &set);
    at = *end == ',' ? end + 1 : end;
    if (*end && *end != ',') break;
  }
  if (sched_setaffinity(0, sizeof set, &set)) perror("sched_setaffinity"), exit(2);
}

struct sides {
  handle one, other, begin, end, forked;
  char *host;
  device_memory device;
  size_t bytes;
};

static void copy_to(const struct sides *s) {
  CALL(cuMemcpyHtoDAsync_v2, (device_memory, const void *, size_t, handle), s->device, s->host, s->bytes, s->one);
}

static void copy_from(const struct sides *s, handle stream) {
  CALL(cuMemcpyDtoHAsync_v2, (void *, device_memory, size_t, handle), s->host + s->bytes, s->device + s->bytes,
       s->bytes, stream);
}

/* Seconds of a copy; way 0: to the GPU, 1: from it, 2: both, which end when the later one has. */
static double timed(const struct sides *s, int way, int runs) {
  float ms = 0;
  for (int pass = 0; pass < 2; pass++) {
    CALL(cuEventRecord, (handle, handle), s->begin, s->one);
    CALL(cuStreamWaitEvent, (handle, handle, unsigned), s->other, s->begin, 0);
    for (int run = 0; run < (pass ? runs : 2); run++) {
      if (way != 1) copy_to(s);
      if (way) copy_from(s, way == 2 ? s->other : s->one);
    }
    CALL(cuEventRecord, (handle, handle), s->forked, s->other);
    CALL(cuStreamWaitEvent, (handle, handle, unsigned), s->one, s->forked, 0);
    CALL(cuEventRecord, (handle, handle), s->end, s->one);
    CALL(cuStreamSynchronize, (handle), s->one);
    CALL(cuEventElapsedTime, (float *, handle, handle), &ms, s->begin, s->end);
  }
  return ms * 1e-3 / runs;
}

static void measure(int device, const char *cpus, size_t bytes, int runs, const char *uuid) {
  handle context;
  struct sides s = {.bytes = bytes};
  void *host;
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  CALL(cuDevicePrimaryCtxRetain, (handle *, int), &context, device);
  CALL(cuCtxSetCurrent, (handle), context);
  CALL(cuMemAlloc_v2, (device_memory *, size_t), &s.device, 2 * bytes);
  pin_thread(cpus);
  CALL(cuMemHostAlloc, (void **, size_t, unsigned), &host, 2 * bytes, 0);
  s.host = host;
  memset(s.host, 1, 2 * bytes);
  CALL(cuStreamCreate, (handle *, unsigned), &s.one, 1);
  CALL(cuStreamCreate, (handle *, unsigned), &s.other, 1);
  CALL(cuEventCreate, (handle *, unsigned), &s.begin, 0);
  CALL(cuEventCreate, (handle *, unsigned), &s.end, 0);
  CALL(cuEventCreate, (handle *, unsigned), &s.forked, 0);
  printf("%s", uuid);
  for (int way = 0; way < 3; way++) printf(" %.9g", timed(&s, way, runs));
  printf("\n");
  CALL(cuMemFreeHost, (void *), host);
  CALL(cuMemFree_v2, (device_memory), s.device);
  CALL(cuDevicePrimaryCtxRelease_v2, (int), device);
  sched_setaffinity(0, sizeof before, &before);
}

int main(int count, char **words) {
  if (count < 4) {
    fprintf(stderr, "usage: hostcopies BYTES RUNS UUID=CPUS...\n");
    return 2;
  }
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  int devices = 0, found = 0;
  CALL(cuInit, (unsigned), 0);
  CALL(cuDeviceGetCount, (int *), &devices);
  for (int n = 0; n < devices; n++) {
    unsigned char raw[16];
    char uuid[48] = "GPU-", *at = uuid + 4;
    int device;
    CALL(cuDeviceGet, (int *, int), &device, n);
    CALL(cuDeviceGetUuid, (unsigned char *, int), raw, device);
    for (int byte = 0; byte < 16; byte++)
      at += sprintf(at, "%s%02x", byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "", raw[byte]);
    for (int word = 3; word < count; word++) {
      size_t length = strcspn(words[word], "=");
      if (length == strlen(uuid) && !strncmp(words[word], uuid, length) && words[word][length]) {
        measure(device, words[word] + length + 1, strtoull(words[1], NULL, 10), atoi(words[2]), uuid);
        found++;
      }
    }
  }
  return found == count - 3 ? 0 : 3;
}
