"""The JSON documents of the HTTP interface; docs/schemas is made from these types."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.core import component as core
from wirewatch.core import types
from wirewatch.core.component import NodeState
from wirewatch.core.topology import Topology
from wirewatch.core.types import Failed
from wirewatch.export import nodeinfo
from wirewatch.probes.collector import NAME
from wirewatch.probes.told import told
from wirewatch.verdict import ledger, node
from wirewatch.verdict.node import Judged

Health = Literal["ok", "degraded", "unknown", "failed"]
Stage = Literal["live", "latched", "probation", "acknowledged", "suppressed"]


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
class Said:
    """What an operator said, and when (Unix seconds)."""

    by: str
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class NodeFinding(Finding):
    """A finding as it counts for the node.

    `id` names it for `wirewatch findings`; `times`: how often it came within days; `last`: when an event was
    last seen, 0 for what is measured; `suppressed_until` in Unix seconds, 0 for not suppressed.
    """

    id: str
    stage: Stage
    times: int
    last: float
    acknowledged: Said | None
    suppressed: Said | None
    suppressed_until: float


@dataclass(frozen=True, slots=True)
class Probe:
    """The newest complete probe: when it began (`at`, 0 for never), how long ago it ended (null for never).

    `fresh`: young enough to tell of now, by `[probe] fresh`; `required`: whether a job may start without
    that, by `[policy.verdict] require_fresh_probe`.
    """

    at: float
    age_seconds: float | None
    fresh: bool
    required: bool


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
    """The verdict with its reasons, worst first. Times in Unix seconds, 0 for never and not.

    `polled_at`: the newest poll of any collector; `turning`: all loops turn; `released_until`: the GPUs are
    let go of for so long (`wirewatch release`); `probe` null: switched off, or nothing here to probe.
    """

    schema: Literal["wirewatch.health/1"]
    at: float
    health: Health
    job_ready: bool
    polled_at: float
    turning: bool
    released_until: float
    probe: Probe | None
    findings: list[NodeFinding]


@dataclass(frozen=True, slots=True)
class FindingsDocument:
    """All findings, worst first, those that take no part for the node's health last."""

    schema: Literal["wirewatch.findings/1"]
    at: float
    health: Health
    job_ready: bool
    findings: list[NodeFinding]


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
FINDINGS = TypeAdapter(FindingsDocument)
STATE = TypeAdapter(StateDocument)
TOPOLOGY = TypeAdapter(TopologyDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {
    "wirewatch.findings.1": FINDINGS,
    "wirewatch.health.1": HEALTH,
    "wirewatch.state.1": STATE,
    "wirewatch.topology.1": TOPOLOGY,
}


@dataclass(frozen=True, slots=True)
class Daemon:
    """What the daemon says of itself; `mono` in monotonic seconds."""

    at: float
    mono: float
    turning: bool = True
    released_until: float = 0.0
    fresh_required: bool = False


def health(judged: Judged, daemon: Daemon) -> HealthDocument:
    verdict = judged.verdict
    return HealthDocument(
        "wirewatch.health/1", daemon.at, health_name(verdict.health), verdict.job_ready, judged.polled_at,
        daemon.turning, daemon.released_until, _probe(judged.state, daemon),
        [standing(s) for s in verdict.standings if s.takes_part],
    )  # fmt: skip


def findings(judged: Judged, at: float) -> FindingsDocument:
    verdict = judged.verdict
    told_of = [standing(s) for s in verdict.standings]
    return FindingsDocument(
        "wirewatch.findings/1", at, health_name(verdict.health), verdict.job_ready, told_of
    )


def _probe(state: NodeState, daemon: Daemon) -> Probe | None:
    found = told(state.components.get(NAME), daemon.mono)
    if found is None or found.pointless:
        return None
    return Probe(found.at, found.age_seconds, found.fresh, daemon.fresh_required)


def state(judged: Judged, at: float, source: str) -> StateDocument:
    verdict = judged.verdict
    collectors = [_collector(c, judged.state) for c in judged.state.components.values()]
    return StateDocument(
        "wirewatch.state/1", at, health_name(verdict.health), verdict.job_ready, source, collectors
    )


def topology(state: NodeState, at: float) -> TopologyDocument:
    """The last graph that was read; what could not be read since is in the state, not here."""
    return TopologyDocument("wirewatch.topology/1", at, state.facts(Topology))


_NAMES: dict[types.Health, Health] = {
    types.Health.OK: "ok",
    types.Health.DEGRADED: "degraded",
    types.Health.UNKNOWN: "unknown",
    types.Health.FAILED: "failed",
}


_STAGES: dict[str, Stage] = {
    node.LIVE: "live",
    node.LATCHED: "latched",
    node.PROBATION: "probation",
    node.ACKNOWLEDGED: "acknowledged",
    node.SUPPRESSED: "suppressed",
}


def health_name(value: types.Health) -> Health:
    return _NAMES[value]


def finding(one: types.Finding) -> Finding:
    return Finding(
        one.rule, health_name(one.health), one.subject.levels(), one.evidence, one.action, one.since
    )


def standing(one: node.Standing) -> NodeFinding:
    plain, suppression = finding(one.finding), one.suppression
    return NodeFinding(
        plain.rule, plain.health, plain.subject, plain.evidence, plain.action, plain.since, one.id,
        _STAGES[one.stage], one.times, one.finding.last, _said(one.acked),
        _said(suppression.said if suppression else None), suppression.until if suppression else 0.0,
    )  # fmt: skip


def _said(word: ledger.Word | None) -> Said | None:
    return None if word is None else Said(word.by, word.why, word.at)


def _collector(component: core.Component, state: NodeState) -> Collector:
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
        samples=[_series(s) for s in nodeinfo.completed(component.samples, state)],
    )


def _series(sample: types.Sample) -> Series:
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    return Series(f"wirewatch_{sample.metric.name}", labels, sample.value)
