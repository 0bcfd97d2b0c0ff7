"""The type of the JSON document of `wirewatch check`; docs/schemas is made from it.

The command itself builds the document by hand: importing this takes longer than its answer.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.export.documents import Health, Probe, Stage


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A finding that counts; `id` and `stage` are empty where no daemon and no look has given it one."""

    id: str
    stage: Stage | Literal[""]
    rule: str
    health: Health
    subject: dict[str, str]
    evidence: str
    action: str
    since: float


@dataclass(frozen=True, slots=True)
class CheckDocument:
    """Whether a job may start: it may unless `health` is one of `fail_on`, the healths that were asked for.

    `source`: the daemon's word, a look of its own, or none where neither was to be had in time; `why`: why it
    is not the daemon's, and what else is to be known, in words. `verdict_at`: when the node was last polled
    for it, Unix seconds, 0 for never. `probe` null: switched off, or nothing here to probe; its `fresh` is by
    `--max-age` where that was given, its `required` also by `--require-fresh-probe`.
    """

    schema: Literal["wirewatch.check/1"]
    at: float
    health: Health
    may_start: bool
    fail_on: list[Health]
    source: Literal["daemon", "own", "none"]
    why: str
    verdict_at: float
    probe: Probe | None
    findings: list[CheckFinding]


CHECK = TypeAdapter(CheckDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.check.1": CHECK}
