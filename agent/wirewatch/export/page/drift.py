"""What is different from the node's baseline, in words, and how to accept it. Pure."""

from collections.abc import Iterator, Sequence

from wirewatch.export.driftdocuments import BaselineDocument, DriftDocument, Unaccepted
from wirewatch.export.healthdocuments import Health
from wirewatch.export.page.cells import cell, table
from wirewatch.export.page.gpus import TONES
from wirewatch.export.page.model import Cell, Details, Head, Line, Point, Section, Table
from wirewatch.export.page.readings import Readings
from wirewatch.export.page.words import count, moment
from wirewatch.verdict.drift.component import NAME

ACCEPT = 'wirewatch topology accept ID --why "..."'
WORST: Sequence[Health] = ("failed", "unknown", "degraded", "ok")


def drift_section(told: DriftDocument, here: Readings) -> Section:
    title = "What changed since the baseline"
    lines = tuple(_lines(told, here))
    tables = (_table(told),) if told.changes else ()
    details = (
        (Details(f"Not read now, and so no change ({len(told.unknown)})", tuple(map(Point, told.unknown))),)
        if told.unknown
        else ()
    )
    accepted = told.baseline.accepted if told.baseline else []
    if accepted:
        words = tuple(
            Point(f"{one.text} ({one.by}, {moment(one.at, told.at).text}: {one.why})") for one in accepted
        )
        details = (*details, Details(f"Accepted since ({len(accepted)})", words))
    return Section("drift", title, lines, tables, details)


def _lines(told: DriftDocument, here: Readings) -> Iterator[Line]:
    one = here.collectors.get(NAME)
    if one is None or not one.success:
        yield Line(f"Not known now: {here.why(NAME)}.", "unknown")
    if told.baseline is None:
        why = told.learning or "the topology has not been read"
        yield Line(
            f"There is no baseline yet: {why}. It is learned by itself while nothing is wrong.", "quiet"
        )
        return
    yield _baseline(told.baseline, told.at)
    if told.changes:
        yield Line(
            f"{count(len(told.changes), 'change')} that nobody has accepted. If one was meant:", "", ACCEPT
        )
    elif one is not None and one.success:
        yield Line("Nothing has changed.", "good")


def _baseline(one: BaselineDocument, at: float) -> Line:
    shape = f", shape {one.shape}" if one.shape else ""
    parts = f"{count(one.gpus, 'GPU')}, {count(one.nics, 'NIC')}{shape}"
    return Line(f"Baseline: {parts}; {one.origin} by {one.by} ({one.why}),", "quiet", at=moment(one.at, at))


def _table(told: DriftDocument) -> Table:
    ranked = sorted(told.changes, key=lambda one: WORST.index(one.health))
    rows = [(cell(one.id), tuple(_change(one, told.at))) for one in ranked]
    heads = (Head("ID"), Head("How bad"), Head("What"), Head("Since"), Head("Do"))
    return table("drift-table", "Changes that nobody has accepted", heads, rows)


def _change(one: Unaccepted, at: float) -> Iterator[Cell]:
    word = "information" if one.health == "ok" else one.health.upper()
    yield Cell(word, "quiet" if one.health == "ok" else TONES[one.health], strong=one.health != "ok")
    yield cell(one.text, note=one.kind)
    since = moment(one.since, at)
    yield cell(since.text, note=since.ago)
    yield cell(one.action)
