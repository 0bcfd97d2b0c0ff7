"""Changes from one study to another, and whether each exceeds the spread of their repeats. Pure.

A curve is judged in parts: all its sizes together, each regime, each size. All parts of all curves share one
limit of error. A comparison of a machine with itself errs in fewer than 1 of 100 cases, whatever a repeat's
times have in common (ADR 0039).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from wirewatch.busbw.profiles import SURE
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Health
from wirewatch.documents.adapter import TypeAdapter
from wirewatch_lab.study.curve import Configuration, Curve, Study
from wirewatch_lab.study.spread import (
    LevelDifference,
    Levels,
    Regime,
    alone,
    cautious,
    deviation,
    holm,
    levels,
    logarithms,
    regime,
    together,
    usable,
    welch,
)

ALPHA = 0.005
"""Chance that a machine compared with itself seems changed. The promise is at most 1 in 100, since noise is
not quite normal."""
WHOLE, REGIMES, POINTS = 0.6, 0.3, 0.1
"""A curve's shares of ALPHA for all sizes together, for its three regimes, and for all single sizes."""
MOST = 2.0
"""A part is not judged if even a change of its time by this factor would stay unseen."""
SEVERAL = 3
"""This many changed sizes with a single run each are no outlier."""
ALL_SIZES, SIZE = "all sizes", "size"
Verdict = Literal["changed", "same", "not judged"]
Key = tuple[str, Configuration, str, bool]


@dataclass(frozen=True, slots=True)
class EnvironmentChange:
    """What is different of machine or software; null where one of the two does not say it."""

    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class PartChange:
    """One part of a curve: `all sizes`, a regime, or a single size, from the first to the last size in bytes.

    `speed`: of B as a share of A's, by the geometric mean of times; also busbw's. `spread`: relative standard
    deviation of the levels, of A and of B, null without two repeats in both. `least`: the smallest change, as
    a share, that would have been judged one; null where not even twice the time would have been. Without a
    spread only what is far apart is judged.
    """

    part: str
    first_bytes: int
    last_bytes: int
    sizes: int
    repeats: tuple[int, int]
    seconds: tuple[float, float]
    speed: float
    spread: tuple[float, float] | None
    least: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CurveChange:
    """A curve that both have. `parts`: all sizes and the regimes; `points`: each size that both have.

    `wrong`: sizes at which a study's values were wrong, so that their times mean nothing.
    """

    op: str
    configuration: Configuration
    dtype: str
    in_place: bool
    parts: tuple[PartChange, ...]
    points: tuple[PartChange, ...]
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]
    wrong_a: tuple[int, ...]
    wrong_b: tuple[int, ...]

    def every(self) -> tuple[PartChange, ...]:
        """Return parts and single sizes."""
        return (*self.parts, *self.points)


@dataclass(frozen=True, slots=True)
class UnmatchedCurve:
    """A curve that cannot be compared, and why."""

    op: str
    configuration: Configuration
    dtype: str
    in_place: bool
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of it. `a`, `b`: where the studies come from, with Unix seconds. `judged`: parts with a verdict."""

    schema: Literal["wirewatch.compare/1"]
    a: str
    b: str
    at_a: float
    at_b: float
    environment: tuple[EnvironmentChange, ...]
    curves: tuple[CurveChange, ...]
    unmatched: tuple[UnmatchedCurve, ...]
    problems_a: tuple[str, ...]
    problems_b: tuple[str, ...]
    judged: int
    changed: int


COMPARISON = TypeAdapter(Comparison)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.compare.1": COMPARISON}


@dataclass(frozen=True, slots=True)
class _CurvePart:
    """A part of a curve before judgement; `a`, `b`: levels. `share`: of the curve's part of ALPHA."""

    curve: int
    name: str
    sizes: tuple[int, ...]
    a: tuple[float, ...]
    b: tuple[float, ...]
    share: float

    @property
    def test(self) -> tuple[int, ...]:
        """Return the key of its test; parts of a curve with the same sizes share a test."""
        return (self.curve, *self.sizes)


def compare(a: Study, b: Study) -> Comparison:
    """Compare B with A. A curve that only one study has is listed with the reason."""
    ours, theirs = _unique(a), _unique(b)
    pairs = [(ours[key], theirs[key]) for key in ours if key in theirs]
    parts = [part for place, pair in enumerate(pairs) for part in _parts(place, *pair)]
    judged = list(zip((part.curve for part in parts), _judge(parts), strict=True))
    curves = tuple(
        _curve(*pair, tuple(made for curve, made in judged if curve == place))
        for place, pair in enumerate(pairs)
    )
    verdicts = [made.verdict for _, made in judged]
    return Comparison(
        schema="wirewatch.compare/1", a=a.source, b=b.source, at_a=a.at, at_b=b.at,
        environment=_environment(a, b), curves=curves, unmatched=tuple(_unmatched(a, b)),
        problems_a=a.problems, problems_b=b.problems,
        judged=sum(one != "not judged" for one in verdicts), changed=verdicts.count("changed"),
    )  # fmt: skip


def losses(comparison: Comparison, least_speed: float) -> list[tuple[CurveChange, PartChange]]:
    """Return judged changes that leave B below a share of A's speed, the worst first."""
    parts = ((curve, part) for curve in comparison.curves for part in curve.every())
    found = [one for one in parts if one[1].verdict == "changed" and one[1].speed < least_speed]
    return sorted(found, key=lambda one: one[1].speed)


def health(comparison: Comparison, least_speed: float | None) -> Health:
    """Return OK, unless there is a `least_speed`, a share of A's.

    Then it is DEGRADED with `losses`, or where only B has wrong values, and UNKNOWN where nothing could be
    judged.
    """
    if least_speed is None:
        return Health.OK
    if losses(comparison, least_speed) or any(set(x.wrong_b) - set(x.wrong_a) for x in comparison.curves):
        return Health.DEGRADED
    return Health.OK if comparison.judged else Health.UNKNOWN


def key_of(curve: Curve) -> Key:
    """Return the key that equal measurements share."""
    return curve.op, curve.configuration, curve.dtype, curve.in_place


def _unique(study: Study) -> dict[Key, Curve]:
    counts = Counter(map(key_of, study.curves))
    return {key_of(curve): curve for curve in study.curves if counts[key_of(curve)] == 1}


def _unmatched(a: Study, b: Study) -> Iterator[UnmatchedCurve]:
    in_a, in_b = Counter(map(key_of, a.curves)), Counter(map(key_of, b.curves))
    for key in dict.fromkeys((*in_a, *in_b)):
        if in_a[key] != 1 or in_b[key] != 1:
            only = "only in A" if not in_b[key] else "only in B" if not in_a[key] else ""
            yield UnmatchedCurve(*key, only or "more than once in one of them")


def _environment(a: Study, b: Study) -> tuple[EnvironmentChange, ...]:
    names = dict.fromkeys((*a.environment, *b.environment))
    pairs = [(name, a.environment.get(name), b.environment.get(name)) for name in names]
    return tuple(EnvironmentChange(*pair) for pair in pairs if pair[1] != pair[2])


def _parts(place: int, a: Curve, b: Curve) -> Iterator[_CurvePart]:
    """Yield all sizes together, the regimes, and each size that both have."""
    ours, theirs = ({p.size_bytes: logarithms(p) for p in curve.points if usable(p)} for curve in (a, b))
    sizes = sorted(ours.keys() & theirs.keys())
    repeats = {n: (len(ours[n]), len(theirs[n])) for n in sizes}
    # A size that lost repeats would shorten all others.
    full = [n for n in sizes if repeats[n] == max(repeats.values())]
    named = (
        (ALL_SIZES, full, WHOLE),
        *((one.value, [n for n in full if regime(n) is one], REGIMES / len(Regime)) for one in Regime),
        *((SIZE, [n], POINTS / len(sizes)) for n in sizes),
    )
    for name, of, share in named:
        if of:
            first, second = (levels([points[n] for n in of]) for points in (ours, theirs))
            yield _CurvePart(place, name, tuple(of), first, second, share)


def _judge(parts: Sequence[_CurvePart]) -> Iterator[PartChange]:
    """Yield each part with its verdict."""
    shares: dict[tuple[int, ...], float] = {}
    for part in parts:
        if min(len(part.a), len(part.b)) >= 2:  # noqa: PLR2004 - one value has no spread
            shares[part.test] = shares.get(part.test, 0) + part.share
    found = dict(_differences(parts, shares.keys()))
    sure = holm([one.chance for one in found.values()], [shares[test] for test in found], ALPHA)
    changed = {test for test, one in zip(found, sure, strict=True) if one}
    total = math.fsum(shares.values())
    for part in parts:
        test, shown = part.test, _shown(part)
        if test in found:
            seen = found[test].least(ALPHA * shares[test] / total)
            blind = seen > math.log(MOST)
            verdict: Verdict = "changed" if test in changed else "not judged" if blind else "same"
            least = None if blind else math.expm1(seen)
            spread = deviation(part.a), deviation(part.b)
            shown = replace(shown, spread=spread, least=least, verdict=verdict)
        yield shown if shown.spread else _far(shown)


def _far(part: PartChange) -> PartChange:
    """Judge a part without a spread: changed if it exceeds the difference between healthy runs of a machine.

    Host launches of small messages take up to three times as long on one machine, so several sizes must be at
    half the speed.
    """
    large = part.part in {Regime.MIDDLE.value, Regime.BANDWIDTH.value}
    least = 1 / (1 - SURE) - 1 if large else MOST - 1
    enough = part.sizes >= SEVERAL or part.part == Regime.BANDWIDTH.value
    if part.part == SIZE or not enough or abs(math.log(part.speed)) <= math.log1p(least):
        return part
    return replace(part, least=least, verdict="changed")


def _differences(
    parts: Sequence[_CurvePart], tests: Collection[tuple[int, ...]]
) -> Iterator[tuple[tuple[int, ...], LevelDifference]]:
    """Yield each test once. Curves share the spread that repeats show for the same part; sizes do not."""
    alike: dict[tuple[str, int, int], dict[tuple[int, ...], _CurvePart]] = {}
    for part in parts:
        if part.test in tests:
            alike.setdefault((part.name, len(part.a), len(part.b)), {})[part.test] = part
    done: set[tuple[int, ...]] = set()
    for (name, *_), some in alike.items():
        learn = (lambda sets: [alone(one) for one in sets]) if name == SIZE else together
        pairs = zip(learn([p.a for p in some.values()]), learn([p.b for p in some.values()]), strict=True)
        for test, pair in zip(some, pairs, strict=True):
            if test not in done:
                done.add(test)
                yield test, welch(*pair)


def _shown(part: _CurvePart) -> PartChange:
    """Return the difference without a verdict."""
    a, b = fmean(part.a), fmean(part.b)
    return PartChange(
        part=part.name, first_bytes=part.sizes[0], last_bytes=part.sizes[-1], sizes=len(part.sizes),
        repeats=(len(part.a), len(part.b)), seconds=(math.exp(a), math.exp(b)), speed=math.exp(a - b),
        spread=None, least=None, verdict="not judged",
    )  # fmt: skip


def _curve(a: Curve, b: Curve, parts: tuple[PartChange, ...]) -> CurveChange:
    ours, theirs = ({point.size_bytes for point in curve.points} for curve in (a, b))
    wrong = [tuple(point.size_bytes for point in curve.points if point.wrong) for curve in (a, b)]
    return CurveChange(
        a.op, a.configuration, a.dtype, a.in_place,
        parts=tuple(part for part in parts if part.part != SIZE),
        points=tuple(part for part in parts if part.part == SIZE),
        only_a=tuple(sorted(ours - theirs)), only_b=tuple(sorted(theirs - ours)),
        wrong_a=wrong[0], wrong_b=wrong[1],
    )  # fmt: skip


CONTEST_ALPHA = 0.01
"""Chance that a contest among equals names a winner."""


@dataclass(frozen=True, slots=True)
class Placing:
    """A setting in a contest. `behind`: extra time, as a share of the winner's.

    `spread`: relative standard deviation of its levels, None for a single repeat. `tied`: nothing shows that
    it is slower than the first. `noise`: extra time over the first that may be noise, as a share, None for a
    single repeat; `behind` is less where it is tied.
    """

    configuration: Configuration
    behind: float
    spread: float | None
    tied: bool
    noise: float | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """The settings of one operation in one regime, the fastest first, over the sizes that all of them have.

    Without two repeats of each there is no spread: `spread` is None in all, and there is no winner.
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
        """Return the key of curves with a similar spread; separate host launches are noisier."""
        one = self.curve.configuration
        return one.launch, one.registered, len(self.values)


def groups(study: Study) -> list[list[Curve]]:
    """Return groups of comparable curves: of one operation, its ranks, dtype and placement."""
    keys = (((one.op, one.configuration.ranks, one.dtype, one.in_place), one) for one in study.curves)
    return list(grouped(keys).values())


def contests(
    group: Sequence[Curve], alpha: float = CONTEST_ALPHA, others: Sequence[Curve] = ()
) -> Iterator[Contest]:
    """Yield a contest for each regime in which two curves of a group have sizes in common.

    `alpha`: chance that a contest among equals names a winner, divided among many contests. `others`: more
    curves of the study, used only for the spread.
    """
    rest = [one for one in others if not any(one is curve for curve in group)]
    for one in Regime:
        racing = [(curve, found) for curve in group if (found := _times(curve, one))]
        common = sorted(set.intersection(*(set(found) for _, found in racing))) if racing else []
        if len(racing) > 1 and common:
            entrants = [_Entrant(curve, levels([found[n] for n in common])) for curve, found in racing]
            known = [(curve, found) for curve in rest if (found := _times(curve, one))]
            more = [_Entrant(curve, levels([*found.values()])) for curve, found in known]
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
    spreads = [deviation(one.values) for one in ordered]
    tied = [not sure for sure in (False, *slower)]
    return tuple(map(Placing, names, behind, spreads, tied, noise))


def _spreads(entrants: Sequence[_Entrant], more: Sequence[_Entrant]) -> list[Levels]:
    """Return the entrants' levels, which learn their spread from similar curves of the study."""
    repeated = (*entrants, *(other for other in more if len(other.values) > 1))
    alike = grouped((one.likeness, one) for one in repeated)
    found = {
        id(one): known
        for some in alike.values()
        for one, known in zip(some, cautious([one.values for one in some]), strict=True)
    }
    return [found[id(one)] for one in entrants]


def _slower(chances: Sequence[float], alpha: float) -> tuple[list[bool], float]:
    """Return which settings are slower than the first, and the chance required of the next setting.

    The first was chosen from all possible fastest settings, so each pair of them is a test (Holm's rule, by
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
    """Return the extra time over the first that may be chance, as a share; infinite where repeats are few."""
    try:
        return math.expm1(difference.least(chance))
    except OverflowError:
        return math.inf
