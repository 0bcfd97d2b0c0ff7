"""The baseline and what is different from it, as documents; and the order that accepts it."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter

from wirewatch.export.healthdocuments import Health


@dataclass(frozen=True, slots=True)
class Drift:
    """One change; `health` is how bad it is on a node where what was before is the baseline.

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
class Unaccepted(Drift):
    """A change that nobody has accepted: `id` is for `topology accept`, `since` in Unix seconds."""

    id: str
    since: float


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """A change that was meant: who said so, why, when (Unix seconds)."""

    kind: str
    part: str
    text: str
    by: str
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class BaselineDocument:
    """Who accepted it, why, when (Unix seconds); `origin`: `learned` or `accepted`. `shape`: its name."""

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
    """`baseline` is null while there is none, and `learning` says why; `unknown`: what is not read now."""

    schema: Literal["wirewatch.topology-drift/1"]
    at: float
    health: Health
    baseline: BaselineDocument | None
    learning: str
    changes: list[Unaccepted]
    unknown: list[str]


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


@dataclass(frozen=True, slots=True)
class AcceptOrder:
    """Accept all that is there now, or one change by its id; who says so, and why."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    by: Annotated[str, Field(min_length=1, max_length=200)]
    why: Annotated[str, Field(min_length=1, max_length=1000)]
    change: Annotated[str, Field(max_length=16)] = ""


DIFF = TypeAdapter(DiffDocument)
DRIFT = TypeAdapter(DriftDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {
    "wirewatch.topology-diff.1": DIFF,
    "wirewatch.topology-drift.1": DRIFT,
}
