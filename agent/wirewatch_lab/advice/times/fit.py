"""A model beside what was measured: the ratio of both at each size, for other sizes and ranks. Pure.

Times on the GPUs and launches of the host are corrected apart, since they grow by different rules: a launch
by one process with the number of GPUs, a step with that of ranks.
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
"""Up to here a message shows latency: the host's of its launch, or that of the steps."""
_AHEAD = 1.15
"""So much longer than its launch must an operation take, for its time to be that of the GPUs."""
_LEAST = 0.2
"""Of the model's time, whatever a few small messages showed."""
NEAR = 8.0
"""Sizes no more than this factor apart show all that is between them."""
_SAME = 1.01
"""Sizes nearer than this are one size: shares of ranks are rounded."""


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """Sizes with seconds of one collective, the smallest first, as it ran.

    `graph`: in CUDA graphs. `one_process`: a single process launched on all GPUs. `once`: seconds of each
    launched operation that are the measuring program's own, whatever the number of GPUs.
    """

    model: CollectiveModel
    sizes: tuple[Point, ...]
    graph: bool
    one_process: bool
    source: str = ""
    once: float = 0.0

    def host_seconds(self, size_bytes: float, level: float = 1.0) -> float:
        """Of the launches, by the model."""
        return self.model.host_seconds(size_bytes, one_process=self.one_process, level=level)

    def spans(self, size_bytes: float) -> bool:
        """Whether a size was measured, or two around it that are near each other."""
        held = [size for size, _ in self.sizes]
        place = bisect.bisect_left(held, size_bytes / _SAME)
        if place < len(held) and held[place] <= size_bytes * _SAME:
            return True
        return 0 < place < len(held) and held[place] <= NEAR * held[place - 1]

    def apart(self, size_bytes: float) -> float:
        """How far a size is from those of the curve, in logarithms; 0 between its smallest and largest."""
        low, high = self.sizes[0][0], self.sizes[-1][0]
        return max(math.log(low / size_bytes), math.log(size_bytes / high), 0.0)


@dataclass(frozen=True, slots=True)
class TabledModel(CollectiveModel):
    """A collective of which a table is known: its time on the GPUs is the table's at every size.

    `table`: of the same collective, wire and ranks; between its sizes and beyond them it is bent as the
    structure is. What runs by which protocol, and launches, are the structure's.
    """

    table: MeasuredCurve | None = None

    def gpu_seconds(self, size_bytes: float) -> float:
        """As the table has it, or the structure where there is none."""
        if self.table is None:
            return CollectiveModel.gpu_seconds(self, size_bytes)
        return along(self.table, size_bytes)


def tabled(model: CollectiveModel, curves: Sequence[MeasuredCurve]) -> TabledModel | None:
    """The model with the times on the GPUs of curves of the same wire and ranks, the first before later.

    Returns None where they have none, or where NVLS may run, of which they say nothing.
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
    """What bends a model: `start` seconds more on the GPUs, then a factor at each size in bytes, `gpu`.

    Beyond these sizes the nearest factor holds. `nvls`: of what runs by NVLS, which is another model. `host`:
    factor of a launch's time, `once`: seconds beside it where one process launches. What small messages take
    more than the model says is added, not multiplied: gaps between kernels do not grow with the ranks. But
    one process launches the graphs of all GPUs one after the other, and the first waits for the last in its
    first operation: `launched` is of how many GPUs `start` was seen so, 0 where it was not.
    """

    gpu: tuple[tuple[float, float], ...] = ()
    host: float = 1.0
    nvls: tuple[tuple[float, float], ...] = ()
    start: float = 0.0
    once: float = 0.0
    launched: int = 0

    def seconds(self, model: CollectiveModel, size_bytes: float, *, graph: bool, one_process: bool) -> float:
        """The time of one operation."""
        if graph:
            return self.gpu_seconds(model, size_bytes, one_process=one_process)
        # Launched one by one, kernels lack the gaps of a graph: of 2 MiB, 16 in a row of a job, each took
        # 30.6 us in a graph and 27 so, on 2 and on 4 H200.
        gpu = replace(self, start=min(self.start, 0.0)).gpu_seconds(model, size_bytes)
        once = self.once if one_process else 0.0
        launches = model.host_seconds(size_bytes, one_process=one_process, level=self.host)
        return max(gpu, once + launches)

    def gpu_seconds(self, model: CollectiveModel, size_bytes: float, *, one_process: bool = False) -> float:
        """The time on the GPUs; `one_process`: of graphs that one process launches."""
        ratios = self.nvls if model.taken(size_bytes).algorithm == NVLS else self.gpu
        return self.bare(model, size_bytes, one_process=one_process) * _between(model, ratios, size_bytes)

    def bare(self, model: CollectiveModel, size_bytes: float, *, one_process: bool = False) -> float:
        """The time on the GPUs before a factor."""
        plain = model.gpu_seconds(size_bytes)
        later = (model.ranks - 1) / (self.launched - 1) if one_process and self.launched > 1 else 1.0
        return max(plain + self.start * later, _LEAST * plain)


def fitted(
    curves: Sequence[MeasuredCurve], *, one_process: bool, prior: Correction | None = None
) -> Correction:
    """What the curves say of their models, the first ones before later ones at the same sizes.

    `curves`: of one collective; of any numbers of ranks. `one_process`: of launches like these. `prior`: what
    holds of small messages and of launches where the curves show nothing of them.
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
    """Those times that are the GPUs', not the host's."""
    if curve.graph:
        return curve.sizes
    level = _level(curve) or 1.0
    return [
        (size, seconds)
        for size, seconds in curve.sizes
        if seconds > _AHEAD * (curve.once + curve.host_seconds(size, level))
    ]


def _more(curve: MeasuredCurve) -> float | None:
    """What small messages took more than the model says; None where none shows the time on the GPUs."""
    small = [seconds - curve.model.gpu_seconds(size) for size, seconds in _on_gpus(curve) if size <= SMALL]
    return median(small) if small else None


def _level(curve: MeasuredCurve) -> float | None:
    """The small messages' times over the model's launches; None where no small one was measured."""
    small = [
        max(seconds - curve.once, _LEAST * seconds) / curve.host_seconds(size)
        for size, seconds in curve.sizes
        if size <= SMALL
    ]
    return median(small) if small else None


def _host(curve: MeasuredCurve, correction: Correction) -> float | None:
    """How long a launch took, over the model's; None where no small message shows it.

    Where small messages took what the GPUs need, a launch took no longer, and perhaps less.
    """
    level = _level(curve)
    if level is None:
        return None
    size = curve.sizes[0][0]
    launch = curve.once + curve.host_seconds(size, level)
    bound = launch > _AHEAD * correction.gpu_seconds(curve.model, size)
    return level if bound else min(level, 1.0)


def along(curve: MeasuredCurve, size_bytes: float) -> float:
    """The time of a size by the curve itself: exact where it was measured, else bent as the model is."""
    ratios = [(size, seconds / _whole(curve, size)) for size, seconds in curve.sizes]
    return _whole(curve, size_bytes) * _between(curve.model, ratios, size_bytes)


def _whole(curve: MeasuredCurve, size_bytes: float) -> float:
    return Correction(once=curve.once).seconds(
        curve.model, size_bytes, graph=curve.graph, one_process=curve.one_process
    )


def _between(model: CollectiveModel, ratios: Sequence[tuple[float, float]], size_bytes: float) -> float:
    """The ratio at a size by those around it; beyond them the nearest holds.

    Between sizes that are far apart it goes from latency's to bandwidth's as the model's time does.
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
