"""One difference between two graphs, and what kinds there are."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from wirewatch.core.collector import DEGRADED, UNKNOWN, Rule
from wirewatch.core.types import Health


class ChangeKind(Enum):
    """The value is the metric's label."""

    GPU_LOST = "gpu_lost"
    GPU_NEW = "gpu_new"
    GPU_REPLACED = "gpu_replaced"
    GPU_PRODUCT = "gpu_product"
    NVLINK_LOST = "nvlink_lost"
    NVLINK_NEW = "nvlink_new"
    NVLINK_PEER = "nvlink_peer"
    ISLAND = "island"
    CLIQUE = "clique"
    NIC_LOST = "nic_lost"
    NIC_NEW = "nic_new"
    NIC_REPLACED = "nic_replaced"
    NIC_MODEL = "nic_model"
    NIC_FIRMWARE = "nic_firmware"
    NIC_PORTS = "nic_ports"
    PCIE_PATH = "pcie_path"
    PCIE_PLACE = "pcie_place"
    NUMA = "numa"
    VERSION = "version"


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """One cause.

    `part`: key of the GPU or NIC as it is called now (as it was, if lost), name of the version, empty for
    the node. `before` and `after` are for machines and the same however the parts are numbered; `text` is for
    people. `worse`: whether the node has less than it had; False for information.
    """

    kind: ChangeKind
    part: str
    before: str
    after: str
    text: str
    worse: bool


@dataclass(frozen=True, slots=True)
class ChangeSeverity:
    """`health` OK is information. `probation`: whether the part is watched as if it had been repaired."""

    health: Health
    action: str
    probation: bool = False


_ACCEPT = "accept it if it was intended: wirewatch topology accept"
_REPAIR = "see its own collector's finding, then check power, seating and cables; reset or replace the part"
_LOOK = f"ask who worked on the node; put it back, or {_ACCEPT}"
_NODE = "set sub-NUMA clustering (NPS, SNC) back in the firmware, or accept it: wirewatch topology accept"
IMPROVEMENT = ChangeSeverity(Health.OK, _ACCEPT)
"""Nothing is less than it was."""
_LOST = ChangeSeverity(Health.FAILED, _REPAIR)
_REPLACED = ChangeSeverity(Health.OK, _ACCEPT, probation=True)
"""A repair, not a fault; the new part has yet to show how well it works."""
_MOVED = ChangeSeverity(Health.DEGRADED, _LOOK)
"""Nothing is lost, but the wires have changed since they were measured."""
SEVERITY: Mapping[ChangeKind, ChangeSeverity] = {
    **dict.fromkeys((ChangeKind.GPU_NEW, ChangeKind.NIC_NEW, ChangeKind.NVLINK_NEW), IMPROVEMENT),
    **dict.fromkeys((ChangeKind.GPU_PRODUCT, ChangeKind.NIC_MODEL), IMPROVEMENT),
    **dict.fromkeys((ChangeKind.NIC_FIRMWARE, ChangeKind.VERSION), IMPROVEMENT),
    **dict.fromkeys((ChangeKind.GPU_LOST, ChangeKind.NIC_LOST), _LOST),
    **dict.fromkeys((ChangeKind.NVLINK_LOST, ChangeKind.ISLAND), _LOST),
    **dict.fromkeys((ChangeKind.GPU_REPLACED, ChangeKind.NIC_REPLACED), _REPLACED),
    **dict.fromkeys((ChangeKind.NVLINK_PEER, ChangeKind.PCIE_PATH, ChangeKind.PCIE_PLACE), _MOVED),
    # Jobs over several nodes reach other GPUs than those that were measured.
    ChangeKind.CLIQUE: ChangeSeverity(Health.DEGRADED, f"look at the fabric manager and IMEX, or {_ACCEPT}"),
    # A port that is gone or uses another protocol no longer carries its traffic.
    ChangeKind.NIC_PORTS: ChangeSeverity(Health.FAILED, f"set LINK_TYPE back (mlxconfig), or {_ACCEPT}"),
    # Processes are pinned to other CPUs and memory than those that were measured.
    ChangeKind.NUMA: ChangeSeverity(Health.DEGRADED, _NODE),
}
"""A loss fails the node: a job for all GPUs cannot start, and each collective waits for the slowest GPU."""
ALERT = "TopologyDrift"
_KINDS = [(kind.value, SEVERITY[kind]) for kind in ChangeKind]
RULES = (
    *(Rule(f"topology.{kind}", (one.health,), ALERT) for kind, one in _KINDS if one.health is not Health.OK),
    # A part that was replaced is watched for a while, as if it had been repaired.
    *(Rule(f"topology.{kind}", DEGRADED, ALERT) for kind, one in _KINDS if one.probation),
    Rule("topology.shape", (Health.DEGRADED, Health.UNKNOWN, Health.FAILED), ALERT),
    Rule("topology.baseline", UNKNOWN),
)


def severity(change: TopologyChange) -> ChangeSeverity:
    """The severity of its kind, or `IMPROVEMENT` for a change that takes nothing away."""
    found = SEVERITY[change.kind]
    return found if change.worse or found.health is Health.OK else IMPROVEMENT
