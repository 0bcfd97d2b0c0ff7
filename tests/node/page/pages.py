"""Pages for tests: of a node of a recording, and what a reader finds in the HTML, by a strict parser."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from tests.support import Node
from wirewatch.documents.judged import DaemonStatus
from wirewatch.page import html
from wirewatch.page.content import PageContent, PageContext, page_content
from wirewatch.page.html import render
from wirewatch.page.model import Cell, Drawing, Page
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.node import Judged, judge_state

VOID = frozenset({"link", "meta", "br", "hr", "wbr", "img", "input"})
SHAPES = frozenset({"path", "rect", "line"})
"""Elements of SVG that may end in themselves."""


def content_of(
    here: Judged, node: Node, *, source: str = "live", place: PageContext | None = None,
    policy: VerdictPolicy | None = None, released_until: float = 0.0, turning: bool = True,
) -> PageContent:  # fmt: skip
    daemon = DaemonStatus(node.clock.now(), node.clock.mono(), turning, released_until)
    return page_content(here, daemon, source, policy or VerdictPolicy(), place or PageContext())


def page_of(node: Node) -> Page:
    return html.page(content_of(judge_state(node.state), node))


def html_of(told_now: PageContent) -> str:
    return render(html.page(told_now), "off").text.decode()


@dataclass
class Element:
    """One element: its name, attributes, and all text within it."""

    tag: str
    attributes: dict[str, str]
    parent: "Element | None"
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def within(self, tag: str) -> "Element | None":
        """The nearest element of a name around it."""
        place = self.parent
        while place is not None and place.tag != tag:
            place = place.parent
        return place


class Strict(HTMLParser):
    """Fails on what a browser would repair: elements left open or closed twice, ids and attributes twice."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)
        self.close()
        assert not self._open, f"left open: {[one.tag for one in self._open]}"
        ids = Counter(one.attributes["id"] for one in self.elements if "id" in one.attributes)
        assert [name for name, times in ids.items() if times > 1] == []
        assert all(name and not re.search(r"\s", name) for name in ids)
        self._references(set(ids))

    def _references(self, ids: set[str]) -> None:
        for one in self.elements:
            for name in ("aria-labelledby", "aria-describedby"):
                assert set(one.attributes.get(name, "").split()) <= ids, one.attributes
            href = one.attributes.get("href", "")
            assert not href.startswith("#") or href[1:] in ids, href

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        assert not [name for name in names if name.startswith("on") or name == "style"], (tag, names)
        given = {name: value or "" for name, value in attrs}
        self.elements.append(Element(tag, given, self._open[-1] if self._open else None))
        if tag not in VOID:
            self._open.append(self.elements[-1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, f"<{tag}/>"
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop().tag == tag, f"</{tag}> in {self._open}"

    def handle_data(self, data: str) -> None:
        for one in self._open:
            one.texts.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        wanted = attributes.items()
        return [one for one in self.elements if one.tag == tag and wanted <= one.attributes.items()]

    def tags(self) -> list[str]:
        return [one.tag for one in self.elements]


def lines(page: Page) -> Iterator[str]:
    """What the page says and how it looks, as text: for goldens, and for whoever reads them.

    After a text stand its tone and how it is set: `#` a number, `*` strong, `x3` over three columns.
    """
    yield f"{page.node or '(no name)'} | {page.about}"
    yield f"{page.verdict.health.upper()}: {page.verdict.start} {page.verdict.reason}"
    if page.verdict.since:
        yield f"since {page.verdict.since.text} ({page.verdict.since.ago})"
    yield from (f"! {_toned(one.text, one.tone)} {one.code}".rstrip() for one in page.notices)
    for card in (*page.findings, *page.apart):
        rules = ", ".join(f"{rule.name} {rule.id}" for rule in card.rules)
        yield f"* {card.health.upper()} {card.subject} {rules}: {card.evidence}"
        yield f"  do: {card.action}"
        since = f"{card.since.text} ({card.since.ago})" if card.since else "not known"
        yield f"  since {since}; {card.stage}; ends with: {card.ends}"
        yield from (f"  {said}" for said in card.said)
    for section in page.sections:
        yield f"== {section.title}"
        for line in section.lines:
            at = f" {line.at.text} ({line.at.ago})" if line.at else ""
            yield f"{_toned(line.text, line.tone)}{at}{f' [{line.code}]' if line.code else ''}"
        for table in section.tables:
            yield f"-- {table.caption}"
            yield " | ".join(f"{head.text} {head.unit}".strip() for head in table.columns)
            for row in table.rows:
                yield " | ".join(map(_cell, (row.head, *row.cells)))
            yield from (f"[{number}] {note}" for number, note in enumerate(table.notes, 1))
        if section.drawing:
            yield f"-- {section.drawing.title}"
            yield from section.drawing.words
            yield from drawn(section.drawing)
        for details in section.details:
            yield f"-- {details.title}"
            for point in details.points:
                yield " ; ".join((point.text, *point.under))


def drawn(drawing: Drawing) -> Iterator[str]:
    """Where each part of a drawing is, and how it looks."""
    yield f"{drawing.width:g} x {drawing.height:g}"
    for kind, boxes in (("frame", drawing.frames), ("box", drawing.boxes)):
        for one in boxes:
            text = _toned(f"{one.text} <{one.note}>" if one.note else one.text, one.style)
            yield f"{kind} {one.x:g},{one.y:g} {one.width:g} x {one.height:g} {text}"
    for wire in drawing.wires:
        ends = f"{wire.x1:g},{wire.y1:g} to {wire.x2:g},{wire.y2:g}"
        bend = f" bent by {wire.bend:g}" if wire.bend else ""
        yield f"wire {ends}{bend} {_toned(wire.text or '-', wire.style)}{' broken' * wire.broken}"


def _cell(cell: Cell) -> str:
    more = "".join(
        (
            f" [{cell.mark}]" if cell.mark else "",
            f" ({cell.aside})" if cell.aside else "",
            f" <{cell.note}>" if cell.note else "",
        )
    )
    how = f"{'#' * cell.number}{'*' * cell.strong}{f'x{cell.span}' if cell.span > 1 else ''}"
    return f"{_toned(cell.text, cell.tone)}{how}{more}"


def _toned(text: str, tone: str) -> str:
    return f"{text} ~{tone}" if tone else text
