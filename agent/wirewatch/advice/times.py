"""How long a collective takes on a machine: what was measured there, else what its wires should give."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from statistics import median

from wirewatch.advice.machine import Machine
from wirewatch.busbw.expected import expect
from wirewatch.busbw.formulas import factor
from wirewatch.busbw.references import Confidence
from wirewatch.core.topology import Group
from wirewatch.core.types import Absent, Why
from wirewatch.study.curve import AUTO, Configuration, Curve, Study


class Basis(Enum):
    """What a figure stands on."""

    MEASURED = "measured here"
    REFERENCE = "reference"
    DERIVED = "derived"


@dataclass(frozen=True, slots=True)
class Span:
    """Where the ranks of a collective are: equally many in each of so many NVLink domains."""

    ranks: int
    domains: int = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """The seconds of one operation, what they stand on, and what makes them doubtful."""

    seconds: float
    basis: Basis
    confidence: Confidence
    source: str
    remarks: tuple[str, ...] = ()


class CollectiveTimes:
    """The times of a machine's collectives."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def estimate(self, op: str, span: Span, size_bytes: float, launch: str = "eager") -> Estimate | Absent:
        """The time of one operation of so many bytes (nccl-tests' S), launched `eager` or as a `graph`.

        Returns:
            Absent where nothing was measured and nothing is known, with the reason.
        """
        if span.ranks < 2 or span.domains != 1:  # noqa: PLR2004
            what = f"{span.ranks} ranks in {span.domains} domains"
            return Absent(Why.UNSUPPORTED, f"nothing is known of {what}")
        measured = self._measured(op, span, size_bytes, launch)
        return measured or self._expected(op, span, size_bytes)

    def _measured(self, op: str, span: Span, size_bytes: float, launch: str) -> Estimate | None:
        wanted = Configuration(span.ranks, launch=launch)
        for study, curve in self._curves(op):
            if replace(curve.configuration, settings=()) == wanted and curve.points:
                seconds = between(curve, size_bytes)
                if seconds is not None:
                    return Estimate(seconds, Basis.MEASURED, Confidence.MEASURED, study.source)
        return None

    def _curves(self, op: str) -> Iterator[tuple[Study, Curve]]:
        return (
            (study, curve)
            for study in self._machine.measured
            for curve in study.curves
            if curve.op == op and curve.configuration.algorithm == AUTO
        )

    def _expected(self, op: str, span: Span, size_bytes: float) -> Estimate | Absent:
        conditions = self._machine.group(span.ranks)
        if conditions is None:
            return Absent(Why.UNSUPPORTED, f"{self._machine.of} has fewer than {span.ranks} GPUs")
        part = _first(conditions.group, span.ranks)
        found = expect(replace(conditions, group=part), op, round(size_bytes))
        if isinstance(found, Absent):
            return found
        seconds = factor(op, span.ranks) * size_bytes / found.busbw
        return Estimate(seconds, Basis.REFERENCE, found.confidence, found.source)


def between(curve: Curve, size_bytes: float) -> float | None:
    """The time of a size from those around it, on a line in logarithms; None outside of the curve."""
    points = [(one.size_bytes, median(one.seconds)) for one in curve.points]
    for (low, fast), (high, slow) in pairwise(points):
        if low <= size_bytes <= high:
            share = math.log(size_bytes / low) / math.log(high / low)
            return math.exp(math.log(fast) * (1 - share) + math.log(slow) * share)
    return None


def _first(group: Group, ranks: int) -> Group:
    whole = group.whole and ranks == group.ranks
    return replace(group, gpus=group.gpus[:ranks], links=group.links[:ranks], whole=whole)
