"""NCCL's log as an account: the wires that NCCL found, what it chose, its settings and its warnings.

The log is that of `NCCL_DEBUG=INFO` with the subsystems INIT, GRAPH, ENV, TUNING, NET, P2P, SHM and NVLS,
from its own file (`NCCL_DEBUG_FILE`) or in the middle of another program's output. A line that is cut gives
nothing; it is counted if its kind can still be seen. Forms of lines, sources and versions: `nccl.lines`.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from wirewatch.core.account import Account, Call, Channels, Comm, Connection, Device, Multicast
from wirewatch.core.pci import normal_pci
from wirewatch.core.types import Absent, Why
from wirewatch.nccl.lines import (
    NOWHERE,
    ChannelCounts,
    Chosen,
    Fact,
    Fallen,
    Init,
    Joined,
    Link,
    Network,
    Offered,
    Process,
    Setting,
    Spans,
    Took,
    UnknownForm,
    fact,
    messages,
)

TransportWire = Literal["p2p", "shm", "net_socket", "net_ib", "net_ib_gdr", "net_other", "nvls", "unknown"]
_DIRECT = frozenset({"p2p", "nvls"})
_VERSION = re.compile(r"NCCL version (\d{1,4}\.\d{1,4}\.\d{1,4}[\w.]*)\+cuda\d", re.ASCII)
_NOT_LOGGED = Absent(Why.MISSING, "not in NCCL's log")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fallback:
    """A connection that goes neither from GPU to GPU nor through a multicast."""

    source_rank: int
    destination_rank: int
    transport: str
    wire: TransportWire


class LoggedFact(NamedTuple):
    """A fact from the log: the number of its message, the process and thread that wrote it."""

    at: int
    process: Process
    thread: int
    fact: Fact


class _Member(NamedTuple):
    """One rank of a communicator: where its structure lies in memory, and its device."""

    pointer: str
    nvml: int | None
    bus: int
    device: Device

    def is_at(self, device: str) -> bool:
        return int(device, 16) == self.bus if self.nvml is None else device == str(self.nvml)


@dataclass(slots=True, eq=False)
class _Group:
    """One communicator as it grows, line by line."""

    id: str
    ranks: int | None
    begun: int
    members: dict[int, _Member] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    nodes: int | None = None
    counts: ChannelCounts | None = None
    lanes: defaultdict[tuple[int, int, str], set[tuple[int, int, bool]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    nvls: set[int] = field(default_factory=set)

    def fits(self, link: Link) -> bool:
        """Whether the rank that logged it is a member, and no end of it is known to be in another group."""
        ends = ((link.source, link.source_device), (link.destination, link.destination_device))
        known = [(self.members[rank], device) for rank, device in ends if rank in self.members]
        within = all(rank < (self.ranks or 0) for rank, _ in ends)
        return within and _near(link) in self.members and all(m.is_at(device) for m, device in known)

    def has(self, link: Link) -> bool:
        return (*link.lane, link.received) in self.lanes.get(_ends(link), ())

    def add(self, link: Link) -> None:
        self.lanes[_ends(link)].add((*link.lane, link.received))


class _Mark(NamedTuple):
    """A line with which a rank's set-up in a group begins or is `done`."""

    at: int
    group: _Group
    rank: int
    done: bool


class _Groups:
    """All communicators, by what lines name: a pointer, a thread, a rank in a process."""

    def __init__(self) -> None:
        self.all: list[_Group] = []
        self.nameless = _Group("", None, -1)
        self._generations: defaultdict[tuple[str, int], list[_Group]] = defaultdict(list)
        self._pointers: defaultdict[tuple[Process, str], list[_Mark]] = defaultdict(list)
        self._threads: defaultdict[tuple[Process, int], list[_Mark]] = defaultdict(list)
        self._ranks: defaultdict[tuple[Process, int], list[_Group]] = defaultdict(list)

    def begin(self, logged: LoggedFact, init: Init) -> None:
        group = self._group(logged, init)
        mark = _Mark(logged.at, group, init.rank, init.done)
        self._threads[logged.process, logged.thread].append(mark)
        for process in {logged.process, NOWHERE}:
            self._pointers[process, init.pointer].append(mark)
            if group not in (groups := self._ranks[process, init.rank]):
                groups.append(group)
        if init.done:
            group.finished.add(init.rank)

    def _group(self, logged: LoggedFact, init: Init) -> _Group:
        """The group with this id that has the rank at this pointer, or else lacks it, or else a new one.

        Ids need not be unique: before 2.16 there are none, and NCCL 2.18 to 2.20 give all splits the same.
        """
        parent = self.at_pointer(logged, init.parent)
        split = f"{parent.group.id if parent else '?'}/{init.split}" if init.parent else ""
        name = init.id or split
        groups = self._generations[name, init.ranks]
        for group in groups:
            member = group.members.get(init.rank)
            if name and member and member.pointer == init.pointer:
                return group
        for group in groups:
            if init.rank not in group.members:
                break
        else:
            group = _Group(name or init.pointer, init.ranks, logged.at)
            groups.append(group)
            self.all.append(group)
        group.members[init.rank] = _Member(init.pointer, init.nvml, init.bus, _device(init))
        return group

    def at_pointer(self, logged: LoggedFact, pointer: str) -> _Mark | None:
        """What was last begun there, since memory is used again; else what was first."""
        marks = self._pointers.get((logged.process, pointer), [])
        before = bisect_left(marks, logged.at, key=lambda mark: mark.at)
        return marks[max(before - 1, 0)] if marks else None

    def of_thread(self, logged: LoggedFact) -> _Group | None:
        """What the thread is setting up, or else has set up last."""
        before, _ = self._beside(logged)
        return self._set_up_by(logged) or (before.group if before else None)

    def _set_up_by(self, logged: LoggedFact) -> _Group | None:
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

    def of_link(self, logged: LoggedFact, link: Link) -> _Group:
        group = self._set_up_by(logged)
        if group and group.fits(link):
            return group
        fitting = [g for g in self._ranks.get((logged.process, _near(link)), ()) if g.fits(link)]
        begun = [g for g in fitting if g.begun < logged.at] or fitting
        free = [g for g in begun if not g.has(link)]
        return [self.nameless, *begun, *free][-1]


def parse_nccl_log(text: str) -> Account:
    """The account of all messages in a text; an empty one for a text without any."""
    facts, warnings, torn = [], [], 0
    for at, (process, thread, level, said) in enumerate(messages(text)):
        logged = fact(said) if level == "INFO" else None
        if level == "WARN" or isinstance(logged, Fallen):
            warnings.append(said)
        elif isinstance(logged, UnknownForm):
            torn += 1
        elif logged is not None:
            facts.append(LoggedFact(at, process, thread, logged))
    said_first = _VERSION.search(text)
    return Account(
        said_first[1] if said_first else Absent(Why.MISSING, "NCCL's log does not say its version"),
        gather(facts),
        _calls(facts),
        _once((t.fact.name, t.fact.value) for t in facts if isinstance(t.fact, Setting)),
        _once(_multicast(t.fact) for t in facts if isinstance(t.fact, Offered)),
        _once(filter(None, warnings)),
        torn,
        ",".join(_once(t.fact.name for t in facts if isinstance(t.fact, Network))),
    )


def wire(transport: str) -> TransportWire:
    """The kind of wire that a transport, in NCCL's words, goes over.

    `p2p` is NVLink or PCIe from GPU to GPU, `shm` the host's memory; `net_ib_gdr` reaches the GPU's memory at
    the end that logs it. External plugins for InfiniBand and RoCE have names that begin with IB.
    """
    family, _, rest = transport.partition("/")
    name = rest.partition("/")[0]
    if family == "NET" and name.startswith("IB"):
        return "net_ib_gdr" if "/GDRDMA" in rest else "net_ib"
    if family in {"NET", "COLLNET"}:
        return "net_socket" if name == "Socket" else "net_other"
    known: Mapping[str, TransportWire] = {
        "P2P": "p2p",
        "SHM": "shm",
        "direct shared memory": "shm",
        "NVLS": "nvls",
    }
    return known.get(family, "unknown")


def fallbacks(account: Account) -> tuple[Fallback, ...]:
    """Connections that do not go from GPU to GPU. Between nodes that is as it should be: see `Comm.nodes`."""
    found = ((c, wire(c.transport)) for comm in account.comms for c in comm.connections)
    return _once(Fallback(c.source, c.destination, c.transport, w) for c, w in found if w not in _DIRECT)


def algorithms(account: Account) -> Mapping[tuple[str, int], tuple[str, str]]:
    """The algorithm and protocol that ran most often, by op and logged size in bytes."""
    counted: defaultdict[tuple[str, int], Counter[tuple[str, str]]] = defaultdict(Counter)
    for call in account.calls:
        counted[call.op, call.size_bytes][call.algorithm, call.protocol] += call.count
    return {key: counter.most_common(1)[0][0] for key, counter in counted.items()}


def logged_size(op: str, size_bytes: int, ranks: int, version: str | Absent) -> int:
    """The size that NCCL logs for a collective of nccl-tests' message size, both in bytes.

    Since 2.24 it logs for all_gather and reduce_scatter what one rank contributes or gets; before that, and
    for all other collectives, the whole (src/enqueue.cc). A version that is not known counts as new.
    """
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})", "" if isinstance(version, Absent) else version, re.ASCII)
    old = numbers is not None and (int(numbers[1]), int(numbers[2])) < (2, 24)
    return size_bytes // ranks if op in {"all_gather", "reduce_scatter"} and not old else size_bytes


def gather(facts: Sequence[LoggedFact]) -> tuple[Comm, ...]:
    """The communicators in the order in which they were begun; last, without id, what belongs to none."""
    groups = _Groups()
    for logged in facts:
        if isinstance(logged.fact, Init):
            groups.begin(logged, logged.fact)
    for logged in facts:
        _attach(groups, logged)
    nameless = groups.nameless
    found = nameless.lanes or nameless.counts or nameless.seconds or nameless.nodes is not None
    return tuple(_comm(group) for group in (*groups.all, *([nameless] if found else [])))


def _once(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))


def _multicast(offered: Offered) -> Multicast:
    channels = offered.channels
    not_logged = Absent(Why.UNSUPPORTED, "this version of NCCL does not log it")
    return Multicast(offered.device, offered.available, not_logged if channels is None else channels)


def _calls(facts: Iterable[LoggedFact]) -> tuple[Call, ...]:
    counted = Counter(logged.fact for logged in facts if isinstance(logged.fact, Chosen))
    return tuple(Call(*chosen, count) for chosen, count in counted.items())


def _near(link: Link) -> int:
    return link.destination if link.received else link.source


def _ends(link: Link) -> tuple[int, int, str]:
    return link.source, link.destination, link.transport


def _attach(groups: _Groups, logged: LoggedFact) -> None:
    match logged.fact:
        case Link() as link:
            groups.of_link(logged, link).add(link)
        case ChannelCounts() as counts:
            (groups.of_thread(logged) or groups.nameless).counts = counts
        case Took(seconds):
            (groups.of_thread(logged) or groups.nameless).seconds.append(seconds)
        case Spans(pointer, nodes):
            mark = groups.at_pointer(logged, pointer)
            (mark.group if mark else groups.nameless).nodes = nodes
        case Joined(pointer):
            mark = groups.at_pointer(logged, pointer)
            if mark:
                mark.group.nvls.add(mark.rank)
        case _:
            pass


def _device(init: Init) -> Device:
    bus = init.bus
    address = normal_pci(f"{bus >> 20:08x}:{bus >> 12 & 0xFF:02x}:{bus >> 4 & 0xFF:02x}.{bus & 0xF:x}")
    return Device(init.cuda, _or_absent(init.nvml), address)


def _or_absent(value: int | None) -> int | Absent:
    return _NOT_LOGGED if value is None else value


def _comm(group: _Group) -> Comm:
    counts = group.counts
    return Comm(
        group.id,
        _or_absent(group.ranks),
        {rank: group.members[rank].device for rank in sorted(group.members)},
        tuple(sorted(group.finished)),
        max(group.seconds, default=_NOT_LOGGED),
        _or_absent(group.nodes),
        _channels(counts) if counts else _NOT_LOGGED,
        tuple(_connections(group)),
        tuple(sorted(group.nvls)),
    )


def _channels(counts: ChannelCounts) -> Channels:
    rest = counts.p2p, counts.p2p_per_peer
    return Channels(counts.coll, _or_absent(counts.collnet), _or_absent(counts.nvls), *rest)


def _connections(group: _Group) -> Iterable[Connection]:
    """The connections with their channels; both ends of one over the network log the same channel."""
    for ends, lanes in sorted(group.lanes.items()):
        yield Connection(*ends, len({lane[:2] for lane in lanes}))
