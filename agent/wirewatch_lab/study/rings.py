"""The way of a job's rings between nodes, hop by hop: NICs, rails and GPUDirect at both ends, and its price.

Each end of a hop is in the log of its own rank alone. Gaps in a log of only some ranks stay open. A ring
sends equally many bytes over each of its hops, and each channel has the same part of a message. So a NIC with
two of eight channels limits all eight to four times its rate.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wirewatch.busbw.expected import pcie_rate
from wirewatch.core.account import Connection
from wirewatch.core.rdma import gigabits
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, value_or
from wirewatch.nccl.comms import LoggedComm
from wirewatch.nccl.lines import Nic, NicRate, Remark
from wirewatch.nccl.log import NcclLog, wire
from wirewatch_lab.study.topologyxml import NcclTopology, XmlNic, XmlPlace

NETWORKS = frozenset({"net_socket", "net_ib", "net_ib_gdr", "net_other"})
NO_RAILS = frozenset({"Socket", "AWS Libfabric", "Libfabric"})
"""Networks where any NIC reaches any other over the same switches: TCP sockets, EFA and Slingshot."""
MOST = 256
"""Most hops in a document, hops across rails first."""
Rail = Literal["same", "cross", "none", "not known"]
_NET = re.compile(
    r"NET/(?P<network>[^/]+)/(?P<nic>\d+)(?:\((?P<through>\d+)\))?(?P<direct>/GDRDMA)?", re.ASCII
)
_USING = re.compile(r"NET/([^/:]{1,64}?) ?: Using (.*?)(?:;|$)", re.ASCII)
_LISTED = re.compile(r"\[(\d{1,4})\](?:=\{([^}]*)\}|([^\s;={]+))", re.ASCII)
_PORT = re.compile(r"(?:\[\d+\] ?)?([^\s/,<{}]+)[^\s,]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HopEnd:
    """One end of a hop: its host and NIC; `line` is 0 and the NIC null where its rank did not log it.

    `name` of the NIC, empty if not logged. `through`: the rank next to the NIC that sends for this one (PXN).
    """

    host: str
    nic: int | None
    name: str
    gpudirect: bool | None
    through: int | None
    line: int


@dataclass(frozen=True, slots=True)
class NetworkHop:
    """A channel's way from a rank of one node to a rank of another.

    `ring`: whether the channel's ring goes this way, or null where the log has no order of ranks. `rail`:
    none where the network has no rails; `why` it is not known, or what it rests on.
    """

    channel: int
    source: int
    destination: int
    network: str
    ring: bool | None
    send: HopEnd
    receive: HopEnd
    rail: Rail
    why: str


@dataclass(frozen=True, slots=True)
class UsedNic:
    """A NIC that a hop uses at `line`, the channels of rings that leave and reach it; null what is not known.

    `rate` in bytes per second, by `rate_line` of the log, 0 for the topology file. `slot`: what its PCIe slot
    carries by that file, at `file_line`. `direct`, `not_direct`: ends with GPUDirect RDMA and without.
    """

    host: str
    number: int
    name: str
    rate: float | None
    sends: int
    receives: int
    line: int
    rate_line: int
    slot: float | None
    file_line: int
    direct: int
    not_direct: int

    @property
    def load(self) -> int:
        """Return the most channels of one direction."""
        return max(self.sends, self.receives)


@dataclass(frozen=True, slots=True)
class UsedSwitch:
    """The highest PCIe switch above GPUs or NICs by the topology file, at a line of that; rate each way.

    `up`, `down`: channels that pass it to the host's memory and from there, for want of GPUDirect RDMA.
    """

    host: str
    address: str
    rate: float
    up: int
    down: int
    file_line: int


@dataclass(frozen=True, slots=True)
class HostNics:
    """NICs of a host that hops use, and how many it lists; all if `whole`, else the NICs in the log."""

    host: str
    nics: list[UsedNic]
    listed: int
    whole: bool

    @property
    def rates(self) -> str:
        """Return the known rates for people; empty for none."""
        return " or ".join(map(gigabits, sorted({nic.rate for nic in self.nics if nic.rate})))

    @property
    def direct(self) -> tuple[int, int]:
        """Return the number of ends with GPUDirect RDMA, and of all ends."""
        known = sum(nic.direct for nic in self.nics)
        return known, known + sum(nic.not_direct for nic in self.nics)

    @property
    def share(self) -> float:
        """Return the share of ends with GPUDirect RDMA."""
        return self.direct[0] / max(self.direct[1], 1)

    @property
    def line(self) -> int:
        """Return the first line of an end without GPUDirect RDMA, else of an end with it."""
        off = [nic.line for nic in self.nics if nic.not_direct]
        return min(off or [nic.line for nic in self.nics])


@dataclass(frozen=True, slots=True)
class RingAudit:
    """A communicator's way between nodes. `hosts` wrote to the log; `channels`: how many rings there are.

    `group`: TP, PP, DP or EP, empty where the log does not show it. `channels_line`: 0 where no line has it.
    `one_end`: hops of which one end is in the log; `unseen`: hops of which none is, as far as orders of
    rings tell. `listed`: how many NICs each host says that it has. `bound`: busbw that a ring cannot exceed,
    null where rates, channels or rings are not in the log; `bound_by`: the NIC that sets it.
    """

    communicator: str
    group: str
    ranks: int | None
    nodes: int | None
    hosts: list[str]
    networks: list[str]
    channels: int | None
    channels_line: int
    hops: list[NetworkHop]
    hop_count: int
    cross_rail: int
    not_decided: int
    one_end: int
    unseen: int
    direct: int
    not_direct: int
    nics: list[UsedNic]
    switches: list[UsedSwitch]
    listed: dict[str, int]
    bound: float | None
    bound_by: str

    @property
    def by_host(self) -> list[HostNics]:
        """Return the NICs of each host; first hosts without GPUDirect RDMA or with the fewest used NICs."""
        every = grouped((nic.host, nic) for nic in self.nics)
        found = (
            HostNics(host, nics, self.listed.get(host, 0), self.leaves(host)) for host, nics in every.items()
        )
        return sorted(found, key=lambda one: (one.share, len(one.nics) / max(one.listed, 1), one.host))

    def leaves(self, host: str) -> bool:
        """Return whether every ring leaves a host in the log, so that all its used NICs are known."""
        return self.channels == sum(nic.sends for nic in self.nics if nic.host == host)


class NicTable:
    """Names and rates of each host's NICs by number, as its processes list them.

    `topology`: NCCL's file of one host, which stands for hosts that do not list theirs.
    """

    def __init__(self, log: NcclLog, topology: NcclTopology | None = None) -> None:
        self._file = {nic.number: nic for nic in topology.nics if nic.number is not None} if topology else {}
        self._others = {number: nic.name for number, nic in self._file.items() if nic.name}
        self.gpus = {gpu.place.address: gpu.place for gpu in topology.gpus} if topology else {}
        self._names: defaultdict[tuple[str, str], dict[int, str]] = defaultdict(dict)
        self._rates: dict[tuple[str, int | str], tuple[float, int]] = {}
        for nic, (host, _), _ in log.said(Nic):
            self._names[host, nic.network].setdefault(nic.number, nic.name)
        for remark, (host, _), _ in log.said(Remark):
            if using := _USING.match(remark.text):
                self._names[host, using[1]].update(_listed(using[2]))
        for one, (host, _), seen in log.said(NicRate):
            if not isinstance(one.number, Absent):
                self._rates[host, one.number] = one.rate, seen.line
            if one.name:
                self._rates[host, one.name] = one.rate, seen.line

    def names(self, host: str, network: str) -> Mapping[int, str]:
        """Return all NICs of a host; plugins for InfiniBand list theirs as NET/IB."""
        own = self._names.get((host, network)) or (network not in NO_RAILS and self._names.get((host, "IB")))
        return own or self._others

    def rate(self, host: str, number: int, name: str) -> tuple[float | None, int]:
        """Return bytes per second and the log's line, 0 for the topology file; None where nothing states it.

        A NIC made of several ports has the sum of their rates.
        """
        ports = [self._rates.get((host, port)) for port in name.split("+")]
        known = [port for port in ports if port]
        own = self._rates.get((host, name)) or self._rates.get((host, number))
        if own or (known and len(known) == len(ports)):
            return own or (sum(rate for rate, _ in known), known[0][1])
        place = self.place(number, name)
        return place.rate if place else None, 0

    def place(self, number: int, name: str) -> XmlNic | None:
        """Return the NIC in the topology file, None where its name for the number differs."""
        found = self._file.get(number)
        other = found and name and found.name and found.name != name.partition(":")[0]
        return None if other else found

    def node(self) -> tuple[int, float | None, int, list[str]]:
        """Return the NICs of the longest list, their common known rate, its line, and all names."""
        hosts = {host for host, _ in self._names} | {host for host, _ in self._rates}
        every = {host: dict(self.names(host, "IB") or self._any(host)) for host in hosts} or {
            "": self._others
        }
        for host, number in self._rates:
            if isinstance(number, int):
                every[host].setdefault(number, "")
        rated = [self.rate(host, *nic) for host, nics in every.items() for nic in nics.items()]
        rates = {rate for rate, _ in rated} - {None}
        line = min((line for rate, line in rated if rate), default=0)
        names = sorted({name for nics in every.values() for name in nics.values()} - {""})
        return max(map(len, every.values())), rates.pop() if len(rates) == 1 else None, line, names

    def _any(self, host: str) -> Mapping[int, str]:
        return next((names for (at, _), names in self._names.items() if at == host), {})


def audit(
    logged: LoggedComm, table: NicTable, placement: Mapping[int, str], group: str = ""
) -> RingAudit | None:
    """Return hops between nodes, None without any. `placement`: hosts that other texts name."""
    hosts = {**placement, **_places(logged)}
    order = _Order(logged)
    hops = sorted(_hops(logged, table, hosts, order), key=lambda hop: (hop.rail != "cross", hop.channel))
    if not hops:
        return None
    ends = [end for hop in hops for end in (hop.send, hop.receive)]
    # Trees are told from rings by their order, or because each channel leaves each host once.
    once = max(Counter((hop.channel, hop.send.host) for hop in hops).values()) == 1
    rings = [hop for hop in hops if hop.ring or once] if _tells(logged) else []
    nics = _used(hops, rings, table)
    bound, by = _bound(nics, order.channels)
    listed = {end.host: len(table.names(end.host, hops[0].network)) for end in ends if end.host}
    return RingAudit(
        logged.comm.id, group, value_or(logged.comm.ranks, None), value_or(logged.comm.nodes, None),
        hosts_of([logged]), sorted({hop.network for hop in hops}), order.channels, logged.channels_line,
        hops[:MOST], len(hops),
        sum(hop.rail == "cross" for hop in hops), sum(hop.rail == "not known" for hop in hops),
        sum(not (hop.send.line and hop.receive.line) for hop in hops), _unseen(logged, hops, hosts, order),
        sum(end.gpudirect is True for end in ends), sum(end.gpudirect is False for end in ends),
        nics, list(_switches(rings, table, logged)),
        {host: number for host, number in listed.items() if number}, bound, by,
    )  # fmt: skip


def _unseen(logged: LoggedComm, hops: Sequence[NetworkHop], hosts: Mapping[int, str], order: "_Order") -> int:
    """Count the steps of rings without a line that are not known to stay on one host."""
    near = {(a, b) for a, b, way in logged.lanes if not way.startswith("NET/")}
    seen = {(hop.channel, hop.source, hop.destination) for hop in hops}
    return sum(
        (a, b) not in near and (channel, a, b) not in seen and (a not in hosts or hosts[a] != hosts.get(b))
        for channel, a, b in order.whole
    )


def is_fallback(connection: Connection, logged: LoggedComm) -> bool:
    """Return whether two GPUs of a node do not reach each other directly."""
    kind = wire(connection.transport)
    if kind == "shm":
        return True
    hosts = [logged.processes.get(rank, ("", 0))[0] for rank in (connection.source, connection.destination)]
    same = logged.comm.nodes == 1 or (hosts[0] != "" and hosts[0] == hosts[1] and _tells(logged))
    return kind in NETWORKS and same


def hosts_of(comms: Iterable[LoggedComm]) -> list[str]:
    """Return the hosts whose ranks wrote to the log."""
    return sorted({host for logged in comms for host, _ in logged.processes.values() if host})


def _tells(logged: LoggedComm) -> bool:
    """Return whether hosts distinguish nodes: not where all ranks logged and hosts are fewer than nodes."""
    apart = len(logged.processes) < value_or(logged.comm.ranks, 0)
    return apart or value_or(logged.comm.nodes, 1) <= len(hosts_of([logged]))


def _listed(text: str) -> Iterator[tuple[int, str]]:
    """Yield the NICs of a list by number, as in `[0]mlx5_0:1/IB [1]eth0:10.0.0.7<0>`.

    Several ports may form one: `[0]={[0] mlx5_0:1/IB, [1] ...}`.
    """
    for number, several, one in _LISTED.findall(text):
        names = [name.partition(":")[0] if "<" in one else name for name in _PORT.findall(several or one)]
        yield int(number), "+".join(names)


def _places(logged: LoggedComm) -> dict[int, str]:
    """Return the host of each rank that logged, or that such a rank reaches without a network."""
    found = {rank: host for rank, (host, _) in logged.processes.items() if host}
    for a, b, way in logged.lanes:
        if wire(way) in {"p2p", "shm"} and not way.startswith("P2P/MNNVL"):
            for known, other in ((a, b), (b, a)):
                if known in found:
                    found.setdefault(other, found[known])
    return found


class _Order:
    """The order of ranks in each channel's ring. `whole`: all steps of the complete rings."""

    def __init__(self, logged: LoggedComm) -> None:
        self._steps: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        self._closed: set[int] = set()
        ranks, counts = value_or(logged.comm.ranks, 0), value_or(logged.comm.channels, None)
        told = {ring.channels for ring in logged.rings if not isinstance(ring.channels, Absent)}
        self.channels = max(told) if told else counts.coll if counts else None
        for ring in logged.rings:
            closed = ring.closed and len(ring.order) == ranks
            after = (*ring.order[1:], ring.order[0]) if closed else ring.order[1:]
            self._steps[ring.channel].update(zip(ring.order, after, strict=False))
            if closed or len(self._steps[ring.channel]) == ranks:
                self._closed.add(ring.channel)
        self.whole = [(channel, *step) for channel in self._closed for step in sorted(self._steps[channel])]

    def has(self, channel: int, step: tuple[int, int]) -> bool | None:
        """Return whether a ring takes this step, None where the log does not say."""
        return True if step in self._steps[channel] else False if channel in self._closed else None


def _hops(
    logged: LoggedComm, table: NicTable, hosts: Mapping[int, str], order: _Order
) -> Iterator[NetworkHop]:
    found: defaultdict[tuple[int, int, int, str], dict[bool, HopEnd]] = defaultdict(dict)
    for (source, destination, transport), lanes in logged.lanes.items():
        net = _NET.match(transport)
        if not net or is_fallback(Connection(source, destination, transport, 1), logged):
            continue
        number, through = int(net["nic"]), int(net["through"]) if net["through"] else None
        for (channel, connection, received), line in lanes.items():
            if connection:  # Sends and receives of single ranks, not a ring's.
                continue
            host = hosts.get(destination if received else source, "")
            name = table.names(host, net["network"]).get(number, "") if host else ""
            end = HopEnd(host, number, name, net["direct"] is not None, through, line)
            found[channel, source, destination, net["network"]].setdefault(received, end)
    for (channel, source, destination, network), ends in found.items():
        send, receive = (
            ends.get(received, HopEnd(hosts.get(rank, ""), None, "", None, None, 0))
            for received, rank in ((False, source), (True, destination))
        )
        rail, ring = _rail(network, send, receive, table), order.has(channel, (source, destination))
        yield NetworkHop(channel, source, destination, network, ring, send, receive, *rail)


def _rail(network: str, send: HopEnd, receive: HopEnd, table: NicTable) -> tuple[Rail, str]:
    """Return whether both NICs are on the same rail, by their names where both hosts list them alike."""
    if network in NO_RAILS:
        return "none", f"{network} has no rails"
    if not (send.line and receive.line):
        return "not known", f"the {'receiving' if send.line else 'sending'} end is not in the log"
    names, others = (set(table.names(end.host, network).values()) for end in (send, receive))
    if not (send.name and receive.name):
        alike, by = send.nic == receive.nic, "by number; the log does not name both NICs"
    elif names <= others or others <= names:  # A host that lacks a NIC numbers the others anew.
        alike, by = send.name == receive.name, "by name"
    else:
        return "not known", "the hosts list different NICs"
    return "same" if alike else "cross", by


def _used(hops: Sequence[NetworkHop], rings: Sequence[NetworkHop], table: NicTable) -> list[UsedNic]:
    """Return the NICs of hops; only hops of a ring count as load."""
    ours = set(map(id, rings))
    ends = grouped(
        ((end.host, end.nic, end.name), (received, end, id(hop) in ours))
        for hop in hops
        for received, end in ((False, hop.send), (True, hop.receive))
        if end.nic is not None
    )
    return [_nic(nic, ours, table) for nic, ours in sorted(ends.items())]


def _nic(nic: tuple[str, int, str], ends: Sequence[tuple[bool, HopEnd, bool]], table: NicTable) -> UsedNic:
    loads = Counter(received for received, _, ring in ends if ring)
    found = table.place(*nic[1:])
    place = found.place if found else None
    slot = pcie_rate(place.generation or 0, place.lanes or 0) if place else None
    off = [end.line for _, end, _ in ends if end.gpudirect is False]
    rate, rate_line = table.rate(*nic)
    return UsedNic(
        *nic, rate, loads[False], loads[True], min(off or [end.line for _, end, _ in ends]), rate_line,
        None if isinstance(slot, Absent) else slot, found.line if found else 0,
        sum(end.gpudirect is True for _, end, _ in ends), len(off),
    )  # fmt: skip


def _switches(rings: Sequence[NetworkHop], table: NicTable, logged: LoggedComm) -> Iterator[UsedSwitch]:
    """Yield switches; without GPUDirect RDMA, bytes cross them between the host's memory, GPU and NIC."""
    passed: Counter[tuple[str, XmlPlace, bool]] = Counter()
    for hop in rings:
        for received, end, rank in ((False, hop.send, hop.source), (True, hop.receive, hop.destination)):
            device = logged.comm.devices.get(rank)
            nic = table.place(end.nic, end.name) if end.nic is not None else None
            gpu = table.gpus.get(device.bus) if device else None
            if end.gpudirect is False and nic and gpu:
                passed[end.host, nic.place if received else gpu, True] += 1
                passed[end.host, gpu if received else nic.place, False] += 1
    loads: defaultdict[tuple[str, str, tuple[int, int, int]], list[int]] = defaultdict(lambda: [0, 0])
    for (host, place, rises), times in passed.items():
        if place.uplink:
            loads[host, place.bridges[0], place.uplink][not rises] += times
    for (host, address, (generation, lanes, line)), (up, down) in loads.items():
        rate = pcie_rate(generation, lanes)
        if not isinstance(rate, Absent):
            yield UsedSwitch(host, address, rate, up, down, line)


def _bound(nics: Sequence[UsedNic], channels: int | None) -> tuple[float | None, str]:
    """Return the busbw that no ring can exceed: the least of each NIC's rate by its part of the channels."""
    rated = [(nic.rate / nic.load, nic) for nic in nics if nic.host and nic.rate and nic.load]
    if not rated or channels is None:
        return None, ""
    least, nic = min(rated, key=lambda one: one[0])
    way, name = "leave" if nic.sends == nic.load else "reach", f" ({nic.name})" if nic.name else ""
    return least * channels, f"{nic.load} of {channels} channels {way} {nic.host} by NIC {nic.number}{name}"
