"""The summary of a log of NCCL: as values for `wirewatch parse --json`, and as lines for people."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from wirewatch.cli.templates import render
from wirewatch.core.account import Multicast
from wirewatch.core.rdma import gigabits
from wirewatch.core.types import Absent
from wirewatch.core.words import count
from wirewatch.nccl.comms import LoggedComm
from wirewatch.nccl.lines import Chosen, GdrPath, Nic, Remark, Setting, version_numbers
from wirewatch.nccl.log import NcclLog, Seen, TransportWire, wire
from wirewatch.nccl.settings import NVLS_ENABLE
from wirewatch_lab.study.rings import NETWORKS, RingAudit
from wirewatch_lab.study.summary import span

SHOWN = 8
"""Entries of a list that a person sees; the document has them all."""
FIRST = 13
"""Lines of a log's first answer; with the verdict above and the hint below they are 15."""
At = Callable[[int], str]
"""Writes the number of a line."""
PATHS: Final = (
    ((2, 27, 5), ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")),
    ((2, 27, 0), ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "P2C", "PHB", "SYS", "NET", "DIS")),
    ((2, 26, 0), ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "PHB", "SYS", "NET", "DIS")),
    ((2, 12, 0), ("LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS", "NET", "DIS")),
    ((0, 0, 0), ("LOC", "NVL", "NVB", "PIX", "PXB", "PHB", "SYS")),
)
"""Kinds of path by number, the nearest first, from a version on."""


@dataclass(frozen=True, slots=True)
class Quote:
    """A line of the log, by its number from 1, and what it says; `count` lines say the same."""

    line: int
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class UsedWire:
    """Connections of one kind between ranks: `transport` in NCCL's words, without numbers of NICs and ranks.

    `pairs`: how many ordered pairs of ranks; `examples`: the first of them. `channels`: the fewest and the
    most of a pair. `fallback`: GPUs of one node that do not reach each other directly. `name`: for people.
    """

    wire: TransportWire
    name: str
    transport: str
    pairs: int
    examples: list[tuple[int, int]]
    channels: tuple[int, int]
    fallback: bool
    line: int


@dataclass(frozen=True, slots=True)
class LoggedCommunicator:
    """One communicator as far as the log shows it; null where it does not say. `group`: TP, PP, DP or EP.

    `logged_ranks`: those whose own lines are in the log; `finished`: how many of them completed the set-up,
    the slowest in `init_seconds`. `coll_channels` and `p2p_channels`: how many there are of each.
    `peers`: what says whether P2P is NVLink or PCIe here.
    """

    id: str
    group: str
    ranks: int | None
    nodes: int | None
    logged_ranks: list[int]
    hosts: list[str]
    finished: int
    init_seconds: float | None
    coll_channels: int | None
    nvls_channels: int | None
    p2p_channels: int | None
    nvls_ranks: list[int]
    wires: list[UsedWire]
    peers: Quote | None
    line: int


@dataclass(frozen=True, slots=True)
class ChosenRange:
    """What NCCL chose for a collective in a range of sizes, both ends in bytes as nccl-tests counts them."""

    op: str
    low_bytes: int
    high_bytes: int
    algorithm: str
    protocol: str
    channels: tuple[int, int] | None
    calls: int
    line: int


@dataclass(frozen=True, slots=True)
class CarriedBy:
    """The wires of a collective, the slowest first, if it ran in one of these communicators.

    `wires` is empty where the log has none of their connections. `ranks` of the largest, null if not known.
    """

    wires: list[str]
    communicators: list[str]
    ranks: int | None


@dataclass(frozen=True, slots=True)
class HotCollective:
    """The collective and size that moved the most bytes, of all that the log has.

    `share`: its part of those bytes. `wires`: all that may carry it, the slowest first, empty if not known.
    `carried`: the same by communicator, the largest first; one entry where the log leaves no doubt.
    `communicators`: how many the line may be about.
    """

    op: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int | None
    calls: int
    share: float
    wires: list[str]
    carried: list[CarriedBy]
    communicators: int
    line: int


@dataclass(frozen=True, slots=True)
class CalledCollective:
    """What ranks called, by lines of COLL: its size as nccl-tests counts it, and its communicator.

    `communicator` is empty where the log does not have its beginning. `calls` of the rank that has the most,
    of `logged_ranks` processes whose calls are in the log. `group`: TP, PP, DP or EP, empty if not known.
    """

    op: str
    size_bytes: int
    dtype: str
    communicator: str
    ranks: int
    calls: int
    logged_ranks: int
    line: int
    group: str = ""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """What the log shows of GPUDirect RDMA or NVLS, in words, and the lines that say so."""

    state: str
    quotes: list[Quote]


@dataclass(frozen=True, slots=True)
class FoundSetting:
    """A setting with its value in so many processes; `slows`: how it lowers bandwidth, null where not.

    `may_slow`: the same of a value of which no figure shows it. What a network's plugin wants has neither.
    """

    name: str
    value: str
    processes: int
    slows: str | None
    line: int
    may_slow: str | None


@dataclass(frozen=True, slots=True)
class LoggedNics:
    """The NICs of a node: how many the host lists that lists most, and their names on all hosts.

    `rate`: bytes per second that all known ones have, null where they differ or none is known; `line` of the
    first, 0 where the topology file says it.
    """

    count: int
    rate: float | None
    line: int
    names: list[str]


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What a log of NCCL says: the answer in one line, then what it rests on.

    `part`: which part of the job the log shows. `missing`: what it cannot answer, and what to set for that.
    `warnings`: one of each kind. `left_out`: lines over the limits of memory, by kind. Of the `lines`,
    `foreign` have nothing of NCCL's; of its `messages`, `other` are of kinds that are not read here.
    `set_aside`: why the topology file beside it is not used, empty where it is or there is none.
    """

    answer: str
    part: str
    hot: HotCollective | None
    communicators: list[LoggedCommunicator]
    choices: list[ChosenRange]
    calls: list[CalledCollective]
    rings: list[RingAudit]
    nics: LoggedNics
    gpudirect: LogAnswer
    nvls: LogAnswer
    network: list[Quote]
    settings: list[FoundSetting]
    versions: list[Quote]
    warnings: list[Quote]
    warning_kinds: int
    not_understood: int
    not_understood_lines: list[Quote]
    missing: list[str]
    left_out: dict[str, int]
    line_count: int
    foreign: int
    messages: int
    other: int
    set_aside: str

    def lines(self, at: At = str) -> tuple[str, ...]:
        """Return the summary for people, with log lines in brackets as `at` writes them."""
        names = [one.name for one in self.settings]
        several = list(dict.fromkeys(name for name in names if names.count(name) > 1))
        return self._lines("nccllog.j2", at, shown=SHOWN, sizes=span, several=several)

    def first(self, at: At = str, *, beside: bool = False, told: bool = False) -> tuple[str, ...]:
        """Return the answer, ways between nodes, and objections, which come first `beside` a table.

        `told`: a loss by part already states the objections.
        """
        found = self._lines("nccllogfirst.j2", at, shown=3, beside=beside, told=told)
        more = len(found) - FIRST
        return (
            (*found[:FIRST], f"  {count(more, 'more line')}, and all else: --explain") if more > 0 else found
        )

    def _lines(self, template: str, at: At, **values: object) -> tuple[str, ...]:
        text = render("wirewatch_lab.study", template, log=self, at=at, way=way, gigabits=gigabits, **values)
        return tuple(text.rstrip("\n").split("\n"))


def way(algorithm: str, protocol: str) -> str:
    """Return algorithm and protocol by NCCL's names, such as `Ring LL128`."""
    return " ".join(filter(None, (_NAMES.get(algorithm, algorithm), _NAMES.get(protocol, protocol))))


_NAMES = {
    "ring": "Ring", "tree": "Tree", "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT",
    "collnet_direct": "CollNetDirect", "collnet_chain": "CollNetChain",
    "symmetric": "symmetric kernel", "copy_engine": "copy engine",
    "simple": "Simple", "ll": "LL", "ll128": "LL128",
}  # fmt: skip


SUBSYSTEMS = "NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING,ENV"
QUOTES = 6
_SILENT = (2, 30, 0)
_FALLEN = "Failed to bind NVLink SHARP"


class LogFeatures:
    """Answers from a log and its communicators about both features."""

    def __init__(self, log: NcclLog, comms: Sequence[LoggedComm]) -> None:
        self.log = log
        self.comms = comms

    def gpudirect(self) -> LogAnswer:
        """Return on how many connections it is in use, and why not elsewhere."""
        every = [(c, logged) for logged in self.comms for c in logged.comm.connections]
        nets = [pair for pair in every if wire(pair[0].transport) in NETWORKS]
        direct = [pair for pair in nets if "/GDRDMA" in pair[0].transport]
        if not nets:
            state = "no connection goes over a network" if every else "not known: no connection is logged"
            return LogAnswer(state, [])
        if len(direct) == len(nets):
            connection, logged = direct[0]
            ends = connection.source, connection.destination, connection.transport
            proof = Quote(logged.lines[ends], f"{ends[0]} -> {ends[1]} via {ends[2]}")
            return LogAnswer(f"in use on all {len(nets)} network connections that are logged", [proof])
        state = f"in use on {len(direct)} of {len(nets)}" if direct else f"not in use on any of {len(nets)}"
        return LogAnswer(f"{state} network connections that are logged; {self._why_not()}", self._reasons())

    def _why_not(self) -> str:
        kinds = {wire(c.transport) for logged in self.comms for c in logged.comm.connections} & NETWORKS
        if kinds == {"net_socket"}:
            return "TCP sockets have none"
        if self._reasons():
            return "why, in the log's words:"
        version = version_numbers(next(iter(self.log.versions), ""))
        if version and version >= _SILENT and any(True for _ in self.log.said(Nic)):
            return "why is not known: NCCL 2.30 and later do not log it"
        return f"why is not known: set {SUBSYSTEMS}"

    def _reasons(self) -> list[Quote]:
        version = next(iter(self.log.versions), "")
        reasons: list[tuple[str, Seen]] = []
        for path, _, seen in self.log.said(GdrPath):
            if not path.enabled:
                levels = ((number, path_name(number, version)) for number in (path.distance, path.most))
                far, most = (f"{name} ({number})" if name else str(number) for number, name in levels)
                text = f"GPU {path.gpu} to NIC {path.nic}: disabled, distance {far} is beyond {most}"
                reasons.append((text, seen))
        for nic, _, seen in self.log.said(Nic):
            if not nic.direct and nic.network != "Socket":
                text = f"NET/{nic.network}: {nic.name} cannot register GPU memory: no peermem, no DMA-BUF"
                reasons.append((text, seen))
        for said, _, seen in self.log.said(Remark):
            if said.about == "gpudirect" and "Failed" in said.text:
                reasons.append((said.text, seen))
        for name, value, line in self._values():
            if name in {"NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_DMABUF_ENABLE", "NCCL_IB_DISABLE"}:
                reasons.append((f"{name}={value}", Seen(line, 1)))
        return quotes_of(reasons)[:QUOTES]

    def _values(self) -> Iterator[tuple[str, str, int]]:
        return ((said.name, said.value, seen.line) for said, _, seen in self.log.said(Setting))

    def nvls(self) -> LogAnswer:
        """Return whether it is offered, set up, used, given up, switched off, or absent from the log."""
        called = [(chosen, seen) for chosen, _, seen in self.log.said(Chosen)]
        used = [(chosen, seen) for chosen, seen in called if chosen.algorithm.startswith("nvls")]
        offers = [(said.available, said.device, seen) for said, _, seen in self.log.said(Multicast)]
        fallen = [(text, seen) for text, seen in self.log.warnings.items() if text.startswith(_FALLEN)]
        off = [(value, line) for name, value, line in self._values() if name == NVLS_ENABLE]
        channels = [(one.comm.channels, one.channels_line) for one in self.comms]
        known = [(counts.nvls, line) for counts, line in channels if not isinstance(counts, Absent)]
        counted = [(number, line) for number, line in known if not isinstance(number, Absent)]
        calls = sum(seen.count for _, seen in used)
        quotes = [
            *((f"{one.op or 'a collective'} ran on it", Seen(seen.line, calls)) for one, seen in used[:1]),
            *((f"device {n}: multicast {'' if yes else 'not '}offered", seen) for yes, n, seen in offers),
            *((f"{NVLS_ENABLE}={value}", Seen(line, 1)) for value, line in off),
            *fallen,
            *((f"{number} channels for NVLS", Seen(line, 1)) for number, line in counted),
        ]
        unused = ", but no logged collective uses it" if called else ""
        ready = sum(len(logged.comm.nvls) for logged in self.comms)
        on = f"; set up on {count(ready, 'logged rank')}" if ready else ""
        states = (
            (bool(calls), f"used by {count(calls, 'call')}{on}"),
            (bool(fallen), "given up after it was offered"),
            (any(value == "0" for value, _ in off), f"switched off by {NVLS_ENABLE}"),
            (ready > 0, f"set up on {count(ready, 'logged rank')}{unused}"),
            (any(yes for yes, _, _ in offers), f"offered{unused or ', not set up in this log'}"),
            (bool(offers), "not offered"),
            (bool(counted) and not any(number for number, _ in counted), "not set up, and no line says why"),
        )
        state = next((state for holds, state in states if holds), "not known: no line is about it")
        return LogAnswer(state, quotes_of(quotes)[:QUOTES])


def quotes_of(said: Iterable[tuple[str, Seen]]) -> list[Quote]:
    """Return each text once, at its first line, with the number of its lines."""
    first: dict[str, Seen] = {}
    for text, seen in said:
        one = first.setdefault(text, Seen(seen.line))
        one.line, one.count = min(one.line, seen.line), one.count + seen.count
    return [Quote(seen.line, text, seen.count) for text, seen in first.items()]


def path_name(number: int, version: str | Absent) -> str:
    """Return the path kind of a number (src/graph/topo.h), empty for an unknown version."""
    found = version_numbers(version)
    if found is None:
        return ""
    names = next(names for since, names in PATHS if found >= since)
    return names[number] if number < len(names) else ""
