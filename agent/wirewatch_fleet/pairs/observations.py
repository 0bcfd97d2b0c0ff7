"""Each direction of each run as losses against similar pairs. Pure.

A loss is the negative logarithm of a rate over the typical rate of its class. Classes are runs inside a leaf
and runs across leafs, each in its own round while most of the fleet took part. The typical rate starts as the
upper quartile, which holds while less than two thirds of a class are slow. Then it is the median of the runs
that nothing named explains.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from wirewatch.core.pairs import Measure, Way
from wirewatch.core.statistics import grouped
from wirewatch_fleet.pairs.model import MeasuredRound, PairRun, RoundPurpose

UPPER = 0.75
QUARTER = 0.25
OWN = 24
"""Values of a class in a round that give the round its own typical rate."""
RAISED = 0.03
"""Logarithm by which pairs alone are faster than others, before they have their own typical rate."""
FEW = 8
"""Least number of clean values for a median."""
ALL_RAILS = ""
SMALL = frozenset({RoundPurpose.CONFIRM, RoundPurpose.ALONE})
"""Rounds of some members, which do not show the typical rate of all."""


@dataclass(slots=True, eq=False)
class Observation:
    """A direction of a run. `logs`: of its rates, by rail. `across`: None where a leaf is not known.

    `full`: of a round for all members, which shows typical rates; later rounds are of suspects. `alone`: no
    other pair of its round can share its routes.

    `losses`: by rail; `loss`: the least loss of all except a quarter of the unexplained rails. `masked`,
    `rails_masked`: the loss that a wider part explains, over all rails and by rail. `ends`: both members,
    each with the direction in which it takes part; `paces`: their own, by all their other runs.
    """

    measure: Measure
    round: int
    sender: str
    receiver: str
    across: bool | None
    logs: Mapping[str, float]
    full: bool = True
    alone: bool = False
    queue_pairs: int = 0
    losses: dict[str, float] = field(default_factory=dict)
    loss: float = 0.0
    masked: float = 0.0
    rails_masked: dict[str, float] = field(default_factory=dict)
    ends: tuple[tuple[str, Way], tuple[str, Way]] = field(init=False)
    paces: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        ways = (Way.SENDS, Way.RECEIVES)
        if self.measure is Measure.ALL_REDUCE:
            ways = (Way.TOGETHER, Way.TOGETHER)
        self.ends = ((self.sender, ways[0]), (self.receiver, ways[1]))

    @property
    def quiet(self) -> bool:
        """Return whether it ran alone, in a small round."""
        return self.alone and not self.full

    def explained(self, rail: str = ALL_RAILS) -> float:
        """Return the loss that named parts explain, on a rail or on all rails."""
        if rail:
            return max(self.masked, self.rails_masked.get(rail, 0.0))
        if self.rails_masked.keys() >= self.losses.keys():
            return max(self.masked, min(self.rails_masked.values()))
        return self.masked

    def see_loss(self) -> None:
        """Compute the loss again from the losses of the rails."""
        left = [loss for rail, loss in self.losses.items() if rail not in self.rails_masked]
        self.loss = all_but_a_quarter(left or self.losses.values())

    def mask(self, loss: float, rail: str = ALL_RAILS) -> None:
        """Mask a loss that a named part explains."""
        if rail:
            self.rails_masked[rail] = max(loss, self.rails_masked.get(rail, 0.0))
            self.see_loss()
        else:
            self.masked = max(loss, self.masked)


def all_but_a_quarter(losses: Iterable[float]) -> float:
    """Return the loss that all except a quarter exceed: a group is slow when nearly all of it is."""
    ordered = sorted(losses)
    return ordered[int(QUARTER * len(ordered))]


def observations(
    rounds: Sequence[MeasuredRound], measure: Measure, leafs: Mapping[str, str], *, tried: bool = False
) -> list[Observation]:
    """Return a measure's observations by round. `tried`: of rounds with other queue pairs, or the rest."""
    return [
        Observation(
            measure, one.round.number, a, b, across(leafs, a, b), logs,
            one.round.purpose not in SMALL, (run.first, run.second) in alone, one.round.queue_pairs,
        )
        for one in rounds
        if (one.round.purpose is RoundPurpose.QUEUES) is tried
        for alone in [one.round.alone(leafs)]
        for run in one.runs
        if run.answered
        for a, b, logs in _directions(run, measure)
        if logs
    ]  # fmt: skip


def _directions(run: PairRun, measure: Measure) -> Iterator[tuple[str, str, dict[str, float]]]:
    a, b = run.first, run.second
    if measure is Measure.ALL_REDUCE:
        yield min(a, b), max(a, b), _logs({ALL_RAILS: run.all_reduce})
    elif measure is Measure.SEND:
        yield a, b, _logs({ALL_RAILS: run.sends})
        yield b, a, _logs({ALL_RAILS: run.receives})
    else:
        yield a, b, _logs({rail: two[0] for rail, two in run.rails.items()})
        yield b, a, _logs({rail: two[1] for rail, two in run.rails.items()})


def _logs(rates: Mapping[str, float | None]) -> dict[str, float]:
    return {rail: math.log(rate) for rail, rate in rates.items() if rate is not None}


def across(leafs: Mapping[str, str], a: str, b: str) -> bool | None:
    """Return whether a run is across leafs; None where either leaf is not known."""
    if a not in leafs or b not in leafs:
        return None
    return leafs[a] != leafs[b]


def weigh(every: Sequence[Observation], clean: Callable[[Observation, str], bool] | None = None) -> None:
    """Compute the losses; `clean`: which rail of which observation is typical, None at first."""
    classes: dict[bool | None, dict[int, list[Observation]]] = {}
    for one in every:
        classes.setdefault(one.across, {}).setdefault(one.round, []).append(one)
    # All levels before any loss: what is masked says what is clean.
    found = [(some, level) for rounds in classes.values() for some, level in _levels(rounds, clean)]
    for some, level in found:
        for one in some:
            one.losses = {rail: level - value for rail, value in one.logs.items()}
            one.rails_masked = {}
            one.see_loss()


def _levels(
    rounds: Mapping[int, list[Observation]], clean: Callable[[Observation, str], bool] | None
) -> Iterator[tuple[list[Observation], float]]:
    """Yield each round's observations with the logarithm of the typical rate of a class."""
    full = max(map(len, rounds.values())) / 2
    every = [one for some in rounds.values() for one in some]
    pooled = _pooled([one for one in every if one.full] or every, clean)
    for some in rounds.values():
        own = some[0].full and len(some) >= full and sum(len(one.logs) for one in some) >= OWN
        level = _typical(some, clean) if own else None
        yield [one for one in some if not one.quiet], pooled if level is None else level
    for quiet in grouped((one.queue_pairs, one) for one in every if one.quiet).values():
        # Where links are shared all are slower at once, and only others that run alone say by how much.
        level = _upper(quiet)
        yield quiet, level if level > pooled + RAISED else pooled


def _pooled(every: Sequence[Observation], clean: Callable[[Observation, str], bool] | None) -> float:
    level = _typical(every, clean)
    return _upper(every) if level is None else level


def _typical(some: Sequence[Observation], clean: Callable[[Observation, str], bool] | None) -> float | None:
    """Return the logarithm of the typical rate; None where too few are clean."""
    if clean is None:
        return _upper(some)
    values = [value for one in some for rail, value in one.logs.items() if clean(one, rail)]
    return median(values) if len(values) >= FEW else None


def _upper(some: Sequence[Observation]) -> float:
    values = sorted(value for one in some for value in one.logs.values())
    return values[math.ceil(UPPER * len(values)) - 1]


def typical_rate(every: Sequence[Observation]) -> dict[bool | None, float]:
    """Return bytes per second by class: the median over rounds of the rates behind the losses."""
    levels: dict[bool | None, dict[int, float]] = {}
    for one in [one for one in every if one.full] or every:
        rail = next(iter(one.logs))
        levels.setdefault(one.across, {})[one.round] = one.logs[rail] + one.losses[rail]
    return {kind: math.exp(median(rounds.values())) for kind, rounds in levels.items()}
