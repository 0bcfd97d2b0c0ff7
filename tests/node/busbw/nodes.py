"""Nodes drawn by hand: GPUs, where their NVLink links go, and where they sit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wirewatch.core.pci import Place
from wirewatch.core.topology import SWITCH, GpuPart, Island, NvlinkWires, Topology, islands

H100, H200, A100, B200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA B200"
A100_CARD, H100_NVL, V100, L40S = (
    "NVIDIA A100 80GB PCIe",
    "NVIDIA H100 NVL",
    "Tesla V100-SXM2-32GB",
    "NVIDIA L40S",
)
HIDDEN = Place("0000:00:05.0", "", (), None)
Links = Mapping[int, Mapping[int, int] | Mapping[str, int] | Mapping[int | str, int]]
"""Links that are up, by index of the GPU and index of its peer or the name of another end."""


def uuid(index: int | str) -> str:
    return f"GPU-{index}" if isinstance(index, int) else index


def node(
    names: Sequence[str],
    links: Links,
    places: Sequence[Place] = (),
    unread: Sequence[int] = (),
    numa: int = 2,
) -> Topology:
    where = places or [HIDDEN] * len(names)
    gpus = tuple(GpuPart(uuid(i), i, name, where[i]) for i, name in enumerate(names))
    wires = (
        NvlinkWires(uuid(i), uuid(peer), tuple(range(n))) for i, to in links.items() for peer, n in to.items()
    )
    return Topology(gpus, (), tuple(wires), (), numa, (), tuple(map(uuid, unread)))


def switched(name: str, count: int, links: int = 18, **lost: int) -> Topology:
    """GPUs on a switch; `lost=3, of=2`: three links less on GPU 2."""
    short = {lost.get("of", -1): lost.get("lost", 0)}
    return node([name] * count, {i: {SWITCH: links - short.get(i, 0)} for i in range(count)})


def parted(topology: Topology, each: int) -> tuple[Island, ...]:
    """The islands where so many GPUs at a time share a switch, and no wire joins them with the others."""
    starts = range(0, len(topology.gpus), each)
    parts = (replace(topology, gpus=topology.gpus[start : start + each]) for start in starts)
    return tuple(island for part in parts for island in islands(part))


def bridged(name: str, pairs: int, links: int = 12, places: Sequence[Place] = ()) -> Topology:
    """Cards joined two by two."""
    return node([name] * (2 * pairs), {i: {i ^ 1: links} for i in range(2 * pairs)}, places)


def meshed(name: str, count: int, links: int) -> Topology:
    """Every GPU joined to every other by so many links."""
    return node([name] * count, {i: {j: links for j in range(count) if j != i} for i in range(count)})


CUBE = (
    (1, 2, 3, 4),
    (0, 2, 3, 5),
    (0, 1, 3, 6),
    (0, 1, 2, 7),
    (0, 5, 6, 7),
    (1, 4, 6, 7),
    (2, 4, 5, 7),
    (3, 4, 5, 6),
)
"""Peers of each V100 of a hybrid cube mesh; two links to the first and last, one to the others."""


def cube() -> Topology:
    return node(
        [V100] * 8, {i: {p: 1 + (n in {0, 3}) for n, p in enumerate(to)} for i, to in enumerate(CUBE)}
    )


def sockets(count: int, each: int = 2) -> tuple[Place, ...]:
    """Places of cards: `each` a switch, every switch at a root of its own, two switches a socket."""
    found = []
    for i in range(count):
        root = i // each
        above = (f"00{root:02x}:00:01.0", f"00{root:02x}:01:00.0", f"00{root:02x}:02:{i % each:02x}.0")
        found.append(Place(f"00{root:02x}:1{i % each}:00.0", f"pci00{root:02x}:00", above, root // 2))
    return tuple(found)
