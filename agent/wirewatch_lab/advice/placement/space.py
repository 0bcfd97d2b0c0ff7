"""The free GPUs of a cluster as NVLink domains in a hierarchy: node, leaf, rack. Pure.

A domain is an island of one node, or all GPUs of the nodes that share an NVLink fabric (NVL72). Units of a
level lie inside units of the next. Racks that share a leaf or a domain count as one, or leafs that share a
rack, whichever are wider. A node without a known rack has its own rack.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from wirewatch.core.hostlist import natural
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent
from wirewatch_lab.advice.placement.cluster import ClusterNode, Indices
from wirewatch_lab.advice.shell import ranges


class Level(IntEnum):
    """The distance between GPUs."""

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
    """Free GPUs of a domain on a node. `places`: of each among all GPUs of its island."""

    node: ClusterNode
    gpus: Indices
    places: Indices


@dataclass(frozen=True, slots=True)
class Domain:
    """GPUs that NVLink joins, by node. `units`: the units around it, by the levels of its space."""

    name: str
    cells: tuple[NodePart, ...]
    units: tuple[int, ...]

    @property
    def free(self) -> int:
        """Return how many of its GPUs are free."""
        return sum(len(cell.gpus) for cell in self.cells)

    @property
    def product(self) -> str:
        """Return its GPU product; the first of several kinds."""
        return self.cells[0].node.wiring.product

    def memory(self) -> float:
        """Return bytes of its smallest GPU, 0 where not known."""
        sizes = [cell.node.wiring.memory for cell in self.cells]
        return min((0.0 if isinstance(one, Absent) else one for one in sizes), default=0.0)


@dataclass(frozen=True, slots=True)
class Space:
    """`levels`: the levels that the cluster states, the narrowest first.

    `joined`: units that count as a single unit.
    """

    levels: tuple[Level, ...]
    domains: tuple[Domain, ...]
    joined: tuple[str, ...] = ()

    @property
    def free(self) -> int:
        """Return how many GPUs are free."""
        return sum(one.free for one in self.domains)


def space_of(nodes: Iterable[ClusterNode]) -> Space:
    """Return the space of these nodes, in any order."""
    ordered = sorted(nodes, key=lambda node: natural(node.name))
    parts = grouped(pair for node in ordered for pair in _cells(node))
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
    """Yield free GPUs by domain."""
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
    return f"{node.name} GPU{'s' if len(island) > 1 else ''} {ranges(island)}"


def _levels(nodes: Sequence[ClusterNode]) -> tuple[Level, ...]:
    """Return the levels that any node states; of leaf and rack, the inner first."""
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
    """Append to each domain's units the next wider unit, which joins all domains with the same name."""
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
    """Yield a sentence for each set of names that share a unit."""
    by_unit = grouped((numbered[name], name) for name in {name for outer in names for name in outer})
    word = level.name.lower()
    for shared in by_unit.values():
        if len(shared) > 1:
            listed = ", ".join(sorted(shared, key=natural)[:4]) + (", ..." if len(shared) > 4 else "")  # noqa: PLR2004
            yield f"{word}s {listed} count as one {word}: something inside lies in several of them"


Nesting = tuple[int, ...]
"""The units of a leaf, from the leaf itself to the unit around all of them."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """`level`: the level of the narrowest unit around it.

    `parts`: leaves, with the number of pieces from each.
    """

    level: int
    parts: tuple[tuple[int, int], ...]


def most(capacity: Sequence[int], paths: Sequence[Nesting], size: int) -> tuple[int, ...]:
    """Return for each level the most bundles inside single units of it."""
    if not paths:
        return ()
    tree = _Tree(capacity, paths)
    return tuple(sum(amount // size for amount in level.values()) for level in tree.left)


def bundles(
    capacity: Sequence[int], paths: Sequence[Nesting], size: int, count: int, widest: int | None = None,
    spare: Sequence[int] = (),
) -> tuple[Bundle, ...]:  # fmt: skip
    """Return so many bundles, or fewer if no more fit.

    `capacity`: pieces of each leaf. `paths`: of each leaf, with equal lengths and a common outermost unit.
    `size`: pieces of a bundle. `count`: how many bundles. `widest`: the widest level for bundles; the last by
    default. `spare`: extra capacity of each leaf, lost with its pieces; of equal units the least spare wins.
    """
    if not paths:
        return ()
    tree = _Tree(capacity, paths, spare)
    found: list[Bundle] = []
    for level in range(1 + (len(paths[0]) - 1 if widest is None else widest)):
        for unit, number in tree.shares(level, size, count - len(found)):
            found += [Bundle(level, tree.carve(level, unit, size)) for _ in range(number)]
    return tuple(sorted(found, key=lambda one: one.parts[0]))


class _Tree:
    """The remaining pieces of each unit, as bundles are taken out."""

    def __init__(self, capacity: Sequence[int], paths: Sequence[Nesting], spare: Sequence[int] = ()) -> None:
        self._paths = paths
        self._top = len(paths[0]) - 1
        self._children: list[dict[int, dict[int, None]]] = [{} for _ in paths[0]]
        self.left: list[dict[int, int]] = [{} for _ in paths[0]]
        self._spare: list[dict[int, int]] = [{} for _ in paths[0]]
        for pieces, lost, path in zip(capacity, spare or [0] * len(paths), paths, strict=True):
            for level, unit in enumerate(path):
                self.left[level][unit] = self.left[level].get(unit, 0) + pieces
                self._spare[level][unit] = self._spare[level].get(unit, 0) + lost
            for level in range(1, len(path)):
                self._children[level].setdefault(path[level], {})[path[level - 1]] = None

    def shares(self, level: int, size: int, count: int) -> list[tuple[int, int]]:
        """Return units of a level with the number of bundles that each takes, at most `count` in all."""
        fitting = {unit: amount // size for unit, amount in self.left[level].items() if amount >= size}
        if sum(fitting.values()) <= count:
            return list(fitting.items())
        amounts: list[dict[int, int]] = [{} for _ in self.left]
        amounts[level] = fitting
        for above in range(level + 1, self._top + 1):
            for unit, below in self._children[above].items():
                amounts[above][unit] = sum(amounts[above - 1].get(child, 0) for child in below)
        (root,) = amounts[self._top]
        return list(self._take(self._top, root, count, amounts, level))

    def carve(self, level: int, unit: int, size: int) -> tuple[tuple[int, int], ...]:
        """Take a bundle out of a unit."""
        parts = list(self._take(level, unit, size, self.left, 0))
        for leaf, pieces in parts:
            for above, around in enumerate(self._paths[leaf]):
                self.left[above][around] -= pieces
        # From the widest unit inwards, so that neighbours in a bundle share as narrow a unit as they can.
        return tuple(sorted(parts, key=lambda part: self._paths[part[0]][::-1]))

    def _take(
        self, level: int, unit: int, count: int, amounts: Sequence[dict[int, int]], floor: int
    ) -> Iterator[tuple[int, int]]:
        """Yield units of the level `floor` with the pieces taken from each."""
        if level == floor:
            yield unit, count
            return
        below, spare = amounts[level - 1], self._spare[level - 1]
        some = [child for child in self._children[level][unit] if below.get(child)]
        children = sorted(some, key=lambda child: (below[child], spare[child]))
        sizes = [below[child] for child in children]
        while count:
            place = bisect_left(sizes, count)
            if place == len(sizes):
                place = bisect_left(sizes, sizes[-1])
            taken = min(count, sizes.pop(place))
            yield from self._take(level - 1, children.pop(place), taken, amounts, floor)
            count -= taken
