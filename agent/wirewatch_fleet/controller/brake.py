"""The brake: limits new outages of nodes in an hour, and all outages.

deploy/slurm/brake.sh has the same rule for Slurm; tests/brakes.py is the common table of cases.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from wirewatch.config import ControllerSection, Limit
from wirewatch_fleet.controller.node import FleetNode, obstacles

HOUR = 3600.0
"""Seconds for which an outage counts as new."""


class Scope(Enum):
    """Kinds of brakes, in naming order: three for new outages, one for all."""

    CLUSTER = "cluster"
    POOL = "pool"
    RACK = "rack"
    STOCK = "stock"


Unit = tuple[Scope, str]
"""One cluster, pool or rack, by its name; the cluster's is ""."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Budget of a unit with so many nodes: allowed new outages, present new outages, and all nodes out."""

    scope: Scope
    name: str
    nodes: int
    limit: int
    used: int
    stock: int

    def __str__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return (
            f"{self.scope.value}{name}: {self.used} of {self.nodes} nodes taken out within an hour, "
            f"{self.limit} may be"
        )


class Brake:
    """Counts outages, and nodes taken out meanwhile.

    Only outages by the controller are ever new; others' outages, and outages of unknown age, are stock.

    Args:
        nodes: all nodes of the fleet.
        settings: budgets, taints that are outages, and the labels of pools and racks.
        now: Unix seconds.
        pending: names of nodes that may have been taken out by requests without an answer.
    """

    def __init__(
        self, nodes: Sequence[FleetNode], settings: ControllerSection, now: float,
        pending: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._settings = settings
        self._sizes = Counter(unit for node in nodes for unit in self._units(node))
        self._new: Counter[Unit] = Counter()
        self._stock: Counter[Unit] = Counter()
        for node in nodes:
            if node.name in pending:
                self.take(node)
            elif obstacles(node, settings.outage_taints):
                self._count(node, new=node.mark is not None and now - node.mark.since < HOUR)

    def holds(self, node: FleetNode) -> tuple[Scope, str] | None:
        """Return why this node may not be taken out, with the numbers; None where it may."""
        for budget in map(self.budget, self._units(node)):
            if budget.used >= budget.limit:
                return budget.scope, str(budget)
        out, most, nodes = self._stock[WHOLE], self.most, self._sizes[WHOLE]
        return (
            (Scope.STOCK, f"cluster: {out} of {nodes} nodes out of use, {most} may be")
            if out >= most
            else None
        )

    def take(self, node: FleetNode) -> None:
        """Count a node as new out of use from now on."""
        self._count(node, new=True)

    @property
    def most(self) -> int:
        """Return how many nodes of the cluster may be out of use, new or not."""
        return allowed(self._settings.budget.stock, self._sizes[WHOLE])

    def budget(self, unit: Unit) -> Budget:
        """Return the budget of a unit."""
        scope, name = unit
        limit = allowed(getattr(self._settings.budget, scope.value), self._sizes[unit])
        return Budget(scope, name, self._sizes[unit], limit, self._new[unit], self._stock[unit])

    def budgets(self) -> Iterator[Budget]:
        """Yield the tallies of the cluster, all pools and all racks, always in the same order."""
        yield self.budget(WHOLE)
        for unit in sorted(self._sizes.keys() - {WHOLE}, key=lambda one: (one[0].value, one[1])):
            yield self.budget(unit)

    def _count(self, node: FleetNode, *, new: bool) -> None:
        units = [*self._units(node)]
        self._stock.update(units)
        if new:
            self._new.update(units)

    def _units(self, node: FleetNode) -> Iterator[Unit]:
        yield WHOLE
        yield Scope.POOL, _first(node.labels, self._settings.pools)
        if rack := _first(node.labels, self._settings.racks):
            yield Scope.RACK, rack


WHOLE: Unit = (Scope.CLUSTER, "")


def allowed(limit: Limit, nodes: int) -> int:
    """Return how many of so many nodes are allowed: a percentage is rounded down, but not to nothing."""
    if isinstance(limit, int):
        return limit
    percent = int(limit.removesuffix("%"))
    return max(1, nodes * percent // 100) if percent and nodes else 0


def _first(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")
