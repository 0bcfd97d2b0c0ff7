"""The last probe against what was expected, whether one may run now, and the newest ones in short. Pure."""

from collections.abc import Iterator, Sequence

from wirewatch.busbw.expected import human
from wirewatch.export.page.cells import cell, known, number, table, unknown
from wirewatch.export.page.model import Cell, Details, Head, Line, Point, Section, Table, Tone
from wirewatch.export.page.readings import Readings
from wirewatch.export.page.told import Told
from wirewatch.export.page.words import GB, moment, percent, span
from wirewatch.export.probedocuments import PastProbe, ProbeDocument, Result
from wirewatch.probe.component import POINTLESS, PROBE_NAME
from wirewatch.probe.model import ProbePolicy

SMALL = 1 << 20
"""Bytes below which a message measures latency and no bandwidth."""
PAST = 8
"""So many of the newest probes are shown."""
LOW = ProbePolicy().ratio
"""Of what is expected, by default: the finding itself is judged by the configuration's."""


def nothing(told: Told, here: Readings) -> Line:
    """Why there is no complete probe."""
    gate = told.probes.gate
    if PROBE_NAME not in here.collectors:
        return Line("Probing is switched off.", "quiet")
    if gate.reason in {one.value for one in POINTLESS}:
        return Line(f"There is nothing to probe here: {gate.meaning} ({gate.detail}).", "quiet")
    wait = "one may run now" if gate.open else f"{gate.meaning} ({gate.detail})"
    return Line(f"Not known: there was no complete probe yet; {wait}.", "unknown")


def probes_section(told: Told, here: Readings) -> Section:
    lines = tuple(_lines(told, here))
    last = told.probes.last
    tables: list[Table] = []
    details: list[Details] = []
    if last is not None and last.results:
        tables.append(_results(last))
        details += _derivations(last.results)
    if told.probes.past:
        tables.append(_past(told.probes.past, told.at))
    return Section("probes", "Probes against what is expected", lines, tuple(tables), tuple(details))


def _lines(told: Told, here: Readings) -> Iterator[Line]:
    last, gate = told.probes.last, told.probes.gate
    if last is None:
        yield nothing(told, here)
        return
    yield from _last(told, last)
    if gate.open:
        yield Line("A probe may run now.")
    else:
        yield Line(f"No probe may run now: {gate.meaning} ({gate.detail}).", "quiet")


def _last(told: Told, last: ProbeDocument) -> Iterator[Line]:
    age = told.health.probe.age_seconds if told.health.probe else None
    old = "" if told.probes.fresh else " It is too old to say anything about now."
    ended = "" if age is None else f" It ended {span(age)} ago."
    versions = (
        f" ({', '.join(f'{name} {value}' for name, value in last.versions.items())})" if last.versions else ""
    )
    way = f", between GPUs by {last.transport}" if last.transport else ""
    yield Line(
        f"Last complete probe: engine {last.engine}{versions}{way}, run by {last.by}.{ended}{old} It began",
        "" if told.probes.fresh else "unknown", at=moment(last.at, told.at),
    )  # fmt: skip
    if last.slowing:
        yield Line(f"NCCL settings that lower bandwidth: {'; '.join(last.slowing)}.", "warn")


def _results(last: ProbeDocument) -> Table:
    rows = [(cell(one.op), tuple(_result(one))) for one in last.results if one.size_bytes >= SMALL]
    heads = (
        Head("Collective"), Head("Size", number=True), Head("GPUs"),
        Head("Bus bandwidth", "GB/s", number=True), Head("Expected", "GB/s", number=True),
        Head("Ratio", number=True), Head("By"),
        Head("Wrong sums", number=True),
    )  # fmt: skip
    return table("probe-table", "The last complete probe against what this topology should give", heads, rows)


def _result(one: Result) -> Iterator[Cell]:
    yield number(human(one.size_bytes))
    yield cell(one.gpus)
    yield number(f"{one.busbw / GB:.1f}")
    why = one.derivation[0] if one.derivation else "nothing is known of such a topology"
    yield known(one.expected_busbw, f"{(one.expected_busbw or 0.0) / GB:.1f}", why)
    if one.ratio is None:
        yield unknown(why)
    else:
        low = one.ratio < LOW
        tone: Tone = "bad" if low else "good"
        yield Cell(
            percent(one.ratio), tone, note=f"below {percent(LOW)}" if low else "", number=True, strong=low
        )
    by = f"{one.algorithm}/{one.protocol}".strip("/")
    yield cell(by) if by else unknown("NCCL's log does not tell it")
    yield Cell(str(one.wrong), "bad", number=True, strong=True) if one.wrong else number("0", "quiet")


def _derivations(results: Sequence[Result]) -> Iterator[Details]:
    points = tuple(
        Point(
            f"{one.op} of {human(one.size_bytes)}, GPUs: {one.gpus}",
            (*one.derivation, *((f"confidence: {one.confidence}",) if one.confidence else ())),
        )
        for one in results
        if one.size_bytes >= SMALL and one.derivation
    )
    if points:
        yield Details("How each expectation follows", points)


def _past(past: Sequence[PastProbe], at: float) -> Table:
    rows = []
    for one in past[:PAST]:
        when = moment(one.at, at)
        good = one.outcome == "ok"
        outcome = Cell(one.outcome, "" if good else "unknown", note=one.why)
        low = one.worst_ratio is not None and one.worst_ratio < LOW
        ratio = (
            unknown("nothing was measured against an expectation")
            if one.worst_ratio is None
            else Cell(percent(one.worst_ratio), "bad" if low else "", number=True, strong=low)
        )
        kind = cell("forced: no verdict" if one.forced else "counts", "quiet")
        rows.append((cell(when.text, note=when.ago), (outcome, ratio, number(f"{one.seconds:.1f}"), kind)))
    heads = (
        Head("Began"), Head("Outcome"), Head("Lowest ratio", number=True), Head("Took", "s", number=True),
        Head("Counts"),
    )  # fmt: skip
    return table("past-table", "The newest probes, newest first", heads, rows)
