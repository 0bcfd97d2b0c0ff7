"""A model beside measurements: the ratio of both at each size, for other sizes and ranks. Pure.

GPU times and host launches are corrected separately, since they grow by different rules. A launch by one
process grows with the number of GPUs, a step with the number of ranks.
"""

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from wirewatch.busbw.formulas import NVLS, Point
from wirewatch.core.probe import KIB
from wirewatch_lab.advice.times.model import CollectiveModel

SMALL = 64 * KIB
"""Up to this size a message shows latency, of the host's launch or of the steps."""
_AHEAD = 1.15
"""An operation must take this many times its launch for its time to be the GPUs' own."""
_LEAST = 0.2
"""Least share of the model's time, whatever a few small messages show."""
NEAR = 8.0
"""Sizes within this factor of each other show all sizes between them."""
_SAME = 1.01
"""Sizes nearer than this are one size: shares of ranks are rounded."""


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """Sizes with seconds of a collective, the smallest first, as it ran.

    `graph`: in CUDA graphs. `one_process`: a single process launched on all GPUs. `once`: seconds that the
    measuring program adds to each launched operation, for any number of GPUs.
    """

    model: CollectiveModel
    sizes: tuple[Point, ...]
    graph: bool
    one_process: bool
    source: str = ""
    once: float = 0.0

    def host_seconds(self, size_bytes: float, level: float = 1.0) -> float:
        """Return the model's seconds of the launches."""
        return self.model.host_seconds(size_bytes, one_process=self.one_process, level=level)

    def spans(self, size_bytes: float) -> bool:
        """Return whether a size was measured, or two close sizes around it."""
        held = [size for size, _ in self.sizes]
        place = bisect.bisect_left(held, size_bytes / _SAME)
        if place < len(held) and held[place] <= size_bytes * _SAME:
            return True
        return 0 < place < len(held) and held[place] <= NEAR * held[place - 1]

    def apart(self, size_bytes: float) -> float:
        """Return a size's distance from the curve's, in logarithms; 0 between its smallest and largest."""
        low, high = self.sizes[0][0], self.sizes[-1][0]
        return max(math.log(low / size_bytes), math.log(size_bytes / high), 0.0)


@dataclass(frozen=True, slots=True)
class TabledModel(CollectiveModel):
    """A collective with a table, which gives its time on the GPUs at every size.

    `table`: of the same collective, wire and ranks; between and beyond its sizes it follows the structure's
    shape. The structure gives launches, and the protocol of each size.
    """

    table: MeasuredCurve | None = None

    def gpu_seconds(self, size_bytes: float) -> float:
        """Return the table's time, or the structure's without a table."""
        if self.table is None:
            return CollectiveModel.gpu_seconds(self, size_bytes)
        return along(self.table, size_bytes)


def tabled(model: CollectiveModel, curves: Sequence[MeasuredCurve]) -> TabledModel | None:
    """Return the model with GPU times from curves of the same wire and ranks, the first before later curves.

    Returns None without such times, or where NVLS may run, which the curves do not cover.
    """
    points: dict[int, float] = {}
    for one in sorted(curves, key=lambda curve: not curve.graph):
        low, high = (min(points), max(points)) if points else (1, 0)
        points |= {size: at for size, at in _on_gpus(one) if not low <= size <= high}
    if not points or model.nvls:
        return None
    plain = CollectiveModel(model.op, model.ranks, model.kind, model.architecture, model.wire)
    table = MeasuredCurve(plain, tuple(sorted(points.items())), graph=True, one_process=False)
    return TabledModel(plain.op, plain.ranks, plain.kind, plain.architecture, plain.wire, table=table)


@dataclass(frozen=True, slots=True)
class Correction:
    """Corrections of a model: `start` seconds more on the GPUs, then a factor at each size in bytes, `gpu`.

    Beyond these sizes the nearest factor holds. `nvls`: factors for NVLS, which is another model. `host`:
    factor of a launch's time, `once`: seconds beside it where one process launches. The extra time of small
    messages is added, not multiplied, since gaps between kernels do not grow with the ranks. But one process
    launches the graphs of all GPUs in turn, and the first GPU waits for the last in its first operation.
    `launched`: number of GPUs with which `start` was seen so, 0 where it was not.
    """

    gpu: tuple[tuple[float, float], ...] = ()
    host: float = 1.0
    nvls: tuple[tuple[float, float], ...] = ()
    start: float = 0.0
    once: float = 0.0
    launched: int = 0

    def seconds(self, model: CollectiveModel, size_bytes: float, *, graph: bool, one_process: bool) -> float:
        """Return the time of an operation."""
        if graph:
            return self.gpu_seconds(model, size_bytes, one_process=one_process)
        # Launched one by one, kernels lack the gaps of a graph: of 2 MiB, 16 in a row of a job, each took
        # 30.6 us in a graph and 27 so, on 2 and on 4 H200.
        gpu = replace(self, start=min(self.start, 0.0)).gpu_seconds(model, size_bytes)
        once = self.once if one_process else 0.0
        launches = model.host_seconds(size_bytes, one_process=one_process, level=self.host)
        return max(gpu, once + launches)

    def gpu_seconds(self, model: CollectiveModel, size_bytes: float, *, one_process: bool = False) -> float:
        """Return the time on the GPUs; `one_process`: a single process launches the graphs."""
        ratios = self.nvls if model.taken(size_bytes).algorithm == NVLS else self.gpu
        return self.bare(model, size_bytes, one_process=one_process) * _between(model, ratios, size_bytes)

    def bare(self, model: CollectiveModel, size_bytes: float, *, one_process: bool = False) -> float:
        """Return the time on the GPUs before a factor."""
        plain = model.gpu_seconds(size_bytes)
        later = (model.ranks - 1) / (self.launched - 1) if one_process and self.launched > 1 else 1.0
        return max(plain + self.start * later, _LEAST * plain)


def fitted(
    curves: Sequence[MeasuredCurve], *, one_process: bool, prior: Correction | None = None
) -> Correction:
    """Return the corrections from curves and models; at equal sizes first curves precede later curves.

    `curves`: of one collective, of any numbers of ranks. `one_process`: of such launches. `prior`: correction
    of small messages and launches where the curves show nothing about them.
    """
    before = prior or Correction()
    ordered = sorted(curves, key=lambda curve: not curve.graph)
    shows = None
    for shows, started in ((one, more) for one in ordered if (more := _more(one)) is not None):
        in_turn = shows.graph and shows.one_process
        before = replace(before, start=started, launched=shows.model.ranks if in_turn else 0)
        break
    found = before
    gpu: dict[float, float] = {}
    nvls: dict[float, float] = {}
    for one in ordered:
        held = (min(gpu), max(gpu)) if gpu else (math.inf, -math.inf)
        for size, seconds in _on_gpus(one):
            if size <= SMALL and one is not shows:
                continue
            into = nvls if one.model.taken(size).algorithm == NVLS else gpu
            if into is nvls or not held[0] <= size <= held[1]:
                in_turn = one.graph and one.one_process
                into.setdefault(size, seconds / found.bare(one.model, size, one_process=in_turn))
    if gpu and min(gpu) > SMALL:
        gpu[SMALL] = _between(curves[0].model, before.gpu, SMALL)
    found = replace(
        found, gpu=tuple(sorted(gpu.items())) or before.gpu, nvls=tuple(sorted(nvls.items())) or before.nvls
    )
    launched = [one for one in curves if not one.graph and one.one_process is one_process]
    for one in launched:
        level = _host(one, found)
        if level is not None:
            return replace(found, host=level, once=one.once)
    return found


def _on_gpus(curve: MeasuredCurve) -> Iterable[Point]:
    """Return the times that show the GPUs, not the host."""
    if curve.graph:
        return curve.sizes
    level = _level(curve) or 1.0
    return [
        (size, seconds)
        for size, seconds in curve.sizes
        if seconds > _AHEAD * (curve.once + curve.host_seconds(size, level))
    ]


def _more(curve: MeasuredCurve) -> float | None:
    """Return small messages' extra time over the model; None where none shows the time on the GPUs."""
    small = [seconds - curve.model.gpu_seconds(size) for size, seconds in _on_gpus(curve) if size <= SMALL]
    return median(small) if small else None


def _level(curve: MeasuredCurve) -> float | None:
    """Return the ratio of small messages' times to the model's launches; None without any measured."""
    small = [
        max(seconds - curve.once, _LEAST * seconds) / curve.host_seconds(size)
        for size, seconds in curve.sizes
        if size <= SMALL
    ]
    return median(small) if small else None


def _host(curve: MeasuredCurve, correction: Correction) -> float | None:
    """Return the ratio of a launch's time to the model's; None where no small message shows it.

    Where small messages took the GPUs' time, this is an upper bound of the launch.
    """
    level = _level(curve)
    if level is None:
        return None
    size = curve.sizes[0][0]
    launch = curve.once + curve.host_seconds(size, level)
    bound = launch > _AHEAD * correction.gpu_seconds(curve.model, size)
    return level if bound else min(level, 1.0)


def along(curve: MeasuredCurve, size_bytes: float) -> float:
    """Return the time of a size by the curve: exact where measured, else with the model's shape."""
    ratios = [(size, seconds / _whole(curve, size)) for size, seconds in curve.sizes]
    return _whole(curve, size_bytes) * _between(curve.model, ratios, size_bytes)


def _whole(curve: MeasuredCurve, size_bytes: float) -> float:
    return Correction(once=curve.once).seconds(
        curve.model, size_bytes, graph=curve.graph, one_process=curve.one_process
    )


def _between(model: CollectiveModel, ratios: Sequence[tuple[float, float]], size_bytes: float) -> float:
    """Return the ratio at a size from its neighbours; beyond them the nearest holds.

    Between distant sizes it moves from latency's to bandwidth's ratio with the model's time.
    """
    if not ratios:
        return 1.0
    place = bisect.bisect_left([size for size, _ in ratios], size_bytes)
    if place == 0:
        return ratios[0][1]
    if place == len(ratios):
        return ratios[-1][1]
    (low, first), (high, last) = ratios[place - 1], ratios[place]
    share = math.log(size_bytes / low) / math.log(high / low)
    least, most = model.latency_share(high), model.latency_share(low)
    if high > NEAR * low and most > least:
        share = min(max((most - model.latency_share(size_bytes)) / (most - least), 0.0), 1.0)
    return math.exp(math.log(first) * (1 - share) + math.log(last) * share)
