"""Evidence for a collective's times: curves of the machine's own studies, and of references."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from wirewatch.busbw.curves import CURVES, ReferenceCurve
from wirewatch.busbw.expected import choose, wire
from wirewatch.busbw.formulas import NVLS, RING, factor
from wirewatch.busbw.references import SAME_WIRE, Confidence, Reference, ReferenceQuery, architecture, find
from wirewatch.core.probe import Conditions
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.times.fit import MeasuredCurve
from wirewatch_lab.advice.times.model import CollectiveModel
from wirewatch_lab.study.curve import AUTO, Curve, Study
from wirewatch_lab.study.grid import GRAPH

_NOT_OF_GPUS = frozenset({"gloo"})
"""Engines that run on processors."""
_SHORTEST, _LONGEST = 1e-9, 1e6
"""Shortest and longest plausible times of a collective in a file, in seconds."""
_A_PROCESS_EACH = frozenset({"distributed"})
_OURS = frozenset({"nccl", "torch"})
_OURS_ONCE = 6e-6
"""Seconds of our worker's Python for each launched operation, which it marks with an event. The value makes
launches on 2 and on 4 H200 agree; nccl-tests mark all operations together."""


@dataclass(frozen=True, slots=True)
class OneReference:
    """A published curve, its confidence, and whether its wire and ranks are the same."""

    curve: MeasuredCurve
    confidence: Confidence
    own: bool


@dataclass(frozen=True, slots=True)
class OneStudy:
    """A curve measured on the machine; `doubts`: how its run differs from a job here."""

    curve: MeasuredCurve
    spread: float
    doubts: tuple[str, ...] = ()


def first_gpus(conditions: Conditions, ranks: int) -> Conditions:
    """Return the conditions of the first GPUs of a group, with the same wires."""
    group = conditions.group
    whole = group.whole and ranks == group.ranks
    part = replace(group, gpus=group.gpus[:ranks], links=group.links[:ranks], whole=whole)
    return replace(conditions, group=part)


def model_of(conditions: Conditions, op: str) -> CollectiveModel | Absent:
    """Return a collective's model for all GPUs of a group. Returns Absent for unknown wires."""
    ranks = conditions.group.ranks
    rail = wire(conditions)
    if isinstance(rail, Absent):
        return rail
    found = {architecture(gpu.name) for gpu in conditions.group.gpus}
    arch = next(iter(found)) if len(found) == 1 else ""
    known = "" if isinstance(arch, Absent) else arch
    nvls = choose(conditions, op)[0] == NVLS
    return CollectiveModel(op, ranks, conditions.group.kind, known, rail.rate, nvls)


def of_studies(machine: AdvisedMachine, model: CollectiveModel, conditions: Conditions) -> list[OneStudy]:
    """Return curves of the collective on one machine, the nearest in ranks first, then the most trusted.

    Curves with forced algorithms or protocols, or with registered buffers, are left out. So are other numbers
    of ranks on other wires.
    """
    found: list[tuple[tuple[float, bool], OneStudy]] = []
    for study in machine.measured:
        engine = study.environment.get("engine", "")
        if engine in _NOT_OF_GPUS or study.environment.get("hosts", "1") not in {"", "1"}:
            continue
        for curve in study.curves:
            there = machine.group(curve.configuration.ranks)
            if there is not None and there.group.kind is not model.kind:
                continue
            one = _measured(study, curve, model, conditions, one_process=engine not in _A_PROCESS_EACH)
            if one is not None:
                apart = abs(math.log(curve.configuration.ranks / model.ranks))
                found.append(((apart, bool(one.doubts)), one))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def of_hosts(machine: AdvisedMachine, op: str, ranks: int, hosts: int) -> list[OneStudy]:
    """Return measurements of a collective of so many ranks over so many hosts like this machine."""
    conditions = next(iter(machine.conditions), None)
    model = None if conditions is None else model_of(conditions, op)
    if conditions is None or model is None or isinstance(model, Absent):
        return []
    found = [
        _measured(study, curve, model, conditions, one_process=False)
        for study in machine.measured if study.environment.get("hosts") == str(hosts)
        for curve in study.curves if curve.configuration.ranks == ranks
    ]  # fmt: skip
    return sorted((one for one in found if one is not None), key=lambda one: bool(one.doubts))


def of_references(
    model: CollectiveModel,
    conditions: Conditions,
    *,
    one_process: bool,
    published: Sequence[ReferenceCurve] = CURVES,
) -> list[OneReference]:
    """Return published curves of the collective, the most similar first, also for other numbers of ranks."""
    alike = [c for c in published if c.op == model.op and c.kind is model.kind]
    curves = [
        OneReference(
            MeasuredCurve(
                replace(model, ranks=c.ranks, wire=c.wire, architecture=c.architecture, nvls=c.nvls),
                c.sizes, c.launch == GRAPH, c.one_process, c.source,
            ),
            Confidence.PUBLISHED,
            own=c.ranks == model.ranks and _same(c.wire, model.wire),
        )
        for c in alike if c.architecture == model.architecture
    ]  # fmt: skip
    curves.sort(
        key=lambda one: (
            one.curve.one_process is not one_process, abs(math.log(one.curve.model.ranks / model.ranks))
        )
    )  # fmt: skip
    chosen, _ = choose(conditions, model.op)
    algorithms = (chosen,) if chosen == RING else (chosen, RING)
    tables = {one.curve.source for one in curves if one.own}
    points = [_points(model, conditions, algorithm) for algorithm in algorithms]
    return [*curves, *(one for one in points if one is not None and one.curve.source not in tables)]


def _measured(
    study: Study, curve: Curve, model: CollectiveModel, conditions: Conditions, *, one_process: bool
) -> OneStudy | None:
    how = curve.configuration
    chosen = (how.algorithm, how.protocol) == (AUTO, AUTO) and not how.registered
    sizes = sorted(
        {
            one.size_bytes: one.seconds for one in curve.points
            if one.seconds and one.size_bytes > 0 and all(_SHORTEST <= at <= _LONGEST for at in one.seconds)
        }.items()
    )  # fmt: skip
    if curve.op != model.op or not chosen or how.ranks < 2 or not sizes:  # noqa: PLR2004
        return None
    other = [pair for pair in how.settings if conditions.settings.get(pair[0]) != pair[1]]
    doubts = (f"measured with {' '.join('='.join(pair) for pair in other)}",) if other else ()
    points = tuple((size, median(seconds)) for size, seconds in sizes)
    spread = max((max(each) - min(each)) / (2 * median(each)) for _, each in sizes)
    graph = how.launch == GRAPH
    nvls = model.nvls and how.ranks == model.ranks
    once = _OURS_ONCE if study.environment.get("engine") in _OURS else 0.0
    named = MeasuredCurve(
        replace(model, ranks=how.ranks, nvls=nvls), points, graph, one_process, study.source, once
    )
    return OneStudy(named, spread, doubts)


def _points(model: CollectiveModel, conditions: Conditions, algorithm: str) -> OneReference | None:
    """Return a reference of busbw.references, which begins at sizes limited by bandwidth."""
    group = conditions.group
    arch = model.architecture or Absent(Why.MISSING, "not known")
    query = ReferenceQuery(group.kind, algorithm, model.op, arch, model.ranks, model.wire, group.crossing)
    found = find(query)
    if isinstance(found, Absent):
        return None
    sizes = tuple((size, factor(found.op, found.ranks) * size / busbw) for size, busbw in found.points)
    of = replace(model, ranks=found.ranks, wire=found.wire, nvls=algorithm == NVLS)
    own = found.ranks == model.ranks and _same(found.wire, model.wire)
    return OneReference(
        MeasuredCurve(of, sizes, graph=False, one_process=True, source=found.source), _trust(found, own=own),
        own,
    )  # fmt: skip


def _trust(found: Reference, *, own: bool) -> Confidence:
    return found.confidence if own else Confidence.LOW


def _same(one: float, other: float) -> bool:
    return abs(one / other - 1) < SAME_WIRE
