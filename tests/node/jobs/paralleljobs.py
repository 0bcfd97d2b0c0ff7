"""Jobs with tensor, pipeline and data parallel ranks, drawn: what the rings of one node hold.

Each rank runs its program: it computes, meets others in collectives of several communicators, sends and
receives. A collective ends on all of its ranks once the last has arrived and the wire has carried it; each
GPU has a clock of its own. Ranks of other nodes are drawn too, and have no rings here. Nothing of this is
taken from the code that judges.
"""

import random
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tests.node.jobs.ringjobs import AROUND, MIB, uuid
from tests.support import EPOCH
from wirewatch.core.jobs import Ring, RingCounts, RingReading, RingsReading, RingState, TimedCollective
from wirewatch.core.types import Expect, Finding, Ok
from wirewatch.jobs.running import COLLECTOR, judge
from wirewatch.jobs.running.model import JobsMemory, JobsReading, JobSurroundings
from wirewatch.jobs.times import JobsFacts

COMPUTE, MEET, BESIDE, WAIT, SEND, RECEIVE = range(6)
BLOCK = 32


@dataclass(frozen=True)
class ParallelShape:
    """`here` ranks of tensor x pipeline x data on this node, the first ones; `work`: seconds of a layer.

    `slow`: by rank, how many times its work takes. `rail`: by rank, how many times its data parallel group's
    messages take. `stall`: by rank, each so many steps for so many seconds. `beside`: data parallel buckets
    run beside the backward pass. `tied`: first and last stage meet at the end of a step. `world`: all ranks
    meet there too. `timing`: all calls, those of data parallel ranks alone (data), the first 0.2 s of each
    2 s (moments), or blocks of 32, of `stride` of tensor parallel ranks one; all as
    lines of NCCL Inspector have them (lines).
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    here: int = 8
    layers: int = 12
    batches: int = 4
    work: float = 1e-3
    noise: float = 0.002
    tensor_bytes: int = 8 * MIB
    data_bytes: int = 64 * MIB
    buckets: int = 4
    wire: float = 200e9
    network: float = 40e9
    slow: Mapping[int, float] = field(default_factory=dict)
    rail: Mapping[int, float] = field(default_factory=dict)
    stall: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    beside: bool = False
    tied: bool = False
    world: bool = False
    timing: str = "all"
    stride: int = 4

    @property
    def size(self) -> int:
        return self.tensor * self.pipeline * self.data


@dataclass
class DrawnCommunicator:
    number: int
    ranks: tuple[int, ...]
    inside: bool
    speed: float
    made: int = 0
    done: list[tuple[float, int]] = field(default_factory=list)


@dataclass
class DrawnRing:
    ring: Ring
    calls: list[TimedCollective] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    made: list[tuple[float, str, int]] = field(default_factory=list)
    """The end, operation and bytes of what is not counted yet."""
    counts: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def count(self, mono: float) -> None:
        """Count what has ended by then."""
        for end, op, size in self.made:
            if end <= mono:
                self.counts[op] += 1
                self.bytes[op] += size
        self.made = [one for one in self.made if one[0] > mono]


Action = tuple[int, float, str, int]
"""What a rank does: seconds of it, with which communicator or in which channel, and how many bytes."""


class ParallelJob:
    """A job drawn for a while."""

    def __init__(self, shape: ParallelShape, seed: int = 0, start: float = 1000.0) -> None:
        self.shape = shape
        self.draw = random.Random(seed)  # noqa: S311 - a drawn job, no secret
        self.time = [start] * shape.size
        self.beside = [start] * shape.size
        self.queue: list[deque[tuple[float, str, int]]] = [deque() for _ in range(shape.size)]
        self.steps = [0] * shape.size
        self.program: list[Iterator[Action]] = [self._program(rank) for rank in range(shape.size)]
        self.now: list[Action | None] = [None] * shape.size
        self.arrived: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        self.counts: list[Counter[str]] = [Counter() for _ in range(shape.size)]
        self.ended: dict[tuple[str, int], float] = {}
        self.sent: dict[str, deque[float]] = defaultdict(deque)
        self.groups = dict(self._groups())
        self.rings = {
            (name, rank): DrawnRing(self._ring(one, rank))
            for name, one in self.groups.items()
            for rank in one.ranks
            if rank < shape.here
        }
        self.waited: dict[int, float] = defaultdict(float)

    def place(self, rank: int) -> tuple[int, int, int]:
        """The tensor, data and pipeline place of a rank: tensor ranks lie next to each other."""
        tensor, data = self.shape.tensor, self.shape.data
        return rank % tensor, rank // tensor % data, rank // tensor // data

    def _groups(self) -> Iterator[tuple[str, DrawnCommunicator]]:
        members: dict[str, list[int]] = defaultdict(list)
        for rank in range(self.shape.size):
            tensor, data, stage = self.place(rank)
            if self.shape.tensor > 1:
                members[f"tp{data}.{stage}"].append(rank)
            if self.shape.data > 1:
                members[f"dp{tensor}.{stage}"].append(rank)
            if self.shape.pipeline > 1:
                members[f"pp{tensor}.{data}"].append(rank)
            if self.shape.tied and stage in {0, self.shape.pipeline - 1}:
                members[f"em{tensor}.{data}"].append(rank)
            if self.shape.world:
                members["world"].append(rank)
        for number, (name, ranks) in enumerate(members.items(), 1):
            inside = all(rank // self.shape.here == ranks[0] // self.shape.here for rank in ranks)
            speed = self.shape.wire if inside else self.shape.network
            slowest = max(self.shape.rail.get(rank, 1.0) for rank in ranks) if name.startswith("dp") else 1.0
            yield name, DrawnCommunicator(0xA000 + number, tuple(ranks), inside, speed / slowest)

    def _ring(self, one: DrawnCommunicator, rank: int) -> Ring:
        nodes = len({member // self.shape.here for member in one.ranks})
        moments = self.shape.timing == "moments"
        return Ring(
            name=f"{4000 + rank}-{one.number:x}.ring", communicator=one.number, ranks=len(one.ranks),
            rank=one.ranks.index(rank), nodes=nodes, gpu=uuid(rank), pid=4000 + rank, host_pid=4000 + rank,
            uid=1000, created=EPOCH, state=RingState.LIVE, counts=RingCounts(), nccl="2.28.9", interface=5,
            tap="0.3", on=0.2 if moments else 2.0, period=2.0,
            source="NCCL Inspector" if self.shape.timing == "lines" else "",
        )  # fmt: skip

    def _work(self, rank: int, seconds: float) -> Action:
        factor = self.shape.slow.get(rank, 1.0) * max(0.1, self.draw.gauss(1.0, self.shape.noise))
        return (COMPUTE, seconds * factor, "", 0)

    def _program(self, rank: int) -> Iterator[Action]:
        while True:
            self.steps[rank] += 1
            every, seconds = self.shape.stall.get(rank, (0, 0.0))
            if every and self.steps[rank] % every == 0:
                yield (COMPUTE, seconds, "", 0)
            if self.shape.pipeline > 1:
                yield from self._stages(rank)
            else:
                yield from self._layers(rank, 1.0)
                yield from self._layers(rank, 2.0, beside=self.shape.beside)
            yield from self._end_of_step(rank)

    def _layers(self, rank: int, times: float, *, beside: bool = False) -> Iterator[Action]:
        tensor, data, stage = self.place(rank)
        each = max(1, self.shape.layers // self.shape.buckets)
        for layer in range(self.shape.layers):
            yield self._work(rank, times * self.shape.work)
            if self.shape.tensor > 1:
                yield (MEET, 0.0, f"tp{data}.{stage}", self.shape.tensor_bytes)
            if beside and self.shape.data > 1 and layer % each == each - 1:
                yield (BESIDE, 0.0, f"dp{tensor}.{stage}", self.shape.data_bytes)

    def _stages(self, rank: int) -> Iterator[Action]:
        tensor, data, stage = self.place(rank)
        up, down = f"{tensor}.{data}.{stage}>{stage + 1}", f"{tensor}.{data}.{stage}>{stage - 1}"
        from_down, from_up = f"{tensor}.{data}.{stage - 1}>{stage}", f"{tensor}.{data}.{stage + 1}>{stage}"
        last = self.shape.pipeline - 1
        for times, source, target, first, end in (
            (1.0, from_down, up, 0, last),
            (2.0, from_up, down, last, 0),
        ):
            for _ in range(self.shape.batches):
                if stage != first:
                    yield (RECEIVE, 0.0, source, MIB)
                yield from self._layers(rank, times / self.shape.batches)
                if stage != end:
                    yield (SEND, 0.0, target, MIB)

    def _end_of_step(self, rank: int) -> Iterator[Action]:
        tensor, data, stage = self.place(rank)
        if self.shape.data > 1:
            for _ in range(0 if self.shape.beside else self.shape.buckets):
                yield (MEET, 0.0, f"dp{tensor}.{stage}", self.shape.data_bytes)
            yield (WAIT, 0.0, "", 0)
        if self.shape.tied and stage in {0, self.shape.pipeline - 1}:
            yield (MEET, 0.0, f"em{tensor}.{data}", 32 * MIB)
        if self.shape.world:
            yield (MEET, 0.0, "world", 4096)

    def run(self, until: float) -> None:
        while min(self.time) < until:
            moved = [self._advance(rank, until) for rank in range(self.shape.size)]
            if not any(moved):
                return

    def _advance(self, rank: int, until: float) -> bool:
        """Run a rank until it must wait for others; whether it did anything."""
        moved = self._advance_beside(rank)
        while self.time[rank] < until:
            if self.now[rank] is None:
                self.now[rank] = next(self.program[rank])
            if not self._does(rank, self.now[rank]):  # type: ignore[arg-type]
                return moved
            self.now[rank], moved = None, True
            self._advance_beside(rank)
        return moved

    def _does(self, rank: int, action: Action) -> bool:
        kind, seconds, name, size = action
        if kind == COMPUTE:
            self.time[rank] += seconds
        elif kind == BESIDE:
            self.queue[rank].append((self.time[rank], name, size))
        elif kind == WAIT:
            if self.queue[rank]:
                return False
            self.time[rank] = max(self.time[rank], self.beside[rank])
        elif kind == SEND:
            self.sent[name].append(self.time[rank] + size / self.shape.wire)
            self._count_send(rank, size)
        elif kind == RECEIVE:
            if not self.sent[name]:
                return False
            self.time[rank] = max(self.time[rank], self.sent[name].popleft())
            self._count_send(rank, size)
        else:
            end = self._meet(rank, name, size, self.time[rank])
            if end is None:
                return False
            self.time[rank] = end
        return True

    def _advance_beside(self, rank: int) -> bool:
        moved = False
        while self.queue[rank]:
            ready, name, size = self.queue[rank][0]
            end = self._meet(rank, name, size, max(ready, self.beside[rank]))
            if end is None:
                break
            self.beside[rank], moved = end, True
            self.queue[rank].popleft()
        return moved

    def _meet(self, rank: int, name: str, size: int, at: float) -> float | None:
        number, group = self.counts[rank][name], self.groups[name]
        arrived = self.arrived[name, number]
        arrived.setdefault(rank, at)
        if len(arrived) < len(group.ranks):
            return None
        if (name, number) not in self.ended:
            n = len(group.ranks)
            wire = 10e-6 + 2 * (n - 1) / n * size / group.speed * (
                1 + abs(self.draw.gauss(0, self.shape.noise))
            )
            self.ended[name, number] = max(arrived.values()) + wire
            self._record(name, number, size, arrived, self.ended[name, number])
        self.counts[rank][name] += 1
        return self.ended[name, number]

    def _record(self, name: str, number: int, size: int, arrived: Mapping[int, float], end: float) -> None:
        for rank in [rank for rank in arrived if rank < self.shape.here]:
            ring, at = self.rings[name, rank], arrived[rank]
            ring.made.append((end, "all_reduce", size))
            if not self._timed(name, number, at):
                continue
            clock = at + 7.0 * rank
            ring.calls.append(TimedCollective(
                number=len(ring.calls) + 1, op="all_reduce", sequence=number, size_bytes=size,
                dtype="bfloat16", algorithm="RING", protocol="SIMPLE", channels=24, seconds=end - at,
                started=clock, stopped=clock + end - at, enqueued=at - 1e-4,
            ))  # fmt: skip
            if self.shape.timing == "lines":
                ring.calls[-1] = replace(ring.calls[-1], started=at, stopped=end, enqueued=end)
            ring.ends.append(end)

    def _timed(self, name: str, number: int, at: float) -> bool:
        if self.shape.timing == "moments":
            return at % 2.0 < 0.2
        if self.shape.timing == "data":
            return name.startswith("dp")
        often = name.startswith("tp") and self.shape.timing == "blocks"
        return not often or random.Random(number // BLOCK).random() < 1 / self.shape.stride  # noqa: S311

    def _count_send(self, rank: int, size: int) -> None:
        tensor, data, _ = self.place(rank)
        if rank < self.shape.here:
            self.rings[f"pp{tensor}.{data}", rank].made.append((self.time[rank], "sendrecv", size))

    def readings(self, mono: float, after: Mapping[str, int]) -> Iterator[RingReading]:
        self.run(mono)
        for one in self.rings.values():
            seen = after.get(one.ring.name, 0)
            new = one.calls[seen : bisect_right(one.ends, mono)]
            one.count(mono)
            sends = one.counts["sendrecv"]
            counts = RingCounts(
                written=len(one.calls), enqueued=one.counts.total() - sends, sends=sends,
                windows=len(one.calls), calls=dict(one.counts), bytes=dict(one.bytes),
            )  # fmt: skip
            yield RingReading(replace(one.ring, counts=counts), tuple(new), last=seen + len(new))


class ParallelNode:
    """A node that watches one such job with the collector's own policy, every two seconds."""

    def __init__(self, shape: ParallelShape, seed: int = 0, around: JobSurroundings = AROUND) -> None:
        self.job, self.around = ParallelJob(shape, seed), around
        self.mono, self.memory = 1000.0, COLLECTOR.start
        self.found: tuple[Finding, ...] = ()

    memory: JobsMemory

    def poll(self, times: int = 1) -> JobsFacts:
        for _ in range(times):
            self.mono += 2.0
            after = {name: ring.last for name, ring in self.memory.rings.items()}
            rings = RingsReading(tuple(self.job.readings(self.mono, after)))
            ok = Ok(JobsReading(rings, {}, around=self.around), EPOCH + self.mono, self.mono)
            self.memory, self.found = judge(self.memory, ok, COLLECTOR.policy, Expect())
        assert self.memory.facts is not None
        return self.memory.facts

    def watch(self, polls: int) -> Iterator[JobsFacts]:
        for _ in range(polls):
            yield self.poll()
