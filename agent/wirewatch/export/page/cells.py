"""Making tables: cells that are known, cells that are not, and footnotes that say why not. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from wirewatch.export.page.model import Cell, Head, Row, Table, Tone

UNKNOWN = "not known"
JOINED = 3
"""So many cells in a row that are not known for one reason become one, with the reason in it."""


def cell(text: str, tone: Tone = "", note: str = "") -> Cell:
    return Cell(text, tone, note)


def number(text: str, tone: Tone = "", note: str = "") -> Cell:
    return Cell(text, tone, note, number=True)


def unknown(why: str) -> Cell:
    """What is not known. Never 0, never blank."""
    return Cell(UNKNOWN, "unknown", why=why)


def known(value: float | None, text: str, why: str) -> Cell:
    """A number as text, unless there is none."""
    return unknown(why) if value is None else number(text)


def table(
    name: str, caption: str, heads: Sequence[Head], rows: Iterable[tuple[Cell, Sequence[Cell]]],
    legend: Sequence[Cell] = (), *, dense: bool = False,
) -> Table:  # fmt: skip
    """A table whose unknown cells are joined or have footnotes."""
    notes: list[str] = []
    made = tuple(Row(head, tuple(_folded(cells, notes))) for head, cells in rows)
    return Table(name, caption, tuple(heads), made, tuple(notes), tuple(legend), dense)


def _folded(cells: Sequence[Cell], notes: list[str]) -> Iterable[Cell]:
    place = 0
    while place < len(cells):
        here = cells[place]
        length = 1
        while here.why and place + length < len(cells) and cells[place + length].why == here.why:
            length += 1
        place += length
        if length >= JOINED:
            yield replace(here, text=f"{UNKNOWN}: {here.why}", span=length)
        else:
            yield from [_marked(here, notes)] * length


def _marked(one: Cell, notes: list[str]) -> Cell:
    if not one.why:
        return one
    if one.why not in notes:
        notes.append(one.why)
    return replace(one, mark=notes.index(one.why) + 1)
