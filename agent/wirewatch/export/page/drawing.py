"""The node drawn: a layout of our own for a small fixed structure, by NUMA node.

NVLink switch
GPU 0   GPU 1 ...
PCIe switch
mlx5_0  mlx5_1 ...
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from wirewatch.core.topology import SWITCH, GpuPart, NicPart, Topology
from wirewatch.export.page.parts import Group, Known, Links, PortWire, groups, indexes, known
from wirewatch.export.page.readings import Readings
from wirewatch.export.page.shapes import Box, Drawing, Frame, Look, Wire
from wirewatch.export.page.told import Told
from wirewatch.export.page.words import count

COLUMN, BOX, MARGIN, GAP = 100.0, 84.0, 16.0, 20.0
"""Widths: of a column, of a part in it, around a frame, between frames."""
SWITCH_Y, SWITCH_HEIGHT, LINKS_HEIGHT = 8.0, 34.0, 62.0
PART_HEIGHT, PCI_GAP, BRIDGE_HEIGHT, PORT_HEIGHT, FRAME_FOOT = 50.0, 30.0, 26.0, 46.0, 30.0
NAME_LETTERS, NOTE_LETTERS = 9, 13
"""Letters that a part has room for."""
ARCS_SHOWN = 8
"""So many curves between GPUs at most have their number of links beside them."""


def draw(told: Told, here: Readings) -> Drawing | None:
    """The drawing; None while there is no graph, or nothing in it."""
    graph = told.topology
    if graph is None or not (graph.gpus or graph.nics):
        return None
    state = known(told, graph, here)
    return _Layout(graph, state).drawing()


class _Layout:
    """Places from left to right; the heights of the rows are known before."""

    def __init__(self, graph: Topology, state: Known) -> None:
        self._graph = graph
        self._state = state
        self._groups = groups(graph)
        self._switched = any(one.peer == SWITCH for links in state.links.values() for one in links)
        arcs = any(one.peer != SWITCH for links in state.links.values() for one in links)
        above = (SWITCH_Y + SWITCH_HEIGHT if self._switched else 0.0) + (
            LINKS_HEIGHT if arcs or self._switched else 0.0
        )
        self._gpu_y = above + MARGIN + GAP
        self._bridge_y = self._gpu_y + PART_HEIGHT + PCI_GAP
        self._nic_y = self._bridge_y + BRIDGE_HEIGHT + PCI_GAP
        self._bridged = bool(graph.nics) or any(group.bridge for group in self._groups)
        self._centers: dict[str, float] = {}
        self._boxes: list[Box] = []
        self._wires: list[Wire] = []
        self._frames: list[Frame] = []

    def drawing(self) -> Drawing:
        width = self._place()
        if self._switched:
            self._boxes.append(Box(MARGIN, SWITCH_Y, width - 2 * MARGIN, SWITCH_HEIGHT, "NVLink switches"))
        self._wires += [*self._up(), *self._arcs()]
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
            name = "NUMA not told" if numa is None else f"NUMA {numa}"
            top = self._gpu_y - GAP
            self._frames.append(Frame(start, top, x - start, self._bottom() - top, name))
            x += GAP
        return max(x - GAP + 4.0, 240.0)

    def _group(self, group: Group, x: float) -> float:
        """The GPUs and NICs of a group around its bridge; returns where the next begins."""
        width = max(len(group.gpus), len(group.nics)) * COLUMN
        if self._bridged:
            place = (x + MARGIN / 2, self._bridge_y, width - MARGIN, BRIDGE_HEIGHT)
            self._boxes.append(Box(*place, _bridge(group), look="quiet"))
        for n, gpu in enumerate(group.gpus):
            self._gpu(gpu, x + (n + 0.5) * width / len(group.gpus))
        for n, nic in enumerate(group.nics):
            self._nic(nic, x + (n + 0.5) * width / len(group.nics))
        return x + width

    def _gpu(self, gpu: GpuPart, x: float) -> None:
        self._centers[gpu.uuid] = x
        look = self._state.gpus.get(gpu.uuid, "plain")
        self._boxes.append(_part(x, self._gpu_y, f"GPU {gpu.index}", _short(gpu.place.address), look))
        if self._bridged:
            self._pcie(gpu.uuid, x, self._gpu_y + PART_HEIGHT, self._bridge_y)

    def _nic(self, nic: NicPart, x: float) -> None:
        look = self._state.nics.get(nic.device, "plain")
        layers = ", ".join(dict.fromkeys(layer for _, layer in nic.ports if layer)) or "no port"
        self._boxes.append(_part(x, self._nic_y, nic.device, layers, look))
        self._pcie(nic.device, x, self._bridge_y + BRIDGE_HEIGHT, self._nic_y)
        wire = self._state.ports.get(nic.device)
        if wire is not None:
            top = self._nic_y + PART_HEIGHT
            self._wires.append(
                Wire(x, top, x, top + PORT_HEIGHT, wire.text, wire.look, broken=wire.look == "bad")
            )

    def _pcie(self, part: str, x: float, top: float, bottom: float) -> None:
        look = self._state.pcie.get(part, "quiet")
        self._wires.append(Wire(x, top, x, bottom, look=look, broken=look == "bad"))

    def _up(self) -> Iterator[Wire]:
        """From each GPU up to the switch."""
        for uuid, links in self._state.links.items():
            for one in links:
                if one.peer == SWITCH:
                    x = self._centers[uuid]
                    look = _look(one)
                    yield Wire(
                        x, self._gpu_y, x, SWITCH_Y + SWITCH_HEIGHT, _number(one), look, broken=look == "bad"
                    )

    def _arcs(self) -> Iterator[Wire]:
        """Between two GPUs, or from one to somewhere that is not told."""
        pairs = list(_pairs(self._graph.gpus, self._state.links))
        for source, to, links in pairs:
            x1, x2 = self._centers[source.uuid], self._centers[to.uuid]
            text = _number(links) if len(pairs) <= ARCS_SHOWN or links.short else ""
            # The curve comes half as high as it is bent.
            bend = min(2 * LINKS_HEIGHT - 16, 36 + abs(x2 - x1) / 8)
            yield Wire(x1, self._gpu_y, x2, self._gpu_y, text, _look(links), bend=bend)
        for uuid, every in self._state.links.items():
            for one in every:
                if one.peer != SWITCH and one.peer not in self._centers:
                    x = self._centers[uuid]
                    look = _look(one)
                    yield Wire(x, self._gpu_y, x, self._gpu_y - LINKS_HEIGHT / 2, f"{_number(one)} ?", look)


def _pairs(
    gpus: Sequence[GpuPart], links: Mapping[str, Sequence[Links]]
) -> Iterator[tuple[GpuPart, GpuPart, Links]]:
    """Pairs of GPUs with links between them; of what both ends tell the less."""
    for one, other in combinations(gpus, 2):
        told = [
            link for a, b in ((one, other), (other, one)) for link in links[a.uuid] if link.peer == b.uuid
        ]
        if told:
            yield one, other, min(told, key=lambda link: link.up)


def _part(center: float, y: float, text: str, note: str, look: Look) -> Box:
    return Box(
        center - BOX / 2, y, BOX, PART_HEIGHT, _fit(text, NAME_LETTERS), _fit(note, NOTE_LETTERS), look
    )


def _fit(text: str, letters: int) -> str:
    """So much of a name as a box has room for; all of it is in the words."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _bridge(group: Group) -> str:
    if not group.root:
        return "place not told"
    if len(group.gpus) + len(group.nics) == 1:
        return "PCIe"
    return "PCIe switch" if group.bridge else "PCIe"


def _short(address: str) -> str:
    """A PCI address without its domain where that is 0."""
    return address.removeprefix("0000:")


def _look(links: Links) -> Look:
    if links.unread:
        return "unknown"
    if links.expected is None:
        return "plain"
    return "bad" if links.short else "good"


def _number(links: Links) -> str:
    if links.unread:
        return "?"
    return f"{links.up}" if links.expected is None else f"{links.up}/{links.expected}"


def words(graph: Topology, state: Known) -> Iterator[str]:
    """The same in sentences, one for each GPU and each NIC."""
    names = {uuid: f"GPU {index}" for uuid, index in indexes(graph.gpus).items()} | {SWITCH: "the switch"}
    for gpu in sorted(graph.gpus, key=lambda one: one.index):
        told = [_drawn_links(one, names) for one in state.links[gpu.uuid]]
        path, near = state.nearest[gpu.uuid]
        closest = f"nearest NIC {near} ({path})" if near else "no NIC whose path is told"
        numa = "NUMA node not told" if gpu.place.numa is None else f"NUMA node {gpu.place.numa}"
        place = gpu.place.address or "PCI address not told"
        yield f"GPU {gpu.index}, {place}, {numa}: {'; '.join(told) or 'no NVLink'}; {closest}."
    for nic in graph.nics:
        layers = ", ".join(f"port {port} {layer}".rstrip() for port, layer in nic.ports) or "no port"
        numa = "NUMA node not told" if nic.place.numa is None else f"NUMA node {nic.place.numa}"
        wire = state.ports.get(nic.device)
        yield f"{nic.device}, {nic.place.address or 'PCI address not told'}, {numa}: {layers}{_out(wire)}."


def _out(wire: PortWire | None) -> str:
    if wire is None:
        return ""
    told: dict[Look, str] = {"good": f", {wire.text} Gb/s", "bad": f", {wire.text}"}
    return told.get(wire.look, ", state not known")


def _drawn_links(one: Links, names: Mapping[str, str]) -> str:
    peer = names.get(one.peer, "a peer that is not told")
    if one.unread:
        return f"NVLink to {peer} could not be read"
    total = "" if one.expected is None else f" of {one.expected}"
    down = f", link {', '.join(one.down)} down" if one.down else ""
    return f"{one.up}{total} NVLink links up to {peer}{down}"
