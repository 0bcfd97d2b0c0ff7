"""NCCL's log as an account: the wires that NCCL found, what it chose, its settings and its warnings.

`NCCL_DEBUG=INFO` writes the log, with the subsystems INIT, GRAPH, ENV, TUNING, NET, P2P, SHM and NVLS. It is
a file of its own (`NCCL_DEBUG_FILE`), or mixed with another program's output. A line that is cut gives
nothing; it is counted if its kind can still be seen. Forms of lines: `nccl.lines`.
"""

import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from wirewatch.core.account import Account, Call, Channels, Multicast
from wirewatch.core.types import Absent, Why
from wirewatch.nccl.comms import GroupFact, LoggedComm, LoggedFact, gather
from wirewatch.nccl.lines import (
    Chosen,
    Fact,
    Fallen,
    Init,
    Network,
    Remark,
    Setting,
    UnknownForm,
    fact,
    version_numbers,
)
from wirewatch.nccl.messages import NOWHERE, Message, Messages, Process

TransportWire = Literal["p2p", "shm", "net_socket", "net_ib", "net_ib_gdr", "net_other", "nvls", "unknown"]
_DIRECT = frozenset({"p2p", "nvls"})
_VERSION = re.compile(r"NCCL version (\d{1,4}\.\d{1,4}\.\d{1,4}[\w.]*)\+cuda\d", re.ASCII)
_NIC = re.compile(r"\[\d+\]([^\s:]+(?::\d{1,4}(?=[/\s;]|$))?)", re.ASCII)
"""An RDMA port with its number, or a network interface without its address."""
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.:]\d+)*")
_OLD_NAMES: Mapping[type, str] = {Channels: "ChannelCounts", Multicast: "Offered"}
"""Kinds of lines as `left_out` has named them from the start, where that is not the name of the type."""
_T = TypeVar("_T")
_F = TypeVar("_F", bound=Fact)
AT_MOST = 100_000
"""How many lines about communicators are kept, and how many others that differ: at most 280 MB of memory."""
WARNINGS = 10_000
"""How many warnings that differ are kept, and how many kinds of them."""
SHOWN = 5
"""How many of the lines that are not understood are kept."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """A connection that goes neither from GPU to GPU nor through a multicast."""

    source_rank: int
    destination_rank: int
    transport: str
    wire: TransportWire


@dataclass(slots=True)
class Seen:
    """The line that says it first, and how many say it."""

    line: int
    count: int = 0


class NcclLog:
    """One log as it is read; keeps only different entries, at most AT_MOST of each kind.

    `versions` and `warnings` by their text. `kinds`: warnings that differ in numbers alone, with the text of
    the first. `torn`: the first lines that were `not_understood`. `other`: messages of the many kinds that
    are not read here. `left_out`: lines over the limits, by kind.
    """

    def __init__(self) -> None:
        self.versions: dict[str, Seen] = {}
        self.warnings: dict[str, Seen] = {}
        self.kinds: dict[str, tuple[str, Seen]] = {}
        self.torn: list[tuple[int, str]] = []
        self.count = self.not_understood = self.other = 0
        self.left_out: Counter[str] = Counter()
        self._messages = Messages()
        self._facts: list[LoggedFact] = []
        self._repeats: Counter[tuple[Process, int, GroupFact]] = Counter()
        self._begun: Counter[Process] = Counter()
        self._said: dict[tuple[Process, Fact], Seen] = {}

    @property
    def lines(self) -> int:
        """Return how many lines were read."""
        return self._messages.lines

    @property
    def foreign(self) -> int:
        """Count the lines without anything of NCCL's: the lines of the program that wrote the output."""
        return self._messages.foreign

    def read(self, lines: Iterable[str]) -> "NcclLog":
        """Take lines with or without line ends; may be called again with the following lines."""
        for message in self._messages.of(self._versions(lines)):
            self.count += 1
            self._take(message)
        return self

    def said(self, kind: type[_F]) -> Iterator[tuple[_F, Process, Seen]]:
        """Facts of one kind that belong to no communicator, each once for a process, in order."""
        for (process, found), seen in self._said.items():
            if isinstance(found, kind):
                yield found, process, seen

    def comms(self) -> tuple[LoggedComm, ...]:
        """The communicators in the order in which they were begun; last, without id, what belongs to none."""
        return gather(self._facts)

    def account(self) -> Account:
        """All that is understood; empty where nothing is."""
        return Account(
            next(iter(self.versions), Absent(Why.MISSING, "NCCL's log does not say its version")),
            tuple(logged.comm for logged in self.comms()),
            self._calls(),
            _once((said.name, said.value) for said, _, _ in self.said(Setting)),
            _once(said for said, _, _ in self.said(Multicast)),
            tuple(self.warnings),
            self.not_understood,
            ",".join(_once(said.name for said, _, _ in self.said(Network))),
            _once(
                name
                for said, _, _ in self.said(Remark)
                if said.about == "network"
                for name in _NIC.findall(said.text)
            ),
        )

    def _versions(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines themselves; the version stands also outside messages."""
        for number, line in enumerate(lines, self._messages.lines + 1):
            if "NCCL version" in line:
                for match in _VERSION.finditer(line):
                    self._note(self.versions, match[1], number, "versions")
            yield line

    def _take(self, message: Message) -> None:
        found = fact(message.text) if message.level == "INFO" else None
        if message.level in {"WARN", "ATTN"} or isinstance(found, Fallen):
            if message.text:
                self._warn(message.text, message.line)
        elif isinstance(found, UnknownForm):
            self.not_understood += 1
            if len(self.torn) < SHOWN:
                self.torn.append((message.line, found.text))
        elif isinstance(found, GroupFact):
            self._keep(LoggedFact(self.count, message.line, message.process, message.thread, found))
        elif found is not None:
            self._note(self._said, (message.process, found), message.line, _kind(found))
        else:
            self.other += 1

    def _warn(self, text: str, line: int) -> None:
        if text in self.warnings or len(self.warnings) < WARNINGS:
            self.warnings.setdefault(text, Seen(line)).count += 1
        kind = _NUMBERS.sub("#", text)
        if kind in self.kinds or len(self.kinds) < WARNINGS:
            self.kinds.setdefault(kind, (text, Seen(line)))[1].count += 1
        else:
            self.left_out["warnings"] += 1

    def _note(self, where: dict[_T, Seen], what: _T, line: int, kind: str) -> None:
        seen = where.get(what)
        if seen is None:
            if len(where) >= AT_MOST:
                self.left_out[kind] += 1
                return
            seen = where[what] = Seen(line)
        seen.count += 1

    def _keep(self, logged: LoggedFact) -> None:
        """Keep a line unless it repeats more often than there are communicators, each of which may say it."""
        key = (logged.process, logged.thread, logged.fact)
        times = self._repeats.get(key, 0)
        if times > self._begun[logged.process]:
            return
        if len(self._facts) >= AT_MOST:
            self.left_out[_kind(logged.fact)] += 1
            return
        self._facts.append(logged)
        self._repeats[key] = times + 1
        if isinstance(logged.fact, Init) and not (logged.fact.id and times):
            self._begun.update({logged.process, NOWHERE})

    def _calls(self) -> tuple[Call, ...]:
        counted: Counter[Chosen] = Counter()
        for chosen, _, seen in self.said(Chosen):
            counted[chosen] += seen.count
        return tuple(Call(*chosen, count) for chosen, count in counted.items())


def parse_nccl_log(text: str) -> Account:
    """Return the account of all messages in a text; an empty account for a text without any."""
    return NcclLog().read(io.StringIO(text)).account()


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
    known: Mapping[str, TransportWire]
    known = {"P2P": "p2p", "SHM": "shm", "direct shared memory": "shm", "NVLS": "nvls"}
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
    for all other collectives, the whole (src/enqueue.cc). A version that is not known counts as new. A share
    is rounded as nccl-tests does, to a multiple of 16 bytes.
    """
    numbers = version_numbers(version)
    old = numbers is not None and numbers < (2, 24)
    share = size_bytes // ranks
    return (share - share % 16 or share) if op in {"all_gather", "reduce_scatter"} and not old else size_bytes


def _kind(found: Fact) -> str:
    return _OLD_NAMES.get(type(found), type(found).__name__)


def _once(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))
