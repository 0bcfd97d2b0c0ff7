"""A job on a node, event by event: what each rank's process, its streams and its collectives do, and when.

A process walks through its program and enqueues; the GPU follows. A collective begins on a rank when its
stream gets there, moves once all members are there, and ends on all alike. The truth is written down as it
happens: for each collective when every member came, who came last, and how long the wire took.
"""

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from proof.model import wire

LAUNCH = 8e-6
"""Seconds of the host for each kernel that it launches."""
GROUPED = "grouped"
"""An exchange of all with all by sends and receives, of which nothing is timed."""
COMPUTE, CALL, JOIN, SYNC, PAUSE, SEND, RECEIVE = range(7)
Op = tuple[object, ...]
"""What a program yields; see the functions below."""


def compute(seconds: float) -> Op:
    """Kernels on the stream that computes."""
    return (COMPUTE, seconds)


def call(group: int, op: str, size: int, *, beside: bool = False) -> Op:
    """A collective; `beside`: the stream that computes does not wait for it."""
    return (CALL, group, op, size, beside)


JOINED: Op = (JOIN,)
"""The stream that computes waits for all collectives."""
SYNCED: Op = (SYNC,)
"""The process waits for the stream that computes."""


def pause(seconds: float, what: str = "sleep") -> Op:
    """The process does something else; `what` is one of `load.HOST`."""
    return (PAUSE, seconds, what)


def send(group: int, size: int, tag: object) -> Op:
    """A send to whoever receives with the same tag."""
    return (SEND, group, size, tag)


def receive(group: int, size: int, tag: object) -> Op:
    """A receive, for which the stream that computes waits."""
    return (RECEIVE, group, size, tag)


@dataclass(frozen=True)
class Group:
    """A communicator. `members`: ranks of it that are simulated; `here`: how many of them are on this node.

    Those of this node come first. `numbers`: the number of each member within the communicator. `ranks`: of
    all nodes.
    """

    id: int
    members: tuple[int, ...]
    numbers: tuple[int, ...]
    ranks: int
    here: int
    nodes: int = 1
    name: str = ""

    def number(self, rank: int) -> int:
        return self.numbers[self.members.index(rank)]


@dataclass(slots=True)
class Timed:
    """One collective of one rank: when its kernel started, moved, ended (seconds of the job)."""

    group: int
    op: str
    sequence: int
    size: int
    enqueued: float
    start: float
    end: float


@dataclass(slots=True)
class Meeting:
    """A collective of all its members, while not all are there."""

    came: dict[int, tuple[float, float, str, int, bool]] = field(default_factory=dict)


class Kernel(NamedTuple):
    """A kernel that communicates on one GPU: seconds at which it started, moved and ended.

    `late`: who came last: a rank, OTHERS of another node, NOONE. `sent`: bytes over NVLink. `beyond`: seconds
    of moving beyond those of a healthy wire.
    """

    start: float
    moves: float
    end: float
    late: int = -1
    sent: float = 0.0
    beyond: float = 0.0


NOONE, OTHERS = -1, -2


@dataclass(slots=True)
class Rank:
    """One rank: where host and streams are, and what was seen of it.

    `busy`: kernels that compute; `kernels`: those that communicate. `host`: pauses (begin, end, what).
    `enqueued`: (second, group, op, size) of every call. `stuck`: group and start of what it waits in.
    """

    program: Iterator[Op]
    host_at: float = 0.0
    tail: float = 0.0
    streams: dict[int, float] = field(default_factory=dict)
    counts: dict[tuple[int, str], int] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    busy: list[tuple[float, float]] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    host: list[tuple[float, float, str]] = field(default_factory=list)
    enqueued: list[tuple[float, int, str, int]] = field(default_factory=list)
    timed: list[Timed] = field(default_factory=list)
    stuck: tuple[int, float] | None = None


@dataclass
class World:
    """What is around a job. `here`: ranks of this node, which come first.

    `wires`: how many times as long a collective takes as on a healthy node, at a moment. `beside`: by how
    much work beside a collective stretches it at most. `pace`: seconds of the host for each second of kernels
    that it launches. `spread`: seconds by which kernels of one collective end apart at most.
    """

    draw: random.Random
    groups: Sequence[Group]
    here: int
    wires: Callable[[Group, str, int, float], float] = lambda _group, _op, _size, _at: 1.0
    beside: float = 0.25
    pace: float = 0.5
    spread: float = 3e-6


class Job:
    """All local ranks, run until a second. `programs` make a rank's program from itself."""

    def __init__(self, world: World, programs: Mapping[int, Callable[[Rank], Iterator[Op]]]) -> None:
        self.world = world
        self.ranks: dict[int, Rank] = {}
        for number, program in programs.items():
            rank = self.ranks[number] = Rank(iter(()))
            rank.program = program(rank)
        self._alone: dict[tuple[int, str, int], float] = {}
        self._met: dict[tuple[int, int], Meeting] = {}
        self._sent: dict[object, float] = {}
        self._waiting: dict[object, int] = {}

    def run(self, until: float) -> None:
        """Run every rank until its process is past a second; ranks that wait for ever stay where they are."""
        ready = deque(self.ranks)
        while ready:
            ready.extend(self._advance(ready.popleft(), until))
        for rank in self.ranks.values():
            if rank.stuck is not None:
                self._enqueue_on(rank, until)

    def _advance(self, number: int, until: float) -> list[int]:
        """Walk on until the rank waits for others; returns who may walk on then."""
        rank = self.ranks[number]
        rank.stuck = None
        while rank.host_at < until and (op := next(rank.program, None)) is not None:
            woken = self._one(number, rank, op)
            if woken is not None:
                return woken
        return []

    def _one(self, number: int, rank: Rank, op: Op) -> list[int] | None:
        kind = op[0]
        rank.host_at += LAUNCH
        if kind == COMPUTE:
            _work(rank, float(op[1]))  # type: ignore[arg-type]
            rank.host_at += self.world.pace * float(op[1])  # type: ignore[arg-type]
        elif kind == CALL:
            return self._call(number, rank, *op[1:])  # type: ignore[arg-type]
        elif kind == JOIN:
            rank.tail = max(rank.tail, *rank.streams.values()) if rank.streams else rank.tail
        elif kind == SYNC:
            rank.host_at = max(rank.host_at, rank.tail)
        elif kind == PAUSE:
            begun = rank.host_at
            rank.host_at += float(op[1])  # type: ignore[arg-type]
            rank.host.append((begun, rank.host_at, str(op[2])))
        elif kind == SEND:
            return self._send(rank, *op[1:])  # type: ignore[arg-type]
        else:
            return self._receive(number, rank, *op[1:])  # type: ignore[arg-type]
        return None

    def _call(
        self,
        number: int,
        rank: Rank,
        group: int,
        op: str,
        size: int,
        beside: bool,  # noqa: FBT001
    ) -> list[int] | None:
        members = self.world.groups[group].members
        place = rank.calls.get(group, 0)
        rank.calls[group] = place + 1
        rank.enqueued.append((rank.host_at, group, op, size))
        start = max(rank.host_at, rank.tail, rank.streams.get(group, 0.0)) + 2e-6
        meeting = self._met.setdefault((group, place), Meeting())
        meeting.came[number] = (start, rank.host_at, op, size, beside)
        if len(meeting.came) < len(members) or len({one[2] for one in meeting.came.values()}) > 1:
            rank.stuck = (group, start)
            return []
        del self._met[group, place]
        self._end(self.world.groups[group], meeting)
        return [one for one in members if one != number] + [number]

    def _end(self, group: Group, meeting: Meeting) -> None:
        """All are there: it moves and ends, on all alike."""
        world, came = self.world, meeting.came
        first = next(iter(came.values()))
        op, size, beside = first[2], first[3], first[4]
        last, late = max((one[0], number) for number, one in came.items())
        late = late if late < world.here else OTHERS
        took = self._alone.get((group.id, op, size))
        if took is None:
            took = wire.seconds(op, size, group.ranks, group.here, group.nodes)
            self._alone[group.id, op, size] = took
        slower = world.wires(group, op, size, last)
        took *= slower * (1 + abs(world.draw.gauss(0.0, 0.006)))
        if beside:
            took *= 1 + world.beside * world.draw.random() ** 2
        # Of a group over nodes with one member here nothing goes over NVLink.
        sent = wire.share(op, group.ranks) * size if group.here > 1 else 0.0
        for number, (start, enqueued, _, _, _) in came.items():
            rank = self.ranks[number]
            end = last + took + world.draw.random() * world.spread
            rank.streams[group.id] = end
            if not beside:
                rank.tail = end
            key = (group.id, op)
            sequence = rank.counts[key] = rank.counts.get(key, -1) + 1
            rank.kernels.append(Kernel(start, last, end, late, sent, took * (1 - 1 / slower)))
            if op != GROUPED:
                rank.timed.append(Timed(group.id, op, sequence, size, enqueued, start, end))

    def _send(self, rank: Rank, group: int, size: int, tag: object) -> list[int] | None:
        rank.enqueued.append((rank.host_at, group, "send", size))
        begun = max(rank.host_at, rank.tail)
        self._sent[tag] = begun
        rank.kernels.append(Kernel(begun, begun, begun + size / 250e9, sent=float(size)))
        waiting = self._waiting.pop(tag, None)
        if waiting is None:
            return None
        self._arrive(self.ranks[waiting], size, tag)
        return [waiting, next(number for number, one in self.ranks.items() if one is rank)]

    def _receive(self, number: int, rank: Rank, group: int, size: int, tag: object) -> list[int] | None:
        rank.enqueued.append((rank.host_at, group, "recv", size))
        if tag not in self._sent:
            self._waiting[tag] = number
            rank.stuck = (group, max(rank.host_at, rank.tail))
            return []
        self._arrive(rank, size, tag)
        return None

    def _arrive(self, rank: Rank, size: int, tag: object) -> None:
        start, ready = max(rank.host_at, rank.tail), self._sent.pop(tag)
        rank.tail = max(start, ready) + size / 250e9 + 1e-5
        rank.kernels.append(Kernel(start, max(start, ready), rank.tail))

    def _enqueue_on(self, rank: Rank, until: float) -> None:
        """A process goes on enqueuing behind a collective that never ends, until it waits for the GPU."""
        assert rank.stuck is not None
        rank.kernels.append(Kernel(rank.stuck[1], until, until))
        for op in rank.program:
            rank.host_at += LAUNCH
            if op[0] in {SYNC, PAUSE} or rank.host_at >= until:
                return
            if op[0] == CALL:
                rank.enqueued.append((rank.host_at, int(op[1]), str(op[2]), int(op[3])))  # type: ignore[call-overload]


def _work(rank: Rank, seconds: float) -> None:
    begun = max(rank.host_at, rank.tail)
    rank.tail = begun + seconds
    if rank.busy and begun - rank.busy[-1][1] < 1e-7:
        rank.busy[-1] = (rank.busy[-1][0], rank.tail)
    else:
        rank.busy.append((begun, rank.tail))


@dataclass(frozen=True)
class Spending:
    """How one rank spent a span of time, as shares; what is beside work counts as computing.

    `waits`: of the waiting, by the rank that came last, OTHERS for another node, NOONE where nobody is known.
    `beyond`: of the moving, what a healthy wire would not take.
    """

    computing: float
    waiting: float
    moving: float
    beyond: float
    idle: float
    waits: Mapping[int, float]


def spending(rank: Rank, begin: float, end: float) -> Spending:
    """Return the truth of a rank over a span."""
    whole, waits = end - begin, dict[int, float]()
    waiting = moving = beyond = 0.0
    starts = [one[0] for one in rank.busy]
    for one in rank.kernels:
        if one.end <= begin or one.start >= end:
            continue
        waited = _bare(rank.busy, starts, max(one.start, begin), min(one.moves, end))
        moved = _bare(rank.busy, starts, max(one.moves, begin), min(one.end, end))
        waiting += waited
        moving += moved
        beyond += moved * one.beyond / (one.end - one.moves) if one.beyond else 0.0
        waits[one.late] = waits.get(one.late, 0.0) + waited / whole
    busy = sum(max(0.0, min(stop, end) - max(start, begin)) for start, stop in rank.busy)
    idle = max(0.0, whole - busy - waiting - moving)
    return Spending(busy / whole, waiting / whole, moving / whole, beyond / whole, idle / whole, waits)


def _bare(spans: Sequence[tuple[float, float]], starts: Sequence[float], begin: float, end: float) -> float:
    """Return the part of a span in which nothing computes."""
    if end <= begin:
        return 0.0
    left, at = end - begin, max(0, bisect_right(starts, begin) - 1)
    while at < len(spans) and spans[at][0] < end:
        left -= max(0.0, min(spans[at][1], end) - max(spans[at][0], begin))
        at += 1
    return max(0.0, left)
