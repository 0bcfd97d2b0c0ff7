"""NCCL through NVIDIA's own bindings: one process, all GPUs, no torch."""

import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from wirewatch.core.probe import (
    ALL_GATHER,
    ALL_REDUCE,
    ALLTOALL,
    BROADCAST,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    SENDRECV,
    Case,
    Copy,
    Micro,
    Plan,
    Timed,
)
from wirewatch.worker.cuda_gpu import (
    SMALLEST_BUFFER,
    CudaGpu,
    allocate,
    compile_kernels,
    copy_all,
    devices,
    done,
)
from wirewatch.worker.layout import ROOT, Layout, layout_of, room
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import Taken, in_queue, slowest

# After cuda_gpu, which keeps them from importing torch.
from cuda.bindings import driver  # isort: skip
from nccl.bindings import nccl  # isort: skip

SUM = 0
"""ncclSum (nccl.h)."""
TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
"""ncclDataType_t (nccl.h)."""
CALLS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    ALL_REDUCE: ("all_reduce", (SUM,)),
    ALL_GATHER: ("all_gather", ()),
    REDUCE_SCATTER: ("reduce_scatter", (SUM,)),
    BROADCAST: ("broadcast", (ROOT,)),
    REDUCE: ("reduce", (SUM, ROOT)),
    SCATTER: ("scatter", (ROOT,)),
    GATHER: ("gather", (ROOT,)),
    ALLTOALL: ("allto_all", ()),
}
"""The bindings' name of each collective, and what it takes between the type and the communicator."""
GRAPH_WARMUP, GRAPH_RUNS = 1, 2


class NcclEngine:
    """The plan's GPUs in this process."""

    leads = True

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._room = room(plan, SMALLEST_BUFFER)
        self._gpus: list[CudaGpu] = []
        self._comms: list[list[Any]] = []

    def versions(self) -> Mapping[str, str]:
        number = int(nccl.get_version())
        versions = {"nccl": f"{number // 10000}.{number // 100 % 100}.{number % 100}"}
        cuda = int(done(driver.cuDriverGetVersion()))
        return {**versions, "cuda_driver": f"{cuda // 1000}.{cuda % 1000 // 10}"}

    def offers(self, op: str) -> bool:
        return op == SENDRECV or op in CALLS

    def contexts(self) -> None:
        dtype = self._plan.dtype
        self._gpus = [CudaGpu(device, rank, dtype) for rank, device in enumerate(devices(self._plan.gpus))]
        code: list[Any] = []
        compiling = partial(compile_kernels, self._gpus[0].device, dtype)
        opening = [partial(self._open, gpu) for gpu in self._gpus]
        at_once([*opening, lambda: code.append(compiling())])
        for gpu in self._gpus:
            gpu.load(code[0])

    def _open(self, gpu: CudaGpu) -> None:
        make = _registrable if self._plan.registered else allocate
        try:
            gpu.open(self._room.received, self._room.sent, make)
        except EngineError as error:
            if error.kind != "out_of_memory":
                raise
            raise EngineError("out_of_memory", f"{error}: {self._room.refusal()}") from error

    def communicators(self) -> None:
        for group in self._plan.groups:
            members = [self._gpus[p] for p in group]
            ids = [gpu.device.device_id for gpu in members]
            self._comms.append(list(_call(partial(nccl.comm_init_all, len(ids), ids))))
            if self._plan.registered:
                _call(partial(self._register, members, self._comms[-1]))

    def _register(self, members: Sequence[CudaGpu], comms: Sequence[Any]) -> None:
        nccl.group_start()
        for gpu, comm in zip(members, comms, strict=True):
            for address, size in ((gpu.data, self._room.received), (gpu.apart, self._room.sent)):
                if size:
                    nccl.comm_register(comm, address, size)
        nccl.group_end()

    def collective(self, case: Case) -> Timed:
        members = [self._gpus[p] for p in self._plan.groups[case.group]]
        layout = layout_of(self._plan, case)
        one = self._operation(layout, members, self._comms[case.group])
        if case.launch == "graph":
            taken = self._in_graph(members, one, case.iterations)
        else:
            taken = in_queue(members, one, self._plan.warmup, case.iterations)
        wrong = _check(layout, members, one)
        taken = taken._replace(runs=taken.runs + 1)
        return Timed(case.group, case.op, case.size_bytes, wrong=wrong, **taken._asdict())

    def _operation(
        self, layout: Layout, members: Sequence[CudaGpu], comms: Sequence[Any]
    ) -> Callable[[], None]:
        """One run on all members, as a function that starts it."""
        calls: list[Callable[[], object]] = []
        count, kind, ranks = layout.count, TYPES[self._plan.dtype], len(members)
        for place, (gpu, comm) in enumerate(zip(members, comms, strict=True)):
            sending, receiving = gpu.ends(layout, place)
            if layout.op == SENDRECV:
                after, before = (place + 1) % ranks, (place - 1) % ranks
                calls.append(partial(nccl.send, sending, count, kind, after, comm, gpu.handle))
                calls.append(partial(nccl.recv, receiving, count, kind, before, comm, gpu.handle))
            else:
                name, more = CALLS[layout.op]
                calls.append(
                    partial(getattr(nccl, name), sending, receiving, count, kind, *more, comm, gpu.handle)
                )

        def start() -> None:
            nccl.group_start()
            for call in calls:
                call()
            nccl.group_end()

        return lambda: _call(start)

    def _in_graph(self, members: Sequence[CudaGpu], one: Callable[[], None], count: int) -> Taken:
        """Many runs as one CUDA graph a GPU: what Python takes to launch them is not measured."""
        graphs = self._capture(members, one, count)
        seconds = []
        for run in range(GRAPH_WARMUP + GRAPH_RUNS):
            for gpu in members:
                gpu.begin()
            first = [gpu.event() for gpu in members]
            for gpu, graph in zip(members, graphs, strict=True):
                gpu.device.set_current()
                done(driver.cuGraphLaunch(graph, gpu.handle))
            last = [gpu.event() for gpu in members]
            for gpu in members:
                gpu.end()
                gpu.settle()
            if run >= GRAPH_WARMUP:
                seconds.append(slowest(members, first, last) / count)
        for graph in graphs:
            done(driver.cuGraphExecDestroy(graph))
        return Taken(
            "graph", count * GRAPH_RUNS, count * (GRAPH_WARMUP + GRAPH_RUNS), statistics.mean(seconds),
            min(seconds), statistics.median(seconds), max(seconds),
        )  # fmt: skip

    def _capture(self, members: Sequence[CudaGpu], one: Callable[[], None], count: int) -> list[Any]:
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        for gpu in members:
            done(driver.cuStreamBeginCapture(gpu.handle, mode))
        for _ in range(count):
            one()
        # All end before the first is made ready, which is forbidden while another captures.
        graphs = [done(driver.cuStreamEndCapture(gpu.handle)) for gpu in members]
        ready = []
        for gpu, graph in zip(members, graphs, strict=True):
            gpu.device.set_current()
            ready.append(done(driver.cuGraphInstantiate(graph, 0)))
            done(driver.cuGraphDestroy(graph))
        return ready

    def copies(self) -> Sequence[Copy]:
        return copy_all(self._gpus, self._plan)

    def micros(self) -> Sequence[Micro]:
        found: dict[int, Micro] = {}
        size = self._plan.copy_bytes or self._room.received // 2

        def work(gpu: CudaGpu) -> None:
            found[gpu.rank] = gpu.micro(gpu.rank, size)

        at_once([partial(work, gpu) for gpu in self._gpus])
        return [found[gpu.rank] for gpu in self._gpus]

    def kernel_seconds(self) -> Sequence[float]:
        return [gpu.seconds for gpu in self._gpus]


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


def _registrable(size: int) -> int:
    """Memory of the current device that a communicator can register.

    Raises:
        EngineError: there is no memory; NCCL does not say on which side, so the driver is asked what is free.
    """
    free, _ = done(driver.cuMemGetInfo())
    if size > free:
        raise EngineError("out_of_memory", f"the CUDA driver says {free} bytes are free")
    return int(_call(partial(nccl.mem_alloc, size)))


def _check(layout: Layout, members: Sequence[CudaGpu], one: Callable[[], None]) -> int:
    """Elements that a last run leaves wrong, over all ranks; before it each holds its own values."""
    for place, gpu in enumerate(members):
        gpu.begin()
        gpu.prepare(layout, place)
    one()
    for place, gpu in enumerate(members):
        gpu.check(layout, place)
        gpu.end()
    wrong = sum(gpu.wrong() for gpu in members)
    for gpu in members:
        gpu.settle()
    return wrong


def _call(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except nccl.NCCLError as error:
        raise EngineError("nccl", f"NCCL says {error}") from error
