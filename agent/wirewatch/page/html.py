"""The whole page of a state: its sections in their order, and the HTML of it and of the runbook.

The runbook is docs/runbook.md, made into HTML by `make generated`. Its path is that of the file, so that
links of alerts hold there too.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from wirewatch import __version__
from wirewatch.core.words import count
from wirewatch.documents.drift import BaselineDocument, DriftDocument, UnacceptedChange
from wirewatch.documents.health import Health
from wirewatch.documents.state import CollectorState
from wirewatch.page import hardware, jobs, probes, tables
from wirewatch.page.content import PageContent
from wirewatch.page.drawing import draw
from wirewatch.page.findings import cards, notices, verdict
from wirewatch.page.model import Cell, Column, Details, Page, Point, Section, Sentence, Table
from wirewatch.page.tables import Readings, moment, number, plain, readings, table, unknown, when
from wirewatch.verdict.drift.component import NAME

ACCEPT = 'wirewatch topology accept ID --why "..."'
WORST: Sequence[Health] = ("failed", "unknown", "degraded", "ok")
CHOICES: Mapping[str, str] = {"5": "5 s", "15": "15 s", "60": "1 min", "off": "paused"}
"""How often the page reloads itself, by the `refresh` of the URL."""
DEFAULT = "15"
"""The poll interval of the collectors of GPUs, links and ports."""
ICONS: Mapping[Health, tuple[str, str, str, str]] = {
    "ok": (
        "M12 1.5a10.5 10.5 0 1 0 0 21a10.5 10.5 0 0 0 0-21z", "M6.8 12.4l3.5 3.6 6.9-7.6", "#1a6e3c", "#fff",
    ),
    "degraded": ("M12 2L23 21.5H1z", "M12 9v6.2M12 18.2v.3", "#e0a100", "#1c1500"),
    "unknown": (
        "M12 1.2L22.8 12 12 22.8 1.2 12z", "M9 9.6a3 3 0 1 1 4.4 2.7c-1 .6-1.4 1.1-1.4 2.2M12 17.2v.3",
        "#5b4fa2", "#fff",
    ),
    "failed": (
        "M7.6 1.5h8.8l6.1 6.1v8.8l-6.1 6.1H7.6l-6.1-6.1V7.6z", "M8 8l8 8M16 8l-8 8", "#b3261e", "#fff",
    ),
}  # fmt: skip
"""A shape for each health, and the sign in it, which differ without colour too; then both colours."""
FILE = "runbook.json"
"""The title and the HTML of the runbook, and the heading of each alert."""
NAME_OF_RUNBOOK = "runbook.md"
OWN = f"docs/{NAME_OF_RUNBOOK}"
"""The status page finds the runbook there, also behind a proxy."""


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """The text of a page, and its headers."""

    text: bytes
    headers: Mapping[str, str]


def page(content: PageContent) -> Page:
    """Return the page of a state."""
    here = readings(content.state)
    return Page(
        node=content.place.node, about=_about(here), at=moment(content.at, content.at),
        verdict=verdict(content), notices=tuple(notices(content)), findings=cards(content, apart=False),
        apart=cards(content, apart=True), sections=tuple(_sections(content, here)),
        version=__version__, source=content.state.source,
    )  # fmt: skip


def choice(refresh: str) -> str:
    """Return the `refresh` of the URL; the default for any unknown one."""
    return refresh if refresh in CHOICES else DEFAULT


def render(page: Page, refresh: str) -> RenderedPage:
    """Return the page as HTML; `refresh` as in `choice`."""
    chosen, icon = choice(refresh), _favicon(page.verdict.health)
    text = environment().get_template("page.html").render(
        page=page, choices=CHOICES, chosen=chosen, icons=ICONS, favicon=icon
    )  # fmt: skip
    headers = _headers("page.css", "no-store")
    # A header and not a tag of the page: a page that was saved for a ticket stays as it was.
    more = {} if chosen == "off" else {"refresh": chosen}
    return RenderedPage(text.encode(errors="replace"), {**headers, **more})


@cache
def runbook() -> RenderedPage:
    """Return the runbook as a page."""
    told = _runbook()
    # Relative, so that it holds where an agent is reached below a path.
    text = environment().get_template("runbook.html").render(
        title=told["title"], body=told["body"], status="../",
        style=_style("runbook.css"), version=__version__,
    )  # fmt: skip
    return RenderedPage(text.encode(), _headers("runbook.css", "max-age=300"))


def moved(path: str) -> str | None:
    """Return the address, from this path below docs, of what 0.2 served there; None for nothing.

    Each alert had a page of its own in the folder runbooks, and that folder an index.
    """
    if not path:
        return NAME_OF_RUNBOOK
    folder, _, name = path.rpartition("/")
    headings = {"README.md": "alerts"} | {f"{one}.md": at for one, at in _runbook()["alerts"].items()}
    return f"../{NAME_OF_RUNBOOK}#{headings[name]}" if folder == "runbooks" and name in headings else None


def ticked(text: str) -> Markup:
    """Return a text, escaped, with the parts between two backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup().join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def _about(here: Readings) -> str:
    for one in here.series.get("node_info", ()):
        driver = one.labels["driver"]
        return f"{one.labels['gpus']} x {one.labels['product']}" + (f", driver {driver}" if driver else "")
    return ""


def _sections(content: PageContent, here: Readings) -> Iterator[Section]:
    found = hardware.gpus_of(content, here)
    why = probes.nothing(content, here)
    yield hardware.gpus_section(content, here, found)
    yield from jobs.sections(content)
    yield probes.matrix_section(content, why)
    yield probes.hosts_section(content, why)
    yield probes.probes_section(content, why)
    yield probes.slow_section(content, here, found, why)
    yield hardware.ports_section(here)
    yield hardware.paths(here, found)
    yield _topology(content, here)
    yield _drift(content.drift, here)
    yield _collectors(here)


def _topology(content: PageContent, here: Readings) -> Section:
    drawing = draw(content, here)
    one = here.collectors.get("topology")
    lines = []
    if one is None or not one.success:
        lines.append(Sentence(f"Not known now: {here.why('topology')}.", "unknown"))
    if drawing is None and not lines:
        lines.append(Sentence("There is neither a GPU nor an RDMA NIC to draw.", "quiet"))
    if drawing is not None and one is not None:
        at = moment(one.last_success, content.at)
        text = "Above the GPUs: NVLink links up, of those expected. Below the NICs: Gb/s of each port."
        lines.append(Sentence("Where each part is connected, as it was read", "quiet", at=at))
        lines.append(Sentence(text, "quiet"))
    return Section("topology", "Topology", tuple(lines), drawing=drawing)


def _collectors(here: Readings) -> Section:
    every = list(here.collectors.values())
    if not every:
        none = Sentence("All are switched off: nothing is watched.", "bad")
        return Section("collectors", "Collectors", (none,))
    bad = sum(not one.success for one in every)
    line = Sentence("All of them succeeded in their last run.")
    if bad:
        of = f"{bad} of {count(len(every), 'collector')} {'has' if bad == 1 else 'have'}"
        line = Sentence(f"{of} no current data.", "unknown")
    columns = (
        Column("Collector"), Column("State"), Column("Finds"), Column("Last success"),
        Column("Took", "ms", number=True), Column("Failures", number=True),
    )  # fmt: skip
    rows = [(Cell(one.collector), _collector(one, here.at)) for one in every]
    made = table("collector-table", "Collectors: state, age and cost", columns, rows)
    return Section("collectors", "Collectors", (line,), (made,))


def _collector(one: CollectorState, at: float) -> Iterator[Cell]:
    yield _state(one, at)
    if one.health is None:
        yield Cell("nothing to watch on this node", "quiet")
    elif one.health == "unknown" and not one.last_success:
        yield unknown(one.error or tables.NOT_YET)
    else:
        yield Cell(one.health.upper(), tables.TONES[one.health])
    if one.last_success:
        last = moment(one.last_success, at)
        yield Cell(last.ago, "" if one.success else "unknown", note=last.text)
        yield number(f"{one.duration_seconds * 1e3:,.1f}")
    else:
        yield Cell("never", "unknown")
        yield unknown(one.error or tables.NOT_YET)
    yield number(plain(one.failures), "warn" if one.failures else "quiet")


def _state(one: CollectorState, at: float) -> Cell:
    if one.overdue_since is not None:
        since = moment(one.overdue_since, at)
        return Cell("stale: overdue", "bad", note=f"no answer since {since.text}, {since.ago}", strong=True)
    if one.error is not None:
        return Cell("stale: cannot read", "unknown", note=one.error, strong=True)
    return Cell("answers", "good") if one.success else Cell("first run not ended", "unknown")


def _drift(document: DriftDocument, here: Readings) -> Section:
    unread, accepted = document.unknown, document.baseline.accepted if document.baseline else []
    said = [f"{one.text} ({one.by}, {moment(one.at, document.at).text}: {one.why})" for one in accepted]
    details = (
        Details(f"{title} ({len(texts)})", tuple(map(Point, texts)))
        for title, texts in (("Not read now, so not compared", unread), ("Accepted since", said))
        if texts
    )
    changed = (_changes(document),) if document.changes else ()
    lines = tuple(_drift_lines(document, here))
    return Section("drift", "What changed since the baseline", lines, changed, tuple(details))


def _drift_lines(document: DriftDocument, here: Readings) -> Iterator[Sentence]:
    one = here.collectors.get(NAME)
    if one is None or not one.success:
        yield Sentence(f"Not known now: {here.why(NAME)}.", "unknown")
    if document.baseline is None:
        why = document.learning or "the topology has not been read"
        line = f"There is no baseline yet: {why}. The agent learns it while nothing is wrong."
        yield Sentence(line, "quiet")
        return
    yield _baseline(document.baseline, document.at)
    if document.changes:
        line = f"{count(len(document.changes), 'change')} not accepted yet. To accept one:"
        yield Sentence(line, "", ACCEPT)
    elif one is not None and one.success:
        yield Sentence("Nothing has changed.", "good")


def _baseline(one: BaselineDocument, at: float) -> Sentence:
    parts = f"{count(one.gpus, 'GPU')}, {count(one.nics, 'NIC')}{f', shape {one.shape}' if one.shape else ''}"
    said = f"{one.origin} by {one.by} ({one.why})"
    return Sentence(f"Baseline: {parts}; {said},", "quiet", at=moment(one.at, at))


def _changes(document: DriftDocument) -> Table:
    ranked = sorted(document.changes, key=lambda one: WORST.index(one.health))
    rows = [(Cell(one.id), _change(one, document.at)) for one in ranked]
    columns = [Column(text) for text in ("ID", "How bad", "What", "Since", "Do")]
    return table("drift-table", "Changes that are not accepted", columns, rows)


def _change(one: UnacceptedChange, at: float) -> tuple[Cell, ...]:
    bad = Cell(one.health.upper(), tables.TONES[one.health], strong=True)
    word = Cell("information", "quiet") if one.health == "ok" else bad
    return word, Cell(one.text, note=one.kind), when(one.since, at), Cell(one.action)


@cache
def environment() -> Environment:
    """Return the environment of this room's templates."""
    made = Environment(
        loader=PackageLoader("wirewatch.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters["ticked"] = ticked
    return made


@cache
def _style(name: str) -> str:
    return environment().get_template(name).render()


@cache
def _headers(style: str, caching: str) -> Mapping[str, str]:
    """Return the headers of a page: its policy allows this style, by its hash, and images in it."""
    digest = base64.b64encode(hashlib.sha256(_style(style).encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "content-type": "text/html; charset=utf-8", "cache-control": caching,
        "content-security-policy": policy, "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }  # fmt: skip


@cache
def _favicon(health: Health) -> str:
    shape, sign, colour, ink = ICONS[health]
    drawn = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">'
        f'<path d="{shape}" fill="{colour}"/>'
        f'<path d="{sign}" fill="none" stroke="{ink}" stroke-width="2.4"/></svg>'
    )
    return f"data:image/svg+xml,{quote(drawn)}"


@cache
def _runbook() -> Mapping[str, Any]:
    told: dict[str, Any] = json.loads(files(__package__).joinpath(FILE).read_text("utf-8"))
    return told
