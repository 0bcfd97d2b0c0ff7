"""Judges whether a part is slower than healthy parts differ. Pure.

Two conditions must hold to name a part, each a full protection against a kind of chance:

- Its loss exceeds the spread of healthy parts, between parts and from round to round, by enough standard
  deviations (`deviations`). This protects against many small differences.
- It was slow in more rounds than chance gives to any candidate part, as every fabric has single slow runs.
  This protects against traffic of others, which slows a run by any amount.
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
"""Least standard deviation of any fabric, however few values show it."""
PRIOR, WEIGHT = 0.02, 30
"""Assumed slow runs of healthy parts before any result: as if 2 % of 30 runs were slow."""
MEDIAN = 1.57
"""Ratio of a median's variance to a mean's, for normal values."""
PERSISTS = 0.75
"""A part must be slow in this share of its rounds. A run shows the minimum over all parts on the way, so a
slow part gives no fast run."""
ENOUGH = 4
"""Least differences between successive rounds that show a spread."""
SUSPECTS = 0.05
"""Expected number of healthy parts of a kind that are rechecked because of noise."""
TWICE = 2
"""Slow runs, in at least half of its rounds, from which on a part does not count as healthy."""


class RoundLoss(NamedTuple):
    """A part in a round: its loss, the share of it that named parts explain, and its partner."""

    round: int
    loss: float
    explained: float
    partner: str


@dataclass(frozen=True, slots=True)
class HealthySpread:
    """How healthy parts of a kind differ: permanently (`between`), and from round to round (`within`).

    `losses`: their single losses, sorted, for the chance of a slow run.
    """

    between: float
    within: float
    losses: Sequence[float]

    def chance(self, loss: float) -> float:
        """Return how often a healthy part shows such a loss in a round."""
        above = len(self.losses) - bisect_right(self.losses, loss)
        return (above + PRIOR * WEIGHT) / (len(self.losses) + WEIGHT)

    def deviation(self, rounds: int) -> float:
        """Return the standard deviation of a healthy part's median over so many rounds."""
        noise = (MEDIAN if rounds > 2 else 1.0) * self.within**2 / max(1, rounds)  # noqa: PLR2004
        return math.sqrt(self.between**2 + noise)


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """A part beside the healthy parts, by its informative runs; `slow` of them are slow.

    `loss`: the median over partners, and its standard deviation `error`. `slow_with`: the `partners` with
    which it was slow. `deviations`: the loss in standard deviations. `named`: it meets all conditions of a
    `NamingBar`. In `alone` of its runs nobody shared its routes, and `alone_slow` of them were slow.
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
    """The conditions for naming among `parts` candidates, with this chance of naming a healthy part."""

    parts: int
    error: float
    limits: PairLimits

    @property
    def least(self) -> float:
        return -math.log1p(-self.limits.least)

    @property
    def deviations(self) -> float:
        """Return the standard deviations that none of so many normal values exceeds."""
        return NormalDist().inv_cdf(1 - min(0.5, self.error / max(1, self.parts)))

    @property
    def suspected(self) -> float:
        """Return the standard deviations from which on a part is rechecked."""
        return NormalDist().inv_cdf(1 - SUSPECTS / max(2, self.parts))

    def rounds_enough(self, slow: int, rounds: int, chance: float) -> bool:
        """Return whether so many slow rounds exceed chance for all of the parts."""
        return chance_enough(self.parts, slow, rounds, chance, self.error)


def chance_enough(parts: int, slow: int, rounds: int, chance: float, error: float) -> bool:
    """Return whether chance makes any of the parts this often slow with a probability below `error`."""
    expected = math.log(max(1, parts) * math.comb(rounds, slow)) + slow * math.log(chance)
    return expected <= math.log(error)


def _split(points: Iterable[RoundLoss], margin: float) -> tuple[list[RoundLoss], list[RoundLoss]]:
    """Split points into points that show the part itself, and points behind a wider slow part.

    A point behind a wider part shows the part itself only if it is slower than that part. Otherwise it only
    bounds the part's loss.
    """
    told: list[RoundLoss] = []
    behind: list[RoundLoss] = []
    for one in points:
        free = one.explained <= 0 or one.loss > 1.05 * one.explained + margin
        (told if free else behind).append(one)
    return told, behind


def judge(points: Sequence[RoundLoss], spread: HealthySpread, bar: NamingBar) -> JudgedPart:
    """Judge a part by its rounds; without any it is neither named nor suspected.

    Several runs with a partner count as one partner. Otherwise a slow pair, measured repeatedly, would make a
    node slow. Of two middle losses the lower counts, since other traffic only adds to losses.
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
    """Return the robust spread over all parts of a kind, without parts slow in nearly all their rounds."""
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
    """Return a robust standard deviation around the median; 0 for no values."""
    if not values:
        return 0.0
    middle = median(values)
    return NORMAL * median(abs(one - middle) for one in values)
