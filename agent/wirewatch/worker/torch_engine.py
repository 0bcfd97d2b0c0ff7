"""NCCL through torch.cuda.nccl: one process, all GPUs; for nodes that have torch and no bindings of NCCL.

All sizes run from the stream, the small ones too: torch makes a graph ready as soon as it is captured, which
CUDA forbids while other GPUs still capture. So what Python and torch take to launch is part of the latency
here, which is not to be compared with that of the engine `nccl`.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.cuda import nccl

from wirewatch.core.probing.document import Copy, Micro, Timed
from wirewatch.core.probing.plan import ALL_GATHER, ALL_REDUCE, MIB, REDUCE_SCATTER, Plan, rounds
from wirewatch.worker.engine import EngineError
from wirewatch.worker.torch_gpu import Event, TorchGpu, devices, driver_version, span, spans, told
from wirewatch.worker.torch_values import FLOAT32_BYTES, pieces, wrong_elements

SMALLEST_BUFFER = 96 * MIB
"""Bytes that the two factors of the matrix product and the product need."""


class TorchEngine:
    """The plan's GPUs in this process.

    Raises:
        EngineError: this torch has no NCCL.
    """

    leads = True

    def __init__(self, plan: Plan) -> None:
        if not hasattr(torch._C, "_nccl_all_reduce"):  # noqa: SLF001 - what torch.cuda.nccl asks itself
            raise EngineError(
                "no_engine", f"torch {torch.__version__} was built without CUDA or without NCCL"
            )
        self._plan = plan
        self._buffer = max(SMALLEST_BUFFER, 2 * plan.copy_bytes, *plan.sizes())
        self._gpus: list[TorchGpu] = []

    def versions(self) -> Mapping[str, str]:
        """NCCL's is the one that torch was built with."""
        number = ".".join(str(part) for part in nccl.version()[:3])
        driver = driver_version()
        return {"torch": torch.__version__, "nccl": number, **({"cuda_driver": driver} if driver else {})}

    @told()
    def contexts(self) -> None:
        self._gpus = [TorchGpu(device, rank) for rank, device in enumerate(devices(self._plan.gpus))]
        with ThreadPoolExecutor(len(self._gpus)) as pool:
            list(pool.map(lambda gpu: gpu.open(self._buffer), self._gpus))
        torch.cuda.set_device(self._gpus[0].device)

    @told()
    def communicators(self) -> None:
        """Torch keeps a communicator for every list of GPUs, and makes it at the first collective on it."""
        for group in self._plan.groups:
            members = [self._gpus[p] for p in group]
            for gpu in members:
                gpu.begin()
            _operation(ALL_REDUCE, members, FLOAT32_BYTES)()
            for gpu in members:
                gpu.end()
                gpu.settle()

    @told()
    def collective(self, group: int, op: str, size_bytes: int, *, latency: bool) -> Timed:
        members = [self._gpus[p] for p in self._plan.groups[group]]
        one = _operation(op, members, size_bytes)
        count = self._plan.latency_iterations if latency else self._plan.runs(size_bytes)
        seconds, single = _in_stream(members, one, self._plan.warmup, count)
        return Timed(
            group=group, op=op, size_bytes=size_bytes, launch="stream", iterations=count,
            runs=self._plan.warmup + count + 1, seconds=seconds, low=min(single),
            median=statistics.median(single), high=max(single), wrong=_check(op, members, size_bytes, one),
        )  # fmt: skip

    @told()
    def copies(self) -> Sequence[Copy]:
        found = []
        for pairs in rounds(len(self._gpus)):
            both = [way for a, b in pairs for way in ((a, b), (b, a))]
            found += _round([(self._gpus[a], self._gpus[b]) for a, b in both], self._plan)
        return found

    @told()
    def micros(self) -> Sequence[Micro]:
        size = self._plan.copy_bytes or self._buffer // 2
        for gpu in self._gpus:
            # The first product on a GPU loads a library, which holds up the launches on the others.
            gpu.begin()
            gpu.fill(SMALLEST_BUFFER // FLOAT32_BYTES, gpu.rank)
            with gpu.on():
                gpu.multiply()
            gpu.end()
        products = self._at_once(lambda gpu: gpu.multiply())
        copied = self._at_once(lambda gpu: gpu.copy_within(size))
        return [
            Micro(
                gpu=gpu.rank, gemm_seconds=statistics.median(product), gemm_low=min(product),
                gemm_high=max(product), copy_bytes=size, copy_seconds=statistics.median(copies),
                copy_low=min(copies), copy_high=max(copies),
            )
            for gpu, product, copies in zip(self._gpus, products, copied, strict=True)
        ]  # fmt: skip

    def _at_once(self, work: Callable[[TorchGpu], None]) -> list[list[float]]:
        """Seconds of each run of the work, GPU by GPU, all of them together."""
        for gpu in self._gpus:
            gpu.settle()
        marks = [gpu.series(lambda gpu=gpu: work(gpu)) for gpu in self._gpus]  # type: ignore[misc]
        for gpu in self._gpus:
            gpu.settle()
        return [spans(one) for one in marks]

    def kernel_seconds(self) -> Sequence[float]:
        return [gpu.seconds for gpu in self._gpus]


def _operation(op: str, members: Sequence[TorchGpu], size_bytes: int) -> Callable[[], None]:
    """One collective in place on all members, as a function that starts it."""
    call: Callable[..., Any] = {
        ALL_REDUCE: nccl.all_reduce,
        ALL_GATHER: nccl.all_gather,
        REDUCE_SCATTER: nccl.reduce_scatter,
    }[op]
    ends = [pieces(op, gpu.data, size_bytes, len(members), place) for place, gpu in enumerate(members)]
    inputs, outputs = [sent for sent, _ in ends], [received for _, received in ends]
    streams = [gpu.stream for gpu in members]

    def start() -> None:
        call(inputs, outputs, streams=streams)

    return start


def _in_stream(
    members: Sequence[TorchGpu], one: Callable[[], None], warmup: int, count: int
) -> tuple[float, list[float]]:
    """Seconds an operation, and of each by the first GPU.

    Warm-up and timed runs stand in one queue, so that no launch is waited for where it is the shorter.
    """
    for gpu in members:
        gpu.begin()
    for _ in range(warmup):
        one()
    first = [gpu.event() for gpu in members]
    marks = [first[0]]
    for _ in range(count - 1):
        one()
        marks.append(members[0].event())
    one()
    last = [gpu.event() for gpu in members]
    for gpu in members:
        gpu.end()
        gpu.settle()
    seconds = max(span(a, b) for a, b in zip(first, last, strict=True)) / count
    return seconds, spans([*marks, last[0]])


def _check(op: str, members: Sequence[TorchGpu], size_bytes: int, one: Callable[[], None]) -> int:
    """Elements that a last run leaves wrong, over all ranks; before it each holds its own values."""
    ranks = len(members)
    for place, gpu in enumerate(members):
        gpu.begin()
        gpu.fill(max(size_bytes // FLOAT32_BYTES, ranks), place)
    one()
    wrong = []
    for place, gpu in enumerate(members):
        _, received = pieces(op, gpu.data, size_bytes, ranks, place)
        with gpu.on():
            wrong.append(wrong_elements(op, received, ranks, place))
        gpu.end()
    for gpu in members:
        gpu.settle()
    return sum(int(count.item()) for count in wrong)


def _round(ways: Sequence[tuple[TorchGpu, TorchGpu]], plan: Plan) -> list[Copy]:
    """Copies from the front of a buffer to behind that of another; each GPU sends and receives once."""
    marks: list[tuple[Event, Event]] = []
    for source, destination in ways:
        source.begin()
        # The first copy brings all pairs of the round to work; the others are timed.
        _copy(source, destination, plan.copy_bytes)
        first = source.event()
        for _ in range(plan.copies):
            _copy(source, destination, plan.copy_bytes)
        marks.append((first, source.event()))
        source.end()
    for source, _ in ways:
        source.settle()
    return [
        Copy(
            source=a.rank, destination=b.rank, size_bytes=plan.copy_bytes, seconds=span(*mark) / plan.copies,
            runs=plan.copies + 1, direct=bool(torch.cuda.can_device_access_peer(a.device, b.device)),
        )
        for (a, b), mark in zip(ways, marks, strict=True)
    ]  # fmt: skip


def _copy(source: TorchGpu, destination: TorchGpu, size: int) -> None:
    count = size // FLOAT32_BYTES
    with torch.cuda.stream(destination.arriving), source.on():
        destination.data[count : 2 * count].copy_(source.data[:count], non_blocking=True)
