"""Statistics of repeats: levels of a curve, one for each repeat, and whether two sets of them differ. Pure.

Each repeat is a separate process, so repeats are independent of each other. The sizes within a repeat are not
independent: they share a process with its memory, clocks and place on the host. So times are first averaged
over sizes, which leaves one level a repeat, and only levels are compared: Welch's test on logarithms of time,
where a difference is a share. Few levels give a poor estimate of their spread, so similar curves learn it
from each other. Among many tests, Holm's rule limits the chance of any error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from statistics import fmean

from wirewatch.busbw.references import LEAST_BYTES
from wirewatch_lab.study.curve import CurvePoint

LATENCY_BYTES = 64 << 10
"""Up to this size a message's time is nearly that of an empty one."""
UNLIKE = 0.1
"""Assumed difference in spread between curves: squared relative deviation of their variances."""
LOUDER, OUTLIER = 2.0, 30.0
"""A curve above the first multiple of its peers' mean variance is judged by its own levels. Above the second
multiple of the others' it has no peers."""
RESOLUTION = 5e-4
"""Least relative spread; printed times and clocks have no finer resolution."""


class Regime(Enum):
    """Where a size lies: its time is latency, bandwidth, or both."""

    LATENCY = "latency"
    MIDDLE = "middle"
    BANDWIDTH = "bandwidth"


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels of a curve, one for each repeat, with their assumed variance and its degrees of freedom."""

    values: tuple[float, ...]
    variance: float
    freedom: float


@dataclass(frozen=True, slots=True)
class LevelDifference:
    """The difference of means between two sets of levels, with its standard error.

    `freedom`: Welch's degrees of freedom, rounded down. `chance`: how often equal sets differ this much, in
    either direction.
    """

    mean: float
    error: float
    freedom: int
    chance: float

    def least(self, chance: float) -> float:
        """Return the smallest difference of means with less than this chance."""
        return critical(chance, self.freedom) * self.error


def regime(size_bytes: int) -> Regime:
    """Return the regime of a message size."""
    if size_bytes <= LATENCY_BYTES:
        return Regime.LATENCY
    return Regime.BANDWIDTH if size_bytes >= LEAST_BYTES else Regime.MIDDLE


def usable(point: CurvePoint) -> bool:
    """Return whether the point is a measurement: bytes moved, in some time, and none came out wrong."""
    right = point.size_bytes > 0 and bool(point.seconds) and not point.wrong
    return right and all(math.isfinite(one) and one > 0 for one in point.seconds)


def logarithms(point: CurvePoint) -> tuple[float, ...]:
    """Return logarithms of the seconds of a usable point."""
    return tuple(map(math.log, point.seconds))


def levels(points: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return mean `logarithms` of seconds over some points, one for each repeat that all have."""
    return tuple(map(fmean, zip(*points, strict=False)))


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of two or more levels, a share of the time; at least `RESOLUTION`."""
    mean = fmean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return max(math.sqrt(squares / (len(values) - 1)), RESOLUTION)


def welch(first: Levels, second: Levels) -> LevelDifference:
    """Return the second's mean above the first's (B. L. Welch, 1947)."""
    one, other = (some.variance / len(some.values) for some in (first, second))
    error = math.sqrt(one + other)
    freedom = int((one + other) ** 2 / (one**2 / first.freedom + other**2 / second.freedom) + 1e-9)
    mean = fmean(second.values) - fmean(first.values)
    return LevelDifference(mean, error, freedom, two_sided(mean / error, freedom))


def alone(values: Sequence[float]) -> Levels:
    """Return two or more levels with their own variance."""
    return Levels(tuple(values), deviation(values) ** 2, len(values) - 1)


def together(sets: Sequence[Sequence[float]]) -> list[Levels]:
    """Return sets of equally many levels, of similar curves, with variances that learn from each other.

    Each variance moves towards the mean of all, by the weight of credibility theory (H. Buehlmann, 1967): the
    more they differ, the less it moves. Degrees of freedom follow from the remaining error. Sets with a
    common part in a repeat count as fewer (S. Greenhouse and S. Geisser, 1959). Where this gives no more than
    a set's own levels, its own levels decide.
    """
    own = [alone(values) for values in sets]
    freedom = own[0].freedom
    if len(own) == 1:
        return own
    mean = fmean(one.variance for one in own)
    noise = 2 / freedom
    differ = fmean((one.variance / mean - 1) ** 2 for one in own) * len(own) / (len(own) - 1)
    differ = max((differ - noise) / (1 + noise), UNLIKE)
    weight = differ / (differ + noise * (1 + differ))
    # A set is a part of the mean, so their errors go together as far as the mean's own goes.
    common = 2 / _count(own)
    left = weight**2 * noise + (1 - weight**2) * common + (1 - weight) ** 2 * differ
    if left >= noise:
        return own
    drawn = [weight * one.variance + (1 - weight) * mean for one in own]
    return [
        replace(one, variance=variance, freedom=2 / left) for one, variance in zip(own, drawn, strict=True)
    ]


def cautious(sets: Sequence[Sequence[float]]) -> list[Levels]:
    """Return sets of equally many levels, of similar curves, with cautious variances.

    Each set keeps its own variance, or gets the mean where that is greater. Settings of a study differ in
    their spread, so no variance is reduced. Degrees of freedom belong to the mean (F. Satterthwaite, 1946). A
    set that is `LOUDER` than the mean keeps its own variance, and the mean excludes an `OUTLIER`. Two sets do
    not show which of them is typical.
    """
    own = [alone(values) for values in sets]
    if len(own) <= 2:  # noqa: PLR2004 - as the last line above says
        return own
    like = sorted(one.variance for one in own)
    while len(like) > 2 and like[-1] > OUTLIER * fmean(like[:-1]):  # noqa: PLR2004 - two others to be like
        like.pop()
    mean, freedom = fmean(like), own[0].freedom
    freedom *= math.fsum(like) ** 2 / math.fsum(one**2 for one in like)
    shared = [replace(one, variance=max(one.variance, mean), freedom=freedom) for one in own]
    both = zip(own, shared, strict=True)
    return [one if one.variance > LOUDER * mean else other for one, other in both]


def _count(sets: Sequence[Levels]) -> float:
    """Return degrees of freedom of the mean variance of sets whose repeats may have a common part."""
    scaled = []
    for one in sets:
        mean = fmean(one.values)
        scaled.append([(value - mean) / math.sqrt(one.variance) for value in one.values])
    repeats = range(len(scaled[0]))
    products = [[math.fsum(row[i] * row[j] for row in scaled) for j in repeats] for i in repeats]
    trace = math.fsum(products[i][i] for i in repeats)
    squares = math.fsum(one**2 for row in products for one in row)
    return sets[0].freedom * trace**2 / squares if squares else sets[0].freedom


def holm(chances: Sequence[float], weights: Sequence[float], alpha: float) -> list[bool]:
    """Return the tests to believe, none wrong with chance 1 - `alpha` (S. Holm, 1979), by weights above 0."""
    believed = [False] * len(chances)
    left = math.fsum(weights)
    for place in sorted(range(len(chances)), key=lambda i: chances[i] / weights[i]):
        if chances[place] > alpha * weights[place] / left:
            break
        believed[place] = True
        left -= weights[place]
    return believed


def two_sided(t: float, freedom: int) -> float:
    """Return how often Student's t is at least `t` away from 0, with so many degrees of freedom.

    The closed form of Abramowitz and Stegun, 26.7.3 and 26.7.4, is good to 1e-15.
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for k in range(3 if odd else 2, freedom, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = math.sin(angle) * total if freedom > 1 else 0.0
    return max(0.0, 1 - (2 / math.pi * (angle + inside) if odd else inside))


@cache
def critical(chance: float, freedom: int) -> float:
    """Return the t that is exceeded, in either direction, with this chance."""
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > chance:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > chance else (low, middle)
    return high
