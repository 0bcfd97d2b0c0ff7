"""Topologies to look at and to compare: this node's, a recording's, or one that was written down."""

from dataclasses import dataclass
from pathlib import Path

import click

from wirewatch.cli.checking.daemon import place
from wirewatch.collectors.topology import read_topology
from wirewatch.core.ports import Hardware
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent, Unusable
from wirewatch.documents.state import TOPOLOGY
from wirewatch.hw.httpclient import NoAnswer, request
from wirewatch.hw.recording import BUNDLED
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.graph import Graph

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


def _read(hardware: Hardware, of: str) -> Told:
    told = read_topology(hardware)
    if isinstance(told, Absent):
        raise Unusable(f"the topology of {of} cannot be read: {told}")
    return Told(told, of, hardware.clock.now())


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
