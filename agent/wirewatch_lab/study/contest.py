"""Which setting wins where: the curves of one operation against each other, regime by regime. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from wirewatch_lab.study.curve import Configuration, Curve, Study
from wirewatch_lab.study.spread import (
    LevelDifference,
    Levels,
    Regime,
    cautious,
    deviation,
    levels,
    logarithms,
    regime,
    usable,
    welch,
)

ALPHA = 0.01
"""How often a contest among equals may name a winner."""


@dataclass(frozen=True, slots=True)
class Placing:
    """One setting in a contest. `behind`: the share of the winner's time that it takes more.

    `spread`: relative standard deviation of its levels, None from one repeat. `tied`: nothing says that it is
    slower than the first. `noise`: how much more than the first's time may be noise, as a share, None from
    one repeat; `behind` is less where it is tied.
    """

    configuration: Configuration
    behind: float
    spread: float | None
    tied: bool
    noise: float | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """The settings of one operation in one regime, the fastest first, over the sizes that all of them have.

    Without two repeats of each there is no spread: then `spread` is None in all, and nothing is said to win.
    """

    regime: Regime
    sizes: tuple[int, ...]
    placings: tuple[Placing, ...]


@dataclass(frozen=True, slots=True)
class _Entrant:
    """A curve in a regime with its levels."""

    curve: Curve
    values: tuple[float, ...]

    @property
    def likeness(self) -> tuple[str, bool, int]:
        """Curves with the same are alike in their spread: what the host launches one by one is noisier."""
        one = self.curve.configuration
        return one.launch, one.registered, len(self.values)


def groups(study: Study) -> list[list[Curve]]:
    """Curves that can be compared with each other: of one operation, its ranks, dtype and placement."""
    found: dict[tuple[str, int, str, bool], list[Curve]] = {}
    for curve in study.curves:
        key = curve.op, curve.configuration.ranks, curve.dtype, curve.in_place
        found.setdefault(key, []).append(curve)
    return list(found.values())


def contests(group: Sequence[Curve], alpha: float = ALPHA, others: Sequence[Curve] = ()) -> Iterator[Contest]:
    """One for each regime in which two curves of a group have sizes in common.

    `alpha`: how often a contest among equals may name a winner; less where many are held at once. `others`:
    more curves of the study, which tell of the spread alone.
    """
    rest = [one for one in others if not any(one is curve for curve in group)]
    for one in Regime:
        racing = [(curve, found) for curve in group if (found := _times(curve, one))]
        common = sorted(set.intersection(*(set(found) for _, found in racing))) if racing else []
        if len(racing) > 1 and common:
            entrants = [_Entrant(curve, levels([found[n] for n in common])) for curve, found in racing]
            more = [
                _Entrant(curve, levels([*found.values()])) for curve in rest if (found := _times(curve, one))
            ]
            yield Contest(one, tuple(common), _placings(entrants, more, alpha))


def _times(curve: Curve, where: Regime) -> dict[int, tuple[float, ...]]:
    return {p.size_bytes: logarithms(p) for p in curve.points if usable(p) and regime(p.size_bytes) is where}


def _placings(entrants: Sequence[_Entrant], more: Sequence[_Entrant], alpha: float) -> tuple[Placing, ...]:
    ordered = sorted(entrants, key=lambda one: fmean(one.values))
    behind = [math.expm1(fmean(one.values) - fmean(ordered[0].values)) for one in ordered]
    names = [one.curve.configuration for one in ordered]
    if min(len(one.values) for one in ordered) == 1:
        return tuple(Placing(name, share, None, tied=True) for name, share in zip(names, behind, strict=True))
    first, *rest = _spreads(ordered, more)
    differences = [welch(first, one) for one in rest]
    slower, limit = _slower([one.chance for one in differences], alpha)
    noise = (0.0, *(_share(one, limit) for one in differences))
    return tuple(
        Placing(name, share, deviation(one.values), tied=not sure, noise=may_be)
        for name, share, one, sure, may_be in zip(
            names, behind, ordered, (False, *slower), noise, strict=True
        )
    )


def _spreads(entrants: Sequence[_Entrant], more: Sequence[_Entrant]) -> list[Levels]:
    """Levels of the entrants, which learn their spread from like curves of the study."""
    alike: dict[tuple[str, bool, int], list[_Entrant]] = {}
    for one in (*entrants, *(other for other in more if len(other.values) > 1)):
        alike.setdefault(one.likeness, []).append(one)
    found = {
        id(one): known
        for some in alike.values()
        for one, known in zip(some, cautious([one.values for one in some]), strict=True)
    }
    return [found[id(one)] for one in entrants]


def _slower(chances: Sequence[float], alpha: float) -> tuple[list[bool], float]:
    """Which settings are slower than the first, and the chance that was asked of the next one.

    The first was chosen from all that might be the fastest, so each pair of those is a test (Holm's rule, by
    J. Shaffer, 1986): each slower setting leaves fewer pairs.
    """
    sure = [False] * len(chances)
    contenders = len(chances) + 1
    for place in sorted(range(len(chances)), key=chances.__getitem__):
        if chances[place] > alpha / math.comb(contenders, 2):
            break
        sure[place] = True
        contenders -= 1
    return sure, alpha / math.comb(max(contenders, 2), 2)


def _share(difference: LevelDifference, chance: float) -> float:
    """How much longer than the first one may seem to take by chance; without limit where repeats are few."""
    try:
        return math.expm1(difference.least(chance))
    except OverflowError:
        return math.inf
