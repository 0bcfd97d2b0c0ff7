"""The whole page of a state: its sections in their order. Pure."""

from collections.abc import Iterator

from wirewatch import __version__
from wirewatch.documents.state import CollectorState
from wirewatch.page import drift, hardware, probes
from wirewatch.page.content import PageContent
from wirewatch.page.drawing import draw
from wirewatch.page.findings import cards, notices, verdict
from wirewatch.page.model import Cell, Column, Page, Section, Sentence
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
    yield probes.matrix_section(
        last, None if last is None else moment(last.at, content.at), why, fresh=content.probes.fresh
    )
    yield probes.probes_section(content, here)
    yield probes.slow_section(content, here, found, why)
    yield hardware.ports_section(here)
    yield hardware.paths(here, found)
    yield _topology(content, here)
    yield drift.drift_section(content.drift, here)
    yield collectors_section(here)


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
