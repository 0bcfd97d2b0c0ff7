"""Nodes drawn by hand that can be changed part by part, and renumbered."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from wirewatch.core.pci import Place, path_between
from wirewatch.core.topology import (
    SWITCH,
    GpuPart,
    NicPart,
    NicPath,
    NvlinkWires,
    Topology,
)  # fmt: skip
from wirewatch.core.types import Absent
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import TopologyChange
from wirewatch.verdict.drift.diff import diff

H200, A100_CARD, A100_SXM = "NVIDIA H200", "NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB"


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{number:012d}"


def guid(number: int) -> str:
    return f"0000:00c0:ffee:{number:04d}"


def below(slot: int, port: int) -> Place:
    """A place below one of eight switches, each with a root of its own, four on a NUMA node."""
    bus = 0x10 * (slot + 1)
    bridges = (f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0", f"0000:{bus + 2:02x}:{port:02x}.0")
    return Place(f"0000:{bus + 3 + port:02x}:00.0", f"pci0000:{bus:02x}", bridges, slot // 4)


@dataclass
class Box:
    """A node; change what you like and `build` it. A change of what is not there is none."""

    gpus: dict[int, GpuPart] = field(default_factory=dict)
    nics: dict[int, NicPart] = field(default_factory=dict)
    links: dict[int, dict[int, str]] = field(default_factory=dict)
    """Peer by link, by GPU."""
    versions: dict[str, str] = field(default_factory=dict)
    numa_nodes: int | None = 2
    unread: set[int] = field(default_factory=set)
    split: set[int] = field(default_factory=set)
    """GPUs in MIG mode."""

    def add_gpu(self, number: int, name: str, place: Place | None = None) -> None:
        self.gpus[number] = GpuPart(uuid(number), number, name, place or below(number, 3))
        self.links[number] = {}

    def add_nic(self, number: int, place: Place | None = None) -> None:
        where = place or below(number, 0)
        ports = (("1", "InfiniBand"),)
        self.nics[number] = NicPart(guid(number), f"mlx5_{number}", "MT4129", "28.41.1000", where, ports)

    def drop_gpu(self, number: int) -> None:
        lost = self.gpus.pop(number).uuid
        self.links.pop(number)
        for peers in self.links.values():
            for link in [link for link, peer in peers.items() if peer == lost]:
                del peers[link]

    def join(self, one: int, other: int, links: Sequence[int]) -> None:
        """Wires between two GPUs, with the same numbers at both ends."""
        for link in links:
            self.links[one][link] = self.gpus[other].uuid
            self.links[other][link] = self.gpus[one].uuid

    def cut(self, number: int, *links: int) -> None:
        for link in links:
            self.links.get(number, {}).pop(link, None)

    def gpu(self, number: int, **values: object) -> None:
        if number in self.gpus:
            self.gpus[number] = replace(self.gpus[number], **values)  # type: ignore[arg-type]

    def nic(self, number: int, **values: object) -> None:
        if number in self.nics:
            self.nics[number] = replace(self.nics[number], **values)  # type: ignore[arg-type]

    def shift(self, number: int, move: Callable[[Place], Place]) -> None:
        """Move a GPU and the NIC of the same number."""
        self.gpu(number, place=move(self.gpus[number].place))
        self.nic(number, place=move(self.nics[number].place))

    def build(self) -> Topology:
        unread = sorted((self.unread | self.split) & self.gpus.keys())
        wires = [wire for n in self.gpus if n not in unread for wire in self._wires(n)]
        paths = [
            NicPath(gpu.uuid, nic.device, self._path(gpu.place, nic.place))
            for gpu in self.gpus.values()
            for nic in self.nics.values()
        ]
        return Topology(
            tuple(self.gpus.values()), tuple(self.nics.values()), tuple(wires), tuple(paths),
            self.numa_nodes, tuple(self.versions.items()),
            tuple(self.gpus[number].uuid for number in unread),
            tuple(self.gpus[number].uuid for number in sorted(self.split & self.gpus.keys())),
        )  # fmt: skip

    def _wires(self, number: int) -> Iterator[NvlinkWires]:
        peers = self.links[number]
        for peer in sorted(set(peers.values())):
            links = tuple(sorted(link for link in peers if peers[link] == peer))
            yield NvlinkWires(self.gpus[number].uuid, peer, links)

    def _path(self, one: Place, other: Place) -> str:
        if not one.root or not other.root:
            return ""
        path = path_between(one, other, nodes=self.numa_nodes)
        return "" if isinstance(path, Absent) else path.name


Edit = Callable[[Box], None]


def switched() -> Box:
    """Eight GPUs on an NVLink switch, a NIC beside each."""
    box = Box(versions={"driver": "580.1", "kernel": "6.8.0", "mlx5_core": "24.10", "nvidia_peermem": ""})
    for number in range(8):
        box.add_gpu(number, H200)
        box.add_nic(number)
        box.links[number] = dict.fromkeys(range(18), SWITCH)
    return box


def bridged() -> Box:
    """Four cards, joined two by two with twelve links."""
    box = Box(versions={"driver": "580.1"})
    for number in range(4):
        box.add_gpu(number, A100_CARD)
        box.add_nic(number)
    box.join(0, 1, range(12))
    box.join(2, 3, range(12))
    return box


def meshed() -> Box:
    """Four GPUs, each joined to each by four links."""
    box = Box(versions={"driver": "580.1"})
    for number in range(4):
        box.add_gpu(number, A100_SXM)
    for one, other, first in ((0, 1, 0), (2, 3, 0), (0, 2, 4), (1, 3, 4), (0, 3, 8), (1, 2, 8)):
        box.join(one, other, range(first, first + 4))
    return box


BOXES = (switched, bridged, meshed)


def changes(make: Callable[[], Box], *edits: Edit, back: bool = False) -> tuple[TopologyChange, ...]:
    """What the edits change; `back`: what undoing them changes."""
    before, after = make(), make()
    for edit in edits:
        edit(after)
    one, other = graph_of(before.build()), graph_of(after.build())
    return diff(other, one) if back else diff(one, other)


def renumbered(topology: Topology, seed: int) -> Topology:
    """The same node: other indexes and device names, no bus with its old number, all in another order."""
    dice = random.Random(seed)  # noqa: S311
    order = dice.sample(range(256), 256)
    buses = {bus: order[at - 1] for at, bus in enumerate(order)}
    indexes = dice.sample([gpu.index for gpu in topology.gpus], len(topology.gpus))
    names = [nic.device for nic in topology.nics]
    devices = dict(zip(names, dice.sample(names, len(names)), strict=True))

    def bus(text: str) -> str:
        """The bus is the second number of an address, and of a root."""
        if not text:
            return ""
        domain, number, *rest = text.split(":")
        return ":".join([domain, f"{buses[int(number, 16)]:02x}", *rest])

    def moved(place: Place) -> Place:
        return Place(bus(place.address), bus(place.root), tuple(map(bus, place.bridges)), place.numa)

    def shuffled(values: Sequence[object]) -> tuple[object, ...]:
        return tuple(dice.sample(list(values), len(values)))

    # A GPU without a UUID goes by its index.
    names_now = {
        gpu.uuid: f"index:{index}" if gpu.uuid.startswith("index:") else gpu.uuid
        for gpu, index in zip(topology.gpus, indexes, strict=True)
    }
    gpus = [
        replace(gpu, uuid=names_now[gpu.uuid], index=index, place=moved(gpu.place))
        for gpu, index in zip(topology.gpus, indexes, strict=True)
    ]
    nics = [
        replace(nic, device=devices[nic.device], place=moved(nic.place), ports=shuffled(nic.ports))  # type: ignore[arg-type]
        for nic in topology.nics
    ]
    wires = [
        replace(one, uuid=names_now[one.uuid], peer=names_now.get(one.peer, one.peer))
        for one in topology.nvlink
    ]
    paths = [replace(one, uuid=names_now[one.uuid], device=devices[one.device]) for one in topology.paths]
    return Topology(
        shuffled(gpus), shuffled(nics), shuffled(wires), shuffled(paths), topology.numa_nodes,  # type: ignore[arg-type]
        shuffled(topology.versions), tuple(names_now[key] for key in topology.unread),  # type: ignore[arg-type]
        tuple(names_now[key] for key in topology.split),
    )  # fmt: skip


NOWHERE = Place("", "", (), None)
