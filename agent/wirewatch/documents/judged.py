"""From the judged node to its documents: health, findings, state, topology and jobs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from wirewatch.collectors.inventory import InventoryFacts
from wirewatch.core import collector as core
from wirewatch.core import types
from wirewatch.core.collector import NodeState
from wirewatch.core.topology import Topology
from wirewatch.core.types import Failed, value_or
from wirewatch.documents import series
from wirewatch.documents.health import (
    HEALTH_NAMES,
    GateOrder,
    Health,
    HealthDocument,
    NodeFinding,
    NodeGpu,
    ProbeStatus,
    ReportedFinding,
    SameCause,
    Stage,
)
from wirewatch.documents.jobs import ExplainedJob, JobsDocument
from wirewatch.documents.state import (
    CollectorState,
    FindingsDocument,
    HintKind,
    ReportedHint,
    Series,
    StateDocument,
    TopologyDocument,
)
from wirewatch.jobs.bursts import BurstFacts
from wirewatch.jobs.explain.gather import jobs_of
from wirewatch.jobs.explain.held import HeldAnswers, job_key
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.lockstep import Hint, LockstepFacts, UnevenWork
from wirewatch.jobs.times import JobsFacts
from wirewatch.probe.collector import PROBE_NAME, probe_summary
from wirewatch.verdict import node
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.component import NAME as DRIFT
from wirewatch.verdict.drift.component import DriftMemory
from wirewatch.verdict.drift.watch import DriftWatch, accepted_losses, name_of_accepted
from wirewatch.verdict.ledger import name_of
from wirewatch.verdict.node import Judged

_OF_JOBS: dict[str, HintKind] = {"late": "late_gpu", "wire": "slow_wire"}
STAGES: dict[str, Stage] = {
    node.LIVE: "live",
    node.LATCHED: "latched",
    node.PROBATION: "probation",
    node.ASIDE: "aside",
    node.REPAIRED: "repaired",
    node.SUPPRESSED: "suppressed",
}


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The daemon's own status: `at` and `released_until` in Unix seconds, `mono` in monotonic seconds."""

    at: float
    mono: float
    turning: bool = True
    released_until: float = 0.0
    fresh_required: bool = False
    host: str = ""


def health(judged: Judged, daemon: DaemonStatus) -> HealthDocument:
    """The document of `/health`."""
    verdict = judged.verdict
    return HealthDocument(
        "wirewatch.health/1", daemon.at, HEALTH_NAMES[verdict.health], verdict.job_ready, judged.polled_at,
        daemon.turning, daemon.released_until,
        probe_status(judged.state, daemon.mono, required=daemon.fresh_required),
        [standing(s) for s in verdict.standings if s.takes_part],
        [HEALTH_NAMES[one] for one in sorted(verdict.fail_on)],
        probe_exempt=is_exempt(judged.state, daemon.mono), suppressed=suppressed(verdict),
        aside=[standing(s) for s in verdict.standings if s.stage == node.ASIDE],
        base=HEALTH_NAMES[verdict.base], gpus=gpus(judged.state),
        orders=list(gate_orders(judged)), host=daemon.host,
    )  # fmt: skip


def gpus(state: NodeState) -> list[NodeGpu] | None:
    """Every GPU that was seen, by all its names; None before the inventory has read any."""
    inventory = state.facts(InventoryFacts)
    if inventory is None:
        return None
    minors = {key: value_or(one.texts.get("minor", ""), "") for key, one in inventory.gpus.items()}
    return [
        NodeGpu(str(one.gpu.index), minors[key], one.gpu.uuid, one.gpu.pci, one.split)
        for key, one in inventory.gpus.items()
    ]


def suppressed(verdict: node.Verdict) -> list[NodeFinding]:
    """Findings that an operator suppressed, worst first."""
    return [standing(s) for s in verdict.standings if s.stage == node.SUPPRESSED]


def gate_orders(judged: Judged) -> Iterator[GateOrder]:
    """Every order of an operator by which something keeps no job away, as long as that may come back."""
    for one in judged.verdict.standings:
        if one.stage == node.SUPPRESSED and one.suppression is not None:
            health, until = HEALTH_NAMES[one.suppression.health], one.suppression.until
            undo = f"wirewatch findings unsuppress {one.id}"
            yield _gate_order("suppress", _part(one.finding), health, one.suppression.said, undo, until)
    for key, entry in judged.ledger.entries.items():
        if entry.repaired is not None:
            undo, part = f"wirewatch findings repaired {name_of(key)} --undo", f"{entry.rule} {entry.subject}"
            yield _gate_order("repaired", part, HEALTH_NAMES[entry.health], entry.repaired, undo)
    drift = judged.state.components.get(DRIFT)
    if drift is not None and isinstance(drift.memory, DriftMemory) and drift.memory.baseline is not None:
        yield from _accepted(drift.memory.watch, drift.memory.baseline)


def _accepted(watch: DriftWatch, baseline: Baseline) -> Iterator[GateOrder]:
    """Changes that were accepted, and with which a node would else be FAILED."""
    for one in accepted_losses(watch, baseline):
        undo = f"wirewatch topology accept {name_of_accepted(one)} --undo"
        yield _gate_order("accept", one.text, "failed", one.said, undo)
    if baseline.without:
        undo = "wirewatch topology accept --undo"
        yield _gate_order("accept", "; ".join(baseline.without), "failed", baseline.said, undo)


def _gate_order(
    order: Literal["accept", "repaired", "suppress"], what: str, health: Health, said: types.OperatorNote,
    undo: str, until: float = 0.0,
) -> GateOrder:  # fmt: skip
    return GateOrder(order, what, health, said.by, said.why, said.at, until, undo)


def _part(one: types.Finding) -> str:
    return f"{one.rule} {one.subject}"


def findings(judged: Judged, at: float, said: str = "", host: str = "") -> FindingsDocument:
    """The document of all findings at `at` (Unix seconds); `said`: what an order has done."""
    verdict = judged.verdict
    every = [standing(s) for s in verdict.standings]
    return FindingsDocument(
        "wirewatch.findings/1", at, HEALTH_NAMES[verdict.health], verdict.job_ready, every, said, host
    )


def state(judged: Judged, at: float, source: str) -> StateDocument:
    """The document of the state at `at` (Unix seconds); `source` is live, replay or synthetic."""
    verdict = judged.verdict
    collectors = [_collector(c, judged.state) for c in judged.state.components.values()]
    return StateDocument(
        "wirewatch.state/1", at, HEALTH_NAMES[verdict.health], verdict.job_ready, source, collectors,
        hints_of(judged.state),
    )  # fmt: skip


def topology(state: NodeState, at: float) -> TopologyDocument:
    """The document of the last graph that was read; what cannot be read since is in the state document."""
    return TopologyDocument("wirewatch.topology/1", at, state.facts(Topology))


def jobs(
    state: NodeState, at: float, source: str, answers: HeldAnswers | None = None, host: str = ""
) -> JobsDocument:
    """The document of all running jobs at `at` (Unix seconds); `source` is live, replay or synthetic.

    `answers`: what is shown of them, which goes on. `host`: of this node, empty where that is not known.
    """
    found = {job_key(one): one for one in jobs_of(state, at, host)}
    shown = (answers or HeldAnswers()).shown({key: decide(one) for key, one in found.items()}, at)
    explained = [ExplainedJob(one.answer, found[key], one.since) for key, one in shown.items()]
    return JobsDocument("wirewatch.jobs/1", at, source, explained, host)


def finding(one: types.Finding) -> ReportedFinding:
    """A finding for a document."""
    return ReportedFinding(*_plain(one))


def standing(one: node.Standing) -> NodeFinding:
    """A finding for a document, with its stage and what operators said of it."""
    suppression = one.suppression
    return NodeFinding(
        *_plain(one.finding), one.id, STAGES[one.stage], one.times, one.finding.last, one.seen,
        suppression.said if suppression else None, suppression.until if suppression else 0.0,
        [SameCause(*_plain(other.finding), other.id) for other in one.same_cause],
        list(one.finding.others), one.repaired,
    )  # fmt: skip


def _plain(one: types.Finding) -> tuple[str, Health, dict[str, str], str, str, float]:
    return one.rule, HEALTH_NAMES[one.health], one.subject.levels(), one.evidence, one.action, one.since


def probe_status(state: NodeState, mono: float, *, required: bool) -> ProbeStatus | None:
    """The newest probe at `mono`, monotonic seconds; None when probing is off, or nothing can be probed.

    Where probing is off, and a fresh probe is required all the same, it is one that was never made.
    """
    found = probe_summary(state.components.get(PROBE_NAME), mono)
    if found is None:
        return ProbeStatus(0.0, None, fresh=False, required=True) if required else None
    if found.pointless:
        return None
    return ProbeStatus(found.at, found.age_seconds, found.fresh, required, list(found.no_expectation))


def is_exempt(state: NodeState, mono: float) -> bool:
    """True where nothing can be probed for sure, so that no fresh probe can be required."""
    found = probe_summary(state.components.get(PROBE_NAME), mono)
    return found is not None and found.pointless


def _collector(component: core.Component, state: NodeState) -> CollectorState:
    failed = component.outcome.absent if isinstance(component.outcome, Failed) else None
    return CollectorState(
        collector=component.name,
        health=None if component.health is None else HEALTH_NAMES[component.health],
        applicable=component.applicable,
        success=component.succeeding,
        error=None if failed is None else str(failed),
        overdue_since=component.overdue_since,
        last_success=component.last_success,
        duration_seconds=component.duration,
        failures=component.failures,
        findings=[finding(f) for f in component.findings],
        samples=[series_of(s) for s in series.with_node_labels(component.samples, state)],
    )


def series_of(sample: types.Sample) -> Series:
    """Return a sample for a document."""
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    return Series(sample.metric.exposed, labels, sample.value)


def hints_of(state: NodeState) -> list[ReportedHint]:
    """The hints that hold now, oldest first; none of a collector that cannot read now."""
    facts = [one.facts for one in state.components.values() if one.succeeding]
    return sorted((hint for one in facts for hint in _hints(one)), key=lambda hint: hint.since)


def _hints(facts: object) -> Iterator[ReportedHint]:
    if isinstance(facts, LockstepFacts):
        if facts.hint is not None:
            yield _of_lockstep("slow_gpu", facts.hint)
        if facts.uneven is not None:
            yield _of_lockstep("uneven_work", facts.uneven)
    elif isinstance(facts, BurstFacts):
        for one in facts.hints:
            yield ReportedHint("slower_collectives", _subject(one.gpu, one.uuid), one.since, one.text)
    elif isinstance(facts, JobsFacts):
        for hint in facts.hints:
            subject = {"uuid": hint.gpu} if hint.gpu else {}
            yield ReportedHint(_OF_JOBS[hint.kind], subject, hint.since, f"{hint.job}: {hint.text}")


def _of_lockstep(kind: HintKind, hint: Hint | UnevenWork) -> ReportedHint:
    return ReportedHint(kind, _subject(hint.gpu, hint.uuid), hint.since, hint.text)


def _subject(gpu: str, uuid: str) -> dict[str, str]:
    return {name: value for name, value in (("gpu", gpu), ("uuid", uuid)) if value}
