"""The graph as text for Graphviz and for Mermaid: PCI clusters, GPUs, NICs, and NVLink with counts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from wirewatch.core.topology import SWITCH, UNKNOWN_PEER
from wirewatch.verdict.drift.graph import GpuNode, Graph, NicNode, Node, natural, part_name

_PEERS = {SWITCH: "NVSwitch", UNKNOWN_PEER: "peers not known"}
_CONTROL = (*range(32), *range(127, 160), 0x2028, 0x2029)
"""Characters that end or garble a line."""
_DOT = str.maketrans({'"': r"\"", "\\": r"\\", **{chr(n): " " for n in _CONTROL}})
_MERMAID = str.maketrans(
    {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\\": "#92;"}
    | {chr(n): " " for n in _CONTROL}
)


@dataclass(slots=True)
class _Cluster:
    """A NUMA node, root or bridge; `leaves` are the lines of each part's label."""

    below: dict[str, "_Cluster"] = field(default_factory=dict)
    leaves: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Edge:
    one: str
    other: str
    label: str


def dot(graph: Graph) -> str:
    """Graphviz: `dot -Tsvg`."""
    ids = _ids(graph)
    lines = ["graph topology {", '  node [shape="box"];']
    lines += _dot_cluster(_tree(graph, ids), "  ", _counter("cluster"))
    lines += [f'  {key} [label="{text}", shape="ellipse"];' for key, text in _others(graph)]
    lines += [f'  {e.one} -- {e.other} [label="{e.label}"];' for e in _edges(graph, ids)]
    return "\n".join([*lines, "}", ""])


def mermaid(graph: Graph) -> str:
    """A Mermaid flowchart."""
    ids = _ids(graph)
    lines = ["flowchart TB", *_mermaid_cluster(_tree(graph, ids), "  ", _counter("cluster"))]
    lines += [f'  {key}(["{text}"])' for key, text in _others(graph)]
    lines += [f'  {e.one} ---|"{e.label}"| {e.other}' for e in _edges(graph, ids)]
    return "\n".join([*lines, ""])


def _ids(graph: Graph) -> dict[int, str]:
    """Names in the drawing by the identity of the part, since a key may be empty."""
    return {
        id(part): f"{kind}{n}"
        for kind, parts in (("gpu", _gpus(graph)), ("nic", _nics(graph)))
        for n, part in enumerate(parts)
    }


def _gpus(graph: Graph) -> Sequence[GpuNode]:
    return sorted(graph.gpus, key=lambda gpu: (gpu.index, gpu.key))


def _nics(graph: Graph) -> Sequence[NicNode]:
    return sorted(graph.nics, key=lambda nic: (natural(nic.device), nic.key))


def _parts(graph: Graph) -> Sequence[Node]:
    return [*_gpus(graph), *_nics(graph)]


def _tree(graph: Graph, ids: dict[int, str]) -> _Cluster:
    top = _Cluster()
    for part in _parts(graph):
        node = () if part.spot.numa is None else (f"NUMA node {part.spot.numa}",)
        at = top
        for name in (*node, *(part.spot.chain or ("PCI place not known",))):
            at = at.below.setdefault(name, _Cluster())
        at.leaves.append((ids[id(part)], _label(part)))
    return top


def _label(part: Node) -> tuple[str, ...]:
    what = part.product if isinstance(part, GpuNode) else part.model
    wires = ("NVLink not known",) if isinstance(part, GpuNode) and not part.read else ()
    lines = (part_name(part), what, part.spot.address, *wires)
    return tuple(line for line in lines if line)


def _others(graph: Graph) -> Iterable[tuple[str, str]]:
    peers = {wire.peer for gpu in graph.gpus for wire in gpu.wires}
    return [(key, text) for key, text in _PEERS.items() if key in peers]


def _edges(graph: Graph, ids: dict[int, str]) -> Iterator[_Edge]:
    """Links between two GPUs once, with both counts where the ends do not agree."""
    gpus = _gpus(graph)
    counts = {(gpu.key, wire.peer): len(wire.links) for gpu in gpus for wire in gpu.wires}
    for n, one in enumerate(gpus):
        for other in gpus[n + 1 :]:
            ends = [counts.get((one.key, other.key), 0), counts.get((other.key, one.key), 0)]
            known = [end for end, gpu in zip(ends, (one, other), strict=True) if gpu.read and gpu.key]
            if any(known):
                label = " or ".join(str(end) for end in dict.fromkeys(known))
                yield _Edge(ids[id(one)], ids[id(other)], f"{label} links")
        for peer in _PEERS:
            if (one.key, peer) in counts:
                yield _Edge(ids[id(one)], peer, f"{counts[one.key, peer]} links")


def _counter(name: str) -> Callable[[], str]:
    numbers = iter(range(1_000_000))
    return lambda: f"{name}{next(numbers)}"


def _folded(name: str, cluster: _Cluster) -> tuple[str, _Cluster]:
    """A bridge with nothing but one bridge below is written with it."""
    while len(cluster.below) == 1 and not cluster.leaves and not name.startswith("NUMA"):
        ((inner, cluster),) = cluster.below.items()
        name = f"{name} / {inner}"
    return name, cluster


def _clusters(cluster: _Cluster) -> Iterable[tuple[str, _Cluster]]:
    return sorted((_folded(name, below) for name, below in cluster.below.items()), key=lambda one: one[0])


def _dot_cluster(cluster: _Cluster, indent: str, fresh: Callable[[], str]) -> Iterator[str]:
    for name, below in _clusters(cluster):
        yield f"{indent}subgraph {fresh()} {{"
        yield f'{indent}  label="{name.translate(_DOT)}";'
        yield from _dot_cluster(below, f"{indent}  ", fresh)
        yield f"{indent}}}"
    for key, label in cluster.leaves:
        lines = r"\n".join(line.translate(_DOT) for line in label)
        yield f'{indent}{key} [label="{lines}"];'


def _mermaid_cluster(cluster: _Cluster, indent: str, fresh: Callable[[], str]) -> Iterator[str]:
    for name, below in _clusters(cluster):
        yield f'{indent}subgraph {fresh()}["{name.translate(_MERMAID)}"]'
        yield from _mermaid_cluster(below, f"{indent}  ", fresh)
        yield f"{indent}end"
    for key, label in cluster.leaves:
        lines = "<br/>".join(line.translate(_MERMAID) for line in label)
        yield f'{indent}{key}["{lines}"]'
