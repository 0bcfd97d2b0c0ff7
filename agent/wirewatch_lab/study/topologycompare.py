"""Compares a topology that NCCL wrote or read with wirewatch's view of this node."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from wirewatch.collectors import infiniband, pcie, topology
from wirewatch.core.collector import AnyCollector
from wirewatch.core.fold import Step, fold
from wirewatch.core.pci import Path
from wirewatch.core.ports import Hardware
from wirewatch.core.rdma import gigabits
from wirewatch.core.topology import NicPart, Topology
from wirewatch.core.types import Absent, Expect, Failed, Ok, value_or
from wirewatch.core.words import count
from wirewatch_lab.study.topologyxml import NcclTopology, XmlNic, nvlink_words, path_in_file

_SLACK = 0.02
"""Rates that differ by less are equal, since sysfs rounds them."""


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node in wirewatch's view.

    `pcie`: generation and lanes that device and slot both support, by PCI address. `rates` of active ports in
    bytes per second, by device and port.
    """

    topology: Topology
    pcie: Mapping[str, tuple[int | None, int | None]]
    rates: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class TopologyComparison:
    """Differences, one-sided parts, and parts that cannot be compared, in words; `same`: parts that agree."""

    same: tuple[str, ...]
    differs: tuple[str, ...]
    unknown: tuple[str, ...]
    other_machine: bool = False

    def lines(self) -> tuple[str, ...]:
        """Return the comparison for people."""
        if self.other_machine:
            return self.differs
        head = f"Beside this node: {count(len(self.differs), 'difference')}"
        alike = f"  the same: {', '.join(self.same)}" if self.same else "  nothing is the same"
        unknown = (f"  cannot be compared: {text}" for text in self.unknown)
        return head, *(f"  {text}" for text in self.differs), alike, *unknown


def read_node(hardware: Hardware) -> SeenNode | Absent:
    """Return the present node, live or of a recording; Absent when its GPUs cannot be listed."""
    graph = topology.read_topology(hardware)
    if isinstance(graph, Absent):
        return graph
    cards = _read(infiniband.COLLECTOR, hardware).facts
    fabric = cards if isinstance(cards, infiniband.InfinibandFacts) else None
    most: dict[str, dict[str, int]] = {}
    for sample in _read(pcie.COLLECTOR, hardware).samples:
        if sample.metric in {pcie.GENERATION_MAX, pcie.WIDTH_MAX}:
            most.setdefault(sample.labels[1], {})[sample.metric.name] = int(sample.value)
    links: dict[str, tuple[int | None, int | None]] = {}
    for gpu in graph.gpus:
        found = most.get(gpu.uuid, {})
        links[gpu.place.address] = found.get(pcie.GENERATION_MAX.name), found.get(pcie.WIDTH_MAX.name)
    for nic in graph.nics:
        card = fabric.cards.get(nic.device) if fabric else None
        if card:
            links[nic.place.address] = value_or(card.generation_max, None), value_or(card.width_max, None)
    return SeenNode(graph, links, fabric.rates if fabric else {})


def compare_topology(xml: NcclTopology, node: SeenNode) -> TopologyComparison:
    """Compare the file with the node: GPUs and NICs by PCI address, links, rates and paths."""
    compared = _Compared(xml, node)
    if not node.topology.gpus:
        return TopologyComparison((), (), ("this node shows no GPU",))
    if not compared.gpus and (xml.gpus or not compared.nics):
        ours = ", ".join(gpu.place.address for gpu in node.topology.gpus)
        theirs = ", ".join(gpu.place.address for gpu in xml.gpus) or "none"
        text = f"This file is of another machine: its GPUs are at {theirs}, those of this node at {ours}"
        return TopologyComparison((), (text,), (), other_machine=True)
    compared.devices()
    compared.nvlinks()
    compared.pcie()
    compared.ports()
    compared.paths()
    return TopologyComparison(tuple(compared.same), tuple(compared.differs), tuple(compared.unknown()))


class _Compared:
    """Both sides by PCI address, with findings."""

    def __init__(self, xml: NcclTopology, node: SeenNode) -> None:
        self.xml, self.node = xml, node
        ours = {gpu.place.address: gpu for gpu in node.topology.gpus}
        self.gpus = [(gpu, ours[gpu.place.address]) for gpu in xml.gpus if gpu.place.address in ours]
        self.nics = [(nic, part) for nic in xml.nics if (part := _same_nic(nic, node.topology.nics))]
        self.same: list[str] = []
        self.differs: list[str] = []
        self._blank: defaultdict[tuple[str, str], list[str]] = defaultdict(list)

    def unknown(self) -> Iterator[str]:
        """Yield parts that cannot be compared and why, parts with the same reason together."""
        for (what, why), names in self._blank.items():
            of = f" of {', '.join(names)}" if names[0] else ""
            yield f"{what}{of}: {why}"

    def devices(self) -> None:
        theirs = {gpu.place.address for gpu in self.xml.gpus}
        ours = {gpu.place.address: f"GPU {gpu.index}" for gpu in self.node.topology.gpus}
        self._only(sorted(theirs - set(ours)), "GPU", "in the file")
        self._only([f"{name} at {at}" for at, name in ours.items() if at not in theirs], "", "on this node")
        known = {part.device for _, part in self.nics}
        matched = {id(nic) for nic, _ in self.nics}
        lone = [nic for nic in self.xml.nics if id(nic) not in matched]
        names = [
            " at ".join(filter(None, (one.name, one.place.address))) for one in lone if one.place.address
        ]
        self._only(names, "NIC", "in the file")
        parts = self.node.topology.nics
        self._only([nic.device for nic in parts if nic.device not in known], "NIC", "on this node")
        for nic in lone:
            if not nic.place.address:
                self._blank["place", "the file gives no PCI device (virtual, or a socket)"].append(nic.name)
        if self.xml.hosts > 1:
            self._blank["GPUs", f"the file has {self.xml.hosts} hosts, which may share addresses"].append("")
        self._agree(len(self.gpus), "GPU")
        self._agree(len(self.nics), "NIC")

    def nvlinks(self) -> None:
        wires: dict[str, dict[str, int]] = {}
        address = {gpu.uuid: gpu.place.address for gpu in self.node.topology.gpus}
        for wire in self.node.topology.nvlink:
            peer = address.get(wire.peer, wire.peer)
            wires.setdefault(wire.uuid, {})[peer] = len(wire.links)
        unread = {*self.node.topology.unread, *self.node.topology.split}
        alike = 0
        if not any(gpu.nvlinks or gpu.gdr is not None for gpu, _ in self.gpus):
            self._blank["NVLinks", "the file leaves them to NCCL"].append("")
            return
        for theirs, ours in self.gpus:
            seen = wires.get(ours.uuid, {})
            if ours.uuid in unread:
                self._blank["NVLinks", "they cannot be read on this node"].append(f"GPU {ours.index}")
            elif seen == dict(theirs.nvlinks):
                alike += sum(seen.values())
            else:
                here, there = _links(seen), _links(theirs.nvlinks)
                self.differs.append(f"GPU {ours.index}: {there} in the file, {here} on this node")
        self._agree(alike, "NVLink")

    def pcie(self) -> None:
        alike = 0
        gpus = ((f"GPU {ours.index}", gpu.place, ours.place.address) for gpu, ours in self.gpus)
        nics = ((part.device, nic.place, part.place.address) for nic, part in self.nics)
        for name, place, address in (*gpus, *nics):
            seen = self.node.pcie.get(address, (None, None))
            words = ("PCIe generation", "PCIe lanes")
            for what, theirs, ours in zip(words, (place.generation, place.lanes), seen, strict=True):
                if theirs is None or ours is None:
                    side = "the file" if theirs is None else "this node"
                    self._blank[what, f"{side} does not say"].append(name)
                elif theirs != ours:
                    self.differs.append(f"{name}: {what} {theirs} in the file, {ours} on this node")
                else:
                    alike += 1
        self._agree(alike, "PCIe figure")

    def ports(self) -> None:
        alike = 0
        for theirs, ours in self.nics:
            ports = [key for key in self.node.rates if key[0] == ours.device]
            # The file's number of a port counts other functions of the card too.
            rate = self.node.rates[ports[0]] if len(ports) == 1 else None
            if theirs.rate is None or rate is None:
                here = f"{len(ports) or 'no'} active port{'s' * (len(ports) > 1)} on this node"
                self._blank["rate", "the file gives none" if theirs.rate is None else here].append(
                    ours.device
                )
            elif abs(theirs.rate - rate) > _SLACK * rate:
                there, here = gigabits(theirs.rate), gigabits(rate)
                self.differs.append(f"{ours.device}: {there} in the file, {here} on this node")
            else:
                alike += 1
        self._agree(alike, "port rate")

    def paths(self) -> None:
        known = {(path.uuid, path.device): path.path for path in self.node.topology.paths}
        alike, hidden = 0, 0
        for gpu, ours in self.gpus:
            for nic, part in self.nics:
                there, here = path_in_file(gpu.place, nic.place).name, known.get((ours.uuid, part.device), "")
                if not here:
                    hidden += 1
                elif there == here or {there, here} == {Path.PHB.name, Path.NODE.name}:
                    alike += 1
                else:
                    pair = f"GPU {ours.index} to {part.device}"
                    self.differs.append(f"{pair}: {there} in the file, {here} on this node")
        if hidden:
            what = count(hidden, "path from GPU to NIC", "paths from GPU to NIC")
            self._blank[what, "the hypervisor hides the bridges"].append("")
        self._agree(alike, "path from GPU to NIC", "paths from GPU to NIC")

    def _only(self, names: Iterable[str], what: str, where: str) -> None:
        self.differs += [f"{what} {name}".strip() + f": only {where}" for name in names]

    def _agree(self, number: int, one: str, many: str = "") -> None:
        if number:
            self.same.append(count(number, one, many))


def _read(collector: AnyCollector, hardware: Hardware) -> Step:
    """Read a collector once, as if for the first time."""
    clock = hardware.clock
    value = collector.read(hardware, collector.start, collector.options)
    at, mono = clock.now(), clock.mono()
    outcome = Failed(value, at, mono) if isinstance(value, Absent) else Ok(value, at, mono)
    return fold(collector, collector.start, outcome, 0.0, Expect())


def _same_nic(nic: XmlNic, parts: Iterable[NicPart]) -> NicPart | None:
    """Find a NIC by PCI address, or by name where the file has no address."""
    at = nic.place.address
    return next((one for one in parts if (at == one.place.address if at else nic.name == one.device)), None)


def _links(peers: Mapping[str, int]) -> str:
    return " and ".join(nvlink_words(peers)) or "no NVLink"
