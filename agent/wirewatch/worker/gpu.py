"""GPUs through cuda.core: contexts, memory, events, our kernels."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cuda.bindings import driver
from cuda.core import Device, EventOptions, LaunchConfig, Program, ProgramOptions, StreamOptions, launch

from wirewatch.core.probe import ErrorKind, Micro
from wirewatch.worker import kernels
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import COPIES, PRODUCTS, Event, Queue, micro

BF16_TENSOR_CORES = 8
"""First major compute capability with bfloat16 in its tensor cores."""
ELEMENT = 4
"""Bytes of a float32."""
_BLOCKS = 1024


class CudaGpu(Queue):
    """One GPU with a stream and one buffer, `data`.

    Collectives run in place, which takes half the memory. Copies go from its first half to the second half of
    another GPU's.
    """

    def __init__(self, device: Any, rank: int) -> None:
        super().__init__(rank)
        self.device = device
        self.data = self._wrong = 0
        self._kernels: dict[str, Any] = {}

    def open(self, buffer_bytes: int) -> None:
        """Make the context, the stream and the buffer."""
        self.device.set_current()
        self.context = done(driver.cuCtxGetCurrent())
        self.stream = self.device.create_stream(options=StreamOptions(nonblocking=True))
        self.handle = int(self.stream.handle)
        self.data = int(done(driver.cuMemAlloc(buffer_bytes)))
        self._wrong = int(done(driver.cuMemAlloc(8)))

    def load(self, code: Any) -> None:
        """Load the compiled kernels into the context."""
        self.device.set_current()
        for name in ("fill", "check_sum", "check_pieces", "gemm"):
            self._kernels[name] = code.get_kernel(name)

    def fill(self, count: int, rank: int) -> None:
        """Put the values of a rank into the first `count` elements."""
        self.device.set_current()
        self._launch("fill", _BLOCKS, self.data, count, rank)

    def _launch(self, kernel: str, grid: int | tuple[int, int], *arguments: int) -> None:
        config = LaunchConfig(grid=grid, block=kernels.THREADS)
        launch(self.stream, config, self._kernels[kernel], *arguments)

    def event(self) -> Event:
        """An event at this place in the stream; it belongs to the context that is current."""
        self.device.set_current()
        event = self.device.create_event(EventOptions(timing_enabled=True))
        self.stream.record(event)
        return event

    def wait(self) -> None:
        self.stream.sync()

    @staticmethod
    def span(first: Event, second: Event) -> float:
        return float(second - first) * 1e-3

    def check(self, kernel: str, first: int, *arguments: int) -> None:
        """Count wrong elements from the `first` on; `wrong` returns how many."""
        self.device.set_current()
        done(driver.cuMemsetD32Async(self._wrong, 0, 2, self.handle))
        self._launch(kernel, _BLOCKS, self.data + first * ELEMENT, *arguments, self._wrong)

    def wrong(self) -> int:
        """How many wrong elements the last check has counted; waits for it."""
        self.device.set_current()
        self.stream.sync()
        count = bytearray(8)
        done(driver.cuMemcpyDtoH(count, self._wrong, 8))
        return int.from_bytes(count, "little")

    def micro(self, position: int, copy_bytes: int) -> Micro:
        """A matrix product and a copy within the memory, several times each."""
        major = self.device.compute_capability[0]
        side = kernels.GEMM_SIDE if major >= BF16_TENSOR_CORES else kernels.GEMM_SIDE_OLD
        tiles = (side // kernels.TILE, side // kernels.TILE)
        # Two factors of at most 4 bytes an element, and their product behind them.
        other, product_at = self.data + side * side * ELEMENT, self.data + 2 * side * side * ELEMENT
        self.fill(2 * side * side, 0)
        product = self._times(
            PRODUCTS, lambda: self._launch("gemm", tiles, self.data, other, product_at, side)
        )
        copied = self._times(
            COPIES,
            lambda: done(
                driver.cuMemcpyDtoDAsync(self.data + copy_bytes, self.data, copy_bytes, self.handle)
            ),
        )
        return micro(position, copy_bytes, product, copied)

    def _times(self, count: int, work: Callable[[], object]) -> list[float]:
        self.begin()
        work()
        marks = [self.event()]
        for _ in range(count):
            work()
            marks.append(self.event())
        self.end()
        self.settle()
        return self.spans(marks)


def done(result: Sequence[Any]) -> Any:
    """The value of a driver call.

    Raises:
        EngineError: the call failed.
    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        kind: ErrorKind = "out_of_memory" if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY else "driver"
        raise EngineError(kind, f"the CUDA driver says {status.name}")
    return values[0] if values else None


def devices(uuids: Sequence[str]) -> list[Any]:
    """The devices of these UUIDs, in their order.

    Raises:
        EngineError: CUDA cannot be started, or does not show one of them.
    """
    done(driver.cuInit(0))
    found = {f"GPU-{device.uuid}".lower(): device for device in Device.get_all_devices()}
    missing = [uuid for uuid in uuids if uuid.lower() not in found]
    if missing:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        limited = f"; CUDA_VISIBLE_DEVICES is {seen}" if seen else ""
        raise EngineError("no_device", f"CUDA does not show {', '.join(missing)}{limited}")
    return [found[uuid.lower()] for uuid in uuids]


def at_once(work: Sequence[Callable[[], None]]) -> None:
    """Run each in a thread of its own; the first error is raised here."""
    errors: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def compile_kernels(device: Any) -> Any:
    """Our kernels for the architecture of a device; needs no context."""
    return Program(kernels.SOURCE, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
