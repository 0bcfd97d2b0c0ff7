"""Decides about each node and its patch: pure functions of all nodes, the settings and the time."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from wirewatch.config import ControllerSection
from wirewatch.core.words import stamp
from wirewatch.kubernetes.condition import ConditionStatus
from wirewatch_fleet.controller.brake import Brake, Budget
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

Patch = Mapping[str, Any]
AHEAD = 300.0
"""Seconds by which a node's clock may be ahead of ours; later timestamps are ignored."""


class NodeStep(Enum):
    """The action on a node. FORGET removes the mark of a measure that a person has already reverted."""

    TAKE_OUT = "take_out"
    GIVE_BACK = "give_back"
    FORGET = "forget"


class Ground(Enum):
    """The reason for a step, or for none."""

    CONFIRMED = "confirmed"
    FIT = "fit"
    UNDO = "undo"
    BUDGET_CLUSTER = "budget_cluster"
    BUDGET_POOL = "budget_pool"
    BUDGET_RACK = "budget_rack"
    BUDGET_STOCK = "budget_stock"
    UNCONFIRMED = "unconfirmed"
    STALE = "stale"
    OUT_ALREADY = "out_already"
    OVERRULED = "overruled"
    FOREIGN_MARK = "foreign_mark"
    HELD = "held"


MEANING = {
    Ground.BUDGET_CLUSTER: "as many nodes of the cluster were taken out within an hour as may be",
    Ground.BUDGET_POOL: "as many nodes of its pool were taken out within an hour as may be",
    Ground.BUDGET_RACK: "as many nodes of its rack were taken out within an hour as may be",
    Ground.BUDGET_STOCK: "as many nodes of the cluster are out of use, for whatever reason, as may be",
    Ground.UNCONFIRMED: "FAILED, but its agent has not repeated it yet",
    Ground.STALE: "FAILED, but its agent has not been heard for long, or its clock is ahead",
    Ground.OUT_ALREADY: "something else keeps pods off it: NotReady, a cordon, a taint",
    Ground.OVERRULED: "a person has taken the measure back; it is not repeated before the node was fit",
    Ground.FOREIGN_MARK: "its annotation is not as the controller writes it, so nothing there is its own",
}
"""Reasons, for people, why a FAILED node stays in use."""
BUDGETS = frozenset(ground for ground in Ground if ground.value.startswith("budget_"))


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """The decision about a node that is FAILED or has our mark: step (or None), ground, numbers.

    `reason`: of the condition that takes the node out.
    """

    node: FleetNode
    step: NodeStep | None
    ground: Ground
    detail: str = ""
    reason: str = ""

    @property
    def refused(self) -> bool:
        """Return whether a FAILED node is left as it is, in use or taken out by others."""
        return self.step is None and self.ground is not Ground.HELD and _fault(self.node) is not None


@dataclass(frozen=True, slots=True)
class ControllerPlan:
    """The decisions, oldest fault first, and the budgets after all steps.

    `most`: how many of `nodes` may be out of use; `last`: names of nodes that come after all others.
    """

    decisions: tuple[NodeDecision, ...]
    budgets: tuple[Budget, ...]
    nodes: int
    most: int
    last: Collection[str] = ()

    def steps(self) -> Iterable[tuple[NodeStep, NodeDecision]]:
        """Yield the steps with their decisions: nodes given back first."""
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
    """Return the plan for all nodes of a fleet; no other state passes from plan to plan.

    Args:
        nodes: all nodes that `selector` finds; else only nodes with the condition or our mark count.
        settings: the allowed steps.
        now: Unix seconds.
        pending: names of nodes that may have been taken out by requests without an answer.
        last: names of nodes whose last step was refused. They come after all others, with the rest of the
            budget, so that a node that takes no patch delays nobody.
        missed: nodes that a list lacks, in their last state; they count only in the budgets.
    """
    fleet, lacking = (
        [n for n in some if settings.selector or n.condition is not None or n.mark or n.foreign]
        for some in (nodes, missed)
    )
    brake = Brake([*fleet, *lacking], settings, now, pending)
    found = (_decision(node, brake, settings, now) for node in _in_turn(fleet, last))
    decisions = tuple(one for one in found if one is not None)
    return ControllerPlan(decisions, tuple(brake.budgets()), len(fleet), brake.most, last)


def fresh(condition: Reported, settings: ControllerSection, now: float) -> bool:
    """Return whether its agent was heard recently, by a clock that is not ahead."""
    return -AHEAD <= now - condition.heartbeat <= settings.stale


def repeated(condition: Reported, seconds: float) -> bool:
    """Return whether the agent has repeated its report so long after the change; both times use its clock."""
    return condition.heartbeat - condition.transition >= seconds


def _fault(node: FleetNode) -> Reported | None:
    """Return the condition of a FAILED node, None for other nodes."""
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
    """Decide about a node that we took out: give it back once it is fit, even if the measure has changed."""
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
    """Decide about a FAILED node without our mark."""
    if node.foreign:
        return NodeDecision(node, None, Ground.FOREIGN_MARK)
    if not fresh(condition, settings, now):
        age = f"heartbeat {now - condition.heartbeat:.0f} s old"
        return NodeDecision(node, None, Ground.STALE, age)
    if others := obstacles(node, settings.outage_taints):
        return NodeDecision(node, None, Ground.OUT_ALREADY, ", ".join(others))
    if not repeated(condition, settings.confirm):
        held = f"repeated after {condition.heartbeat - condition.transition:.0f} of {settings.confirm:.0f} s"
        return NodeDecision(node, None, Ground.UNCONFIRMED, held)
    if full := brake.holds(node):
        return NodeDecision(node, None, Ground(f"budget_{full[0].value}"), full[1])
    brake.take(node)
    reason = condition.reason
    return NodeDecision(node, NodeStep.TAKE_OUT, Ground.CONFIRMED, f"{reason}: {condition.message}", reason)


def patch_of(decision: NodeDecision, settings: ControllerSection, now: float) -> Patch:
    """Return the patch (RFC 7386) of a decision's step, which sets the measure and its mark together.

    The patch names the resourceVersion, since it sends the whole list of taints. So the API server refuses it
    if the node has changed since it was read. `now` in Unix seconds.
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
