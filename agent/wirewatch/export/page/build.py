"""The page from what is told: a pure function of published state and time."""

from collections.abc import Iterator

from wirewatch import __version__
from wirewatch.export.page import collectors, drift, gpus, matrix, ports, probes, slow
from wirewatch.export.page.drawing import draw
from wirewatch.export.page.findings import cards, notices, verdict
from wirewatch.export.page.model import Line, Page, Section
from wirewatch.export.page.readings import GpuName, Readings, readings
from wirewatch.export.page.told import Told
from wirewatch.export.page.words import moment


def page(told: Told) -> Page:
    here = readings(told.state)
    found = gpus.gpus_of(told, here)
    return Page(
        node=told.place.node, about=_about(here), at=moment(told.at, told.at), verdict=verdict(told),
        notices=notices(told), findings=cards(told, apart=False), apart=cards(told, apart=True),
        sections=tuple(_sections(told, here, found)), version=__version__, source=told.state.source,
    )  # fmt: skip


def _about(here: Readings) -> str:
    """What node this is, as far as it is known."""
    for one in here.series.get("node_info", ()):
        driver = one.labels["driver"]
        words = (f"{one.labels['gpus']} x {one.labels['product']}", f"driver {driver}" if driver else "")
        return ", ".join(word for word in words if word)
    return ""


def _sections(told: Told, here: Readings, found: tuple[GpuName, ...]) -> Iterator[Section]:
    why = probes.nothing(told, here)
    last = told.probes.last
    yield gpus.gpus_section(told, here, found)
    yield matrix.matrix_section(
        last, None if last is None else moment(last.at, told.at), why, fresh=told.probes.fresh
    )
    yield probes.probes_section(told, here)
    yield slow.slow_section(told, here, found, why)
    yield ports.ports_section(here)
    yield ports.paths(here, found)
    yield _topology(told, here)
    yield drift.drift_section(told.drift, here)
    yield collectors.collectors_section(here)


def _topology(told: Told, here: Readings) -> Section:
    drawing = draw(told, here)
    one = here.collectors.get("topology")
    lines = []
    if one is None or not one.success:
        lines.append(Line(f"Not known now: {here.why('topology')}.", "unknown"))
    if drawing is None and not lines:
        lines.append(Line("There is neither a GPU nor an RDMA NIC to draw.", "quiet"))
    if drawing is not None and one is not None and one.last_success:
        lines.append(Line("What hangs where, as it was read", "quiet", at=moment(one.last_success, told.at)))
        lines.append(Line("Above: NVLink links up of those expected. Below: Gb/s of each port.", "quiet"))
    return Section("topology", "Topology", tuple(lines), drawing=drawing)
