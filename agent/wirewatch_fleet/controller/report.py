"""The controller's output: its state as a value, its metrics, and its Events."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wirewatch.core.types import Kind, Metric, Sample, Tier
from wirewatch.core.words import stamp
from wirewatch.kubernetes.apiserver import RequestResult
from wirewatch.kubernetes.condition import LIMIT, shortened
from wirewatch_fleet.controller.decide import BUDGETS, MEANING, ControllerPlan, Ground, NodeDecision, NodeStep
from wirewatch_fleet.controller.node import TAINT_EFFECT, TAINT_KEY, NodeMeasure

_UNDRAWN = "of the controller, which is one for each cluster and off by default"


def _gauge(name: str, about: str, *labels: str) -> Metric:
    return Metric(f"controller_{name}", Kind.GAUGE, labels, about, undrawn=_UNDRAWN, tier=Tier.CORE)


LEADER = _gauge("leader", "1 while this process holds the lease.")
DRY_RUN = _gauge("dry_run", "1 where the controller only says what it would do.")
NODES = _gauge("nodes", "Nodes that count: those that `selector` finds, else those with the condition.")
NODES_OUT = _gauge("nodes_out", "Nodes that the controller has taken out of use.")
DUE = _gauge("steps_due", "Steps that the last look found due and that are not done.", "step")
REFUSED = _gauge("refused", "FAILED nodes that the controller leaves as they are, by reason.", "reason")
BUDGET_LIMIT = _gauge("budget_limit", "Nodes that may be taken out within an hour.", "scope", "name")
BUDGET_USED = _gauge("budget_used", "Nodes out of use that were taken out within an hour.", "scope", "name")
STOCK = _gauge(
    "stock_used", "Nodes that are out of use for whatever reason; racks only with one.", "scope", "name"
)
STOCK_LIMIT = _gauge("stock_limit", "Nodes of the cluster that may be out of use.")
LAST_SYNC = _gauge(
    "last_sync_timestamp_seconds", "When all nodes were last looked at, as the API server has them; 0: never."
)
FROZEN = _gauge("frozen", "1 while no step is taken, since lists lack more nodes than may be out of use.")
FAILURES = Metric(
    "controller_request_failures_total", Kind.COUNTER, ("request", "result"),
    "Requests for nodes and Events that were not answered as wanted.", undrawn=_UNDRAWN, tier=Tier.CORE,
)  # fmt: skip
STEPS = Metric(
    "controller_steps_total", Kind.COUNTER, ("step", "result"), "Steps that were tried, by result.",
    undrawn=_UNDRAWN, tier=Tier.CORE,
)  # fmt: skip
METRICS = (
    LEADER, DRY_RUN, NODES, NODES_OUT, DUE, REFUSED, BUDGET_LIMIT, BUDGET_USED, STOCK, STOCK_LIMIT,
    LAST_SYNC, STEPS, FROZEN, FAILURES,
)  # fmt: skip
Count = tuple[NodeStep, RequestResult]


@dataclass(frozen=True, slots=True)
class ControllerReport:
    """The state of a controller; `plan` is None while it does not lead. Unix seconds, 0 for never."""

    dry_run: bool
    leader: bool = False
    plan: ControllerPlan | None = None
    synced_at: float = 0.0
    steps: Mapping[Count, int] = field(default_factory=dict)
    frozen: bool = False
    failures: Mapping[tuple[str, RequestResult], int] = field(default_factory=dict)


def samples(report: ControllerReport) -> Iterator[Sample]:
    """Yield the series of the report; series of the plan only while it leads."""
    yield LEADER.sample(report.leader)
    yield DRY_RUN.sample(report.dry_run)
    yield LAST_SYNC.sample(report.synced_at)
    for step in NodeStep:
        for result in RequestResult:
            count = report.steps.get((step, result), 0)
            if count or result is RequestResult.OK:
                yield STEPS.sample(count, step.value, result.value)
    for (request, result), count in report.failures.items():
        yield FAILURES.sample(count, request, result.value)
    if report.plan is not None:
        yield FROZEN.sample(report.frozen)
        yield from _of_plan(report.plan)


def _of_plan(plan: ControllerPlan) -> Iterator[Sample]:
    yield NODES.sample(plan.nodes)
    yield NODES_OUT.sample(sum(one.node.stands() for one in plan.decisions))
    due = Counter(one.step for one in plan.decisions)
    for step in NodeStep:
        yield DUE.sample(due[step], step.value)
    refused = Counter(one.ground for one in plan.decisions if one.refused)
    for ground in MEANING:
        yield REFUSED.sample(refused[ground], ground.value)
    yield STOCK_LIMIT.sample(plan.most)
    for one in plan.budgets:
        if one.scope.value != "rack" or one.stock:
            for metric, value in ((BUDGET_LIMIT, one.limit), (BUDGET_USED, one.used), (STOCK, one.stock)):
                yield metric.sample(value, one.scope.value, one.name)


WORDS: Mapping[NodeMeasure | None, str] = {
    NodeMeasure.TAINT: f"tainted {TAINT_KEY}:{TAINT_EFFECT}",
    NodeMeasure.CORDON: "cordoned",
    NodeMeasure.NVSENTINEL: "handed to NVSentinel by a MaintenanceRequest",
}


def words(decision: NodeDecision, act: NodeMeasure | None, *, dry_run: bool) -> tuple[str, str, str]:
    """Return type, reason and message of an Event about a decision.

    `act`: the present means of taking nodes out, if any.
    """
    node, ground = decision.node, decision.ground
    would = "dry run: would be " if dry_run else ""
    if decision.step is NodeStep.TAKE_OUT:
        return "Warning", "InterconnectTakenOut", f"{would}{WORDS[act]}: {decision.detail}"
    if decision.step is NodeStep.GIVE_BACK:
        why = "everything is undone" if ground is Ground.UNDO else "InterconnectHealthy is True again"
        return "Normal", "InterconnectGivenBack", f"{would}back in use, was {WORDS[node.did]}: {why}"
    if decision.step is NodeStep.FORGET:
        said = f"{would}without our mark: what it said was taken back before"
        return "Normal", "InterconnectForgotten", said
    reason = "InterconnectBudgetUsed" if ground in BUDGETS else "InterconnectLeft"
    detail = f" ({decision.detail})" if decision.detail else ""
    return "Warning", reason, f"FAILED, and not taken out: {MEANING.get(ground, ground.value)}{detail}"


def event(decision: NodeDecision, told: tuple[str, str, str], identity: str, now: float) -> dict[str, Any]:
    """Return an Event about a node."""
    node, (kind, reason, message) = decision.node, told
    at = stamp(now)
    return {
        "metadata": {"generateName": f"{shortened(node.name, 200)}.", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid},
        "type": kind, "reason": reason, "message": shortened(message, LIMIT), "count": 1,
        "firstTimestamp": at, "lastTimestamp": at,
        "source": {"component": "wirewatch-controller", "host": identity},
    }  # fmt: skip
