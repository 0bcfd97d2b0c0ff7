"""Uses runs alone: they confirm a suspect or clear it, and show the cost of sharing links. Pure.

Runs of a round that may share a link are a single measurement. So a node or a pair is named only after slow
runs whose routes no other pair of the round could share (ADR 0106).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from wirewatch.core.pairs import Measure, PartKind
from wirewatch_fleet.pairs.crowd import ALWAYS, Crowd, End
from wirewatch_fleet.pairs.model import MeasuredRound, PairLimits, Rate, RoundPurpose
from wirewatch_fleet.pairs.observations import Observation, observations
from wirewatch_fleet.pairs.spread import PRIOR, WEIGHT, chance_enough
from wirewatch_fleet.pairs.survey import Found, Survey

CONTROLS = 2
"""Runs alone of others between the same leafs, for comparison with a pair."""
PARTNERS = 2
"""Partners with which a node must be slow alone."""


class AloneStanding(Enum):
    """A suspect's standing by its runs alone."""

    CONFIRMED = "confirmed"
    OPEN = "open"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Sorted:
    """Slow parts of a survey: `named`, parts that must still run alone, and suspects.

    Parts that were whole alone are in none of them.
    """

    named: list[Found]
    unconfirmed: list[Found]
    suspects: list[Found]


def by_runs_alone(survey: Survey, limits: PairLimits) -> Sorted:
    """Return a survey's parts, as far as runs alone confirm them; rails and leafs need none."""
    made = Sorted([], [], [])
    every = [*survey.named, *survey.suspects]
    asked = [one for one in every if _single(one)]
    bad = {(one.place.name, one.way): one for one in asked}
    for one in every:
        slow, runs, partners = _alone(one, survey, bad)
        found = Found(one.place, one.way, replace(one.judged, alone=runs, alone_slow=slow))
        named = one in survey.named
        standing = AloneStanding.CONFIRMED
        if _single(one) and limits.alone:
            chance = _chance(one, survey, bad)
            standing = stand(slow, runs, limits)
            few = one.place.kind is PartKind.NODE and partners < PARTNERS
            if one.place.kind is PartKind.PAIR and standing is not AloneStanding.CLEARED:
                standing = _beside_others(one, survey, standing)
            if few or not chance_enough(len(asked), slow, runs, chance, limits.error):
                standing = standing if standing is AloneStanding.CLEARED else AloneStanding.OPEN
        if standing is not AloneStanding.CLEARED:
            sure = made.named if standing is AloneStanding.CONFIRMED else made.unconfirmed
            (sure if named else made.suspects).append(found)
    return made


def stand(slow: int, runs: int, limits: PairLimits) -> AloneStanding:
    """Judge by the share of slow runs alone: a slow part gives no fast run."""
    if runs and slow < ALWAYS * runs:
        return AloneStanding.CLEARED
    return AloneStanding.CONFIRMED if runs >= limits.alone else AloneStanding.OPEN


def _beside_others(one: Found, survey: Survey, standing: AloneStanding) -> AloneStanding:
    """Return the standing of a pair across leafs beside other runs alone between the same leafs."""
    a, b = (survey.leafs.get(name, "") for name in (one.place.name, one.place.peer))
    if not (a and b) or a == b:
        return standing
    rail = one.place.rail
    others = [
        (seen.losses[rail] if rail else seen.loss) > survey.slow for seen in survey.every
        if seen.alone and rail in {"", *seen.losses}
        and (survey.leafs.get(seen.sender), survey.leafs.get(seen.receiver)) == (a, b)
        and not {seen.sender, seen.receiver} & {one.place.name, one.place.peer}
    ]  # fmt: skip
    if len(others) < CONTROLS:
        return AloneStanding.OPEN
    return AloneStanding.CLEARED if 2 * sum(others) >= len(others) else standing


def _single(one: Found) -> bool:
    return one.place.kind in {PartKind.NODE, PartKind.PAIR}


def _limit(one: Found, survey: Survey) -> float:
    return max(survey.bar(1).least, one.judged.loss / 2)


def _alone(one: Found, survey: Survey, bad: Mapping[End, Found]) -> tuple[int, int, int]:
    """Count slow runs alone, runs alone, and their partners, without runs with an equally slow partner."""
    place, limit = one.place, _limit(one, survey)
    slow, partners = [], set()
    for seen in survey.every:
        if not seen.alone or (place.name, one.way) not in seen.ends or place.rail not in {"", *seen.losses}:
            continue
        partner = next(end for end in seen.ends if end[0] != place.name)
        if place.kind is PartKind.PAIR:
            if (seen.sender, seen.receiver) != (place.name, place.peer):
                continue
        elif partner in bad and bad[partner].judged.loss >= limit:
            continue
        slow.append((seen.losses[place.rail] if place.rail else seen.loss) > limit)
        partners.add(partner[0])
    return sum(slow), len(slow), len(partners)


def _chance(one: Found, survey: Survey, bad: Mapping[End, Found]) -> float:
    """Return how often unsuspected nodes show such a loss alone, on this rail.

    Only kinds of runs that the part itself ran alone count, since traffic between leafs slows none inside.
    Other suspected pairs count: many at once are traffic.
    """
    rail, limit = one.place.rail, _limit(one, survey)
    ours = {one.place.name, *([one.place.peer] if one.place.peer else [])}
    nodes = {end for end, found in bad.items() if found.place.kind is PartKind.NODE}
    alone = [seen for seen in survey.every if seen.alone and rail in {"", *seen.losses}]
    kinds = {seen.across for seen in alone if ours <= {seen.sender, seen.receiver}}
    slow = [
        (seen.losses[rail] if rail else seen.loss) > limit for seen in alone
        if seen.across in kinds and not ours & {seen.sender, seen.receiver} and not nodes & {*seen.ends}
    ]  # fmt: skip
    seldom = (sum(slow) + PRIOR * WEIGHT) / (len(slow) + WEIGHT)
    return max(seldom, sum(slow) / len(slow)) if len(slow) >= CONTROLS else seldom


@dataclass(frozen=True, slots=True)
class CollisionLoss:
    """What runs of a kind lose when all pairs talk at once, and no node is at fault for.

    `loss`: of their mean rate, as a share of `rate`, bytes per second, which the same gives in `alone` runs
    alone; where `alone` is 0, `rate` is that of the fastest quarter. `slow` of `runs` runs have lost 10 % or
    more; `alone_slow` of the runs alone too, for which other traffic is the reason. `with_queues`: the loss
    with so many `queue_pairs` of each connection, null where that was not tried.
    """

    measure: Measure
    across: bool | None
    loss: float
    rate: Rate
    slow: int
    runs: int
    alone: int
    alone_slow: int
    queue_pairs: int = 0
    with_queues: float | None = None

    @property
    def traffic(self) -> bool:
        """Return whether runs alone are slow about as often, which means other traffic and no collision."""
        return self.alone_slow > 0 and 2 * self.alone_slow * self.runs >= self.slow * self.alone


def collisions(
    survey: Survey, rounds: Sequence[MeasuredRound], bad: frozenset[str]
) -> Iterator[CollisionLoss]:
    """Yield each crowded kind of runs, by the runs of members that are not `bad`."""
    measure = survey.every[0].measure
    tried = [one for one in rounds if one.round.purpose is RoundPurpose.QUEUES]
    again = observations(tried, measure, survey.leafs, tried=True)
    for across in sorted({one.across for one in survey.crowded}, key=str):
        every, more = (
            [one for one in some if one.across is across and not bad & {one.sender, one.receiver}]
            for some in (survey.every, again)
        )
        shared = [one for one in every if one.full]
        alone = [one for one in every if one.quiet and not one.queue_pairs] or [
            one for one in every if one.quiet
        ]
        if not shared:
            continue
        rate = _mean(alone) or math.exp(
            max(one.logs[r] + one.losses[r] for one in shared for r in one.losses)
        )
        mean = _mean(more)
        yield CollisionLoss(
            measure, across, max(0.0, 1 - _mean(shared) / rate), rate,
            sum(_slow(one, survey) for one in shared), len(shared),
            len(alone), sum(max(one.losses.values()) > survey.slow for one in alone),
            tried[0].round.queue_pairs if mean else 0, max(0.0, 1 - mean / rate) if mean else None,
        )  # fmt: skip


def _slow(one: Observation, survey: Survey) -> bool:
    return any(
        loss > survey.slow and Crowd(one.across, rail) in survey.crowded for rail, loss in one.losses.items()
    )


def _mean(some: Sequence[Observation]) -> float:
    """Return the mean rate of a rail over the runs; 0 for none."""
    rates = [math.exp(value) for one in some for value in one.logs.values()]
    return sum(rates) / len(rates) if rates else 0.0
