"""What is different from the node's baseline, in words, and how to accept it. Pure."""

from collections.abc import Iterator, Sequence

from wirewatch.documents.drift import BaselineDocument, DriftDocument, UnacceptedChange
from wirewatch.documents.health import Health
from wirewatch.documents.state import CollectorState
from wirewatch.page.hardware import TONES
from wirewatch.page.model import Cell, Column, Details, Point, Section, Sentence, Table
from wirewatch.page.tables import NOT_YET, Readings, cell, count, moment, number, plain, table, unknown
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


def collectors_section(here: Readings) -> Section:
    every = list(here.collectors.values())
    if not every:
        return Section(
            "collectors", "Collectors", (Sentence("None is switched on: nothing is watched.", "bad"),)
        )
    bad = [one for one in every if not one.success]
    line = (
        Sentence(f"{count(len(bad), 'collector')} of {len(every)} cannot tell anything now.", "unknown")
        if bad
        else Sentence("All of them told something at their last turn.")
    )
    heads = (
        Column("State"), Column("Finds"), Column("Last success"), Column("Took", "ms", number=True),
        Column("Failures", number=True),
    )  # fmt: skip
    rows = [(cell(one.collector), tuple(_row(one, here.at))) for one in every]
    made = table("collector-table", "Collectors: state, age and cost", (Column("Collector"), *heads), rows)
    return Section("collectors", "Collectors", (line,), (made,))


def _lines(told: DriftDocument, here: Readings) -> Iterator[Sentence]:
    one = here.collectors.get(NAME)
    if one is None or not one.success:
        yield Sentence(f"Not known now: {here.why(NAME)}.", "unknown")
    if told.baseline is None:
        why = told.learning or "the topology has not been read"
        yield Sentence(
            f"There is no baseline yet: {why}. It is learned by itself while nothing is wrong.", "quiet"
        )
        return
    yield _baseline(told.baseline, told.at)
    if told.changes:
        yield Sentence(
            f"{count(len(told.changes), 'change')} that nobody has accepted. If one was meant:", "", ACCEPT
        )
    elif one is not None and one.success:
        yield Sentence("Nothing has changed.", "good")


def _baseline(one: BaselineDocument, at: float) -> Sentence:
    shape = f", shape {one.shape}" if one.shape else ""
    parts = f"{count(one.gpus, 'GPU')}, {count(one.nics, 'NIC')}{shape}"
    return Sentence(
        f"Baseline: {parts}; {one.origin} by {one.by} ({one.why}),", "quiet", at=moment(one.at, at)
    )


def _table(told: DriftDocument) -> Table:
    ranked = sorted(told.changes, key=lambda one: WORST.index(one.health))
    rows = [(cell(one.id), tuple(_change(one, told.at))) for one in ranked]
    heads = (Column("ID"), Column("How bad"), Column("What"), Column("Since"), Column("Do"))
    return table("drift-table", "Changes that nobody has accepted", heads, rows)


def _change(one: UnacceptedChange, at: float) -> Iterator[Cell]:
    word = "information" if one.health == "ok" else one.health.upper()
    yield Cell(word, "quiet" if one.health == "ok" else TONES[one.health], strong=one.health != "ok")
    yield cell(one.text, note=one.kind)
    since = moment(one.since, at)
    yield cell(since.text, note=since.ago)
    yield cell(one.action)


def _row(one: CollectorState, at: float) -> Iterator[Cell]:
    yield _state(one, at)
    if one.health is None:
        yield cell("nothing to watch here", "quiet")
    elif one.health == "unknown" and not one.last_success:
        yield unknown(one.error or NOT_YET)
    else:
        yield Cell(one.health.upper(), TONES[one.health])
    if one.last_success:
        last = moment(one.last_success, at)
        yield Cell(last.ago, "" if one.success else "unknown", note=last.text)
        yield number(f"{one.duration_seconds * 1e3:,.1f}")
    else:
        yield cell("never", "unknown")
        yield unknown(one.error or NOT_YET)
    yield number(plain(one.failures), "warn" if one.failures else "quiet")


def _state(one: CollectorState, at: float) -> Cell:
    if one.overdue_since is not None:
        since = moment(one.overdue_since, at)
        return Cell("stale: overdue", "bad", note=f"no answer since {since.text}, {since.ago}", strong=True)
    if one.error is not None:
        return Cell("stale: cannot read", "unknown", note=one.error, strong=True)
    if not one.success:
        return Cell("first turn not ended", "unknown")
    return Cell("answers", "good")
