"""Which setting wins where: the curves of one operation against each other, regime by regime. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from wirewatch.study.curve import Configuration, Curve, Study
from wirewatch.study.spread import Regime, alone, deviation, holm, levels, logarithms, regime, usable, welch

ALPHA = 0.01
"""How often a contest among equals may name a winner."""


@dataclass(frozen=True, slots=True)
class Placing:
    """One setting in a contest. `behind`: the share of the winner's time that it takes more.

    `spread`: relative standard deviation of its levels, None from one repeat. `tied`: nothing says that it is
    slower than the first.
    """

    configuration: Configuration
    behind: float
    spread: float | None
    tied: bool


@dataclass(frozen=True, slots=True)
class Contest:
    """The settings of one operation in one regime, the fastest first, over the sizes that all of them have.

    Without two repeats of each there is no spread: then `spread` is None in all, and nothing is said to win.
    """

    regime: Regime
    sizes: tuple[int, ...]
    placings: tuple[Placing, ...]


def groups(study: Study) -> list[list[Curve]]:
    """Curves that can be compared with each other: of one operation, its ranks, dtype and placement."""
    found: dict[tuple[str, int, str, bool], list[Curve]] = {}
    for curve in study.curves:
        key = curve.op, curve.configuration.ranks, curve.dtype, curve.in_place
        found.setdefault(key, []).append(curve)
    return list(found.values())


def contests(group: Sequence[Curve], alpha: float = ALPHA) -> Iterator[Contest]:
    """One for each regime in which two curves of a group have sizes in common.

    `alpha`: how often a contest among equals may name a winner; less where many are held at once.
    """
    for one in Regime:
        times = [
            {p.size_bytes: logarithms(p) for p in curve.points if usable(p) and regime(p.size_bytes) is one}
            for curve in group
        ]
        racing = [(curve, found) for curve, found in zip(group, times, strict=True) if found]
        common = sorted(set.intersection(*(set(found) for _, found in racing))) if racing else []
        if len(racing) > 1 and common:
            sets = [(curve.configuration, levels([found[n] for n in common])) for curve, found in racing]
            yield Contest(one, tuple(common), _placings(sets, alpha))


def _placings(sets: Sequence[tuple[Configuration, tuple[float, ...]]], alpha: float) -> tuple[Placing, ...]:
    ordered = sorted(sets, key=lambda one: fmean(one[1]))
    first = ordered[0][1]
    behind = [math.expm1(fmean(values) - fmean(first)) for _, values in ordered]
    if min(len(values) for _, values in ordered) == 1:
        return tuple(
            Placing(name, share, None, tied=True) for (name, _), share in zip(ordered, behind, strict=True)
        )
    slower = holm(
        [welch(alone(first), alone(values)).chance for _, values in ordered[1:]],
        [1.0] * (len(ordered) - 1),
        alpha,
    )
    return tuple(
        Placing(name, share, deviation(values), tied=not sure)
        for (name, values), share, sure in zip(ordered, behind, (False, *slower), strict=True)
    )
