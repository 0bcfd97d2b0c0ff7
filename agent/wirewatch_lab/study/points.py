"""Runs of nccl-tests as input of studies: rows of the same size together, and curves."""

import statistics
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wirewatch.core.ports import Clock
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Why, whole
from wirewatch_lab.study.curve import AUTO, Configuration, Curve, CurvePoint, Study
from wirewatch_lab.study.grid import EAGER, GRAPH
from wirewatch_lab.study.runs import TYPES, BenchmarkRow, BenchmarkRun, bus_bandwidth, operation_seconds

MOST_POINTS = 20_000
"""Most different rows of a run; a sweep by doubling has 31."""
_REPEATS = 1000
"""Most repeats kept of a row."""
_ALGO, _PROTO = "NCCL_ALGO", "NCCL_PROTO"
_NOT_TUNING = ("NCCL_DEBUG", "NCCL_TESTS")
"""Prefixes of settings that change no result."""


@dataclass(slots=True)
class Placed:
    """Figures of a placement over a row's repeats: seconds and bytes per second, where present.

    `busbw` follows from size, time and ranks where known. `wrong` is over all repeats, None where values were
    not checked.
    """

    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    algbw: "array[float]" = field(default_factory=lambda: array("d"))
    busbw: "array[float]" = field(default_factory=lambda: array("d"))
    wrong: float | None = None


@dataclass(slots=True)
class RepeatedRow:
    """Rows of a run that differ only in their figures, the first at `line`; `placed` by whether in place."""

    size_bytes: int
    elements: int
    dtype: str
    redop: str
    root: str
    repeats: int = 0
    placed: dict[bool, Placed] = field(default_factory=dict)
    line: int = 0


def points(run: BenchmarkRun) -> list[RepeatedRow]:
    """Return the different rows of a run, in their order. Raises ValueError: too many rows."""
    found: dict[tuple[int, int, str, str, str], RepeatedRow] = {}
    for row in run.rows:
        point = found.get(row[:5])
        if point is None:
            if len(found) >= MOST_POINTS:
                raise ValueError(f"more than {MOST_POINTS} different rows in one run: cut it into parts")
            point = found[row[:5]] = RepeatedRow(*row[:5], line=row.line)
        point.repeats += 1
        _take(run, row, point)
    return list(found.values())


def middle(values: Sequence[float]) -> float | None:
    """Return the median, None without values."""
    return statistics.median(values) if values else None


def to_study(runs: Iterable[BenchmarkRun], source: str, at: float) -> Study:
    """Return settled runs as curves, repeats of a configuration together. `at`: Unix seconds of reading."""
    kept: dict[tuple[str, Configuration, str, bool], dict[int, CurvePoint]] = {}
    problems: list[str] = []
    environment: dict[str, str] = {}
    for run in runs:
        if run.mixed or not run.op or not run.ranks:
            unknown = f"{'number of ranks' if run.op else 'operation'} not known"
            problems.append(f"line {run.line}: {run.mixed or unknown}: it is in no curve")
            continue
        environment |= _environment(run)
        without = 0
        for point in points(run):
            for in_place, placed in point.placed.items():
                key = (run.op, configuration(run, run.ranks), dtype(point.dtype), in_place)
                without += not placed.seconds or not point.size_bytes
                if placed.seconds and point.size_bytes:
                    sizes = kept.setdefault(key, {})
                    sizes[point.size_bytes] = _joined(sizes.get(point.size_bytes), run, point, placed)
        if without:
            problems.append(f"line {run.line}: {without} rows without a size or time are in no curve")
    curves = [
        Curve(op, configured, tuple(sizes[size] for size in sorted(sizes)), element, in_place)
        for (op, configured, element, in_place), sizes in kept.items()
    ]
    return Study(at, source, environment, curves, problems=tuple(problems))


def configuration(run: BenchmarkRun, ranks: int) -> Configuration:
    """Return how a run's collectives ran, as far as the input says it."""
    settings = dict(run.settings)
    algorithm, protocol = settings.pop(_ALGO, ""), settings.pop(_PROTO, "")
    tuning = tuple(pair for pair in sorted(settings.items()) if not pair[0].startswith(_NOT_TUNING))
    # A list of several leaves NCCL the choice.
    algorithm, protocol = (one if one.isalnum() else AUTO for one in (algorithm, protocol))
    return Configuration(ranks, algorithm, protocol, run.launch, run.registered, tuning)


def dtype(name: str) -> str:
    """Return our name of nccl-tests' element type."""
    return TYPES[name][0] if name in TYPES else name


def library(code: str) -> str:
    """Return NCCL's version from its code, such as 22809; the text itself where it is not a code."""
    number = whole(code) if len(code) < 7 else None  # noqa: PLR2004
    if number is None:
        return code
    base = 10_000 if number >= 10_000 else 1000  # noqa: PLR2004 - since 2.9 there are two digits for each
    return f"{number // base}.{number % base // 100}.{number % 100}"


def is_wrong(run: BenchmarkRun, placed: Placed) -> int | None:
    """Return the number of wrong elements; by the run's footer where only the largest difference is known."""
    if placed.wrong is None:
        return None
    if run.deltas:
        return 0 if run.out_of_bounds == 0 else None
    return int(min(placed.wrong, 2**63))


def _take(run: BenchmarkRun, row: BenchmarkRow, point: RepeatedRow) -> None:
    for in_place, one in row.placed():
        placed = point.placed.setdefault(in_place, Placed())
        if one.wrong is not None:
            placed.wrong = (placed.wrong or 0.0) + one.wrong
        if point.repeats > _REPEATS:
            continue
        seconds, busbw = operation_seconds(row, one), bus_bandwidth(run, row, one)
        placed.algbw.append(one.algbw)
        if seconds is not None:
            placed.seconds.append(seconds)
        if busbw is not None:
            placed.busbw.append(busbw)


def _joined(known: CurvePoint | None, run: BenchmarkRun, point: RepeatedRow, placed: Placed) -> CurvePoint:
    wrong = is_wrong(run, placed)
    if known is None:
        return CurvePoint(point.size_bytes, tuple(placed.seconds), wrong)
    total = known.wrong if wrong is None else wrong + (known.wrong or 0)
    return CurvePoint(point.size_bytes, (*known.seconds, *placed.seconds)[:_REPEATS], total)


def _environment(run: BenchmarkRun) -> dict[str, str]:
    products = sorted({device.product for device in run.communicator})
    found = {
        "gpus": ", ".join(products), "hosts": str(len(run.hosts) or ""), "nccl": library(run.nccl),
        "nccl-tests": run.version,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}


def series(runs: Iterable[BenchmarkRun]) -> Iterator[tuple[BenchmarkRun, RepeatedRow, bool, Placed]]:
    """Yield every placement of every row of every run."""
    for run in runs:
        for point in points(run):
            for in_place, placed in point.placed.items():
                yield run, point, in_place, placed


LAST = 5
"""Number of last complete probes that represent a node."""
_LAUNCHES = {"graph": GRAPH, "stream": EAGER}


def history_study(path: Path, clock: Clock, gpus: Collection[str]) -> Study | Absent:
    """Return measurements of the last complete, unforced probes of these GPUs (UUIDs); writes nothing.

    `path`: the history in the state folder. Returns Absent where it cannot be read or has no such probe.
    """
    from wirewatch.probe.history import History, HistoryLimits
    from wirewatch.probe.restore import BUSY_SECONDS, probe_of

    if not path.exists():
        return Absent(Why.MISSING, f"{path}: no probe was kept")
    records = History(path, clock, HistoryLimits(busy=BUSY_SECONDS), read_only=True).folded(LAST, added=True)
    if isinstance(records, Absent):
        return records
    found = [probe_of(record) for record in records if record.result == "ok" and not record.forced]
    ours = [one for one in found if one is not None and set(one.plan.gpus) <= set(gpus)]
    return probes_study(ours[-LAST:], "probes of this node")


def probes_study(probes: Sequence[Probed], source: str) -> Study | Absent:
    """Return curves of GPU groups: small messages from CUDA graphs, large messages launched singly.

    Each probe is a repeat. For groups of equal size the slowest time counts, as it does for a job on them.
    Probes of another engine or element type are left out, and probes of other GPUs than the last probe's.
    Returns Absent where no probe is left.
    """
    usable = [one for one in probes if one.outcome == "ok" and one.plan.in_place]
    if not usable:
        return Absent(Why.MISSING, "no complete probe")
    last = usable[-1].plan
    same = last.gpus, last.engine, last.dtype
    alike = [one for one in usable if (one.plan.gpus, one.plan.engine, one.plan.dtype) == same]
    measured: dict[tuple[str, int, str], dict[int, list[float]]] = {}
    for probed in alike:
        for key, size, seconds in _slowest(probed):
            measured.setdefault(key, {}).setdefault(size, []).append(seconds)
    curves = [
        Curve(
            op, Configuration(ranks, launch=launch),
            tuple(CurvePoint(size, tuple(sizes[size])) for size in sorted(sizes)), last.dtype,
        )
        for (op, ranks, launch), sizes in measured.items()
    ]  # fmt: skip
    if not curves:
        return Absent(Why.MISSING, f"no probe of GPUs: {last.engine}")
    environment = {"engine": last.engine, "gpus": " ".join(last.gpus)}
    last_of = "the last one" if len(alike) == 1 else f"the last {len(alike)}"
    return Study(usable[-1].at, f"{source}, {last_of}", environment, curves)


def _slowest(probed: Probed) -> Iterable[tuple[tuple[str, int, str], int, float]]:
    """Yield collective, ranks and launch, with a size and the time of the slowest such group.

    A time counts where values are right, GPUs are several, and jobs use the same launch.
    """
    found: dict[tuple[tuple[str, int, str], int], float] = {}
    groups = probed.plan.groups
    for one in probed.document.collectives if probed.document else ():
        right = one.launch in _LAUNCHES and not one.wrong and one.seconds > 0
        if not right or one.group >= len(groups) or len(groups[one.group]) < 2:  # noqa: PLR2004
            continue
        ranks = len(groups[one.group])
        at = ((one.op, ranks, _LAUNCHES[one.launch]), one.size_bytes)
        found[at] = max(one.seconds, found.get(at, 0.0))
    return [(key, size, seconds) for (key, size), seconds in found.items()]
