"""A first line holds for a while, unless a surer line comes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wirewatch.core.types import Absent
from wirewatch.jobs.explain.evidence import Certainty, JobAnswer, JobEvidence, Wall

JobKey = tuple[str, str, float]
"""The name of a job, its first GPU (UUID), and its start: one owner may have several jobs."""
HOLD = 15.0
"""Seconds for which a first line holds."""
_WELL = frozenset({Wall.NOTHING, Wall.COMPUTING})
_FIRM = (Wall.STANDING, Wall.HANG)
"""Walls that are surer than all others, the surest last; their sentences say how long, and go on with it."""
_SURE = (Certainty.LOW, Certainty.MEDIUM, Certainty.HIGH)


def job_key(evidence: JobEvidence) -> JobKey:
    """Return the key of a job; it starts with its lowest process, or its first ring where none is known."""
    since = 0.0 if isinstance(evidence.job, Absent) else evidence.job.since
    return evidence.name, evidence.gpus[0].uuid if evidence.gpus else "", min(evidence.pids, default=since)


@dataclass(frozen=True, slots=True)
class HeldAnswer:
    """An answer, and `since` when its sentence is shown, in Unix seconds."""

    answer: JobAnswer
    since: float


def held(previous: HeldAnswer | None, new: JobAnswer, now: float) -> HeldAnswer:
    """Return the answer that is shown at `now` (Unix seconds), after `previous` was.

    While the same wall and GPU are named, the sentence holds and all else is new. Beside another answer it is
    no surer than that. Where nothing is known now, nothing is well. A clock that went back holds nothing.
    """
    if previous is None:
        return HeldAnswer(new, now)
    was, since = previous.answer, previous.since
    same = (was.wall, was.gpu) == (new.wall, new.gpu)
    lost = was.wall in _WELL and new.wall is Wall.NOT_KNOWN
    if was.wall is Wall.STARTING or lost or not since <= now < since + HOLD or _surer(new) > _surer(was):
        return HeldAnswer(new, since if new.sentence == was.sentence else now)
    if not same:
        sure = min(new.certainty, was.certainty, key=_SURE.index)
        return HeldAnswer(replace(was, certainty=sure), since)
    sentence, cost = (new.sentence, new.cost) if new.wall in _FIRM else (was.sentence, was.cost)
    return HeldAnswer(replace(new, sentence=sentence, cost=cost), since)


def _surer(answer: JobAnswer) -> tuple[int, int]:
    """Return what orders answers by how sure they are; that nothing is wrong is the least sure."""
    if answer.wall in _FIRM:
        return _FIRM.index(answer.wall) + 1, 0
    return 0, 0 if answer.wall in _WELL else _SURE.index(answer.certainty)


class HeldAnswers:
    """Keeps the answers that are shown now, by job; all that asks for running jobs shares them."""

    def __init__(self) -> None:
        self._by_job: Mapping[JobKey, HeldAnswer] = {}

    def shown(self, new: Mapping[JobKey, JobAnswer], now: float) -> Mapping[JobKey, HeldAnswer]:
        """Return the shown answer of each job at `now`, and forget jobs that are gone."""
        self._by_job = {key: held(self._by_job.get(key), answer, now) for key, answer in new.items()}
        return self._by_job
