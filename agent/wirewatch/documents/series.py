"""Series of the daemon itself: verdict, findings, and the success and cost of its collectors."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple
from functools import lru_cache

from wirewatch import __version__
from wirewatch.collectors.inventory import NODE
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import LEVELS, Absent, Finding, Health, Sample, Tier, family
from wirewatch.probe.collector import PROBE_NAME as PROBE
from wirewatch.probe.model import ProbeMemory as Probes
from wirewatch.verdict.drift.component import NAME as DRIFT
from wirewatch.verdict.drift.component import DriftMemory as Drift
from wirewatch.verdict.drift.wiring import Graph, fingerprint
from wirewatch.verdict.node import STAGES, Judged

SUBJECT = ("rule", *LEVELS)
BUILD = family(
    "build_info",
    ("version", "source"),
    "Version of the agent; source is `live`, `replay`, or `synthetic` for a recording that was changed.",
    tier=Tier.CORE,
)
HEALTH = family("health", ("health",), "1 for the node's health now.", tier=Tier.CORE)
JOB_READY = family("job_ready", (), "1 when the next job may start on this node.", tier=Tier.CORE)
SEVERITY = family(
    "finding_severity",
    SUBJECT,
    "1 degraded, 2 failed; held while its collector cannot read; no series when nothing is wrong.",
    tier=Tier.CORE,
)
SINCE = family(
    "finding_since_timestamp_seconds", SUBJECT,
    "When the finding was first seen. What is UNKNOWN (`*.blind`: which GPU, link or collector cannot be "
    "read) has this series and no severity.", tier=Tier.CORE,
)  # fmt: skip
ACKNOWLEDGED = family(
    "finding_acknowledged_timestamp_seconds", SUBJECT,
    "When somebody said that the finding was seen (`wirewatch findings ack`). It counts as before, and "
    "Alertmanager sends no more of it.", tier=Tier.CORE,
    undrawn="it is about messages; `wirewatch findings list` says who",
)  # fmt: skip
FINDINGS = family(
    "findings", ("stage",),
    "How many findings there are: live, latched (not seen, not repaired), on probation, aside (of running "
    "jobs), repaired and suppressed. The last three do not count for the verdict; the last two have no "
    "other series.", tier=Tier.CORE,
)  # fmt: skip
RELEASED = family(
    "released_until_timestamp_seconds",
    (),
    "Until when `wirewatch release` holds; 0 when the GPUs are not released. UNKNOWN is expected meanwhile.",
    tier=Tier.CORE,
)
SUCCESS = family(
    "collector_success", ("collector",), "1 when the collector's last run succeeded in time.", tier=Tier.CORE,
)  # fmt: skip
DURATION = family("collector_duration_seconds", ("collector",), "How long its last run took.")
CPU = family(
    "collector_cpu_seconds_total",
    ("collector",),
    "CPU time of its runs in the agent; that of NVML itself is in agent_cpu_seconds_total of `nvml`.",
)
LAST = family(
    "collector_last_success_timestamp_seconds", ("collector",),
    "When the collector last succeeded; 0 for never.", tier=Tier.CORE,
)  # fmt: skip
FAILURES = family(
    "collector_failures_total", ("collector",), "Runs that failed or were overdue.", tier=Tier.CORE,
)  # fmt: skip
APPLICABLE = family(
    "collector_applicable", ("collector",), "1 when this node has something for it to watch.", tier=Tier.CORE,
)  # fmt: skip
METRICS = (
    BUILD, HEALTH, JOB_READY, SEVERITY, SINCE, ACKNOWLEDGED, FINDINGS, RELEASED, SUCCESS, DURATION, CPU, LAST,
    FAILURES, APPLICABLE,
)  # fmt: skip
_SEVERITY = {Health.DEGRADED: 1, Health.FAILED: 2}


def samples(judged: Judged, source: str) -> Iterable[Sample]:
    """All series of the daemon itself; `source` is live, replay or synthetic."""
    verdict = judged.verdict
    yield BUILD.sample(1, __version__, source)
    yield from node_info(judged.state)
    for health in Health:
        yield HEALTH.sample(verdict.health is health, health.name.lower())
    yield JOB_READY.sample(verdict.job_ready)
    for standing in verdict.standings:
        if standing.has_series:
            yield from _finding(standing.finding)
        if standing.has_series and standing.seen is not None:
            finding = standing.finding
            yield ACKNOWLEDGED.sample(standing.seen.at, finding.rule, *astuple(finding.subject))
    stages = [standing.stage for standing in verdict.standings]
    for stage in STAGES:
        yield FINDINGS.sample(stages.count(stage), stage)
    yield RELEASED.sample(judged.released_until)
    for component in judged.state.components.values():
        yield from _component(component)


def without_node_info(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """A component's samples without `node_info`, which has labels of several components."""
    return tuple(sample for sample in samples if sample.metric is not NODE)


def node_info(state: NodeState) -> Iterable[Sample]:
    """The series `node_info` alone, with all its labels."""
    for component in state.components.values():
        yield from with_node_labels((s for s in component.samples if s.metric is NODE), state)


def with_node_labels(samples: Iterable[Sample], state: NodeState) -> Iterable[Sample]:
    """A component's samples, `node_info` with all its labels; a label that is not known yet is empty."""
    for sample in samples:
        if sample.metric is NODE:
            product, gpus, driver, *_ = sample.labels
            yield NODE.sample(sample.value, product, gpus, driver, _nccl(state), _shape(state))
        else:
            yield sample


def _finding(finding: Finding) -> Iterator[Sample]:
    labels = (finding.rule, *astuple(finding.subject))
    severity = _SEVERITY.get(finding.health)
    if severity is not None:
        yield SEVERITY.sample(severity, *labels)
    if finding.health is not Health.OK:
        yield SINCE.sample(finding.since, *labels)


def _component(component: Component) -> Iterator[Sample]:
    name = component.name
    yield SUCCESS.sample(component.succeeding, name)
    yield DURATION.sample(component.duration, name)
    yield CPU.sample(component.cpu, name)
    yield LAST.sample(component.last_success, name)
    yield FAILURES.sample(component.failures, name)
    if component.applicable is not None:
        yield APPLICABLE.sample(component.applicable, name)


def _nccl(state: NodeState) -> str:
    component = state.components.get(PROBE)
    memory = None if component is None else component.memory
    last = memory.last if isinstance(memory, Probes) else None
    return "" if last is None else last.shown.versions.get("nccl", "")


def _shape(state: NodeState) -> str:
    component = state.components.get(DRIFT)
    memory = None if component is None else component.memory
    return _shape_name(memory.baseline.graph) if isinstance(memory, Drift) and memory.baseline else ""


@lru_cache(maxsize=1)
def _shape_name(graph: Graph) -> str:
    """The name of a topology, "" where it is not known. Cached: it takes 20 ms, at each change of state."""
    found = fingerprint(graph)
    return "" if isinstance(found, Absent) else found
