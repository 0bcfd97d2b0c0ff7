"""The drawing of the topology: GPUs, NICs and links, each with its state, and the same in sentences. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from wirewatch.core.hostlist import natural
from wirewatch.core.pci import Place
from wirewatch.core.statistics import grouped
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER, GpuPart, NicPart, Topology
from wirewatch.core.words import GBIT, count
from wirewatch.documents.health import Health
from wirewatch.page.content import PageContent
from wirewatch.page.hardware import blind, up_and_expected
from wirewatch.page.model import Box, Drawing, DrawnWire, Style
from wirewatch.page.tables import GpuName, Readings, plain

STYLES: Mapping[Health, Style] = {"ok": "plain", "degraded": "warn", "unknown": "unknown", "failed": "bad"}
PCIE = "pcie"
NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""PCI paths, the nearest first."""


@dataclass(frozen=True, slots=True)
class Links:
    """Links of a GPU to one peer: how many are up, how many should be (None: not known), which are down.

    `unread`: they could not be read, so `up` means nothing.
    """

    peer: str
    up: int
    expected: int | None
    down: tuple[str, ...] = ()
    unread: bool = False

    @property
    def short(self) -> bool:
        return not self.unread and self.expected is not None and self.up < self.expected


@dataclass(frozen=True, slots=True)
class PciGroup:
    """The GPUs and NICs below one root port, or else below one root. `bridge`: "" for none."""

    numa: int | None
    root: str
    bridge: str
    gpus: tuple[GpuPart, ...]
    nics: tuple[NicPart, ...]


@dataclass(frozen=True, slots=True)
class DrawingState:
    """The state of each part, by UUID or device; `pcie`: only parts whose PCIe link has a finding.

    `ports` of a NIC: their rates in words, or the state of the worst.
    """

    gpus: Mapping[str, Style]
    nics: Mapping[str, Style]
    links: Mapping[str, tuple[Links, ...]]
    nearest: Mapping[str, tuple[str, str]]
    ports: Mapping[str, tuple[str, Style]]
    pcie: Mapping[str, Style]


COLUMN, BOX, MARGIN, GAP = 100.0, 84.0, 16.0, 20.0
"""Widths: of a column, of a part in it, around a frame, between frames."""
SWITCH_Y, SWITCH_HEIGHT, LINKS_HEIGHT = 8.0, 34.0, 62.0
PART_HEIGHT, PCI_GAP, BRIDGE_HEIGHT, PORT_HEIGHT, FRAME_FOOT = 50.0, 30.0, 26.0, 46.0, 30.0
NAME_LETTERS, NOTE_LETTERS = 9, 13
"""Letters that a part has room for."""
ARCS_SHOWN = 8
"""Most curves between GPUs for which the numbers of links are shown."""


class _Layout:
    """Places from left to right; the heights of the rows are known before."""

    def __init__(self, graph: Topology, state: DrawingState) -> None:
        self._graph, self._state, self._groups = graph, state, groups(graph)
        self._switched = any(one.peer == SWITCH for links in state.links.values() for one in links)
        arcs = any(one.peer != SWITCH for links in state.links.values() for one in links)
        switch = SWITCH_Y + SWITCH_HEIGHT if self._switched else 0.0
        self._gpu_y = switch + (LINKS_HEIGHT if arcs or self._switched else 0.0) + MARGIN + GAP
        self._bridge_y = self._gpu_y + PART_HEIGHT + PCI_GAP
        self._nic_y = self._bridge_y + BRIDGE_HEIGHT + PCI_GAP
        self._bridged = bool(graph.nics) or any(group.bridge for group in self._groups)
        self._centers: dict[str, float] = {}
        self._boxes, self._frames = list[Box](), list[Box]()
        self._wires: list[DrawnWire] = []

    def drawing(self) -> Drawing:
        width = self._place()
        if self._switched:
            self._boxes.append(Box(MARGIN, SWITCH_Y, width - 2 * MARGIN, SWITCH_HEIGHT, "NVLink switches"))
        self._wires += [*self._switch_wires(), *self._peer_wires()]
        gpus, nics = len(self._graph.gpus), len(self._graph.nics)
        title = f"{count(gpus, 'GPU')} and {count(nics, 'NIC')}, with the NVLink and PCIe between them"
        return Drawing(
            title, width, self._bottom() + 6, tuple(self._frames), tuple(self._wires), tuple(self._boxes),
            tuple(words(self._graph, self._state)),
        )  # fmt: skip

    def _bottom(self) -> float:
        last = self._bridge_y + BRIDGE_HEIGHT if self._bridged else self._gpu_y + PART_HEIGHT
        return (self._nic_y + PART_HEIGHT + PORT_HEIGHT if self._graph.nics else last) + FRAME_FOOT

    def _place(self) -> float:
        """Frames with all that is in them; returns the width of the whole."""
        x = 4.0
        for numa in dict.fromkeys(group.numa for group in self._groups):
            start, x = x, x + MARGIN / 2
            for group in (one for one in self._groups if one.numa == numa):
                x = self._group(group, x)
            x += MARGIN / 2
            name = "NUMA not known" if numa is None else f"NUMA {numa}"
            top = self._gpu_y - GAP
            self._frames.append(Box(start, top, x - start, self._bottom() - top, name))
            x += GAP
        return max(x - GAP + 4.0, 240.0)

    def _group(self, group: PciGroup, x: float) -> float:
        width = max(len(group.gpus), len(group.nics)) * COLUMN
        if self._bridged:
            place = (x + MARGIN / 2, self._bridge_y, width - MARGIN, BRIDGE_HEIGHT)
            self._boxes.append(Box(*place, _bridge(group), style="quiet"))
        for n, gpu in enumerate(group.gpus):
            self._gpu(gpu, x + (n + 0.5) * width / len(group.gpus))
        for n, nic in enumerate(group.nics):
            self._nic(nic, x + (n + 0.5) * width / len(group.nics))
        return x + width

    def _gpu(self, gpu: GpuPart, x: float) -> None:
        self._centers[gpu.uuid] = x
        style, address = self._state.gpus.get(gpu.uuid, "plain"), gpu.place.address.removeprefix("0000:")
        self._boxes.append(_part(x, self._gpu_y, f"GPU {gpu.index}", address, style))
        if self._bridged:
            self._pcie(gpu.uuid, x, self._gpu_y + PART_HEIGHT, self._bridge_y)

    def _nic(self, nic: NicPart, x: float) -> None:
        style = self._state.nics.get(nic.device, "plain")
        layers = ", ".join(dict.fromkeys(layer for _, layer in nic.ports if layer)) or "no port"
        self._boxes.append(_part(x, self._nic_y, nic.device, layers, style))
        self._pcie(nic.device, x, self._bridge_y + BRIDGE_HEIGHT, self._nic_y)
        if nic.device in self._state.ports:
            top = self._nic_y + PART_HEIGHT
            self._wires.append(_upright(x, top, top + PORT_HEIGHT, *self._state.ports[nic.device]))

    def _pcie(self, part: str, x: float, top: float, bottom: float) -> None:
        self._wires.append(_upright(x, top, bottom, "", self._state.pcie.get(part, "quiet")))

    def _switch_wires(self) -> Iterator[DrawnWire]:
        bottom = SWITCH_Y + SWITCH_HEIGHT
        for uuid, links in self._state.links.items():
            for one in (one for one in links if one.peer == SWITCH):
                yield _upright(self._centers[uuid], self._gpu_y, bottom, _number(one), _style(one))

    def _peer_wires(self) -> Iterator[DrawnWire]:
        pairs = list(_pairs(self._graph.gpus, self._state.links))
        for source, to, links in pairs:
            x1, x2 = self._centers[source.uuid], self._centers[to.uuid]
            text = _number(links) if len(pairs) <= ARCS_SHOWN or links.short else ""
            # The curve comes half as high as it is bent.
            bend = min(2 * LINKS_HEIGHT - 16, 36 + abs(x2 - x1) / 8)
            yield DrawnWire(x1, self._gpu_y, x2, self._gpu_y, text, _style(links), bend=bend)
        for uuid, every in self._state.links.items():
            for one in every:
                if one.peer != SWITCH and one.peer not in self._centers:
                    x, y = self._centers[uuid], self._gpu_y
                    yield DrawnWire(x, y, x, y - LINKS_HEIGHT / 2, f"{_number(one)} ?", _style(one))


def groups(graph: Topology) -> tuple[PciGroup, ...]:
    """Return the groups of a graph by NUMA node: groups with GPUs first, in the order of their GPUs."""
    keys = sorted({_key(one.place) for one in graph.gpus} | {_key(one.place) for one in graph.nics})
    made = []
    for key in keys:
        gpus = sorted((one for one in graph.gpus if _key(one.place) == key), key=lambda one: one.index)
        here = (one for one in graph.nics if _key(one.place) == key)
        nics = sorted(here, key=lambda one: natural(one.device))
        made.append(PciGroup(None if key[0] < 0 else key[0], key[1], key[2], tuple(gpus), tuple(nics)))
    return tuple(sorted(made, key=_rank))


def drawing_state(content: PageContent, graph: Topology, here: Readings) -> DrawingState:
    findings = content.health.findings
    gpus: dict[str, Style] = dict.fromkeys((one.uuid for one in graph.gpus if blind(here)), "unknown")
    reader = here.collectors.get("infiniband")
    unread = graph.nics if reader is not None and not reader.success else ()
    nics: dict[str, Style] = dict.fromkeys((one.device for one in unread), "unknown")
    pcie: dict[str, Style] = {}
    for one in reversed(findings):
        part, style = one.subject, STYLES[one.health]
        for gpu in graph.gpus:
            if (part.get("uuid") == gpu.uuid) if part.get("uuid") else (part.get("gpu") == str(gpu.index)):
                gpus[gpu.uuid] = style
                if one.rule.startswith(f"{PCIE}."):
                    pcie[gpu.uuid] = style
        if part.get("device"):
            nics[part["device"]] = style
            if one.rule.endswith(f".{PCIE}"):
                pcie[part["device"]] = style
    links = {gpu.uuid: _links(content, graph, here, gpu) for gpu in graph.gpus}
    near = {gpu.uuid: nearest(graph, gpu.uuid) for gpu in graph.gpus}
    ports = {nic.device: _port(here, nic) for nic in graph.nics if nic.ports}
    return DrawingState(gpus, nics, links, near, ports, pcie)


def nearest(graph: Topology, uuid: str) -> tuple[str, str]:
    """The path to the nearest NICs of a GPU, and their names; empty where no path is known."""
    found = grouped((one.path, one.device) for one in graph.paths if one.uuid == uuid)
    path = next((one for one in NEAR if one in found), "")
    return path, ", ".join(sorted(found[path], key=natural)) if path else ""


def draw(content: PageContent, here: Readings) -> Drawing | None:
    """The drawing; None while there is no graph, or nothing in it."""
    graph = content.topology
    if graph is None or not (graph.gpus or graph.nics):
        return None
    return _Layout(graph, drawing_state(content, graph, here)).drawing()


def words(graph: Topology, state: DrawingState) -> Iterator[str]:
    """The same in sentences, one for each GPU and each NIC."""
    names = {gpu.uuid: f"GPU {gpu.index}" for gpu in graph.gpus} | {SWITCH: "the switch"}
    for gpu in sorted(graph.gpus, key=lambda one: one.index):
        links = [_drawn_links(one, names) for one in state.links[gpu.uuid]]
        path, near = state.nearest[gpu.uuid]
        closest = f"nearest NIC {near} ({path})" if near else "no NIC with a known path"
        yield f"GPU {gpu.index}, {_where(gpu.place)}: {'; '.join(links) or 'no NVLink'}; {closest}."
    for nic in graph.nics:
        layers = ", ".join(f"port {port} {layer}".rstrip() for port, layer in nic.ports) or "no port"
        wire = _port_text(state.ports.get(nic.device))
        yield f"{nic.device}, {_where(nic.place)}: {layers}{wire}."


def _where(place: Place) -> str:
    numa = "NUMA node not known" if place.numa is None else f"NUMA node {place.numa}"
    return f"{place.address or 'PCI address not known'}, {numa}"


def _key(place: Place) -> tuple[int, str, str]:
    numa = -1 if place.numa is None else place.numa
    return numa, place.root, place.bridges[0] if place.bridges else ""


def _rank(group: PciGroup) -> tuple[int, bool, int, str, str]:
    numa = 1 << 30 if group.numa is None else group.numa
    return numa, not group.gpus, min((one.index for one in group.gpus), default=0), group.root, group.bridge


def _port(here: Readings, nic: NicPart) -> tuple[str, Style]:
    parts = [{"device": nic.device, "port": number} for number, _ in nic.ports]
    states = [here.state("rdma_port_state", part) for part in parts]
    rates = [here.value("rdma_port_rate_bytes_per_second", part) for part in parts]
    if None in states:
        return "?", "unknown"
    wrong = [state for state in states if state != "active"]
    if wrong:
        return wrong[0] or "not up", "bad"
    return " + ".join("?" if rate is None else plain(rate / GBIT) for rate in rates), "good"


def _links(content: PageContent, graph: Topology, here: Readings, gpu: GpuPart) -> tuple[Links, ...]:
    """Return links by peer from the graph; for a GPU with one peer, the newer numbers of its links."""
    mine = [wires for wires in graph.nvlink if wires.uuid == gpu.uuid]
    up, expected = up_and_expected(here, GpuName(str(gpu.index), gpu.uuid))
    watched = "nvlink" in here.collectors and here.applies("nvlink")
    unread = gpu.uuid in graph.unread or (watched and up is None and bool(mine or expected))
    found = (one.subject for one in content.health.findings if ".link_down" in one.rule)
    down = tuple(one["link"] for one in found if one.get("uuid") == gpu.uuid and one.get("link"))
    if len(mine) == 1:
        counted = len(mine[0].links) if up is None else up
        return (Links(mine[0].peer, counted, expected, down, unread),)
    if mine:
        return tuple(Links(wires.peer, len(wires.links), None, (), unread) for wires in mine)
    if expected or unread:
        # A GPU that has no link now has the peer of the other GPUs.
        usual = SWITCH if any(wires.peer == SWITCH for wires in graph.nvlink) else UNKNOWN_PEER
        return (Links(usual, up or 0, expected, down, unread),)
    return ()


def _pairs(
    gpus: Sequence[GpuPart], links: Mapping[str, Sequence[Links]]
) -> Iterator[tuple[GpuPart, GpuPart, Links]]:
    """Yield pairs of GPUs with links between them; of the two ends, the end with fewer links up."""
    for one, other in combinations(gpus, 2):
        ways = ((one, other), (other, one))
        found = [link for a, b in ways for link in links[a.uuid] if link.peer == b.uuid]
        if found:
            yield one, other, min(found, key=lambda link: link.up)


def _upright(x: float, top: float, bottom: float, text: str, style: Style) -> DrawnWire:
    return DrawnWire(x, top, x, bottom, text, style, broken=style == "bad")


def _part(center: float, y: float, text: str, note: str, style: Style) -> Box:
    name, below = _fit(text, NAME_LETTERS), _fit(note, NOTE_LETTERS)
    return Box(center - BOX / 2, y, BOX, PART_HEIGHT, name, below, style)


def _fit(text: str, letters: int) -> str:
    """Return the part of a name that fits into a box; the whole name is in the words."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _bridge(group: PciGroup) -> str:
    if not group.root:
        return "PCI not known"
    return "PCIe switch" if group.bridge and len(group.gpus) + len(group.nics) > 1 else "PCIe"


def _style(links: Links) -> Style:
    if links.unread:
        return "unknown"
    if links.expected is None:
        return "plain"
    return "bad" if links.short else "good"


def _number(links: Links) -> str:
    if links.unread:
        return "?"
    return f"{links.up}" if links.expected is None else f"{links.up}/{links.expected}"


def _port_text(wire: tuple[str, Style] | None) -> str:
    if wire is None:
        return ""
    texts: dict[Style, str] = {"good": f", {wire[0]} Gb/s", "bad": f", {wire[0]}"}
    return texts.get(wire[1], ", state not known")


def _drawn_links(one: Links, names: Mapping[str, str]) -> str:
    peer = names.get(one.peer, "an unknown peer")
    if one.unread:
        return f"NVLink to {peer} could not be read"
    total = "" if one.expected is None else f" of {one.expected}"
    down = f", link {', '.join(one.down)} down" if one.down else ""
    return f"{one.up}{total} NVLink links up to {peer}{down}"
