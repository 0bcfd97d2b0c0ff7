"""What to do with each node, and the patch for it: pure functions of all nodes, the settings and the time."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from wirewatch.config import ControllerSection, Limit
from wirewatch.core.words import stamp
from wirewatch.kubernetes.condition import ConditionStatus
from wirewatch_fleet.controller.node import (
    MARK,
    TAINT_EFFECT,
    TAINT_KEY,
    FleetNode,
    Mark,
    NodeMeasure,
    Reported,
    obstacles,
)


class Scope(Enum):
    """What a budget is of, in the order in which one that is used up is named."""

    CLUSTER = "cluster"
    POOL = "pool"
    RACK = "rack"


Patch = Mapping[str, Any]
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


AHEAD = 300.0
"""Seconds by which the clock of a node may be ahead of ours; what is written later than that says nothing."""


class NodeStep(Enum):
    """What is done to a node. FORGET removes the mark of a measure that a person has already taken back."""

    TAKE_OUT = "take_out"
    GIVE_BACK = "give_back"
    FORGET = "forget"


class Ground(Enum):
    """Why a step is due, or why none is."""

    CONFIRMED = "confirmed"
    FIT = "fit"
    UNDO = "undo"
    BUDGET_CLUSTER = "budget_cluster"
    BUDGET_POOL = "budget_pool"
    BUDGET_RACK = "budget_rack"
    UNCONFIRMED = "unconfirmed"
    STALE = "stale"
    OUT_ALREADY = "out_already"
    OVERRULED = "overruled"
    FOREIGN_MARK = "foreign_mark"
    HELD = "held"


MEANING = {
    Ground.BUDGET_CLUSTER: "as many nodes of the cluster are out of use as may be",
    Ground.BUDGET_POOL: "as many nodes of its pool are out of use as may be",
    Ground.BUDGET_RACK: "as many nodes of its rack are out of use as may be",
    Ground.UNCONFIRMED: "FAILED, but its agent has not repeated it yet",
    Ground.STALE: "FAILED, but its agent has not been heard for long, or its clock is ahead",
    Ground.OUT_ALREADY: "something else keeps pods off it: NotReady, a cordon, a taint",
    Ground.OVERRULED: "a person has taken the measure back; it is not repeated before the node was fit",
    Ground.FOREIGN_MARK: "its annotation is not as the controller writes it, so nothing there is its own",
}
"""Why a FAILED node is left in use, for people."""
BUDGETS = frozenset({Ground.BUDGET_CLUSTER, Ground.BUDGET_POOL, Ground.BUDGET_RACK})


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """About a node that is FAILED or has our mark: the step, None for none, its ground, the numbers.

    `reason`: of the condition for which a node is taken out.
    """

    node: FleetNode
    step: NodeStep | None
    ground: Ground
    detail: str = ""
    reason: str = ""

    @property
    def refused(self) -> bool:
        """Whether a FAILED node is left as it is, in use or out of it by others."""
        return self.step is None and self.ground is not Ground.HELD and _fault(self.node) is not None


@dataclass(frozen=True, slots=True)
class ControllerPlan:
    """The decisions, oldest fault first, and the budgets as they are once all steps are done.

    `last`: names of nodes whose turn is after that of all others.
    """

    decisions: tuple[NodeDecision, ...]
    budgets: tuple[Budget, ...]
    nodes: int
    last: Collection[str] = ()

    def steps(self) -> Iterable[tuple[NodeStep, NodeDecision]]:
        """The steps and the decisions for them: what is given back first."""
        due = [(one.step, one) for one in self.decisions if one.step is not None]
        return sorted(due, key=lambda one: (one[1].node.name in self.last, one[0] is NodeStep.TAKE_OUT))


def decide(
    nodes: Sequence[FleetNode],
    settings: ControllerSection,
    now: float,
    pending: Collection[str] = (),
    last: Collection[str] = (),
    missed: Sequence[FleetNode] = (),
) -> ControllerPlan:
    """The plan for all nodes of a fleet; nothing else is remembered between two plans.

    Args:
        nodes: all nodes that `selector` finds; without one only those with the condition or our mark count.
        settings: what may be done.
        now: Unix seconds.
        pending: names of nodes that may have been taken out by requests without an answer.
        last: names of nodes whose last step was refused: they have their turn, and what is left of the
            budget, after all others, so that a node that takes no patch keeps nobody waiting.
        missed: nodes that a list lacks, as they last were: they count in the budgets alone.
    """
    fleet, lacking = (
        [n for n in some if settings.selector or n.condition is not None or n.mark or n.foreign]
        for some in (nodes, missed)
    )
    brake = Brake([*fleet, *lacking], settings, pending)
    found = (_decision(node, brake, settings, now) for node in _in_turn(fleet, last))
    decisions = tuple(one for one in found if one is not None)
    return ControllerPlan(decisions, tuple(brake.budgets()), len(fleet), last)


def fresh(condition: Reported, settings: ControllerSection, now: float) -> bool:
    """Whether its agent was heard of lately, by a clock that is not ahead."""
    return -AHEAD <= now - condition.heartbeat <= settings.stale


def repeated(condition: Reported, seconds: float) -> bool:
    """Whether the agent has said the same so long after the change; both times are by its own clock."""
    return condition.heartbeat - condition.transition >= seconds


def _fault(node: FleetNode) -> Reported | None:
    """Return the condition of a FAILED node, None for any other."""
    found = node.condition
    return found if found is not None and found.status is ConditionStatus.FALSE else None


def _in_turn(fleet: Sequence[FleetNode], last: Collection[str]) -> Sequence[FleetNode]:
    def order(node: FleetNode) -> tuple[bool, float, str]:
        return (node.name in last, node.since, node.name)

    return sorted(fleet, key=order)


def _decision(node: FleetNode, brake: Brake, settings: ControllerSection, now: float) -> NodeDecision | None:
    if node.mark is not None:
        return _about_marked(node, settings, now)
    fault = _fault(node)
    if settings.act == "undo" or fault is None:
        return None
    return _about_failed(node, fault, brake, settings, now)


def _about_marked(node: FleetNode, settings: ControllerSection, now: float) -> NodeDecision:
    """A node that we took out: given back once it is fit, whatever the measure is by now."""
    condition, stands = node.condition, node.stands()
    back = NodeStep.GIVE_BACK if stands else NodeStep.FORGET
    if settings.act == "undo":
        return NodeDecision(node, back, Ground.UNDO)
    if (
        condition is not None
        and condition.status is ConditionStatus.TRUE
        and fresh(condition, settings, now)
        and repeated(condition, settings.recover)
    ):
        return NodeDecision(node, back, Ground.FIT, condition.message)
    return NodeDecision(node, None, Ground.HELD if stands else Ground.OVERRULED)


def _about_failed(
    node: FleetNode, condition: Reported, brake: Brake, settings: ControllerSection, now: float
) -> NodeDecision:
    """A FAILED node that is not ours yet."""
    if node.foreign:
        return NodeDecision(node, None, Ground.FOREIGN_MARK)
    if not fresh(condition, settings, now):
        age = f"heartbeat {now - condition.heartbeat:.0f} s old"
        return NodeDecision(node, None, Ground.STALE, age)
    if others := obstacles(node, settings.dedicated_taints):
        return NodeDecision(node, None, Ground.OUT_ALREADY, ", ".join(others))
    if not repeated(condition, settings.confirm):
        held = f"repeated after {condition.heartbeat - condition.transition:.0f} of {settings.confirm:.0f} s"
        return NodeDecision(node, None, Ground.UNCONFIRMED, held)
    if used := brake.holds(node):
        return NodeDecision(node, None, Ground(f"budget_{used.scope.value}"), str(used))
    brake.take(node)
    reason = condition.reason
    return NodeDecision(node, NodeStep.TAKE_OUT, Ground.CONFIRMED, f"{reason}: {condition.message}", reason)


def patch_of(decision: NodeDecision, settings: ControllerSection, now: float) -> Patch:
    """Return the patch (RFC 7386) of a decision's step: what is done and the mark that says so, in one.

    It names the resourceVersion, so that the API server refuses it if the node has changed since it was
    looked at: the list of taints is sent whole. `now` in Unix seconds.
    """
    node = decision.node
    if decision.step is NodeStep.TAKE_OUT:
        did = NodeMeasure(settings.act)
        return _patch(node, Mark(did, stamp(now), decision.reason).text(), _out(node, did))
    return _patch(node, None, _back(node) if decision.step is NodeStep.GIVE_BACK else {})


def _patch(node: FleetNode, mark: str | None, spec: Patch) -> Patch:
    about = {"resourceVersion": node.version, "annotations": {MARK: mark}}
    return {"metadata": about, **({"spec": spec} if spec else {})}


def _out(node: FleetNode, did: NodeMeasure) -> Patch:
    if did is NodeMeasure.TAINT:
        ours = {"key": TAINT_KEY, "effect": TAINT_EFFECT}
        return {"taints": [*(taint.raw for taint in node.taints), ours]}
    return {"unschedulable": True} if did is NodeMeasure.CORDON else {}


def _back(node: FleetNode) -> Patch:
    if node.did is NodeMeasure.TAINT:
        return {"taints": [taint.raw for taint in node.taints if not taint.ours] or None}
    return {"unschedulable": None} if node.did is NodeMeasure.CORDON else {}
