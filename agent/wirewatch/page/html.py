"""The whole page of a state: its sections in their order, what has drifted, and the HTML of it all."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from wirewatch import __version__
from wirewatch.documents.drift import BaselineDocument, DriftDocument, UnacceptedChange
from wirewatch.documents.health import Health
from wirewatch.documents.state import CollectorState, HintKind, ReportedHint
from wirewatch.page import hardware, probes
from wirewatch.page.content import PageContent
from wirewatch.page.drawing import draw
from wirewatch.page.findings import cards, notices, verdict
from wirewatch.page.hangs import hangs_section, hung
from wirewatch.page.jobs import jobs_section, tapped
from wirewatch.page.model import Cell, Choice, Column, Details, Page, Point, Section, Sentence, Table
from wirewatch.page.tables import (
    NOT_YET,
    TONES,
    GpuName,
    Readings,
    cell,
    count,
    moment,
    number,
    plain,
    readings,
    table,
    unknown,
)
from wirewatch.verdict.drift.component import NAME

ACCEPT = 'wirewatch topology accept ID --why "..."'
WORST: Sequence[Health] = ("failed", "unknown", "degraded", "ok")
CHOICES: Mapping[str, str] = {"5": "5 s", "15": "15 s", "60": "1 min", "off": "paused"}
"""How often the page reloads itself, by the `refresh` of the URL."""
DEFAULT = "15"
"""The poll interval of the collectors of GPUs, links and ports."""
ICONS: Mapping[Health, tuple[str, str]] = {
    "ok": ("M12 1.5a10.5 10.5 0 1 0 0 21a10.5 10.5 0 0 0 0-21z", "M6.8 12.4l3.5 3.6 6.9-7.6"),
    "degraded": ("M12 2L23 21.5H1z", "M12 9v6.2M12 18.2v.3"),
    "unknown": (
        "M12 1.2L22.8 12 12 22.8 1.2 12z",
        "M9 9.6a3 3 0 1 1 4.4 2.7c-1 .6-1.4 1.1-1.4 2.2M12 17.2v.3",
    ),
    "failed": ("M7.6 1.5h8.8l6.1 6.1v8.8l-6.1 6.1H7.6l-6.1-6.1V7.6z", "M8 8l8 8M16 8l-8 8"),
}
"""A shape for each health, and the sign in it: they differ without colour, too."""
HINTS: Mapping[HintKind, str] = {
    "slow_gpu": "may be slow", "uneven_work": "has more work", "slower_collectives": "collectives slower",
    "late_gpu": "is late", "slow_wire": "wire may be slow",
}  # fmt: skip
COLOURS: Mapping[Health, str] = {
    "ok": "#1a6e3c", "degraded": "#e0a100", "unknown": "#5b4fa2", "failed": "#b3261e",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """The text of the page, and its headers."""

    text: bytes
    headers: Mapping[str, str]


def page(content: PageContent) -> Page:
    """The page of a state."""
    here = readings(content.state)
    found = hardware.gpus_of(content, here)
    return Page(
        node=content.place.node, about=_about(here), at=moment(content.at, content.at),
        verdict=verdict(content), notices=notices(content), findings=cards(content, apart=False),
        apart=cards(content, apart=True), sections=tuple(_sections(content, here, found)),
        version=__version__, source=content.state.source,
    )  # fmt: skip


def collectors_section(here: Readings) -> Section:
    """Each collector with its state, the age of its numbers and its cost."""
    every = list(here.collectors.values())
    if not every:
        return Section(
            "collectors", "Collectors", (Sentence("All are switched off: nothing is watched.", "bad"),)
        )
    bad = [one for one in every if not one.success]
    verb = "has" if len(bad) == 1 else "have"
    line = (
        Sentence(f"{len(bad)} of {count(len(every), 'collector')} {verb} no current data.", "unknown")
        if bad
        else Sentence("All of them succeeded in their last run.")
    )
    columns = (
        Column("State"), Column("Finds"), Column("Last success"), Column("Took", "ms", number=True),
        Column("Failures", number=True),
    )  # fmt: skip
    rows = [(cell(one.collector), tuple(_row(one, here.at))) for one in every]
    made = table("collector-table", "Collectors: state, age and cost", (Column("Collector"), *columns), rows)
    return Section("collectors", "Collectors", (line,), (made,))


def hints_section(content: PageContent) -> Section:
    """What running jobs show without being measured."""
    line = Sentence(
        "By how running jobs behave; no verdict. What may be slow brings the next probe forward.", "quiet"
    )
    rows = [
        (
            cell(HINTS[one.kind]),
            (
                cell(_whose(one)),
                cell(one.text),
                cell((since := moment(one.since, content.at)).text, note=since.ago),
            ),
        )
        for one in content.state.hints
    ]
    columns = (Column("Hint"), Column("Of"), Column("What shows it"), Column("Since"))
    return Section(
        "hints", "Hints from running jobs", (line,), (table("hint-table", "Hints", columns, rows),)
    )


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


def choice(refresh: str) -> str:
    """The `refresh` of the URL; the default for any unknown one."""
    return refresh if refresh in CHOICES else DEFAULT


def render(page: Page, refresh: str) -> RenderedPage:
    """The page as HTML; `refresh` as in `choice`."""
    chosen = choice(refresh)
    choices = [Choice(text, f"?refresh={key}", key == chosen) for key, text in CHOICES.items()]
    icon = _favicon(page.verdict.health)
    text = _template().render(page=page, choices=choices, icons=ICONS, favicon=icon)
    return RenderedPage(text.encode(errors="replace"), _headers(chosen))


def ticked(text: str) -> Markup:
    """A text, escaped, with the parts between two backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup().join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def _about(here: Readings) -> str:
    """Product and driver of the node, as far as they are known."""
    for one in here.series.get("node_info", ()):
        driver = one.labels["driver"]
        words = (f"{one.labels['gpus']} x {one.labels['product']}", f"driver {driver}" if driver else "")
        return ", ".join(word for word in words if word)
    return ""


def _sections(content: PageContent, here: Readings, found: tuple[GpuName, ...]) -> Iterator[Section]:
    why = probes.nothing(content, here)
    last = content.probes.last
    yield hardware.gpus_section(content, here, found)
    if content.state.hints:
        yield hints_section(content)
    if content.jobs is not None and tapped(content.jobs):
        yield jobs_section(content.jobs)
    if content.hangs is not None and hung(content.hangs):
        yield hangs_section(content.hangs, content.at)
    yield probes.matrix_section(
        last, None if last is None else moment(last.at, content.at), why, fresh=content.probes.fresh
    )
    yield probes.probes_section(content, here)
    yield probes.slow_section(content, here, found, why)
    yield hardware.ports_section(here)
    yield hardware.paths(here, found)
    yield _topology(content, here)
    yield drift_section(content.drift, here)
    yield collectors_section(here)


def _whose(hint: ReportedHint) -> str:
    return f"GPU {hint.subject['gpu']}" if "gpu" in hint.subject else hint.subject.get("uuid", "the node")


def _topology(content: PageContent, here: Readings) -> Section:
    drawing = draw(content, here)
    one = here.collectors.get("topology")
    lines = []
    if one is None or not one.success:
        lines.append(Sentence(f"Not known now: {here.why('topology')}.", "unknown"))
    if drawing is None and not lines:
        lines.append(Sentence("There is neither a GPU nor an RDMA NIC to draw.", "quiet"))
    if drawing is not None and one is not None and one.last_success:
        lines.append(
            Sentence(
                "Where each part is connected, as it was read",
                "quiet",
                at=moment(one.last_success, content.at),
            )
        )
        lines.append(
            Sentence(
                "Above the GPUs: NVLink links up, of those expected. Below the NICs: Gb/s of each port.",
                "quiet",
            )
        )
    return Section("topology", "Topology", tuple(lines), drawing=drawing)


def _row(one: CollectorState, at: float) -> Iterator[Cell]:
    yield _state(one, at)
    if one.health is None:
        yield cell("nothing to watch on this node", "quiet")
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
        return Cell("first run not ended", "unknown")
    return Cell("answers", "good")


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


def _headers(chosen: str) -> Mapping[str, str]:
    headers = {
        "content-type": "text/html; charset=utf-8", "cache-control": "no-store",
        "content-security-policy": _policy(), "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }  # fmt: skip
    # A header and not a tag of the page: a page that was saved for a ticket stays as it was.
    return headers if chosen == "off" else {**headers, "refresh": chosen}


@cache
def environment() -> Environment:
    """Of the templates of this room."""
    made = Environment(
        loader=PackageLoader("wirewatch.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters["ticked"] = ticked
    return made


@cache
def _template() -> Template:
    return environment().get_template("page.html")


@cache
def _style() -> str:
    return environment().get_template("page.css").render()


@cache
def _policy() -> str:
    """The Content-Security-Policy: only this style, by its hash, and the icon in the page."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


@cache
def _favicon(health: Health) -> str:
    shape, sign = ICONS[health]
    ink = "#1c1500" if health == "degraded" else "#fff"
    drawn = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">'
        f'<path d="{shape}" fill="{COLOURS[health]}"/>'
        f'<path d="{sign}" fill="none" stroke="{ink}" stroke-width="2.4"/></svg>'
    )
    return f"data:image/svg+xml,{quote(drawn)}"
