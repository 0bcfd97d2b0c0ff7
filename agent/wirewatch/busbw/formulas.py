"""Bandwidths as nccl-tests counts them, the line of time against size, and the bytes that an algorithm sends.

Sizes are nccl-tests' message sizes S in bytes: for all_gather and reduce_scatter the whole, over all ranks.
Sources: nccl-tests, doc/PERFORMANCE.md; NCCL, src/graph/tuning.cc and the layout of LL and LL128 lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.probe import (
    ALL_GATHER,
    ALL_REDUCE,
    ALLTOALL,
    BROADCAST,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    SENDRECV,
)
from wirewatch.core.types import Absent, Why

RING, TREE, NVLS = "Ring", "Tree", "NVLS"
DIRECT = "pairwise"
"""Not an algorithm of NCCL: each rank sends to others and receives from them, with no ring between."""

Point = tuple[int, float]
"""Message size in bytes, seconds of one operation."""


def _twice(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _once(ranks: int) -> float:
    return (ranks - 1) / ranks


def _whole(_ranks: int) -> float:
    return 1.0


FACTORS: Mapping[str, Callable[[int], float]] = {
    ALL_REDUCE: _twice,
    ALL_GATHER: _once,
    REDUCE_SCATTER: _once,
    ALLTOALL: _once,
    GATHER: _once,
    SCATTER: _once,
    BROADCAST: _whole,
    REDUCE: _whole,
    SENDRECV: _whole,
}
CHAINS = frozenset({BROADCAST, REDUCE})
"""Collectives that a ring runs as a chain: its ends send less than the rest."""
PAIRWISE = frozenset({ALLTOALL, GATHER, SCATTER, SENDRECV})
"""Primitives that NCCL makes of sends and receives (src/enqueue.cc), with no algorithm to choose."""
OVERHEADS: Mapping[str, float] = {"SIMPLE": 1.0, "LL": 2.0, "LL128": 128 / 120}
"""Bytes on the wire for each byte of payload: LL sends 4 of 8, LL128 120 of 128."""


def factor(op: str, ranks: int) -> float:
    """Return bus over algorithm bandwidth; mostly 0 for one rank. ValueError for other collectives."""
    if op not in FACTORS or ranks < 1:
        raise ValueError(f"no bus bandwidth of {op!r} with {ranks} ranks; known are {', '.join(FACTORS)}")
    return FACTORS[op](ranks)


def busbw(op: str, ranks: int, size_bytes: int, seconds: float) -> float:
    """Return bus bandwidth in bytes per second, of `seconds` above 0; ValueError as `factor`."""
    return factor(op, ranks) * size_bytes / seconds


@dataclass(frozen=True, slots=True)
class Line:
    """seconds = intercept + bytes / bytes_per_second; the smallest message may take less or more."""

    intercept: float
    bytes_per_second: float

    def seconds(self, size_bytes: float) -> float:
        """Return the line's time for a message, in seconds."""
        return self.intercept + size_bytes / self.bytes_per_second


def fit(points: Sequence[Point], *, alike: bool = True) -> Line | Absent:
    """Return the line of least squares through the points; Absent where time does not grow with size.

    `alike`: relative errors count, so that small messages count as much as large ones. Otherwise each error
    in seconds counts times the size, so that the largest messages decide the slope.
    """
    if len({size for size, _ in points}) < 2:  # noqa: PLR2004
        return Absent(Why.MISSING, "a line takes two different sizes")
    if any(seconds <= 0 for _, seconds in points):
        return Absent(Why.MALFORMED, "a time that is not above 0")
    weights = [1 / seconds**2 if alike else float(size) ** 2 for size, seconds in points]
    total = sum(weights)
    size = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    time = sum(w * t for w, (_, t) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - size) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = sum(w * (x - size) * (t - time) for w, (x, t) in zip(weights, points, strict=True)) / spread
    if slope <= 0:
        return Absent(Why.MALFORMED, "larger messages do not take longer")
    return Line(time - slope * size, 1 / slope)


def asymptote(op: str, ranks: int, points: Sequence[Point]) -> float | Absent:
    """Return the busbw of ever larger messages, by the largest points; Absent where `fit` finds no line."""
    line = fit(points, alike=False)
    return line if isinstance(line, Absent) else factor(op, ranks) * line.bytes_per_second


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes that a GPU sends in one operation; `alike` False: the mean over GPUs that differ."""

    bytes: float
    alike: bool


def wire_bytes(
    op: str, algorithm: str, ranks: int, size_bytes: int, protocol: str = "SIMPLE"
) -> Sent | Absent:
    """Return a GPU's sent bytes by an algorithm and protocol of NCCL's log; Absent for NVLS and others."""
    overhead = OVERHEADS.get(protocol.upper())
    if overhead is None:
        return Absent(Why.UNSUPPORTED, f"not a protocol of NCCL: {protocol}")
    sent = size_bytes * overhead
    if algorithm.upper() == RING.upper():
        if op in {ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER}:
            return Sent(factor(op, ranks) * sent, alike=True)
        if op in CHAINS:
            return Sent(_once(ranks) * sent, alike=False)
    if algorithm.upper() == TREE.upper() and op == ALL_REDUCE:
        return Sent(_twice(ranks) * sent, alike=False)
    return Absent(Why.UNSUPPORTED, f"what a GPU sends for {op} by {algorithm} is not known")
