"""Hints of running jobs for JSON documents: what they show without being measured, and no verdict."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from wirewatch.core.collector import NodeState
from wirewatch.jobs.bursts import BurstFacts
from wirewatch.jobs.lockstep import Hint, LockstepFacts, UnevenWork
from wirewatch.jobs.times import JobsFacts

HintKind = Literal["slow_gpu", "uneven_work", "slower_collectives", "late_gpu", "slow_wire"]
_OF_JOBS: dict[str, HintKind] = {"late": "late_gpu", "wire": "slow_wire"}


@dataclass(frozen=True, slots=True)
class ReportedHint:
    """What a running job shows of a part, which changes no verdict; `text` has the figures.

    `kind`: `slow_gpu` never waits for its peers at equal work; `uneven_work` is a GPU that has more work and
    is not slow; of `slower_collectives` the plateau on NVLink fell below the job's own past; `late_gpu` and
    `slow_wire` are what the tap times in the job. `subject` by level: gpu, uuid; empty for the node. `since`
    in Unix seconds.
    """

    kind: HintKind
    subject: dict[str, str]
    since: float
    text: str


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
