"""Topologies to look at and to compare: this node's, a recording's, or one that was written down."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from wirewatch.cli.check.daemon import place
from wirewatch.cli.tables import table
from wirewatch.collectors.topology import read_topology
from wirewatch.core.ports import Hardware
from wirewatch.core.topology import SWITCH, Topology
from wirewatch.core.types import Absent, Unusable
from wirewatch.documents.drift import DiffDocument
from wirewatch.documents.state import TOPOLOGY
from wirewatch.hw.httpclient import NoAnswer, request
from wirewatch.hw.recording import BUNDLED
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.graph import (
    GpuNode,
    Graph,
    NicNode,
    fingerprint,
    identity,
    natural,
    numbers,
    part_name,
    unknown_text,
)

DEADLINE = 5.0
"""Seconds for the daemon's answer."""
LIMIT = 64 << 20
"""Bytes of a document; more is not one of ours."""


@dataclass(frozen=True, slots=True)
class Told:
    """A topology, what it is of in words, and when it was read (Unix seconds)."""

    topology: Topology
    of: str
    at: float


ORDER = ("failed", "degraded", "ok")
NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""PCI paths, the nearest first."""


def of_this_node(config: Path | None, socket: str | None) -> Told:
    """As the daemon knows it; where none answers, by a look of our own.

    Raises:
        Unusable: the configuration cannot be used, or the node cannot be read.
    """
    path = place(socket, config).socket
    told = _of_daemon(path) if path else "no socket is configured to ask a daemon at"
    if isinstance(told, Told):
        return told
    if socket is not None:
        raise Unusable(told)
    return _own_look(config)


def of_recording(name: str) -> Told:
    """The first moment of a recording: a folder, or the name of a bundled one.

    Raises:
        Unusable: it cannot be played, or holds no topology.
    """
    from wirewatch.cli.hardware import replayed

    hardware, nvml = replayed(name, (), loop=False)
    try:
        return _read(hardware, f"recording {Path(name).name}")
    finally:
        nvml.stop()


def given_graph(name: str) -> Graph:
    """The baseline of a product that a configuration names.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    from wirewatch.config import ConfigError

    try:
        return graph_of(of_name(name).topology)
    except click.UsageError as error:
        raise ConfigError(f"drift.baseline: {error.message}") from error


def of_name(name: str) -> Told:
    """A document that `topology show --json` or `/api/v1/topology` gave, or a recording.

    Raises:
        Unusable: it is neither.
    """
    path = Path(name)
    if path.is_dir() or (BUNDLED / name).is_dir():
        return of_recording(name)
    try:
        with path.open("rb") as file:
            body = file.read(LIMIT)
        told = TOPOLOGY.validate_json(body)
    except OSError as error:
        raise click.UsageError(f"{name}: neither a recording nor a document: {error.strerror}") from error
    except ValueError as error:
        raise click.UsageError(f"{name}: not a document wirewatch.topology/1") from error
    if told.topology is None:
        raise click.UsageError(f"{name}: it was written before the topology was read for the first time")
    return Told(told.topology, path.name, told.at)


def text(told: Told) -> str:
    """Names of the shape and of the node, its islands, GPUs and NICs."""
    graph = graph_of(told.topology)
    return "\n".join(_lines(told, graph))


def changes(document: DiffDocument) -> Iterator[str]:
    """The worst first."""
    yield f"{document.before} -> {document.after}: {_count(len(document.changes))}"
    for health in ORDER:
        for one in document.changes:
            if one.health == health:
                yield f"  {_word(health):<12}{one.kind:<13}{one.text}"
    if document.unknown:
        yield f"  not known, and so no change ({len(document.unknown)}):"
        yield from (f"    {line}" for line in document.unknown)


def baseline(told: Mapping[str, Any]) -> Iterator[str]:
    """Of the document `wirewatch.topology-drift/1`."""
    base = told["baseline"]
    if base is None:
        yield f"no baseline yet: {told['learning'] or 'the topology has not been read'}"
        return
    shape = f", shape {base['shape']}" if base["shape"] else ""
    yield f"baseline of {_time(base['at'])}, {base['origin']} by {base['by']}: {base['why']}"
    yield f"  {base['gpus']} GPUs, {base['nics']} NICs{shape}"
    for one in base["accepted"]:
        yield f"  since then {one['by']} accepted at {_time(one['at'])}: {one['text']} ({one['why']})"
    yield f"  {_count(len(told['changes']))} since then that nobody has accepted"


def drift(told: Mapping[str, Any]) -> Iterator[str]:
    """The same with every change, the worst first."""
    yield from baseline(told)
    for health in ORDER:
        for one in told["changes"]:
            if one["health"] == health:
                yield f"  {one['id']}  {_word(health):<12}{one['kind']:<13}{one['text']}"
    if told["unknown"]:
        yield f"  not known now, and so no change ({len(told['unknown'])}):"
        yield from (f"    {line}" for line in told["unknown"])


def _of_daemon(path: str) -> Told | str:
    """What the daemon knows, or why it has not told."""
    try:
        _, body = request(path, "GET", "/api/v1/topology", None, DEADLINE)
        told = TOPOLOGY.validate_json(body)
    except NoAnswer as error:
        return str(error)
    except ValueError:
        return f"{path}: what answers there is not this version of wirewatch"
    if told.topology is None:
        return f"{path}: the daemon has not read the topology yet"
    return Told(told.topology, "this node, as its daemon knows it", told.at)


def _own_look(config: Path | None) -> Told:
    from wirewatch.cli.hardware import live
    from wirewatch.collectors import discover
    from wirewatch.config import load

    hardware, nvml = live(load(config, discover())[0])
    try:
        return _read(hardware, "this node")
    finally:
        nvml.stop()


def _read(hardware: Hardware, of: str) -> Told:
    told = read_topology(hardware)
    if isinstance(told, Absent):
        raise Unusable(f"the topology of {of} cannot be read: {told}")
    return Told(told, of, hardware.clock.now())


def _lines(told: Told, graph: Graph) -> Iterator[str]:
    yield f"{told.of}: {len(graph.gpus)} GPUs, {len(graph.nics)} NICs"
    for name, value in (("shape", fingerprint(graph)), ("node", identity(graph))):
        yield f"  {name:<8}{f'has no name: {value.detail}' if isinstance(value, Absent) else value}"
    for island in graph.islands:
        members = [gpu.index for gpu in graph.gpus if gpu.key in island.gpus]
        yield f"  island  GPUs {numbers(members)}: {island.kind}"
    for clique in sorted({gpu.clique for gpu in graph.gpus if gpu.clique}):
        members = [gpu.index for gpu in graph.gpus if gpu.clique == clique]
        yield f"  clique  GPUs {numbers(members)}: {clique}"
    yield ""
    yield from table(("gpu", "product", "NVLink", "NUMA", "PCI", "nearest NICs"), [*_gpus(graph)])
    if graph.nics:
        yield ""
        yield from table(("nic", "model", "firmware", "NUMA", "PCI", "ports"), [*_nics(graph)])
    yield ""
    yield ", ".join(f"{name} {version or 'not known'}" for name, version in graph.versions)
    if graph.unknown:
        yield ""
        yield "not known:"
        yield from (f"  {unknown_text(graph, one)}" for one in graph.unknown)


def _gpus(graph: Graph) -> Iterator[tuple[str, ...]]:
    for gpu in sorted(graph.gpus, key=lambda gpu: gpu.index):
        numa = "-" if gpu.spot.numa is None else str(gpu.spot.numa)
        yield part_name(gpu), gpu.product, _wires(graph, gpu), numa, gpu.spot.address, _nearest(graph, gpu)


def _wires(graph: Graph, gpu: GpuNode) -> str:
    if not gpu.read:
        return "not read"
    names = {one.key: part_name(one) for one in graph.gpus} | {SWITCH: "the switch"}
    told = [f"{len(wire.links)} to {names.get(wire.peer, wire.peer)}" for wire in gpu.wires]
    return ", ".join(told) or "none"


def _nearest(graph: Graph, gpu: GpuNode) -> str:
    paths = [(one.path, nic.device) for nic in graph.nics for one in nic.paths if one.gpu == gpu.key]
    best = next((near for near in NEAR if any(path == near for path, _ in paths)), "")
    names = sorted((device for path, device in paths if path == best), key=natural)
    return f"{', '.join(names)} ({best})" if best else "-"


def _nics(graph: Graph) -> Iterator[tuple[str, ...]]:
    for nic in sorted(graph.nics, key=lambda nic: natural(nic.device)):
        numa = "-" if nic.spot.numa is None else str(nic.spot.numa)
        yield nic.device, nic.model, nic.firmware, numa, nic.spot.address, _ports(nic)


def _ports(nic: NicNode) -> str:
    return ", ".join(f"{port} {layer}".rstrip() for port, layer in nic.ports)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _word(health: str) -> str:
    return "information" if health == "ok" else health.upper()


def _count(number: int) -> str:
    return "no change" if not number else f"{number} change{'' if number == 1 else 's'}"
