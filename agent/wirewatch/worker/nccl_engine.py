"""NCCL through NVIDIA's own bindings: one process, all GPUs, no torch."""

import statistics
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuda.bindings import driver
from nccl.bindings import nccl

from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, MIB, REDUCE_SCATTER, Copy, Micro, Plan, Timed
from wirewatch.worker import timing
from wirewatch.worker.gpu import ELEMENT, CudaGpu, at_once, compile_kernels, devices, done
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import Taken, in_queue, slowest

# The bindings import torch where they find it, which takes seconds and gigabytes.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
FLOAT32, SUM = 7, 0
"""ncclFloat32 and ncclSum (nccl.h)."""
SMALLEST_BUFFER = 192 * MIB
"""Bytes that the matrix product needs."""
GRAPH_WARMUP, GRAPH_RUNS = 1, 2


class NcclEngine:
    """The plan's GPUs in this process."""

    leads = True

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._buffer = max(SMALLEST_BUFFER, 2 * plan.copy_bytes, *plan.sizes())
        self._gpus: list[CudaGpu] = []
        self._comms: list[list[Any]] = []

    def versions(self) -> Mapping[str, str]:
        number = int(nccl.get_version())
        versions = {"nccl": f"{number // 10000}.{number // 100 % 100}.{number % 100}"}
        cuda = int(done(driver.cuDriverGetVersion()))
        return {**versions, "cuda_driver": f"{cuda // 1000}.{cuda % 1000 // 10}"}

    def contexts(self) -> None:
        self._gpus = [CudaGpu(device, rank) for rank, device in enumerate(devices(self._plan.gpus))]
        code: list[Any] = []
        compiling = threading.Thread(target=lambda: code.append(compile_kernels(self._gpus[0].device)))
        compiling.start()
        at_once([lambda gpu=gpu: gpu.open(self._buffer) for gpu in self._gpus])  # type: ignore[misc]
        compiling.join()
        if not code:
            raise EngineError("driver", "the kernels could not be compiled; is NVRTC installed?")
        for gpu in self._gpus:
            gpu.load(code[0])

    def communicators(self) -> None:
        for group in self._plan.groups:
            ids = [self._gpus[p].device.device_id for p in group]
            self._comms.append(list(_call(lambda ids=ids: nccl.comm_init_all(len(ids), ids))))  # type: ignore[misc]

    def collective(self, group: int, op: str, size_bytes: int, *, latency: bool) -> Timed:
        members = [self._gpus[p] for p in self._plan.groups[group]]
        one = self._operation(op, members, self._comms[group], size_bytes)
        if latency:
            taken = self._in_graph(members, one)
        else:
            taken = in_queue(members, one, self._plan.warmup, self._plan.runs(size_bytes))
        wrong = _check(op, members, size_bytes, one)
        taken = taken._replace(runs=taken.runs + 1)
        return Timed(group=group, op=op, size_bytes=size_bytes, wrong=wrong, **taken._asdict())

    def _operation(
        self, op: str, members: Sequence[CudaGpu], comms: Sequence[Any], size: int
    ) -> Callable[[], None]:
        """One collective in place on all members, as a function that starts it."""
        count = size // ELEMENT
        each = max(1, count // len(members))

        def own(gpu: CudaGpu) -> int:
            """Where a member's piece is: its part of what it gathers, or of what it scatters."""
            return gpu.data + members.index(gpu) * each * ELEMENT

        calls: dict[str, Callable[[CudaGpu, Any], object]] = {
            ALL_REDUCE: lambda g, c: nccl.all_reduce(g.data, g.data, count, FLOAT32, SUM, c, g.handle),
            ALL_GATHER: lambda g, c: nccl.all_gather(own(g), g.data, each, FLOAT32, c, g.handle),
            REDUCE_SCATTER: lambda g, c: nccl.reduce_scatter(g.data, own(g), each, FLOAT32, SUM, c, g.handle),
        }
        call = calls[op]
        pairs = list(zip(members, comms, strict=True))

        def start() -> None:
            nccl.group_start()
            for gpu, comm in pairs:
                call(gpu, comm)
            nccl.group_end()

        return lambda: _call(start)

    def _in_graph(self, members: Sequence[CudaGpu], one: Callable[[], None]) -> Taken:
        """Many runs as one CUDA graph a GPU: what Python takes to launch them is not measured."""
        graphs = self._capture(members, one)
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
                seconds.append(slowest(members, first, last) / self._plan.latency_iterations)
        for graph in graphs:
            done(driver.cuGraphExecDestroy(graph))
        count = self._plan.latency_iterations
        return Taken(
            "graph", count * GRAPH_RUNS, count * (GRAPH_WARMUP + GRAPH_RUNS), statistics.mean(seconds),
            min(seconds), statistics.median(seconds), max(seconds),
        )  # fmt: skip

    def _capture(self, members: Sequence[CudaGpu], one: Callable[[], None]) -> list[Any]:
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        for gpu in members:
            done(driver.cuStreamBeginCapture(gpu.handle, mode))
        for _ in range(self._plan.latency_iterations):
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
        size = self._plan.copy_bytes or self._buffer // 2

        def work(gpu: CudaGpu) -> None:
            found[gpu.rank] = gpu.micro(gpu.rank, size)

        at_once([lambda gpu=gpu: work(gpu) for gpu in self._gpus])  # type: ignore[misc]
        return [found[gpu.rank] for gpu in self._gpus]

    def kernel_seconds(self) -> Sequence[float]:
        return [gpu.seconds for gpu in self._gpus]


_CAN_BE = (
    driver.CUresult.CUDA_SUCCESS,
    driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS,
)


def copy_all(gpus: Sequence[CudaGpu], plan: Plan) -> list[Copy]:
    """Every directed pair, from the front of one's buffer to behind the front of the other's."""
    direct = {(a.rank, b.rank): _reach(a, b) for a in gpus for b in gpus if a is not b}
    return timing.copy_all(gpus, plan, _copy, lambda a, b: direct[a.rank, b.rank])


def _check(op: str, members: Sequence[CudaGpu], size: int, one: Callable[[], None]) -> int:
    """Elements that a last run leaves wrong, over all ranks; before it each holds its own values."""
    ranks = len(members)
    each = max(1, size // ELEMENT // ranks)
    count = size // ELEMENT if op == ALL_REDUCE else each * ranks
    for rank, gpu in enumerate(members):
        gpu.begin()
        gpu.fill(count, rank)
    one()
    for rank, gpu in enumerate(members):
        if op == ALL_GATHER:
            gpu.check("check_pieces", 0, count, each)
        elif op == REDUCE_SCATTER:
            gpu.check("check_sum", rank * each, each, rank * each, ranks)
        else:
            gpu.check("check_sum", 0, count, 0, ranks)
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


def _reach(one: CudaGpu, other: CudaGpu) -> bool:
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
