"""Judges runs of nccl-tests by the expected rates of their wires and networks. Pure.

Each size is judged alone. The average of nccl-tests mixes small messages with large messages and decides
nothing. A single size is never FAILED: this takes two sizes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from wirewatch.busbw.expected import Expectation
from wirewatch.busbw.formulas import FACTORS
from wirewatch.busbw.profiles import SURE
from wirewatch.busbw.references import LEAST_BYTES
from wirewatch.core.probe import KIB, MIB
from wirewatch.core.types import Absent, Health
from wirewatch.core.words import GB, size
from wirewatch_lab.study.basis import Basis, BasisOf, JoinedWay
from wirewatch_lab.study.logsummary import LogSummary
from wirewatch_lab.study.points import RepeatedRow, is_wrong, middle, points
from wirewatch_lab.study.runs import BenchmarkRun, shortfall

RATIO = 0.7
"""A size fails below this share of its expected rate."""
DECIDES = 0.4
"""An expectation that healthy machines may miss by more than this share proves no good result."""
HALF = 0.5
FLOOR, LARGE = 4 * KIB, 64 * MIB
"""All sizes up to the first show the same latency; from the second on, one placement counts without the
other."""
_ABOVE = 1.05
"""Rounding of figures above a wire's rate."""
_HOST_MEMORY = 0.15
_DEBUG = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV"


@dataclass(frozen=True, slots=True)
class JudgedSize:
    """A row beside its expectation: busbw in bytes per second, the median of its repeats.

    `expected`: by the best way in which its ranks may be joined. `least`: busbw by the worst. `limit`: the
    row is slow below this share of `least`. `low`, `well`: whether it is slow by all ways, well by the best.
    """

    point: RepeatedRow
    in_place: bool
    busbw: float
    expected: Expectation
    least: float
    limit: float
    well: bool

    @property
    def ratio(self) -> float:
        """Return the ratio to the expected busbw."""
        return self.busbw / self.expected.busbw

    @property
    def low(self) -> bool:
        """Return whether it is below the limit by all ways."""
        return self.busbw < self.limit * self.least


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run, judged. `reason`: why nothing was judged, in words, else empty. `failures`: of the run itself.

    `low`: the sizes below the limit, the worst first. `checked`: whether any of its values were. `next`:
    possible causes of low sizes, and the next steps. `asks`: the reason is a question, or the run is not
    whole; then other healthy runs do not make the whole well.
    """

    run: BenchmarkRun
    health: Health
    points: Sequence[RepeatedRow]
    sizes: Sequence[JudgedSize]
    low: Sequence[JudgedSize]
    failures: Sequence[str]
    remarks: Sequence[str]
    reason: str
    checked: bool
    next: Sequence[str] = ()
    asks: bool = False


def judge(run: BenchmarkRun, basis_of: BasisOf, ratio: float = RATIO) -> JudgedRun:
    """Judge every size of a settled run; sizes below the share `ratio` of the expectation are slow.

    Raises ValueError: the run has too many different rows.
    """
    found = points(run)
    failures = _failures(run, found)
    checked = any(is_wrong(run, placed) is not None for point in found for placed in point.placed.values())
    basis = basis_of(run)
    sizes, reason, asked = _sizes(run, found, basis, ratio)
    low = sorted(_low(sizes), key=lambda one: one.busbw / (one.limit * one.least))
    missing = shortfall(run)
    health = Health.FAILED if failures else severity(low)
    if health is Health.OK and (missing or reason or not any(one.well for one in sizes)):
        health = Health.UNKNOWN
        reason = reason or "only small messages, of which too little is known"
    incomplete = (f"incomplete: {missing}",) if missing else ()
    remarks = (*incomplete, *run.remarks, *_remarks(run, checked=checked), *(basis.remarks if sizes else ()))
    why = (*incomplete, reason)[0] if health is Health.UNKNOWN else ""
    after = tuple(_next(run, basis, low))
    asks = bool(why) and (asked or bool(missing or run.mixed))
    return JudgedRun(run, health, found, sizes, low, failures, remarks, why, checked, after, asks)


def severity(low: Sequence[JudgedSize]) -> Health:
    """Return how bad slow sizes are: FAILED where a second measurement confirms the first, as in probes.

    With little confidence in the expectation, only half the limit is FAILED.
    """
    sure = [one for one in low if one.expected.within <= DECIDES or one.busbw < HALF * one.limit * one.least]
    return Health.OK if not low else Health.FAILED if len(sure) > 1 else Health.DEGRADED


def overall(healths: Iterable[Health], failures: Sequence[str], *, asks: bool = False) -> Health:
    """Return the health of all runs; unjudged runs count where nothing was judged, or where they `asks`."""
    worst = max(set(healths) - {Health.UNKNOWN}, default=Health.UNKNOWN)
    return Health.FAILED if failures else Health.UNKNOWN if asks and worst is Health.OK else worst


def of_log(log: LogSummary) -> Health:
    """Return the health of a log: its hot collective's wire must be known, without a fallback."""
    if any(wire.fallback for one in log.communicators for wire in one.wires):
        return Health.DEGRADED
    return Health.OK if log.hot is not None and log.hot.wires else Health.UNKNOWN


def _failures(run: BenchmarkRun, found: Sequence[RepeatedRow]) -> tuple[str, ...]:
    wrong = [
        f"wrong values at {size(point.size_bytes)}{' in place' if in_place else ''}: {number} elements"
        for point in found
        for in_place, placed in point.placed.items()
        if (number := is_wrong(run, placed))
    ]
    if run.out_of_bounds and not wrong:
        wrong = [f"wrong values: its footer counts {run.out_of_bounds} out of bounds"]
    return (*wrong, *run.failures)


def _rates(found: Sequence[RepeatedRow]) -> Iterator[tuple[RepeatedRow, bool, float]]:
    for point in found:
        for in_place, placed in point.placed.items():
            busbw = middle(placed.busbw)
            if busbw is not None:
                yield point, in_place, busbw


def _sizes(
    run: BenchmarkRun, found: Sequence[RepeatedRow], basis: Basis, ratio: float
) -> tuple[tuple[JudgedSize, ...], str, bool]:
    """Return every row with an expectation; or why there is none, and whether that is a question."""
    rates = list(_rates(found))
    none = (
        (not run.op, "operation not known: pass --op"),
        (run.op not in FACTORS, f"nothing is known to expect of {run.op}"),
        (not basis.ways, basis.reason),
        (not rates, "no row has a bandwidth" if found else "it has no rows"),
    )
    if why := next((why for holds, why in none if holds), ""):
        return (), why, False
    ways, above = _possible(run, basis.ways, rates)
    if above:
        return (), above, True
    known = {at: [way.expect(run.op, at) for way in ways] for at in {point.size_bytes for point in found}}
    sizes: list[JudgedSize] = []
    for point, in_place, busbw in rates:
        due = [one for one in known[point.size_bytes] if not isinstance(one, Absent)]
        absent = [one for one in known[point.size_bytes] if isinstance(one, Absent)]
        if not due:
            why = absent[0].detail
            continue
        sizes.append(_size((point, in_place, busbw), due, sure=not absent, strict=basis.strict, ratio=ratio))
    if not sizes:
        # Of a network that is not known, the question says more.
        return (), (basis.reason if basis.strict else "") or why, basis.strict and bool(basis.reason)
    # Where ways differ, the largest message decides whether that is open.
    largest = max(sizes, key=lambda one: one.point.size_bytes)
    asked = len(ways) > 1 and not (largest.well or largest.low)
    unknown = "" if any(one.well for one in sizes) else why
    return tuple(sizes), basis.reason if asked else unknown, asked


def _possible(
    run: BenchmarkRun, ways: Sequence[JoinedWay], rates: Sequence[tuple[RepeatedRow, bool, float]]
) -> tuple[list[JoinedWay], str]:
    """Return the ways that carry the measured rates; or words that no way does."""
    fastest, at = max((busbw, point.size_bytes) for point, _, busbw in rates)
    left = [way for way in ways if fastest <= _ABOVE * way.most(run.op)]
    if left:
        return left, ""
    most = max(way.most(run.op) for way in ways)
    return [], (
        f"its {fastest / GB:.1f} GB/s of {size(at)} are more than the {most / GB:.1f} GB/s that its wires "
        "carry: which machine was it? Say --machine or --network"
    )


def _size(
    row: tuple[RepeatedRow, bool, float], due: Sequence[Expectation], *,
    sure: bool, strict: bool, ratio: float,
) -> JudgedSize:  # fmt: skip
    point, in_place, busbw = row
    best = max(due, key=lambda one: one.busbw)
    least = min(one.busbw for one in due) if sure else 0.0
    limit = ratio * (1 - best.within) / (1 - SURE)
    most = best.busbw
    enough = limit * most if strict or len(due) == 1 else max(limit * least, HALF * most)
    well = busbw >= enough and best.within <= DECIDES
    return JudgedSize(point, in_place, busbw, best, least, limit, well)


def _low(sizes: Sequence[JudgedSize]) -> Iterator[JudgedSize]:
    """Yield slow rows; a smaller message's row is an outlier where its other placement is not slow."""
    floors = [one for one in sizes if one.point.size_bytes <= FLOOR]
    times = [one.busbw / (one.limit * one.least) for one in floors if one.least]
    slow_floor = bool(times) and median(times) < 1
    swift = {id(one.point) for one in sizes if not one.low}
    for one in sizes:
        at = one.point.size_bytes
        alike = at >= LARGE or id(one.point) not in swift
        if one.low and alike and (at > FLOOR or slow_floor):
            yield one


def _next(run: BenchmarkRun, basis: Basis, low: Sequence[JudgedSize]) -> Iterator[str]:
    """Yield possible causes of slow sizes, and the next command."""
    if not low:
        return
    large = [one for one in low if one.point.size_bytes >= LEAST_BYTES]
    if large:
        yield from (f"set: {name}={value}: {effect}" for name, value, effect in basis.causes())
    elif made := [f"{name}={value}" for name, value, _ in basis.causes()]:
        yield f"set, and of small messages no cost is known: {', '.join(made)}"
    if not large:
        yield "small messages alone are slow: is the host busy, or NCCL_PROTO or NCCL_ALGO set?"
    elif run.nodes <= 1 and min(one.ratio for one in large) < _HOST_MEMORY:
        yield "as slow as host memory: is P2P switched off, or not offered (`nvidia-smi topo -p2p r`)?"
    first = "check` on each node" if run.nodes > 1 else "probe --explain` on the idle node"
    yield f"next: `wirewatch {first}; then run it with {_DEBUG} and give `wirewatch parse` its output"


def _remarks(run: BenchmarkRun, *, checked: bool) -> tuple[str, ...]:
    differing = (
        f"the busbw of {run.differing} rows is not that of {run.op} with {run.ranks} ranks: "
        "what follows from size, time and ranks is judged"
    )
    whole = run.begun and not run.ended and not shortfall(run)
    found = (
        (not checked and len(run.rows), "values were not checked"),
        (whole, "it has no footer, but all of its sizes"),
        (run.repaired, f"{run.repaired} rows were torn by NCCL's log and put together again"),
        (run.differing, differing),
        (run.cputime, "its times are the processors' (-C): those of operations follow from bandwidths"),
    )
    return tuple(text for holds, text in found if holds)
