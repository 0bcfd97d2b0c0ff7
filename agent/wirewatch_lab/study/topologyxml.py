"""Reads NCCL's view of a machine from XML: NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE or NCCL_GRAPH_DUMP_FILE.

One pass reads it, with bounded size and depth. A document type is refused, so a document can define nothing.
Source of the forms: NCCL 2.10 to 2.30, src/graph/xml.cc, topo.cc, search.cc.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.parsers import expat  # nosec B407

from wirewatch.core.pci import Path, generation, normal_pci
from wirewatch.core.rdma import gigabits
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER
from wirewatch.core.types import DIGITS, Absent, Why, value_or
from wirewatch.core.words import count

# Bandit warns of expat's import. A document type, and with it every entity, is refused: see _refuse.
BYTES = 16 << 20
ELEMENTS = 100_000
DEPTH = 64
"""Limits of a file; the file of a machine with 8 GPUs has 4 KB, 60 elements and a depth of 8."""
NOTES = 20
_GPU_CLASS, _NIC_CLASS, _SWITCH_CLASS = "0x03", "0x02", "0x0680"
_PATTERNS = {
    "1": "balanced tree", "2": "split tree", "3": "tree", "4": "ring", "5": "NVLS", "6": "CollNet direct",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class XmlPlace:
    """A device's place: the bridges above it, each a PCIe switch, and the CPU by its number in the file.

    `uplink`: PCIe generation, lanes and line of the highest bridge, None where not known. `address` is empty
    for a NIC without a PCI device. `numa` is None where the file has -1. `generation` and `lanes` of PCIe are
    None where the file does not state known values. `affinity`: mask of the CPU's processors from the file,
    in words of 32 bits with commas between them, the highest first.
    """

    address: str
    bridges: tuple[str, ...]
    cpu: int
    numa: int | None
    generation: int | None
    lanes: int | None
    affinity: str = ""
    uplink: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class XmlGpu:
    """A GPU. `nvlinks` by peer: the switch, the PCI address of a GPU, or unknown.

    `dev` is NVML's number. None or empty values are not in the file: a file written by hand leaves NCCL to
    detect them.
    """

    place: XmlPlace
    dev: int | None
    gdr: bool | None
    nvlinks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class XmlNic:
    """A NIC; `rate` in bytes per second. `name` is empty where the file has only the PCI device."""

    place: XmlPlace
    name: str
    number: int | None
    rate: float | None
    gdr: bool | None
    line: int = 0


@dataclass(frozen=True, slots=True)
class NcclTopology:
    """A machine as NCCL sees it; `hosts` is 0 in files that do not name theirs.

    `notes`: odd or unread parts of the file, in words.
    """

    gpus: tuple[XmlGpu, ...]
    nics: tuple[XmlNic, ...]
    cpus: int
    hosts: int
    notes: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """Return the machine for people."""
        return tuple(_topology_lines(self))


@dataclass(frozen=True, slots=True)
class NcclGraph:
    """The result of a search; `rings`: different orders of GPUs, the first in `order`. Bandwidth in GB/s."""

    pattern: str
    channels: int
    intra: str
    inter: str
    bandwidth: str
    rings: int
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NcclGraphs:
    """The rings and trees that NCCL found, from NCCL_GRAPH_DUMP_FILE."""

    graphs: tuple[NcclGraph, ...]

    def lines(self) -> tuple[str, ...]:
        """Return each graph in a line."""
        head = "NCCL_GRAPH_DUMP_FILE: rings and trees that NCCL found. It says nothing of a machine's health."
        return head, *map(_graph_line, self.graphs)


def read_topology(file: BinaryIO) -> NcclTopology | NcclGraphs | Absent:
    """Return the contents of a file.

    Returns Absent (malformed) for text that is not XML, is cut, is too large or too deep. It also does so for
    XML that defines anything, or is of another kind. Raises OSError: the file cannot be read.
    """
    parser = expat.ParserCreate()
    builder = _Builder(lambda: parser.CurrentLineNumber)
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.StartDoctypeDeclHandler = _refuse
    data = file.read(BYTES + 1)
    if len(data) > BYTES:
        return _malformed(f"larger than {BYTES >> 20} MiB")
    try:
        parser.Parse(data, True)  # noqa: FBT003
    except (expat.ExpatError, _RefusedXml, LookupError, ValueError) as error:
        known = builder.root in {"system", "graphs"}
        why = f"a file of NCCL that is cut or damaged: {error}" if known else f"not XML of NCCL: {error}"
        return _malformed(why if data else "empty")
    return builder.result()


def path_in_file(one: XmlPlace, other: XmlPlace) -> Path:
    """Return the path between two devices by the file; PHB is NCCL's, which has no NODE."""
    if one.cpu != other.cpu:
        return Path.SYS
    shared = 0
    for a, b in zip(one.bridges, other.bridges, strict=False):
        if a != b:
            break
        shared += 1
    if not shared and one.address != other.address:
        return Path.PHB
    between = len(one.bridges) + len(other.bridges) - 2 * shared
    return Path.PIX if between == 0 else Path.PXB


class _RefusedXml(Exception):
    """The file has parts that no file of NCCL has."""


def _refuse(*_: object) -> None:
    raise _RefusedXml("it declares a document type")


def _malformed(why: str) -> Absent:
    return Absent(Why.MALFORMED, why)


@dataclass(slots=True)
class _Open:
    """An open element: a PCI device collects its children."""

    name: str
    attributes: Mapping[str, str]
    gpu: Mapping[str, str] | None = None
    nvlinks: Counter[str] = field(default_factory=Counter)
    nets: list[Mapping[str, str]] = field(default_factory=list)
    leaf: bool = True
    line: int = 0


class _Builder:
    """Handles elements as they begin and end."""

    def __init__(self, line: Callable[[], int]) -> None:
        self._line = line
        self._open: list[_Open] = []
        self.root = ""
        self._count = self._cpus = 0
        self._gpus: list[XmlGpu] = []
        self._nics: list[XmlNic] = []
        self._hosts: set[str] = set()
        self._others: Counter[str] = Counter()
        self._odd: list[str] = []
        self._graphs: list[_GraphInFile] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > ELEMENTS or len(self._open) >= DEPTH:
            raise _RefusedXml(f"more than {ELEMENTS} elements, or deeper than {DEPTH}")
        self.root = self.root or name
        self._open.append(_Open(name, attributes, line=self._line()))
        if name in _TAKEN:
            getattr(self, name)(attributes)
        elif name not in _READ:
            self._others[name] += 1

    def end(self, name: str) -> None:
        done = self._open.pop()
        if name == "pci":
            self._device(done)
        elif done.nets:
            holder = self._within()
            if holder is None:
                self._nics += [self._nic(self._place({}), net, done.line) for net in done.nets]
            else:
                holder.nets += done.nets

    def result(self) -> NcclTopology | NcclGraphs | Absent:
        if self.root == "graphs":
            return NcclGraphs(tuple(graph.done() for graph in self._graphs))
        if self.root != "system":
            return _malformed(f"XML, but not of NCCL: it begins with <{self.root[:40]}>")
        if not self._gpus and not self._nics:
            return _malformed("a topology of NCCL without a GPU or NIC")
        others = [f"{number} <{name[:40]}> not read" for name, number in self._others.most_common(NOTES)]
        return NcclTopology(
            tuple(self._gpus), tuple(self._nics), self._cpus, len(self._hosts), (*self._odd, *others)
        )

    def cpu(self, attributes: Mapping[str, str]) -> None:
        self._cpus += 1
        if attributes.get("host_hash"):
            self._hosts.add(attributes["host_hash"])

    def pci(self, _attributes: Mapping[str, str]) -> None:
        holder = self._within(below=1)
        if holder:
            holder.leaf = False

    def gpu(self, attributes: Mapping[str, str]) -> None:
        if self._graphs:
            self._graphs[-1].gpu(attributes)
        elif holder := self._within():
            holder.gpu = attributes

    def nvlink(self, attributes: Mapping[str, str]) -> None:
        holder = self._within()
        count = self._whole("nvlink", attributes, "count")
        if holder and count is not None:
            kind, target = attributes.get("tclass", ""), normal_pci(attributes.get("target", ""))
            switch = kind.startswith(_SWITCH_CLASS)
            peer = SWITCH if switch else target if kind.startswith(_GPU_CLASS) else UNKNOWN_PEER
            holder.nvlinks[peer or UNKNOWN_PEER] += count

    def net(self, attributes: Mapping[str, str]) -> None:
        if holder := self._within("nic"):
            holder.nets.append(attributes)

    def graph(self, attributes: Mapping[str, str]) -> None:
        self._graphs.append(_GraphInFile(attributes))

    def channel(self, _attributes: Mapping[str, str]) -> None:
        if self._graphs:
            self._graphs[-1].orders.append([])

    def _within(self, name: str = "pci", below: int = 0) -> _Open | None:
        within = self._open[: len(self._open) - below]
        return next((element for element in reversed(within) if element.name == name), None)

    def _device(self, done: _Open) -> None:
        attributes = done.attributes
        kind = attributes.get("class", "")
        if done.gpu is not None or (done.leaf and kind.startswith(_GPU_CLASS)):
            gpu = done.gpu or {}
            place = self._place(attributes)
            dev, gdr = self._whole("gpu", gpu, "dev"), _flag(gpu.get("gdr"))
            self._gpus.append(XmlGpu(place, dev, gdr, dict(done.nvlinks)))
        if done.nets:
            self._nics += [self._nic(self._place(attributes), net, done.line) for net in done.nets]
        elif done.leaf and kind.startswith(_NIC_CLASS):
            self._nics.append(XmlNic(self._place(attributes), "", None, None, None))

    def _place(self, attributes: Mapping[str, str]) -> XmlPlace:
        above = [element for element in self._open if element.name == "pci"]
        cpu = next((element for element in self._open if element.name == "cpu"), None)
        numa = self._whole("cpu", cpu.attributes, "numaid") if cpu else None
        gen, lanes = self._link(attributes)
        high = self._link(above[0].attributes) if above else (None, None)
        bridges = tuple(self._address(element.attributes) for element in above)
        node = None if numa is None or numa < 0 else numa
        affinity = cpu.attributes.get("affinity", "") if cpu else ""
        address = self._address(attributes) if attributes else ""
        uplink = (high[0], high[1], above[0].line) if high[0] and high[1] else None
        return XmlPlace(address, bridges, self._cpus, node, gen, lanes, affinity, uplink)

    def _link(self, attributes: Mapping[str, str]) -> tuple[int | None, int | None]:
        known = value_or(generation(attributes.get("link_speed", "")), None)
        return known, self._whole("pci", attributes, "link_width") or None

    def _nic(self, place: XmlPlace, net: Mapping[str, str], line: int) -> XmlNic:
        megabits = self._whole("net", net, "speed")
        rate = megabits * 1e6 / 8 if megabits and megabits > 0 else None
        number, gdr = self._whole("net", net, "dev"), _flag(net.get("gdr"))
        return XmlNic(place, net.get("name", ""), number, rate, gdr, line)

    def _address(self, attributes: Mapping[str, str]) -> str:
        text = attributes.get("busid", "")
        known = normal_pci(text)
        if not known:
            self._note(f"{text[:40]!r} is no PCI address")
        return known or text[:40]

    def _whole(self, element: str, attributes: Mapping[str, str], name: str) -> int | None:
        """Return a decimal or hexadecimal number of NCCL; None for none, and noted if it is odd."""
        text = attributes.get(name, "")
        try:
            return int(text, 0) if text and len(text) <= DIGITS else None
        except ValueError:
            self._note(f"{element} {name}={text[:40]!r} is no number")
            return None

    def _note(self, text: str) -> None:
        if len(self._odd) < NOTES and text not in self._odd:
            self._odd.append(text)


class _GraphInFile:
    """A graph during reading, channel by channel."""

    def __init__(self, attributes: Mapping[str, str]) -> None:
        self.attributes = attributes
        self.orders: list[list[str]] = []

    def gpu(self, attributes: Mapping[str, str]) -> None:
        if self.orders:
            text = attributes.get("rank", attributes.get("dev", "?"))
            try:
                self.orders[-1].append(str(int(text[:DIGITS], 0)))
            except ValueError:
                self.orders[-1].append(text[:DIGITS])

    def done(self) -> NcclGraph:
        of = self.attributes
        pattern = of.get("pattern", "")
        intra, inter, speed = (of.get(name, "")[:40] for name in ("typeintra", "typeinter", "speedintra"))
        first = tuple(self.orders[0]) if self.orders else ()
        rings = len({tuple(order) for order in self.orders})
        name = _PATTERNS.get(pattern, pattern[:40])
        return NcclGraph(name, len(self.orders), intra, inter, speed, rings, first)


_DIRECT = {None: "", True: "GPUDirect RDMA", False: "no GPUDirect RDMA"}
_READ = frozenset({"system", "graphs", "nic"})
_TAKEN = frozenset({"cpu", "pci", "gpu", "nvlink", "net", "graph", "channel"})
"""Elements with a `_Builder` method of the same name."""


def _flag(text: str | None) -> bool | None:
    return None if text is None else text == "1"


def _topology_lines(found: NcclTopology) -> Iterator[str]:
    hosts = f" of {found.hosts} hosts" if found.hosts > 1 else ""
    sizes = count(len(found.gpus), "GPU"), count(len(found.nics), "NIC"), count(found.cpus, "CPU")
    yield f"A topology of NCCL{hosts}: {', '.join(sizes)}"
    for gpu in found.gpus:
        nvlinks = ", ".join(nvlink_words(gpu.nvlinks))
        paths = [(path_in_file(gpu.place, nic.place), nic.name or nic.place.address) for nic in found.nics]
        best = min(paths, default=None, key=lambda pair: pair[0])
        near = f"nearest NIC {best[1]} ({best[0].name})" if best else ""
        name = f"GPU {gpu.place.address}" if gpu.dev is None else f"GPU {gpu.dev} at {gpu.place.address}"
        parts = [name, *_place_words(gpu.place), nvlinks, _DIRECT[gpu.gdr], near]
        yield "  " + ", ".join(filter(None, parts))
    for nic in found.nics:
        rate = "" if nic.rate is None else gigabits(nic.rate)
        parts = ["NIC", nic.name or nic.place.address, rate, *_place_words(nic.place), _DIRECT[nic.gdr]]
        yield "  " + ", ".join(filter(None, [" ".join(parts[:2]), *parts[2:]]))
    yield from (f"  {note}" for note in found.notes)


def _place_words(place: XmlPlace) -> Sequence[str]:
    numa = "" if place.numa is None else f"NUMA node {place.numa}"
    gen = "" if place.generation is None else f"PCIe generation {place.generation}"
    return numa, gen, "" if place.lanes is None else f"{place.lanes} lanes"


def nvlink_words(peers: Mapping[str, int]) -> Iterator[str]:
    """Yield the number of NVLinks to each peer, for people."""
    names = {SWITCH: "the switch", UNKNOWN_PEER: "a peer that is not known"}
    return (f"{count(links, 'NVLink')} to {names.get(peer, peer)}" for peer, links in peers.items())


def _graph_line(graph: NcclGraph) -> str:
    kind = graph.pattern or "a graph without a pattern"
    if not graph.channels:
        return f"  {kind}: NCCL found none"
    orders = "all in one order" if graph.rings == 1 else f"in {graph.rings} orders, the first"
    return (
        f"  {kind}: {graph.channels} channels at {graph.bandwidth} GB/s, farthest path {graph.intra} inside "
        f"the node and {graph.inter} to NICs, {orders}: {' '.join(graph.order)}"
    )
