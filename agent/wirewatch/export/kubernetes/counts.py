"""The node condition as metrics: what is told, when the API server last took it, and how often it did not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wirewatch.core.types import Kind, Metric, Sample
from wirewatch.export.kubernetes.condition import Condition, Status
from wirewatch.export.kubernetes.outcome import Result

STATUS = Metric(
    "node_condition_status",
    Kind.GAUGE,
    ("status",),
    "1 for the status of the node condition that the agent tells, or wants to; all 0 while there is none.",
    undrawn="Kubernetes only, where kube-state-metrics shows node conditions",
)
TRANSITION = Metric(
    "node_condition_last_transition_timestamp_seconds",
    Kind.GAUGE,
    (),
    "Since when the node condition has this status; 0 while there is none.",
    undrawn="Kubernetes only, where kube-state-metrics shows node conditions",
)
UPDATED = Metric(
    "node_condition_last_update_timestamp_seconds",
    Kind.GAUGE,
    (),
    "When the API server last took the node condition; 0 for never.",
    undrawn="Kubernetes only, where kube-state-metrics shows node conditions",
)
UPDATES = Metric(
    "node_condition_updates_total",
    Kind.COUNTER,
    ("result",),
    "Requests to the API server, by what became of them.",
    undrawn="Kubernetes only, where kube-state-metrics shows node conditions",
)
METRICS = (STATUS, TRANSITION, UPDATED, UPDATES)


@dataclass(frozen=True, slots=True)
class Told:
    """What there is to tell."""

    condition: Condition | None = None
    updated_at: float = 0.0
    updates: Mapping[Result, int] = field(default_factory=lambda: dict.fromkeys(Result, 0))


def samples(told: Told) -> Iterator[Sample]:
    mine = told.condition
    for status in Status:
        yield STATUS.sample(mine is not None and mine.status is status, status.value.lower())
    yield TRANSITION.sample(mine.transition if mine else 0.0)
    yield UPDATED.sample(told.updated_at)
    for result, count in told.updates.items():
        yield UPDATES.sample(count, result.value)
