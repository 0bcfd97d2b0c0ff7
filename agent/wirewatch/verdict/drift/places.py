"""PCIe: parts that moved, and paths between GPUs and NICs that are others now.

A pair's path is told once, with the part that moved; a move that changes no path is told as a place. What the
number of NUMA nodes explains is not told again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.pci import Path
from wirewatch.verdict.drift.change import Change, Kind
from wirewatch.verdict.drift.graph import GpuNode, Graph, NicNode, Node, Spot
from wirewatch.verdict.drift.matching import Matched, Renaming, device_number
from wirewatch.verdict.drift.words import part_name, several

Pair = tuple[str, str]
"""Keys of a GPU and a NIC of the graph after."""
_NUMA_ONLY = frozenset({Path.NODE.name, Path.SYS.name})


@dataclass(frozen=True, slots=True)
class Paths:
    """Path by pair, before and after, where both are told and differ; `was`: key before by key after."""

    before: Mapping[Pair, str]
    after: Mapping[Pair, str]
    was: Mapping[str, str]


def place_changes(
    before: Graph, after: Graph, gpus: Matched[GpuNode], nics: Matched[NicNode], renaming: Renaming
) -> Iterator[Change]:
    """All changes of places, paths and NUMA nodes."""
    nodes = (before.numa_nodes, after.numa_nodes)
    renumbered = None not in nodes and nodes[0] != nodes[1]
    if renumbered:
        text = f"node: {nodes[0]} -> {nodes[1]} NUMA nodes"
        yield Change(Kind.NUMA, "", str(nodes[0]), str(nodes[1]), text, worse=True)
    present: list[Node] = [*(now for _, now in gpus.pairs), *(now for _, now in nics.pairs)]
    stayed: list[tuple[Node, Node]] = [*gpus.same, *nics.same]
    parts = {node.key: node for node in present}
    moved = {
        now.key: then
        for then, now in stayed
        if then.name and now.name and _moved(then.spot, now.spot, renaming, renumbered=renumbered)
    }
    paths = _changed(gpus, nics)
    if renumbered:
        paths = _without(paths, [pair for pair in paths.after if _by_numa(pair, paths, moved)])
    told = set[str]()
    while paths.after:
        key = _to_blame(paths.after, moved, gpus)
        told.add(key)
        mine = [pair for pair in paths.after if key in pair]
        yield _path_change(key, mine, paths, parts)
        paths = _without(paths, mine)
    for key, then in moved.items():
        if key not in told:
            lasting = _lasting(before, then), _lasting(after, parts[key])
            yield _place_change(then.spot, parts[key], lasting)


def _moved(before: Spot, after: Spot, renaming: Renaming, *, renumbered: bool) -> bool:
    other_node = None not in {before.numa, after.numa} and before.numa != after.numa
    return not renaming.kept(before, after) or (other_node and not renumbered)


def _changed(gpus: Matched[GpuNode], nics: Matched[NicNode]) -> Paths:
    keys = {then.key: now.key for then, now in gpus.pairs}
    old, new = dict[Pair, str](), dict[Pair, str]()
    for then, now in nics.pairs:
        told = {keys[reach.gpu]: reach.path for reach in then.paths if reach.gpu in keys}
        for reach in now.paths:
            one, other = told.get(reach.gpu, ""), reach.path
            if one and other and one != other:
                old[reach.gpu, now.key], new[reach.gpu, now.key] = one, other
    here: list[tuple[Node, Node]] = [*gpus.pairs, *nics.pairs]
    return Paths(old, new, {now.key: then.key for then, now in here})


def _without(paths: Paths, pairs: Sequence[Pair]) -> Paths:
    gone = set(pairs)
    return Paths(
        {pair: path for pair, path in paths.before.items() if pair not in gone},
        {pair: path for pair, path in paths.after.items() if pair not in gone},
        paths.was,
    )


def _by_numa(pair: Pair, paths: Paths, moved: Mapping[str, Node]) -> bool:
    still = not any(key in moved for key in pair)
    return still and {paths.before[pair], paths.after[pair]} == _NUMA_ONLY


def _to_blame(pairs: Mapping[Pair, str], moved: Mapping[str, Node], gpus: Matched[GpuNode]) -> str:
    """The part that explains most: one that moved before one that did not, a NIC before a GPU."""
    counts = Counter(key for pair in pairs for key in pair)
    are_gpus = {now.key for _, now in gpus.pairs}
    return min(counts, key=lambda key: (key not in moved, -counts[key], key in are_gpus, key))


def _path_change(key: str, pairs: Sequence[Pair], paths: Paths, parts: Mapping[str, Node]) -> Change:
    groups: dict[tuple[Path, Path], list[Node]] = {}
    for pair in pairs:
        far = parts[next(end for end in pair if end != key)]
        groups.setdefault((Path[paths.before[pair]], Path[paths.after[pair]]), []).append(far)
    ranked = sorted(groups.items(), key=lambda group: (group[0][0] - group[0][1], group[0]))
    words = [f"from {one.name} to {other.name} for {several(far)}" for (one, other), far in ranked]
    ends = [(next(end for end in pair if end != key), pair) for pair in sorted(pairs)]
    before = ", ".join(sorted(f"{paths.was[far]} {paths.before[pair]}" for far, pair in ends))
    after = ", ".join(sorted(f"{far} {paths.after[pair]}" for far, pair in ends))
    worse = any(other > one for one, other in groups)
    text = f"{part_name(parts[key])} moved {'; '.join(words)}"
    return Change(Kind.PCIE_PATH, key, before, after, text, worse)


def _lasting(graph: Graph, part: Node) -> str:
    """Where a part hangs, without the numbers of buses: what else is below its root, then device numbers."""
    spot = part.spot
    beside = (one.name for one in graph.parts if one.spot.root == spot.root and one.key != part.key)
    root = min(filter(None, beside), default="nothing else")
    return " > ".join((f"root of {root}", *map(device_number, spot.bridges)))


def _place_change(before: Spot, part: Node, lasting: tuple[str, str]) -> Change:
    after = part.spot
    told = [" > ".join(spot.chain) for spot in (before, after)]
    nodes = [f"NUMA node {spot.numa}" for spot in (before, after)]
    known = None not in {before.numa, after.numa} and before.numa != after.numa
    ends = [f", {node}" if known else "" for node in nodes]
    words = nodes if before.chain == after.chain else [told[0] + ends[0], told[1] + ends[1]]
    text = f"{part_name(part)} moved from {words[0]} to {words[1]}"
    return Change(Kind.PCIE_PLACE, part.key, lasting[0] + ends[0], lasting[1] + ends[1], text, worse=True)
