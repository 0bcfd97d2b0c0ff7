"""The node as one graph: GPUs and NICs, their places, and the wires that join them.

Parts are named by ids that survive renumbering: GPUs by UUID, NICs by GUID and port.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import combinations, product

from wirewatch.core.pci import Path, Place, path_between
from wirewatch.core.types import Absent, Why

SWITCH, UNKNOWN_PEER = "switch", "unknown"


@dataclass(frozen=True, slots=True)
class GpuPart:
    """A GPU. `clique`: of the fabric beyond this node, as `cluster/clique`; empty: none, None: not known."""

    uuid: str
    index: int
    name: str
    place: Place
    clique: str | None = ""


@dataclass(frozen=True, slots=True)
class NicPart:
    """A NIC by its GUID; `ports` with their link layers."""

    guid: str
    device: str
    model: str
    firmware: str
    place: Place
    ports: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NvlinkWires:
    """Links that are up between a GPU and a peer: a GPU's UUID, `switch`, or `unknown`."""

    uuid: str
    peer: str
    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NicPath:
    """PCI path between a GPU and a NIC: PIX, PXB, PHB, NODE, SYS, or empty where it is not known."""

    uuid: str
    device: str
    path: str


@dataclass(frozen=True, slots=True)
class Topology:
    """The graph at one moment, with the versions of driver, kernel and RDMA drivers, empty where not known.

    `unread`: GPUs whose NVLink wires could not be read this time, so that nothing follows from their absence.
    `split`: those of them that are in MIG mode, or will be after their next reset: a driver shows the links
    to and from such a GPU as down.
    """

    gpus: tuple[GpuPart, ...]
    nics: tuple[NicPart, ...]
    nvlink: tuple[NvlinkWires, ...]
    paths: tuple[NicPath, ...]
    numa_nodes: int | None
    versions: tuple[tuple[str, str], ...]
    unread: tuple[str, ...] = ()
    split: tuple[str, ...] = ()

    def devices(self) -> Mapping[str, str]:
        """PCI address of each RDMA device, empty where it is not known."""
        return {nic.device: nic.place.address for nic in self.nics}

    def bridges(self) -> frozenset[str]:
        """PCI bridges above GPUs and NICs."""
        places = [*(gpu.place for gpu in self.gpus), *(nic.place for nic in self.nics)]
        return frozenset(bridge for place in places for bridge in place.bridges)


@dataclass(frozen=True, slots=True)
class NvlinkProduct:
    """A product's NVLink: link counts that bridges allow, `link_rate` in bytes per second each way.

    `boards`: possible numbers of GPUs in a whole node or virtual machine; empty for any number. `fabric`:
    which GPUs are on NVSwitches: a RACK always, BOARD_OF_8 if there are eight. Both register with a fabric;
    SWITCHED products are older and do not.
    """

    pattern: str
    counts: tuple[int, ...]
    link_rate: float
    source: str
    boards: tuple[int, ...] = ()
    fabric: str = ""


RACK, BOARD_OF_8, SWITCHED = "rack", "board", "switched"
_HGX, _HGX_A100, _TRAY = (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4)
"""Partitions by NVIDIA's Fabric Manager guide (DU-09883), two boards of A100, trays of GB200 racks."""
NVLINK_PRODUCTS: tuple[NvlinkProduct, ...] = (
    NvlinkProduct(r"H100 (PCIe|NVL)|H200 NVL", (0, 4, 8, 12, 18), 26.562e9, "12 of 18 with three bridges"),
    NvlinkProduct(
        r"H800( SXM\d?)?$", (8,), 26.562e9, "nvidia-smi nvlink -s of an H800 SXM", _HGX, BOARD_OF_8
    ),
    NvlinkProduct(r"GH200", (0, 18), 26.562e9, "18 with NVLink switches, none alone"),
    NvlinkProduct(
        r"H100|H200|H20\b", (18,), 26.562e9, "nvidia-smi nvlink -s; measured on H200", _HGX, BOARD_OF_8
    ),
    NvlinkProduct(r"A800.*SXM", (8,), 25e9, "400 GB/s both ways over 25 GB/s links", _HGX_A100, SWITCHED),
    NvlinkProduct(r"A100.*SXM", (12,), 25e9, "nvidia-smi nvlink -s of an A100 SXM", _HGX_A100, SWITCHED),
    NvlinkProduct(r"A100.*PCI|A800.*(PCI|Active)", (0, 4, 8, 12), 25e9, "600 GB/s both ways, three bridges"),
    NvlinkProduct(r"\bA30\b", (0, 4, 8, 12), 25e9, "200 GB/s both ways, one bridge"),
    NvlinkProduct(r"\bA40\b|RTX A6000\b", (0, 4, 8, 12), 14.0625e9, "nvidia-smi nvlink -s of two RTX A6000"),
    NvlinkProduct(r"RTX A(5500|5000|4500)\b", (0, 4), 14.0625e9, "112.5 GB/s both ways, one bridge"),
    NvlinkProduct(r"RTX 3090", (0, 4), 14.0625e9, "nvidia-smi nvlink -s of two RTX 3090"),
    NvlinkProduct(r"GB300", (18,), 53.125e9, "as a B300", _TRAY, RACK),
    NvlinkProduct(r"B300", (18,), 53.125e9, "nvidia-smi nvlink -s of a B300 SXM6", _HGX, BOARD_OF_8),
    NvlinkProduct(r"GB200", (18,), 50e9, "nominal; the driver may show 53.125", _TRAY, RACK),
    NvlinkProduct(r"B200|B100", (18,), 50e9, "nominal; the driver may show 53.125", _HGX, BOARD_OF_8),
    NvlinkProduct(r"V100.*SXM[23]", (6,), 25e9, "nvidia-smi nvlink -s prints 25.781", (1, 2, 4, 6, 8, 16)),
    NvlinkProduct(
        r"RTX 2080 Ti|TITAN RTX|Quadro RTX [68]000", (0, 2), 25.781e9, "nvidia-smi nvlink -s of two RTX 8000"
    ),
    NvlinkProduct(r"RTX 2080( SUPER)?$|Quadro RTX 5000", (0, 1), 25.781e9, "50 GB/s both ways, one link"),
)
"""Rates as `nvidia-smi nvlink -s` prints them where a listing was found, else nominal: docs/products.md.

The driver shows the actual rate of a link, so a rate of this table alone is never enough for FAILED.
"""
BOARD = 8
"""GPUs of a whole NVSwitch board; a virtual machine with fewer has a partition of a board."""


class WireKind(Enum):
    """The wires that join the GPUs of a group."""

    SWITCH = "NVSwitch"
    MESH = "an NVLink mesh"
    PARTIAL = "NVLink without a link between every two"
    PAIR = "an NVLink bridge"
    PCIE = "PCIe"
    ALONE = "nothing"
    UNKNOWN = "wires that are not known"


NVLINK = frozenset({WireKind.SWITCH, WireKind.MESH, WireKind.PAIR})
"""Groups whose every two GPUs have NVLink between them."""
PATHS: Mapping[Path, str] = {
    Path.PIX: "one PCIe switch",
    Path.PXB: "several PCIe switches",
    Path.PHB: "the host bridge",
    Path.NODE: "the host bridges of one NUMA node",
    Path.SYS: "the wire between sockets",
}


@dataclass(frozen=True, slots=True)
class Island:
    """GPUs that NVLink joins; `links`: of each to the others or the switch; `why` the kind is UNKNOWN."""

    gpus: tuple[GpuPart, ...]
    kind: WireKind
    links: tuple[int, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs to probe together, by index; `crossing`: a ring's farthest PCI path, None over NVLink."""

    gpus: tuple[GpuPart, ...]
    kind: WireKind
    links: tuple[int, ...]
    whole: bool
    crossing: Path | Absent | None = None
    why: str = ""

    @property
    def ranks(self) -> int:
        """Return how many GPUs it has."""
        return len(self.gpus)


@dataclass(frozen=True, slots=True)
class _Wires:
    """Links that are up by UUID and peer; `unsure`: why the links of a GPU are not known."""

    links: Mapping[str, Mapping[str, int]]
    unsure: Mapping[str, str]
    switched: frozenset[str]


@cache
def nvlink_product(name: str) -> NvlinkProduct | None:
    """The entry for a product name as NVML gives it, None for a product not listed."""
    return next((p for p in NVLINK_PRODUCTS if re.search(p.pattern, name)), None)


@cache
def due_links(name: str, live: int) -> int:
    """Return the due links of a GPU that shows `live`: the product's next count, else `live`."""
    product = nvlink_product(name)
    return min((n for n in product.counts if n >= live), default=live) if product else live


def islands(topology: Topology) -> tuple[Island, ...]:
    """Return NVLink islands, the lowest index first.

    GPUs without a link are alone, unless their product always has links and others of it are on the switch.
    Such a GPU has lost all its links and is slow there, not elsewhere.
    """
    wires = _wires(topology)

    def joined(one: GpuPart, other: GpuPart) -> bool:
        direct = other.uuid in wires.links[one.uuid] or one.uuid in wires.links[other.uuid]
        return direct or {one.uuid, other.uuid} <= wires.switched

    gpus = sorted(topology.gpus, key=lambda gpu: (gpu.index, gpu.uuid))
    return tuple(_island(members, wires) for members in _components(gpus, joined))


def groups(topology: Topology, found: Sequence[Island]) -> tuple[Group, ...]:
    """Return the node, then each island of two GPUs and more; of unknown wires the node alone."""
    gpus = tuple(sorted((gpu for one in found for gpu in one.gpus), key=lambda gpu: (gpu.index, gpu.uuid)))
    if len(gpus) < 2:  # noqa: PLR2004
        return ()
    live = {gpu.uuid: n for one in found for gpu, n in zip(one.gpus, one.links, strict=True)}
    links = tuple(live[gpu.uuid] for gpu in gpus)
    if len(found) == 1:
        return (Group(gpus, found[0].kind, links, whole=True, why=found[0].why),)
    doubts = "; ".join(one.why for one in found if one.kind is WireKind.UNKNOWN)
    if doubts:
        return (Group(gpus, WireKind.UNKNOWN, links, whole=True, why=doubts),)
    node = Group(gpus, WireKind.PCIE, links, whole=True, crossing=_crossing(topology, found))
    parts = (Group(one.gpus, one.kind, one.links, whole=False) for one in found if len(one.gpus) > 1)
    return (node, *parts)


def _wires(topology: Topology) -> _Wires:
    links: dict[str, dict[str, int]] = {gpu.uuid: {} for gpu in topology.gpus}
    for wires in topology.nvlink:
        if wires.uuid in links and wires.links:
            links[wires.uuid][wires.peer] = len(wires.links)
    unsure = dict.fromkeys(topology.unread, "its NVLink links could not be read")
    unsure |= dict.fromkeys(topology.split, "in MIG mode its NVLink links are off")
    unsure |= {uuid: "where its links go is not known" for uuid, to in links.items() if UNKNOWN_PEER in to}
    switched = {uuid for uuid, to in links.items() if SWITCH in to}
    names = {gpu.name for gpu in topology.gpus if gpu.uuid in switched}
    for gpu in topology.gpus:
        if not links[gpu.uuid] and gpu.uuid not in unsure and due_links(gpu.name, 0):
            if gpu.name in names:
                switched.add(gpu.uuid)
            else:
                unsure[gpu.uuid] = "none of the links is up that its product has"
    return _Wires(links, unsure, frozenset(switched))


def _components(
    gpus: Sequence[GpuPart], joined: Callable[[GpuPart, GpuPart], bool]
) -> Iterable[tuple[GpuPart, ...]]:
    left = list(gpus)
    while left:
        found, left = [left[0]], left[1:]
        for one in found:  # Grows while it is walked.
            near = [other for other in left if joined(one, other)]
            found += near
            left = [other for other in left if other not in near]
        yield tuple(gpu for gpu in gpus if gpu in found)


def _island(gpus: tuple[GpuPart, ...], wires: _Wires) -> Island:
    inside = {gpu.uuid for gpu in gpus} | {SWITCH}
    links = tuple(sum(n for to, n in wires.links[g.uuid].items() if to in inside) for g in gpus)
    doubts = [f"GPU {gpu.index}: {wires.unsure[gpu.uuid]}" for gpu in gpus if gpu.uuid in wires.unsure]
    return Island(gpus, WireKind.UNKNOWN if doubts else _kind(gpus, wires), links, "; ".join(doubts))


def _kind(gpus: Sequence[GpuPart], wires: _Wires) -> WireKind:
    if len(gpus) == 1:
        return WireKind.ALONE
    if any(gpu.uuid in wires.switched for gpu in gpus):
        return WireKind.SWITCH
    if len(gpus) == 2:  # noqa: PLR2004
        return WireKind.PAIR
    live = {gpu.uuid: sum(wires.links[gpu.uuid].values()) for gpu in gpus}
    lacking = {gpu.uuid for gpu in gpus if due_links(gpu.name, live[gpu.uuid]) > live[gpu.uuid]}
    # Two GPUs that both lack links may have lost the ones between them: the board is a mesh still.
    meshed = (
        b.uuid in wires.links[a.uuid] or a.uuid in wires.links[b.uuid] or {a.uuid, b.uuid} <= lacking
        for a, b in combinations(gpus, 2)
    )
    return WireKind.MESH if all(meshed) else WireKind.PARTIAL


def _crossing(topology: Topology, found: Sequence[Island]) -> Path | Absent:
    """Return the worst of the best paths that join all islands in a ring (a minimum spanning tree's last)."""
    absent = Absent(Why.UNSUPPORTED, "the places of the GPUs are not known")
    edges: list[tuple[Path, int, int]] = []
    for (a, one), (b, other) in combinations(enumerate(found), 2):
        ends = product(map(_place, one.gpus), map(_place, other.gpus))
        paths = [path_between(*both, nodes=topology.numa_nodes) for both in ends]
        known = [path for path in paths if not isinstance(path, Absent)]
        absent = next((path for path in paths if isinstance(path, Absent)), absent)
        if known:
            edges.append((min(known), a, b))
    tree = list(range(len(found)))
    worst = Path.PIX
    for path, a, b in sorted(edges):
        if tree[a] != tree[b]:
            worst = path
            tree = [tree[a] if root == tree[b] else root for root in tree]
    return worst if len(set(tree)) == 1 else absent


def _place(gpu: GpuPart) -> Place | Absent:
    if not gpu.place.root:
        return Absent(Why.MISSING, f"the PCI place of GPU {gpu.index} is not known")
    return gpu.place
