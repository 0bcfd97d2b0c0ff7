"""Evidence about a node for NCCL's settings: RDMA ports, their GIDs, GPUDirect, wires, NCCL's version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from wirewatch.busbw.network import count_ports
from wirewatch.busbw.profiles import NetworkKind, NetworkProfile
from wirewatch.busbw.references import NVLS_FROM, architecture
from wirewatch.collectors.gpudirect import GpudirectCheck, read_checks
from wirewatch.core.ports import Hardware
from wirewatch.core.probe import Conditions, RdmaPort
from wirewatch.core.rdma import ACTIVE
from wirewatch.core.topology import NVLINK, WireKind
from wirewatch.core.tree import NET
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.nccl.variables import Version
from wirewatch_lab.advice.gpunic.mapping import map_nics
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.settings.gids import ROCE, Gids, read_gids
from wirewatch_lab.advice.settings.plugins import NetworkPlugin, plugin_by_kind, plugin_of

INFINIBAND, EFA = "InfiniBand", "Unspecified"
"""Link layers of ports in sysfs."""
VIRTUAL_TOPOLOGY = "/var/run/nvidia-topologyd/virtualTopology.xml"
"""The topology file that NCCL reads unless NCCL_TOPO_FILE names another."""
NOT_READ = Absent(Why.MISSING, "no machine was read")
QUESTION = "which network joins the nodes? Say it by --network, such as p5, a3-mega or 8xNDR"


@dataclass(frozen=True, slots=True)
class NcclNode:
    """A node from the view of NCCL's settings.

    `conditions`: of all its GPUs, None without a known machine. `ports`: all RDMA ports, Absent where not
    known. `gids`: of the RoCE ports, by device and port. `gpudirect`: the requirements of GPUDirect RDMA.
    `topology_file`: whether NCCL's own topology file exists. `mapped`: the ports that gpu-nic gives the GPUs,
    empty where it has no mapping. `interfaces`: of the job's network namespace. `network`: the network to
    other nodes, where named. `signed`: the plugin that a job's settings fit.
    """

    of: str = "no machine"
    conditions: Conditions | None = None
    ports: tuple[RdmaPort, ...] | Absent = NOT_READ
    gids: Mapping[tuple[str, str], Gids] = field(default_factory=dict)
    gpudirect: tuple[GpudirectCheck, ...] | Absent = NOT_READ
    topology_file: bool = False
    nccl: Version | None = None
    mapped: tuple[RdmaPort, ...] = ()
    interfaces: Sequence[str] | Absent = NOT_READ
    network: NetworkProfile | None = None
    signed: NetworkPlugin | None = None

    @property
    def question(self) -> str:
        """Return the question about the network between nodes; empty where it is known."""
        return "" if self.network or self.plugin or self.active else QUESTION

    @property
    def network_name(self) -> str | None:
        """Return the network between nodes for people; None where not known."""
        kinds = dict.fromkeys("RoCE" if one.layer == ROCE else one.layer for one in self.active)
        named = (
            self.plugin.name if self.plugin else self.network.name if self.network else " and ".join(kinds)
        )
        return named or None

    @property
    def plugin(self) -> NetworkPlugin | None:
        """Return NCCL's plugin for other nodes; None for its own transports, or where it is not known."""
        if self.network:
            return plugin_of(self.network)
        efa = any(one.layer == EFA for one in value_or(self.ports, ()))
        fits = self.signed and (self.signed.reads_ib or not self.active)
        return plugin_by_kind(NetworkKind.EFA) if efa else self.signed if fits else None

    @property
    def active(self) -> tuple[RdmaPort, ...]:
        """Return the ports that NCCL can open: active, and InfiniBand or RoCE; EFA's are neither."""
        ports = value_or(self.ports, ())
        return tuple(one for one in ports if one.state in ACTIVE and one.layer in {INFINIBAND, ROCE})

    @property
    def roce(self) -> tuple[RdmaPort, ...]:
        """Return the active ports that speak RoCE."""
        return tuple(one for one in self.active if one.layer == ROCE)

    @property
    def all_nvlink(self) -> bool:
        """Return whether NVLink joins all GPUs with each other."""
        return self.kind in NVLINK

    @property
    def kind(self) -> WireKind | None:
        """Return the wire that joins all GPUs, None where not known."""
        return self.conditions.group.kind if self.conditions else None

    @property
    def no_nvls(self) -> str:
        """Return why no switch here adds up (NVLS), empty where a switch may."""
        if self.conditions is None:
            return ""
        if self.kind not in {WireKind.SWITCH, WireKind.UNKNOWN}:
            return "no NVSwitch joins the GPUs here"
        known = {architecture(gpu.name) for gpu in self.conditions.group.gpus}
        older = sorted(one for one in known if not isinstance(one, Absent) and one not in NVLS_FROM)
        return f"NVLS takes NVSwitch of Hopper or later, and these are {', '.join(older)}" if older else ""

    def for_gpus(self) -> tuple[RdmaPort, ...]:
        """Return the ports for the GPUs: the ports mapped to them, else the ports that NCCL would take."""
        if self.mapped:
            names = {(one.device, one.port) for one in self.mapped}
            return tuple(one for one in self.active if (one.device, one.port) in names)
        if self.conditions is None or isinstance(self.ports, Absent):
            return ()
        return count_ports(replace(self.conditions, network=self.ports, settings={}))[0]


def read_node(hardware: Hardware, machine: AdvisedMachine, nccl: Version | None) -> NcclNode:
    """Return a local or recorded machine."""
    near, sysfs = machine.locality, hardware.sysfs
    known = near if isinstance(near, Absent) else near.ports
    conditions = machine.conditions[0] if machine.conditions else None
    ports = conditions.network if conditions else known
    roce = [(one.device, one.port) for one in value_or(ports, ()) if one.layer == ROCE]
    gids = {key: read_gids(sysfs, *key) for key in roce}
    there = not isinstance(sysfs.link(VIRTUAL_TOPOLOGY), Absent)
    checks, mapped, interfaces = read_checks(hardware), _mapped(machine), sysfs.entries(NET)
    return NcclNode(
        machine.of, conditions, ports, gids, checks, there, nccl, mapped, interfaces,
        network=machine.network,
    )  # fmt: skip


def described_node(machine: AdvisedMachine, nccl: Version | None) -> NcclNode:
    """Return a machine that is only described, with the ports of the description."""
    conditions = machine.conditions[0] if machine.conditions else None
    unknown = Absent(Why.MISSING, f"the RDMA ports of {machine.of} are not known")
    ports = value_or(conditions.network, ()) if conditions else ()
    return NcclNode(
        of=machine.of, conditions=conditions, ports=ports or unknown,
        gpudirect=Absent(Why.MISSING, f"{machine.of}: nothing was read"), nccl=nccl, mapped=_mapped(machine),
        network=machine.network,
    )  # fmt: skip


def _mapped(machine: AdvisedMachine) -> tuple[RdmaPort, ...]:
    found = machine.locality if isinstance(machine.locality, Absent) else map_nics(machine.locality)
    return () if isinstance(found, Absent) else found.ports()
