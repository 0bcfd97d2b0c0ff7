"""NCCL through torch.cuda.nccl: one process, all GPUs; for nodes that have torch and no bindings of NCCL.

All sizes run from the stream, the small ones too: torch makes a graph ready as soon as it is captured, which
CUDA forbids while other GPUs still capture. So what Python and torch take to launch is part of the latency
here, which is not to be compared with that of the engine `nccl`.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.cuda import nccl

from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, MIB, REDUCE_SCATTER, Case, Copy, Micro, Plan, Timed
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import COPIES, PRODUCTS, copy_all, in_queue, micro
from wirewatch.worker.torch_gpu import (
    FLOAT32_BYTES,
    TorchGpu,
    devices,
    driver_version,
    engine_errors,
    pieces,
    wrong_elements,
)

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

    @engine_errors()
    def contexts(self) -> None:
        self._gpus = [TorchGpu(device, rank) for rank, device in enumerate(devices(self._plan.gpus))]
        with ThreadPoolExecutor(len(self._gpus)) as pool:
            list(pool.map(lambda gpu: gpu.open(self._buffer), self._gpus))
        torch.cuda.set_device(self._gpus[0].device)

    @engine_errors()
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

    @engine_errors()
    def collective(self, case: Case) -> Timed:
        members = [self._gpus[p] for p in self._plan.groups[case.group]]
        one = _operation(case.op, members, case.size_bytes)
        taken = in_queue(members, one, self._plan.warmup, case.iterations)
        wrong = _check(case.op, members, case.size_bytes, one)
        taken = taken._replace(runs=taken.runs + 1)
        return Timed(case.group, case.op, case.size_bytes, wrong=wrong, **taken._asdict())

    @engine_errors()
    def copies(self) -> Sequence[Copy]:
        return copy_all(self._gpus, self._plan, _copy, _direct)

    @engine_errors()
    def micros(self) -> Sequence[Micro]:
        size = self._plan.copy_bytes or self._buffer // 2
        for gpu in self._gpus:
            # The first product on a GPU loads a library, which holds up the launches on the others.
            gpu.begin()
            gpu.fill(SMALLEST_BUFFER // FLOAT32_BYTES, gpu.rank)
            with gpu.on():
                gpu.multiply()
            gpu.end()
        products = self._at_once(PRODUCTS, lambda gpu: gpu.multiply())
        copied = self._at_once(COPIES, lambda gpu: gpu.copy_within(size))
        return [
            micro(gpu.rank, size, product, copies)
            for gpu, product, copies in zip(self._gpus, products, copied, strict=True)
        ]

    def _at_once(self, count: int, work: Callable[[TorchGpu], None]) -> list[list[float]]:
        """Seconds of each run of the work, GPU by GPU, all of them together."""
        for gpu in self._gpus:
            gpu.settle()
        marks = [gpu.series(count, lambda gpu=gpu: work(gpu)) for gpu in self._gpus]  # type: ignore[misc]
        for gpu in self._gpus:
            gpu.settle()
        return [gpu.spans(one) for gpu, one in zip(self._gpus, marks, strict=True)]

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


def _direct(source: TorchGpu, destination: TorchGpu) -> bool:
    return bool(torch.cuda.can_device_access_peer(source.device, destination.device))


def _copy(source: TorchGpu, destination: TorchGpu, size: int) -> None:
    count = size // FLOAT32_BYTES
    with torch.cuda.stream(destination.arriving), source.on():
        destination.data[count : 2 * count].copy_(source.data[:count], non_blocking=True)
