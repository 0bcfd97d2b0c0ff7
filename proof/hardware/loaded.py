"""A probe's worker with a GPU that is not as fast as it should be: load of the worker's own beside its work.

    python -m proof.hardware.loaded KIND GPU OTHER DOCUMENT MARKS

KIND: `compute` multiplies matrices, `memory` copies within GPU's memory, `peer` copies from GPU to OTHER,
`host` copies from pinned memory to GPU, all by index. The load begins with the process and lasts until its
end. Nobody outside sees another process.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

from wirewatch.core.probe import MIB
from wirewatch.worker import __main__ as worker
from wirewatch.worker.hostlinks import TO_DEVICE
from wirewatch.worker.nccl_engine import CudaGpu, compile_kernels, done, reach

SIZE = 512 * MIB
HOST = 256 * MIB
"""Pinned, of which half is copied at a time: longer than a LOOK, so that the link is never idle."""
QUEUE = 0.1
"""Seconds of work that wait in the GPU's queue, so that it never runs dry."""
LOOK = 0.004


PUSH = r"""
extern "C" __global__ void push(const uint4* __restrict__ from, uint4* __restrict__ to, size_t count) {
  const size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) to[i] = from[i];
}
"""
PUSHING = LaunchConfig(grid=16, block=512)
"""They take a third of the wire and a twelfth of the worker's matrix product. With twice as many that lost a
fifth, so that the GPU was named instead; fewer blocks that are larger cost it more, too."""


def work_of(kind: str, mine: CudaGpu, other: CudaGpu) -> Callable[[], object]:
    """What puts one piece of work into the queue of a GPU."""
    if kind == "compute":
        mine.load(compile_kernels(mine.device))
        return mine.products()
    if kind == "memory":
        return lambda: done(driver.cuMemcpyDtoDAsync(mine.data + SIZE, mine.data, SIZE, mine.handle))
    if kind == "host":
        mine.pin(HOST)
        return lambda: mine.move(TO_DEVICE, HOST // 2)
    for one, to in ((mine, other), (other, mine)):
        reach(one, to)
    # By multiprocessors: copy engines serve the queues of one process one after the other, so that the
    # worker's own copies would wait for the end of ours.
    program = Program(PUSH, "c++", ProgramOptions(arch=f"sm_{mine.device.arch}"))
    kernel = program.compile("cubin").get_kernel("push")
    return lambda: launch(mine.stream, PUSHING, kernel, mine.data, other.data + SIZE, SIZE // 16)


def load(kind: str, index: int, other: int, ready: threading.Event) -> None:
    """Work without end on a stream of its own."""
    done(driver.cuInit(0))
    gpus = [CudaGpu(Device(number), rank) for rank, number in enumerate((index, other))]
    for gpu in reversed(gpus):
        gpu.open(2 * SIZE)
    mine = gpus[0]
    work = work_of(kind, *gpus)
    mine.device.set_current()
    marks = [mine.event()]
    work()
    marks.append(mine.event())
    mine.wait()
    # A copy engine serves one queue after the other: more than two would keep the worker's copies waiting.
    deep = 2 if kind == "host" else max(2, int(QUEUE / max(1e-5, mine.span(*marks))))
    waiting: list[Any] = []
    while True:
        while len(waiting) < deep:
            work()
            waiting.append(mine.event())
        ready.set()
        # Never a call that blocks: it would keep the interpreter from the worker's own thread.
        time.sleep(LOOK)
        while waiting and waiting[0].is_done:
            waiting.pop(0)


def main() -> None:
    kind, index, other, *descriptors = sys.argv[1:]
    sys.argv[1:] = descriptors
    ready = threading.Event()
    threading.Thread(target=load, args=(kind, int(index), int(other), ready), daemon=True).start()
    ready.wait(20)
    worker.main()


if __name__ == "__main__":
    main()
