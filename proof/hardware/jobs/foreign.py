"""Somebody else's process on a GPU, by the CUDA driver alone, so that it comes as fast as one can.

python -m proof.hardware.jobs.foreign GPU      READY pid, with CUDA started; a line: context and memory, then
    UP, moments before and after on the monotonic clock, bytes that are free; stays until the input ends
python -m proof.hardware.jobs.foreign GPU --leave MIB     the same, taking all memory but so much
python -m proof.hardware.jobs.foreign GPU --compute       the same, at work until the input ends
"""

import argparse
import ctypes
import os
import time

from proof.hardware.jobs.listening import ended, say, wait_for_line

SMALL = 64 << 20
WORK = 1 << 30
LESS = 32 << 20
"""Bytes by which less is asked for when so much is not to be had in one piece."""
OUT_OF_MEMORY = 2
ROUND = 16


class Driver:
    """The few calls that are needed; each raises SystemExit when it fails."""

    def __init__(self) -> None:
        # The same order as NVML's.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *arguments: object, accept: int = 0) -> int:
        """The status, which is 0 or `accept`."""
        status = int(getattr(self._library, name)(*arguments))
        if status not in {0, accept}:
            raise SystemExit(f"{name}: CUDA error {status}")
        return status

    def context(self, index: int) -> None:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def free(self) -> int:
        """Bytes of memory that are free on the GPU of the context."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size: int) -> ctypes.c_uint64:
        """So many bytes; less where there is no such piece."""
        while True:
            place = ctypes.c_uint64()
            asked = ctypes.c_size_t(size)
            if not self.call("cuMemAlloc_v2", ctypes.byref(place), asked, accept=OUT_OF_MEMORY):
                return place
            size -= LESS
            if size <= 0:
                raise SystemExit("no memory at all is to be had")

    def write(self, place: ctypes.c_uint64, size: int) -> None:
        """Kernels that write a buffer, so many in a row; returns when they are done."""
        for _ in range(ROUND):
            self.call("cuMemsetD32_v2", place, ctypes.c_uint(1), ctypes.c_size_t(size // 4))
        self.call("cuCtxSynchronize")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("gpu", type=int)
    parser.add_argument("--leave", type=int, metavar="MIB")
    parser.add_argument("--compute", action="store_true")
    options = parser.parse_args()
    driver = Driver()
    say("READY", os.getpid())
    if not wait_for_line():
        return
    began = time.monotonic()
    driver.context(options.gpu)
    left = options.leave
    size = WORK if options.compute else SMALL if left is None else max(SMALL, driver.free() - (left << 20))
    place = driver.allocate(size)
    say("UP", f"{began:.6f} {time.monotonic():.6f} {driver.free()}")
    if options.compute:
        stop = ended()
        while not stop.is_set():
            driver.write(place, WORK)
    else:
        wait_for_line()


if __name__ == "__main__":
    main()
    # Nothing is torn down: the driver takes everything back at once.
    os._exit(0)
