"""The documents of the baseline and of differences between topologies; and the order that accepts one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from wirewatch.core import types
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import HEALTH_NAMES, Health
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import TopologyChange, severity
from wirewatch.verdict.drift.component import NAME, DriftMemory
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.watch import DriftWatch, is_accepted, name_of, standing
from wirewatch.verdict.drift.wiring import Graph, fingerprint, unknown_text


@dataclass(frozen=True, slots=True)
class DriftChange:
    """One change of the topology; `health` is how bad it is where `before` is the baseline.

    `part`, `before` and `after` by lasting names; `probation`: whether the part is watched as if repaired.
    """

    kind: str
    part: str
    before: str
    after: str
    text: str
    health: Health
    action: str
    probation: bool


@dataclass(frozen=True, slots=True)
class UnacceptedChange(DriftChange):
    """A change that no operator has accepted: `id` is for `topology accept`, `since` in Unix seconds."""

    id: str
    since: float


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """A change that an operator accepted: by whom, why and when (Unix seconds)."""

    kind: str
    part: str
    text: str
    by: str
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class BaselineDocument:
    """The accepted topology: by whom, why and when (Unix seconds).

    `origin`: `learned` or `accepted`. `shape`: the name of the topology, null while it is not known.
    """

    origin: str
    by: str
    why: str
    at: float
    gpus: int
    nics: int
    shape: str | None
    accepted: list[AcceptedChange]


@dataclass(frozen=True, slots=True)
class DriftDocument:
    """The differences from the baseline.

    `baseline` is null while there is none, and `learning` says why. `unknown`: what cannot be read now.
    `said`: what an order has done, in the answer to it.
    """

    schema: Literal["wirewatch.topology-drift/1"]
    at: float
    health: Health
    baseline: BaselineDocument | None
    learning: str
    changes: list[UnacceptedChange]
    unknown: list[str]
    said: str = ""


@dataclass(frozen=True, slots=True)
class DiffDocument:
    """The differences between two topologies.

    `health` is the worst of the changes. `unknown`: what is not known of one of them, which is no change.
    """

    schema: Literal["wirewatch.topology-diff/1"]
    at: float
    health: Health
    before: str
    after: str
    changes: list[DriftChange]
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class AcceptOrder:
    """Accept the whole topology as it is now, or one change by its id; by whom, and why.

    `yes`: also where a part is lost or down, or less is here than should be.
    `undo`: take it back instead, the change by its id, or the whole topology for the baseline before it.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    by: Annotated[str, Field(min_length=1, max_length=200)]
    why: Annotated[str, Field(min_length=1, max_length=1000)]
    change: Annotated[str, Field(max_length=16)] = ""
    yes: bool = False
    undo: bool = False


DIFF = TypeAdapter(DiffDocument)
DRIFT = TypeAdapter(DriftDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {
    "wirewatch.topology-diff.1": DIFF,
    "wirewatch.topology-drift.1": DRIFT,
}


def difference(before: tuple[str, Topology], after: tuple[str, Topology], at: float) -> DiffDocument:
    """The document of two topologies, each with its name; `at` in Unix seconds."""
    old, new = graph_of(before[1]), graph_of(after[1])
    changes = diff(old, new)
    return DiffDocument(
        schema="wirewatch.topology-diff/1", at=at, health=HEALTH_NAMES[worst(changes)], before=before[0],
        after=after[0], changes=[DriftChange(**_fields(change)) for change in changes],
        unknown=[
            *(f"{before[0]}: {line}" for line in _unknown(old)),
            *(f"{after[0]}: {line}" for line in _unknown(new)),
        ],
    )  # fmt: skip


def drift_of_state(state: NodeState, at: float) -> DriftDocument:
    """The document of the drift component at `at` (Unix seconds); empty without one."""
    known = state.components.get(NAME, Component(NAME, DriftMemory())).memory
    return drift_of(known.watch, known.baseline, at)


def drift_of(watch: DriftWatch, baseline: Baseline | None, at: float) -> DriftDocument:
    """The document of the newest reading against a baseline, which may be newer."""
    changes = [] if baseline is None else list(_unaccepted(watch, baseline, at))
    return DriftDocument(
        schema="wirewatch.topology-drift/1", at=at,
        health=HEALTH_NAMES[worst(change for change, _ in changes)],
        baseline=None if baseline is None else _baseline(baseline), learning=watch.learning,
        changes=[
            UnacceptedChange(**_fields(change), id=name_of(change), since=since) for change, since in changes
        ],
        unknown=[] if watch.graph is None else _unknown(watch.graph),
    )  # fmt: skip


def worst(changes: Iterable[TopologyChange]) -> types.Health:
    """The worst health of the changes; OK for none."""
    return max((severity(one).health for one in changes), default=types.Health.OK)


def _unaccepted(watch: DriftWatch, baseline: Baseline, at: float) -> Iterator[tuple[TopologyChange, float]]:
    """Changes that no operator has accepted, each with its time (Unix seconds)."""
    if watch.against == (baseline.graph, baseline.said):
        yield from ((one.change, one.since) for one in standing(watch, baseline))
    elif watch.graph is not None:
        found = diff(baseline.graph, watch.graph)
        yield from ((change, at) for change in found if not is_accepted(baseline, change))


def _fields(change: TopologyChange) -> dict[str, Any]:
    how = severity(change)
    return {
        "kind": change.kind.value, "part": change.part, "before": change.before, "after": change.after,
        "text": change.text, "health": HEALTH_NAMES[how.health], "action": how.action,
        "probation": how.probation,
    }  # fmt: skip


def _unknown(graph: Graph) -> list[str]:
    return [unknown_text(graph, one) for one in graph.unknown]


def _baseline(baseline: Baseline) -> BaselineDocument:
    shape, said = fingerprint(baseline.graph), baseline.said
    return BaselineDocument(
        origin=baseline.origin, by=said.by, why=said.why, at=said.at, gpus=len(baseline.graph.gpus),
        nics=len(baseline.graph.nics), shape=None if isinstance(shape, Absent) else shape,
        accepted=[
            AcceptedChange(one.kind, one.part, one.text, one.said.by, one.said.why, one.said.at)
            for one in baseline.accepted
        ],
    )  # fmt: skip
