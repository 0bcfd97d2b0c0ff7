"""GPUs through torch: devices by UUID, memory, streams, events; and torch's errors as ours."""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, ErrorKind
from wirewatch.worker import kernels
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import Event, Queue

BF16_TENSOR_CORES = 8
"""First major compute capability with bfloat16 in its tensor cores."""
_NO_DEVICE = ("no cuda gpus", "no cuda-capable device", "no nvidia driver", "invalid device ordinal")
_LONGEST = 300
CHUNK = 1 << 22
"""Elements made at a time: 64-bit indices of a whole buffer would take twice its memory."""
FLOAT32_BYTES = 4
_WORD = (1 << 32) - 1
_FACTOR = 2654435761 - (1 << 32)
"""Congruent to the kernels' factor modulo 2^32, and small enough that no product leaves 64 bits."""


class TorchGpu(Queue):
    """One GPU with one buffer, `data`.

    Collectives run in place, and copies go from its front to behind the front of the other's.

    torch makes the stream of a peer wait for every copy into its memory. The waiting is done in a stream of
    its own, `arriving`, or else copies in both directions would take turns.
    """

    def __init__(self, device: torch.device, rank: int) -> None:
        super().__init__(rank)
        self.device = device

    def open(self, buffer_bytes: int) -> None:
        """Make the context, the streams and the buffer, which holds the rank's values."""
        # Where a thread has chosen no GPU, what restores its choice makes a context on the node's first.
        torch.cuda.set_device(self.device)
        self.stream, self.arriving = (torch.cuda.Stream(self.device) for _ in range(2))
        count = buffer_bytes // FLOAT32_BYTES
        with self.on():
            self.data = torch.empty(count, dtype=torch.float32, device=self.device)
        self.fill(count, self.rank)
        self.stream.synchronize()

    def on(self) -> Any:
        """While this is entered, torch puts work into our stream."""
        return torch.cuda.stream(self.stream)

    def fill(self, count: int, rank: int) -> None:
        """Put the values of a rank into the first `count` elements."""
        with self.on():
            fill(self.data[:count], rank)

    def event(self) -> Event:
        """An event at this place in the stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def wait(self) -> None:
        self.stream.synchronize()

    @staticmethod
    def span(first: Event, second: Event) -> float:
        return float(first.elapsed_time(second)) * 1e-3

    def multiply(self) -> None:
        """A matrix product of two factors, behind which it is put."""
        bf16 = torch.cuda.get_device_capability(self.device)[0] >= BF16_TENSOR_CORES
        side = kernels.GEMM_SIDE if bf16 else kernels.GEMM_SIDE_OLD
        data = self.data.view(torch.bfloat16) if bf16 else self.data
        one, other, made = (data[n * side * side : (n + 1) * side * side].view(side, side) for n in range(3))
        torch.matmul(one, other, out=made)

    def copy_within(self, size: int) -> None:
        """Copy so many bytes from the front of the buffer to behind it."""
        count = size // FLOAT32_BYTES
        self.data[count : 2 * count].copy_(self.data[:count], non_blocking=True)

    def series(self, count: int, work: Callable[[], None]) -> list[Event]:
        """Put work into the stream several times, after once untimed; the events between."""
        self.begin()
        with self.on():
            work()
            marks = [self.event()]
            for _ in range(count):
                work()
                marks.append(self.event())
        self.end()
        return marks


def error_kind(text: str) -> ErrorKind:
    """What an error of torch is about; torch has a class of its own only for its allocator's errors."""
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
    """The numbers of the GPUs with these UUIDs, in their order; `GPU-` and case do not matter.

    Raises:
        EngineError: torch does not see one of them.
    """
    found = {_bare(uuid): number for uuid, number in seen.items()}
    missing = [uuid for uuid in wanted if _bare(uuid) not in found]
    if missing:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        limited = f"; CUDA_VISIBLE_DEVICES is {visible}" if visible else ""
        raise EngineError("no_device", f"torch does not show {', '.join(missing)}{limited}")
    return [found[_bare(uuid)] for uuid in wanted]


def devices(uuids: Sequence[str]) -> list[torch.device]:
    """The devices with these UUIDs, in their order; makes no context.

    Raises:
        EngineError: CUDA cannot be started, or torch does not see one of them.
    """
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


def values(first: int, count: int, rank: int, device: torch.device) -> torch.Tensor:
    """Elements `first` to `first + count` of what a rank holds: float32, shape (count,)."""
    index = torch.arange(first, first + count, dtype=torch.int64, device=device)
    index.bitwise_and_(_WORD).mul_(_FACTOR).bitwise_and_(_WORD).bitwise_right_shift_(24)
    return index.add_(rank).to(torch.float32)


def fill(data: torch.Tensor, rank: int) -> None:
    """Write a rank's values over a float32 buffer of one dimension."""
    for first, part in _parts(data):
        part.copy_(values(first, part.numel(), rank, data.device))


def elements(op: str, size_bytes: int, ranks: int) -> tuple[int, int]:
    """How many elements each rank sends, and receives, at one of nccl-tests' message sizes."""
    count = size_bytes // FLOAT32_BYTES
    each = max(1, count // ranks)
    return {
        ALL_REDUCE: (count, count),
        ALL_GATHER: (each, each * ranks),
        REDUCE_SCATTER: (each * ranks, each),
    }[op]


def pieces(
    op: str, data: torch.Tensor, size_bytes: int, ranks: int, place: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a rank sends and where it receives in a buffer of its values, when both are in it."""
    sent, received = elements(op, size_bytes, ranks)
    first = place * sent if op == ALL_GATHER else 0
    into = place * received if op == REDUCE_SCATTER else 0
    return data[first : first + sent], data[into : into + received]


def wrong_elements(op: str, data: torch.Tensor, ranks: int, place: int) -> torch.Tensor:
    """How many elements of what one rank received are wrong, NaN among them: int64, shape (), on its device.

    `place` is the rank in its communicator.
    """
    if op == ALL_GATHER:
        each = data.numel() // ranks
        parts = enumerate(data.chunk(ranks))
        return torch.stack([_differ(piece, rank * each, rank) for rank, piece in parts]).sum()
    return _differ_from_sum(data, place * data.numel() if op == REDUCE_SCATTER else 0, ranks)


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-")


def _differ(data: torch.Tensor, start: int, rank: int) -> torch.Tensor:
    """How many elements are not what a rank holds from `start` on."""
    wrong = torch.zeros((), dtype=torch.int64, device=data.device)
    for first, part in _parts(data):
        wrong += (part != values(start + first, part.numel(), rank, data.device)).sum()
    return wrong


def _differ_from_sum(data: torch.Tensor, start: int, ranks: int) -> torch.Tensor:
    """How many elements are not the sum over the ranks of what they hold from `start` on."""
    wrong = torch.zeros((), dtype=torch.int64, device=data.device)
    for first, part in _parts(data):
        total = values(start + first, part.numel(), 0, data.device).mul_(ranks)
        wrong += (part != total.add_(ranks * (ranks - 1) // 2)).sum()
    return wrong


def _parts(data: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    for first in range(0, data.numel(), CHUNK):
        yield first, data[first : first + CHUNK]
