"""How the collectors are doing: what each last told, when, and why not since. Pure."""

from collections.abc import Iterator

from wirewatch.export.documents import Collector
from wirewatch.export.page.cells import cell, number, table, unknown
from wirewatch.export.page.gpus import TONES
from wirewatch.export.page.model import Cell, Head, Line, Section
from wirewatch.export.page.readings import NOT_YET, Readings
from wirewatch.export.page.words import count, moment, plain


def collectors_section(here: Readings) -> Section:
    every = list(here.collectors.values())
    if not every:
        return Section("collectors", "Collectors", (Line("None is switched on: nothing is watched.", "bad"),))
    bad = [one for one in every if not one.success]
    line = (
        Line(f"{count(len(bad), 'collector')} of {len(every)} cannot tell anything now.", "unknown")
        if bad
        else Line("All of them told something at their last turn.")
    )
    heads = (
        Head("State"), Head("Finds"), Head("Last success"), Head("Took", "ms", number=True),
        Head("Failures", number=True),
    )  # fmt: skip
    rows = [(cell(one.collector), tuple(_row(one, here.at))) for one in every]
    made = table("collector-table", "Collectors: state, age and cost", (Head("Collector"), *heads), rows)
    return Section("collectors", "Collectors", (line,), (made,))


def _row(one: Collector, at: float) -> Iterator[Cell]:
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


def _state(one: Collector, at: float) -> Cell:
    if one.overdue_since is not None:
        since = moment(one.overdue_since, at)
        return Cell("stale: overdue", "bad", note=f"no answer since {since.text}, {since.ago}", strong=True)
    if one.error is not None:
        return Cell("stale: cannot read", "unknown", note=one.error, strong=True)
    if not one.success:
        return Cell("first turn not ended", "unknown")
    return Cell("answers", "good")
