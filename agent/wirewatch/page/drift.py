"""The section of what is different from the baseline, and how to accept it. Pure."""

from collections.abc import Iterator, Sequence

from wirewatch.documents.drift import BaselineDocument, DriftDocument, UnacceptedChange
from wirewatch.documents.health import Health
from wirewatch.page.model import Cell, Column, Details, Point, Section, Sentence, Table
from wirewatch.page.tables import TONES, Readings, cell, count, moment, table
from wirewatch.verdict.drift.component import NAME

ACCEPT = 'wirewatch topology accept ID --why "..."'
WORST: Sequence[Health] = ("failed", "unknown", "degraded", "ok")


def drift_section(document: DriftDocument, here: Readings) -> Section:
    """The baseline, the changes since, and what was accepted."""
    title = "What changed since the baseline"
    lines = tuple(_lines(document, here))
    tables = (_table(document),) if document.changes else ()
    details = (
        (
            Details(
                f"Not read now, so not compared ({len(document.unknown)})",
                tuple(map(Point, document.unknown)),
            ),
        )
        if document.unknown
        else ()
    )
    accepted = document.baseline.accepted if document.baseline else []
    if accepted:
        words = tuple(
            Point(f"{one.text} ({one.by}, {moment(one.at, document.at).text}: {one.why})") for one in accepted
        )
        details = (*details, Details(f"Accepted since ({len(accepted)})", words))
    return Section("drift", title, lines, tables, details)


def _lines(document: DriftDocument, here: Readings) -> Iterator[Sentence]:
    one = here.collectors.get(NAME)
    if one is None or not one.success:
        yield Sentence(f"Not known now: {here.why(NAME)}.", "unknown")
    if document.baseline is None:
        why = document.learning or "the topology has not been read"
        yield Sentence(
            f"There is no baseline yet: {why}. The agent learns it while nothing is wrong.", "quiet"
        )
        return
    yield _baseline(document.baseline, document.at)
    if document.changes:
        yield Sentence(
            f"{count(len(document.changes), 'change')} not accepted yet. To accept one:",
            "",
            ACCEPT,
        )
    elif one is not None and one.success:
        yield Sentence("Nothing has changed.", "good")


def _baseline(one: BaselineDocument, at: float) -> Sentence:
    shape = f", shape {one.shape}" if one.shape else ""
    parts = f"{count(one.gpus, 'GPU')}, {count(one.nics, 'NIC')}{shape}"
    return Sentence(
        f"Baseline: {parts}; {one.origin} by {one.by} ({one.why}),", "quiet", at=moment(one.at, at)
    )


def _table(document: DriftDocument) -> Table:
    ranked = sorted(document.changes, key=lambda one: WORST.index(one.health))
    rows = [(cell(one.id), tuple(_change(one, document.at))) for one in ranked]
    columns = (Column("ID"), Column("How bad"), Column("What"), Column("Since"), Column("Do"))
    return table("drift-table", "Changes that are not accepted", columns, rows)


def _change(one: UnacceptedChange, at: float) -> Iterator[Cell]:
    word = "information" if one.health == "ok" else one.health.upper()
    yield Cell(word, "quiet" if one.health == "ok" else TONES[one.health], strong=one.health != "ok")
    yield cell(one.text, note=one.kind)
    since = moment(one.since, at)
    yield cell(since.text, note=since.ago)
    yield cell(one.action)
