"""Communicators from single lines of NCCL's log: which line belongs to which.

A line names its communicator by a pointer, or not at all: then the thread that wrote it, the devices of its
ranks and what was begun before it decide.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from wirewatch.core.account import Channels, Comm, Connection, Device
from wirewatch.core.pci import normal_pci
from wirewatch.core.types import Absent, value_or
from wirewatch.nccl.lines import NOT_LOGGED, Init, Joined, Link, Spans, Took
from wirewatch.nccl.messages import NOWHERE, Process

CANDIDATES = 64
"""How many communicators of a rank, begun before and after a line, may be the one that it means."""
NAME = 100
"""Characters of a split's id, which has its parent's before it; of a longer one the pointer stands for it."""
GroupFact = Init | Link | Channels | Took | Spans | Joined
"""Facts that are about one communicator."""


@dataclass(frozen=True, slots=True)
class LoggedComm:
    """A communicator, each rank's process, and the first lines of its parts; 0 where there is none."""

    comm: Comm
    line: int
    channels_line: int
    processes: Mapping[int, Process]
    lines: Mapping[tuple[int, int, str], int]


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
        _attach(groups, logged)
    nameless = groups.nameless
    known = [one for one in (nameless.channels, nameless.nodes) if not isinstance(one, Absent)]
    found = nameless.lanes or nameless.seconds or known
    return tuple(_logged(group) for group in (*groups.all, *([nameless] if found else [])))


class _Member(NamedTuple):
    """One rank of a communicator: where its structure lies in memory, and its device."""

    pointer: str
    bus: int
    device: Device
    process: Process

    def is_at(self, device: str) -> bool:
        nvml = self.device.nvml
        return int(device, 16) == self.bus if isinstance(nvml, Absent) else device == str(nvml)


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
    lanes: defaultdict[tuple[int, int, str], set[tuple[int, int, bool]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    lines: dict[tuple[int, int, str], int] = field(default_factory=dict)
    nvls: set[int] = field(default_factory=set)

    def fits(self, link: Link) -> bool:
        """Whether the rank that logged it is a member, and no end of it is known to be in another group."""
        ends = ((link.source, link.source_device), (link.destination, link.destination_device))
        known = [(self.members[rank], device) for rank, device in ends if rank in self.members]
        within = all(rank < value_or(self.ranks, 0) for rank, _ in ends)
        return within and _near(link) in self.members and all(m.is_at(device) for m, device in known)

    def has(self, link: Link) -> bool:
        return (*link.lane, link.received) in self.lanes.get(_ends(link), ())

    def add(self, link: Link, line: int) -> None:
        self.lanes[_ends(link)].add((*link.lane, link.received))
        self.lines.setdefault(_ends(link), line)


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
        mark = _Mark(logged.at, group, init.rank, init.done)
        self._threads[logged.process, logged.thread].append(mark)
        for process in {logged.process, NOWHERE}:
            self._pointers[process, init.pointer].append(mark)
            if (process, init.rank, group) not in self._joined:
                self._joined.add((process, init.rank, group))
                self._ranks[process, init.rank].append(mark)
        if init.done:
            group.finished.add(init.rank)

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
        group.members[init.rank] = _Member(init.pointer, bus, device, logged.process)
        return group

    def at_pointer(self, logged: LoggedFact, pointer: str) -> _Mark | None:
        """What was last begun there, since memory is used again; else what was first."""
        marks = self._pointers.get((logged.process, pointer), [])
        before = bisect_left(marks, logged.at, key=lambda mark: mark.at)
        return marks[max(before - 1, 0)] if marks else None

    def of_thread(self, logged: LoggedFact) -> _CommGroup | None:
        """What the thread is setting up, or else has set up last."""
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


def _near(link: Link) -> int:
    return link.destination if link.received else link.source


def _ends(link: Link) -> tuple[int, int, str]:
    return link.source, link.destination, link.transport


def _attach(groups: _Groups, logged: LoggedFact) -> None:
    match logged.fact:
        case Link() as link:
            groups.of_link(logged, link).add(link, logged.line)
        case Channels() as channels:
            group = groups.of_thread(logged) or groups.nameless
            group.channels, group.channels_line = channels, logged.line
        case Took(seconds):
            (groups.of_thread(logged) or groups.nameless).seconds.append(seconds)
        case Spans(pointer, nodes):
            mark = groups.at_pointer(logged, pointer)
            (mark.group if mark else groups.nameless).nodes = nodes
        case Joined(pointer):
            if mark := groups.at_pointer(logged, pointer):
                mark.group.nvls.add(mark.rank)
        case Init():
            pass


def _logged(group: _CommGroup) -> LoggedComm:
    """The communicator; both ends of a connection over the network log the same channel."""
    members = {rank: group.members[rank] for rank in sorted(group.members)}
    devices = {rank: member.device for rank, member in members.items()}
    processes = {rank: member.process for rank, member in members.items()}
    seconds, lanes = max(group.seconds, default=NOT_LOGGED), sorted(group.lanes.items())
    connections = tuple(Connection(*ends, len({lane[:2] for lane in found})) for ends, found in lanes)
    finished, nvls = tuple(sorted(group.finished)), tuple(sorted(group.nvls))
    comm = Comm(
        group.id, group.ranks, devices, finished, seconds, group.nodes, group.channels, connections, nvls
    )
    return LoggedComm(comm, group.line, group.channels_line, processes, group.lines)
