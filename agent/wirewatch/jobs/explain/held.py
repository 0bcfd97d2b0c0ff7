"""A first line holds for a while, unless a surer one comes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wirewatch.jobs.explain.evidence import Certainty, JobAnswer, Wall

JobKey = tuple[str, str]
"""The name of a job, and its first GPU (UUID): processes of one owner may be two jobs."""
HOLD = 15.0
"""Seconds for which a first line holds."""
_FIRM = (Wall.STANDING, Wall.HANG)
"""Walls that are surer than all others, the surest last; their sentences say how long, and go on with it."""
_SURE = (Certainty.LOW, Certainty.MEDIUM, Certainty.HIGH)


@dataclass(frozen=True, slots=True)
class HeldAnswer:
    """An answer; since when its wall and GPU are `named`, and `since` when in this sentence, in Unix seconds."""

    answer: JobAnswer
    named: float
    since: float


def held(previous: HeldAnswer | None, new: JobAnswer, now: float) -> HeldAnswer:
    """Return the answer that is shown at `now` (Unix seconds), after `previous` was.

    While the same is named, the sentence stays and all else is new. A clock that was put back holds nothing.
    """
    if previous is None or previous.answer.wall is Wall.STARTING or not previous.since <= now:
        return HeldAnswer(new, now, now)
    was = previous.answer
    same = (was.wall, was.gpu) == (new.wall, new.gpu)
    named = previous.named if same else now
    if _surer(new) > _surer(was) or (same and new.wall in _FIRM):
        return HeldAnswer(new, named, now)
    if not same:
        return previous if now < previous.named + HOLD else HeldAnswer(new, now, now)
    if now < previous.since + HOLD:
        return replace(previous, answer=replace(new, sentence=was.sentence, cost=was.cost))
    return HeldAnswer(new, named, now)


def _surer(answer: JobAnswer) -> tuple[int, int]:
    """Return what orders answers by how sure they are; that nothing is wrong is never the surest."""
    firm = _FIRM.index(answer.wall) + 1 if answer.wall in _FIRM else 0
    sure = _SURE.index(answer.certainty)
    return firm, min(sure, 1) if answer.wall is Wall.NOTHING else sure


class HeldAnswers:
    """The answers that are shown now, by job; all that asks for running jobs shares them."""

    def __init__(self) -> None:
        self._by_job: Mapping[JobKey, HeldAnswer] = {}

    def shown(self, new: Mapping[JobKey, JobAnswer], now: float) -> Mapping[JobKey, HeldAnswer]:
        """Return what is shown of each job at `now`, and forget those that are gone."""
        before = self._by_job
        made = {key: held(before.get(key), answer, now) for key, answer in new.items()}
        self._by_job = made
        return made
