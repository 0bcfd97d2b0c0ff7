"""Predicted times of collectives beside measured ones, and what of both repeats show to be reproducible.

What repeats of the same measurement differ by cannot be predicted better than that: a size is held to a limit
or to what its own repeats and those that it was predicted from differ by, whichever is more. Both are said.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from proof.hardware.kit import KitError, Report
from wirewatch.core.probe import KIB, MIB
from wirewatch.core.types import Absent
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Estimate, Ranks
from wirewatch_lab.study.curve import Curve, CurvePoint, Study
from wirewatch_lab.study.grid import EAGER, GRAPH

SMALL, LARGE, MOST = 64 * KIB, 64 * MIB, 1024 * MIB
GIVEN = (LARGE, 256 * MIB)
"""Besides the smallest: 8 B, and 16 B for each rank where ranks share the message."""
WITHIN, LARGE_WITHIN = 0.15, 0.10
LIMITS = (("all sizes", 0, WITHIN), ("from 64 MiB on", LARGE, LARGE_WITHIN))


@dataclass(frozen=True)
class PredictedTime:
    """One figure that was predicted and measured; in seconds.

    `repeats`, `given`: by what share of their median the repeats differ, of the measured one and of those
    that the predicted one stands on.
    """

    what: str
    size_bytes: int
    predicted: float
    measured: float
    repeats: float = 0.0
    given: float = 0.0

    @property
    def off(self) -> float:
        """As a share of what was measured."""
        return self.predicted / self.measured - 1

    @property
    def spread(self) -> float:
        """What cannot be reproduced any better."""
        return max(self.repeats, self.given)

    def over(self, limit: float) -> float:
        """By how much it is farther off than a limit or the spread; 0 or less where it holds."""
        return abs(self.off) - max(limit, self.spread)


def differ(values: Sequence[float]) -> float:
    """The share of their median by which the largest is above the smallest."""
    return (max(values) - min(values)) / median(values)


def predictions(
    times: CollectiveTimes, given: Study, whole: Study, op: str, launch: str
) -> Iterator[PredictedTime]:
    """Each size of a collective up to 1 GiB, predicted as the whole study launched it.

    Raises:
        KitError: one was not measured, or nothing is predicted of it.
    """
    one_process = whole.environment.get("engine") != "distributed"
    for curve in whole.curves:
        if (curve.op, curve.configuration.launch) != (op, launch):
            continue
        for point in curve.points:
            if point.size_bytes > MOST:
                continue
            if not point.seconds:
                raise KitError(f"{op}, {launch}, {point.size_bytes} B: not measured")
            seconds = _seconds(times, curve, point.size_bytes, launch, one_process=one_process)
            on_gpus = _seconds(times, curve, point.size_bytes, GRAPH, one_process=False)
            held = stands_on(given, op, launch, point.size_bytes, seconds, on_gpus)
            apart = max((differ(one.seconds) for one in held), default=0.0)
            measured = median(point.seconds)
            yield PredictedTime(op, point.size_bytes, seconds, measured, differ(point.seconds), apart)


def judge(report: Report, what: str, found: Sequence[PredictedTime]) -> None:
    """Both limits; nothing to compare, or nothing that is reproducible, is a limit that fails."""
    for name, least, limit in LIMITS:
        part = [one for one in found if one.size_bytes >= least]
        ok, line = judged(part, limit)
        report.check(
            f"{what}: {name} within {100 * limit:g} %, or as repeats differ where that is more",
            ok=ok, told=line,
        )  # fmt: skip


def judged(part: Sequence[PredictedTime], limit: float) -> tuple[bool, str]:
    """Whether all hold, and the farthest of what is reproducible within the limit and of the others."""
    firm = [one for one in part if one.spread <= limit]
    loose = [one for one in part if one.spread > limit]
    if not firm:
        return False, "nothing that is reproducible to compare"
    line = _farthest(firm)
    if loose:
        apart = max(one.spread for one in loose)
        line += (
            f"; {len(loose)} of {len(part)} sizes are not reproducible within {100 * limit:g} % "
            f"(repeats up to {100 * apart:.0f} % apart), there {_farthest(loose)}"
        )
    return max(one.over(limit) for one in part) <= 0, line


def three_sizes(two: Study) -> Study:
    """A study with the smallest size of each curve and the given ones alone.

    Raises:
        KitError: one of them was not measured.
    """
    curves = []
    for curve in two.curves:
        points = [point for point in curve.points if point.seconds]
        kept = [*points[:1], *(point for point in points[1:] if point.size_bytes in GIVEN)]
        if len(kept) != 1 + len(GIVEN):
            raise KitError(f"{curve.op}: {[point.size_bytes for point in points]} of two GPUs")
        curves.append(replace(curve, points=tuple(kept)))
    return replace(two, curves=tuple(curves))


def percent(one: PredictedTime) -> str:
    return f"{100 * one.off:+.1f} %"


def _farthest(part: Iterable[PredictedTime]) -> str:
    worst = max(part, key=lambda one: abs(one.off))
    return f"{worst.size_bytes} B: {percent(worst)}"


def _seconds(
    times: CollectiveTimes, curve: Curve, size_bytes: int, launch: str, *, one_process: bool
) -> float:
    span = Ranks(curve.configuration.ranks)
    found = times.estimate(curve.op, span, size_bytes, launch, one_process=one_process)
    if isinstance(found, Absent):
        raise KitError(f"{curve.op}, {launch}, {size_bytes} B: {found}")
    assert isinstance(found, Estimate)
    return found.seconds


def stands_on(
    given: Study, op: str, launch: str, size_bytes: int, predicted: float, on_gpus: float
) -> list[CurvePoint]:
    """The given points that a size is predicted from.

    They are the smallest for small messages, and one by one wherever the launch takes longer than the GPUs,
    `on_gpus`: that of the prediction, or the slowest that was given. Else the large ones.
    """
    points = [
        point
        for curve in given.curves
        if (curve.op, curve.configuration.launch) == (op, launch)
        for point in curve.points
    ]
    least = [one for one in points if one.size_bytes < LARGE]
    launched = launch == EAGER and any(max(predicted, *one.seconds) > on_gpus for one in least)
    return least if launched or size_bytes <= SMALL else [one for one in points if one not in least]
