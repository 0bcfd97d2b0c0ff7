"""The free GPUs of a cluster as NVLink domains in a hierarchy: node, leaf, rack. Pure.

A domain is an island of one node, or all GPUs of the nodes that share an NVLink fabric (NVL72). Units of one
level lie inside units of the next: racks that share a leaf or a domain count as one, or leafs that share a
rack, whichever are the wider ones. A node whose rack is not known is in a rack of its own.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from wirewatch.core.hostlist import natural
from wirewatch.core.types import Absent
from wirewatch_lab.advice.placement.cluster import ClusterNode, Indices


class Level(IntEnum):
    """How far GPUs are from each other."""

    DOMAIN = 0
    NODE = 1
    LEAF = 2
    RACK = 3
    CLUSTER = 4


WORDS = {
    Level.DOMAIN: "one NVLink domain", Level.NODE: "one node", Level.LEAF: "one leaf",
    Level.RACK: "one rack", Level.CLUSTER: "the cluster",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodePart:
    """Free GPUs of a domain on one node; `places`: of each among all of its island, free or not."""

    node: ClusterNode
    gpus: Indices
    places: Indices


@dataclass(frozen=True, slots=True)
class Domain:
    """GPUs that NVLink joins, by node. `units`: what it lies in, by the levels of its space."""

    name: str
    cells: tuple[NodePart, ...]
    units: tuple[int, ...]

    @property
    def free(self) -> int:
        """How many of its GPUs are free."""
        return sum(len(cell.gpus) for cell in self.cells)

    @property
    def product(self) -> str:
        """Its GPUs; the first of several kinds."""
        return self.cells[0].node.wiring.product

    def memory(self) -> float:
        """Bytes of its smallest GPU, 0 where that is not known."""
        sizes = [cell.node.wiring.memory for cell in self.cells]
        return min((0.0 if isinstance(one, Absent) else one for one in sizes), default=0.0)


@dataclass(frozen=True, slots=True)
class Space:
    """`levels`: those that the cluster states, the narrowest first. `joined`: units that count as one."""

    levels: tuple[Level, ...]
    domains: tuple[Domain, ...]
    joined: tuple[str, ...] = ()

    @property
    def free(self) -> int:
        """How many GPUs are free."""
        return sum(one.free for one in self.domains)


def space_of(nodes: Iterable[ClusterNode]) -> Space:
    """The space of these nodes, whatever their order."""
    ordered = sorted(nodes, key=lambda node: natural(node.name))
    parts: dict[tuple[str, int], list[NodePart]] = {}
    for node in ordered:
        for key, cell in _cells(node):
            parts.setdefault(key, []).append(cell)
    levels = _levels(ordered)
    units: list[list[int]] = [[place] for place in range(len(parts))]
    # A fabric is the machine of its nodes.
    _number(units, [{key[0]} for key in parts])
    joined: list[str] = []
    for level in levels[2:-1]:
        names = [{_name(cell.node, level) for cell in cells} - {""} for cells in parts.values()]
        joined += _joined(level, _number(units, names), names)
    for one in units:
        one.append(0)
    domains = (
        Domain(_domain_name(key[0], cells), tuple(cells), tuple(one))
        for (key, cells), one in zip(parts.items(), units, strict=True)
    )
    return Space(levels, tuple(domains), tuple(joined))


def _cells(node: ClusterNode) -> Iterator[tuple[tuple[str, int], NodePart]]:
    """Free GPUs by domain."""
    if node.fabric:
        free = tuple(gpu for gpu in range(node.wiring.gpus) if gpu not in node.busy)
        if free:
            yield (f"domain {node.fabric}", 0), NodePart(node, free, free)
        return
    for number, island in enumerate(node.wiring.islands):
        left = tuple((gpu, place) for place, gpu in enumerate(island) if gpu not in node.busy)
        if left:
            gpus, places = zip(*left, strict=True)
            yield (f"node {node.name}", number), NodePart(node, gpus, places)


def _domain_name(machine: str, cells: Sequence[NodePart]) -> str:
    node = cells[0].node
    if node.fabric:
        return machine
    if len(node.wiring.islands) == 1:
        return node.name
    island = next(one for one in node.wiring.islands if cells[0].gpus[0] in one)
    return f"{node.name} GPU{'s' if len(island) > 1 else ''} {numbers(island)}"


def numbers(indices: Iterable[int]) -> str:
    """Numbers in ranges, such as 0-3,6."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][1] + 1 == index:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _levels(nodes: Sequence[ClusterNode]) -> tuple[Level, ...]:
    """The levels that any node states; of leaf and rack the one inside the other first."""
    known = [level for level in (Level.LEAF, Level.RACK) if any(_name(node, level) for node in nodes)]
    racks: dict[str, set[str]] = {}
    leafs: dict[str, set[str]] = {}
    for node in nodes:
        if node.rack and node.leaf:
            racks.setdefault(node.leaf, set()).add(node.rack)
            leafs.setdefault(node.rack, set()).add(node.leaf)
    wide_leafs = any(len(one) > 1 for one in racks.values())
    if wide_leafs and all(len(one) == 1 for one in leafs.values()):
        known.reverse()
    return (Level.DOMAIN, Level.NODE, *known, Level.CLUSTER)


def _name(node: ClusterNode, level: Level) -> str:
    return node.leaf if level is Level.LEAF else node.rack


def _number(units: Sequence[list[int]], names: Sequence[set[str]]) -> dict[str, int]:
    """Append to each domain's units the next wider one, which has all domains of the same name; by name."""
    above: dict[Hashable, Hashable] = {}

    def root(one: Hashable) -> Hashable:
        while above.setdefault(one, one) != one:
            above[one] = above[above[one]]
            one = above[one]
        return one

    for inner, outer in zip(units, names, strict=True):
        for name in outer:
            above[root(name)] = root(inner[-1])
    count: dict[Hashable, int] = {}
    wide = [count.setdefault(root(inner[-1]), len(count)) for inner in units]
    for inner, unit in zip(units, wide, strict=True):
        inner.append(unit)
    return {name: count[root(name)] for outer in names for name in outer}


def _joined(level: Level, numbered: dict[str, int], names: Sequence[set[str]]) -> Iterator[str]:
    """Names that share a unit, in a sentence each."""
    by_unit: dict[int, set[str]] = {}
    for name in {name for outer in names for name in outer}:
        by_unit.setdefault(numbered[name], set()).add(name)
    word = level.name.lower()
    for shared in by_unit.values():
        if len(shared) > 1:
            listed = ", ".join(sorted(shared, key=natural)[:4]) + (", ..." if len(shared) > 4 else "")  # noqa: PLR2004
            yield f"{word}s {listed} count as one {word}: something inside lies in several of them"
