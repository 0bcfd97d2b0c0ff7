"""Assign single lines of NCCL's log to communicators.

A line names its communicator by a pointer, or not at all. Then the writing thread, the devices of its ranks
and the communicators begun before it decide.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from wirewatch.core.account import Channels, Comm, Connection, Device
from wirewatch.core.pci import normal_pci
from wirewatch.core.types import Absent, value_or
from wirewatch.nccl.lines import NOT_LOGGED, Init, Joined, Link, RingOrder, Spans, Took
from wirewatch.nccl.messages import NOWHERE, Process

CANDIDATES = 64
"""Communicators of a rank, begun before and after a line, that are candidates for the line's communicator."""
NAME = 100
"""Characters of a split's id, which has its parent's before it; a pointer stands for a longer id."""
GroupFact = Init | Link | Channels | Took | Spans | Joined | RingOrder
"""Facts that are about one communicator."""
Ends = tuple[int, int, str]
"""The ranks of a connection and its transport."""
End = tuple[int, int, bool]
"""One end of one channel of a connection: channel, connection's number, whether the receiver logged it."""


@dataclass(frozen=True, slots=True)
class LoggedComm:
    """A communicator, the process of each rank that wrote to the log, and the first lines of its parts.

    A line is 0 where there is none. `lanes`: the line of each logged end. `pointers`: where the processes
    have it in memory. `rings`: what the log says of the order of ranks.
    """

    comm: Comm
    line: int
    channels_line: int
    processes: Mapping[int, Process]
    lines: Mapping[Ends, int]
    lanes: Mapping[Ends, Mapping[End, int]]
    pointers: AbstractSet[tuple[Process, str]]
    rings: tuple[RingOrder, ...]


class LoggedFact(NamedTuple):
    """A fact from the log: the numbers of its message and line, the process and thread that wrote it."""

    at: int
    line: int
    process: Process
    thread: int
    fact: GroupFact


def gather(facts: Sequence[LoggedFact]) -> tuple[LoggedComm, ...]:
    """The communicators in the order in which they were begun; last, without id, what belongs to none."""
    groups = _Groups()
    for logged in facts:
        if isinstance(logged.fact, Init):
            groups.begin(logged, logged.fact)
    for logged in facts:
        if isinstance(logged.fact, Spans):
            groups.begin_late(logged, logged.fact)
    for logged in facts:
        _attach(groups, logged)
    groups.join_ends()
    nameless = groups.nameless
    counted = not isinstance(nameless.channels, Absent)
    found = nameless.lanes or nameless.seconds or nameless.rings or counted
    return tuple(_logged(group) for group in (*groups.all, *([nameless] if found else [])))


class _Member(NamedTuple):
    """The device of one rank of a communicator, and its bus as NCCL numbers it."""

    bus: int
    device: Device

    def is_at(self, device: str) -> bool:
        nvml = self.device.nvml
        return not device or int(device, 16) == self.bus if isinstance(nvml, Absent) else device == str(nvml)


@dataclass(slots=True, eq=False)
class _CommGroup:
    """One communicator as it grows, line by line."""

    id: str
    ranks: int | Absent
    begun: int
    line: int
    members: dict[int, _Member] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    nodes: int | Absent = NOT_LOGGED
    channels: Channels | Absent = NOT_LOGGED
    channels_line: int = 0
    processes: dict[int, Process] = field(default_factory=dict)
    pointers: set[tuple[Process, str]] = field(default_factory=set)
    rings: dict[RingOrder, None] = field(default_factory=dict)
    lanes: defaultdict[Ends, dict[End, int]] = field(default_factory=lambda: defaultdict(dict))
    nvls: set[int] = field(default_factory=set)

    def fits(self, link: Link) -> bool:
        """Whether the rank that logged it is a member, and no end of it is known to be in another group."""
        ends = ((link.source, link.source_device), (link.destination, link.destination_device))
        known = [(self.members[rank], device) for rank, device in ends if rank in self.members]
        within = all(rank < value_or(self.ranks, 0) for rank, _ in ends)
        return within and _near(link) in self.processes and all(m.is_at(device) for m, device in known)

    def has(self, link: Link) -> bool:
        return (*link.lane, link.received) in self.lanes.get(_ends(link), ())

    def add(self, link: Link, logged: LoggedFact) -> None:
        self.lanes[_ends(link)].setdefault((*link.lane, link.received), logged.line)
        near = _near(link)
        if self.processes.setdefault(near, logged.process) != logged.process:
            # Lines of several communicators that none of them names.
            self.processes[near] = NOWHERE


class _Mark(NamedTuple):
    """A line with which a rank's set-up in a group begins or is `done`."""

    at: int
    group: _CommGroup
    rank: int
    done: bool


class _Groups:
    """All communicators, by what lines name: a pointer, a thread, a rank in a process."""

    def __init__(self) -> None:
        self.all: list[_CommGroup] = []
        self.nameless = _CommGroup("", NOT_LOGGED, -1, 0)
        self._generations: defaultdict[tuple[str, int], list[_CommGroup]] = defaultdict(list)
        self._having: Counter[tuple[str, int, int]] = Counter()
        self._members: dict[tuple[str, int, int, str], _CommGroup] = {}
        self._pointers: defaultdict[tuple[Process, str], list[_Mark]] = defaultdict(list)
        self._threads: defaultdict[tuple[Process, int], list[_Mark]] = defaultdict(list)
        self._ranks: defaultdict[tuple[Process, int], list[_Mark]] = defaultdict(list)
        self._joined: set[tuple[Process, int, _CommGroup]] = set()

    def begin(self, logged: LoggedFact, init: Init) -> None:
        group = self._group(logged, init)
        self._mark(logged, init.pointer, _Mark(logged.at, group, init.rank, init.done))
        if init.done:
            group.finished.add(init.rank)

    def begin_late(self, logged: LoggedFact, spans: Spans) -> None:
        """Add a rank whose beginning and id the log lacks: it joins the only group that lacks it."""
        if self.at_pointer(logged, spans.pointer):
            return
        alike = [group for group in self.all if group.ranks == spans.ranks]
        lacking = [group for group in alike if spans.rank not in group.processes]
        group = lacking[0] if len(lacking) == 1 else None
        if group is None:
            group = _CommGroup("", spans.ranks, logged.at, logged.line)
            self.all.append(group)
        group.processes[spans.rank] = logged.process
        self._mark(logged, spans.pointer, _Mark(logged.at, group, spans.rank, done=False))

    def _mark(self, logged: LoggedFact, pointer: str, mark: _Mark) -> None:
        insort(self._threads[logged.process, logged.thread], mark, key=lambda one: one.at)
        mark.group.pointers.add((logged.process, pointer))
        for process in {logged.process, NOWHERE}:
            self._pointers[process, pointer].append(mark)
            if (process, mark.rank, mark.group) not in self._joined:
                self._joined.add((process, mark.rank, mark.group))
                self._ranks[process, mark.rank].append(mark)

    def _group(self, logged: LoggedFact, init: Init) -> _CommGroup:
        """Return the group of this id with (or else without) the rank at the pointer: ids may repeat."""
        parent = self.at_pointer(logged, init.parent)
        above = parent.group.id if parent and len(parent.group.id) < NAME else init.parent if parent else "?"
        split = f"{above}/{init.split}" if init.split else ""
        name = init.id or split
        known = self._members.get((name, init.ranks, init.rank, init.pointer))
        if name and known:
            return known
        groups, having = self._generations[name, init.ranks], (name, init.ranks, init.rank)
        # Those that have the rank come first: each time it went to the first that lacked it.
        if self._having[having] < len(groups):
            group = groups[self._having[having]]
        else:
            group = _CommGroup(name or init.pointer, init.ranks, logged.at, logged.line)
            groups.append(group)
            self.all.append(group)
        self._having[having] += 1
        self._members.setdefault((*having, init.pointer), group)
        bus = init.bus
        address = normal_pci(f"{bus >> 20:08x}:{bus >> 12 & 0xFF:02x}:{bus >> 4 & 0xFF:02x}.{bus & 0xF:x}")
        device = Device(init.cuda, init.nvml, address)
        group.members[init.rank] = _Member(bus, device)
        group.processes[init.rank] = logged.process
        return group

    def at_pointer(self, logged: LoggedFact, pointer: str) -> _Mark | None:
        """The last that was begun there, since memory is used again; else the first."""
        marks = self._pointers.get((logged.process, pointer), [])
        before = bisect_left(marks, logged.at, key=lambda mark: mark.at)
        return marks[max(before - 1, 0)] if marks else None

    def of_thread(self, logged: LoggedFact) -> _CommGroup | None:
        """The communicator that the thread is setting up, or else has set up last."""
        before, _ = self._beside(logged)
        return self._set_up_by(logged) or (before.group if before else None)

    def _set_up_by(self, logged: LoggedFact) -> _CommGroup | None:
        """Where the log lacks the beginning, as before 2.18.3, it is what the thread completes next."""
        before, after = self._beside(logged)
        if before and not before.done:
            return before.group
        return after.group if after and after.done else None

    def _beside(self, logged: LoggedFact) -> tuple[_Mark | None, _Mark | None]:
        """The thread's marks next to this line."""
        marks = self._threads.get((logged.process, logged.thread), [])
        at = bisect_left(marks, logged.at, key=lambda mark: mark.at)
        return marks[at - 1] if at else None, marks[at] if at < len(marks) else None

    def of_link(self, logged: LoggedFact, link: Link) -> _CommGroup:
        group = self._set_up_by(logged)
        if group and group.fits(link):
            return group
        marks = self._ranks.get((logged.process, _near(link)), [])
        at = bisect_left(marks, logged.at, key=lambda mark: mark.at)
        near = marks[max(at - CANDIDATES, 0) : at + CANDIDATES]
        fitting = [mark.group for mark in near if mark.group.fits(link)]
        begun = [g for g in fitting if g.begun < logged.at] or fitting
        free = [g for g in begun if not g.has(link)]
        return [self.nameless, *begun, *free][-1]

    def join_ends(self) -> None:
        """Give an end that names no communicator to the only one whose lines have its other end."""
        left = [ends for ends in self.nameless.lanes if ends[2].startswith("NET/")]
        owners: defaultdict[tuple[int, int, End], list[_CommGroup]] = defaultdict(list)
        for group in self.all if left else ():
            for (source, destination, transport), found in group.lanes.items():
                for end in found if transport.startswith("NET/") else ():
                    owners[source, destination, end].append(group)
        for ends in left:
            for end, line in list(self.nameless.lanes[ends].items()):
                channel, connection, received = end
                others = owners[(*ends[:2], (channel, connection, not received))]
                if len(others) == 1 and (*ends[:2], end) not in owners:
                    near = ends[1] if received else ends[0]
                    others[0].lanes[ends][end] = line
                    others[0].processes.setdefault(near, self.nameless.processes[near])
                    del self.nameless.lanes[ends][end]
            if not self.nameless.lanes[ends]:
                del self.nameless.lanes[ends]


def _near(link: Link) -> int:
    return link.destination if link.received else link.source


def _ends(link: Link) -> Ends:
    return link.source, link.destination, link.transport


def _attach(groups: _Groups, logged: LoggedFact) -> None:
    match logged.fact:
        case Link() as link:
            groups.of_link(logged, link).add(link, logged)
        case RingOrder() as ring:
            (groups.of_thread(logged) or groups.nameless).rings[ring] = None
        case Channels() as channels:
            group = groups.of_thread(logged) or groups.nameless
            known = group.channels_line if group.channels == channels else logged.line
            group.channels, group.channels_line = channels, known
        case Took(seconds):
            (groups.of_thread(logged) or groups.nameless).seconds.append(seconds)
        case Spans(pointer):
            if mark := groups.at_pointer(logged, pointer):
                mark.group.nodes = logged.fact.nodes
        case Joined(pointer):
            if mark := groups.at_pointer(logged, pointer):
                mark.group.nvls.add(mark.rank)
        case Init():
            pass


def _logged(group: _CommGroup) -> LoggedComm:
    """The communicator; both ends of a connection over the network log the same channel."""
    members = {rank: group.members[rank] for rank in sorted(group.members)}
    devices = {rank: member.device for rank, member in members.items()}
    processes = {rank: group.processes[rank] for rank in sorted(group.processes)}
    lines = {ends: min(found.values()) for ends, found in group.lanes.items()}
    seconds, lanes = max(group.seconds, default=NOT_LOGGED), sorted(group.lanes.items())
    connections = tuple(Connection(*ends, len({lane[:2] for lane in found})) for ends, found in lanes)
    finished, nvls = tuple(sorted(group.finished)), tuple(sorted(group.nvls))
    comm = Comm(
        group.id, group.ranks, devices, finished, seconds, group.nodes, group.channels, connections, nvls
    )
    return LoggedComm(
        comm, group.line, group.channels_line, processes, lines, group.lanes, group.pointers,
        tuple(group.rings),
    )  # fmt: skip
