"""NCCL through torch.cuda.nccl: one process, all GPUs; for nodes that have torch and no bindings of NCCL.

All sizes run from the stream: torch makes a graph ready as soon as it is captured, which CUDA forbids while
other GPUs capture. So latency has Python's and torch's launches in it, unlike that of the engine `nccl`.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch.cuda import nccl

from wirewatch.core import probe
from wirewatch.core.hostlink import HostCopies
from wirewatch.core.probe import Case, Copy, Micro, Plan, Timed
from wirewatch.worker import torch_gpu
from wirewatch.worker.hostlinks import host_copies
from wirewatch.worker.layout import ROOT, Layout, layout_of, room
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import copy_all, in_queue, micro
from wirewatch.worker.torch_gpu import FLOAT32_BYTES, TorchGpu, engine_errors

OFFERED = frozenset({probe.ALL_REDUCE, probe.ALL_GATHER, probe.REDUCE_SCATTER, probe.REDUCE, probe.BROADCAST})
"""All that torch.cuda.nccl has; broadcast only in place."""


class TorchEngine:
    """The plan's GPUs in this process; raises EngineError without NCCL, or for registered buffers."""

    leads = True

    def __init__(self, plan: Plan) -> None:
        if not hasattr(torch._C, "_nccl_all_reduce"):  # noqa: SLF001 - what torch.cuda.nccl asks itself
            said = f"torch {torch.__version__} was built without CUDA or without NCCL"
            raise EngineError("no_engine", said)
        if plan.registered:
            raise EngineError("no_engine", "engine torch cannot register buffers; engine nccl can")
        self._plan = plan
        self._room = room(plan, TorchGpu.smallest)
        self._gpus: list[TorchGpu] = []

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__, **torch_gpu.nccl_version()}

    def offers(self, op: str) -> bool:
        return op in OFFERED and (self._plan.in_place or op != probe.BROADCAST)

    @engine_errors()
    def contexts(self) -> None:
        dtype = self._plan.dtype
        devices = torch_gpu.devices(self._plan.gpus)
        self._gpus = [TorchGpu(device, rank, dtype) for rank, device in enumerate(devices)]
        with torch_gpu.no_room(self._room), ThreadPoolExecutor(len(self._gpus)) as pool:
            list(pool.map(lambda gpu: gpu.open(self._room.received, self._room.sent), self._gpus))
        torch.cuda.set_device(self._gpus[0].device)

    @engine_errors()
    def communicators(self) -> None:
        """Torch keeps a communicator for every list of GPUs, and makes it at the first collective on it."""
        for group in self._plan.groups:
            members = [self._gpus[p] for p in group]
            for gpu in members:
                gpu.begin()
            _operation(Layout(probe.ALL_REDUCE, len(members), 1, in_place=True), members)()
            for gpu in members:
                gpu.end()
                gpu.settle()

    @engine_errors()
    def collective(self, case: Case) -> Timed:
        members = [self._gpus[p] for p in self._plan.groups[case.group]]
        layout = layout_of(self._plan, case)
        one = _operation(layout, members)
        taken = in_queue(members, one, self._plan.warmup, case.iterations)
        wrong = _check(layout, members, one)
        taken = taken._replace(runs=taken.runs + 1)
        return Timed(case.group, case.op, case.size_bytes, wrong=wrong, **taken._asdict())

    @engine_errors()
    def copies(self) -> Sequence[Copy]:
        return copy_all(self._gpus, self._plan, _copy, _direct)

    @engine_errors()
    def micros(self) -> Sequence[Micro]:
        size = self._plan.copy_bytes or self._room.received // 2
        for gpu in self._gpus:
            # The first product on a GPU loads a library, which holds up the launches on the others.
            gpu.begin()
            gpu.fill_floats(TorchGpu.smallest // FLOAT32_BYTES)
            with gpu.on():
                gpu.multiply()
            gpu.end()
        products = self._at_once(TorchGpu.products, lambda gpu: gpu.multiply())
        copied = self._at_once(TorchGpu.copies, lambda gpu: gpu.copy_within(size))
        rows = zip(self._gpus, products, copied, strict=True)
        return [micro(gpu.rank, size, product, copies) for gpu, product, copies in rows]

    def _at_once(self, count: int, work: Callable[[TorchGpu], None]) -> list[list[float]]:
        """Seconds of each run of the work, GPU by GPU, all of them together."""
        for gpu in self._gpus:
            gpu.settle()
        marks = [gpu.series(count, lambda gpu=gpu: work(gpu)) for gpu in self._gpus]  # type: ignore[misc]
        for gpu in self._gpus:
            gpu.settle()
        return [gpu.spans(one) for gpu, one in zip(self._gpus, marks, strict=True)]

    @engine_errors()
    def hosts(self) -> Sequence[HostCopies] | str:
        return host_copies(self._gpus, self._plan)

    def kernel_seconds(self) -> Sequence[float]:
        return [gpu.seconds for gpu in self._gpus]


def _operation(layout: Layout, members: Sequence[TorchGpu]) -> Callable[[], None]:
    ends = [gpu.ends(layout, place) for place, gpu in enumerate(members)]
    inputs, outputs = [sent for sent, _ in ends], [received for _, received in ends]
    calls: dict[str, Callable[..., Any]] = {
        probe.ALL_REDUCE: partial(nccl.all_reduce, inputs, outputs),
        probe.ALL_GATHER: partial(nccl.all_gather, inputs, outputs),
        probe.REDUCE_SCATTER: partial(nccl.reduce_scatter, inputs, outputs),
        probe.REDUCE: partial(nccl.reduce, inputs, outputs[ROOT], root=ROOT),
        probe.BROADCAST: partial(nccl.broadcast, outputs, root=ROOT),
    }
    return partial(calls[layout.op], streams=[gpu.stream for gpu in members])


def _check(layout: Layout, members: Sequence[TorchGpu], one: Callable[[], None]) -> int:
    """Elements that a last run leaves wrong, over all ranks; before it each holds its own values."""
    for place, gpu in enumerate(members):
        gpu.begin()
        gpu.prepare(layout, place)
    one()
    wrong = []
    for place, gpu in enumerate(members):
        wrong.append(gpu.wrong(layout, place))
        gpu.end()
    for gpu in members:
        gpu.settle()
    return sum(int(count.item()) for count in wrong)


def _direct(source: TorchGpu, destination: TorchGpu) -> bool:
    return bool(torch.cuda.can_device_access_peer(source.device, destination.device))


def _copy(source: TorchGpu, destination: TorchGpu, size: int) -> None:
    count = size // FLOAT32_BYTES
    with torch.cuda.stream(destination.arriving), source.on():
        destination.floats[count : 2 * count].copy_(source.floats[:count], non_blocking=True)
