"""By how much healthy parts differ, and whether one is slower than that. Pure.

Two things must hold before a part is named, each by itself enough against one kind of chance:

- its loss is more standard deviations than healthy parts differ by, from each other for good and from
  round to round (`deviations`): that is against many small differences;
- it was slow in so many rounds that as many single slow runs, which any fabric has, would not meet by chance
  in any of the parts that were looked at: that is against traffic of others, which slows a run by any amount.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, median
from typing import NamedTuple

from wirewatch.core.statistics import NORMAL, grouped, low_median
from wirewatch_fleet.pairs.model import PairLimits

FLOOR = 0.002
"""Standard deviation below which no fabric is taken to be, however few values show it."""
PRIOR, WEIGHT = 0.02, 30
"""Slow runs of healthy parts that are expected before any is seen: as if of 30 runs 2 % had been slow."""
MEDIAN = 1.57
"""Variance of a median over that of a mean, of normal values."""
PERSISTS = 0.75
"""A part must be slow in this share of its rounds: what was measured is the least of all on the way, so that
a slow part gives no fast run."""
ENOUGH = 4
"""Differences from one round to the next that show a spread."""
SUSPECTS = 0.05
"""So many healthy parts of a kind may be looked at again for nothing but noise."""
TWICE = 2
"""Slow runs in half of its rounds and more with which a part is not taken for healthy."""


class RoundLoss(NamedTuple):
    """A part in one round: its loss, the part of it that something named explains, and with whom it ran."""

    round: int
    loss: float
    explained: float
    partner: str


@dataclass(frozen=True, slots=True)
class HealthySpread:
    """How healthy parts of one kind differ: for good (`between`), and from round to round (`within`).

    `losses`: single losses of them, sorted, for how often one is slow by chance.
    """

    between: float
    within: float
    losses: Sequence[float]

    def chance(self, loss: float) -> float:
        """How often a healthy part shows such a loss in one round."""
        above = len(self.losses) - bisect_right(self.losses, loss)
        return (above + PRIOR * WEIGHT) / (len(self.losses) + WEIGHT)

    def deviation(self, rounds: int) -> float:
        """Standard deviation of the median over so many rounds of a healthy part."""
        noise = (MEDIAN if rounds > 2 else 1.0) * self.within**2 / max(1, rounds)  # noqa: PLR2004
        return math.sqrt(self.between**2 + noise)


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """A part beside the healthy ones, by the runs that say something of it; `slow` of them are slow.

    `loss`: the median over partners, and its standard deviation `error`. `slow_with`: those `partners` with
    which it was slow. `deviations`: the loss in them. `named` takes all that a `NamingBar` asks. Of its runs
    `alone` had routes that nobody shared, and `alone_slow` of those were slow.
    """

    loss: float
    error: float
    rounds: int
    slow: int
    partners: frozenset[str]
    slow_with: frozenset[str]
    deviations: float
    named: bool
    suspected: bool
    alone: int = 0
    alone_slow: int = 0


@dataclass(frozen=True, slots=True)
class NamingBar:
    """What it takes to be named, of `parts` that were looked at, with this chance that any healthy one is."""

    parts: int
    error: float
    limits: PairLimits

    @property
    def least(self) -> float:
        return -math.log1p(-self.limits.least)

    @property
    def deviations(self) -> float:
        """Standard deviations that none of so many normal values exceeds."""
        return NormalDist().inv_cdf(1 - min(0.5, self.error / max(1, self.parts)))

    @property
    def suspected(self) -> float:
        """Standard deviations from which on a part is looked at again."""
        return NormalDist().inv_cdf(1 - SUSPECTS / max(2, self.parts))

    def rounds_enough(self, slow: int, rounds: int, chance: float) -> bool:
        """Whether so many slow rounds are more than chance gives any of the parts."""
        return chance_enough(self.parts, slow, rounds, chance, self.error)


def chance_enough(parts: int, slow: int, rounds: int, chance: float, error: float) -> bool:
    """Whether any of so many parts would be slow so often by chance more seldom than `error`."""
    expected = math.log(max(1, parts) * math.comb(rounds, slow)) + slow * math.log(chance)
    return expected <= math.log(error)


def _split(points: Iterable[RoundLoss], margin: float) -> tuple[list[RoundLoss], list[RoundLoss]]:
    """The points that speak of the part itself, and those in whose way something wider stands.

    Of the latter one that is no slower than that only bounds how slow the part can be; one that is slower
    speaks of the part.
    """
    told: list[RoundLoss] = []
    behind: list[RoundLoss] = []
    for one in points:
        free = one.explained <= 0 or one.loss > 1.05 * one.explained + margin
        (told if free else behind).append(one)
    return told, behind


def judge(points: Sequence[RoundLoss], spread: HealthySpread, bar: NamingBar) -> JudgedPart:
    """A part by its rounds; without any it is neither named nor suspected.

    Several runs with one partner show one partner: else a slow pair that is measured again and again would
    make a node slow. Of two middle losses the lower counts, since other traffic only adds to them.
    """
    margin = max(bar.least, 3 * spread.within)
    told, behind = _split(points, margin)
    if not told:
        return JudgedPart(0.0, 0.0, 0, 0, frozenset(), frozenset(), 0.0, named=False, suspected=False)
    partners = grouped((one.partner, one.loss) for one in told)
    middles = {partner: low_median(losses) for partner, losses in partners.items()}
    loss = low_median(middles.values())
    limit = max(bar.least, 0.6 * loss)
    refuting = [one for one in behind if one.loss < max(limit, loss - margin)]
    middles |= {one.partner: 0.0 for one in refuting}
    slow = sum(one.loss > limit for one in told)
    told += refuting
    slowly = frozenset(partner for partner, middle in middles.items() if middle > limit)
    error = spread.deviation(len(told))
    persists = len(slowly) >= PERSISTS * len(middles)
    enough = persists and bar.rounds_enough(slow, len(told), spread.chance(limit))
    return JudgedPart(
        loss, error, len(told), slow, frozenset(middles), slowly, loss / error,
        named=enough and loss / error >= bar.deviations, suspected=persists and loss / error >= bar.suspected,
    )  # fmt: skip


def healthy_spread(
    series: Iterable[Sequence[RoundLoss]], least: float, floor: float = FLOOR
) -> HealthySpread:
    """By all parts of a kind but for those that were slow in nearly all of their rounds; robust."""
    losses: list[float] = []
    apart: list[float] = []
    for points in series:
        mine = [one.loss for one in points if one.explained <= 0]
        slow = sum(one > least for one in mine)
        if slow < TWICE or slow < len(mine) / 2:
            losses += mine
            apart += (b - a for a, b in pairwise(mine))
    total = max(floor, _around(losses))
    within = total
    if len(apart) >= ENOUGH:
        within = max(floor / 2, NORMAL * median(map(abs, apart)) / math.sqrt(2))
    between = math.sqrt(max(total**2 - within**2, (floor / 2) ** 2))
    return HealthySpread(between, min(within, total), sorted(losses))


def _around(values: Sequence[float]) -> float:
    """Robust standard deviation around the median; 0 for no values."""
    if not values:
        return 0.0
    middle = median(values)
    return NORMAL * median(abs(one - middle) for one in values)
