"""A probe over the network inside one node: its settings, the RDMA ports, and the proof in NCCL's log.

A rail is one port alone, through which NCCL sends from one GPU back to another. A card may turn that around
inside itself: the port's byte counter shows whether it did. The kernel does so with sockets inside a node.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from wirewatch.busbw.formulas import busbw
from wirewatch.busbw.network import LARGE, count_ports, expect_network, network_share
from wirewatch.core.account import Account, Connection
from wirewatch.core.hostlink import Pcie
from wirewatch.core.pci import Path
from wirewatch.core.ports import Hardware, Sysfs
from wirewatch.core.probe import ALL_REDUCE, Conditions, Plan, Probed, RdmaPort
from wirewatch.core.rdma import port_rate, port_state
from wirewatch.core.topology import GpuPart, NicPart, Topology
from wirewatch.core.tree import RDMA, physical_function, read_pci_link
from wirewatch.core.types import Absent, Subject, Why
from wirewatch.core.words import size
from wirewatch.nccl.log import TransportWire, wire
from wirewatch.nccl.settings import GDR_LEVEL, IB_HCA, NET, P2P_OFF, SHM_OFF, slowing_settings

NETWORK_ONLY = ((P2P_OFF, "1"), (SHM_OFF, "1"))
"""Settings that leave NCCL no other path than a network between two GPUs of a node."""
GDR_LEVELS = {True: "SYS", False: "LOC"}
"""Values of NCCL_NET_GDR_LEVEL: GPUDirect RDMA over any PCI path, and over none."""
DIRECT = "/GDRDMA"
"""Stands in the transport of a connection whose end reaches the GPU's memory."""
SOCKETS, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
PAIR = 2
"""GPUs that a rail joins."""
CROSSED, BUSY = 0.4, 1.25
"""Shares of a probe's bytes: a port with the first share carried the probe, above the second it carried more.

Where each rank has a port of its own, as in two network namespaces, each sends half.
"""
_NEAR = frozenset({Path.PIX.name, Path.PXB.name})
_INFINIBAND: frozenset[TransportWire] = frozenset({"net_ib", "net_ib_gdr"})
_NETWORK: frozenset[TransportWire] = _INFINIBAND | {"net_other", "net_socket"}


class Gpudirect(Enum):
    """The evidence of NCCL's log about GPUDirect RDMA."""

    PROVEN = "proven"
    PARTLY = "partly"
    REFUTED = "refuted"
    NOT_KNOWN = "not_known"


MEANS = {
    Gpudirect.PROVEN: f"all connections are NET/...{DIRECT}",
    Gpudirect.PARTLY: f"some connections over the network are {DIRECT}, others are not",
    Gpudirect.REFUTED: f"connections over the network without {DIRECT}",
    Gpudirect.NOT_KNOWN: "NCCL's log has no connection over a network",
}


def by_network(plan: Plan) -> bool:
    """Return whether a plan leaves NCCL no other path than a network."""
    return set(NETWORK_ONLY) <= set(plan.environment)


def gpudirect_asked(plan: Plan) -> bool | None:
    """Return whether a plan switches GPUDirect RDMA on or off; None where it leaves it as it is."""
    level = dict(plan.environment).get(GDR_LEVEL)
    return next((on for on, value in GDR_LEVELS.items() if value == level), None)


def gpudirect(account: Account | None) -> Gpudirect:
    """Return the evidence of a log; connections by NET/IB alone prove nothing."""
    net = [c for c in _connections(account) if c.transport.startswith("NET/")]
    direct = [c for c in net if DIRECT in c.transport]
    if not net:
        return Gpudirect.NOT_KNOWN
    if not direct:
        return Gpudirect.REFUTED
    return Gpudirect.PROVEN if len(direct) == len(net) else Gpudirect.PARTLY


def went_by_rdma(account: Account | None) -> bool:
    """Return whether a log shows that every connection went by InfiniBand or RoCE."""
    wires = _wires(account)
    return bool(wires) and wires <= _INFINIBAND


def unproven(probed: Probed) -> str:
    """Return the request that the log of a probe over the network does not show; empty for none."""
    if probed.outcome != "ok" or not by_network(probed.plan):
        return ""
    wires = _wires(probed.account)
    if not wires:
        return "NCCL's log names no connection: whether a network carried it is not known"
    if not wires <= _NETWORK:
        return f"it did not go over the network: {', '.join(_transports(probed.account))}"
    due = [expect_network(one, ALL_REDUCE, LARGE) for one in probed.conditions]
    if "net_socket" in wires and not all(isinstance(one, Absent) for one in due):
        return "NCCL took TCP sockets: the RDMA ports carried nothing"
    asked = gpudirect_asked(probed.plan)
    return "" if asked is None else _other_than_asked(probed.account, on=asked)


def with_ports(
    hardware: Hardware, topology: Topology, conditions: Sequence[Conditions]
) -> tuple[Conditions, ...]:
    """The conditions of groups of GPUs, with the node's RDMA ports."""
    sysfs = hardware.sysfs
    return tuple(replace(one, network=rdma_ports(sysfs, topology, one.group.gpus)) for one in conditions)


def rdma_ports(sysfs: Sysfs, topology: Topology, gpus: Sequence[GpuPart]) -> tuple[RdmaPort, ...]:
    """Return all ports with their paths from these GPUs.

    A virtual function is left out where its card, which has the wire, is listed too. In a pod it may be
    alone.
    """
    paths = {(path.uuid, path.device): path.path for path in topology.paths}
    listed = {nic.place.address for nic in topology.nics if nic.place.address}
    found = []
    for nic in topology.nics:
        if physical_function(sysfs, nic.place.address) in listed:
            continue
        ways = tuple(paths.get((gpu.uuid, nic.device), "") for gpu in gpus)
        pcie = _pcie(sysfs, nic)
        found += [_port(sysfs, nic, port, layer, pcie, ways) for port, layer in nic.ports]
    return tuple(found)


def _port(
    sysfs: Sysfs, nic: NicPart, port: str, layer: str, pcie: Pcie | Absent, paths: tuple[str, ...]
) -> RdmaPort:
    at = f"{RDMA}/{nic.device}/ports/{port}"
    state, rate = port_state(sysfs.read(f"{at}/state")), port_rate(sysfs.read(f"{at}/rate"))
    return RdmaPort(
        device=nic.device, port=port, card=nic.place.address.rpartition(".")[0],
        state="" if isinstance(state, Absent) else state, layer=layer,
        rate=rate if isinstance(rate, Absent) else rate.bytes_per_second, pcie=pcie, paths=paths,
    )  # fmt: skip


def _pcie(sysfs: Sysfs, nic: NicPart) -> Pcie | Absent:
    """Return the full training of card and slot; where they do not say it, the present training."""
    if not nic.place.address:
        return Absent(Why.UNSUPPORTED, "its PCI address is not known")
    link = read_pci_link(sysfs, nic.place.address)
    generation = link.generation if isinstance(link.generation_max, Absent) else link.generation_max
    lanes = link.width if isinstance(link.width_max, Absent) else link.width_max
    if isinstance(generation, Absent):
        return generation
    return lanes if isinstance(lanes, Absent) else Pcie(generation, lanes)


def _other_than_asked(account: Account | None, *, on: bool) -> str:
    """Return how a log differs from GPUDirect on or off, in words; sockets prove neither."""
    if not went_by_rdma(account):
        return f"GPUDirect RDMA takes an RDMA port, and this went over {', '.join(_transports(account))}"
    found = gpudirect(account)
    if found is (Gpudirect.PROVEN if on else Gpudirect.REFUTED):
        return ""
    return f"GPUDirect {'on' if on else 'off'} is not what NCCL's log shows: {MEANS[found]}"


def _connections(account: Account | None) -> list[Connection]:
    return [one for comm in (account.comms if account else ()) for one in comm.connections]


def _wires(account: Account | None) -> set[TransportWire]:
    nvls: set[TransportWire] = {"nvls"} if account and any(comm.nvls for comm in account.comms) else set()
    return {wire(one.transport) for one in _connections(account)} | nvls


def _transports(account: Account | None) -> list[str]:
    found = dict.fromkeys(one.transport for one in _connections(account))
    return [*found, *(["NVLS"] if "nvls" in _wires(account) else [])]


@dataclass(frozen=True, slots=True)
class Rails:
    """RDMA ports (`mlx5_0:1`) and network interfaces to probe, and the others with the reason for each."""

    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()


class RailJob(NamedTuple):
    """A probe of a rail, with GPUDirect RDMA or without it; None over sockets."""

    rail: str
    direct: bool | None

    @property
    def subject(self) -> Subject:
        """The part that its findings are about, named like the findings of the port itself."""
        device, _, port = self.rail.partition(":")
        return Subject(device=device, port=port)


@dataclass(frozen=True, slots=True)
class RailResult:
    """The measurement of a rail: bytes per second each way through the port; `best` of the fastest run.

    `job.direct`: GPUDirect by NCCL's log. `crossed`: whether the port's counter shows the bytes, None where
    it has none. `due`: the slower of port and slots, where only PCIe switches lie between and GPUDirect is
    proven. `between` names the GPUs. `like`: comparable rails have the same value; `past`: comparable earlier
    results have the same value.
    """

    job: RailJob
    rate: float
    best: float
    wrong: int
    crossed: bool | None
    due: float | None
    between: str
    like: tuple[object, ...]
    past: tuple[object, ...]


class Unmeasured(NamedTuple):
    """Why a probe shows nothing of its rail; `ill`: the port, or the path to it, may be at fault."""

    why: str
    ill: bool = True


def is_rdma(rail: str) -> bool:
    """Return whether it is an RDMA port and not a network interface."""
    return ":" in rail


def rail_settings(rail: str) -> tuple[tuple[str, str], ...]:
    """Return settings that leave NCCL, or gloo, this rail alone."""
    if is_rdma(rail):
        return ((IB_HCA, f"={rail}"),)
    return ((NET, "Socket"), (SOCKETS, f"={rail}"), (GLOO, rail)) if rail else ()


def rail_of(plan: Plan) -> str:
    """Return the rail to which a plan keeps NCCL; empty for a plan without a rail."""
    settings = dict(plan.environment)
    named = settings.get(IB_HCA) or settings.get(SOCKETS, "")
    return named.removeprefix("=") if by_network(plan) else ""


def rdma_rails(conditions: Conditions) -> Rails:
    """The ports that NCCL takes for these GPUs by its defaults and the site's settings."""
    share = network_share(conditions)
    if isinstance(share, Absent):
        return Rails((), (share.detail,))
    counted, left_out = count_ports(conditions)
    return Rails(tuple(map(_name, counted)), left_out)


def nearest(conditions: Conditions, rail: str) -> tuple[str, ...]:
    """Return UUIDs of the two GPUs nearest to a port; any two for an unknown path, none without the port."""
    port = _rail_port(conditions, rail)
    order = [Path[path] if path else len(Path) for path in (port.paths if port else ())]
    places = sorted(range(len(order)), key=order.__getitem__)[:PAIR]
    return tuple(conditions.group.gpus[place].uuid for place in places)


def examine(probed: Probed) -> RailResult | Unmeasured:
    """Return the measurement of a probe's rail, or why there is none."""
    rail, asked = rail_of(probed.plan), gpudirect_asked(probed.plan)
    if probed.outcome != "ok":
        warned = probed.account.warnings[-1:] if probed.account else ()
        return Unmeasured(": ".join((probed.outcome, probed.why, *warned)))
    if not rail or not probed.shown.collectives:
        return Unmeasured("what ran is no probe of this NIC")
    sent, due = (probed.ports or {}).get(rail), _sent(probed)
    crossed = None if sent is None else sent >= CROSSED * due
    why = beside = _against(probed, rail, crossed=crossed)
    if (sent or 0) > BUSY * due:
        beside = f"it carried {size(sent or 0)} beside {size(round(due))}: others use it"
    elif not crossed and not is_rdma(rail):
        beside = "the kernel turned its sockets around: no NIC carried it"
    if why or beside:
        return Unmeasured(why or beside, ill=bool(why))
    found = gpudirect(probed.account) if is_rdma(rail) else None
    if found is Gpudirect.PARTLY or (found is Gpudirect.PROVEN and asked is False):
        on = "on" if asked else "off"
        return Unmeasured(f"GPUDirect {on} is not what NCCL's log shows: {MEANS[found]}")
    direct = None if found is None else found is Gpudirect.PROVEN
    return _result(probed, RailJob(rail, direct), crossed=crossed)


def _name(port: RdmaPort) -> str:
    return f"{port.device}:{port.port}"


def _rail_port(conditions: Conditions, rail: str) -> RdmaPort | None:
    listed = () if isinstance(conditions.network, Absent) else conditions.network
    return next((one for one in listed if _name(one) == rail), None)


def _against(probed: Probed, rail: str, *, crossed: bool | None) -> str:
    """Return the evidence of NCCL's log and the ports' bytes against the rail; ranks of gloo write no log."""
    wires, due, logs = _wires(probed.account), _sent(probed), probed.plan.engine != "gloo"
    nics, network = (probed.account.nics, probed.account.network) if probed.account else ((), "")
    took = f"NCCL took {', '.join(_transports(probed.account))} (network {network or 'not known'})"
    others = [one for one in nics if one != rail]
    ports = ((name, count) for name, count in (probed.ports or {}).items() if is_rdma(name) is is_rdma(rail))
    ran = [name for name, count in ports if name != rail and count >= CROSSED * due]
    checks = (
        (logs and not wires, "NCCL's log names no connection: whether a NIC carried it is not known"),
        (logs and not wires <= (_INFINIBAND if is_rdma(rail) else {"net_socket"}), took),
        (logs and others, f"NCCL took {', '.join(others)}"),
        (logs and not nics and not crossed, "NCCL's log does not name the NIC that it takes"),
        (not crossed and ran, f"{', '.join(ran)} sent as many bytes as the probe did, and {rail} did not"),
    )  # fmt: skip
    return next((why for applies, why in checks if applies), "")


def _sent(probed: Probed) -> float:
    """Bytes that all ranks together send in all runs."""
    groups = probed.plan.groups
    return sum(2.0 * (len(groups[t.group]) - 1) * t.size_bytes * t.runs for t in probed.shown.collectives)


def _result(probed: Probed, job: RailJob, *, crossed: bool | None) -> RailResult:
    timed = max(probed.shown.collectives, key=lambda one: one.size_bytes)
    ranks = len(probed.plan.groups[timed.group])
    # Both ranks send by an RDMA port; of an interface each rank has an end, or none is crossed.
    ports = ranks if is_rdma(job.rail) else 1
    rate, best = (ports * busbw(timed.op, ranks, timed.size_bytes, at) for at in (timed.seconds, timed.low))
    conditions = next(iter(probed.conditions), None)
    port = None if conditions is None else _rail_port(conditions, job.rail)
    paths, of_port = ((), ()) if port is None else (port.paths, (port.layer, port.rate, *sorted(port.paths)))
    slowing = tuple(f"{name}={value}" for name, value, _ in slowing_settings(probed.settings))
    version = probed.shown.versions.get("nccl", "")
    like = (probed.plan.engine, version, slowing, job.direct, crossed, *of_port)
    due = expect_network(conditions, ALL_REDUCE, LARGE) if conditions else None
    sure = bool(job.direct and paths) and _NEAR.issuperset(paths)
    ends = zip(probed.gpus, paths, strict=False)
    gpus = [f"GPU {one.index} ({path or 'path not known'})" for one, path in ends]
    return RailResult(
        job, rate, best, timed.wrong, crossed,
        None if not sure or due is None or isinstance(due, Absent) else ports * due.busbw,
        " and ".join(gpus or probed.plan.gpus), like, (job.rail, *probed.plan.gpus, *like),
    )  # fmt: skip
