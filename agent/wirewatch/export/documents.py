"""The JSON documents of the HTTP interface; docs/schemas is made from these types."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.core import component as core
from wirewatch.core import types
from wirewatch.core.component import NodeState
from wirewatch.core.topology import Topology
from wirewatch.core.types import Failed
from wirewatch.verdict.node import judge_node

Health = Literal["ok", "degraded", "unknown", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`subject` holds only the levels that apply: gpu, uuid, link, device, port; `since` in Unix seconds."""

    rule: str
    health: Health
    subject: dict[str, str]
    evidence: str
    action: str
    since: float


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Collector:
    """`health` null: nothing to watch here, takes no part; `applicable` null: not yet known."""

    collector: str
    health: Health | None
    applicable: bool | None
    success: bool
    error: str | None
    overdue_since: float | None
    last_success: float
    duration_seconds: float
    failures: int
    findings: list[Finding]
    samples: list[Series]


@dataclass(frozen=True, slots=True)
class HealthDocument:
    """The verdict with its reasons, worst first; `at` in Unix seconds."""

    schema: Literal["wirewatch.health/1"]
    at: float
    health: Health
    job_ready: bool
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class StateDocument:
    """Everything that is known; `source` is live, replay or synthetic."""

    schema: Literal["wirewatch.state/1"]
    at: float
    health: Health
    job_ready: bool
    source: str
    collectors: list[Collector]


@dataclass(frozen=True, slots=True)
class TopologyDocument:
    """The node as one graph; `topology` null until it was read for the first time."""

    schema: Literal["wirewatch.topology/1"]
    at: float
    topology: Topology | None


HEALTH = TypeAdapter(HealthDocument)
STATE = TypeAdapter(StateDocument)
TOPOLOGY = TypeAdapter(TopologyDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {
    "wirewatch.health.1": HEALTH,
    "wirewatch.state.1": STATE,
    "wirewatch.topology.1": TOPOLOGY,
}


def health(state: NodeState, at: float) -> HealthDocument:
    verdict = judge_node(state)
    findings = [finding(f) for f in verdict.findings]
    return HealthDocument("wirewatch.health/1", at, health_name(verdict.health), verdict.job_ready, findings)


def state(node: NodeState, at: float, source: str) -> StateDocument:
    verdict = judge_node(node)
    collectors = [_collector(c) for c in node.components.values()]
    return StateDocument(
        "wirewatch.state/1", at, health_name(verdict.health), verdict.job_ready, source, collectors
    )


def topology(node: NodeState, at: float) -> TopologyDocument:
    """The last graph that was read; what could not be read since is in the state, not here."""
    component = node.components.get("topology")
    graph = component.memory if component else None
    return TopologyDocument("wirewatch.topology/1", at, graph if isinstance(graph, Topology) else None)


_NAMES: dict[types.Health, Health] = {
    types.Health.OK: "ok",
    types.Health.DEGRADED: "degraded",
    types.Health.UNKNOWN: "unknown",
    types.Health.FAILED: "failed",
}


def health_name(value: types.Health) -> Health:
    return _NAMES[value]


def finding(one: types.Finding) -> Finding:
    part = one.subject
    levels = {"gpu": part.gpu, "uuid": part.uuid, "link": part.link, "device": part.device, "port": part.port}
    subject = {name: value for name, value in levels.items() if value}
    return Finding(one.rule, health_name(one.health), subject, one.evidence, one.action, one.since)


def _collector(component: core.Component) -> Collector:
    failed = component.outcome.absent if isinstance(component.outcome, Failed) else None
    return Collector(
        collector=component.name,
        health=None if component.health is None else health_name(component.health),
        applicable=component.applicable,
        success=component.succeeding,
        error=None if failed is None else str(failed),
        overdue_since=component.overdue_since,
        last_success=component.last_success,
        duration_seconds=component.duration,
        failures=component.failures,
        findings=[finding(f) for f in component.findings],
        samples=[_series(s) for s in component.samples],
    )


def _series(sample: types.Sample) -> Series:
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    return Series(f"wirewatch_{sample.metric.name}", labels, sample.value)
