"""The machine that advice is about: its wires and measurements."""

from dataclasses import dataclass

from wirewatch.busbw.profiles import NetworkProfile
from wirewatch.core.probe import Conditions
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.gpunic.locality import Locality
from wirewatch_lab.study.curve import Study

DESCRIBED = Absent(Why.MISSING, "it was described, not read")


@dataclass(frozen=True, slots=True)
class AdvisedMachine:
    """A node, live, recorded or described.

    `of` names it for people. `topology` is Absent for a machine that was only described. `conditions`: first
    the whole node, with its known RDMA ports, then each of several NVLink islands. `measured`: its
    measurements, the most trusted first. `locality`: RDMA ports and processors near its GPUs. `network`: the
    network between machines, where named.
    """

    of: str
    topology: Topology | Absent
    conditions: tuple[Conditions, ...]
    measured: tuple[Study, ...] = ()
    locality: Locality | Absent = DESCRIBED
    network: NetworkProfile | None = None

    @property
    def gpus(self) -> int:
        """Return the number of GPUs, 1 where none is known."""
        return max((one.group.ranks for one in self.conditions), default=1)

    def group(self, ranks: int) -> Conditions | None:
        """Return the best wires of so many GPUs: an island's, else the node's; None for fewer GPUs."""
        fitting = [one for one in self.conditions if one.group.ranks >= ranks]
        return min(fitting, key=lambda one: (one.group.whole, one.group.ranks), default=None)
