"""Jobs whose ranks carry the tap, drawn: what their rings hold, read as the daemon reads them.

A rank arrives at a collective when its own work is done; all leave it together once the last one has arrived
and the wire has carried it. So a rank's duration is its waiting and the wire, as on real GPUs. Drawn beside
that: noise of work and wire, compute beside collectives that stretches them, and records that are lost.
Each rank's tap times the blocks of calls that the real one would (tap/pacing.py), at a rate that is known.
A step that no tap times is the one before once more: only its counts are seen.
"""

import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.node.jobs.tap.pacing import BLOCK, chosen
from tests.support import EPOCH
from wirewatch.busbw.formulas import FACTORS, factor
from wirewatch.core.jobs import Ring, RingCounts, RingReading, RingsReading, RingState, TimedCollective
from wirewatch.core.pci import Place
from wirewatch.core.topology import SWITCH, GpuPart, NvlinkWires, Topology
from wirewatch.core.types import Expect, Finding, Ok
from wirewatch.jobs.running import COLLECTOR, judge
from wirewatch.jobs.running.join import PATIENCE, RankRecords, gaps, in_front, join, keep
from wirewatch.jobs.running.model import (
    MOST_JOINED,
    CallKey,
    CommunicatorMemory,
    JobsMemory,
    JobsPolicy,
    JobsReading,
    JobSurroundings,
    RingProcess,
)
from wirewatch.jobs.times import JobsFacts

MIB = 1 << 20
H200 = "NVIDIA H200"
LINK_RATE = 26.562e9
Sizes = tuple[tuple[str, int], ...]


def uuid(index: int) -> str:
    return f"GPU-{index:08d}-0000-4000-8000-000000000000"


def topology(gpus: int = 8, name: str = H200) -> Topology:
    """GPUs on one NVSwitch, all links up."""
    parts = tuple(
        GpuPart(uuid(n), n, name, Place(f"0000:{n:02x}:00.0", "pci0000:00", (), 0)) for n in range(gpus)
    )
    wires = tuple(NvlinkWires(uuid(n), SWITCH, tuple(range(18))) for n in range(gpus))
    return Topology(parts, (), wires, (), 2, ())


AROUND = JobSurroundings(topology(), link_rate=LINK_RATE)


@dataclass(frozen=True)
class JobShape:
    """A job in lockstep.

    `gpus`: index of the GPU of each rank. A step is `work` seconds of computing in as many equal parts as
    there are `calls`, each (op, message bytes) after one part; beside calls that overlap it the parts may
    differ, as `parts` do. `busbw`: bytes per second of the wire for large messages; `floor`: seconds of the
    smallest. `slow`: by rank, how many times its work takes.
    `noise`: standard deviation of work, `wire_noise` of the wire. `overlap`: collectives run beside the
    work and take 1 to 1 + `overlap` times as long, each rank's own part of that drawn too; ranks meet at
    the end of each step alone. `forward`: seconds of work in front of such a step's first part, in which
    nothing is sent; `behind`: by rank, seconds by which it begins each such step later. `uneven`: by how
    much its kernels last longer on the last rank than on the first, each time. `ranks`, `nodes`: of the
    whole communicator; `elsewhere`: seconds by which a rank of another node is late each time.
    `algorithm`, `protocol` as in records. `budget`: calls a second that a tap times; 0 for all of them.
    `stalls`: by rank, in which of so many steps it begins so many seconds later; `pause`: seconds at the end
    of each step in which nothing is sent. `coarser`: by rank, how many times it halves what it times once
    more. `lost`: share of records.
    """

    gpus: tuple[int, ...] = (0, 1, 2, 3)
    work: float = 0.031
    calls: Sizes = (("all_reduce", 256 * MIB),)
    parts: tuple[float, ...] = ()
    busbw: float = 340e9
    floor: float = 8e-6
    slow: Mapping[int, float] = field(default_factory=dict)
    noise: float = 0.002
    wire_noise: float = 0.003
    overlap: float = 0.0
    forward: float = 0.0
    behind: Mapping[int, float] = field(default_factory=dict)
    uneven: float = 0.0
    ranks: int = 0
    nodes: int = 1
    elsewhere: float = 0.0
    algorithm: str = "RING"
    protocol: str = "SIMPLE"
    budget: int = 50
    coarser: Mapping[int, int] = field(default_factory=dict)
    stalls: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    pause: float = 0.0
    lost: float = 0.0
    communicator: int = 0xC0FFEE
    uid: int = 1000
    pid: int = 4000
    nccl: str = "2.28.9"
    owner: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def here(self) -> int:
        return len(self.gpus)

    @property
    def size(self) -> int:
        return self.ranks or len(self.gpus)

    def wire(self, op: str, size: int) -> float:
        """Seconds of one collective alone, as the tap sees it."""
        share = factor(op, self.size) if op in FACTORS else 1.0
        return self.floor + share * size / self.busbw


@dataclass
class DrawnRank:
    """The ring of one rank as it fills."""

    ring: Ring
    calls: list[TimedCollective] = field(default_factory=list)
    done: list[float] = field(default_factory=list)


class DrawnJob:
    """A job drawn for a while; `reading(second)` is what its rings hold then."""

    def __init__(self, shape: JobShape, seed: int = 0, start: float = 1000.0) -> None:
        self.shape = shape
        self._draw = random.Random(seed)  # noqa: S311 - a drawn job, no secret
        self._sequence: dict[str, int] = {}
        self._free, self._start = [start] * shape.here, start
        self.made: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._ended: list[tuple[float, str, int]] = []
        self._step_from, self._step_seconds = 0, 0.0
        self._counted = self._calls = self._halvings = self._steps = 0
        self.ranks = [DrawnRank(self._ring(rank, gpu)) for rank, gpu in enumerate(shape.gpus)]

    def _ring(self, rank: int, gpu: int) -> Ring:
        shape = self.shape
        pid = shape.pid + rank
        return Ring(
            name=f"{pid}-{shape.communicator:x}-{rank}.ring", communicator=shape.communicator,
            ranks=shape.size, rank=rank, nodes=shape.nodes, gpu=uuid(gpu), pid=pid, host_pid=pid,
            uid=shape.uid, created=EPOCH, state=RingState.LIVE, counts=RingCounts(), comm_name="default_pg",
            nccl=shape.nccl, interface=5, tap="0.3", on=2.0, period=2.0, budget=shape.budget,
        )  # fmt: skip

    def run(self, until: float) -> None:
        """Draw steps until this monotonic second."""
        while (began := max(self._free)) < until:
            self._steps += 1
            stalls = {rank: s for rank, (n, s) in self.shape.stalls.items() if self._steps % n == 0}
            if self._step_seconds and not stalls and not self._is_timed(0, len(self.shape.calls)):
                self._again(began)
                continue
            for rank, seconds in stalls.items():
                self._free[rank] += seconds
            self._step_from = len(self._ended)
            self._overlapped() if self.shape.overlap else self._step()
            self._free = [one + self.shape.pause for one in self._free]
            self._step_seconds = max(self._free) - began - max(stalls.values(), default=0.0)
            rate, self._halvings = self._calls / (max(self._free) - self._start), 0
            while self.shape.budget and rate > 1.5 * self.shape.budget * 2**self._halvings:
                self._halvings += 1

    def _is_timed(self, rank: int, calls: int = 1) -> bool:
        """Whether a rank's tap times any of so many calls that come now."""
        halvings = self._halvings + (self.shape.coarser.get(rank, 0) if calls == 1 else 0)
        blocks = range(self._calls // BLOCK, (self._calls + calls - 1) // BLOCK + 1)
        return any(chosen(self.shape.communicator, block, halvings) for block in blocks)

    def _again(self, began: float) -> None:
        """The last step once more, of which no rank has a record."""
        step = self._ended[self._step_from :]
        self._calls += len(step)
        self._step_from = len(self._ended)
        for end, op, size in step:
            self._sequence[op] += 1
            self._ended.append((end + self._step_seconds, op, size))
        self._free = [began + self._step_seconds] * self.shape.here

    def _work(self, rank: int, parts: int) -> float:
        return self._computing(rank, self.shape.work / parts, math.sqrt(parts))

    def _computing(self, rank: int, seconds: float, noisier: float = 1.0) -> float:
        drawn = 1.0 + self._draw.gauss(0.0, self.shape.noise) * noisier
        return seconds * self.shape.slow.get(rank, 1.0) * max(0.1, drawn)

    def _step(self) -> None:
        shape = self.shape
        for op, size in shape.calls:
            for rank in range(shape.here):
                self._free[rank] += self._work(rank, len(shape.calls))
            arrived = list(self._free)
            last = max(arrived) + shape.elsewhere
            end = last + shape.wire(op, size) * (1 + abs(self._draw.gauss(0.0, shape.wire_noise)))
            self._record(op, size, arrived, [end - one for one in arrived], end)
            self._free = [end] * shape.here

    def _overlapped(self) -> None:
        """Buckets beside the work: each is ready as its part of the backward pass ends."""
        shape = self.shape
        ready, stream = list(self._free), list(self._free)
        for rank in range(shape.here):
            ready[rank] += shape.behind.get(rank, 0.0) + self._computing(rank, shape.forward)
        parts = shape.parts or (1.0,) * len(shape.calls)
        for (op, size), part in zip(shape.calls, parts, strict=True):
            noisier = math.sqrt(len(parts))
            for rank in range(shape.here):
                ready[rank] += self._computing(rank, shape.work * part / sum(parts), noisier)
                stream[rank] = max(stream[rank], ready[rank])
            beside = 1 + shape.overlap * self._draw.random()
            end = max(stream) + shape.wire(op, size) * beside
            # Blocks of each rank's kernel end a little apart, by what computes beside them there.
            seconds = [
                (end - begun)
                * (1 + shape.overlap * 0.05 * self._draw.random() + shape.uneven * rank / shape.here)
                for rank, begun in enumerate(stream)
            ]
            self._record(op, size, stream, seconds, end)
            stream = [end] * shape.here
        self._free = [max(*stream, *ready)] * shape.here

    def _record(
        self, op: str, size: int, begun: Sequence[float], seconds: Sequence[float], end: float
    ) -> None:
        shape = self.shape
        number = self._sequence.get(op, 0)
        self._sequence[op] = number + 1
        self._ended.append((end, op, size))
        for rank, one in enumerate(self.ranks):
            if not self._is_timed(rank) or self._draw.random() < shape.lost:
                continue
            gpu_clock = begun[rank] + 7.0 * rank
            one.calls.append(
                TimedCollective(
                    number=len(one.calls) + 1, op=op, sequence=number, size_bytes=size, dtype="bfloat16",
                    algorithm=shape.algorithm, protocol=shape.protocol, channels=24, seconds=seconds[rank],
                    started=gpu_clock, stopped=gpu_clock + seconds[rank], enqueued=begun[rank],
                )
            )  # fmt: skip
            one.done.append(end)
        self._calls += 1

    def rings(self, mono: float, after: Mapping[str, int]) -> tuple[RingReading, ...]:
        """Every ring at a monotonic second, with records after the numbers given."""
        self.run(mono)
        while self._counted < len(self._ended) and self._ended[self._counted][0] <= mono:
            _, op, size = self._ended[self._counted]
            self._counted += 1
            self.made[op] += 1
            self.sent[op] += size
        return tuple(self._reading(one, mono, after.get(one.ring.name, 0)) for one in self.ranks)

    def _reading(self, one: DrawnRank, mono: float, after: int) -> RingReading:
        new = one.calls[after : bisect_right(one.done, mono)]
        counts = RingCounts(
            windows=len(one.calls),
            written=len(one.calls),
            enqueued=self.made.total(),
            calls=dict(self.made),
            bytes=dict(self.sent),
        )
        return RingReading(replace(one.ring, counts=counts), tuple(new), last=after + len(new))

    def processes(self) -> dict[str, RingProcess]:
        return {one.ring.name: RingProcess(self.shape.owner, self.shape.settings) for one in self.ranks}


Change = Callable[[RingReading], RingReading | None]


class DrawnNode:
    """Jobs on one node, watched by the collector with its own policy unless told otherwise."""

    def __init__(
        self, *shapes: JobShape, seed: int = 0, around: JobSurroundings = AROUND,
        policy: JobsPolicy | None = None, every: float = 5.0, change: Change | None = None,
    ) -> None:  # fmt: skip
        self.jobs = [DrawnJob(shape, seed * 1000 + n) for n, shape in enumerate(shapes)]
        self.around, self.policy, self.every = around, policy or COLLECTOR.policy, every
        self.change, self.extra = change, ()
        self.mono = 1000.0
        self.memory: JobsMemory = COLLECTOR.start
        self.found: tuple[Finding, ...] = ()

    extra: tuple[RingReading, ...]

    def read(self) -> JobsReading:
        after = {name: ring.last for name, ring in self.memory.rings.items()}
        rings: list[RingReading] = [*self.extra]
        processes: dict[str, RingProcess] = {}
        for job in self.jobs:
            rings += job.rings(self.mono, after)
            processes |= job.processes()
        if self.change is not None:
            rings = [new for one in rings if (new := self.change(one)) is not None]
        return JobsReading(RingsReading(tuple(rings)), processes, around=self.around)

    def poll(self, times: int = 1) -> JobsFacts:
        for _ in range(times):
            self.mono += self.every
            ok = Ok(self.read(), EPOCH + self.mono, self.mono)
            self.memory, self.found = judge(self.memory, ok, self.policy, Expect())
        assert self.memory.facts is not None
        return self.memory.facts

    def watch(self, seconds: float) -> Iterable[JobsFacts]:
        """The facts of every poll for so long."""
        for _ in range(round(seconds / self.every)):
            yield self.poll()


def joined_of(
    memory: CommunicatorMemory, records: Sequence[RankRecords], ranks: frozenset[int], poll: int,
    patience: int = PATIENCE, most: int = MOST_JOINED,
) -> CommunicatorMemory:  # fmt: skip
    """The memory with what is complete in its window, of a job that has one communicator."""
    found = join(memory, records, ranks, poll, patience, most)
    return keep(found.memory, [*found.joined.values()], most)


def gaps_of(
    calls: Mapping[CallKey, Mapping[int, TimedCollective]], ranks: frozenset[int],
    ended: Mapping[str, int] | None = None,
    front: tuple[CallKey, Mapping[int, TimedCollective]] | None = None,
) -> dict[CallKey, float]:  # fmt: skip
    """Seconds in front of each collective that follows another one."""
    return gaps({**dict([front] if front else []), **calls}, in_front(calls, ranks, ended, front))


def lates(facts: JobsFacts) -> list[str]:
    """The GPUs that are named late, by index."""
    return [job.late.index for job in facts.jobs if job.late is not None]


def slow(facts: JobsFacts) -> list[str]:
    """The jobs whose wire is called slow, with a witness or without."""
    return [job.name for job in facts.jobs if job.wire is not None]


TRAINING = JobShape()
LATE = replace(TRAINING, slow={2: 1.1})
P2P_OFF = replace(TRAINING, busbw=25.1e9)
TREE = replace(TRAINING, busbw=234e9, algorithm="TREE")
LL = replace(TRAINING, busbw=150e9, protocol="LL")
DDP = replace(TRAINING, work=0.25, calls=(("all_reduce", 25 * MIB),) * 40, overlap=0.6)
BUCKETS = replace(
    TRAINING, gpus=(0, 1), forward=0.016, work=0.033, calls=(("all_reduce", 32 * MIB),) * 36, overlap=0.3,
    noise=0.001,
)  # fmt: skip
LAYERS = replace(BUCKETS, parts=(1.0, 1.0, 0.3, 0.1, 0.6) * 6 + (0.6,) * 3 + (0.05,) * 3)
"""As the gradients of a transformer's layers become ready, the last ones at once."""
AT_ONCE = replace(BUCKETS, parts=(2.0, 0.02, 0.02) * 12)
FSDP = replace(
    TRAINING, work=0.4, overlap=0.6,
    calls=tuple(one for _ in range(16) for one in (("all_gather", 128 * MIB), ("reduce_scatter", 128 * MIB))),
)  # fmt: skip
TENSOR_PARALLEL = replace(TRAINING, work=0.02, calls=(("all_reduce", 4 * MIB),) * 32)
SMALL = replace(TRAINING, work=0.02, calls=(("all_reduce", 8192),) * 16)
