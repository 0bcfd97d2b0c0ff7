"""Estimate a job's plateau, duty and period from back-to-back reads of a GPU's NVLink counters. Pure.

A read takes the counter at an unknown moment of about a millisecond. So the rate between two reads is off by
a third. Bytes are exact. So a burst (bytes that move from read to read) gives points on a line, its bytes so
far and the time of the read. One slope is fitted through all bursts of the look: time over bytes, since only
the time has an error. Only points between two moving reads count: at these the burst had begun and had not
ended.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from wirewatch.core.types import Absent, Why, value_or

LONG_ENOUGH = 3e-3
"""Seconds on the wire from which the plateau of a collective is its busbw. Shorter collectives give a lower
bound: their start and end take more than the limit of 10 % allows."""


class CounterRead(NamedTuple):
    """One read of both counters: seconds and bytes since the first of the same look."""

    seconds: float
    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class BurstFigures:
    """The figures of one look, for the direction with more bytes, or for both where they are equal.

    `seconds`: from the first read to the last, of `reads`. `moved`: bytes in all of it. `bursts`: whole
    bursts, which began and ended in it. `plateau`: bytes per second while bytes move, its relative standard
    error `error`; Absent where none moved, or no burst was long enough to see. `size`: bytes of a typical
    burst, 0 where none was whole. `length`: seconds of it at the plateau. `long`: they are enough for the
    plateau to be the busbw of its collective (ring). Otherwise the plateau is a lower bound, as it is where
    pauses between collectives are shorter than a read. `duty`: share of the time in which bytes move.
    `period`: seconds of the job's step; Absent where three do not fit, or none is seen.
    """

    seconds: float
    reads: int
    moved: int
    bursts: int
    plateau: float | Absent
    error: float
    size: int
    length: float | Absent
    long: bool
    duty: float | Absent
    period: float | Absent


class Burst(NamedTuple):
    """Reads `first` to `last` between which the counter moved from read to read; `bytes_` in all.

    `whole`: it stood still before and after.
    """

    first: int
    last: int
    bytes_: int
    whole: bool


def figures(reads: Sequence[CounterRead]) -> BurstFigures | Absent:
    """Return the figures of one look's reads; MALFORMED for fewer than three."""
    if len(reads) < _FEWEST:
        return Absent(Why.MALFORMED, f"{len(reads)} reads are too few")
    times = [read.seconds for read in reads]
    counters = _counters(reads)
    main = counters[0]
    moved, seconds = main[-1] - main[0], times[-1] - times[0]
    bursts = list(bursts_of(times, main))
    whole = [burst for burst in bursts if burst.whole]
    size = _typical([burst.bytes_ for burst in whole])
    fitted = _settled(times, counters)
    unseen = Absent(Why.MISSING, "no burst was whole" if moved else "no bytes moved over NVLink")
    plateau, error = fitted or _whole(times, whole) or (unseen, math.inf)
    length = _length(times, bursts, size, plateau)
    on_wire = plateau if isinstance(plateau, Absent) else min(1.0, moved / plateau / seconds)
    return BurstFigures(
        seconds=seconds,
        reads=len(reads),
        moved=moved,
        bursts=len(whole),
        plateau=plateau,
        error=error,
        size=size,
        length=length,
        long=fitted is not None and value_or(length, 0.0) >= LONG_ENOUGH,
        duty=on_wire if moved else 0.0,
        period=_period(times, main),
    )


def bursts_of(times: Sequence[float], counter: Sequence[int]) -> Iterator[Burst]:
    """Stretches of reads between which the counter moved; what is less than a hundredth does not count.

    Without that a barrier or a flag of a few bytes would make one burst of two.
    """
    rates = [(b - a) / (t - s) for (s, t), (a, b) in zip(pairwise(times), pairwise(counter), strict=True)]
    least = _LEAST * max(rates)
    first: int | None = None
    for number, rate in enumerate((*rates, 0.0)):
        if rate > least and first is None:
            first = number
        elif rate <= least and first is not None:
            # The last number is one past the last read: that burst goes on.
            whole = first > 0 and number < len(rates)
            yield Burst(first, number, counter[number] - counter[first], whole)
            first = None


_FEWEST = 3
_LEAST = 0.01
_SAME = 0.1
"""How far the bytes of both directions may be apart where one plateau is made of both."""
_CUTS, _PAUSE = 8, 0.6
"""How often bursts are cut again, and below which part of the plateau."""
_POINTS = 6
"""Fewest points within bursts that make a slope."""
_GRID = 1e-3
_LIKE = 0.5
"""Least correlation of a job's bytes with its bytes one step later."""
_NEARLY = 0.8
"""A peak so near to the greatest is as good: the first of them is the step, the others its multiples."""
_STEPS = 3
_SHORTEST = 3
Points = list[list[tuple[float, int]]]
"""Seconds and bytes at the reads within each burst."""


def _counters(reads: Sequence[CounterRead]) -> list[list[int]]:
    """Bytes at each read of the direction with more of them, and of the other where it has as many."""
    both = [[read.sent for read in reads], [read.received for read in reads]]
    both.sort(key=lambda counter: counter[0] - counter[-1])
    more, less = (counter[-1] - counter[0] for counter in both)
    return both if more - less <= _SAME * more else both[:1]


def _points(times: Sequence[float], counter: Sequence[int], slowest: float = 0.0) -> Points:
    """Return the reads within each burst; a stretch below `slowest` splits a burst.

    At a read beside such a stretch the counter may have paused, so that it is on neither line.
    """
    found: Points = []
    for burst in bursts_of(times, counter):
        found.append([])
        for k in range(burst.first + 1, burst.last):
            inner = [i for i in (k - 1, k) if burst.first < i < burst.last - 1]
            if any((counter[i + 1] - counter[i]) < slowest * (times[i + 1] - times[i]) for i in inner):
                found.append([])
            else:
                found[-1].append((times[k], counter[k]))
    return found


def _settled(times: Sequence[float], counters: Sequence[Sequence[int]]) -> tuple[float, float] | None:
    """The slope through all bursts, cut where pauses too short to be seen as such slow them down."""
    fitted = _fitted([_points(times, counter) for counter in counters])
    for _ in range(_CUTS):
        slowest = _PAUSE * fitted[0] if fitted else 0.0
        fitted = _fitted([_points(times, counter, slowest) for counter in counters]) or fitted
    return fitted


def _fitted(directions: Sequence[Points]) -> tuple[float, float] | None:
    """Bytes per second and relative standard error of one slope through all bursts; None of few points."""
    points = [burst for direction in directions for burst in direction if len(burst) > 1]
    count = sum(map(len, points))
    if count < _POINTS:
        return None
    bytes_, product, seconds = 0.0, 0.0, 0.0
    for burst in points:
        mid_time = sum(time for time, _ in burst) / len(burst)
        mid_bytes = sum(value for _, value in burst) / len(burst)
        bytes_ += sum((value - mid_bytes) ** 2 for _, value in burst)
        product += sum((value - mid_bytes) * (time - mid_time) for time, value in burst)
        seconds += sum((time - mid_time) ** 2 for time, _ in burst)
    slope = product / bytes_
    left = max(0.0, seconds - slope * product)
    spare = count - len(points) - 1
    return 1 / slope, math.sqrt(left / spare / bytes_) / slope


def _whole(times: Sequence[float], bursts: Sequence[Burst]) -> tuple[float, float] | None:
    """Bytes of whole bursts over the time between the reads around them: a lower bound."""
    seconds = sum(times[burst.last] - times[burst.first] for burst in bursts)
    return (sum(burst.bytes_ for burst in bursts) / seconds, math.inf) if bursts else None


def _typical(sizes: Sequence[int]) -> int:
    """Return the size that half of all bytes reach: beside a large burst, small bursts are not typical."""
    half, sum_ = sum(sizes) / 2, 0
    for size in sorted(sizes, reverse=True):
        sum_ += size
        if sum_ >= half:
            return size
    return 0


def _length(
    times: Sequence[float], bursts: Sequence[Burst], size: int, plateau: float | Absent
) -> float | Absent:
    """Seconds of a typical burst; where none was whole, what was seen of the longest."""
    if isinstance(plateau, Absent):
        return plateau
    return size / plateau if size else max(times[burst.last] - times[burst.first] for burst in bursts)


def _period(times: Sequence[float], counter: Sequence[int]) -> float | Absent:
    """The first lag at which the bytes of a millisecond are as they were, if three steps fit."""
    grid = _on_grid(times, counter)
    mean = sum(grid) / len(grid) if grid else 0.0
    values = [value - mean for value in grid]
    alike = [_correlation(values, lag) for lag in range(len(values) // _STEPS + 1)]
    peaks = [
        lag
        for lag in range(_SHORTEST, len(alike) - 1)
        if alike[lag - 1] <= alike[lag] >= alike[lag + 1] and alike[lag] >= _LIKE
    ]
    if not peaks:
        return Absent(Why.MISSING, "no step that repeats three times")
    best = max(alike[lag] for lag in peaks)
    first = next(lag for lag in peaks if alike[lag] >= _NEARLY * best)
    return _sharpened(alike, first) * _GRID


def _sharpened(alike: Sequence[float], first: int) -> float:
    """The lag in fractions of the grid: that of its last multiple, whose error is shared by all steps."""
    lag, number = float(first), 1
    while (next_ := round(lag * (number + 1) / number)) < len(alike) - 2:
        number += 1
        lag = float(max(range(next_ - 1, next_ + 2), key=alike.__getitem__))
    return lag / number


def _on_grid(times: Sequence[float], counter: Sequence[int]) -> list[float]:
    """Bytes of each millisecond, spread evenly between two reads."""
    values: list[float] = []
    k = 0
    for place in range(int((times[-1] - times[0]) / _GRID) + 1):
        at = times[0] + place * _GRID
        while times[k + 1] < at and k + 2 < len(times):
            k += 1
        share = (at - times[k]) / (times[k + 1] - times[k])
        values.append(counter[k] + share * (counter[k + 1] - counter[k]))
    return [b - a for a, b in pairwise(values)]


def _correlation(values: Sequence[float], lag: int) -> float:
    early, late = values[: len(values) - lag], values[lag:]
    scale = math.sqrt(sum(v * v for v in early) * sum(v * v for v in late))
    return sum(a * b for a, b in zip(early, late, strict=True)) / scale if scale else 0.0
