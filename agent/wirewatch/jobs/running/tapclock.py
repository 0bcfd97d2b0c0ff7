"""Expected seconds of a collective in a job, by the tap's own clock. Pure.

The tap times kernels, without the launch that nccl-tests counts: 10 to 14 us of each collective. So jobs have
a reference of their own, by operation and size: collectives in a row, with nothing beside them. Healthy
collectives take longer behind and beside other work. They reach at least 79 % of that bus bandwidth from 64
MiB on, and 67 % from 16 MiB on. Source: 2 and 4 H200, proof/hardware/2026-11-28-h200.md. Limits allow for it.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from wirewatch.busbw.expected import Expectation, choose, expect, wire
from wirewatch.busbw.formulas import RING, busbw, factor
from wirewatch.busbw.references import SAME_WIRE, Confidence, architecture
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, MIB, REDUCE_SCATTER, Conditions
from wirewatch.core.topology import WireKind
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import rate, size

LAUNCH = 10e-6
"""Seconds of each collective that nccl-tests counts and the tap does not."""
MOST_LAUNCH = 0.3
"""Share of nccl-tests' time up to which that is taken off."""
TRUSTED = 64 * MIB
"""Bytes from which on what other work costs a healthy collective is small enough for a verdict."""
FIRST = 2 * MIB
_WIRE = 18 * 26.562e9
_ARCHITECTURE = "Hopper"
_SOURCE = "2 and 4 H200, NCCL 2.28.9, collectives in a row: proof/hardware/2026-11-28-h200.md"
_IN_A_ROW: Mapping[tuple[str, int], tuple[float, ...]] = {
    (ALL_REDUCE, 2): (23.0, 27.7, 40.7, 68.4, 129.6, 240.0, 459.6, 882.5, 1687.9),
    (ALL_GATHER, 2): (13.0, 23.5, 30.0, 45.9, 83.7, 149.4, 281.8, 537.9, 1030.1),
    (REDUCE_SCATTER, 2): (11.6, 20.5, 28.9, 45.6, 84.1, 153.2, 287.6, 550.7, 1029.1),
    (ALL_REDUCE, 4): (21.2, 34.8, 53.5, 90.5, 163.6, 310.8, 601.6, 1168.0, 2295.8),
    (ALL_GATHER, 4): (18.3, 38.4, 45.8, 68.1, 100.0, 180.3, 336.2, 648.0, 1252.4),
    (REDUCE_SCATTER, 4): (13.5, 31.5, 35.4, 54.5, 96.9, 178.6, 335.8, 648.3, 1252.7),
}
"""Microseconds, the 10th percentile of the shortest duration over the ranks, from 2 MiB on, each doubling."""
_SMALL = Absent(Why.UNSUPPORTED, f"messages under {size(FIRST)} were not measured in jobs")


@dataclass(frozen=True, slots=True)
class TapExpectation:
    """The `busbw` (bytes per second) that the tap should show, by `algorithm`, and how that follows."""

    busbw: float
    algorithm: str
    trusted: bool
    derivation: tuple[str, ...]


def expect_in_job(conditions: Conditions, op: str, size_bytes: int) -> TapExpectation | Absent:
    """Return what the tap should show of a message of nccl-tests' size; Absent, never a guess, without it."""
    measured = None if _pinned(conditions, op, size_bytes) else _in_a_row(conditions, op)
    if measured is not None:
        if size_bytes < FIRST:
            return _SMALL
        got = busbw(op, conditions.group.ranks, size_bytes, _at(measured, size_bytes))
        line = f"{size(size_bytes)} in a job: {rate(got)} by the tap's clock ({_SOURCE})"
        return TapExpectation(got, RING, size_bytes >= TRUSTED, (*_wire_lines(conditions), line))
    found = expect(conditions, op, size_bytes)
    return found if isinstance(found, Absent) else _without_launch(conditions, op, size_bytes, found)


def _pinned(conditions: Conditions, op: str, size_bytes: int) -> bool:
    return op in conditions.pins or f"{op}@{size_bytes}" in conditions.pins


def _in_a_row(conditions: Conditions, op: str) -> tuple[float, ...] | None:
    """Return the measured times of such GPUs; None for others, and where NCCL's defaults take no Ring."""
    group, rail = conditions.group, wire(conditions)
    alike = {architecture(gpu.name) for gpu in group.gpus} == {_ARCHITECTURE}
    if isinstance(rail, Absent) or group.kind is not WireKind.SWITCH or not alike:
        return None
    if abs(rail.rate - _WIRE) > SAME_WIRE * _WIRE or choose(conditions, op)[0] != RING:
        return None
    return _IN_A_ROW.get((op, group.ranks))


def _wire_lines(conditions: Conditions) -> tuple[str, ...]:
    rail = wire(conditions)
    return () if isinstance(rail, Absent) else rail.lines


def _at(measured: tuple[float, ...], size_bytes: int) -> float:
    """Return seconds at one size: straight lines between sizes, and the last of them beyond."""
    sizes = [FIRST << power for power in range(len(measured))]
    upper = min(max(1, bisect_left(sizes, size_bytes)), len(sizes) - 1)
    low, high = sizes[upper - 1], sizes[upper]
    slope = (measured[upper] - measured[upper - 1]) / (high - low)
    return 1e-6 * (measured[upper - 1] + slope * (size_bytes - low))


def _without_launch(conditions: Conditions, op: str, size_bytes: int, found: Expectation) -> TapExpectation:
    """Take the launch off the time that nccl-tests would show."""
    trusted = found.confidence is not Confidence.LOW
    if found.confidence is Confidence.OPERATOR:
        return TapExpectation(found.busbw, found.algorithm, trusted, found.derivation)
    seconds = factor(op, conditions.group.ranks) * size_bytes / found.busbw
    less = min(LAUNCH, MOST_LAUNCH * seconds)
    got = found.busbw * seconds / (seconds - less)
    line = f"less {less * 1e6:.0f} us of launch that the tap does not count -> {rate(got)}"
    return TapExpectation(got, found.algorithm, trusted, (*found.derivation, line))
