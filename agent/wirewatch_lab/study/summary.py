"""The findings of a study: latency floor, plateau and knee of each curve, in plain words. Pure.

The range of an estimate spans the lowest to the highest of its repeats. In all but 2 of 2^n cases the true
median lies within the range of n repeats, for any noise.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low
from typing import Protocol

from wirewatch.busbw.formulas import FACTORS, busbw, factor
from wirewatch.core import words
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import GB, count
from wirewatch_lab.study.compare import Contest, Placing, contests, groups
from wirewatch_lab.study.curve import AUTO, Configuration, Curve, CurvePoint, Study
from wirewatch_lab.study.spread import usable

FLOOR_BYTES = 4 << 10
"""The floor is the median time of messages up to this size."""
STEEP = 0.05
"""A curve is not at its plateau if doubling the largest size raises its busbw by this share or more. On a
line of time against size it is then at 90 % or less."""
HALF = 0.5
"""The knee is the first size with this share of the plateau."""
CLOSE = 0.05
"""Settings tie where repeats can show a difference of this share of the time; else there is no winner."""
MUCH = 10.0
"""From this factor of the time on, the figure is not shown to people."""
EAGER = "eager"


class HasTitle(Protocol):
    """A curve, or a finding about it."""

    @property
    def op(self) -> str: ...
    @property
    def configuration(self) -> Configuration: ...
    @property
    def dtype(self) -> str: ...
    @property
    def in_place(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class RepeatedFigure:
    """A median over repeats, with their lowest and highest value; a single repeat has no spread."""

    value: float
    low: float
    high: float
    repeats: int

    @property
    def has_spread(self) -> bool:
        """Return whether the range is meaningful."""
        return self.repeats > 1


@dataclass(frozen=True, slots=True)
class CurveSummary:
    """Seconds of the floor, bytes per second of the plateau, bytes of the knee.

    `plateau_bytes`: the size with the highest busbw. `bound`: why plateau and knee are only lower bounds;
    empty where they are exact.
    """

    floor: RepeatedFigure | Absent
    plateau: RepeatedFigure | Absent
    knee: RepeatedFigure | Absent
    plateau_bytes: int = 0
    bound: str = ""


def summarize(curve: Curve) -> CurveSummary:
    """Summarise the points that are measurements."""
    points = [point for point in curve.points if usable(point)]
    small = [point.seconds for point in points if point.size_bytes <= FLOOR_BYTES]
    floor: RepeatedFigure | Absent = Absent(
        Why.MISSING, f"no size up to {words.size(FLOOR_BYTES)} was measured"
    )
    if small:
        floor = estimate([median(times) for times in zip(*small, strict=False)])
    ranks = curve.configuration.ranks
    if curve.op not in FACTORS or ranks < 1 or factor(curve.op, ranks) == 0:
        absent = Absent(Why.UNSUPPORTED, f"{curve.op} of {count(ranks, 'rank')} has no bus bandwidth")
        return CurveSummary(floor, absent, absent)
    if not points:
        absent = Absent(Why.MISSING, "no size was measured")
        return CurveSummary(floor, absent, absent)
    rates = {point.size_bytes: rates_of(curve, point) for point in points}
    best = max(rates, key=lambda size: median(rates[size]))
    return CurveSummary(floor, estimate(rates[best]), _knee(rates, best), best, _bound(rates, best))


def estimate(values: Sequence[float]) -> RepeatedFigure:
    """Return the median and range of one value for each repeat."""
    return RepeatedFigure(median(values), min(values), max(values), len(values))


def rates_of(curve: Curve, point: CurvePoint) -> tuple[float, ...]:
    """Return busbw of a point in bytes per second, one for each repeat; 0 where the collective has none."""
    ranks = curve.configuration.ranks
    if curve.op not in FACTORS or ranks < 1:
        return tuple(0.0 for _ in point.seconds)
    return tuple(busbw(curve.op, ranks, point.size_bytes, one) for one in point.seconds)


def setting(configuration: Configuration) -> str:
    """Return a configuration in words, without its ranks: `Ring LL128 graph NCCL_MAX_NCHANNELS=8`."""
    names = [one for one in (configuration.algorithm, configuration.protocol) if one != AUTO]
    names = names or [AUTO]
    names += [configuration.launch] if configuration.launch != EAGER else []
    names += ["registered"] if configuration.registered else []
    return " ".join((*names, *(f"{name}={value or 'as found'}" for name, value in configuration.settings)))


def summary_lines(study: Study) -> tuple[str, ...]:
    """Return the study's findings in plain words: figures, winners, and missing or wrong parts."""
    return (*(f"{name}, {line}" for name, lines in group_lines(study) for line in lines), *remarks(study))


def group_lines(study: Study) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each group of curves: title, figures and winners."""
    for group in groups(study):
        yield title(group[0]), tuple(_group_lines(group, study.curves))


def remarks(study: Study) -> tuple[str, ...]:
    """Return missing and wrong parts."""
    return (
        *(f"not offered: {one}" for one in study.not_offered),
        *(f"problem: {one}" for one in study.problems),
        *_doubts(study.curves),
    )


def title(one: HasTitle) -> str:
    """Return the common parts of a group of curves: `all_reduce, 4 ranks, float32, in place`."""
    place = "in place" if one.in_place else "out of place"
    return f"{one.op}, {count(one.configuration.ranks, 'rank')}, {one.dtype}, {place}"


def span(first: int, last: int) -> str:
    """Return a range of sizes in bytes, for people."""
    return words.size(first) if first == last else f"{words.size(first)} to {words.size(last)}"


def microseconds(one: RepeatedFigure | Absent) -> str:
    """Return seconds for people: `23.3 us (23.1 to 23.5)`."""
    return _ranged(one, lambda value: f"{value * 1e6:.1f}", " us")


def gigabytes(one: RepeatedFigure | Absent) -> str:
    """Return bytes per second for people: `366.2 GB/s (365.9 to 366.3)`."""
    return _ranged(one, lambda value: f"{value / GB:.1f}", " GB/s")


def size_text(one: RepeatedFigure | Absent) -> str:
    """Return bytes for people: `8 MiB (8 MiB to 16 MiB)`."""
    return _ranged(one, lambda value: words.size(round(value)), "")


def in_words(summary: CurveSummary) -> str:
    """Return all three: `latency floor 23.3 us, knee 8 MiB, plateau 366.2 GB/s; no spread: one repeat`."""
    least = "at least " if summary.bound else ""
    figures = (summary.floor, summary.knee, summary.plateau)
    texts = (microseconds(figures[0]), least + size_text(figures[1]), least + gigabytes(figures[2]))
    named = list(zip(("latency floor", "knee", "plateau"), figures, texts, strict=True))
    known = [f"{name} {text}" for name, one, text in named if not isinstance(one, Absent)]
    absent = [f"no {name}: {one.detail}" for name, one, _ in named if isinstance(one, Absent)]
    spread = [one.has_spread for one in figures if not isinstance(one, Absent)]
    no_spread = ["no spread: one repeat"] if spread and not any(spread) else []
    return "; ".join(part for part in (", ".join(known), *absent, summary.bound, *no_spread) if part)


def _knee(rates: Mapping[int, Sequence[float]], best: int) -> RepeatedFigure | Absent:
    """Return in each repeat the first size with half of the plateau."""
    found = []
    for repeat, plateau in enumerate(rates[best]):
        known = {size: one[repeat] for size, one in rates.items() if repeat < len(one)}
        found.append(min(size for size, rate in known.items() if rate >= HALF * plateau))
    if len(rates) == 1 or median_low(found) == min(rates):
        why = f"the smallest size, {words.size(min(rates))}, has half of the plateau already"
        return Absent(Why.MISSING, why)
    return RepeatedFigure(median_low(found), min(found), max(found), len(found))


def _bound(rates: Mapping[int, Sequence[float]], best: int) -> str:
    """Return why the highest busbw is less than the plateau, if it is."""
    if best != max(rates):
        return ""
    before = max((size for size in rates if size <= best / 2), default=0)
    if not before:
        return f"{words.size(best)} is the only size, so there may be more"
    doublings = math.log2(best / before)
    growth = (median(rates[best]) / median(rates[before])) ** (1 / doublings) - 1
    if growth < STEEP:
        return ""
    return f"busbw still grows by {growth:.0%} with each doubling at {words.size(best)}, the largest size"


def _ranged(one: RepeatedFigure | Absent, text: Callable[[float], str], unit: str) -> str:
    if isinstance(one, Absent):
        return f"not known: {one.detail}"
    low, high = text(one.low), text(one.high)
    same = not one.has_spread or low == high
    return f"{text(one.value)}{unit}" + ("" if same else f" ({low} to {high})")


def _group_lines(group: Sequence[Curve], curves: Sequence[Curve]) -> Iterator[str]:
    if len(group) == 1:
        name = setting(group[0].configuration)
        yield f"{name}: {in_words(summarize(group[0]))}."
        return
    summaries = [(curve, summarize(curve)) for curve in group]
    floors = [(s.floor.value, curve, s) for curve, s in summaries if not isinstance(s.floor, Absent)]
    plateaus = [(s.plateau.value, curve, s) for curve, s in summaries if not isinstance(s.plateau, Absent)]
    best = []
    if floors:
        _, curve, found = min(floors, key=lambda one: one[0])
        best.append(f"lowest latency floor {microseconds(found.floor)} with {setting(curve.configuration)}")
    if plateaus:
        _, curve, found = max(plateaus, key=lambda one: one[0])
        least = "at least " if found.bound else ""
        knee = "" if isinstance(found.knee, Absent) else f", its knee {least}{size_text(found.knee)}"
        name = setting(curve.configuration)
        best.append(f"highest plateau {least}{gigabytes(found.plateau)} with {name}{knee}")
    yield f"{count(len(group), 'setting')}: {'; '.join(best) or 'nothing was measured'}."
    for contest in contests(group, others=curves):
        yield f"{contest.regime.value}, {_contest_words(contest)}."


def _contest_words(contest: Contest) -> str:
    sizes = span(contest.sizes[0], contest.sizes[-1])
    first, *others = contest.placings
    name = setting(first.configuration)
    if first.spread is None:
        second = others[0]
        faster = f"{name} was {second.behind:.1%} faster than {setting(second.configuration)}"
        return f"{sizes}: no spread, so there is no winner: {faster} in its one run"
    behind = [one for one in others if not one.tied]
    lead = behind[0].behind if behind else math.inf
    tied = [one for one in others if one.tied and one.behind < lead]
    unclear = [one for one in others if one.tied and one.behind >= lead]
    if tied:
        names = ", ".join((name, *(setting(one.configuration) for one in tied)))
        close = max(one.noise or 0.0 for one in tied) <= CLOSE
        won = f"{'a tie of' if close else 'no winner among'} {names} ({_apart(tied[-1])})"
    else:
        won = f"{name} wins (spread {first.spread:.1%})"
    if not behind:
        return f"{sizes}: {won}"
    lost = f"the next, {setting(behind[0].configuration)}, takes {behind[0].behind:.1%} longer"
    last = behind[-1]
    more = f", the last, {setting(last.configuration)}, {last.behind:.1%}" if len(behind) > 1 else ""
    noisy = "".join(f"; too noisy to place: {setting(one.configuration)} ({_apart(one)})" for one in unclear)
    return f"{sizes}: {won}; {lost}{more}{_own_choice(behind)}{noisy}"


def _apart(one: Placing) -> str:
    """Return how far a tied setting is behind, and why it proves nothing: `2.9% apart, 7.0% may be noise`."""
    noise = 0.0 if one.noise is None else one.noise
    return f"{one.behind:.1%} apart, {f'{noise:.1%}' if noise < MUCH else 'any difference'} may be noise"


def _own_choice(behind: Sequence[Placing]) -> str:
    """Return how far NCCL's own choice is behind, unless it is the next or the last."""
    own = (one for one in behind[1:-1] if one.configuration == Configuration(one.configuration.ranks))
    return next((f"; auto, which is what NCCL chooses by itself, {one.behind:.1%}" for one in own), "")


def _doubts(curves: Sequence[Curve]) -> Iterator[str]:
    for curve in curves:
        name = f"{title(curve)}, {setting(curve.configuration)}"
        wrong = [point.size_bytes for point in curve.points if point.wrong]
        if wrong:
            where = f"{count(len(wrong), 'size')} from {words.size(wrong[0])} on"
            yield f"wrong values: {name}: at {where}, which are left out above."
        for ran, sizes in _otherwise(curve).items():
            yield f"ran otherwise: {name}: NCCL's log has {ran} at {span(min(sizes), max(sizes))}."
    unchecked = sum(any(point.wrong is None for point in curve.points) for curve in curves)
    if unchecked:
        yield f"not checked: the values of {count(unchecked, 'curve')}"


def _otherwise(curve: Curve) -> Mapping[str, Sequence[int]]:
    """Return sizes that ran with another algorithm or protocol than requested, by the actual choice."""
    asked = (curve.configuration.algorithm, curve.configuration.protocol)
    found: dict[str, list[int]] = {}
    for point in curve.points:
        for ran in point.ran:
            pairs = zip(asked, ran.split(), strict=False)
            if any(wish != AUTO and wish.casefold() != one.casefold() for wish, one in pairs):
                found.setdefault(ran, []).append(point.size_bytes)
    return found
