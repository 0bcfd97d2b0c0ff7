"""How bad a kind of change is, why, and what to do, as data."""

from collections.abc import Mapping
from dataclasses import dataclass

from wirewatch.core.types import Health
from wirewatch.verdict.drift.change import Change, Kind


@dataclass(frozen=True, slots=True)
class Severity:
    """`health` OK is information. `probation`: whether the part is watched as if it had been repaired."""

    health: Health
    action: str
    reason: str
    probation: bool = False


_ACCEPT = "accept it if it was meant: wirewatch topology accept"
_REPAIR = "look at the finding of its own collector, then at power, seating and cables; reset or replace it"
_LOOK = "ask who opened the node; put it back, or accept it if it was meant: wirewatch topology accept"

SEVERITY: Mapping[Kind, Severity] = {
    Kind.GPU_LOST: Severity(Health.FAILED, _REPAIR, "a job that asks for all GPUs cannot start"),
    Kind.GPU_NEW: Severity(Health.OK, _ACCEPT, "nothing that was there is missing"),
    Kind.GPU_REPLACED: Severity(
        Health.OK, _ACCEPT, "a repair, not a fault; the new one has yet to show what it can", probation=True
    ),
    Kind.GPU_PRODUCT: Severity(
        Health.OK, _ACCEPT, "the same GPU by another name: driver or firmware call it so"
    ),
    Kind.NVLINK_LOST: Severity(
        Health.FAILED, _REPAIR, "every collective waits for the GPU with the fewest links"
    ),
    Kind.NVLINK_NEW: Severity(Health.OK, _ACCEPT, "more than was accepted"),
    Kind.NVLINK_PEER: Severity(
        Health.DEGRADED, _LOOK, "no link is lost, but the rings that were measured are not these"
    ),
    Kind.ISLAND: Severity(
        Health.FAILED, _REPAIR, "all links between its pieces are lost, and PCIe is several times slower"
    ),
    Kind.CLIQUE: Severity(
        Health.DEGRADED,
        "look at the fabric manager and IMEX, or accept it if it was meant: wirewatch topology accept",
        "jobs over several nodes reach other GPUs than those that were measured",
    ),
    Kind.NIC_LOST: Severity(
        Health.FAILED, _REPAIR, "its GPUs reach other nodes through a NIC of others, or not at all"
    ),
    Kind.NIC_NEW: Severity(Health.OK, _ACCEPT, "nothing that was there is missing"),
    Kind.NIC_REPLACED: Severity(
        Health.OK, _ACCEPT, "a repair, not a fault; the new one has yet to show what it can", probation=True
    ),
    Kind.NIC_MODEL: Severity(Health.OK, _ACCEPT, "the same NIC by another name: its firmware calls it so"),
    Kind.NIC_FIRMWARE: Severity(Health.OK, _ACCEPT, "somebody's work, and no fault by itself"),
    Kind.NIC_PORTS: Severity(
        Health.FAILED,
        "set LINK_TYPE back (mlxconfig), or accept it if it was meant: wirewatch topology accept",
        "a port that is gone or speaks another protocol carries nothing of what it carried",
    ),
    Kind.PCIE_PATH: Severity(Health.DEGRADED, _LOOK, "it still carries all, but slower and past the CPU"),
    Kind.PCIE_PLACE: Severity(
        Health.DEGRADED, _LOOK, "other parts share its way to the host now, or its CPU is another"
    ),
    Kind.NUMA: Severity(
        Health.DEGRADED,
        "set sub-NUMA clustering (NPS, SNC) back in the firmware, or accept it: wirewatch topology accept",
        "processes are pinned to other CPUs and memory than those that were measured",
    ),
    Kind.VERSION: Severity(Health.OK, _ACCEPT, "somebody's work, and no fault by itself"),
}

BETTER = Severity(Health.OK, _ACCEPT, "nothing is less than it was")


def severity(change: Change) -> Severity:
    """That of its kind, or `BETTER` for a change that takes nothing away."""
    found = SEVERITY[change.kind]
    return found if change.worse or found.health is Health.OK else BETTER
