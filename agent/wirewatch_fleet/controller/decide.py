"""What to do with each node: a pure function of all nodes, the settings and the time."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from wirewatch.config import ControllerSection
from wirewatch.kubernetes.condition import ConditionStatus
from wirewatch_fleet.controller.brake import Brake, Budget
from wirewatch_fleet.controller.node import FleetNode, Measure, Reported, obstacles

AHEAD = 300.0
"""Seconds by which the clock of a node may be ahead of ours; what is written later than that says nothing."""


class Step(Enum):
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
    """About a node that is FAILED or has our mark: the step, None for none, its ground, the numbers."""

    node: FleetNode
    step: Step | None
    ground: Ground
    detail: str = ""

    @property
    def refused(self) -> bool:
        """Whether a FAILED node is left as it is, in use or out of it by others."""
        return self.step is None and self.ground is not Ground.HELD and _failed(self.node)


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions, oldest fault first, and the budgets as they are once all steps are done.

    `last`: names of nodes whose turn is after that of all others.
    """

    decisions: tuple[NodeDecision, ...]
    budgets: tuple[Budget, ...]
    nodes: int
    last: Collection[str] = ()

    def steps(self) -> Iterable[NodeDecision]:
        """Those with something to do: what is given back first."""
        due = [one for one in self.decisions if one.step is not None]
        return sorted(due, key=lambda one: (one.node.name in self.last, one.step is Step.TAKE_OUT))


def decide(
    nodes: Sequence[FleetNode],
    settings: ControllerSection,
    now: float,
    pending: Collection[str] = (),
    last: Collection[str] = (),
) -> Plan:
    """The plan for all nodes of a fleet; nothing else is remembered between two plans.

    Args:
        nodes: all nodes that `selector` finds; without one only those with the condition or our mark count.
        settings: what may be done.
        now: Unix seconds.
        pending: names of nodes that may have been taken out by requests without an answer.
        last: names of nodes whose last step was refused: they have their turn, and what is left of the
            budget, after all others, so that a node that takes no patch keeps nobody waiting.
    """
    fleet = [n for n in nodes if settings.selector or n.condition is not None or n.mark or n.foreign]
    brake = Brake(fleet, settings, pending)
    found = (_decision(node, brake, settings, now) for node in _in_turn(fleet, last))
    decisions = tuple(one for one in found if one is not None)
    return Plan(decisions, tuple(brake.budgets()), len(fleet), last)


def fresh(condition: Reported, settings: ControllerSection, now: float) -> bool:
    """Whether its agent was heard of lately, by a clock that is not ahead."""
    return -AHEAD <= now - condition.heartbeat <= settings.stale


def repeated(condition: Reported, seconds: float) -> bool:
    """Whether the agent has said the same so long after the change; both times are by its own clock."""
    return condition.heartbeat - condition.transition >= seconds


def _failed(node: FleetNode) -> bool:
    return node.condition is not None and node.condition.status is ConditionStatus.FALSE


def _in_turn(fleet: Sequence[FleetNode], last: Collection[str]) -> Sequence[FleetNode]:
    def order(node: FleetNode) -> tuple[bool, float, str]:
        return (node.name in last, node.condition.transition if node.condition else 0.0, node.name)

    return sorted(fleet, key=order)


def _decision(node: FleetNode, brake: Brake, settings: ControllerSection, now: float) -> NodeDecision | None:
    if node.mark is not None:
        return _about_marked(node, settings, now)
    if settings.act == "undo" or node.condition is None or not _failed(node):
        return None
    return _about_failed(node, node.condition, brake, settings, now)


def _about_marked(node: FleetNode, settings: ControllerSection, now: float) -> NodeDecision:
    """A node that we took out: given back once it is fit, whatever the measure is by now."""
    condition, stands = node.condition, node.stands()
    back = Step.GIVE_BACK if stands else Step.FORGET
    if settings.act == "undo":
        return NodeDecision(node, back, Ground.UNDO)
    fit = condition is not None and condition.status is ConditionStatus.TRUE
    if condition and fit and fresh(condition, settings, now) and repeated(condition, settings.recover):
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
    return NodeDecision(node, Step.TAKE_OUT, Ground.CONFIRMED, f"{condition.reason}: {condition.message}")


def measure(settings: ControllerSection) -> Measure:
    """What takes a node out; never asked while everything is undone."""
    return Measure(settings.act)
