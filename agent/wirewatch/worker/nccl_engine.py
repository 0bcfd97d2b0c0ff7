"""NCCL through NVIDIA's own bindings, and GPUs through cuda.core: one process, all GPUs, no torch."""

import os
import statistics
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wirewatch.core.probe import (
    ALL_GATHER,
    ALL_REDUCE,
    MIB,
    REDUCE_SCATTER,
    Case,
    Copy,
    ErrorKind,
    Micro,
    Plan,
    Timed,
)
from wirewatch.worker import kernels, timing
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import COPIES, PRODUCTS, Event, Queue, Taken, in_queue, micro, slowest

# The bindings import torch where they find it, which takes seconds and gigabytes.
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
from nccl.bindings import nccl  # noqa: E402

FLOAT32, SUM = 7, 0
"""ncclFloat32 and ncclSum (nccl.h)."""
SMALLEST_BUFFER = 192 * MIB
"""Bytes that the matrix product needs."""
GRAPH_WARMUP, GRAPH_RUNS = 1, 2
_CAN_BE = (
    driver.CUresult.CUDA_SUCCESS,
    driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS,
)
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

    def collective(self, case: Case) -> Timed:
        members = [self._gpus[p] for p in self._plan.groups[case.group]]
        one = self._operation(case.op, members, self._comms[case.group], case.size_bytes)
        if case.launch == "graph":
            taken = self._in_graph(members, one, case.iterations)
        else:
            taken = in_queue(members, one, self._plan.warmup, case.iterations)
        wrong = _check(case.op, members, case.size_bytes, one)
        taken = taken._replace(runs=taken.runs + 1)
        return Timed(case.group, case.op, case.size_bytes, wrong=wrong, **taken._asdict())

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
        size = self._plan.copy_bytes or self._buffer // 2

        def work(gpu: CudaGpu) -> None:
            found[gpu.rank] = gpu.micro(gpu.rank, size)

        at_once([lambda gpu=gpu: work(gpu) for gpu in self._gpus])  # type: ignore[misc]
        return [found[gpu.rank] for gpu in self._gpus]

    def kernel_seconds(self) -> Sequence[float]:
        return [gpu.seconds for gpu in self._gpus]


def copy_all(gpus: Sequence[CudaGpu], plan: Plan) -> list[Copy]:
    """Every directed pair, from the front of one's buffer to behind the front of the other's."""
    direct = {(a.rank, b.rank): _reach(a, b) for a in gpus for b in gpus if a is not b}
    return timing.copy_all(gpus, plan, _copy, lambda a, b: direct[a.rank, b.rank])


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
