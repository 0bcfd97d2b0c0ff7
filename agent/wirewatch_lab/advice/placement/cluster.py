"""A cluster as values: nodes with their GPUs, NVLink islands and domains, racks, leafs and health."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wirewatch.core.pci import Path
from wirewatch.core.topology import Group, Island, WireKind, islands
from wirewatch.core.types import Absent, Health, Why
from wirewatch_lab.advice.described import DescriptionError, described
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.products import gpu_product
from wirewatch_lab.study.curve import Study

Indices = tuple[int, ...]
"""GPUs of a node by index."""
_JOINED = frozenset({WireKind.SWITCH, WireKind.MESH, WireKind.PARTIAL, WireKind.PAIR})


@dataclass(frozen=True, slots=True)
class Wiring:
    """How the GPUs of a node are joined, the same for all nodes alike.

    `islands`: GPUs that NVLink joins, a lone one alone; `why`: why nothing is known of their NVLink, empty
    where it is known. `machine`: the node as times are estimated of it. `memory`: bytes of one GPU.
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

    `rack`, `leaf`: empty where not known. `busy`: GPUs in use. `health` None: not stated. `rails`: how many
    there are, GPU i on rail i modulo that; 0: not known. `cores`: of its processors, 0: not known.
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
        """The free GPUs of each island that has any."""
        for island in self.wiring.islands:
            left = tuple(gpu for gpu in island if gpu not in self.busy)
            if left:
                yield left

    def unfit(self, *, degraded: bool) -> str:
        """Why it is not to be used, empty if it is; `degraded`: whether a DEGRADED node is."""
        if self.drained:
            return "drained"
        if self.health is None or self.health is Health.OK or (degraded and self.health is Health.DEGRADED):
            return ""
        return self.health.name


@dataclass(frozen=True, slots=True)
class Cluster:
    """`of` names it for people; `nodes` in natural order of their names, each name once."""

    of: str
    nodes: tuple[ClusterNode, ...]

    def usable(self, *, degraded: bool) -> tuple[ClusterNode, ...]:
        """The nodes that may be used."""
        return tuple(node for node in self.nodes if not node.unfit(degraded=degraded))

    def left_out(self, *, degraded: bool) -> Counter[str]:
        """How many nodes are not used, by reason."""
        return Counter(why for node in self.nodes if (why := node.unfit(degraded=degraded)))


def wiring(
    product: str, gpus: int, given: tuple[Indices, ...] | None, memory: float | None, ports: str
) -> Wiring:
    """A node's wiring by its product; `given` islands and `memory` in bytes before what is known of it.

    Args:
        product: as NVML gives it or as people write it, empty where it is not known.
        gpus: how many the node has.
        given: NVLink islands; GPUs that none of them names are alone.
        memory: bytes of a GPU.
        ports: RDMA ports such as `8xNDR`, empty where they are not known.
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
    alone = tuple((gpu,) for gpu in range(gpus))
    if gpus == 1 or (known is not None and known.domain == 1):
        return Wiring(name, gpus, alone, size, machine)
    unknown = machine.detail if isinstance(machine, Absent) else f"{name} may be joined by bridges"
    return Wiring(name, gpus, alone, size, machine, f"it has no `islands`, and {unknown}")


def of_machine(machine: AdvisedMachine, name: str) -> Cluster:
    """One node as a cluster; its health is not looked at."""
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
        why = _reasons([one.why for one in seen if one.kind is WireKind.UNKNOWN])
        found = tuple(sorted(part for one in seen for part in _parts(one)))
    product = parts[0].name if parts else ""
    known = gpu_product(product)
    memory = known.memory if known else _unknown_memory(product)
    count = 1 + max((index for one in found for index in one), default=-1)
    wires = Wiring(known.name if known else product, count, found, memory, machine, why)
    node = ClusterNode(name, wires, health=Health.OK)
    return Cluster(machine.of, (node,))


def _reasons(doubts: Sequence[str]) -> str:
    """Doubts of GPUs such as `GPU 0: no link`, each reason once."""
    every = (doubt.partition(": ")[2] or doubt for of in doubts for doubt in of.split("; "))
    return "; ".join(dict.fromkeys(every))


def _parts(island: Island) -> list[Indices]:
    """The island as indices; its GPUs alone where NVLink does not join them, or nothing is known of it."""
    members = tuple(gpu.index for gpu in island.gpus)
    return [members] if island.kind in _JOINED else [(one,) for one in members]


def measured(cluster: Cluster, studies: Sequence[Study]) -> Cluster:
    """The cluster with what was measured on one of its nodes, which is taken to hold for all."""
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
    """The same GPUs in an NVLink domain of so many, over several hosts."""
    first = machine.conditions[0]
    group = replace(
        first.group, gpus=(first.group.gpus * gpus)[:gpus], links=(first.group.links * gpus)[:gpus]
    )
    return replace(machine, of=f"{gpus} GPUs of one NVLink domain", conditions=(replace(first, group=group),))


def over_pcie(machine: AdvisedMachine) -> AdvisedMachine:
    """The machine as its islands see each other: without NVLink."""
    return replace(machine, conditions=machine.conditions[:1])


def sharing(machine: AdvisedMachine, ranks: int) -> AdvisedMachine:
    """The machine with so many of its GPUs' share of the RDMA ports: the others send at the same time."""
    first = machine.conditions[0]
    if isinstance(first.network, Absent) or not first.network or ranks >= first.group.ranks:
        return machine
    exact = len(first.network) * ranks / first.group.ranks
    ports = first.network[: math.ceil(exact)]
    shared = tuple(
        one if isinstance(one.rate, Absent) else replace(one, rate=one.rate * exact / len(ports))
        for one in ports
    )
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
    """The machine with these islands, not its product's, and the farthest path between them."""
    if isinstance(machine, Absent) or len(found) == 1:
        return machine
    whole = machine.conditions[0]
    gpus = whole.group.gpus
    node = replace(whole, group=Group(gpus, WireKind.PCIE, (0,) * len(gpus), whole=True, crossing=Path.SYS))
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
