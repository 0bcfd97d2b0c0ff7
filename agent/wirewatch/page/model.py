"""The page as frozen values that are ready to print: texts, and their tones."""

from dataclasses import dataclass
from typing import Literal

from wirewatch.documents.health import Health

Tone = Literal["", "good", "warn", "unknown", "bad", "quiet", "slow1", "slow2", "slow3", "fast"]
"""The meaning of a text as colour and weight; the text says the same in words."""
LONG = 40
"""Letters in one line of a table."""
NARROW = 3
"""Columns of a table that are too few for the width of the page."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: `text` in UTC, `iso` for machines, `ago` as seen from the time of the page."""

    text: str
    iso: str
    ago: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table. `why`: it is not known, and why; `aside`: the meaning of the colour in words.

    `number`: to the right. `span`: columns that it takes. `mark`: the number of its footnote, 0 for none.
    """

    text: str
    tone: Tone = ""
    note: str = ""
    aside: str = ""
    why: str = ""
    number: bool = False
    strong: bool = False
    span: int = 1
    mark: int = 0

    @property
    def long(self) -> bool:
        """Tell whether it is a sentence, which may be broken into lines."""
        return len(self.text) > LONG or self.span > 1


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column, with its unit."""

    text: str
    unit: str = ""
    number: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table; `head` names its part."""

    head: Cell
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `dense`: many short numbers. `notes` count from 1; `legend` explains the tones."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    legend: tuple[Cell, ...] = ()
    dense: bool = False

    @property
    def narrow(self) -> bool:
        """Tell whether its columns should stay together instead of filling the page."""
        return self.dense or len(self.columns) <= NARROW


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, with a time or a command at its end."""

    text: str
    tone: Tone = ""
    code: str = ""
    at: Moment | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A sentence, and what is below it."""

    text: str
    under: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Details:
    """Text that is folded behind its title."""

    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class RuleLink:
    """The rule of a finding, its id, and the address of its entry in the runbook, "" for not configured."""

    name: str
    id: str
    runbook: str


@dataclass(frozen=True, slots=True)
class Card:
    """A finding, or several that say the same of one part: `rules` are theirs.

    `subject` and what `ends` it are words, `stage` has how often it came, `said` what operators said of it.
    """

    rules: tuple[RuleLink, ...]
    health: Health
    subject: str
    evidence: str
    action: str
    since: Moment | None
    last: Moment | None
    stage: str
    ends: str
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PageVerdict:
    """`start`: whether the next job may start, in a sentence; `reason`: the worst in one line."""

    health: Health
    start: str
    reason: str
    since: Moment | None


Style = Literal["plain", "good", "warn", "unknown", "bad", "quiet"]
WIDE = 720.0


@dataclass(frozen=True, slots=True)
class Box:
    """A part: `text` in its middle, `note` below that."""

    x: float
    y: float
    width: float
    height: float
    text: str
    note: str = ""
    style: Style = "plain"


@dataclass(frozen=True, slots=True)
class DrawnWire:
    """A line, or a curve that bends upwards by `bend`; `text` is at its middle, with a cross if `broken`."""

    x1: float
    y1: float
    x2: float
    y2: float
    text: str = ""
    style: Style = "plain"
    broken: bool = False
    bend: float = 0.0

    @property
    def middle(self) -> tuple[float, float]:
        return (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2 - self.bend / 2


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing; `frames` have their names at the lower left, `words` is the same for screen readers."""

    title: str
    width: float
    height: float
    frames: tuple[Box, ...]
    wires: tuple[DrawnWire, ...]
    boxes: tuple[Box, ...]
    words: tuple[str, ...]

    @property
    def wide(self) -> bool:
        """Tell whether it would be too small to read on a phone, and should be scrolled there."""
        return self.width > WIDE


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; `lines` come first. Without tables, they say why."""

    id: str
    title: str
    lines: tuple[Sentence, ...] = ()
    tables: tuple[Table, ...] = ()
    details: tuple[Details, ...] = ()
    drawing: Drawing | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """`findings` count for the verdict, `apart` are repaired or suppressed. `node` may be empty."""

    node: str
    about: str
    at: Moment
    verdict: PageVerdict
    notices: tuple[Sentence, ...]
    findings: tuple[Card, ...]
    apart: tuple[Card, ...]
    sections: tuple[Section, ...]
    version: str
    source: str
