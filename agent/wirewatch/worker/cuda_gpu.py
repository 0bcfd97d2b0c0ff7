"""GPUs through NVIDIA's cuda.core and the driver: devices by UUID, memory, streams, events, our kernels."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

# NVIDIA's bindings import torch where they find it, which takes seconds and gigabytes.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
from cuda.bindings import driver  # noqa: E402
from cuda.core import (  # noqa: E402
    Device,
    EventOptions,
    LaunchConfig,
    Program,
    ProgramOptions,
    StreamOptions,
    launch,
)

from wirewatch.core.probe import DTYPES, MIB, Copy, ErrorKind, Micro, Plan  # noqa: E402
from wirewatch.worker import kernels, timing  # noqa: E402
from wirewatch.worker.layout import POISON, Layout, Sums, modulus  # noqa: E402
from wirewatch.worker.run import EngineError  # noqa: E402
from wirewatch.worker.timing import COPIES, PRODUCTS, Event, Queue, micro  # noqa: E402

SMALLEST_BUFFER = 192 * MIB
"""Bytes that the matrix product needs."""
BF16_TENSOR_CORES = 8
"""First major compute capability with bfloat16 in its tensor cores."""
FLOAT32_BYTES = 4
Allocate = Callable[[int], int]
"""Makes so many bytes on the current device and returns their address."""
_CAN_BE = (
    driver.CUresult.CUDA_SUCCESS,
    driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS,
)
_BLOCKS = 1024


def allocate(size: int) -> int:
    """Memory of the current device, as CUDA gives it."""
    return int(done(driver.cuMemAlloc(size)))


class CudaGpu(Queue):
    """One GPU with a stream and two buffers: `data` receives, `apart` sends what is not sent in place.

    Copies go from the front of `data` to behind the front of another GPU's.
    """

    def __init__(self, device: Any, rank: int, dtype: str = "float32") -> None:
        super().__init__(rank)
        self.device = device
        self.data = self.apart = self._wrong = 0
        self._dtype, self._element = dtype, DTYPES[dtype]
        self._kernels: dict[str, Any] = {}

    def open(self, data_bytes: int, apart_bytes: int = 0, make: Allocate = allocate) -> None:
        """Make the context, the stream and the buffers."""
        self.device.set_current()
        self.context = done(driver.cuCtxGetCurrent())
        self.stream = self.device.create_stream(options=StreamOptions(nonblocking=True))
        self.handle = int(self.stream.handle)
        self.data = make(data_bytes) if data_bytes else 0
        self.apart = make(apart_bytes) if apart_bytes else 0
        self._wrong = allocate(8)

    def load(self, code: Any) -> None:
        """Load the compiled kernels into the context."""
        self.device.set_current()
        for name in kernels.NAMES:
            self._kernels[name] = code.get_kernel(name)

    def ends(self, layout: Layout, place: int) -> tuple[int, int]:
        """The addresses from which it sends and at which it receives, at its place in the group."""
        source = self.data if layout.in_place else self.apart
        sent, received = layout.sent(place), layout.received(place)
        return source + sent.at * self._element, self.data + received.at * self._element

    def prepare(self, layout: Layout, place: int) -> None:
        """Put the rank's values where it sends from, and poison where it receives."""
        self.device.set_current()
        sending, receiving = self.ends(layout, place)
        if layout.poisoned(place):
            size = layout.received(place).count * self._element
            done(driver.cuMemsetD8Async(receiving, POISON, size, self.handle))
        if layout.sends(place):
            mod = modulus(self._dtype, layout.ranks)
            self._launch("fill", _BLOCKS, sending, layout.sent(place).count, layout.first(place), place, mod)

    def check(self, layout: Layout, place: int) -> None:
        """Count the wrong elements of what it has received; `wrong` returns how many."""
        self.device.set_current()
        done(driver.cuMemsetD32Async(self._wrong, 0, 2, self.handle))
        if not layout.receives(place):
            return
        _, receiving = self.ends(layout, place)
        count, expected = layout.received(place).count, layout.expected(place)
        mod = modulus(self._dtype, layout.ranks)
        if isinstance(expected, Sums):
            self._launch(
                "check_sums", _BLOCKS, receiving, count, expected.first, layout.ranks, mod, self._wrong
            )
        else:
            pieces = (expected.each, expected.first, expected.stride, expected.rank)
            self._launch("check_pieces", _BLOCKS, receiving, count, *pieces, mod, self._wrong)

    def wrong(self) -> int:
        """How many wrong elements the last check has counted; waits for it."""
        self.device.set_current()
        self.stream.sync()
        count = bytearray(8)
        done(driver.cuMemcpyDtoH(count, self._wrong, 8))
        return int.from_bytes(count, "little")

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

    def products(self) -> Callable[[], None]:
        """A function that puts one matrix product into the queue; its factors are made now."""
        self.device.set_current()
        major = self.device.compute_capability[0]
        side = kernels.GEMM_SIDE if major >= BF16_TENSOR_CORES else kernels.GEMM_SIDE_OLD
        tiles = (side // kernels.TILE, side // kernels.TILE)
        # Two factors of at most 4 bytes an element, and their product behind them.
        other, product_at = (self.data + n * side * side * FLOAT32_BYTES for n in (1, 2))
        self._launch("factors", _BLOCKS, self.data, 2 * side * side)
        return lambda: self._launch("gemm", tiles, self.data, other, product_at, side)

    def micro(self, position: int, copy_bytes: int) -> Micro:
        """A matrix product and a copy within the memory, several times each."""
        product = self._times(PRODUCTS, self.products())
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


def copy_all(gpus: Sequence[CudaGpu], plan: Plan) -> list[Copy]:
    """Every directed pair, from the front of one's buffer to behind the front of the other's."""
    direct = {(a.rank, b.rank): reach(a, b) for a in gpus for b in gpus if a is not b}
    return timing.copy_all(gpus, plan, _copy, lambda a, b: direct[a.rank, b.rank])


def done(result: Sequence[Any]) -> Any:
    """The value of a driver call, or all of them where it has several.

    Raises:
        EngineError: the call failed.
    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        kind: ErrorKind = "out_of_memory" if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY else "driver"
        raise EngineError(kind, f"the CUDA driver says {status.name}")
    if len(values) > 1:
        return values
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


def compile_kernels(device: Any, dtype: str = "float32") -> Any:
    """Our kernels for the architecture of a device and the plan's elements; needs no context.

    Raises:
        EngineError: there is no NVRTC.
    """
    options = ProgramOptions(arch=f"sm_{device.arch}")
    try:
        return Program(kernels.source(dtype), "c++", options).compile("cubin")
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        text = f"the kernels could not be compiled; is NVRTC installed? {said}"
        raise EngineError("driver", text) from error


def reach(one: CudaGpu, other: CudaGpu) -> bool:
    """Whether the driver lets one GPU reach the other's memory; it does from now on."""
    if not done(driver.cuDeviceCanAccessPeer(one.device.device_id, other.device.device_id)):
        return False
    one.device.set_current()
    (status,) = driver.cuCtxEnablePeerAccess(other.context, 0)
    if status not in _CAN_BE:
        done((status,))
    return bool(status != driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS)


def _copy(source: CudaGpu, destination: CudaGpu, size: int) -> None:
    done(
        driver.cuMemcpyPeerAsync(
            destination.data + size, destination.context, source.data, source.context, size, source.handle
        )
    )
