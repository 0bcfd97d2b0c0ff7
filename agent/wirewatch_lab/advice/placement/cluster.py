"""A cluster: nodes with GPUs, NVLink islands, racks, leafs and health, and the file that lists them."""

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from wirewatch.busbw.profiles import PROFILES
from wirewatch.core.hostlist import HostlistError, expanded, natural, topology_places
from wirewatch.core.pci import Path as PciPath
from wirewatch.core.topology import Group, Island, WireKind, islands
from wirewatch.core.types import Absent, Health, NotText, Why, utf8
from wirewatch.core.words import GB
from wirewatch.documents.health import Health as HealthName
from wirewatch_lab.advice.described import PORTS, DescriptionError, described
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.products import gpu_product
from wirewatch_lab.study.curve import Study

Indices = tuple[int, ...]
"""GPUs of a node by index."""
_JOINED = frozenset({WireKind.SWITCH, WireKind.MESH, WireKind.PARTIAL, WireKind.PAIR})


@dataclass(frozen=True, slots=True)
class Wiring:
    """The wiring of a node's GPUs, shared by all equal nodes.

    `islands`: GPUs that NVLink joins; a lone GPU is an island of its own. `why`: why their NVLink is not
    known, empty where it is known. `machine`: the node for estimates of times. `memory`: bytes of one GPU.
    """

    product: str
    gpus: int
    islands: tuple[Indices, ...]
    memory: float | Absent
    machine: AdvisedMachine | Absent
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node. `fabric`: NVLink domain that it shares with other nodes (NVL72), empty for none.

    `rack`, `leaf`: empty where not known. `busy`: GPUs in use. `health` None: not stated. `rails`: number of
    rails, 0 where not known; GPU i is on rail i modulo this number. `cores`: processor cores, 0 where not
    known.
    """

    name: str
    wiring: Wiring
    fabric: str = ""
    rack: str = ""
    leaf: str = ""
    busy: frozenset[int] = frozenset()
    health: Health | None = None
    drained: bool = False
    rails: int = 0
    cores: int = 0

    def free(self) -> Iterator[Indices]:
        """Yield the free GPUs of each island that has any."""
        for island in self.wiring.islands:
            left = tuple(gpu for gpu in island if gpu not in self.busy)
            if left:
                yield left

    def unfit(self, *, degraded: bool) -> str:
        """Return why not to use it, empty if it is fit. `degraded`: DEGRADED nodes may be used."""
        if self.drained:
            return "drained"
        if self.health is None or self.health is Health.OK or (degraded and self.health is Health.DEGRADED):
            return ""
        return self.health.name


@dataclass(frozen=True, slots=True)
class NodePool:
    """`of` names it for people; `nodes` in natural order of their names, each name once."""

    of: str
    nodes: tuple[ClusterNode, ...]

    def usable(self, *, degraded: bool) -> tuple[ClusterNode, ...]:
        """Return the nodes that may be used."""
        return tuple(node for node in self.nodes if not node.unfit(degraded=degraded))

    def left_out(self, *, degraded: bool) -> Counter[str]:
        """Count unused nodes by reason."""
        return Counter(why for node in self.nodes if (why := node.unfit(degraded=degraded)))


def wiring(
    product: str, gpus: int, given: tuple[Indices, ...] | None, memory: float | None, ports: str
) -> Wiring:
    """Return a node's wiring by its product, as NVML or people name it; empty where not known.

    `given`: NVLink islands; GPUs outside every island are alone. `memory`: bytes of a GPU. Both override the
    product's data. `ports`: RDMA ports such as `8xNDR`, empty where not known.
    """
    known = gpu_product(product) if product else None
    size = memory if memory is not None else known.memory if known else _unknown_memory(product)
    machine = _machine(product, gpus, ports)
    name = known.name if known else product
    if given is not None:
        found = _whole(given, gpus)
        return Wiring(name, gpus, found, size, _with_islands(machine, found, product, ports))
    kind = None if isinstance(machine, Absent) else machine.conditions[0].group.kind
    if kind in _JOINED:
        return Wiring(name, gpus, (tuple(range(gpus)),), size, machine)
    alone = _whole((), gpus)
    if gpus == 1 or (known is not None and known.domain == 1):
        return Wiring(name, gpus, alone, size, machine)
    unknown = machine.detail if isinstance(machine, Absent) else f"{name} may be joined by bridges"
    return Wiring(name, gpus, alone, size, machine, f"it has no `islands`, and {unknown}")


def of_machine(machine: AdvisedMachine, name: str) -> NodePool:
    """Return a single node as a cluster, without regard to its health."""
    group = machine.conditions[0].group if machine.conditions else None
    why = ""
    if isinstance(machine.topology, Absent):
        parts = group.gpus if group else ()
        joined = group is not None and group.kind in _JOINED
        members = tuple(one.index for one in parts)
        found: tuple[Indices, ...] = (members,) if joined else tuple((one,) for one in members)
    else:
        parts = machine.topology.gpus
        seen = islands(machine.topology)
        doubts = [doubt for one in seen if one.kind is WireKind.UNKNOWN for doubt in one.why.split("; ")]
        # Each reason once, of doubts such as `GPU 0: no link`.
        why = "; ".join(dict.fromkeys(doubt.partition(": ")[2] or doubt for doubt in doubts))
        found = tuple(sorted(part for one in seen for part in _parts(one)))
    product = parts[0].name if parts else ""
    known = gpu_product(product)
    memory = known.memory if known else _unknown_memory(product)
    count = 1 + max((index for one in found for index in one), default=-1)
    wires = Wiring(known.name if known else product, count, found, memory, machine, why)
    node = ClusterNode(name, wires, health=Health.OK)
    return NodePool(machine.of, (node,))


def _parts(island: Island) -> list[Indices]:
    """Return the island as indices; its GPUs are alone without NVLink, or where nothing is known."""
    members = tuple(gpu.index for gpu in island.gpus)
    return [members] if island.kind in _JOINED else [(one,) for one in members]


def measured(cluster: NodePool, studies: Sequence[Study]) -> NodePool:
    """Return the cluster with one node's measurements, which then hold for all nodes."""
    if not studies:
        return cluster
    known: dict[int, Wiring] = {}

    def with_studies(of: Wiring) -> Wiring:
        if isinstance(of.machine, Absent):
            return of
        return known.setdefault(id(of), replace(of, machine=replace(of.machine, measured=tuple(studies))))

    nodes = (replace(node, wiring=with_studies(node.wiring)) for node in cluster.nodes)
    return replace(cluster, nodes=tuple(nodes))


def spread(machine: AdvisedMachine, gpus: int) -> AdvisedMachine:
    """Return the machine with the same GPUs in an NVLink domain of so many, over several hosts."""
    first = machine.conditions[0]
    one = first.group
    group = replace(one, gpus=(one.gpus * gpus)[:gpus], links=(one.links * gpus)[:gpus])
    return replace(machine, of=f"{gpus} GPUs of one NVLink domain", conditions=(replace(first, group=group),))


def over_pcie(machine: AdvisedMachine) -> AdvisedMachine:
    """Return the machine as its islands see each other: without NVLink."""
    return replace(machine, conditions=machine.conditions[:1])


def sharing(machine: AdvisedMachine, ranks: int) -> AdvisedMachine:
    """Return the machine with so many GPUs' share of the RDMA ports, since the others send too."""
    first = machine.conditions[0]
    if isinstance(first.network, Absent):
        return machine
    exact = len(first.network) * ranks / first.group.ranks
    ports = first.network[: math.ceil(exact)]
    rates = [one.rate if isinstance(one.rate, Absent) else one.rate * exact / len(ports) for one in ports]
    shared = tuple(replace(one, rate=rate) for one, rate in zip(ports, rates, strict=True))
    return replace(machine, conditions=tuple(replace(one, network=shared) for one in machine.conditions))


def _machine(product: str, gpus: int, ports: str) -> AdvisedMachine | Absent:
    if not product:
        return Absent(Why.MISSING, "its product is not known")
    try:
        return described(f"{gpus}x{product}" + (f"+{ports}" if ports else ""))
    except DescriptionError as error:
        return Absent(Why.UNSUPPORTED, str(error))


def _with_islands(
    machine: AdvisedMachine | Absent, found: Sequence[Indices], product: str, ports: str
) -> AdvisedMachine | Absent:
    """Return the machine with these islands instead of its product's, and the farthest path between them."""
    if isinstance(machine, Absent) or len(found) == 1:
        return machine
    whole = machine.conditions[0]
    gpus = whole.group.gpus
    joined = Group(gpus, WireKind.PCIE, (0,) * len(gpus), whole=True, crossing=PciPath.SYS)
    node = replace(whole, group=joined)
    parts = []
    for one in found:
        part = _machine(product, len(one), ports)
        if isinstance(part, Absent) or part.conditions[0].group.kind not in _JOINED:
            continue
        group = part.conditions[0].group
        members = tuple(gpus[index] for index in one)
        parts.append(replace(whole, group=replace(group, gpus=members, whole=False)))
    return replace(machine, conditions=(node, *parts))


def _whole(given: Sequence[Indices], gpus: int) -> tuple[Indices, ...]:
    named = {gpu for one in given for gpu in one}
    alone = [(gpu,) for gpu in range(gpus) if gpu not in named]
    return tuple(sorted((*(tuple(sorted(one)) for one in given), *alone)))


def _unknown_memory(product: str) -> Absent:
    return Absent(Why.MISSING, f"no data of {product or 'a product that is not named'}: give memory_gb")


LIMIT = 64 << 20
"""Most bytes of a cluster file."""
MOST_NODES = 65536
MOST_GPUS = 128
_PORTS = re.compile(rf"(\d{{1,3}})x({'|'.join(PORTS)})", re.ASCII | re.IGNORECASE)
Label = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$|^$")]
Index = Annotated[int, Field(ge=0, lt=MOST_GPUS)]


class ClusterError(Exception):
    """The file describes no cluster; the text is one line for people."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class NodesEntry(_Strict):
    """Nodes that are alike. `names`: one, or many in Slurm's form, such as gpu[001-016].

    `product`: of the GPUs, as NVML gives it or as people write it. `memory_gb`: of one GPU in 10^9 bytes; the
    product's where it is left out. `islands`: GPUs that NVLink joins inside the node, as numbers of GPUs in
    the order of their indices ([4, 4]) or as lists of indices; the product's where it is left out.
    `nvlink_domain`: that this node shares with others (NVL72). `rack`, `leaf`: where it is, empty if that is
    not known. `ports`: RDMA ports such as 8xNDR, or a network such as p5. `rails`: GPU i is on rail i modulo
    that. `cores`: of its processors. `busy`: GPUs in use. `health` left out: not stated, and taken as ok.
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


def read_cluster(path: Path) -> NodePool:
    """Read a cluster from JSON or TOML. Raises ClusterError: no cluster, or an unreadable file."""
    text = _text(path)
    try:
        is_json = text.lstrip().startswith("{")
        data = json.loads(text, object_pairs_hook=_object) if is_json else tomllib.loads(text)
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
        return NodePool(path.name, _nodes(file))
    except (ClusterError, HostlistError) as error:
        raise ClusterError(f"{path}: {error}") from error


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; no key may occur twice, as in TOML."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ClusterError(f"key {_line(repr(twice))} stands twice in one object")
    return made


def with_slurm_topology(cluster: NodePool, path: Path) -> NodePool:
    """Return the cluster with leafs, and racks of blocks, from the output of `scontrol show topology`.

    A switch of level 0 is a leaf, and a block is a rack. Nodes missing from the output stay as they are, and
    nodes missing from the cluster are ignored. Raises ClusterError: the output cannot be read, or has no
    switch with nodes and no block.
    """
    try:
        leafs, racks = topology_places(_text(path))
    except HostlistError as error:
        raise ClusterError(f"{path}: {error}") from error
    if not leafs and not racks:
        raise ClusterError(f"{path}: no line of `scontrol show topology` with nodes is in it")
    places = ((one, leafs.get(one.name, one.leaf), racks.get(one.name, one.rack)) for one in cluster.nodes)
    return replace(cluster, nodes=tuple(replace(one, leaf=leaf, rack=rack) for one, leaf, rack in places))


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
    named = {one.name for one in PROFILES}
    if entry.ports and not _PORTS.fullmatch(entry.ports) and entry.ports not in named:
        known = f"{', '.join(PORTS)}, or a network: {', '.join(sorted(named))}"
        raise ClusterError(f"ports {entry.ports!r}: give them as 8xNDR, of {known}")
    if not entry.product.isprintable():
        raise ClusterError(f"product {entry.product!r} is not printable")
    given = None if entry.islands is None else tuple(_islands(entry.islands, entry))
    memory = None if entry.memory_gb is None else entry.memory_gb * GB
    return _alike(entry.product, entry.gpus, given, memory, entry.ports)


_alike = cache(wiring)


def _islands(given: Sequence[int] | Sequence[Indices], entry: NodesEntry) -> Iterator[Indices]:
    """Yield islands as indices. Raises ClusterError: wrong or repeated GPUs, or sizes with another sum."""
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
    busy = node.busy if state.busy is None else frozenset(state.busy)
    health = node.health if state.health is None else _health(state.health)
    drained = node.drained if state.drained is None else state.drained
    return replace(node, busy=busy, health=health, drained=drained)


def _check(node: ClusterNode) -> None:
    if node.busy and max(node.busy) >= node.wiring.gpus:
        raise ClusterError(f"busy of {node.name}: it has {node.wiring.gpus} GPUs, from 0 on")
    if node.fabric and len(node.wiring.islands) > 1 and not node.wiring.why:
        raise ClusterError(f"{node.name}: a node in an nvlink_domain has no islands of its own")


def _check_domains(nodes: Iterable[ClusterNode]) -> None:
    """Require that nodes of an NVLink domain are of one kind."""
    first: dict[str, ClusterNode] = {}
    for node in nodes:
        other = first.setdefault(node.fabric, node)
        if node.fabric and other.wiring.product != node.wiring.product:
            both = f"{other.name} and {node.name}"
            raise ClusterError(f"nvlink_domain {node.fabric}: {both} have different products")


def _health(name: str | None) -> Health | None:
    return None if name is None else Health[name.upper()]


def _first(error: ValidationError) -> str:
    """Return the first error in one line: place, error and given value."""
    first: Mapping[str, Any] = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {_line(place)!r}"
    return f"{_line(place)}: {first['msg']}, got {_line(repr(first['input']))}"


def _line(text: str) -> str:
    """Shorten a text to one line."""
    short = text if len(text) <= 120 else f"{text[:119]}…"  # noqa: PLR2004
    return "".join(c if c.isprintable() else " " for c in short)
