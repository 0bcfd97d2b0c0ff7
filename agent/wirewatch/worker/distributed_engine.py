"""torch.distributed, one process a rank, as training jobs run: NCCL on GPUs, or gloo on processors.

The ranks always meet over gloo, so that their control messages do not disturb the GPUs. A run on processors
tests the path from a plan to a verdict; its times say nothing about wires.

The host launches all sizes one after the other, the small sizes too. The launch time of Python and torch is
part of the latency, as it is in a job without CUDA graphs.
"""

import os
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from fcntl import ioctl
from typing import cast

# Before torch is imported: threads of its libraries would not survive the fork.
for _name, _value in (("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1")):
    os.environ.setdefault(_name, _value)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from wirewatch.core import probe  # noqa: E402
from wirewatch.core.probe import Case, Copy, ErrorKind, Launch, Meeting, Micro, Plan, Timed, rounds  # noqa: E402
from wirewatch.worker import torch_gpu  # noqa: E402
from wirewatch.worker.hostlinks import free_bytes  # noqa: E402
from wirewatch.worker.layout import ROOT, Layout, layout_of, room  # noqa: E402
from wirewatch.worker.process import fork_ranks  # noqa: E402
from wirewatch.worker.run import EngineError  # noqa: E402
from wirewatch.worker.timing import in_queue, micro  # noqa: E402
from wirewatch.worker.torch_gpu import FLOAT32_BYTES, TorchCpu, TorchGpu, TorchQueue  # noqa: E402

_IN_PLACE_ONLY = frozenset({probe.ALL_REDUCE, probe.BROADCAST, probe.REDUCE})
"""torch.distributed has them in no other form."""
_LONGEST = 300
RETRY_SECONDS = 0.05
_GET_ADDRESS = 0x8915
"""SIOCGIFADDR (linux/sockios.h)."""
_INTERFACE = "GLOO_SOCKET_IFNAME"
# Newer torch warns of the old names.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn torch's errors into EngineError; a peer that died shows as a closed connection of gloo."""
    try:
        yield
    except RuntimeError as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        gloo = "gloo" in text.lower() or not torch.cuda.is_initialized()
        kind: ErrorKind = torch_gpu.error_kind(str(error))
        if gloo:
            kind = "out_of_memory" if "allocate memory" in text else "internal"
        raise EngineError(kind, f"{'gloo' if gloo else 'torch'} says {text[:_LONGEST]}") from error


class DistributedEngine(ABC):
    """One rank.

    Its constructor forks: afterwards there is one process for each GPU or name of the plan. With a meeting
    there are as many on each other node; the first of each node leads there.
    """

    backend: str
    launch: Launch
    device: type[TorchQueue]

    def __init__(self, plan: Plan) -> None:
        if plan.registered:
            raise EngineError("no_engine", f"engine {plan.engine} cannot register buffers; engine nccl can")
        self._plan = plan
        self._ranks = plan.ranks
        self._room = room(plan, self.device.smallest)
        self._busy = [0.0] * self._ranks
        self._groups: dict[int, dist.ProcessGroup] = {}
        # A file without a name, through which the ranks meet: it disappears however they end.
        self._file = os.memfd_create("wirewatch-ranks")
        # Last, since every rank would report an error after it.
        self._local = fork_ranks(len(plan.gpus))
        self._rank = plan.first_rank + self._local
        self.leads = self._local == 0

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__}

    def offers(self, op: str) -> bool:
        alone = any(len(group) == 1 for group in self._plan.groups)
        return (self._plan.in_place or op not in _IN_PLACE_ONLY) and not (alone and op == probe.SENDRECV)

    @abstractmethod
    def queue(self) -> TorchQueue:
        """This rank's device, not yet opened."""

    @abstractmethod
    def reaches(self, source: int, destination: int) -> bool:
        """Tell whether one rank's device may reach the other's memory."""

    @engine_errors()
    def contexts(self) -> None:
        torch.set_num_threads(1)
        self._store = self._meet()
        self._agree(self._open)

    def _meet(self) -> dist.Store:
        if self._plan.meeting is not None:
            return meet(self._plan.meeting, self._rank, self._ranks)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return dist.FileStore(f"/proc/self/fd/{self._file}", self._ranks)

    def _open(self) -> None:
        self._queue = self.queue()
        with torch_gpu.no_room(self._room):
            self._queue.open(self._room.received, self._room.sent)

    def _agree(self, work: Callable[[], None]) -> None:
        """Do the work on all ranks, or raise EngineError: nobody waits for a failed rank."""
        said = "done"
        try:
            with engine_errors():
                work()
        except EngineError as error:
            said = f"{error.kind} {error}"
        self._store.set(f"opened {self._rank}", said)
        for rank in range(self._ranks):
            kind, _, text = self._heard(f"opened {rank}", rank).partition(" ")
            if kind != "done":
                raise EngineError(cast("ErrorKind", kind), f"rank {rank}: {text}")

    def _heard(self, key: str, rank: int) -> str:
        try:
            return str(self._store.get(key).decode())
        except RuntimeError as error:
            place, local = divmod(rank, len(self._plan.gpus))
            raise EngineError("internal", f"rank {local} of node {place} has not come in time") from error

    @engine_errors()
    def communicators(self) -> None:
        dist.init_process_group("cpu:gloo", store=self._store, rank=self._rank, world_size=self._ranks)
        everyone = list(range(self._ranks))
        # Sends and copies go through the communicator of all ranks.
        sending = {case.group for case in self._plan.cases if case.op == probe.SEND}
        wanted = {n: sorted(g) for n, g in enumerate(self._plan.groups) if n not in sending}
        shared = self._plan.copy_bytes or sending
        members = [*wanted.values(), *([everyone] if shared and everyone not in wanted.values() else [])]
        made = [dist.new_group(group, backend=self.backend) for group in members]
        self._groups = dict(zip(wanted, made, strict=False))
        self._everyone = made[members.index(everyone)] if everyone in members else None
        self._groups |= dict.fromkeys(sending, self._everyone)
        for group in made:
            self._connect(group)

    def _connect(self, group: dist.ProcessGroup) -> None:
        """The first collective makes the communicator, among all of its ranks."""
        if dist.get_rank(group) >= 0:
            with self._queue.on():
                dist.all_reduce(torch.ones(1, device=self._queue.device), group=group)
            self._queue.wait()

    @engine_errors()
    def collective(self, case: Case) -> Timed:
        members = list(self._plan.groups[case.group])
        if case.op != probe.SEND:
            members.sort()
        layout = layout_of(self._plan, case)
        # Waiting for the others, of which one may wait for who reads counters, is not work.
        dist.barrier()
        taken = self._take_part(case, layout, members) if self._rank in members else [0.0] * 5
        rows = self._share(taken)
        slowest = max(row[0] for row in rows)
        # A send has ended when the system has taken all of it; only a receive shows that it has arrived.
        _, low, median, high, _ = rows[members[layout.ranks // 2 if case.op == probe.SEND else 0]]
        return Timed(
            group=case.group, op=case.op, size_bytes=case.size_bytes, launch=self.launch,
            iterations=case.iterations, runs=self._plan.warmup + case.iterations + 1, seconds=slowest,
            low=low, median=median, high=high, wrong=int(sum(row[4] for row in rows)),
        )  # fmt: skip

    def _take_part(self, case: Case, layout: Layout, members: Sequence[int]) -> list[float]:
        """Return the seconds of a run, the lowest, median and highest single run, and the wrong elements."""
        queue, place = self._queue, members.index(self._rank)
        # Half the group further on: to whom it sends, or who sends to it.
        peer = members[(place + layout.ranks // 2) % layout.ranks]
        one = operation(layout, self._groups[case.group], queue, place, peer)
        with queue.on():
            taken = in_queue([queue], one, self._plan.warmup, case.iterations)
            queue.begin()
            queue.prepare(layout, place)
            one()
            wrong = queue.wrong(layout, place)
            queue.end()
        queue.settle()
        return [taken.seconds, taken.low, taken.median, taken.high, float(wrong.item())]

    def _share(self, row: Sequence[float]) -> list[list[float]]:
        """The rows of all ranks, by rank; all have the same length. Each rank adds how long it has worked."""
        mine = torch.tensor([*row, self._queue.seconds], dtype=torch.float64)
        rows = torch.empty(self._ranks * len(mine), dtype=torch.float64)
        _all_gather(rows, mine)
        taken = [[float(value) for value in one] for one in rows.view(self._ranks, -1).tolist()]
        self._busy = [one.pop() for one in taken]
        return taken

    @engine_errors()
    def copies(self) -> Sequence[Copy]:
        """Disjoint pairs at once, both directions together; the time of a copy is that of its receiver."""
        size, count = self._plan.copy_bytes, self._plan.copies
        found: list[Copy] = []
        for pairs in rounds(self._ranks):
            peers = dict(way for a, b in pairs for way in ((a, b), (b, a)))
            dist.barrier()
            rows = self._share([self._exchange(peers[self._rank]) if self._rank in peers else 0.0])
            for destination, source in sorted(peers.items()):
                (seconds,) = rows[destination]
                direct = self.reaches(source, destination)
                found.append(Copy(source, destination, size, seconds / count, runs=count + 1, direct=direct))
        return found

    def _exchange(self, peer: int) -> float:
        """Seconds in which this rank and another send each other all that is to be timed."""
        queue, count = self._queue, self._plan.copy_bytes // FLOAT32_BYTES
        send, receive = queue.floats[:count], queue.floats[count : 2 * count]
        swap = _exchange(self._everyone, send, peer, receive, peer)
        # The first makes the pair meet; the others are timed.
        marks = queue.series(self._plan.copies, swap)
        queue.settle()
        return queue.span(marks[0], marks[-1])

    @engine_errors()
    def micros(self) -> Sequence[Micro]:
        queue, size = self._queue, self._plan.copy_bytes or self._room.received // 2
        queue.fill_floats(queue.smallest // FLOAT32_BYTES)
        dist.barrier()
        products = queue.series(queue.products, queue.multiply)
        copies = queue.series(queue.copies, lambda: queue.copy_within(size))
        queue.settle()
        rows = self._share([*queue.spans(products), *queue.spans(copies)])
        cut = queue.products
        return [micro(rank, size, row[:cut], row[cut:]) for rank, row in enumerate(rows)]

    def hosts(self) -> str:
        return f"the engine {self._plan.engine} measures no host links; nccl and torch do"

    def kernel_seconds(self) -> Sequence[float]:
        return self._busy


class GpuRanks(DistributedEngine):
    """A process for each GPU, with NCCL between them; raises EngineError where this torch has no NCCL."""

    backend, launch, device = "nccl", "stream", TorchGpu

    def __init__(self, plan: Plan) -> None:
        if not dist.is_nccl_available():
            said = f"torch {torch.__version__} was built without CUDA or without NCCL"
            raise EngineError("no_engine", said)
        super().__init__(plan)
        if self._local and plan.log:
            # Each process begins its file again, whatever another has written there.
            os.environ["NCCL_DEBUG_FILE"] = f"{plan.log}.{self._local}"

    def versions(self) -> Mapping[str, str]:
        return {**super().versions(), **torch_gpu.nccl_version()}

    def queue(self) -> TorchQueue:
        self._devices = torch_gpu.devices(self._plan.gpus)
        return TorchGpu(self._devices[self._local], self._rank, self._plan.dtype)

    def reaches(self, source: int, destination: int) -> bool:
        return bool(torch.cuda.can_device_access_peer(self._devices[source], self._devices[destination]))


class CpuRanks(DistributedEngine):
    """Processes without GPUs, with gloo between them."""

    backend, launch, device = "gloo", "host", TorchCpu

    def queue(self) -> TorchQueue:
        ranks = len(self._plan.gpus)
        needed, free = ranks * (self._room.received + self._room.sent), free_bytes()
        if needed > free:
            # The kernel would promise it all the same, and kill a process once the pages are touched.
            text = f"{ranks} ranks need {needed} bytes, {free} are free: {self._room.refusal()}"
            raise EngineError("out_of_memory", text)
        return TorchCpu(torch.device("cpu"), self._rank, self._plan.dtype)

    def reaches(self, source: int, destination: int) -> bool:  # noqa: ARG002 - no memory here is a GPU's
        return False


def operation(
    layout: Layout, group: dist.ProcessGroup, queue: TorchQueue, place: int, peer: int = 0
) -> Callable[[], object]:
    """One rank's part in one run, as a function that starts it; `peer`: with whom it sends or receives."""
    send, receive = queue.ends(layout, place)
    root, ranks = place == ROOT, layout.ranks
    if layout.op == probe.SENDRECV:
        return _exchange(group, send, (place + 1) % ranks, receive, (place - 1) % ranks)
    if layout.op == probe.SEND:
        way, buffer = (dist.isend, send) if layout.sends(place) else (dist.irecv, receive)
        return _posted([dist.P2POp(way, buffer, group=group, group_peer=peer)])
    calls: dict[str, Callable[[], object]] = {
        probe.ALL_REDUCE: lambda: dist.all_reduce(receive, group=group),
        probe.ALL_GATHER: lambda: _all_gather(receive, send, group=group),
        probe.REDUCE_SCATTER: lambda: _reduce_scatter(receive, send, group=group),
        probe.BROADCAST: lambda: dist.broadcast(receive, group=group, group_src=ROOT),
        probe.REDUCE: lambda: dist.reduce(receive, group=group, group_dst=ROOT),
        probe.ALLTOALL: lambda: dist.all_to_all_single(receive, send, group=group),
    }
    if layout.op == probe.SCATTER:
        pieces = list(send.chunk(ranks)) if root else None
        return lambda: dist.scatter(receive, pieces, group=group, group_src=ROOT)
    if layout.op == probe.GATHER:
        pieces = list(receive.chunk(ranks)) if root else None
        return lambda: dist.gather(send, pieces, group=group, group_dst=ROOT)
    return calls[layout.op]


def _exchange(
    group: dist.ProcessGroup, send: torch.Tensor, to: int, receive: torch.Tensor, source: int
) -> Callable[[], None]:
    """A function that sends to one rank of the group and receives from one at the same time."""
    return _posted([
        dist.P2POp(dist.isend, send, group=group, group_peer=to),
        dist.P2POp(dist.irecv, receive, group=group, group_peer=source),
    ])  # fmt: skip


def _posted(ways: list[dist.P2POp]) -> Callable[[], None]:
    def start() -> None:
        for work in dist.batch_isend_irecv(ways):
            work.wait()

    return start


def meet(meeting: Meeting, rank: int, ranks: int) -> dist.Store:
    """Return the store through which all ranks meet; rank 0 has it, and listens on all addresses.

    Where no interface is chosen for gloo, gloo uses the interface that reaches the store. A node's name may
    lead to another interface, or to none. Raises EngineError: the first node cannot be reached in time, or
    its port is taken.
    """
    late, first = time.monotonic() + meeting.patience, rank == 0
    try:
        made = _store(meeting, ranks, here=True) if first else None
        interface = _interface(_reached(meeting, late))
        if interface:
            os.environ.setdefault(_INTERFACE, interface)
        return made or _store(meeting, ranks, here=False)
    except (RuntimeError, OSError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        where = f"{meeting.host}:{meeting.port}"
        what = "cannot be listened at" if first else f"has not answered within {meeting.patience:g} s"
        raise EngineError("internal", f"{where} {what}: {said}") from error


def _store(meeting: Meeting, ranks: int, *, here: bool) -> dist.Store:
    within = timedelta(seconds=meeting.patience)
    return dist.TCPStore(
        meeting.host, meeting.port, ranks, is_master=here, timeout=within, wait_for_workers=False
    )


def _reached(meeting: Meeting, late: float) -> str:
    """Our address on the way to the first node, once it listens; its name may not be known before."""
    while True:
        left = max(0.1, late - time.monotonic())
        try:
            with socket.create_connection((meeting.host, meeting.port), left) as one:
                address: str = one.getsockname()[0]
                return address
        except OSError:
            if time.monotonic() > late:
                raise
        time.sleep(RETRY_SECONDS)


def _interface(address: str) -> str:
    """The interface with this IPv4 address; "" where none has it as its first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                told = ioctl(asked, _GET_ADDRESS, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(told[20:24]) == address:
                    return name
    return ""
