"""Finds a job's wires in NCCL's own log: the hot collective's wire in one line, then the evidence."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from wirewatch.core import words
from wirewatch.core.account import Account, Multicast
from wirewatch.core.probe import ALLTOALL
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, value_or
from wirewatch.core.words import count, either
from wirewatch.nccl.comms import LoggedComm
from wirewatch.nccl.lines import (
    Called,
    Chosen,
    Network,
    Nic,
    Remark,
    SearchedPaths,
    Setting,
    version_numbers,
)
from wirewatch.nccl.log import NcclLog, Seen, TransportWire, logged_size, wire
from wirewatch.nccl.messages import Process
from wirewatch.nccl.parallel import ParallelGroup, group_names
from wirewatch.nccl.settings import is_shown, slowing_settings
from wirewatch_lab.advice.settings.plugins import plugins
from wirewatch_lab.study import logsummary, rings
from wirewatch_lab.study.logsummary import Quote
from wirewatch_lab.study.topologyxml import NcclTopology

EXAMPLES, FALLBACKS = 4, 16
"""Pairs of ranks named as examples: of a healthy wire, and of a fallback."""
_WAYS = 3
MOST_CALLS = 64
"""Most kinds of calls, and ways between nodes, in a document."""
_TYPES = (
    ("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8), ("float16", 2),
    ("float32", 4), ("float64", 8), ("bfloat16", 2), ("float8_e4m3", 1), ("float8_e5m2", 1),
)  # fmt: skip
"""Element types in NCCL's order of numbers, with their bytes."""
_PARTS = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})
"""Collectives that count a single rank's part."""
_SENDS = frozenset({"send", "recv"})
_NEAR = frozenset({"LOC", "NVL", "NVB", "C2C"})
_SLOWEST: Sequence[TransportWire] = (
    "unknown", "net_socket", "net_other", "net_ib", "shm", "net_ib_gdr", "p2p", "nvls",
)  # fmt: skip
_F = TypeVar("_F")
_PLACES = re.compile(r"/\d+(?:\(\d+\)|\[[0-9a-f]+\])?|/Shared")
_MULTICAST = "NVLS (multicast in the NVSwitch)"
_EITHER = "P2P (NVLink or PCIe: not in the log)"
_MULTICAST_KERNEL = re.compile(r"MC(?![a-z])")


_ELSEWHERE = "the topology file is of another machine, and is not used: its GPUs have other addresses"


def read_log(
    lines: Iterable[str],
    placement: Callable[[], Mapping[int, str]] = dict,
    topology: NcclTopology | None = None,
    at: logsummary.At = "line {}".format,
    buses: Callable[[], Mapping[str, AbstractSet[str]]] = dict,
) -> logsummary.LogSummary:
    """Return the summary of a log, line after line, with or without line ends; `messages` is 0 without any.

    `placement`: the host of each rank from other texts, asked for after the last line. `topology`: NCCL's
    topology file of a host. `at`: writes the number of a line. `buses`: PCI addresses of each host's GPUs
    without the function, by other texts.
    """
    log = NcclLog().read(lines)
    aside = topology is not None and _is_elsewhere(topology, log.comms(), buses())
    nics = rings.NicTable(log, None if aside else topology)
    return _LogQuestions(log, placement(), nics, at).summary(_ELSEWHERE if aside else "")


def _is_elsewhere(
    topology: NcclTopology, comms: Sequence[LoggedComm], buses: Mapping[str, AbstractSet[str]]
) -> bool:
    """Return whether a topology file belongs to no host of the run: none has all GPUs at its addresses."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for host, addresses in buses.items():
        found[host] |= addresses
    for logged in comms:
        for rank, (host, _) in logged.processes.items():
            device = logged.comm.devices.get(rank)
            found[host] |= {device.bus.rpartition(".")[0]} if device and device.bus else set()
    there = {gpu.place.address.rpartition(".")[0] for gpu in topology.gpus}
    known = [addresses for addresses in found.values() if addresses]
    return bool(there and known) and not any(addresses <= there for addresses in known)


@dataclass(slots=True)
class _Chosen:
    """A choice for one size, with the communicators that the line may concern."""

    op: str
    size_bytes: int
    chosen: Chosen
    seen: Seen
    comms: Sequence[LoggedComm]

    @property
    def bytes(self) -> int:
        return self.size_bytes * self.seen.count


class _Call(NamedTuple):
    """Calls of one kind (COLL), and their communicator."""

    said: logsummary.CalledCollective
    comm: LoggedComm | None


def _called(log: NcclLog, comms: Sequence[LoggedComm]) -> list[_Call]:
    """Return the calls, most bytes first; the rank with the most calls counts."""
    owners = grouped((where, number) for number, logged in enumerate(comms) for where in logged.pointers)
    found: dict[tuple[int, Called], Counter[tuple[Process, str]]] = defaultdict(Counter)
    lines: dict[tuple[int, Called], int] = {}
    for call, process, seen in log.said(Called):
        own = [one for one in owners.get((process, call.pointer), ()) if comms[one].comm.ranks == call.ranks]
        key = own[-1] if own else -1, call._replace(pointer="")
        found[key][process, call.pointer] += seen.count
        lines[key] = min(lines.get(key, seen.line), seen.line)
    named = group_names(list(_groups(found, comms)))
    made = []
    for key, times in found.items():
        comm, call = comms[key[0]] if key[0] >= 0 else None, key[1]
        made.append(_Call(logsummary.CalledCollective(
            call.op, _bytes(call), _TYPES[call.datatype][0], comm.comm.id if comm else "", call.ranks,
            max(times.values()), len(times), lines[key], named.get(key[0], ""),
        ), comm))  # fmt: skip
    return sorted(made, key=lambda one: -one.said.size_bytes * one.said.calls)


def _bytes(call: Called) -> int:
    return call.elements * _TYPES[call.datatype][1] * (call.ranks if call.op in _PARTS else 1)


def _groups(
    calls: Mapping[tuple[int, Called], Counter[tuple[Process, str]]], comms: Sequence[LoggedComm]
) -> Iterator[ParallelGroup]:
    """Yield communicators with calls in the log, by number; process and GPU identify a rank."""
    for number, ours in grouped((key[0], (key[1], times)) for key, times in calls.items()).items():
        if number < 0:  # Calls of a communicator that the log does not name.
            continue
        logged, made, sends = comms[number], Counter[tuple[Process, str]](), Counter[tuple[Process, str]]()
        sizes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for call, times in ours:
            (sends if call.op in _SENDS else made).update(times)
            if call.op not in _SENDS:
                sizes[call.op].append((_bytes(call), times.total()))
        means = [sum(a * n for a, n in some) / sum(n for _, n in some) for some in sizes.values()]
        devices = logged.comm.devices
        processes = frozenset(
            (one, devices[rank].bus if rank in devices else "") for rank, one in logged.processes.items()
        )
        nodes = value_or(logged.comm.nodes, len(rings.hosts_of([logged])))
        if len(processes) == len(logged.processes):
            yield ParallelGroup(
                number, processes, value_or(logged.comm.ranks, 0), nodes, max(made.values(), default=0),
                tuple(sends[rank] for rank in made | sends), ALLTOALL in sizes, max(means, default=0.0),
            )  # fmt: skip


class _LogQuestions:
    """Questions to a log."""

    def __init__(
        self, log: NcclLog, placement: Mapping[int, str], nics: rings.NicTable, at: logsummary.At
    ) -> None:
        self.log = log
        self._at = at
        self._nics = logsummary.LoggedNics(*nics.node())
        self.account: Account = log.account()
        self.comms = log.comms()
        self._graphs = _by_process(log.said(SearchedPaths))
        self._offers = _by_process(log.said(Multicast))
        self._peers = {id(logged): self._peer_wire(logged) for logged in self.comms}
        self._members: defaultdict[Process, list[LoggedComm]] = defaultdict(list)
        self._firsts: defaultdict[Process, list[LoggedComm]] = defaultdict(list)
        for logged in self.comms:
            for process in set(logged.processes.values()):
                self._members[process].append(logged)
            if 0 in logged.processes:
                self._firsts[logged.processes[0]].append(logged)
        self.calls = list(_called(self.log, self.comms))
        sized = partial(logged_size, version=self.account.version)
        self._callers = grouped(
            ((one.op, sized(one.op, one.size_bytes, max(one.ranks, 1))), comm)
            for one, comm in self.calls
            if comm
        )
        others = {len(placement): placement} if placement else {}
        self._called_as = {id(comm): said.group for said, comm in self.calls if comm}
        found = (
            rings.audit(
                one, nics, others.get(value_or(one.comm.ranks, 0), {}), self._called_as.get(id(one), "")
            )
            for one in self.comms
        )
        self.rings = sorted(filter(None, found), key=lambda one: -(one.ranks or 0))[:MOST_CALLS]
        self.choices = [self._choice(chosen, process, seen) for chosen, process, seen in log.said(Chosen)]

    def summary(self, set_aside: str = "") -> logsummary.LogSummary:
        hot = self._hot()
        log, features = self.log, logsummary.LogFeatures(self.log, self.comms)
        used = [(f"used: {said.name}", seen) for said, _, seen in log.said(Network)]
        warnings = sorted(log.kinds.values(), key=lambda kind: -kind[1].count)
        return logsummary.LogSummary(
            answer=self._answer(hot), part=self._part(), hot=hot,
            communicators=[self._communicator(logged) for logged in self.comms],
            choices=_ranges(self.choices), calls=[one.said for one in self.calls[:MOST_CALLS]],
            rings=self.rings, nics=self._nics, gpudirect=features.gpudirect(), nvls=features.nvls(),
            network=logsummary.quotes_of([*used, *self._about("network", "collnet", "p2p")]),
            settings=self._settings(),
            versions=[Quote(seen.line, f"NCCL {name}", seen.count) for name, seen in log.versions.items()]
            + logsummary.quotes_of(self._about("driver")),
            warnings=[Quote(seen.line, text, seen.count) for text, seen in warnings[: 4 * logsummary.QUOTES]],
            warning_kinds=len(warnings), not_understood=log.not_understood,
            not_understood_lines=[Quote(line, text) for line, text in log.torn],
            missing=list(self._missing()), left_out=dict(log.left_out), line_count=log.lines,
            foreign=log.foreign, messages=log.count, other=log.other, set_aside=set_aside,
        )  # fmt: skip

    def _about(self, *about: str) -> Iterator[tuple[str, Seen]]:
        return ((said.text, seen) for said, _, seen in self.log.said(Remark) if said.about in about)

    def _choice(self, chosen: Chosen, process: Process, seen: Seen) -> _Chosen:
        """Return a choice with the communicators whose rank 0, which logs choices, is in that process."""
        comms = self._firsts.get(process) or self._members.get(process) or self.comms
        called = self._callers.get((chosen.op, chosen.size_bytes), ())
        own = [comm for comm in called if any(comm is one for one in comms)]
        comms = own if len(own) == 1 else comms
        ranks = {logged.comm.ranks for logged in comms if not isinstance(logged.comm.ranks, Absent)}
        one = ranks.pop() if len(ranks) == 1 else 1
        # Sizes of one rank's part become those of the whole message.
        parts = one // max(logged_size(chosen.op, one, one, self.account.version), 1)
        return _Chosen(chosen.op, chosen.size_bytes * parts, chosen, seen, comms)

    def _hot(self) -> logsummary.HotCollective | None:
        counted = grouped(((choice.op, choice.size_bytes), choice) for choice in self.choices)
        if not counted:
            return None
        hot = max(counted.values(), key=lambda same: sum(one.bytes for one in same))
        most = max(hot, key=lambda one: one.seen.count)
        total = sum(one.bytes for one in self.choices)
        chosen = most.chosen
        return logsummary.HotCollective(
            op=chosen.op, size_bytes=most.size_bytes, algorithm=chosen.algorithm, protocol=chosen.protocol,
            channels=chosen.channels[1] - chosen.channels[0] + 1 if chosen.channels else None,
            calls=sum(one.seen.count for one in hot),
            share=sum(one.bytes for one in hot) / total if total else 1.0,
            wires=self._carried_by(chosen, most.comms), carried=self._carried(chosen, most.comms),
            communicators=len(most.comms), line=most.seen.line,
        )  # fmt: skip

    def _carried(self, chosen: Chosen, comms: Sequence[LoggedComm]) -> list[logsummary.CarriedBy]:
        """Group by wires; a communicator without connections has run nothing, if others have some."""
        found = grouped((tuple(self._carried_by(chosen, [logged])), logged) for logged in comms)
        if len(found) > 1:
            found.pop((), None)
        carried = []
        for wires, ours in found.items():
            most = max((value_or(logged.comm.ranks, 0) for logged in ours), default=0)
            ids = [logged.comm.id for logged in ours if logged.comm.id]
            carried.append(logsummary.CarriedBy(list(wires), ids[:EXAMPLES], most or None))
        return sorted(carried, key=lambda one: -(one.ranks or 0))

    def _carried_by(self, chosen: Chosen, comms: Sequence[LoggedComm]) -> list[str]:
        """Return a choice's wires, the slowest first: connections, unless the switch's multicast works."""
        found = self._wires(comms)
        if chosen.algorithm in {"nvls", "nvls_tree"}:
            found = {name: kind for name, kind in found.items() if kind in rings.NETWORKS}
            found[_MULTICAST] = "nvls"
        if chosen.algorithm.startswith("collnet"):
            found["reductions in the network (CollNet)"] = "net_other"
        if _MULTICAST_KERNEL.search(chosen.protocol):
            found = {_MULTICAST: "nvls"}
        return sorted(found, key=lambda name: _SLOWEST.index(found[name]))

    def _named(self, comms: Sequence[LoggedComm]) -> str:
        """Return the wires of all connections, the slowest first."""
        wires = self._wires(comms)
        names = sorted(wires, key=lambda name: _SLOWEST.index(wires[name]))
        return either(names, "and") if names else ""

    def _wires(self, comms: Sequence[LoggedComm]) -> dict[str, TransportWire]:
        return {
            self._name(connection.transport, logged): wire(connection.transport)
            for logged in comms
            for connection in logged.comm.connections
        }

    def _name(self, transport: str, logged: LoggedComm) -> str:
        kind = wire(transport)
        direct = "with GPUDirect RDMA" if "/GDRDMA" in transport else "through host memory"
        network = transport.partition("/")[2].partition("/")[0]
        return {
            "p2p": "P2P over NVLink between trays" if "/MNNVL" in transport else self._peers[id(logged)][0],
            "shm": "host memory",
            "net_socket": "TCP sockets",
            "net_ib": "InfiniBand or RoCE without GPUDirect RDMA",
            "net_ib_gdr": "InfiniBand or RoCE with GPUDirect RDMA",
            "net_other": f"the network {network} {direct}",
            "nvls": "NVLS",
        }.get(kind, f"a transport that is not known, {transport}")

    def _peer_wire(self, logged: LoggedComm) -> tuple[str, Quote | None]:
        """Return NVLink or PCIe, by NCCL's search for rings, or by the GPUs' multicast."""
        ours = set(logged.processes.values()) if logged.comm.id else set(self._graphs)
        graphs = [found for process in ours for found in self._graphs.get(process, ())]
        types = {graph.intra for graph, _ in graphs}
        if types:
            line = min(seen.line for _, seen in graphs)
            text = f"NCCL's search for rings and trees: farthest path {'/'.join(sorted(types))}"
            quote = Quote(line, text, len(graphs))
            near = "NVLink" if types & _NEAR else ""
            far = f"PCIe (farthest path {'/'.join(sorted(types - _NEAR))})" if types - _NEAR else ""
            return f"P2P over {' and '.join(filter(None, (near, far)))}", quote
        offers = [found for process in ours for found in self._offers.get(process, ())]
        if offers and all(offer.available for offer, _ in offers):
            line = min(seen.line for _, seen in offers)
            text = "the GPUs offer multicast, so they have NVLink"
            return "P2P over NVLink", Quote(line, text)
        return _EITHER, None

    def _communicator(self, logged: LoggedComm) -> logsummary.LoggedCommunicator:
        comm, counts = logged.comm, value_or(logged.comm.channels, None)
        return logsummary.LoggedCommunicator(
            id=comm.id, group=self._called_as.get(id(logged), ""),
            ranks=value_or(comm.ranks, None), nodes=value_or(comm.nodes, None),
            logged_ranks=sorted(logged.processes), hosts=rings.hosts_of([logged]),
            finished=len(comm.finished), init_seconds=value_or(comm.init_seconds, None),
            coll_channels=counts.coll if counts else None,
            nvls_channels=value_or(counts.nvls, None) if counts else None,
            p2p_channels=counts.p2p if counts else None, nvls_ranks=list(comm.nvls),
            wires=self._used(logged), peers=self._peers[id(logged)][1], line=logged.line,
        )  # fmt: skip

    def _used(self, logged: LoggedComm) -> list[logsummary.UsedWire]:
        kinds = grouped(
            ((_PLACES.sub("", one.transport), rings.is_fallback(one, logged)), one)
            for one in logged.comm.connections
        )
        found = []
        for (transport, fallback), connections in kinds.items():
            pairs = sorted({(c.source, c.destination) for c in connections})
            channels = [c.channels for c in connections]
            line = min(logged.lines[c.source, c.destination, c.transport] for c in connections)
            name = self._name(transport, logged)
            span = min(channels), max(channels)
            kind, some = wire(transport), pairs[: FALLBACKS if fallback else EXAMPLES]
            used = logsummary.UsedWire(kind, name, transport, len(pairs), some, span, fallback, line)
            found.append(used)
        return sorted(found, key=lambda used: (_SLOWEST.index(used.wire), used.transport, used.fallback))

    def _answer(self, hot: logsummary.HotCollective | None) -> str:
        if not self.log.count:
            return "No line of NCCL's log is in this text."
        if hot is None:
            names = self._named(self.comms)
            cross = sum(one.cross_rail for one in self.rings)
            rail = f"; rails are crossed by {count(cross, 'hop')} between nodes" if cross else ""
            over = (
                f"The logged connections go over {names}{rail}."
                if names
                else "No connection is logged either."
            )
            unknown = "Which collective is hot is not known: the log has no TUNING lines."
            return self._called_most() if self.calls else f"{unknown} {over}"
        ways = {
            (one.chosen.algorithm, one.chosen.protocol)
            for one in self.choices
            if (one.op, one.size_bytes) == (hot.op, hot.size_bytes)
        }
        mostly = "mostly " if len(ways) > 1 else ""
        op = hot.op or "a collective that this version does not name"
        channels = f" in {hot.channels} channels" if hot.channels else ""
        over = _over(hot.carried)
        of = f", in one of {hot.communicators} communicators" if hot.communicators > 1 else ""
        return (
            f"The hot collective is {op} of {words.size(hot.size_bytes)} ({count(hot.calls, 'call')}, "
            f"{hot.share:.0%} of the bytes{of}): {mostly}{logsummary.way(hot.algorithm, hot.protocol)}"
            f"{channels}, {over} ({self._at(hot.line)})."
        )

    def _called_most(self) -> str:
        """Return the collective with the most bytes in all calls; COLL names its communicator."""
        said, comm = self.calls[0]
        total = sum(one.said.size_bytes * one.said.calls for one in self.calls)
        share = said.size_bytes * said.calls / total if total else 1.0
        names = self._named([comm] if comm else []) or "wires that are not in the log"
        return (
            f"The hot collective is {said.op} of {words.size(said.size_bytes)} {said.dtype} "
            f"({count(said.calls, 'call')}, {share:.0%} of the bytes) in communicator "
            f"{said.communicator or 'that the log does not name'} of {count(said.ranks, 'rank')}"
            f"{f', a {said.group} group,' if said.group else ','} on {names} ({self._at(said.line)}). "
            "Which algorithm ran it is not in the log."
        )

    def _part(self) -> str:
        """Return the ranks and hosts in the log."""
        whole = [logged for logged in self.comms if not isinstance(logged.comm.ranks, Absent)]
        hosts = rings.hosts_of(self.comms)
        on = f"{len(hosts)} hosts" if len(hosts) != 1 else f"host {hosts[0]}"
        on = on if hosts else "hosts that are not known"
        if not whole:
            known = f" Lines of connections are from {on}." if hosts else ""
            return f"The log names no communicator: which part of the job it shows is not known.{known}"
        most = max(whole, key=lambda logged: (value_or(logged.comm.ranks, 0), len(logged.processes)))
        shown, ranks = len(most.processes), value_or(most.comm.ranks, 0)
        nodes = value_or(most.comm.nodes, 0)
        on += f" (of {nodes} nodes)" if nodes > len(hosts) > 0 else ""
        if shown >= ranks:
            return f"All {ranks} ranks of the largest communicator, on {on}, wrote to this log."
        one = f"rank {next(iter(most.processes))}" if shown == 1 else f"{shown} ranks"
        return f"Of {ranks} ranks only {one}, on {on}, wrote to this log: what others use is not in it."

    def _settings(self) -> list[logsummary.FoundSetting]:
        found: dict[tuple[str, str], logsummary.FoundSetting] = {}
        every = {said.name: said.value for said, _, _ in self.log.said(Setting)}
        signed = [one for one in plugins() if one.signed(every)]
        for said, _, seen in self.log.said(Setting):
            key = said.name, said.value
            before = found.get(key)
            asked = any(one.takes(*key) for one in signed)
            slowing = () if asked else slowing_settings({said.name: said.value})
            effect = next((effect for _, _, effect in slowing), None)
            shown = effect is not None and is_shown(said.name, said.value)
            found[key] = logsummary.FoundSetting(
                *key, before.processes + 1 if before else 1, effect if shown else None,
                before.line if before else seen.line, None if shown else effect,
            )  # fmt: skip
        return list(found.values())

    def _missing(self) -> Iterator[str]:
        version = version_numbers(self.account.version)
        if not self.choices and version and version < (2, 20):
            yield f"which algorithm and protocol ran: NCCL {self.account.version} does not log it, 2.20 does"
        elif not self.choices:
            yield f"which algorithm and protocol ran (TUNING): set {logsummary.SUBSYSTEMS}"
        if any(name == _EITHER for name in self._wires(self.comms)):
            yield "whether P2P is NVLink or PCIe (GRAPH): add GRAPH to NCCL_DEBUG_SUBSYS"
        if not any(True for _ in (*self.log.said(Nic), *self._about("network"))):
            yield "which NICs there are and if they reach GPUs' memory (NET): add NET to NCCL_DEBUG_SUBSYS"
        if not self.comms:
            yield "which communicators there are (INIT): add INIT to NCCL_DEBUG_SUBSYS"


def _by_process(said: Iterable[tuple[_F, Process, Seen]]) -> Mapping[Process, Sequence[tuple[_F, Seen]]]:
    return grouped((process, (fact, seen)) for fact, process, seen in said)


def _over(carried: Sequence[logsummary.CarriedBy]) -> str:
    """Return a single way to run it, or the ways by communicator."""
    if len(carried) == 1 and carried[0].wires:
        return f"on {either(carried[0].wires, 'and')}"
    if not any(one.wires for one in carried):
        return "on wires that are not in the log"
    each = [
        f"on {either(one.wires, 'and')} if it ran in {next(iter(one.communicators), 'none of them')} "
        f"({'its ranks are not known' if one.ranks is None else count(one.ranks, 'rank')})"
        for one in carried[:_WAYS]
    ]
    more = f" or in {len(carried) - _WAYS} other ways" if len(carried) > _WAYS else ""
    return " or ".join(each) + more


def _ranges(choices: Sequence[_Chosen]) -> list[logsummary.ChosenRange]:
    """Merge neighbouring sizes with the same choice into ranges, by collective."""
    found: list[logsummary.ChosenRange] = []
    for one in sorted(choices, key=lambda one: (one.op, one.size_bytes, one.seen.line)):
        last = found[-1] if found else None
        algorithm, protocol = one.chosen.algorithm, one.chosen.protocol
        channels = one.chosen.channels
        count = channels[1] - channels[0] + 1 if channels else None
        here = logsummary.ChosenRange(
            one.op, one.size_bytes, one.size_bytes, algorithm, protocol,
            None if count is None else (count, count), one.seen.count, one.seen.line,
        )  # fmt: skip
        found.append(here)
        if last and (last.op, last.algorithm, last.protocol) == (one.op, algorithm, protocol):
            found[-2:] = [_joined(last, here)]
    return found


def _joined(one: logsummary.ChosenRange, other: logsummary.ChosenRange) -> logsummary.ChosenRange:
    ends = [end for choice in (one, other) if choice.channels for end in choice.channels]
    return logsummary.ChosenRange(
        one.op, one.low_bytes, other.high_bytes, one.algorithm, one.protocol,
        (min(ends), max(ends)) if ends else None, one.calls + other.calls, min(one.line, other.line),
    )  # fmt: skip
