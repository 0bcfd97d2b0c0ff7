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
    reason: str
    probation: bool = False


_ACCEPT = "accept it if it was intended: wirewatch topology accept"
_REPAIR = "see its own collector's finding, then check power, seating and cables; reset or replace the part"
_LOOK = "ask who worked on the node; put it back, or accept it if it was intended: wirewatch topology accept"
SEVERITY: Mapping[ChangeKind, ChangeSeverity] = {
    ChangeKind.GPU_LOST: ChangeSeverity(Health.FAILED, _REPAIR, "a job that asks for all GPUs cannot start"),
    ChangeKind.GPU_NEW: ChangeSeverity(Health.OK, _ACCEPT, "nothing that was there is missing"),
    ChangeKind.GPU_REPLACED: ChangeSeverity(
        Health.OK, _ACCEPT, "a repair, not a fault; the new one has yet to show what it can", probation=True
    ),
    ChangeKind.GPU_PRODUCT: ChangeSeverity(
        Health.OK, _ACCEPT, "the same GPU by another name: driver or firmware call it so"
    ),
    ChangeKind.NVLINK_LOST: ChangeSeverity(
        Health.FAILED, _REPAIR, "every collective waits for the GPU with the fewest links"
    ),
    ChangeKind.NVLINK_NEW: ChangeSeverity(Health.OK, _ACCEPT, "more than was accepted"),
    ChangeKind.NVLINK_PEER: ChangeSeverity(
        Health.DEGRADED, _LOOK, "no link is lost, but NCCL's rings are no longer those that were measured"
    ),
    ChangeKind.ISLAND: ChangeSeverity(
        Health.FAILED, _REPAIR, "all links between its pieces are lost, and PCIe is several times slower"
    ),
    ChangeKind.CLIQUE: ChangeSeverity(
        Health.DEGRADED,
        "look at the fabric manager and IMEX, or accept it if it was intended: wirewatch topology accept",
        "jobs over several nodes reach other GPUs than those that were measured",
    ),
    ChangeKind.NIC_LOST: ChangeSeverity(
        Health.FAILED, _REPAIR, "its GPUs reach other nodes through another GPU's NIC, or not at all"
    ),
    ChangeKind.NIC_NEW: ChangeSeverity(Health.OK, _ACCEPT, "nothing that was there is missing"),
    ChangeKind.NIC_REPLACED: ChangeSeverity(
        Health.OK, _ACCEPT, "a repair, not a fault; the new one has yet to show what it can", probation=True
    ),
    ChangeKind.NIC_MODEL: ChangeSeverity(
        Health.OK, _ACCEPT, "the same NIC by another name: its firmware calls it so"
    ),
    ChangeKind.NIC_FIRMWARE: ChangeSeverity(Health.OK, _ACCEPT, "a deliberate change, not a fault by itself"),
    ChangeKind.NIC_PORTS: ChangeSeverity(
        Health.FAILED,
        "set LINK_TYPE back (mlxconfig), or accept it if it was intended: wirewatch topology accept",
        "a port that is gone or uses another protocol no longer carries its traffic",
    ),
    ChangeKind.PCIE_PATH: ChangeSeverity(
        Health.DEGRADED, _LOOK, "it still carries everything, but more slowly and through the CPU"
    ),
    ChangeKind.PCIE_PLACE: ChangeSeverity(
        Health.DEGRADED, _LOOK, "other parts share its way to the host now, or its CPU is another"
    ),
    ChangeKind.NUMA: ChangeSeverity(
        Health.DEGRADED,
        "set sub-NUMA clustering (NPS, SNC) back in the firmware, or accept it: wirewatch topology accept",
        "processes are pinned to other CPUs and memory than those that were measured",
    ),
    ChangeKind.VERSION: ChangeSeverity(Health.OK, _ACCEPT, "a deliberate change, not a fault by itself"),
}
IMPROVEMENT = ChangeSeverity(Health.OK, _ACCEPT, "nothing is less than it was")
ALERT = "TopologyDrift"
RULES = (
    *(
        Rule(f"topology.{kind.value}", (one.health,), ALERT)
        for kind, one in SEVERITY.items()
        if one.health is not Health.OK
    ),
    # A part that was replaced is watched for a while, as if it had been repaired.
    *(
        Rule(f"topology.{kind.value}", DEGRADED, ALERT)
        for kind, one in SEVERITY.items()
        if one.health is Health.OK and one.probation
    ),
    Rule("topology.shape", (Health.DEGRADED, Health.UNKNOWN, Health.FAILED), ALERT),
    Rule("topology.baseline", UNKNOWN),
)


def severity(change: TopologyChange) -> ChangeSeverity:
    """That of its kind, or `IMPROVEMENT` for a change that takes nothing away."""
    found = SEVERITY[change.kind]
    return found if change.worse or found.health is Health.OK else IMPROVEMENT
