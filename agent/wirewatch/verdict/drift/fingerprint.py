"""Short names for what a node is: for its shape, and for this very node."""

import hashlib
from collections.abc import Sequence

from wirewatch.core.types import Absent, Why
from wirewatch.verdict.drift.graph import GpuNode, Graph, NicNode, Node, Unknown, What
from wirewatch.verdict.drift.words import unknown_text

_BYTES = 8
_SHAPE = frozenset({What.PRODUCT, What.PORTS, What.PLACE, What.NUMA, What.NVLINK, What.PEERS, What.NODES})
_Relations = Sequence[Sequence[tuple[int, int, bool]]]
"""Of each part to each other: NVLink links, bridges shared, whether they are on one NUMA node."""


def fingerprint(graph: Graph) -> str | Absent:
    """16 hexadecimal digits that nodes of one product with the same wiring share.

    Good for a fleet: which nodes are built alike, which one is not, which baseline of a product applies. It
    knows products, counts of links, the PCI tree and NUMA nodes; no names, versions, firmware or addresses.
    Shapes that differ have another with all but certainty; the same shape always has the same.

    Returns:
        Absent while something of that is not known. NUMA nodes that no part tells are a fact of the machine.
    """
    return _named(graph, _SHAPE, names=False)


def identity(graph: Graph) -> str | Absent:
    """The same with UUIDs and GUIDs: 16 digits for this very node with these very parts.

    Good to see that a baseline is another node's, or that a part was replaced. Drivers and firmware do not
    change it.
    """
    return _named(graph, _SHAPE | {What.NAME}, names=True)


def _named(graph: Graph, needed: frozenset[What], *, names: bool) -> str | Absent:
    missing = [one for one in graph.unknown if one.what in needed and not _never_told(graph, one)]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return Absent(Why.MISSING, f"not known: {unknown_text(graph, missing[0])}{more}")
    parts = graph.parts
    first = [_digest(_facts(graph, part, names=names)) for part in parts]
    relations = [[_relation(graph, one, other) for other in parts] for one in parts]
    settled = _refined(first, relations)
    # Regular meshes look alike from every GPU: each is marked in turn, to see what that does to the others.
    crowded = {colour for colour in settled if settled.count(colour) > 1}
    views = [
        sorted(_refined([_digest(c, i == n) for i, c in enumerate(settled)], relations))
        for n in range(len(parts))
        if settled[n] in crowded
    ]
    return _digest(graph.numa_nodes, sorted(settled), sorted(views))


def _never_told(graph: Graph, unknown: Unknown) -> bool:
    return unknown.what is What.NUMA and all(part.spot.numa is None for part in graph.parts)


def _digest(*facts: object) -> str:
    return hashlib.blake2s(repr(facts).encode(), digest_size=_BYTES).hexdigest()


def _facts(graph: Graph, part: Node, *, names: bool) -> tuple[object, ...]:
    name = part.name if names else ""
    depth = len(part.spot.branch)
    if isinstance(part, NicNode):
        return ("nic", part.model, part.ports, depth, name)
    island = next((one.kind, len(one.gpus)) for one in graph.islands if part.key in one.gpus)
    known = {gpu.key for gpu in graph.gpus}
    outside = sum(len(wire.links) for wire in part.wires if wire.peer not in known)
    return ("gpu", part.product, outside, island, depth, name)


def _relation(graph: Graph, one: Node, other: Node) -> tuple[int, int, bool]:
    between = 0
    if isinstance(one, GpuNode) and isinstance(other, GpuNode):
        between = sum(len(wire.links) for wire in one.wires if wire.peer == other.key)
    branches = zip(one.spot.branch, other.spot.branch, strict=False)
    shared = next((i for i, (a, b) in enumerate(branches) if a != b), None)
    least = min(len(one.spot.branch), len(other.spot.branch))
    near = graph.numa_nodes == 1 or one.spot.numa == other.spot.numa
    return (between, least if shared is None else shared, near)


def _refined(colours: Sequence[str], relations: _Relations) -> Sequence[str]:
    """Colours that tell parts apart by their relations to parts of each colour, until no more are told."""
    now = list(colours)
    while True:
        new = [_digest(now[i], sorted(zip(relations[i], now, strict=True))) for i in range(len(now))]
        if len(set(new)) == len(set(now)):
            return new
        now = new
