"""The differences between two graphs: one change for one cause, in words for people."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.hostlist import natural
from wirewatch.core.pci import Path
from wirewatch.core.statistics import grouped
from wirewatch.core.topology import UNKNOWN_PEER
from wirewatch.core.words import count
from wirewatch.verdict.drift.change import ChangeKind, TopologyChange
from wirewatch.verdict.drift.wiring import (
    GpuNode,
    Graph,
    Matched,
    NicNode,
    Node,
    Part,
    Renaming,
    TreePlace,
    device_number,
    links,
    match,
    numbers,
    part_name,
    peer_name,
    several,
)

Bundle = frozenset[str]
"""Keys of the GPUs at both ends; of one where the other end is the switch or not known."""
Ends = Mapping[str, tuple[int, ...]]
"""Links of each end."""


@dataclass(frozen=True, slots=True)
class GraphSide:
    """Peers by link, by GPU, in keys of the graph after; `alone`: GPUs whose links are not compared."""

    peers: Mapping[str, Mapping[int, str]]
    islands: tuple[tuple[str, ...], ...]
    alone: frozenset[str]

    def bundles(self, other: "GraphSide") -> Mapping[Bundle, Ends]:
        """Return links that are up here and not on the other side."""
        found: dict[Bundle, dict[str, tuple[int, ...]]] = {}
        for key, peers in self.peers.items():
            for link in sorted(peers.keys() - other.peers[key].keys()):
                if peers[link] not in self.alone:
                    ends = found.setdefault(frozenset({key, peers[link]} & self.peers.keys()), {})
                    ends[key] = (*ends.get(key, ()), link)
        return found

    def up(self, key: str) -> tuple[int, ...]:
        """Return links of a GPU, without links that are not compared."""
        return tuple(sorted(link for link, peer in self.peers[key].items() if peer not in self.alone))


@dataclass(frozen=True, slots=True)
class Direction:
    """Parts that went, or that came; `here` is the side that has it, `word` says what became of a link."""

    kind: ChangeKind
    word: str
    island: str
    here: GraphSide
    there: GraphSide

    @property
    def worse(self) -> bool:
        """Tell whether links went."""
        return self.kind is ChangeKind.NVLINK_LOST

    def order(self, here: str, there: str) -> tuple[str, str]:
        """Before and after."""
        return (here, there) if self.worse else (there, here)


Pair = tuple[str, str]
"""Keys of a GPU and a NIC of the graph after."""
Paths = Mapping[Pair, tuple[str, str]]
"""Path by pair, before and after, where both are known and differ."""


def diff(before: Graph, after: Graph) -> tuple[TopologyChange, ...]:
    """Return all changes by kind; none where a graph does not know, or only numbers or names differ."""
    gpus, nics, renaming = match(before, after)
    changes = [
        *_gpu_changes(gpus),
        *_clique_changes(gpus),
        *wire_changes(before, after, gpus),
        *_nic_changes(nics),
        *place_changes(before, after, gpus, nics, renaming),
        *_version_changes(before, after),
    ]
    order = list(ChangeKind)
    changes.sort(key=lambda one: (order.index(one.kind), natural(one.text), one.part))
    return tuple(changes)


def wire_changes(before: Graph, after: Graph, gpus: Matched[GpuNode]) -> Iterator[TopologyChange]:
    """All changes of NVLink among GPUs whose wires were read both times."""
    read = [(one, other) for one, other in gpus.pairs if one.read and other.read]
    # Another product has other links.
    pairs = [(one, other) for one, other in read if one.uuid == other.uuid or one.product == other.product]
    keys = {one.key: other.key for one, other in gpus.pairs}
    now = {other.key: other for _, other in pairs}
    off = frozenset(other.key for one, other in gpus.pairs if one.off or other.off)
    then = _side(before, {other.key: one for one, other in pairs}, keys, off)
    today = _side(after, now, {other.key: other.key for _, other in gpus.pairs}, off)
    moved = _moved_links(then, today)
    for key, groups in moved.items():
        for (old, new), which in groups.items():
            old_name, new_name = peer_name(old, (*after.gpus, *before.gpus)), peer_name(new, after.gpus)
            goes = f"{links(which)} {'goes' if len(which) == 1 else 'go'}"
            text = f"{part_name(now[key])}: NVLink {goes} to {new_name} instead of {old_name}"
            was, is_now = (f"{numbers(which)} to {peer}" for peer in (old, new))
            yield TopologyChange(ChangeKind.NVLINK_PEER, key, was, is_now, text, worse=True)
    for turn in (
        Direction(ChangeKind.NVLINK_LOST, "down", "broke up into", then, today),
        Direction(ChangeKind.NVLINK_NEW, "came up", "grew together from", today, then),
    ):
        yield from _turned(turn, now, frozenset(moved))


def place_changes(
    before: Graph, after: Graph, gpus: Matched[GpuNode], nics: Matched[NicNode], renaming: Renaming
) -> Iterator[TopologyChange]:
    """All changes of places, paths and NUMA nodes."""
    nodes = (before.numa_nodes, after.numa_nodes)
    renumbered = None not in nodes and nodes[0] != nodes[1]
    if renumbered:
        text = f"node: {nodes[0]} -> {nodes[1]} NUMA nodes"
        yield TopologyChange(ChangeKind.NUMA, "", str(nodes[0]), str(nodes[1]), text, worse=True)
    present: list[Node] = [*(now for _, now in gpus.pairs), *(now for _, now in nics.pairs)]
    stayed: list[tuple[Node, Node]] = [*gpus.same, *nics.same]
    parts = {node.key: node for node in present}
    moved = {
        now.key: then
        for then, now in stayed
        if then.name and now.name and _moved(then.spot, now.spot, renaming, renumbered=renumbered)
    }
    was: dict[str, str] = {now.key: then.key for then, now in gpus.pairs}
    was |= {now.key: then.key for then, now in nics.pairs}
    paths = _changed(gpus, nics)
    if renumbered:
        # Where neither end moved, the path is another by the nodes alone.
        paths = {pair: ends for pair, ends in paths.items() if not moved.keys().isdisjoint(pair)}
    reported = set[str]()
    while paths:
        key = _to_blame(paths, moved, gpus)
        reported.add(key)
        yield _path_change(key, {pair: ends for pair, ends in paths.items() if key in pair}, was, parts)
        paths = {pair: ends for pair, ends in paths.items() if key not in pair}
    for key, then in moved.items():
        if key not in reported:
            lasting = _lasting(before, then), _lasting(after, parts[key])
            yield _place_change(then.spot, parts[key], lasting)


def _gone_and_new(
    parts: Matched[Part], lost: ChangeKind, new: ChangeKind, facts: Callable[[Part], str]
) -> Iterator[TopologyChange]:
    for part in parts.lost:
        text = f"{part_name(part)} is gone: {facts(part)}"
        yield TopologyChange(lost, part.key, part.key, "", text, worse=True)
    for part in parts.new:
        text = f"{part_name(part)} is new: {facts(part)}"
        yield TopologyChange(new, part.key, "", part.key, text, worse=False)


def _gpu_changes(gpus: Matched[GpuNode]) -> Iterator[TopologyChange]:
    yield from _gone_and_new(gpus, ChangeKind.GPU_LOST, ChangeKind.GPU_NEW, _gpu_facts)
    for old, new in gpus.replaced:
        text = f"{part_name(new)} replaced {part_name(old)}{_other(old.product, new.product)}"
        yield TopologyChange(ChangeKind.GPU_REPLACED, new.key, old.key, new.key, text, worse=False)
    for old, new in gpus.same:
        if _differ(old.product, new.product):
            text = f"{part_name(new)}: product {old.product} -> {new.product}"
            yield TopologyChange(ChangeKind.GPU_PRODUCT, new.key, old.product, new.product, text, worse=False)


def _clique_changes(gpus: Matched[GpuNode]) -> Iterator[TopologyChange]:
    """A rack is partitioned for all GPUs of a node at once: one change for all that went the same way."""
    ways = grouped(
        ((old.clique, new.clique), new)
        for old, new in sorted(gpus.same, key=lambda pair: (pair[1].index, pair[1].key))
        if old.clique is not None and new.clique is not None and old.clique != new.clique
    )
    for (was, now), members in ways.items():
        text = f"{several(members)}: fabric clique {was or 'none'} -> {now or 'none'}"
        yield TopologyChange(ChangeKind.CLIQUE, members[0].key, was, now, text, worse=bool(was))


def _gpu_facts(gpu: GpuNode) -> str:
    return " at ".join(fact for fact in (gpu.product or "GPU", gpu.spot.address) if fact)


def _nic_changes(nics: Matched[NicNode]) -> Iterator[TopologyChange]:
    yield from _gone_and_new(nics, ChangeKind.NIC_LOST, ChangeKind.NIC_NEW, _nic_facts)
    for old, new in nics.replaced:
        text = f"{new.device}: GUID {old.guid} replaced by {new.guid}{_other(old.model, new.model)}"
        yield TopologyChange(ChangeKind.NIC_REPLACED, new.key, old.key, new.key, text, worse=False)
    for old, new in nics.same:
        kind, name, was, now = ChangeKind.NIC_MODEL, "model", old.model, new.model
        if not _differ(was, now):
            kind, name, was, now = ChangeKind.NIC_FIRMWARE, "firmware", old.firmware, new.firmware
        if _differ(was, now):
            text = f"{new.device}: {name} {was} -> {now}"
            yield TopologyChange(kind, new.key, was, now, text, worse=False)
    for old, new in nics.pairs:
        yield from _port_changes(old, new)


def _nic_facts(nic: NicNode) -> str:
    """A name may be another NIC's today, a GUID not."""
    where = f" at {nic.spot.address}" if nic.spot.address else ""
    return f"{nic.model or 'NIC'}{where}{', GUID ' + nic.guid if nic.guid else ''}"


def _port_changes(old: NicNode, new: NicNode) -> Iterator[TopologyChange]:
    """Yield a single change for all ports of a NIC; a NIC that shows no port was not read."""
    one, other = dict(old.ports), dict(new.ports)
    if not one or not other:
        return
    gone, came = sorted(one.keys() - other.keys()), sorted(other.keys() - one.keys())
    changed = [port for port in sorted(one.keys() & other.keys()) if _differ(one[port], other[port])]
    words = [f"port {port} is gone" for port in gone]
    words += [f"port {port} {one[port]} -> {other[port]}" for port in changed]
    words += [f"port {port} is new" for port in came]
    if words:
        was, now = (
            ", ".join(f"{port} {side[port]}".strip() for port in (*gone, *changed, *came) if port in side)
            for side in (one, other)
        )
        worse = bool(gone or changed)
        text = f"{new.device}: {'; '.join(words)}"
        yield TopologyChange(ChangeKind.NIC_PORTS, new.key, was, now, text, worse)


def _version_changes(before: Graph, after: Graph) -> Iterator[TopologyChange]:
    then = dict(before.versions)
    for name, version in after.versions:
        if _differ(then.get(name, ""), version):
            text = f"{name} {then[name]} -> {version}"
            yield TopologyChange(ChangeKind.VERSION, name, then[name], version, text, worse=False)


def _differ(before: str, after: str) -> bool:
    """Tell whether both are known and differ."""
    return bool(before and after) and before != after


def _other(before: str, after: str) -> str:
    return f", {after} instead of {before}" if _differ(before, after) else ""


def _side(
    graph: Graph, nodes: Mapping[str, GpuNode], keys: Mapping[str, str], off: frozenset[str]
) -> GraphSide:
    return GraphSide(
        {key: {n: keys.get(peer, peer) for n, peer in gpu.peers().items()} for key, gpu in nodes.items()},
        tuple(tuple(keys[key] for key in one.gpus if key in keys) for one in graph.islands),
        off.union(gpu.key for gpu in graph.gpus if gpu.key not in keys),
    )


def _moved_links(
    then: GraphSide, today: GraphSide
) -> Mapping[str, Mapping[tuple[str, str], tuple[int, ...]]]:
    """Return links by old and new peer, by GPU, without links from a lost GPU to a new GPU."""
    found: dict[str, dict[tuple[str, str], tuple[int, ...]]] = {}
    for key, peers in then.peers.items():
        for link in sorted(peers.keys() & today.peers[key].keys()):
            ends = (peers[link], today.peers[key][link])
            explained = ends[0] in then.alone and ends[1] in today.alone
            if ends[0] != ends[1] and UNKNOWN_PEER not in ends and not explained:
                of_gpu = found.setdefault(key, {})
                of_gpu[ends] = (*of_gpu.get(ends, ()), link)
    return found


def _turned(turn: Direction, now: Mapping[str, GpuNode], moved: Collection[str]) -> Iterator[TopologyChange]:
    bundles = dict(turn.here.bundles(turn.there))
    for island in turn.here.islands:
        pieces = _pieces(island, turn, moved)
        inside = {key for piece in pieces for key in piece}
        cut = [bundle for bundle in bundles if bundle <= inside and not any(map(bundle.issubset, pieces))]
        if cut:
            wires = sum(max(len(which) for which in bundles.pop(bundle).values()) for bundle in cut)
            yield _island_change(pieces, wires, turn, now)
    for ends in bundles.values():
        yield _link_change(ends, turn, now)


def _pieces(island: Sequence[str], turn: Direction, moved: Collection[str]) -> list[tuple[str, ...]]:
    """Return how the other graph divides an island; undivided while part of it is not known or has moved."""
    sure = all(
        key in turn.here.peers
        and key not in moved
        and UNKNOWN_PEER not in {*turn.here.peers[key].values(), *turn.there.peers[key].values()}
        for key in island
    )
    if not sure:
        return [tuple(island)]
    parts = (tuple(sorted(set(island) & set(other))) for other in turn.there.islands)
    return sorted(part for part in parts if part)


def _island_change(
    pieces: Sequence[Sequence[str]], wires: int, turn: Direction, now: Mapping[str, GpuNode]
) -> TopologyChange:
    named = (
        ", ".join(part_name(gpu) for gpu in sorted((now[key] for key in piece), key=lambda gpu: gpu.index))
        for piece in sorted(pieces, key=lambda piece: min(now[key].index for key in piece))
    )
    text = f"NVLink island {turn.island} {' | '.join(named)}: {count(wires, 'link')} {turn.word}"
    whole = " ".join(sorted(key for piece in pieces for key in piece))
    before, after = turn.order(whole, " | ".join(" ".join(piece) for piece in pieces))
    return TopologyChange(ChangeKind.ISLAND, min(whole.split()), before, after, text, turn.worse)


def _link_change(ends: Ends, turn: Direction, now: Mapping[str, GpuNode]) -> TopologyChange:
    """One bundle of wires, described from the end with the lower key."""
    first, *others = sorted(ends)
    counts = turn.order(str(len(turn.here.up(first))), str(len(turn.there.up(first))))
    text = f"{part_name(now[first])}: NVLink {' -> '.join(counts)} links up, {links(ends[first])} {turn.word}"
    far = "".join(f" (with {links(ends[key])} of {part_name(now[key])})" for key in others)
    links_by_end = "; ".join(f"{key}: {numbers(ends[key])}" for key in sorted(ends))
    before, after = turn.order(links_by_end, "")
    return TopologyChange(turn.kind, first, before, after, text + far, turn.worse)


def _moved(before: TreePlace, after: TreePlace, renaming: Renaming, *, renumbered: bool) -> bool:
    other_node = None not in {before.numa, after.numa} and before.numa != after.numa
    return not renaming.kept(before, after) or (other_node and not renumbered)


def _changed(gpus: Matched[GpuNode], nics: Matched[NicNode]) -> Paths:
    keys = {then.key: now.key for then, now in gpus.pairs}
    found: dict[Pair, tuple[str, str]] = {}
    for then, now in nics.pairs:
        known = {keys[reach.gpu]: reach.path for reach in then.paths if reach.gpu in keys}
        for reach in now.paths:
            if _differ(known.get(reach.gpu, ""), reach.path):
                found[reach.gpu, now.key] = (known[reach.gpu], reach.path)
    return found


def _to_blame(pairs: Paths, moved: Mapping[str, Node], gpus: Matched[GpuNode]) -> str:
    """Return the part that explains most: a moved part before others, a NIC before a GPU."""
    counts = Counter(key for pair in pairs for key in pair)
    are_gpus = {now.key for _, now in gpus.pairs}
    return min(counts, key=lambda key: (key not in moved, -counts[key], key in are_gpus, key))


def _path_change(key: str, paths: Paths, was: Mapping[str, str], parts: Mapping[str, Node]) -> TopologyChange:
    ends = [(next(end for end in pair if end != key), *paths[pair]) for pair in sorted(paths)]
    groups = grouped(((Path[one], Path[other]), parts[far]) for far, one, other in ends)
    ranked = sorted(groups.items(), key=lambda group: (group[0][0] - group[0][1], group[0]))
    words = [f"from {one.name} to {other.name} for {several(far)}" for (one, other), far in ranked]
    before = ", ".join(sorted(f"{was[far]} {one}" for far, one, _ in ends))
    after = ", ".join(sorted(f"{far} {other}" for far, _, other in ends))
    worse = any(other > one for one, other in groups)
    text = f"{part_name(parts[key])} moved {'; '.join(words)}"
    return TopologyChange(ChangeKind.PCIE_PATH, key, before, after, text, worse)


def _lasting(graph: Graph, part: Node) -> str:
    """Where a part hangs, without the numbers of buses: what else is below its root, then device numbers."""
    spot = part.spot
    beside = (one.name for one in graph.parts if one.spot.root == spot.root and one.key != part.key)
    root = min(filter(None, beside), default="nothing else")
    return " > ".join((f"root of {root}", *map(device_number, spot.bridges)))


def _place_change(before: TreePlace, part: Node, lasting: tuple[str, str]) -> TopologyChange:
    after = part.spot
    places = [" > ".join(spot.chain) for spot in (before, after)]
    nodes = [f"NUMA node {spot.numa}" for spot in (before, after)]
    known = None not in {before.numa, after.numa} and before.numa != after.numa
    ends = [f", {node}" if known else "" for node in nodes]
    words = nodes if before.chain == after.chain else [places[0] + ends[0], places[1] + ends[1]]
    text = f"{part_name(part)} moved from {words[0]} to {words[1]}"
    was, now = lasting[0] + ends[0], lasting[1] + ends[1]
    return TopologyChange(ChangeKind.PCIE_PLACE, part.key, was, now, text, worse=True)
