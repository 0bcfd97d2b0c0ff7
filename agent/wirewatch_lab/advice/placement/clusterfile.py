"""The file of a cluster's nodes, in TOML or JSON, and what `scontrol show topology` prints of them."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from wirewatch.core.hostlist import HostlistError, expanded, natural, topology_places
from wirewatch.core.types import Health, NotText, utf8
from wirewatch.documents.health import Health as HealthName
from wirewatch_lab.advice.described import PORTS
from wirewatch_lab.advice.placement.cluster import Cluster, ClusterNode, Indices, Wiring, wiring

LIMIT = 64 << 20
"""Bytes of a file."""
MOST_NODES = 65536
MOST_GPUS = 128
GB = 1e9
_PORTS = re.compile(rf"(\d{{1,3}})x({'|'.join(PORTS)})", re.ASCII | re.IGNORECASE)
Label = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$|^$")]
Index = Annotated[int, Field(ge=0, lt=MOST_GPUS)]


class ClusterError(Exception):
    """A file that does not describe a cluster; one line for people."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class NodesEntry(_Strict):
    """Nodes that are alike. `names`: one, or many in Slurm's form, such as gpu[001-016].

    `product`: of the GPUs, as NVML gives it or as people write it. `memory_gb`: of one GPU in 10^9 bytes; the
    product's where it is left out. `islands`: GPUs that NVLink joins inside the node, as numbers of GPUs in
    the order of their indices ([4, 4]) or as lists of indices; the product's where it is left out.
    `nvlink_domain`: that this node shares with others (NVL72). `rack`, `leaf`: where it is, empty if that is
    not known. `ports`: RDMA ports such as 8xNDR. `rails`: GPU i is on rail i modulo that. `cores`: of its
    processors. `busy`: GPUs in use. `health` left out: not stated, and taken as ok.
    """

    names: Annotated[str, Field(min_length=1)]
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)]
    product: Annotated[str, Field(max_length=100)] = ""
    memory_gb: Annotated[float, Field(gt=0, le=1e6)] | None = None
    islands: tuple[Annotated[int, Field(ge=1)], ...] | tuple[tuple[Index, ...], ...] | None = None
    nvlink_domain: Label = ""
    rack: Label = ""
    leaf: Label = ""
    ports: Annotated[str, Field(max_length=20)] = ""
    rails: Annotated[int, Field(ge=0, le=MOST_GPUS)] = 0
    cores: Annotated[int, Field(ge=0, le=4096)] = 0
    busy: tuple[Index, ...] = ()
    health: HealthName | None = None
    drained: bool = False


class StatesEntry(_Strict):
    """What is so of some of the nodes now; what it leaves out stays as their entry has it."""

    names: Annotated[str, Field(min_length=1)]
    busy: tuple[Index, ...] | None = None
    health: HealthName | None = None
    drained: bool | None = None


class ClusterFile(_Strict):
    """A whole file."""

    nodes: Annotated[tuple[NodesEntry, ...], Field(min_length=1)]
    states: tuple[StatesEntry, ...] = ()


DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.cluster.1": TypeAdapter(ClusterFile)}


def read_cluster(path: Path) -> Cluster:
    """The cluster of a file: JSON where it begins with a brace, else TOML.

    Raises:
        ClusterError: it cannot be read, or does not describe a cluster.
    """
    text = _text(path)
    try:
        data = (
            json.loads(text, object_pairs_hook=_object)
            if text.lstrip().startswith("{")
            else tomllib.loads(text)
        )
        # By way of JSON, where strict models take arrays for tuples.
        file = ClusterFile.model_validate_json(json.dumps(data))
    except ValidationError as error:
        raise ClusterError(f"{path}: {_first(error)}") from error
    except ClusterError as error:
        raise ClusterError(f"{path}: {error}") from error
    except TypeError as error:
        raise ClusterError(f"{path}: dates and times are not supported ({error})") from error
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"{path}: {_line(str(error))}") from error
    try:
        return Cluster(path.name, _nodes(file))
    except (ClusterError, HostlistError) as error:
        raise ClusterError(f"{path}: {error}") from error


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; as in TOML, no key may stand twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ClusterError(f"key {_line(repr(twice))} stands twice in one object")
    return made


def with_slurm_topology(cluster: Cluster, path: Path) -> Cluster:
    """The cluster with leafs, and racks of blocks, from what `scontrol show topology` printed.

    A switch of level 0 is a leaf, and a block is a rack. Nodes that the output does not have stay as they
    are; so do nodes of the output that the cluster does not have.

    Raises:
        ClusterError: it cannot be read, or has no switch with nodes and no block.
    """
    try:
        leafs, racks = topology_places(_text(path))
    except HostlistError as error:
        raise ClusterError(f"{path}: {error}") from error
    if not leafs and not racks:
        raise ClusterError(f"{path}: no line of `scontrol show topology` with nodes is in it")
    return replace(
        cluster,
        nodes=tuple(
            replace(node, leaf=leafs.get(node.name, node.leaf), rack=racks.get(node.name, node.rack))
            for node in cluster.nodes
        ),
    )


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT + 1)
    except (OSError, ValueError) as error:
        raise ClusterError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > LIMIT:
        raise ClusterError(f"{path}: more than {LIMIT >> 20} MiB")
    try:
        return utf8(data)
    except NotText as error:
        raise ClusterError(f"{path}: {error}") from error


def _nodes(file: ClusterFile) -> tuple[ClusterNode, ...]:
    found: dict[str, ClusterNode] = {}
    for entry in file.nodes:
        part = _wiring(entry)
        names = expanded(entry.names)
        if twice := next((name for name, n in Counter(names).items() if n > 1 or name in found), ""):
            raise ClusterError(f"{twice} is named twice")
        if len(found) + len(names) > MOST_NODES:
            raise ClusterError(f"more than {MOST_NODES} nodes")
        for name in names:
            found[name] = ClusterNode(
                name, part, entry.nvlink_domain, entry.rack, entry.leaf, frozenset(entry.busy),
                _health(entry.health), entry.drained, entry.rails, entry.cores,
            )  # fmt: skip
    for state in file.states:
        for name in expanded(state.names):
            if name not in found:
                raise ClusterError(f"states: no node is named {name}")
            found[name] = _changed(found[name], state)
    for node in found.values():
        _check(node)
    _check_domains(found.values())
    return tuple(sorted(found.values(), key=lambda node: natural(node.name)))


def _wiring(entry: NodesEntry) -> Wiring:
    if entry.ports and not _PORTS.fullmatch(entry.ports):
        raise ClusterError(f"ports {entry.ports!r}: give them as 8xNDR, of {', '.join(PORTS)}")
    if not entry.product.isprintable():
        raise ClusterError(f"product {entry.product!r} is not printable")
    given = None if entry.islands is None else tuple(_islands(entry.islands, entry))
    memory = None if entry.memory_gb is None else entry.memory_gb * GB
    return _alike(entry.product, entry.gpus, given, memory, entry.ports)


_alike = cache(wiring)


def _islands(given: Sequence[int] | Sequence[Indices], entry: NodesEntry) -> Iterator[Indices]:
    """Islands as indices; all GPUs are counted where sizes are given."""
    first = 0
    named: list[int] = []
    for one in given:
        members = one if isinstance(one, tuple) else tuple(range(first, first + one))
        first += len(members)
        named += members
        if not members or max(members) >= entry.gpus:
            raise ClusterError(f"islands of {entry.names}: it has {entry.gpus} GPUs, from 0 on")
        yield members
    if len(named) != len(set(named)):
        raise ClusterError(f"islands of {entry.names}: a GPU is in two of them")
    if isinstance(next(iter(given), ()), int) and first != entry.gpus:
        raise ClusterError(f"islands of {entry.names}: {first} GPUs in all, and the node has {entry.gpus}")


def _changed(node: ClusterNode, state: StatesEntry) -> ClusterNode:
    return replace(
        node,
        busy=node.busy if state.busy is None else frozenset(state.busy),
        health=node.health if state.health is None else _health(state.health),
        drained=node.drained if state.drained is None else state.drained,
    )


def _check(node: ClusterNode) -> None:
    if node.busy and max(node.busy) >= node.wiring.gpus:
        raise ClusterError(f"busy of {node.name}: it has {node.wiring.gpus} GPUs, from 0 on")
    if node.fabric and len(node.wiring.islands) > 1 and not node.wiring.why:
        raise ClusterError(f"{node.name}: a node in an nvlink_domain has no islands of its own")


def _check_domains(nodes: Iterable[ClusterNode]) -> None:
    """Nodes that share an NVLink domain are of one kind."""
    first: dict[str, ClusterNode] = {}
    for node in nodes:
        other = first.setdefault(node.fabric, node)
        if node.fabric and other.wiring.product != node.wiring.product:
            raise ClusterError(
                f"nvlink_domain {node.fabric}: {other.name} and {node.name} have different products"
            )


def _health(name: str | None) -> Health | None:
    return None if name is None else Health[name.upper()]


def _first(error: ValidationError) -> str:
    """The first error in one line: where, what, and the given value."""
    first: Mapping[str, Any] = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {_line(place)!r}"
    return f"{_line(place)}: {first['msg']}, got {_line(repr(first['input']))}"


def _line(text: str) -> str:
    """At most so much of it, on one line."""
    short = text if len(text) <= 120 else f"{text[:119]}…"  # noqa: PLR2004
    return "".join(c if c.isprintable() else " " for c in short)
