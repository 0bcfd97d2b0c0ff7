"""What a dashboard is made of, as plain values; build.py makes Grafana's JSON of them.

In queries `HERE` stands for the selection of clusters and nodes, `GPUS` for that with GPUs. Every query sums
up by labels that it names, so that no label of the scrape (pod, instance, job) gets into a panel and a node
that two servers scrape counts once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

HERE = 'cluster=~"$cluster",node=~"$node"'
GPUS = HERE + ',gpu=~"$gpu"'


class Blank(Enum):
    """Why a panel may show nothing while all is well with it; part of its description.

    tests/system/test_dashboards.py has for each a node on which such panels have data. All but PROBE are
    empty on a healthy node.
    """

    FINDING = "Empty while nothing is wrong."
    PROBE = "Empty without a fresh probe: a busy node is not probed."
    REFUSALS = "Empty while no probe was refused."
    VERSIONS = "Empty while all nodes of a product run the same versions."
    DRIFT = "Empty while no node differs from its baseline."
    SILENT = "Empty while every agent answers."
    XID = "Empty while the kernel log has no XID."
    ERRORS = "Empty while no error was counted."
    PORTS = "Empty while no port counts errors."
    GPUDIRECT = "Empty while every check passes."
    WEB = "Empty without a web configuration (`[listen] web_config`)."
    COLLECTOR = "Empty while every collector succeeds."
    LINK_DETAIL = "Empty without `[collectors.nvlink] link_detail = true`."
    LINK_DOWN = "Empty while no link is down, and without `[collectors.nvlink] link_detail = true`."
    LOCKSTEP = "Empty without a job on several GPUs, Hopper or later, in lockstep."
    JOBS = "Empty without a running job that carries the tap."
    OTHER = "Empty where a node has no such part."
    NVLINK5 = "Empty before NVLink 5 (Blackwell): older GPUs do not report it."


@dataclass(frozen=True, slots=True)
class Limits:
    """Colours from a value on, the base first; `line` draws them into the graph too."""

    base: str
    steps: tuple[tuple[float, str], ...] = ()
    line: bool = True


@dataclass(frozen=True, slots=True)
class NoLimit:
    """No value of it is good or bad in itself; says why."""

    why: str


Limit = Limits | NoLimit

AT_MOST_NONE = Limits("green", ((1, "red"),))
SOME_IS_ODD = Limits("green", ((1, "orange"),))
RATIO = Limits("red", ((0.7, "orange"), (0.9, "green")))
"""Of what is expected: below 0.7 is a fault (ADR 0008), below 0.9 is worth a look."""

Words = Mapping[str, tuple[str, str]]
"""Texts and colours (empty for none) by value; a `*` in a value is a pattern."""

SEVERITY: Words = {"1": ("DEGRADED", "orange"), "1.5": ("UNKNOWN", "purple"), "2": ("FAILED", "red")}
STATE: Words = {
    "1": ("DEGRADED", "orange"), "2": ("silent", "blue"), "3": ("UNKNOWN", "purple"), "4": ("FAILED", "red"),
}  # fmt: skip
HEALTH: Words = {
    "0": ("OK", "green"), "1": ("DEGRADED", "orange"), "2": ("UNKNOWN", "purple"), "3": ("FAILED", "red"),
    "4": ("silent", "blue"),
}  # fmt: skip
YES_NO: Words = {"0": ("no", "red"), "1": ("yes", "green")}
IS_UP: Words = {"0": ("no", "red"), "1": ("yes", "transparent")}
"""For a cell: what is well has no colour there."""


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Stat:
    """One number."""

    title: str
    about: str
    expr: str
    unit: str
    limits: Limit
    words: Words = field(default_factory=dict)
    width: int = 3
    height: int = 3
    decimals: int | None = None
    blank: Blank | None = None
    misleads: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Lines over time, named by `legend` at the `bottom`, or in a table, the `highest` or `lowest` first.

    `colours` by legend; `dashed`: the legends (a pattern) drawn as what is expected. The axis goes from
    `lowest` to `highest` where they are set, and at least to `reach`.
    """

    title: str
    about: str
    queries: tuple[Query, ...]
    unit: str
    limits: Limit
    width: int = 12
    height: int = 8
    stacked: bool = False
    lowest: float | None = 0
    highest: float | None = None
    colours: Mapping[str, str] = field(default_factory=dict)
    dashed: str = ""
    stepped: bool = False
    reach: float | None = None
    legend: str = "bottom"
    blank: Blank | None = None
    misleads: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A column of a label; `goes` is the address that its cells lead to, `words` what they read as.

    One with a unit is read as a number. `whole`: a cell's text is often longer than the cell, and is shown
    whole when a reader asks; `wrapped`: in as many lines as it takes. `also`: what else its cells lead to,
    by title and address.
    """

    name: str
    width: int = 0
    header: str = ""
    unit: str = ""
    words: Words = field(default_factory=dict)
    whole: bool = False
    wrapped: bool = False
    goes: str = ""
    leads: str = ""
    also: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        return self.header or self.name


@dataclass(frozen=True, slots=True)
class Value:
    """A column of a query's values; one without a header is left out, and only its labels are shown.

    `of`: the labels by which it keeps to the rows of the table's first query, where others would add theirs.
    """

    header: str
    expr: str
    unit: str
    limits: Limit
    width: int = 0
    words: Words = field(default_factory=dict)
    decimals: int | None = None
    of: str = ""

    @property
    def shown(self) -> str:
        return self.header


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of the newest values, in `order` of columns."""

    title: str
    about: str
    columns: tuple[Label | Value, ...]
    width: int = 12
    height: int = 8
    order: tuple[tuple[str, bool], ...] = ()
    blank: Blank | None = None
    misleads: str = ""

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(c for c in self.columns if isinstance(c, Value))


@dataclass(frozen=True, slots=True)
class Matrix:
    """A table of a query's values by two of its labels; `shows` is a third label to show instead.

    `first`: width of the column of rows, in pixels.
    """

    title: str
    about: str
    expr: str
    row: str
    column: str
    unit: str
    limits: Limit
    shows: str = ""
    words: Words = field(default_factory=dict)
    width: int = 8
    height: int = 9
    decimals: int | None = None
    first: int = 0
    blank: Blank | None = None
    misleads: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    title: str
    about: str
    text: str
    width: int = 24
    height: int = 3


Panel = Stat | Series | Table | Matrix
"""What has queries."""


@dataclass(frozen=True, slots=True)
class Row:
    """`collapsed` until a reader opens it: what shows nothing on most nodes most of the time."""

    title: str
    panels: tuple[Panel | Text, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Marks in every graph. `at`: the value is the moment (milliseconds); else while the series is there."""

    name: str
    expr: str
    title: str
    colour: str
    at: bool = True
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Dashboard:
    """`many`: variables of which several may be chosen at once; the others take one."""

    uid: str
    title: str
    about: str
    rows: tuple[Row, ...]
    events: tuple[Event, ...]
    variables: tuple[str, ...] = ("cluster", "node")
    many: tuple[str, ...] = ("cluster", "node")
    since: str = "now-6h"


def queries(panel: Panel) -> tuple[str, ...]:
    """What a panel asks, `HERE` and `GPUS` replaced."""
    match panel:
        case Series():
            asked = tuple(query.expr for query in panel.queries)
        case Table():
            first = panel.values[0].expr
            asked = tuple(f"({v.expr}) and on ({v.of}) ({first})" if v.of else v.expr for v in panel.values)
        case Stat() | Matrix():
            asked = (panel.expr,)
    return tuple(selected(one) for one in asked)


def silence(panel: Panel) -> str:
    """What a panel shows of a node that is not heard: it follows from what is asked."""
    asked = " ".join(queries(panel))
    if "ALERTS" in asked:
        return "Silent: alerts go on for what a node said last."
    if ":held" in asked or "node:wirewatch_" in asked:
        return "Silent: a node that is not heard stays, with what it said last."
    if isinstance(panel, Series):
        return "Silent: a gap while a node is not heard; sums and counts then cover the others only."
    if isinstance(panel, Stat):
        return "Silent: a node that is not heard is not counted."
    return "Silent: a node that is not heard is not here."


def selected(expr: str) -> str:
    return expr.replace("GPUS", GPUS).replace("HERE", HERE)
