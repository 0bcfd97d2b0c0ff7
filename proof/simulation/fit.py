"""The noise of real healthy probes: its scale, its memory, and how heavy its tails are."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice, pairwise
from random import Random

from proof.simulation.healthy import Run, unit
from proof.simulation.noise import Scales, series
from wirewatch.core.statistics import low_median, spread
from wirewatch.verdict.straggler.signals import Resource

LEAST = 30
"""Probes of a run, below which it has no scale of its own."""
FREEDOMS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60)
FAR = 3.0
"""Robust spreads from which on a value is far out."""


@dataclass(frozen=True, slots=True)
class Series:
    """Logarithms of one unit's rates in one run, around their median; `spread` is their robust spread."""

    name: str
    values: Sequence[float]
    spread: float

    @property
    def memory(self) -> float:
        """Autocorrelation from one value to the next."""
        mean = sum(self.values) / len(self.values)
        rest = [value - mean for value in self.values]
        return sum(a * b for a, b in pairwise(rest)) / sum(value * value for value in rest)

    def innovations(self) -> Iterator[float]:
        """In robust spreads of the series."""
        memory = self.memory
        return ((b - memory * a) / self.spread for a, b in pairwise(self.values))


@dataclass(frozen=True, slots=True)
class Fitted:
    """Of one resource. `scale`: of the noisiest unit; `least`: of the quietest. `memory`: of each series.

    `far`: the part of all values beyond `FAR` of the spreads that the model gives to every unit, those of the
    noisiest; `far_own`: beyond so many of each series' own. `farthest`: the one farthest out, in the former.
    `freedom`: the likeliest degrees of freedom of Student's t for the innovations, of `FREEDOMS`.
    """

    resource: Resource
    values: int
    scale: float
    least: float
    memory: Sequence[float]
    far: float
    far_own: float
    farthest: float
    freedom: int


def fit(runs: Iterable[Run]) -> tuple[Fitted, ...]:
    """One for each resource of the runs that are long enough."""
    found: dict[Resource, list[Series]] = {}
    for run in runs:
        for name, rates in run.rates.items():
            if len(rates) >= LEAST:
                found.setdefault(unit(name).resource, []).append(around(name, rates))
    return tuple(_fitted(resource, ones) for resource, ones in found.items())


def scales(fitted: Iterable[Fitted]) -> Scales:
    return {one.resource: one.scale for one in fitted}


def around(name: str, rates: Sequence[float]) -> Series:
    logs = [math.log(rate) for rate in rates]
    middle = low_median(logs)
    return Series(name, [one - middle for one in logs], spread(logs, middle))


def _fitted(resource: Resource, ones: Sequence[Series]) -> Fitted:
    spreads = [one.spread for one in ones]
    scale = max(spreads)
    out = [abs(value) / scale for one in ones for value in one.values]
    own = [abs(value) / one.spread for one in ones for value in one.values]
    return Fitted(
        resource, len(out), scale, min(spreads), [one.memory for one in ones],
        sum(value > FAR for value in out) / len(out), sum(value > FAR for value in own) / len(own), max(out),
        likeliest(list(chain.from_iterable(one.innovations() for one in ones))),
    )  # fmt: skip


def likeliest(values: Sequence[float]) -> int:
    """Degrees of freedom, each with the scale that suits it best."""
    return max(FREEDOMS, key=lambda freedom: _likelihood(values, freedom))


def _likelihood(values: Sequence[float], freedom: int) -> float:
    square = sum(value * value for value in values) / len(values)
    for _ in range(40):
        weighed = ((freedom + 1) * v * v / (freedom + v * v / square) for v in values)
        square = sum(weighed) / len(values)
    gamma = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    each = gamma - 0.5 * math.log(freedom * math.pi * square)
    tails = sum(math.log1p(v * v / square / freedom) for v in values)
    return len(values) * each - (freedom + 1) / 2 * tails


@cache
def modelled(count: int = 200_000) -> float:
    """The part of the model's values beyond `FAR` robust spreads."""
    drawn = islice(series(Random(3), 1.0), count)  # noqa: S311 - the same each time
    return sum(abs(value) > FAR for value in drawn) / count
