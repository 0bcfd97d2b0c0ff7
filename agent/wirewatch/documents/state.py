"""The documents of the state, the findings and the topology; docs/schemas is made from these types.

Commands read documents of the daemon with these types alone; `judged` has the functions that make them.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from wirewatch.core.topology import Topology
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import Health, HealthDocument, NodeFinding, ReportedFinding

PREFIX = "wirewatch_"
"""Prefix of the names of all series."""


@dataclass(frozen=True, slots=True)
class Series:
    """One sample of /metrics: `name` with its prefix, `value` in the unit that the name ends with."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class CollectorState:
    """A collector with its findings and samples.

    `health` null: nothing to watch on this node, takes no part; `applicable` null: not yet known. Times in
    Unix seconds, `last_success` 0 for never.
    """

    collector: str
    health: Health | None
    applicable: bool | None
    success: bool
    error: str | None
    overdue_since: float | None
    last_success: float
    duration_seconds: float
    failures: int
    findings: list[ReportedFinding]
    samples: list[Series]


HintKind = Literal["slow_gpu", "uneven_work", "slower_collectives", "late_gpu", "slow_wire"]


@dataclass(frozen=True, slots=True)
class ReportedHint:
    """A running job's hint about a part, which changes no verdict; `text` has the figures.

    `kind`: `slow_gpu` never waits for its peers at equal work; `uneven_work` is a GPU that has more work and
    is not slow; of `slower_collectives` the plateau on NVLink fell below the job's own past; `late_gpu` and
    `slow_wire` are what the tap times in the job. `subject` by level: gpu, uuid; empty for the node. `since`
    in Unix seconds.
    """

    kind: HintKind
    subject: dict[str, str]
    since: float
    text: str


@dataclass(frozen=True, slots=True)
class FindingsDocument:
    """All findings, worst first; those that do not count for the node's health are last.

    `said`: what an order has done, and how that ends; in the answer to an order alone. `host`: the node's
    name, empty for a recording.
    """

    schema: Literal["wirewatch.findings/1"]
    at: float
    health: Health
    job_ready: bool
    findings: list[NodeFinding]
    said: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class StateDocument:
    """All that the collectors know; `source` is live, replay or synthetic. `hints` change no verdict."""

    schema: Literal["wirewatch.state/1"]
    at: float
    health: Health
    job_ready: bool
    source: str
    collectors: list[CollectorState]
    hints: list[ReportedHint] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TopologyDocument:
    """The node as one graph; `topology` is null until it has been read once."""

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
