"""NCCL through NVIDIA's own bindings: one process, all GPUs, no torch.

cuda.core and the driver give the GPUs: devices by UUID, memory, streams, events, our kernels.
"""

import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

# NVIDIA's bindings import torch where they find it, which takes seconds and gigabytes.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
from cuda import core  # noqa: E402
from cuda.bindings import driver  # noqa: E402
from nccl.bindings import nccl  # noqa: E402

from wirewatch.core import probe  # noqa: E402
from wirewatch.core.hostlink import HostCopies  # noqa: E402
from wirewatch.core.probe import DTYPES, MIB, Case, Copy, ErrorKind, Micro, Plan, Timed  # noqa: E402
from wirewatch.worker import kernels, timing  # noqa: E402
from wirewatch.worker.hostlinks import BOTH, FROM_DEVICE, TO_DEVICE, HostQueue, host_copies  # noqa: E402
from wirewatch.worker.layout import POISON, ROOT, Layout, Sums, layout_of, modulus, room  # noqa: E402
from wirewatch.worker.run import EngineError  # noqa: E402
from wirewatch.worker.timing import COPIES, PRODUCTS, Event, Taken, in_queue, micro, slowest  # noqa: E402

SMALLEST_BUFFER = 192 * MIB
"""Bytes that the matrix product needs."""
BF16_TENSOR_CORES = 8
"""First major compute capability with bfloat16 in its tensor cores."""
FLOAT32_BYTES = 4
T = TypeVar("T")
Allocate = Callable[[int], int]
"""Makes so many bytes on the current device and returns their address."""
_CAN_BE = (
    driver.CUresult.CUDA_SUCCESS,
    driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS,
)
SUM = 0
"""ncclSum (nccl.h)."""
TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
"""ncclDataType_t (nccl.h)."""
CALLS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    probe.ALL_REDUCE: ("all_reduce", (SUM,)),
    probe.ALL_GATHER: ("all_gather", ()),
    probe.REDUCE_SCATTER: ("reduce_scatter", (SUM,)),
    probe.BROADCAST: ("broadcast", (ROOT,)),
    probe.REDUCE: ("reduce", (SUM, ROOT)),
    probe.SCATTER: ("scatter", (ROOT,)),
    probe.GATHER: ("gather", (ROOT,)),
    probe.ALLTOALL: ("allto_all", ()),
}
"""The bindings' name of each collective, and what it takes between the type and the communicator."""
GRAPH_WARMUP, GRAPH_RUNS = 1, 2


def allocate(size: int) -> int:
    """Memory of the current device, as CUDA gives it."""
    return int(done(driver.cuMemAlloc(size)))


class CudaGpu(HostQueue):
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
        self.stream = self.device.create_stream(options=core.StreamOptions(nonblocking=True))
        self.handle = int(self.stream.handle)
        self.data = make(data_bytes)
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
            self._launch("fill", sending, layout.sent(place).count, layout.first(place), place, mod)

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
            sums = (expected.first, layout.ranks)
            self._launch("check_sums", receiving, count, *sums, mod, self._wrong)
        else:
            pieces = (expected.each, expected.first, expected.stride, expected.rank)
            self._launch("check_pieces", receiving, count, *pieces, mod, self._wrong)

    def wrong(self) -> int:
        """Return how many wrong elements the last check has counted; waits for it."""
        self.device.set_current()
        self.stream.sync()
        count = bytearray(8)
        done(driver.cuMemcpyDtoH(count, self._wrong, 8))
        return int.from_bytes(count, "little")

    def _launch(self, kernel: str, *arguments: int, grid: int | tuple[int, int] = 1024) -> None:
        config = core.LaunchConfig(grid=grid, block=kernels.THREADS)
        core.launch(self.stream, config, self._kernels[kernel], *arguments)

    def event(self) -> Event:
        """An event at this place in the stream; it belongs to the context that is current."""
        self.device.set_current()
        event = self.device.create_event(core.EventOptions(timing_enabled=True))
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
        self._launch("factors", self.data, 2 * side * side)
        return lambda: self._launch("gemm", self.data, other, product_at, side, grid=tiles)

    def micro(self, position: int, copy_bytes: int) -> Micro:
        """A matrix product and a copy within the memory, several times each."""
        product = self._times(PRODUCTS, self.products())
        way = (self.data + copy_bytes, self.data, copy_bytes, self.handle)
        copied = self._times(COPIES, lambda: done(driver.cuMemcpyDtoDAsync(*way)))
        return micro(position, copy_bytes, product, copied)

    def pin(self, size: int) -> None:
        """Make pinned memory of the host, and the stream of what goes back to it."""
        self.device.set_current()
        self._pinned = int(done(driver.cuMemHostAlloc(size, 0)))
        self._back = self.device.create_stream(options=core.StreamOptions(nonblocking=True))

    def move(self, way: str, size: int) -> None:
        """Put a copy between the host and the front of the buffer into the queue, or one each way."""
        self.device.set_current()
        back = self._back if way == BOTH else self.stream
        if way == BOTH:
            self._back.wait(self.stream)
        if way != FROM_DEVICE:
            done(driver.cuMemcpyHtoDAsync(self.data, self._pinned, size, self.handle))
        if way != TO_DEVICE:
            there = self._pinned + size, self.data + size
            done(driver.cuMemcpyDtoHAsync(*there, size, int(back.handle)))
        if way == BOTH:
            self.stream.wait(self._back)

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
    """Copy between every directed pair, from the front of a buffer to behind the front of the peer's."""
    direct = {(a.rank, b.rank): reach(a, b) for a in gpus for b in gpus if a is not b}
    return timing.copy_all(gpus, plan, _copy, lambda a, b: direct[a.rank, b.rank])


def done(result: Sequence[Any]) -> Any:
    """Return the value of a driver call, or all of several; raises EngineError where it failed."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        kind: ErrorKind = "out_of_memory" if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY else "driver"
        raise EngineError(kind, f"the CUDA driver says {status.name}")
    if len(values) > 1:
        return values
    return values[0] if values else None


def devices(uuids: Sequence[str]) -> list[Any]:
    """Return the devices of these UUIDs, in order; raises EngineError where CUDA does not show one."""
    done(driver.cuInit(0))
    found = {f"GPU-{device.uuid}".lower(): device for device in core.Device.get_all_devices()}
    missing = [uuid for uuid in uuids if uuid.lower() not in found]
    if missing:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        limited = f"; CUDA_VISIBLE_DEVICES is {seen}" if seen else ""
        raise EngineError("no_device", f"CUDA does not show {', '.join(missing)}{limited}")
    return [found[uuid.lower()] for uuid in uuids]


def compile_kernels(device: Any, dtype: str = "float32") -> Any:
    """Compile our kernels for a device and a type, without a context; raises EngineError without NVRTC."""
    options = core.ProgramOptions(arch=f"sm_{device.arch}")
    try:
        return core.Program(kernels.source(dtype), "c++", options).compile("cubin")
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        text = f"the kernels could not be compiled; is NVRTC installed? {said}"
        raise EngineError("driver", text) from error


def reach(one: CudaGpu, other: CudaGpu) -> bool:
    """Tell whether the driver lets one GPU reach the other's memory; it does from now on."""
    if not done(driver.cuDeviceCanAccessPeer(one.device.device_id, other.device.device_id)):
        return False
    one.device.set_current()
    (status,) = driver.cuCtxEnablePeerAccess(other.context, 0)
    if status not in _CAN_BE:
        done((status,))
    return bool(status != driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS)


def _copy(source: CudaGpu, destination: CudaGpu, size: int) -> None:
    to = destination.data + size, destination.context
    done(driver.cuMemcpyPeerAsync(*to, source.data, source.context, size, source.handle))


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
        return op == probe.SENDRECV or op in CALLS

    def contexts(self) -> None:
        dtype = self._plan.dtype
        self._gpus = [CudaGpu(device, rank, dtype) for rank, device in enumerate(devices(self._plan.gpus))]
        compiling = partial(compile_kernels, self._gpus[0].device, dtype)
        *_, code = at_once([*(partial(self._open, gpu) for gpu in self._gpus), compiling])
        for gpu in self._gpus:
            gpu.load(code)

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
        calls: list[Callable[[], object]] = []
        count, kind, ranks = layout.count, TYPES[self._plan.dtype], len(members)
        for place, (gpu, comm) in enumerate(zip(members, comms, strict=True)):
            sending, receiving = gpu.ends(layout, place)
            if layout.op == probe.SENDRECV:
                after, before = (place + 1) % ranks, (place - 1) % ranks
                calls.append(partial(nccl.send, sending, count, kind, after, comm, gpu.handle))
                calls.append(partial(nccl.recv, receiving, count, kind, before, comm, gpu.handle))
            else:
                name, more = CALLS[layout.op]
                ends = (sending, receiving, count, kind)
                calls.append(partial(getattr(nccl, name), *ends, *more, comm, gpu.handle))

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
        size = self._plan.copy_bytes or self._room.received // 2
        return at_once([partial(gpu.micro, gpu.rank, size) for gpu in self._gpus])

    def hosts(self) -> Sequence[HostCopies] | str:
        return host_copies(self._gpus, self._plan)

    def kernel_seconds(self) -> Sequence[float]:
        return [gpu.seconds for gpu in self._gpus]


def at_once(work: Sequence[Callable[[], T]]) -> list[T]:
    """Run each in a thread; returns their results, or raises the first error once all have ended."""
    with ThreadPoolExecutor(len(work)) as pool:
        return [one.result() for one in [pool.submit(one) for one in work]]


def _registrable(size: int) -> int:
    """Return memory that a communicator can register; NCCL does not say whose is short, the driver does."""
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
