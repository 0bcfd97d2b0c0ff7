"""The brake: of a cluster, a pool and a rack only so many nodes are out of use when one more is taken out."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from wirewatch.config import ControllerSection, Limit
from wirewatch_fleet.controller.node import FleetNode, obstacles


class Scope(Enum):
    """What a budget is of, in the order in which one that is used up is named."""

    CLUSTER = "cluster"
    POOL = "pool"
    RACK = "rack"


Unit = tuple[Scope, str]
"""One cluster, pool or rack, by its name; the cluster's is ""."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Of one unit with so many nodes: how many may be out of use, and how many are."""

    scope: Scope
    name: str
    nodes: int
    limit: int
    used: int

    @property
    def left(self) -> int:
        """How many more may be taken out; never negative."""
        return max(0, self.limit - self.used)

    def __str__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return f"{self.scope.value}{name}: {self.used} of {self.nodes} nodes out of use, {self.limit} may be"


class Brake:
    """Counts what is out of use, and what is taken out meanwhile.

    Args:
        nodes: all nodes of the fleet.
        settings: budgets, and the labels of pools and racks.
        pending: names of nodes that may have been taken out by requests without an answer.
    """

    def __init__(
        self, nodes: Sequence[FleetNode], settings: ControllerSection, pending: Collection[str] = ()
    ) -> None:
        self._settings = settings
        self._sizes = Counter(unit for node in nodes for unit in self._units(node))
        out = (n for n in nodes if n.name in pending or obstacles(n, settings.dedicated_taints))
        self._used = Counter(unit for node in out for unit in self._units(node))

    def holds(self, node: FleetNode) -> Budget | None:
        """The budget that does not allow this node to be taken out; None if all do."""
        found = (self.budget(unit) for unit in self._units(node))
        return next((budget for budget in found if not budget.left), None)

    def take(self, node: FleetNode) -> None:
        """Count a node as out of use from now on."""
        self._used.update(self._units(node))

    def budget(self, unit: Unit) -> Budget:
        """The budget of one unit."""
        scope, name = unit
        limit = allowed(getattr(self._settings.budget, scope.value), self._sizes[unit])
        return Budget(scope, name, self._sizes[unit], limit, self._used[unit])

    def budgets(self) -> Iterator[Budget]:
        """Of the cluster, of all pools and racks, in a lasting order."""
        whole: Unit = (Scope.CLUSTER, "")
        yield self.budget(whole)
        for unit in sorted(self._sizes.keys() - {whole}, key=lambda one: (one[0].value, one[1])):
            yield self.budget(unit)

    def _units(self, node: FleetNode) -> Iterator[Unit]:
        yield Scope.CLUSTER, ""
        yield Scope.POOL, _first(node.labels, self._settings.pools)
        if rack := _first(node.labels, self._settings.racks):
            yield Scope.RACK, rack


def allowed(limit: Limit, nodes: int) -> int:
    """How many of so many nodes: a percentage is rounded down, but not to nothing."""
    if isinstance(limit, int):
        return limit
    percent = int(limit.removesuffix("%"))
    return max(1, nodes * percent // 100) if percent and nodes else 0


def _first(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")
