"""The peer matrix as a heat map: copies between GPUs, each beside the median of all. Pure."""

from collections.abc import Mapping, Sequence
from statistics import median

from wirewatch.export.page.cells import cell, table, unknown
from wirewatch.export.page.model import Cell, Head, Line, Moment, Section, Table, Tone
from wirewatch.export.page.readings import order
from wirewatch.export.page.words import GB, percent
from wirewatch.export.probedocuments import PeerCopy, ProbeDocument

STEPS: Sequence[tuple[float, Tone, str]] = (
    (0.25, "slow3", "25 % and more below"),
    (0.10, "slow2", "10 % to 25 % below"),
    (0.05, "slow1", "5 % to 10 % below"),
    (-0.05, "", "within 5 % of the median"),
    (float("-inf"), "fast", "5 % and more above"),
)
"""Parts of the median by which a copy is below it; from 10 % a straggler is DEGRADED, from 25 % FAILED."""
SPEAK = 0.05
"""Less of a deviation is said by the number alone."""


NONE = Line("Not known: the last probe made no copies between GPUs.", "unknown")


def matrix_section(probe: ProbeDocument | None, at: Moment | None, why: Line, *, fresh: bool) -> Section:
    """`why` is said where there is no probe; `at` is when this one began."""
    if probe is None or not probe.copies:
        return Section("peers", "Copies between GPUs", (why if probe is None else NONE,))
    middle = median(one.bytes_per_second for one in probe.copies)
    old = "" if fresh else " It is old: what it says of now is not known."
    said = (
        "Each GPU to each other, GB/s, while both directions of disjoint pairs run. "
        f"Median {middle / GB:.1f}.{old} Measured"
    )
    line = Line(said, "" if fresh else "unknown", at=at)
    return Section("peers", "Copies between GPUs", (line,), (_table(probe.copies, middle),))


def _table(copies: Sequence[PeerCopy], middle: float) -> Table:
    rates = {(one.source, one.destination): one for one in copies}
    places = sorted({one for pair in rates for one in pair}, key=lambda one: order(str(one)))
    heads = [Head(f"to {one}", number=True) for one in places]
    rows = [
        (cell(f"from {source}"), tuple(_cell(source, to, rates, middle) for to in places))
        for source in places
    ]
    legend = [Cell(words, tone) for _, tone, words in reversed(STEPS)]
    caption = "Copies between GPUs in GB/s: rows send, columns receive"
    return table("peer-table", caption, (Head("GPU"), *heads), rows, legend, dense=True)


def _cell(source: int, to: int, rates: Mapping[tuple[int, int], PeerCopy], middle: float) -> Cell:
    if source == to:
        return Cell("·", "quiet", aside="itself", number=True)
    one = rates.get((source, to))
    if one is None:
        return unknown("the probe did not copy between these two")
    below = 1 - one.bytes_per_second / middle if middle else 0.0
    tone = next(tone for least, tone, _ in STEPS if below >= least)
    aside = (
        f"{percent(abs(below))} {'below' if below > 0 else 'above'} the median" if abs(below) >= SPEAK else ""
    )
    ways = "" if one.direct else "through the host"
    return Cell(
        f"{one.bytes_per_second / GB:.1f}",
        tone,
        note=ways,
        aside=aside,
        number=True,
        strong=tone in {"slow2", "slow3"},
    )
