"""Readings by name, and how they are shown: cells, tables, times in UTC with their age. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.core import words
from wirewatch.core.collector import blind_rule
from wirewatch.core.statistics import grouped
from wirewatch.documents.health import Health, ReportedFinding
from wirewatch.documents.state import PREFIX, CollectorState, Series, StateDocument
from wirewatch.page.model import Cell, Column, Moment, Row, Sentence, Table, Tone

TONES: dict[Health, Tone] = {"ok": "good", "degraded": "warn", "unknown": "unknown", "failed": "bad"}
NOT_GIVEN = "this part or its driver does not report it"
NOT_YET = "it has not been read since the agent started"
Part = Mapping[str, str]
"""Labels that name a part, such as `gpu` and `uuid`, or `device` and `port`."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Series by name without prefix; collectors by name."""

    series: Mapping[str, Sequence[Series]]
    collectors: Mapping[str, CollectorState]
    at: float

    def of(self, name: str, part: Part) -> Sequence[Series]:
        """The series of one metric that carry these labels."""
        wanted = part.items()
        return [one for one in self.series.get(name, ()) if wanted <= one.labels.items()]

    def value(self, name: str, part: Part) -> float | None:
        """Return the single number of this name that a part has; None where it is not known."""
        return next((one.value for one in self.of(name, part)), None)

    def by(self, name: str, part: Part, label: str) -> Mapping[str, float]:
        """The numbers of this name that a part has, by one more label."""
        return {one.labels.get(label, ""): one.value for one in self.of(name, part)}

    def state(self, name: str, part: Part) -> str | None:
        """The state whose series is 1, "" where all are 0; None where there are no series."""
        states = self.by(name, part, "state")
        return next((state for state, value in states.items() if value), "") if states else None

    def why(self, collector: str, part: Part | None = None) -> str:
        """Return why a collector has no number, of a part or of any."""
        one = self.collectors.get(collector)
        if one is None:
            return f"the collector {collector} is switched off"
        rule, wanted = blind_rule(one.collector), part or {}
        blind = (found for found in one.findings if found.rule == rule and _covers(found, wanted))
        if evidence := next((found.evidence for found in blind), ""):
            return evidence
        if one.overdue_since is not None:
            since = moment(one.overdue_since, self.at)
            return f"{collector} is overdue since {since.text}, {since.ago}"
        if one.error is not None:
            return one.error
        return NOT_GIVEN if one.last_success else NOT_YET

    def nothing(self, collector: str, none: str) -> Sentence:
        """Return why there is nothing to show of a collector: it is not known, or there is `none`."""
        unread = Sentence(f"Not known: {self.why(collector)}.", "unknown")
        return unread if self.applies(collector) else Sentence(none, "quiet")

    def applies(self, collector: str) -> bool:
        """Tell whether a collector may have something to watch on this node."""
        one = self.collectors.get(collector)
        return one is None or one.applicable is not False or bool(one.findings)


@dataclass(frozen=True, slots=True)
class GpuName:
    """A GPU of the node: today's index, UUID (empty where not known), PCI address, product."""

    index: str
    uuid: str
    pci: str = ""
    product: str = ""

    @property
    def part(self) -> Part:
        return {"gpu": self.index, "uuid": self.uuid} if self.uuid else {"gpu": self.index}


UNKNOWN = "not known"
JOINED = 3
"""Least number of unknown cells in a row with a common reason that become a single cell with the reason."""


def moment(at: float, now: float) -> Moment:
    """Return a time in Unix seconds as seen from `now`."""
    iso = words.stamp(at)
    return Moment(iso.replace("T", " ").replace("Z", " UTC"), iso, words.ago(now - at))


def when(at: float, now: float) -> Cell:
    """Return a cell with a time, and its age below it."""
    here = moment(at, now)
    return Cell(here.text, note=here.ago)


def plain(value: float) -> str:
    """A count, or a number with one digit behind the point where it has any."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def readings(state: StateDocument) -> Readings:
    """The series and collectors of a state, by name."""
    every = (one for collector in state.collectors for one in collector.samples)
    series = grouped((one.name.removeprefix(PREFIX), one) for one in every)
    return Readings(series, {one.collector: one for one in state.collectors}, state.at)


def order(index: str) -> tuple[int, str]:
    """A key to sort by: numbers by value, other texts after them."""
    return (int(index), "") if index.isdecimal() and len(index) < 10 else (1 << 30, index)  # noqa: PLR2004


def unique(gpus: Iterable[GpuName]) -> tuple[GpuName, ...]:
    """Return each GPU once, by index, under its first name; without a UUID only if no other has its index."""
    found: dict[str, GpuName] = {}
    for one in gpus:
        found.setdefault(one.uuid or f"index {one.index}", one)
    known = {one.index for one in found.values() if one.uuid}
    kept = [one for one in found.values() if one.uuid or one.index not in known]
    return tuple(sorted(kept, key=lambda one: (order(one.index), one.uuid)))


def number(text: str, tone: Tone = "", note: str = "") -> Cell:
    return Cell(text, tone, note, number=True)


def unknown(why: str) -> Cell:
    """A cell for a value that is not known: never 0, never blank."""
    return Cell(UNKNOWN, "unknown", why=why)


def known(value: float | None, text: str, why: str) -> Cell:
    """A number as text, unless there is none."""
    return unknown(why) if value is None else number(text)


def table(
    name: str, caption: str, columns: Sequence[Column], rows: Iterable[tuple[Cell, Iterable[Cell]]],
    legend: Sequence[Cell] = (), *, dense: bool = False,
) -> Table:  # fmt: skip
    """A table whose unknown cells are joined or have footnotes."""
    notes: list[str] = []
    made = tuple(Row(head, tuple(_folded(tuple(cells), notes))) for head, cells in rows)
    return Table(name, caption, tuple(columns), made, tuple(notes), tuple(legend), dense)


def _covers(finding: ReportedFinding, part: Part) -> bool:
    subject = finding.subject
    return all(part.get(name, value) == value for name, value in subject.items()) and (
        not subject or bool(set(subject) & set(part))
    )


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
