"""A probe over the network inside one node: its settings, the RDMA ports, and what NCCL's log proves."""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from wirewatch.busbw.network import LARGE, expect_network
from wirewatch.core.account import Account, Connection
from wirewatch.core.hostlink import Pcie
from wirewatch.core.ports import Hardware, Sysfs
from wirewatch.core.probe import ALL_REDUCE, Conditions, Plan, Probed, RdmaPort
from wirewatch.core.rdma import port_rate, port_state
from wirewatch.core.topology import GpuPart, NicPart, Topology
from wirewatch.core.tree import RDMA, physical_function, read_pci_link
from wirewatch.core.types import Absent, Why
from wirewatch.nccl.log import TransportWire, wire
from wirewatch.nccl.settings import GDR_LEVEL, P2P_OFF, SHM_OFF

NETWORK_ONLY = ((P2P_OFF, "1"), (SHM_OFF, "1"))
"""With these NCCL has no other way between two GPUs of a node than a network."""
GDR_LEVELS = {True: "SYS", False: "LOC"}
"""Values of NCCL_NET_GDR_LEVEL: GPUDirect RDMA over any PCI path, and over none."""
DIRECT = "/GDRDMA"
"""In the transport of a connection whose end reaches the GPU's memory."""
_INFINIBAND: frozenset[TransportWire] = frozenset({"net_ib", "net_ib_gdr"})
_NETWORK: frozenset[TransportWire] = _INFINIBAND | {"net_other", "net_socket"}


class Gpudirect(Enum):
    """What NCCL's log shows of GPUDirect RDMA."""

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
    """Whether a plan leaves NCCL no other way than a network."""
    return set(NETWORK_ONLY) <= set(plan.environment)


def gpudirect_asked(plan: Plan) -> bool | None:
    """Whether a plan switches GPUDirect RDMA on or off; None where it leaves it as it is."""
    level = dict(plan.environment).get(GDR_LEVEL)
    return next((on for on, value in GDR_LEVELS.items() if value == level), None)


def gpudirect(account: Account | None) -> Gpudirect:
    """What a log proves; that connections go by NET/IB alone is no proof."""
    net = [c for c in _connections(account) if c.transport.startswith("NET/")]
    direct = [c for c in net if DIRECT in c.transport]
    if not net:
        return Gpudirect.NOT_KNOWN
    if not direct:
        return Gpudirect.REFUTED
    return Gpudirect.PROVEN if len(direct) == len(net) else Gpudirect.PARTLY


def went_by_rdma(account: Account | None) -> bool:
    """Whether a log shows that every connection went by InfiniBand or RoCE."""
    wires = _wires(account)
    return bool(wires) and wires <= _INFINIBAND


def unproven(probed: Probed) -> str:
    """What was asked of a probe over the network and its log does not show; empty where nothing was."""
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
    """All ports with their paths from these GPUs.

    A virtual function has none where its card is listed too, whose wire it is; in a pod it may be alone.
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
    """What card and slot should train to; where they do not say that, what they have trained to."""
    if not nic.place.address:
        return Absent(Why.UNSUPPORTED, "its PCI address is not known")
    link = read_pci_link(sysfs, nic.place.address)
    generation = link.generation if isinstance(link.generation_max, Absent) else link.generation_max
    lanes = link.width if isinstance(link.width_max, Absent) else link.width_max
    if isinstance(generation, Absent):
        return generation
    return lanes if isinstance(lanes, Absent) else Pcie(generation, lanes)


def _other_than_asked(account: Account | None, *, on: bool) -> str:
    """What a log shows instead of GPUDirect on or off; sockets prove neither."""
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
