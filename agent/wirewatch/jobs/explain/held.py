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
    """An answer, and `since` when its sentence is shown, in Unix seconds."""

    answer: JobAnswer
    since: float


def held(previous: HeldAnswer | None, new: JobAnswer, now: float) -> HeldAnswer:
    """Return the answer that is shown at `now` (Unix seconds), after `previous` was.

    While the same wall and GPU are named, the sentence holds and all else is new. A clock that was put back
    holds nothing.
    """
    if previous is None:
        return HeldAnswer(new, now)
    was, since = previous.answer, previous.since
    same = (was.wall, was.gpu) == (new.wall, new.gpu)
    if was.wall is Wall.STARTING or not since <= now < since + HOLD or _surer(new) > _surer(was):
        return HeldAnswer(new, since if new.sentence == was.sentence else now)
    if not same:
        return previous
    sentence, cost = (new.sentence, new.cost) if new.wall in _FIRM else (was.sentence, was.cost)
    return HeldAnswer(replace(new, sentence=sentence, cost=cost), since)


def _surer(answer: JobAnswer) -> tuple[int, int]:
    """Return what orders answers by how sure they are; that nothing is wrong is the least sure."""
    if answer.wall in _FIRM:
        return _FIRM.index(answer.wall) + 1, 0
    return 0, 0 if answer.wall in {Wall.NOTHING, Wall.COMPUTING} else _SURE.index(answer.certainty)


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
