"""Devices through torch: GPUs by UUID, memory, streams, events, values; torch's errors as ours."""

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.cuda.nccl

from wirewatch.core.probe import MIB, ErrorKind
from wirewatch.worker import kernels
from wirewatch.worker.hostlinks import BOTH, FROM_DEVICE, TO_DEVICE, HostQueue
from wirewatch.worker.layout import LARGEST, POISON, Layout, Pieces, Room, Sums, modulus
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import COPIES, PRODUCTS, Event, Queue

BF16_TENSOR_CORES = 8
"""First major compute capability with bfloat16 in its tensor cores."""
_NO_DEVICE = ("no cuda gpus", "no cuda-capable device", "no nvidia driver", "invalid device ordinal")
_LONGEST = 300
FLOAT32_BYTES = 4
CHUNK = 1 << 22
"""Elements made at a time: 64-bit indices of a whole buffer would take twice its memory."""
_WORD = (1 << 32) - 1
_FACTOR = 2654435761 - (1 << 32)
"""Congruent to the kernels' factor modulo 2^32, and small enough that no product leaves 64 bits."""


class TorchQueue(Queue):
    """A device's queue of work, with two buffers: `data` receives, `apart` sends what is not sent in place.

    `floats` is the memory of `data` as float32; copies go from its front to behind the front of another's.
    `smallest`: bytes of a matrix product with both factors. `products`, `copies`: runs of it, and of a copy.
    """

    smallest: int
    products, copies = PRODUCTS, COPIES
    side, factors = 256, torch.float32
    """Rows and columns of the matrix product, and the type of what is multiplied."""

    def __init__(self, device: torch.device, rank: int, dtype: str = "float32") -> None:
        super().__init__(rank)
        self.device = device
        self._dtype = dtype

    def open(self, data_bytes: int, apart_bytes: int = 0) -> None:
        """Make the buffers, full of numbers that each sum can take."""
        dtype = getattr(torch, self._dtype)
        with self.on():
            sizes = (data_bytes, apart_bytes)
            memory, apart = (torch.empty(one, dtype=torch.uint8, device=self.device) for one in sizes)
            for buffer in (memory, apart):
                fill(buffer.view(dtype), 0, self.rank, LARGEST)
        self.data, self.apart, self.floats = memory.view(dtype), apart.view(dtype), memory.view(torch.float32)
        self.wait()

    def on(self) -> AbstractContextManager[object]:
        """While this is entered, torch puts work into our queue."""
        return nullcontext()

    def fill_floats(self, count: int) -> None:
        """Fill the operands of the matrix product, whatever the type of the collectives."""
        with self.on():
            fill(self.floats[:count], 0, 0, LARGEST)

    def ends(self, layout: Layout, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the send and receive buffers at the GPU's place in the group."""
        source = self.data if layout.in_place else self.apart
        sent, received = layout.sent(place), layout.received(place)
        return source[sent.at : sent.at + sent.count], self.data[received.at : received.at + received.count]

    def prepare(self, layout: Layout, place: int) -> None:
        """Put the rank's values where it sends from, and poison where it receives."""
        sending, receiving = self.ends(layout, place)
        with self.on():
            if layout.poisoned(place):
                receiving.view(torch.uint8).fill_(POISON)
            if layout.sends(place):
                fill(sending, layout.first(place), place, modulus(self._dtype, layout.ranks))

    def wrong(self, layout: Layout, place: int) -> torch.Tensor:
        """Return how many elements of what it has received are wrong: int64, shape (), on the device."""
        with self.on():
            if not layout.receives(place):
                return torch.zeros((), dtype=torch.int64, device=self.device)
            _, received = self.ends(layout, place)
            expected = layout.expected(place)
            return wrong_elements(received, expected, layout.ranks, modulus(self._dtype, layout.ranks))

    def multiply(self) -> None:
        """A matrix product of two factors, behind which it is put."""
        side, data = self.side, self.floats.view(self.factors)
        one, other, made = (data[n * side * side : (n + 1) * side * side].view(side, side) for n in range(3))
        torch.matmul(one, other, out=made)

    def copy_within(self, size: int) -> None:
        """Copy so many bytes from the front of the buffer to behind it."""
        count = size // FLOAT32_BYTES
        self.floats[count : 2 * count].copy_(self.floats[:count], non_blocking=True)

    def series(self, count: int, work: Callable[[], None]) -> list[Event]:
        """Put work into the queue several times, after once untimed; the events between."""
        self.begin()
        with self.on():
            work()
            marks = [self.event()]
            for _ in range(count):
                work()
                marks.append(self.event())
        self.end()
        return marks


class TorchGpu(TorchQueue, HostQueue):
    """One GPU, which works in a stream of its own.

    torch makes a peer's stream wait for each copy into its memory. `arriving` is that stream: otherwise
    copies in both directions would take turns.
    """

    smallest = 96 * MIB

    def open(self, data_bytes: int, apart_bytes: int = 0) -> None:
        """Make the context, the streams and the buffers."""
        # Where a thread has chosen no GPU, what restores its choice makes a context on the node's first.
        torch.cuda.set_device(self.device)
        self.stream, self.arriving = (torch.cuda.Stream(self.device) for _ in range(2))
        bf16 = torch.cuda.get_device_capability(self.device)[0] >= BF16_TENSOR_CORES
        self.side = kernels.GEMM_SIDE if bf16 else kernels.GEMM_SIDE_OLD
        self.factors = torch.bfloat16 if bf16 else torch.float32
        super().open(data_bytes, apart_bytes)

    def on(self) -> AbstractContextManager[object]:
        context: AbstractContextManager[object] = torch.cuda.stream(self.stream)
        return context

    def event(self) -> Event:
        """An event at this place in the stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def pin(self, size: int) -> None:
        """Make pinned memory of the host, and the stream of what goes back to it."""
        with engine_errors():
            torch.cuda.set_device(self.device)
            self._back = torch.cuda.Stream(self.device)
            self._pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def move(self, way: str, size: int) -> None:
        """Put a copy between the host and the front of the buffer into the queue, or one each way."""
        here, there = self.floats.view(torch.uint8), self._pinned
        if way == BOTH:
            self._back.wait_stream(self.stream)
        if way != FROM_DEVICE:
            with self.on():
                here[:size].copy_(there[:size], non_blocking=True)
        if way != TO_DEVICE:
            with torch.cuda.stream(self._back if way == BOTH else self.stream):
                there[size:].copy_(here[size : 2 * size], non_blocking=True)
        if way == BOTH:
            self.stream.wait_stream(self._back)

    def wait(self) -> None:
        self.stream.synchronize()

    @staticmethod
    def span(first: Event, second: Event) -> float:
        return float(first.elapsed_time(second)) * 1e-3


class TorchCpu(TorchQueue):
    """A processor, which has done its work when a call returns."""

    smallest = 3 * TorchQueue.side**2 * FLOAT32_BYTES
    products, copies = 10, 10

    def event(self) -> Event:
        return time.perf_counter()

    def wait(self) -> None:
        """All is done."""

    @staticmethod
    def span(first: Event, second: Event) -> float:
        return float(second - first)


def error_kind(text: str) -> ErrorKind:
    """Classify an error of torch by its text; only its allocator's errors have their own class."""
    text = text.lower()
    if "nccl" in text:
        return "nccl"
    if "out of memory" in text:
        return "out_of_memory"
    return "no_device" if any(words in text for words in _NO_DEVICE) else "driver"


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn torch's errors into EngineError; only their first line, the others are advice for programmers."""
    try:
        yield
    except (RuntimeError, torch.cuda.DeferredCudaCallError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise EngineError(error_kind(str(error)), f"torch says {lines[0][:_LONGEST]}") from error


def matching(wanted: Sequence[str], seen: Mapping[str, int]) -> list[int]:
    """Return the numbers of the GPUs with these UUIDs, `GPU-` or not; EngineError where torch misses one."""
    found = {_bare(uuid): number for uuid, number in seen.items()}
    missing = [uuid for uuid in wanted if _bare(uuid) not in found]
    if missing:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        limited = f"; CUDA_VISIBLE_DEVICES is {visible}" if visible else ""
        raise EngineError("no_device", f"torch does not show {', '.join(missing)}{limited}")
    return [found[_bare(uuid)] for uuid in wanted]


def devices(uuids: Sequence[str]) -> list[torch.device]:
    """Return the devices with these UUIDs, in order. Raises EngineError: no CUDA, or a UUID is missing."""
    with engine_errors():
        torch.cuda.init()
        numbers = range(torch.cuda.device_count())
        seen = {str(torch.cuda.get_device_properties(number).uuid): number for number in numbers}
    return [torch.device("cuda", number) for number in matching(uuids, seen)]


def driver_version() -> str:
    """The newest CUDA that the driver can do, such as 13.0; empty where there is no driver."""
    number = ctypes.c_int(0)
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except OSError:
        return ""
    return f"{number.value // 1000}.{number.value % 1000 // 10}" if number.value else ""


def nccl_version() -> dict[str, str]:
    """NCCL's that torch was built with, and the driver's, under the names that all engines give them."""
    number = ".".join(str(part) for part in torch.cuda.nccl.version()[:3])
    driver = driver_version()
    return {"nccl": number, **({"cuda_driver": driver} if driver else {})}


@contextmanager
def no_room(needed: Room) -> Iterator[None]:
    """Raise EngineError with the memory's purpose, where there is too little of it."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).lower()
        if "out of memory" not in text and "allocate memory" not in text:
            raise
        raise EngineError("out_of_memory", f"torch says out of memory: {needed.refusal()}") from error


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-")


def values(first: int, count: int, rank: int, modulus: int, device: torch.device) -> torch.Tensor:
    """Elements `first` to `first + count` of what a rank holds: int64, shape (count,)."""
    return _hashes(first, count, device).add_(rank).remainder_(modulus).add_(1)


def totals(first: int, count: int, ranks: int, modulus: int, device: torch.device) -> torch.Tensor:
    """Return the sums of these elements over all ranks: int64, shape (count,)."""
    start = _hashes(first, count, device).remainder_(modulus)
    # Whole rounds of the modulus, and a rest that passes it once at most.
    rounds, rest = divmod(ranks, modulus)
    above = (start + (rest - modulus)).clamp_(min=0)
    whole = ranks + rounds * (modulus * (modulus - 1) // 2) + rest * (rest - 1) // 2
    return start.mul_(rest).add_(whole).sub_(above, alpha=modulus)


def fill(data: torch.Tensor, first: int, rank: int, modulus: int) -> None:
    """Write a rank's values, from index `first` on, over a tensor of one dimension."""
    for start, part in _parts(data):
        part.copy_(values(first + start, part.numel(), rank, modulus, data.device))


def wrong_elements(data: torch.Tensor, expected: Pieces | Sums, ranks: int, modulus: int) -> torch.Tensor:
    """Return how many elements are not as expected, NaN among them: int64, shape (), on the data's device."""
    if isinstance(expected, Sums):
        return _differ(data, lambda at, n: totals(expected.first + at, n, ranks, modulus, data.device))
    wrong = torch.zeros((), dtype=torch.int64, device=data.device)
    for number, piece in enumerate(data.split(expected.each)):
        first, rank = expected.first + number * expected.stride, expected.rank + number
        wrong += _differ(piece, lambda at, n: values(first + at, n, rank, modulus, data.device))  # noqa: B023
    return wrong


def _hashes(first: int, count: int, device: torch.device) -> torch.Tensor:
    index = torch.arange(first, first + count, dtype=torch.int64, device=device)
    return index.bitwise_and_(_WORD).mul_(_FACTOR).bitwise_and_(_WORD).bitwise_right_shift_(24)


def _differ(data: torch.Tensor, wanted: Callable[[int, int], torch.Tensor]) -> torch.Tensor:
    """Return how many elements differ from the wanted values; compares a bounded number at a time."""
    wrong = torch.zeros((), dtype=torch.int64, device=data.device)
    for start, part in _parts(data):
        wrong += (part != wanted(start, part.numel()).to(data.dtype)).sum()
    return wrong


def _parts(data: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    for first in range(0, data.numel(), CHUNK):
        yield first, data[first : first + CHUNK]
