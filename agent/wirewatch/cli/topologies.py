"""Topologies of this node, of recordings and of documents: reading, text and graphs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.check.daemon import asked_socket
from wirewatch.cli.orders import document_or_reason
from wirewatch.core.hostlist import natural
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER, Topology
from wirewatch.core.types import Absent, NotText, Unanswered, utf8
from wirewatch.documents.state import TOPOLOGY
from wirewatch.verdict.drift.wiring import GpuNode, Graph, NicNode, Node, part_name

if TYPE_CHECKING:
    from wirewatch.core.ports import Hardware

LIMIT = 64 << 20
"""Most bytes of a document; a larger document is not ours."""
_PEERS = {SWITCH: "NVSwitch", UNKNOWN_PEER: "peers not known"}
_CONTROL = (*range(32), *range(127, 160), 0x2028, 0x2029)
"""Characters that end or garble a line."""
_DOT = str.maketrans({'"': r"\"", "\\": r"\\", **{chr(n): " " for n in _CONTROL}})
_MERMAID = str.maketrans(
    {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\\": "#92;"}
    | {chr(n): " " for n in _CONTROL}
)


@dataclass(frozen=True, slots=True)
class NamedTopology:
    """A topology, the name of its owner, and when it was read (Unix seconds)."""

    topology: Topology
    of: str
    at: float


@dataclass(slots=True)
class _Cluster:
    """A NUMA node, PCI root or bridge; each leaf is the key of a part and the lines of its label."""

    below: dict[str, "_Cluster"] = field(default_factory=dict)
    leaves: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


def of_this_node(config: Path | None, socket: str | None) -> NamedTopology:
    """Return the topology of the daemon; if none answers, the topology that this command reads.

    Raises Unusable: the configuration cannot be used. Raises Unanswered: the node cannot be read.
    """
    path = asked_socket(socket, config)
    known = document_or_reason(path, "/api/v1/topology", TOPOLOGY)
    if not isinstance(known, str) and known.topology is not None:
        return NamedTopology(known.topology, "this node, as its daemon knows it", known.at)
    if socket is not None:
        raise Unanswered(
            known if isinstance(known, str) else f"{path}: the daemon has not read the topology yet"
        )
    from wirewatch.catalogue import discover
    from wirewatch.cli.hardware import live
    from wirewatch.config import load

    hardware, nvml = live(load(config, discover())[0])
    try:
        return _read(hardware, "this node")
    finally:
        nvml.stop()


def of_recording(name: str) -> NamedTopology:
    """The topology in the first moment of a recording: a folder, or the name of a bundled one.

    Raises Unusable: the recording cannot be played, or has no topology.
    """
    from wirewatch.cli.hardware import replayed

    hardware, nvml = replayed(name, (), loop=False)
    try:
        return _read(hardware, f"recording {Path(name).name}")
    finally:
        nvml.stop()


def given_graph(name: str) -> Graph:
    """Return the baseline of a product that a configuration names; raises ConfigError for another value."""
    from wirewatch.config import ConfigError
    from wirewatch.verdict.drift.canonical import graph_of

    try:
        return graph_of(of_name(name).topology)
    except click.UsageError as error:
        raise ConfigError(f"drift.baseline: {error.message}") from error


def of_name(name: str) -> NamedTopology:
    """The topology of a recording, or of a document from `topology show --json` or `/api/v1/topology`.

    Raises Unusable: the recording cannot be played. Raises UsageError: `name` is neither.
    """
    path = Path(name)
    if is_recording(name):
        return of_recording(name)
    try:
        with path.open("rb") as file:
            body = file.read(LIMIT)
        document = TOPOLOGY.validate_json(utf8(body))
    except OSError as error:
        raise click.UsageError(f"{name}: neither a recording nor a document: {error.strerror}") from error
    except NotText as error:
        raise click.UsageError(f"{name}: {error}") from error
    except ValueError as error:
        raise click.UsageError(f"{name}: not a document wirewatch.topology/1") from error
    if document.topology is None:
        raise click.UsageError(f"{name}: it was written before the topology was read for the first time")
    return NamedTopology(document.topology, path.name, document.at)


def is_recording(name: str) -> bool:
    """Return whether this names a folder, or a bundled recording."""
    from wirewatch.hw.recording import BUNDLED

    return Path(name).is_dir() or (BUNDLED / name).is_dir()


def dot(graph: Graph) -> str:
    """The graph in the language of Graphviz, for `dot -Tsvg`."""
    ids = _ids(graph)
    lines = ["graph topology {", '  node [shape="box"];']
    lines += _dot_cluster(_tree(graph, ids), "  ", count())
    lines += [f'  {key} [label="{text}", shape="ellipse"];' for key, text in _others(graph)]
    lines += [f'  {one} -- {other} [label="{label}"];' for one, other, label in _edges(graph, ids)]
    return "\n".join([*lines, "}", ""])


def mermaid(graph: Graph) -> str:
    """The graph as a Mermaid flowchart."""
    ids = _ids(graph)
    lines = ["flowchart TB", *_mermaid_cluster(_tree(graph, ids), "  ", count())]
    lines += [f'  {key}(["{text}"])' for key, text in _others(graph)]
    lines += [f'  {one} ---|"{label}"| {other}' for one, other, label in _edges(graph, ids)]
    return "\n".join([*lines, ""])


def _read(hardware: "Hardware", of: str) -> NamedTopology:
    from wirewatch.collectors.topology import read_topology

    topology = read_topology(hardware)
    if isinstance(topology, Absent):
        raise Unanswered(f"the topology of {of} cannot be read: {topology}")
    return NamedTopology(topology, of, hardware.clock.now())


def _ids(graph: Graph) -> dict[int, str]:
    """The name of each part in the drawing, by id() of the part, since keys may be empty."""
    return {
        id(part): f"{kind}{n}"
        for kind, parts in (("gpu", _drawn_gpus(graph)), ("nic", _drawn_nics(graph)))
        for n, part in enumerate(parts)
    }


def _drawn_gpus(graph: Graph) -> Sequence[GpuNode]:
    return sorted(graph.gpus, key=lambda gpu: (gpu.index, gpu.key))


def _drawn_nics(graph: Graph) -> Sequence[NicNode]:
    return sorted(graph.nics, key=lambda nic: (natural(nic.device), nic.key))


def _tree(graph: Graph, ids: dict[int, str]) -> _Cluster:
    top = _Cluster()
    parts: Sequence[Node] = [*_drawn_gpus(graph), *_drawn_nics(graph)]
    for part in parts:
        node = () if part.spot.numa is None else (f"NUMA node {part.spot.numa}",)
        at = top
        for name in (*node, *(part.spot.chain or ("PCI address not known",))):
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


def _edges(graph: Graph, ids: dict[int, str]) -> Iterator[tuple[str, str, str]]:
    """Return both ends and the label of each two connected GPUs: both counts where the ends do not agree."""
    gpus = _drawn_gpus(graph)
    counts = {(gpu.key, wire.peer): len(wire.links) for gpu in gpus for wire in gpu.wires}
    for n, one in enumerate(gpus):
        for other in gpus[n + 1 :]:
            ends = [counts.get((one.key, other.key), 0), counts.get((other.key, one.key), 0)]
            known = [end for end, gpu in zip(ends, (one, other), strict=True) if gpu.read and gpu.key]
            if any(known):
                label = " or ".join(str(end) for end in dict.fromkeys(known))
                yield ids[id(one)], ids[id(other)], f"{label} links"
        for peer in _PEERS:
            if (one.key, peer) in counts:
                yield ids[id(one)], peer, f"{counts[one.key, peer]} links"


def _folded(name: str, cluster: _Cluster) -> tuple[str, _Cluster]:
    """Return the bridge joined with the only bridge below it, level by level."""
    while len(cluster.below) == 1 and not cluster.leaves and not name.startswith("NUMA"):
        ((inner, cluster),) = cluster.below.items()
        name = f"{name} / {inner}"
    return name, cluster


def _clusters(cluster: _Cluster) -> Iterable[tuple[str, _Cluster]]:
    return sorted((_folded(*one) for one in cluster.below.items()), key=lambda one: one[0])


def _dot_cluster(cluster: _Cluster, indent: str, fresh: Iterator[int]) -> Iterator[str]:
    for name, below in _clusters(cluster):
        yield f"{indent}subgraph cluster{next(fresh)} {{"
        yield f'{indent}  label="{name.translate(_DOT)}";'
        yield from _dot_cluster(below, f"{indent}  ", fresh)
        yield f"{indent}}}"
    for key, label in cluster.leaves:
        lines = r"\n".join(line.translate(_DOT) for line in label)
        yield f'{indent}{key} [label="{lines}"];'


def _mermaid_cluster(cluster: _Cluster, indent: str, fresh: Iterator[int]) -> Iterator[str]:
    for name, below in _clusters(cluster):
        yield f'{indent}subgraph cluster{next(fresh)}["{name.translate(_MERMAID)}"]'
        yield from _mermaid_cluster(below, f"{indent}  ", fresh)
        yield f"{indent}end"
    for key, label in cluster.leaves:
        lines = "<br/>".join(line.translate(_MERMAID) for line in label)
        yield f'{indent}{key}["{lines}"]'
