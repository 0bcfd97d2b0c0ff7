"""What changed between two topologies, as a document."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.core import types
from wirewatch.core.topology import Topology
from wirewatch.export.documents import Health, health_name
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import Change
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.severity import severity
from wirewatch.verdict.drift.words import unknown_text


@dataclass(frozen=True, slots=True)
class Drift:
    """One change; `health` is how bad it would be on a node where `before` was accepted.

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
class DiffDocument:
    """`health` is the worst of the changes; `unknown`: what is not known of either, and so is no change."""

    schema: Literal["wirewatch.topology-diff/1"]
    at: float
    health: Health
    before: str
    after: str
    changes: list[Drift]
    unknown: list[str]


DIFF = TypeAdapter(DiffDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.topology-diff.1": DIFF}


def worst(changes: Sequence[Change]) -> types.Health:
    return max((severity(one).health for one in changes), default=types.Health.OK)


def difference(before: tuple[str, Topology], after: tuple[str, Topology], at: float) -> DiffDocument:
    """The document of two topologies, each with what it is of."""
    old, new = graph_of(before[1]), graph_of(after[1])
    changes = diff(old, new)
    return DiffDocument(
        schema="wirewatch.topology-diff/1", at=at, health=health_name(worst(changes)), before=before[0],
        after=after[0], changes=[_one(change) for change in changes],
        unknown=[
            f"{of}: {unknown_text(graph, one)}"
            for of, graph in ((before[0], old), (after[0], new))
            for one in graph.unknown
        ],
    )  # fmt: skip


def _one(change: Change) -> Drift:
    how = severity(change)
    return Drift(
        kind=change.kind.value, part=change.part, before=change.before, after=change.after, text=change.text,
        health=health_name(how.health), action=how.action, probation=how.probation,
    )  # fmt: skip
