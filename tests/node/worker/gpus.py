"""GPUs that are memory of this process: stand-ins for CUDA's driver, cuda.core and NCCL's bindings.

Buffers are real, and nothing may pass their ends. Kernels run in Python or compiled for the processor. NCCL's
calls do what nccl.h says of them when their group ends, or when the graph is launched that they are in, and
only if all ranks of a communicator call alike, in place as NCCL defines it or with buffers apart.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.node.worker.elements import decode, encode, total, value
from wirewatch.core.probe import DTYPES
from wirewatch.worker import kernels

TYPES = {
    0: "int8",
    1: "uint8",
    2: "int32",
    4: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "bfloat16",
}
"""ncclDataType_t."""
SUM = 0
ARGUMENTS = {
    "all_reduce": "op", "all_gather": "", "reduce_scatter": "op", "broadcast": "root", "reduce": "op root",
    "scatter": "root", "gather": "root", "allto_all": "",
}  # fmt: skip
"""What nccl.h has between type and communicator."""
FACTOR = b"fact"
"""An element of what is multiplied."""
Call = tuple[Any, ...]


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704
    CUDA_ERROR_TOO_MANY_PEERS = 711
    CUDA_ERROR_UNKNOWN = 999


class NCCLError(Exception):
    """As in the bindings."""


class Memory:
    """Buffers at real addresses; what lies in none of them cannot be touched."""

    def __init__(self) -> None:
        self.buffers: list[Any] = []

    def make(self, size: int) -> int:
        buffer = (ctypes.c_ubyte * size)()
        self.buffers.append(buffer)
        return ctypes.addressof(buffer)

    def check(self, at: int, size: int) -> None:
        ends = [(ctypes.addressof(buffer), ctypes.sizeof(buffer)) for buffer in self.buffers]
        assert any(begin <= at and at + size <= begin + length for begin, length in ends), (at, size)

    def read(self, at: int, size: int) -> bytes:
        self.check(at, size)
        return ctypes.string_at(at, size)

    def write(self, at: int, data: bytes) -> None:
        self.check(at, len(data))
        ctypes.memmove(at, data, len(data))


class PythonKernels:
    """The kernels as they should be."""

    def __init__(self, memory: Memory, dtype: str) -> None:
        self._memory, self._dtype, self._element = memory, dtype, DTYPES[dtype]

    def fill(self, data: int, n: int, first: int, rank: int, modulus: int) -> None:
        self._memory.write(data, encode([value(first + i, rank, modulus) for i in range(n)], self._dtype))

    def check_sums(self, data: int, n: int, first: int, ranks: int, modulus: int, wrong: int) -> None:
        self._count(data, [total(first + i, ranks, modulus) for i in range(n)], wrong)

    def check_pieces(
        self, data: int, n: int, each: int, first: int, stride: int, rank: int, modulus: int, wrong: int
    ) -> None:  # fmt: skip
        places = ((i // each, i % each) for i in range(n))
        self._count(
            data, [value(first + piece * stride + i, rank + piece, modulus) for piece, i in places], wrong
        )

    def factors(self, data: int, n: int) -> None:
        self._memory.write(data, FACTOR * n)

    def gemm(self, one: int, other: int, product: int, side: int) -> None:
        for factor in (one, other):
            assert self._memory.read(factor, 4 * side * side) == FACTOR * side * side
        self._memory.check(product, 4 * side * side)

    def _count(self, data: int, wanted: Sequence[int], wrong: int) -> None:
        size, right = self._element, encode(wanted, self._dtype)
        found = self._memory.read(data, len(right))
        bad = sum(found[at : at + size] != right[at : at + size] for at in range(0, len(right), size))
        before = int.from_bytes(self._memory.read(wrong, 8), "little")
        self._memory.write(wrong, (before + bad).to_bytes(8, "little"))


@dataclass
class Stream:
    """`busy`: work was put into it since somebody waited for it."""

    handle: int
    device: "Device"
    busy: bool = False

    def record(self, event: "Event") -> None:
        assert event.device is self.device
        self.device.gpus.on(self.handle)
        event.at, event.stream = self.device.gpus.now(self.device.device_id), self

    def sync(self) -> None:
        self.busy = False

    def wait(self, other: "Stream") -> None:
        assert other is not self
        self.device.gpus.on(self.handle)
        self.device.gpus.waited.append((self.handle, other.handle))


@dataclass
class Event:
    device: "Device"
    at: float = 0.0
    stream: Stream | None = None

    def __sub__(self, other: "Event") -> float:
        for one in (self, other):
            assert one.stream is not None
            assert not one.stream.busy, "it may not have come yet"
        return (self.at - other.at) * 1e3


@dataclass
class Device:
    device_id: int
    gpus: "Gpus"
    arch: str = "90"
    compute_capability: tuple[int, int] = (9, 0)

    @property
    def uuid(self) -> str:
        return str(self.device_id)

    def set_current(self) -> None:
        self.gpus.thread.current = self

    def create_stream(self, options: object) -> Stream:  # noqa: ARG002 - by its name
        assert self.gpus.thread.current is self
        first = 1000 + self.device_id
        handle = first + 1000 if self.gpus.pinned else first
        made = self.gpus.streams[handle] = Stream(handle, self)
        return made

    def create_event(self, _options: object) -> Event:
        assert self.gpus.thread.current is self
        return Event(self)


@dataclass
class Graph:
    stream: int
    calls: list[Call]


@dataclass
class Gpus:
    """Four GPUs of `free` bytes; `asked`: NCCL's calls by name and arguments, in their order.

    Each thread has a current GPU, on which alone it may work. `sides` of the matrix products; `copied`: from,
    to and size of copies. `reach`: the answer to a GPU that wants another's memory, None where it cannot.
    `launched`: the stream of each graph that was launched, and its groups of calls; `alive`: graphs that were
    made and not given back. `spoil` may change what a call writes to an address, None for nothing at all.
    `now`: seconds, by device. `waited`: which stream waited for which; `pinned`: addresses and sizes,
    of `free_host` bytes at most each; `moved`: way, stream and size of copies from or to it.
    """

    free: int = 1 << 20
    spoil: Callable[[str, int, int, bytes], tuple[int, bytes] | None] = lambda _name, _rank, at, data: (
        at,
        data,
    )
    asked: list[Call] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    clock: Any = field(default_factory=lambda: count(1))
    kernels: Callable[[Memory, str], Any] = PythonKernels
    registered: list[tuple[Any, int, int]] = field(default_factory=list)
    registrable: list[tuple[int, int]] = field(default_factory=list)
    streams: dict[int, Stream] = field(default_factory=dict)
    thread: threading.local = field(default_factory=threading.local)
    sides: list[int] = field(default_factory=list)
    copied: list[tuple[int, int, int]] = field(default_factory=list)
    reach: Callable[[int, int], Result | None] = lambda _one, _other: Result.CUDA_SUCCESS
    launched: list[tuple[int, int]] = field(default_factory=list)
    alive: list[tuple[str, int]] = field(default_factory=list)

    waited: list[tuple[int, int]] = field(default_factory=list)
    pinned: list[tuple[int, int]] = field(default_factory=list)
    moved: list[tuple[str, int, int]] = field(default_factory=list)
    free_host: int = 1 << 20

    def __post_init__(self) -> None:
        self._group: list[Call] = []
        self._grouped = False
        self._capturing: set[int] = set()
        self._captured: list[Call] = []
        self._program: Any = None
        self.devices = [Device(number, self) for number in range(4)]
        self._ready = False

    def on(self, stream: int) -> None:
        """Work is put into a stream of the current GPU."""
        assert self.thread.current is self.streams[stream].device, "another GPU is current"
        self.streams[stream].busy = True

    def now(self, _device: int) -> float:
        return float(next(self.clock))

    def modules(self) -> dict[str, ModuleType]:
        """What stands in for the packages, by name."""
        made = {
            name: ModuleType(name) for name in ("cuda", "cuda.bindings", "cuda.core", "nccl", "nccl.bindings")
        }
        driver, nccl = ModuleType("cuda.bindings.driver"), ModuleType("nccl.bindings.nccl")
        calls = [getattr(self, name) for name in dir(self) if name.startswith("cu")]
        vars(driver).update({call.__name__: call for call in calls})
        vars(driver).update(
            CUresult=Result, CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
        )
        vars(made["cuda.bindings"])["driver"] = driver
        vars(made["cuda.core"]).update(
            Device=SimpleNamespace(get_all_devices=self._all_devices), EventOptions=SimpleNamespace,
            LaunchConfig=SimpleNamespace, Program=self._compiled, ProgramOptions=SimpleNamespace,
            StreamOptions=SimpleNamespace, launch=self._launch,
        )  # fmt: skip
        vars(nccl).update(
            NCCLError=NCCLError, get_version=lambda: 22809, group_start=self._start, group_end=self._end,
            comm_init_all=lambda n, ids: [(tuple(ids), rank) for rank in range(n)],
            comm_register=self._register, mem_alloc=self._registrable,
            **{name: self._asked(name) for name in (*ARGUMENTS, "send", "recv")},
        )  # fmt: skip
        vars(made["nccl.bindings"])["nccl"] = nccl
        return {**made, "cuda.bindings.driver": driver, "nccl.bindings.nccl": nccl}

    def _compiled(self, source: str, _language: str, _options: object) -> Any:
        (dtype,) = [name for name in DTYPES if kernels.source(name) == source][:1]
        program = self.kernels(self.memory, dtype)

        def loaded(name: str) -> Any:
            return self.thread.current, name, getattr(program, name)

        return SimpleNamespace(compile=lambda _form: SimpleNamespace(get_kernel=loaded))

    def _all_devices(self) -> list[Device]:
        assert self._ready
        return self.devices

    def _launch(self, stream: Stream, _config: object, kernel: Any, *arguments: int) -> None:
        assert not self._capturing
        device, name, work = kernel
        assert device is stream.device, "it was loaded for another GPU"
        self.on(stream.handle)
        if name == "gemm":
            self.sides.append(arguments[-1])
        work(*arguments)

    def cuInit(self, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        self._ready = True
        return (Result.CUDA_SUCCESS,)

    def cuDeviceCanAccessPeer(self, one: int, other: int) -> tuple[Any, ...]:  # noqa: N802
        return Result.CUDA_SUCCESS, int(self.reach(one, other) is not None)

    def cuCtxEnablePeerAccess(self, context: tuple[str, int], _flags: int) -> tuple[Any, ...]:  # noqa: N802
        told = self.reach(self.thread.current.device_id, context[1])
        assert told is not None
        return (told,)

    def cuMemcpyDtoDAsync(self, to: int, at: int, size: int, stream: int) -> tuple[Any, ...]:  # noqa: N802
        self.on(stream)
        self.memory.write(to, self.memory.read(at, size))
        self.copied.append((stream - 1000, stream - 1000, size))
        return (Result.CUDA_SUCCESS,)

    def cuMemcpyPeerAsync(  # noqa: N802
        self, to: int, there: tuple[str, int], at: int, here: tuple[str, int], size: int, stream: int
    ) -> tuple[Any, ...]:  # fmt: skip
        self.streams[stream].busy = True
        self.memory.write(to, self.memory.read(at, size))
        assert stream - 1000 == here[1]
        self.copied.append((here[1], there[1], size))
        return (Result.CUDA_SUCCESS,)

    def cuDriverGetVersion(self) -> tuple[Any, ...]:  # noqa: N802
        return Result.CUDA_SUCCESS, 13000

    def cuCtxGetCurrent(self) -> tuple[Any, ...]:  # noqa: N802
        return Result.CUDA_SUCCESS, ("context", self.thread.current.device_id)

    def cuMemGetInfo(self) -> tuple[Any, ...]:  # noqa: N802
        return Result.CUDA_SUCCESS, self.free, self.free

    def cuMemAlloc(self, size: int) -> tuple[Any, ...]:  # noqa: N802
        if size > self.free:
            return Result.CUDA_ERROR_OUT_OF_MEMORY, 0
        return Result.CUDA_SUCCESS, self.memory.make(size)

    def cuMemHostAlloc(self, size: int, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        if size > self.free_host:
            return Result.CUDA_ERROR_OUT_OF_MEMORY, 0
        at = self.memory.make(size)
        self.pinned.append((at, size))
        return Result.CUDA_SUCCESS, at

    def cuMemcpyHtoDAsync(self, to: int, at: int, size: int, stream: int) -> tuple[Any, ...]:  # noqa: N802
        return self._moved("to_device", to, at, size, stream)

    def cuMemcpyDtoHAsync(self, to: int, at: int, size: int, stream: int) -> tuple[Any, ...]:  # noqa: N802
        return self._moved("from_device", to, at, size, stream)

    def _moved(self, way: str, to: int, at: int, size: int, stream: int) -> tuple[Any, ...]:
        self.on(stream)
        host, device = (at, to) if way == "to_device" else (to, at)
        assert any(begin <= host and host + size <= begin + held for begin, held in self.pinned)
        assert not any(begin <= device < begin + held for begin, held in self.pinned)
        self.memory.write(to, self.memory.read(at, size))
        self.moved.append((way, stream, size))
        return (Result.CUDA_SUCCESS,)

    def cuMemsetD8Async(self, at: int, byte: int, size: int, stream: int) -> tuple[Any, ...]:  # noqa: N802
        self.on(stream)
        self.memory.write(at, bytes([byte]) * size)
        return (Result.CUDA_SUCCESS,)

    def cuMemsetD32Async(self, at: int, word: int, size: int, stream: int) -> tuple[Any, ...]:  # noqa: N802
        self.on(stream)
        self.memory.write(at, word.to_bytes(4, "little") * size)
        return (Result.CUDA_SUCCESS,)

    def cuMemcpyDtoH(self, to: bytearray, at: int, size: int) -> tuple[Any, ...]:  # noqa: N802
        assert not self.streams[1000 + self.thread.current.device_id].busy, "it may not be there yet"
        to[:] = self.memory.read(at, size)
        return (Result.CUDA_SUCCESS,)

    def cuStreamBeginCapture(self, stream: int, _mode: int) -> tuple[Any, ...]:  # noqa: N802
        self._capturing.add(stream)
        return (Result.CUDA_SUCCESS,)

    def cuStreamEndCapture(self, stream: int) -> tuple[Any, ...]:  # noqa: N802
        """All calls are in the graph that ends first: all ranks together are carried out at its launch."""
        self._capturing.remove(stream)
        graph, self._captured = Graph(stream, self._captured), []
        self.alive.append(("graph", stream))
        return Result.CUDA_SUCCESS, graph

    def cuGraphInstantiate(self, graph: Graph, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        assert not self._capturing
        assert self.thread.current is self.streams[graph.stream].device
        self.alive.append(("ready", graph.stream))
        return Result.CUDA_SUCCESS, graph

    def cuGraphLaunch(self, graph: Graph, stream: int) -> tuple[Any, ...]:  # noqa: N802
        self.on(stream)
        self.launched.append((stream, len(graph.calls)))
        for calls in graph.calls:
            self._run(calls)
        return (Result.CUDA_SUCCESS,)

    def cuGraphDestroy(self, graph: Graph) -> tuple[Any, ...]:  # noqa: N802
        self.alive.remove(("graph", graph.stream))
        return (Result.CUDA_SUCCESS,)

    def cuGraphExecDestroy(self, graph: Graph) -> tuple[Any, ...]:  # noqa: N802
        self.alive.remove(("ready", graph.stream))
        return (Result.CUDA_SUCCESS,)

    def _register(self, comm: Any, at: int, size: int) -> int:
        assert self._grouped
        assert (at, size) in self.registrable
        self.registered.append((comm, at, size))
        return at

    def _registrable(self, size: int) -> int:
        at = self.memory.make(size)
        self.registrable.append((at, size))
        return at

    def _asked(self, name: str) -> Callable[..., None]:
        def ask(*arguments: Any) -> None:
            self.asked.append((name, *arguments))
            self._group.append((name, *arguments))

        return ask

    def _start(self) -> None:
        self.asked.append(("group_start",))
        assert not self._grouped
        self._grouped = True

    def _end(self) -> None:
        self.asked.append(("group_end",))
        calls, self._group, self._grouped = tuple(self._group), [], False
        if self._capturing:
            assert {call[-1] for call in calls} <= self._capturing
            self._captured.append(calls)
        else:
            self._run(calls)

    def _run(self, calls: Sequence[Call]) -> None:
        """All ranks together: first everything is read, then everything is written."""
        if not calls:
            return
        if calls[0][0] in {"send", "recv"}:
            written = self._sent(calls)
        else:
            written = Collective(self.memory, calls).written()
        for rank, at, data in written:
            kept = self.spoil(calls[0][0], rank, at, data)
            if kept is not None:
                self.memory.write(*kept)

    def _sent(self, calls: Sequence[Call]) -> list[tuple[int, int, bytes]]:
        sent = {}
        for name, at, n, kind, peer, (_, rank), _ in calls:
            if name == "send":
                sent[rank, peer] = self.memory.read(at, n * DTYPES[TYPES[kind]])
        taken = []
        for name, at, n, kind, peer, (_, rank), _ in calls:
            if name == "recv":
                data = sent.pop((peer, rank))
                assert len(data) == n * DTYPES[TYPES[kind]]
                self.memory.check(at, len(data))
                taken.append((rank, at, data))
        assert not sent
        return taken


class Collective:
    """One collective of all ranks of a communicator."""

    def __init__(self, memory: Memory, calls: Sequence[Call]) -> None:
        self._memory = memory
        names, ranks = {call[0] for call in calls}, [call[-2][1] for call in calls]
        (self.name,) = names
        ((members, _),) = {(call[-2][0], 0) for call in calls}
        assert ranks == list(range(len(members))), "a rank is missing, or there twice"
        assert len({call[3:-2] for call in calls}) == 1, "ranks that do not agree"
        assert [call[-1] for call in calls] == [1000 + device for device in members], "another's stream"
        n, kind, *more = calls[0][3:-2]
        told = dict(zip(ARGUMENTS[self.name].split(), more, strict=True))
        assert told.get("op", SUM) == SUM
        self.root = told.get("root", 0)
        self.dtype, self.ranks = TYPES[kind], len(members)
        self.size = n * DTYPES[self.dtype]
        self.ends = [(call[1], call[2]) for call in calls]

    def written(self) -> list[tuple[int, int, bytes]]:
        """Rank, address and bytes of all that it writes."""
        return list(getattr(self, f"_{self.name}")())

    def _apart(self, rank: int, sends: int, receives: int, in_place: tuple[int, int] | None) -> None:
        """Buffers may overlap only in place: a sent one at an offset equals a received one at another."""
        send, receive = self.ends[rank]
        if in_place is not None and send + in_place[0] == receive + in_place[1]:
            return
        assert send + sends <= receive or receive + receives <= send, "neither in place nor apart"

    def _read(self, rank: int, size: int) -> bytes:
        return self._memory.read(self.ends[rank][0], size)

    def _pieces(self, rank: int) -> list[bytes]:
        data = self._read(rank, self.size * self.ranks)
        return [data[at : at + self.size] for at in range(0, len(data), self.size)]

    def _sum(self, sent: Sequence[bytes]) -> bytes:
        return encode(
            [sum(ones) for ones in zip(*(decode(one, self.dtype) for one in sent), strict=True)], self.dtype
        )

    def _all_reduce(self) -> Any:
        made = self._sum([self._read(rank, self.size) for rank in range(self.ranks)])
        for rank, (_, receive) in enumerate(self.ends):
            self._apart(rank, self.size, self.size, (0, 0))
            yield rank, receive, made

    def _reduce(self) -> Any:
        self._apart(self.root, self.size, self.size, (0, 0))
        yield (
            self.root,
            self.ends[self.root][1],
            self._sum([self._read(rank, self.size) for rank in range(self.ranks)]),
        )

    def _broadcast(self) -> Any:
        data = self._read(self.root, self.size)
        for rank, (_, receive) in enumerate(self.ends):
            self._apart(rank, self.size, self.size, (0, 0))
            yield rank, receive, data

    def _all_gather(self) -> Any:
        sent = [self._read(rank, self.size) for rank in range(self.ranks)]
        for rank, (_, receive) in enumerate(self.ends):
            self._apart(rank, self.size, self.size * self.ranks, (0, rank * self.size))
            for piece, data in enumerate(sent):
                yield rank, receive + piece * self.size, data

    def _gather(self) -> Any:
        sent = [self._read(rank, self.size) for rank in range(self.ranks)]
        self._apart(self.root, self.size, self.size * self.ranks, (0, self.root * self.size))
        for piece, data in enumerate(sent):
            yield self.root, self.ends[self.root][1] + piece * self.size, data

    def _reduce_scatter(self) -> Any:
        sent = [self._pieces(rank) for rank in range(self.ranks)]
        for rank, (_, receive) in enumerate(self.ends):
            self._apart(rank, self.size * self.ranks, self.size, (rank * self.size, 0))
            yield rank, receive, self._sum([pieces[rank] for pieces in sent])

    def _scatter(self) -> Any:
        pieces = self._pieces(self.root)
        self._apart(self.root, self.size * self.ranks, self.size, (self.root * self.size, 0))
        for rank, (_, receive) in enumerate(self.ends):
            yield rank, receive, pieces[rank]

    def _allto_all(self) -> Any:
        sent = [self._pieces(rank) for rank in range(self.ranks)]
        for rank, (_, receive) in enumerate(self.ends):
            self._apart(rank, self.size * self.ranks, self.size * self.ranks, None)
            for piece, pieces in enumerate(sent):
                yield rank, receive + piece * self.size, pieces[rank]
