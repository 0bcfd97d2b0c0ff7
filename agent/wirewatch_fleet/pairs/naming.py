"""Names slow parts from all measurements so far, with suspects and members measured too little. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch.core.statistics import grouped, spread
from wirewatch_fleet.pairs.alone import CollisionLoss, by_runs_alone, collisions
from wirewatch_fleet.pairs.crowd import unseen
from wirewatch_fleet.pairs.model import (
    MeasuredRound,
    NamedPart,
    PairFleet,
    PairLimits,
    Rate,
    SlowPlace,
    WayLoss,
)
from wirewatch_fleet.pairs.observations import ALL_RAILS, Observation, across, observations, typical_rate
from wirewatch_fleet.pairs.spread import JudgedPart, NamingBar
from wirewatch_fleet.pairs.survey import KINDS, Found, Survey

SILENT = 3
"""Runs without any answer after which a member is not asked again."""
SURE = 2.0
"""Standard deviations on both sides of a loss."""


@dataclass(frozen=True, slots=True)
class MemberPace:
    """A member's own losses, by the median of its runs that nothing else explains; None without any."""

    name: str
    runs: int
    answered: int
    sends: float | None
    receives: float | None


@dataclass(frozen=True, slots=True)
class TypicalRate:
    """Bytes per second that runs of a kind typically gave. `across`: leafs; None where they are not known."""

    measure: Measure
    across: bool | None
    rate: Rate


@dataclass(frozen=True, slots=True)
class Assessment:
    """The assessment of all rounds. `thin`: members with too few informative runs; `silent`: without any.

    `unconfirmed`: parts that lack only runs alone to be named. `unseen`: members that others may have slowed
    in each of their runs, the likeliest first. `collisions`: losses of all when they run at once.

    `spread`: standard deviation of healthy members, as a share; `seen_from`: the least loss of a node that is
    named after so many rounds. Both are None where nothing was measured.
    """

    named: tuple[NamedPart, ...]
    suspects: tuple[NamedPart, ...]
    members: tuple[MemberPace, ...]
    thin: tuple[str, ...]
    silent: tuple[str, ...]
    typical: tuple[TypicalRate, ...]
    spread: float | None
    seen_from: float | None
    unconfirmed: tuple[NamedPart, ...] = ()
    unseen: tuple[str, ...] = ()
    collisions: tuple[CollisionLoss, ...] = ()

    @property
    def open(self) -> tuple[NamedPart, ...]:
        """Return all slow parts that are not yet named."""
        return (*self.unconfirmed, *self.suspects)


def assess(fleet: PairFleet, rounds: Sequence[MeasuredRound], limits: PairLimits) -> Assessment:
    """Return named and unnamed parts by all rounds so far; runs of names outside the fleet are left out."""
    names = {one.name for one in fleet.members}
    rounds = [
        MeasuredRound(one.round, [run for run in one.runs if {run.first, run.second} <= names])
        for one in rounds
    ]
    surveys = _surveys(rounds, fleet.leafs(), limits)
    first = surveys[0] if surveys else None
    paces = _paces(fleet, rounds, first)
    silent = tuple(one.name for one in paces if one.runs >= SILENT and not one.answered)
    borne = [(by_runs_alone(survey, limits), survey) for survey in surveys]
    named = _parts((one.named, survey) for one, survey in borne)
    unconfirmed = _parts((one.unconfirmed, survey) for one, survey in borne)
    suspects = _parts((one.suspects, survey) for one, survey in borne)
    bad = frozenset(
        part.place.name for part in (*named, *unconfirmed, *suspects) if part.place.kind is PartKind.NODE
    )
    return Assessment(
        named, suspects, paces,
        tuple(
            one.name for one in paces
            if one.name not in silent and _thin(one.name, first, limits, len(names))
        ),
        silent,
        tuple(
            TypicalRate(survey.every[0].measure, kind, rate)
            for survey in surveys for kind, rate in typical_rate(survey.every).items()
        ),
        None if first is None else -math.expm1(-first.spread.deviation(1)),
        None if first is None else _seen_from(first, limits, len(names)),
        unconfirmed,
        tuple(dict.fromkeys(
            name for survey in surveys for name, _ in unseen(survey.ends, survey.crowded, survey.slow)
            if name not in bad
        )),
        tuple(one for survey in surveys for one in collisions(survey, rounds, bad)),
    )  # fmt: skip


def crowded_across(fleet: PairFleet, rounds: Sequence[MeasuredRound], limits: PairLimits) -> bool:
    """Return whether runs across leafs share routes, by the first measure."""
    leafs = fleet.leafs()
    every = next((some for measure in Measure if (some := observations(rounds, measure, leafs))), [])
    survey = Survey(every, leafs, limits)
    if every:
        survey.first_look()
    return any(kind.across for kind in survey.crowded)


def _surveys(rounds: Sequence[MeasuredRound], leafs: Mapping[str, str], limits: PairLimits) -> list[Survey]:
    """Make a survey for each measure; a part that a survey names or suspects is not judged by the next."""
    made: list[Survey] = []
    for measure in Measure:
        every = observations(rounds, measure, leafs)
        if not every:
            continue
        known = [found for survey in made for found in (*survey.named, *survey.suspects)]
        before = frozenset(
            one for one in every if any(covers(found.place, found.way, one, leafs) for found in known)
        )
        survey = Survey(every, leafs, limits, before)
        survey.run()
        made.append(survey)
    return made


def covers(place: SlowPlace, way: Way, one: Observation, leafs: Mapping[str, str]) -> bool:
    """Return whether a part lies on the way of a run, for an all_reduce on either of its two ways."""
    if place.kind is PartKind.RAIL:
        return True
    if place.kind is PartKind.PAIR:
        same = (one.sender, one.receiver) == (place.name, place.peer)
        back = (one.receiver, one.sender) == (place.name, place.peer)
        return same or (back and Way.TOGETHER in {way, one.ends[0][1]})
    if place.kind is PartKind.LEAF and place.across and not one.across:
        return False
    ends = [(leafs.get(name, "") if place.kind is PartKind.LEAF else name, end) for name, end in one.ends]
    return any(name == place.name and (end is way or Way.TOGETHER in {way, end}) for name, end in ends)


def _parts(found: Iterable[tuple[Sequence[Found], Survey]]) -> tuple[NamedPart, ...]:
    """Return parts with all their directions, the slowest first."""
    ways = grouped(
        ((one.place, survey.every[0].measure), _loss(one.way, one.judged))
        for some, survey in found for one in some
    )  # fmt: skip
    parts = [NamedPart(place, measure, tuple(losses)) for (place, measure), losses in ways.items()]
    return tuple(sorted(parts, key=lambda one: (-one.loss, one.place.name, one.place.peer, one.place.rail)))


def _loss(way: Way, judged: JudgedPart) -> WayLoss:
    sure = SURE * judged.error
    return WayLoss(
        way, _share(judged.loss), _share(judged.loss - sure), _share(judged.loss + sure),
        judged.slow, judged.rounds, len(judged.partners), judged.deviations, judged.alone, judged.alone_slow,
    )  # fmt: skip


def _share(loss: float) -> float:
    return -math.expm1(-max(0.0, loss))


def _paces(
    fleet: PairFleet, rounds: Sequence[MeasuredRound], survey: Survey | None
) -> tuple[MemberPace, ...]:
    runs = Counter(name for one in rounds for pair in one.round.pairs for name in pair)
    ended = [run for one in rounds for run in one.runs if run.answered]
    answered = Counter(name for run in ended for name in (run.first, run.second))
    return tuple(
        MemberPace(
            name, runs[name], answered[name],
            *(_pace(survey, name, way) for way in (Way.SENDS, Way.RECEIVES)),
        )
        for name in (one.name for one in fleet.members)
    )  # fmt: skip


def _pace(survey: Survey | None, name: str, way: Way) -> float | None:
    if survey is None:
        return None
    judged = survey.nodes.get((name, way)) or survey.nodes.get((name, Way.TOGETHER))
    return -math.expm1(-judged.loss) if judged is not None and judged.rounds else None


def _thin(name: str, survey: Survey | None, limits: PairLimits, members: int) -> bool:
    """Return whether a member has too few runs, in either direction, that are informative about it alone.

    In a leaf that is also slow inside, no run is, and more of them would not help.
    """
    if survey is None:
        return True
    leaf = survey.leafs.get(name)
    if any(one.place == SlowPlace(PartKind.LEAF, leaf) for one in survey.named if leaf):
        return False
    ends: list[tuple[str, Way]] = [end for end in ((name, way) for way in Way) if end in survey.ends]
    judged = [survey.nodes[end] for end in ends]
    # Where many runs say nothing of their ends, fewer that do must do.
    enough = limits.first - bool(survey.crowded)
    partners = min(enough, members - 1)
    return any(
        one.rounds < enough or len(one.partners) < partners for one in judged
    ) or len(ends) < min(2, len(survey.ways))  # fmt: skip


def _seen_from(survey: Survey, limits: PairLimits, members: int) -> float:
    bar = NamingBar(2 * members, limits.error / KINDS, limits)
    return -math.expm1(-max(bar.least, bar.deviations * survey.spread.deviation(limits.first)))


def explained(
    named: Collection[NamedPart], sender: str, receiver: str, leafs: Mapping[str, str], rail: str = ALL_RAILS
) -> float:
    """Return the greatest loss of named parts on the way between two members; 0 for none."""
    one = Observation(Measure.SEND, 0, sender, receiver, across(leafs, sender, receiver), {ALL_RAILS: 0.0})
    return max(
        (way.loss for part in named for way in part.losses
         if part.place.rail in {ALL_RAILS, rail} and covers(part.place, way.way, one, leafs)),
        default=0.0,
    )  # fmt: skip


FEW = 3
"""Earlier results needed to show their spread; with fewer, twice the least loss counts."""
DEVIATIONS = 4.0


@dataclass(frozen=True, slots=True)
class AlikeLoss:
    """All runs of a kind are slower than they were: by which share, than which rate in bytes per second.

    `results`: how many earlier ones have that rate, of which it is the median.
    """

    measure: Measure
    across: bool | None
    loss: float
    past: float
    results: int


def alike(
    now: Sequence[TypicalRate], earlier: Sequence[Sequence[TypicalRate]], limits: PairLimits
) -> tuple[AlikeLoss, ...]:
    """Return kinds of runs that are slower than in earlier results by more than these differ."""
    return tuple(found for one in now if (found := _beside(one, earlier, limits)) is not None)


def _beside(
    one: TypicalRate, earlier: Sequence[Sequence[TypicalRate]], limits: PairLimits
) -> AlikeLoss | None:
    rates = [
        other.rate for some in earlier for other in some
        if (other.measure, other.across) == (one.measure, one.across)
    ]  # fmt: skip
    if not rates:
        return None
    usual = median(rates)
    loss = math.log(usual / one.rate)
    least = -math.log1p(-limits.least)
    differ = spread([math.log(rate / usual) for rate in rates], 0.0)
    if loss < (2 * least if len(rates) < FEW else max(least, DEVIATIONS * differ)):
        return None
    return AlikeLoss(one.measure, one.across, -math.expm1(-loss), usual, len(rates))
