"""The contents of `wirewatch parse`, as a JSON document and as OpenMetrics."""

import statistics
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wirewatch.busbw.formulas import factor
from wirewatch.busbw.references import LEAST_BYTES
from wirewatch.core import words
from wirewatch.core.types import Absent, Kind, Metric, Sample
from wirewatch.core.words import GB, MICRO
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import HEALTH_NAMES, Health
from wirewatch_lab.study.curve import Curve
from wirewatch_lab.study.judge import JudgedRun, JudgedSize
from wirewatch_lab.study.logsummary import LogSummary
from wirewatch_lab.study.loss import LossAccount
from wirewatch_lab.study.nccltests import NotUnderstoodLine
from wirewatch_lab.study.points import Placed, RepeatedRow, dtype, is_wrong, library, middle, to_study
from wirewatch_lab.study.runs import BenchmarkRun
from wirewatch_lab.study.summary import in_words, summarize

MOST = 20_000
"""Most rows in a document; all are judged."""
MOST_RUNS = 500
"""Most runs in a document, and as many degraded or failed runs besides."""
_MANY = 1000
"""Most texts of one kind for a run in a document."""
BUSBW = Metric(
    "parse_busbw_bytes_per_second", Kind.GAUGE, ("op", "size_bytes", "ranks", "placement"),
    "Bus bandwidth as nccl-tests counts it; the median of rows with the same labels.",
)  # fmt: skip
SECONDS = Metric(
    "parse_operation_seconds", Kind.GAUGE, BUSBW.labels, "Time of one operation; the median, as above."
)
EXPECTED = Metric(
    "parse_expected_busbw_bytes_per_second", Kind.GAUGE, BUSBW.labels,
    "What was expected at this size; no series where nothing is.",
)  # fmt: skip
RATIO = Metric("parse_busbw_ratio", Kind.GAUGE, BUSBW.labels, "Busbw over what was expected.")
WRONG = Metric(
    "parse_wrong_elements", Kind.GAUGE, BUSBW.labels,
    "Elements that were not what they should be; no series where values were not checked.",
)  # fmt: skip
NOT_UNDERSTOOD = Metric(
    "parse_rows_not_understood", Kind.GAUGE, (), "Lines that look like rows and are not rows."
)
HEALTH = Metric("parse_health", Kind.GAUGE, ("health",), "1 for the verdict on the input.")


@dataclass(frozen=True, slots=True)
class ParsedPlacement:
    """The median over a row's repeats, in seconds and bytes per second; null where it is not known.

    `busbw` follows from size, time and ranks where they are known. `wrong`: elements over all repeats, null
    where values were not checked. `ratio` of what is expected.
    """

    seconds: float | None
    algbw: float | None
    busbw: float | None
    wrong: int | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class ParsedRow:
    """One row of nccl-tests; `repeats`: how often it stands in its table, apart from its figures."""

    size_bytes: int
    count: int
    dtype: str
    redop: str
    root: str
    repeats: int
    out_of_place: ParsedPlacement | None
    in_place: ParsedPlacement | None
    expected_busbw: float | None
    expected_algorithm: str | None
    confidence: str | None
    derivation: list[str]


@dataclass(frozen=True, slots=True)
class ParsedHost:
    """A host by its name, and how many GPUs of the communicator it has."""

    name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class ParsedCurve:
    """A run's times against sizes in figures: seconds, bytes, bytes per second; null where not known.

    `bound`: why knee and plateau are lower bounds, empty where they are not. `text`: all of it for people.
    """

    dtype: str
    in_place: bool
    floor_seconds: float | None
    knee_bytes: float | None
    plateau_busbw: float | None
    bound: str
    text: str


@dataclass(frozen=True, slots=True)
class ParsedTopologyFile:
    """A file of NCCL's topology: what it has, and what differs from the node it was compared with.

    `compared`: with what; empty if with nothing. `unknown`: what could not be compared.
    """

    lines: list[str]
    compared: str
    same: list[str]
    differs: list[str]
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class ParsedRun:
    """One run of nccl-tests; `health` is unknown where nothing could be judged, for the `reason`.

    `nodes`: more than `hosts` where several share a name, 0 where not known.
    `op_from` and `ranks_from`: where they are from. `out_of_bounds` and `average_busbw` (bytes per second) of
    the footer; the average decides nothing. `low`: rows below what is expected, the worst first; `next`: what
    may be their cause, and what to do. `loss`: that of the largest message, by part.
    """

    line: int
    health: Health
    reason: str
    failures: list[str]
    remarks: list[str]
    op: str | None
    op_from: str
    ranks: int | None
    ranks_from: str
    hosts: list[ParsedHost]
    nodes: int
    products: list[str]
    nccl_tests: str
    nccl: str
    launch: str
    settings: dict[str, str]
    ended: bool
    checked: bool
    out_of_bounds: int | None
    average_busbw: float | None
    rows: list[ParsedRow]
    rows_left_out: int
    curves: list[ParsedCurve]
    low: list[str]
    next: list[str]
    loss: LossAccount | None = None


@dataclass(frozen=True, slots=True)
class ParseDocument:
    """What an input holds, and the verdict on it. `why`: the verdict in one line.

    `not_understood`: how many lines look like rows and are not; `first`: the first of them. `other_lines`
    are of other programs, `log_lines` of NCCL. `runs_left_out`: runs that are judged, but not among the first
    or the first that are not well. `failures` stand outside of all runs. `nccl_log` null without
    a log of NCCL.
    """

    schema: Literal["wirewatch.parse/1"]
    at: float
    health: Health
    why: str
    source: str
    ratio: float
    lines: int
    rows: int
    other_lines: int
    log_lines: int
    not_understood: int
    first: list[NotUnderstoodLine]
    failures: list[str]
    runs: list[ParsedRun]
    runs_left_out: int = 0
    nccl_log: LogSummary | None = None
    topology_file: ParsedTopologyFile | None = None


PARSE = TypeAdapter(ParseDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.parse.1": PARSE}


def parsed_run(judged: JudgedRun, room: int, loss: LossAccount | None = None) -> ParsedRun:
    """Return a run's entry in the document, with at most `room` rows: rows below the ratio first."""
    run = judged.run
    judged_at = {(id(one.point), one.in_place): one for one in judged.sizes}
    order = judged.points
    if len(order) > room:
        bad = {id(one.point) for one in judged.low}
        order = sorted(order, key=lambda point: id(point) not in bad)[:room]
    return ParsedRun(
        line=run.line,
        health=HEALTH_NAMES[judged.health],
        reason=judged.reason,
        failures=list(judged.failures[:_MANY]),
        remarks=list(judged.remarks),
        op=run.op or None,
        op_from=run.op_from,
        ranks=run.ranks,
        ranks_from=run.ranks_from,
        hosts=[ParsedHost(name, count) for name, count in run.hosts.items()],
        nodes=run.nodes,
        products=sorted({device.product for device in run.communicator}),
        nccl_tests=run.version,
        nccl=library(run.nccl),
        launch=run.launch,
        settings=dict(run.settings),
        ended=run.ended,
        checked=judged.checked,
        out_of_bounds=run.out_of_bounds,
        average_busbw=run.average,
        rows=[_row(judged, point, judged_at) for point in order],
        rows_left_out=len(judged.points) - len(order),
        curves=list(map(_curve, to_study([run], "", 0.0).curves)),
        low=[low_text(run, one) for one in judged.low[:_MANY]],
        next=list(judged.next),
        loss=loss,
    )


def low_text(run: BenchmarkRun, one: JudgedSize) -> str:
    """Return e.g. `all_reduce of 16 MiB in place: 100.0 of 245.6 GB/s, 41 %`; small messages in time."""
    op, due = run.op, one.expected
    figures = f"{one.busbw / GB:.1f} of {due.busbw / GB:.1f} GB/s, {one.ratio * 100:.0f} %"
    if one.point.size_bytes < LEAST_BYTES and run.ranks:
        took, asked = (
            factor(op, run.ranks) * one.point.size_bytes / each * MICRO for each in (one.busbw, due.busbw)
        )
        figures = f"{took:.0f} us instead of {asked:.0f}"
    place = " in place" if one.in_place else ""
    return f"{op} of {words.size(one.point.size_bytes)}{place}: {figures}"


@dataclass(slots=True)
class ParsedSeries:
    """Collects the series of all runs; rows with the same labels become one."""

    _values: dict[tuple[Metric, tuple[str, ...]], "array[float]"] = field(default_factory=dict)

    def add(self, judged: JudgedRun) -> None:
        """Add the rows of a run whose operation is known."""
        run = judged.run
        expected = {(id(one.point), one.in_place): one for one in judged.sizes}
        for point in judged.points if run.op else ():
            for in_place, placed in point.placed.items():
                place = "in_place" if in_place else "out_of_place"
                labels = (run.op, str(point.size_bytes), str(run.ranks or ""), place)
                one = expected.get((id(point), in_place))
                wrong = is_wrong(run, placed)
                of: Mapping[Metric, Iterable[float]] = {
                    BUSBW: placed.busbw, SECONDS: placed.seconds,
                    EXPECTED: [one.expected.busbw] if one else [], RATIO: [one.ratio] if one else [],
                    WRONG: [] if wrong is None else [wrong],
                }  # fmt: skip
                for metric, values in of.items():
                    self._values.setdefault((metric, labels), array("d")).extend(values)

    def samples(self, health: Health, not_understood: int) -> Iterator[Sample]:
        """Yield all series, grouped by metric."""
        for metric in (BUSBW, SECONDS, EXPECTED, RATIO, WRONG):
            for (of, labels), values in self._values.items():
                if of is metric and values:
                    value = sum(values) if metric is WRONG else statistics.median(values)
                    yield metric.sample(value, *labels)
        for name in HEALTH_NAMES.values():
            yield HEALTH.sample(float(name == health), name)
        yield NOT_UNDERSTOOD.sample(not_understood)


def _curve(curve: Curve) -> ParsedCurve:
    summary = summarize(curve)
    figures = (summary.floor, summary.knee, summary.plateau)
    floor, knee, plateau = (None if isinstance(one, Absent) else one.value for one in figures)
    return ParsedCurve(curve.dtype, curve.in_place, floor, knee, plateau, summary.bound, in_words(summary))


def _row(judged: JudgedRun, point: RepeatedRow, known: dict[tuple[int, bool], JudgedSize]) -> ParsedRow:
    out, inside = known.get((id(point), False)), known.get((id(point), True))
    expected = next((one.expected for one in (out, inside) if one is not None), None)
    of = expected and (expected.busbw, expected.algorithm, expected.confidence.value, [*expected.derivation])
    return ParsedRow(
        point.size_bytes, point.elements, dtype(point.dtype), point.redop, point.root, point.repeats,
        _placed(judged, point.placed.get(False), out), _placed(judged, point.placed.get(True), inside),
        *(of or (None, None, None, [])),
    )  # fmt: skip


def _placed(judged: JudgedRun, placed: Placed | None, one: JudgedSize | None) -> ParsedPlacement | None:
    if placed is None:
        return None
    ratio = None if one is None else one.ratio
    wrong = is_wrong(judged.run, placed)
    return ParsedPlacement(middle(placed.seconds), middle(placed.algbw), middle(placed.busbw), wrong, ratio)
