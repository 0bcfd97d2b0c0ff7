"""The node's wiring under lasting names: its parts, its fingerprint, and which parts of two wirings are one.

GPUs go by UUID, NICs by GUID; functions of one card that share a GUID by GUID and function. NICs with no
GUID, or cards with the same, go by PCI address, and so do GPUs without a known UUID. An address is no
lasting name: nothing is said of these parts when the buses are renumbered. Indexes, device names and
addresses stand beside for people and are not compared.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from wirewatch.core.hostlist import natural
from wirewatch.core.statistics import grouped
from wirewatch.core.topology import SWITCH
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import first


class Aspect(StrEnum):
    """Aspects of a part that can be unknown."""

    NAME = "name"
    PRODUCT = "product"
    FIRMWARE = "firmware"
    PORTS = "ports"
    PLACE = "place"
    NUMA = "NUMA node"
    NVLINK = "NVLink links"
    PEERS = "NVLink peers"
    CLIQUE = "fabric clique"
    PATHS = "PCIe paths"
    VERSION = "version"
    NODES = "number of NUMA nodes"


@dataclass(frozen=True, slots=True, order=True)
class Unknown:
    """`part`: key of a GPU or NIC, name of a version, empty for the node."""

    part: str
    what: Aspect


@dataclass(frozen=True, slots=True)
class TreePlace:
    """Where a part sits in the PCI tree.

    `branch`: the root's number, then each bridge's number among its siblings, counted in the order of the
    least key below. It is empty where the place is not known. `numa` None: not known.
    """

    branch: tuple[int, ...]
    numa: int | None
    root: str = field(compare=False)
    bridges: tuple[str, ...] = field(compare=False)
    address: str = field(compare=False)

    @property
    def chain(self) -> tuple[str, ...]:
        """Root and bridges as they are called today; empty where the place is not known."""
        return (self.root, *self.bridges) if self.root else ()


@dataclass(frozen=True, slots=True)
class PeerLinks:
    """Links that are up to a peer: the key of a GPU, `switch`, or `unknown`."""

    peer: str
    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A GPU; `uuid` "" if not known, `read`: whether its wires were, `off`: why NVLink is off on purpose."""

    uuid: str
    product: str
    spot: TreePlace
    wires: tuple[PeerLinks, ...]
    read: bool
    index: int = field(compare=False)
    clique: str | None = ""
    off: str = ""

    @property
    def key(self) -> str:
        """The UUID, or the PCI address where none is known."""
        return self.uuid or self.spot.address

    @property
    def name(self) -> str:
        """A name that no other part anywhere has; empty where it is not known."""
        return self.uuid

    def peers(self) -> Mapping[int, str]:
        """Peer by number of the link, for links that are up."""
        return {link: wire.peer for wire in self.wires for link in wire.links}


@dataclass(frozen=True, slots=True)
class PciPath:
    """PCIe path to a GPU: PIX, PXB, PHB, NODE, SYS, empty where it is not known."""

    gpu: str
    path: str


@dataclass(frozen=True, slots=True)
class NicNode:
    """`ports` with their link layers; `guid` is empty where it is not known."""

    key: str
    guid: str
    model: str
    firmware: str
    spot: TreePlace
    ports: tuple[tuple[str, str], ...]
    paths: tuple[PciPath, ...]
    device: str = field(compare=False)

    @property
    def name(self) -> str:
        """A name that no other part anywhere has; empty where it is not known."""
        by_address = self.key == self.spot.address
        return "" if by_address else f"{self.guid}.{function(self.spot.address)}"


Node = GpuNode | NicNode


@dataclass(frozen=True, slots=True)
class GpuIsland:
    """GPUs that reach each other over NVLink; `kind` as `core.topology.WireKind`, in lower case."""

    kind: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """All parts in the order of their keys; equality is strict, and `diff` takes `unknown` for no change."""

    gpus: tuple[GpuNode, ...]
    nics: tuple[NicNode, ...]
    islands: tuple[GpuIsland, ...]
    numa_nodes: int | None
    versions: tuple[tuple[str, str], ...]
    unknown: tuple[Unknown, ...]

    @property
    def parts(self) -> tuple[Node, ...]:
        """All GPUs, then all NICs."""
        return (*self.gpus, *self.nics)


_RUN = 3
"""So many numbers in a row are written as a range."""
_BYTES = 8
_BOTH = 2
_SHAPE = frozenset(
    {Aspect.PRODUCT, Aspect.PORTS, Aspect.PLACE, Aspect.NUMA, Aspect.NVLINK, Aspect.PEERS, Aspect.NODES}
)
_Relations = Sequence[Sequence[tuple[int, int, bool]]]
"""Of each part to each other: NVLink links, bridges shared, whether they are on one NUMA node."""
Part = TypeVar("Part", bound=Node)


@dataclass(frozen=True, slots=True)
class Matched(Generic[Part]):
    """Parts before and after; while a nameless part is left, none is `lost` or `new` that it could be."""

    same: tuple[tuple[Part, Part], ...]
    replaced: tuple[tuple[Part, Part], ...]
    lost: tuple[Part, ...]
    new: tuple[Part, ...]

    @property
    def pairs(self) -> tuple[tuple[Part, Part], ...]:
        """Before and after at each place that is taken in both."""
        return (*self.same, *self.replaced)


@dataclass(frozen=True, slots=True)
class Voter:
    """A part that is known by its name in both graphs; `name` with GPUs before NICs."""

    before: TreePlace
    after: TreePlace
    name: tuple[int, str]

    @property
    def settled(self) -> bool:
        """Tell whether all that no renumbering changes of its place is as it was: so it has hardly moved."""
        numas = {self.before.numa, self.after.numa} - {None}
        one, other = (tuple(map(device_number, spot.bridges)) for spot in (self.before, self.after))
        return len(numas) < _BOTH and one == other


@dataclass(frozen=True, slots=True)
class Renaming:
    """Roots and bridges of the graph before, each with its like in the graph after.

    `steady`: whether addresses mean what they meant: all parts known by name have kept theirs. `lasting`:
    whether roots are still called as they were: half of these parts have kept their addresses.
    """

    names: Mapping[str, str]
    steady: bool
    lasting: bool

    def kept(self, before: TreePlace, after: TreePlace) -> bool:
        """Tell whether a part hangs where it hung, by whatever numbers; True while that is not known."""
        one, other = before.chain, after.chain
        if not one or not other:
            return True
        return len(one) == len(other) and all(self.names.get(x) == y for x, y in zip(one, other, strict=True))

    def same_slot(self, before: TreePlace, after: TreePlace) -> bool:
        """Tell whether two parts sat in one place; a bridge without known parts goes by its number."""
        one, other = before.chain, after.chain
        if not one or not other or (one == other and len(one) == 1):
            return self.steady and bool(before.address) and before.address == after.address
        if len(one) != len(other):
            return False
        stayed = self.lasting and one[0] == other[0]
        top = self._same(one[0], other[0]) or (stayed and self._free(one[0], other[0]))
        below = zip((*one[1:], before.address), (*other[1:], after.address), strict=True)
        return top and all(
            self._same(x, y) or (self._free(x, y) and device_number(x) == device_number(y)) for x, y in below
        )

    def _same(self, before: str, after: str) -> bool:
        return self.names.get(before) == after

    def _free(self, before: str, after: str) -> bool:
        return before not in self.names and after not in self.names.values()


def function(address: str) -> str:
    """The function of a PCI address; a number of the card's own, not of the bus."""
    return address.rpartition(".")[2]


def part_name(part: Node) -> str:
    """`GPU 3 (...0003)`, with the end of its UUID; `mlx5_4`."""
    if isinstance(part, NicNode):
        return part.device
    return f"GPU {part.index} (...{part.uuid[-4:]})" if part.uuid else f"GPU {part.index}"


def peer_name(key: str, gpus: Iterable[GpuNode]) -> str:
    if key == SWITCH:
        return "the switch"
    return next((part_name(gpu) for gpu in gpus if gpu.key == key), key)


def numbers(values: Iterable[int], comma: str = ", ") -> str:
    """`0-3, 7`."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if not runs or runs[-1][-1] != value - 1:
            runs.append([])
        runs[-1].append(value)
    pieces = ([f"{run[0]}-{run[-1]}"] if len(run) >= _RUN else map(str, run) for run in runs)
    return comma.join(text for texts in pieces for text in texts)


def links(values: Sequence[int]) -> str:
    """`link 7`, `links 0-3, 7`."""
    return f"link{'' if len(values) == 1 else 's'} {numbers(values)}"


def several(parts: Sequence[Node]) -> str:
    """Parts in the middle of a sentence: `GPU 4`, `GPUs 1-3`, `mlx5_0, mlx5_1`."""
    indexes = [part.index for part in parts if isinstance(part, GpuNode)]
    gpus = [f"GPU{'' if len(indexes) == 1 else 's'} {numbers(indexes)}"] if indexes else []
    nics = sorted((part.device for part in parts if isinstance(part, NicNode)), key=natural)
    return ", ".join([*gpus, *nics])


def unknown_text(graph: Graph, unknown: Unknown) -> str:
    """`GPU 3 (...0003): NVLink links`; with the reason where they are off on purpose."""
    part = next((part for part in graph.parts if part.key == unknown.part), None)
    if part is None:
        return f"{unknown.part or 'node'}: {unknown.what}"
    why = part.off if isinstance(part, GpuNode) and unknown.what is Aspect.NVLINK else ""
    return f"{part_name(part)}: {unknown.what}{why and f', {why}'}"


def listed(graph: Graph, missing: Sequence[Unknown]) -> str:
    """`GPU 3 (...0003): NVLink links and 2 more`."""
    return first([unknown_text(graph, one) for one in missing], 1)


def fingerprint(graph: Graph) -> str | Absent:
    """Return 16 digits that nodes of one product with the same wiring share; Absent while it is not known.

    The digits cover products, counts of links, the PCI tree and NUMA nodes; no names, versions, firmware or
    addresses. A machine without NUMA nodes is known, too.
    """
    return _named(graph, _SHAPE, names=False)


def identity(graph: Graph) -> str | Absent:
    """Return the fingerprint with UUIDs and GUIDs: another node, or a replaced part, has other digits."""
    return _named(graph, _SHAPE | {Aspect.NAME}, names=True)


def device_number(address: str) -> str:
    """Device and function, which do not change with the number of the bus."""
    return address.rpartition(":")[2]


def match(before: Graph, after: Graph) -> tuple[Matched[GpuNode], Matched[NicNode], Renaming]:
    """Match parts before with parts after: GPUs, NICs, and roots and bridges by their names."""
    gpus = _by_names(before.gpus, after.gpus, [lambda gpu: gpu.name])
    nics = _by_names(before.nics, after.nics, [lambda nic: nic.name, lambda nic: nic.guid])
    voters = [Voter(one.spot, other.spot, (0, other.key)) for one, other in gpus]
    voters += [Voter(one.spot, other.spot, (1, one.name)) for one, other in nics]
    known = [voter for voter in voters if voter.before.address and voter.after.address]
    stayed = sum(voter.before.address == voter.after.address for voter in known)
    lasting = 2 * stayed >= len(known)
    renaming = Renaming(_names(voters, lasting=lasting), bool(known) and stayed == len(known), lasting)
    return (
        _matched(gpus, before.gpus, after.gpus, renaming),
        _matched(nics, before.nics, after.nics, renaming),
        renaming,
    )


def _named(graph: Graph, needed: frozenset[Aspect], *, names: bool) -> str | Absent:
    never = {Aspect.NUMA} if all(part.spot.numa is None for part in graph.parts) else set()
    missing = [one for one in graph.unknown if one.what in needed - never]
    if missing:
        return Absent(Why.MISSING, f"not known: {listed(graph, missing)}")
    parts = graph.parts
    plain = [_digest(_facts(graph, part, names=names)) for part in parts]
    relations = [[_relation(graph, one, other) for other in parts] for one in parts]
    settled = _refined(plain, relations)
    # Regular meshes look alike from every GPU: each is marked in turn, to see what that does to the others.
    crowded = {colour for colour in settled if settled.count(colour) > 1}
    views = [
        sorted(_refined([_digest(c, i == n) for i, c in enumerate(settled)], relations))
        for n in range(len(parts))
        if settled[n] in crowded
    ]
    return _digest(graph.numa_nodes, sorted(settled), sorted(views))


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
    if isinstance(one, GpuNode):
        between = sum(len(wire.links) for wire in one.wires if wire.peer == other.key)
    branches = zip(one.spot.branch, other.spot.branch, strict=False)
    shared = next((i for i, (a, b) in enumerate(branches) if a != b), None)
    least = min(len(one.spot.branch), len(other.spot.branch))
    near = graph.numa_nodes == 1 or one.spot.numa == other.spot.numa
    return (between, least if shared is None else shared, near)


def _refined(colours: Sequence[str], relations: _Relations) -> Sequence[str]:
    """Colours, refined by the relations of parts to parts of each colour, until none divides any more."""
    now = list(colours)
    while True:
        new = [_digest(now[i], sorted(zip(relations[i], now, strict=True))) for i in range(len(now))]
        if len(set(new)) == len(set(now)):
            return new
        now = new


def _by_names(
    before: Sequence[Part], after: Sequence[Part], names: Sequence[Callable[[Part], str]]
) -> list[tuple[Part, Part]]:
    """Pairs by the first name that only they have."""
    pairs: list[tuple[Part, Part]] = []
    for name in names:
        pairs += _unique(_left(before, pairs, 0), _left(after, pairs, 1), name)
    return pairs


def _left(parts: Sequence[Part], pairs: Sequence[tuple[Part, Part]], side: int) -> list[Part]:
    """Parts of one side that are in no pair."""
    paired = {id(pair[side]) for pair in pairs}
    return [part for part in parts if id(part) not in paired]


def _unique(
    before: Sequence[Part], after: Sequence[Part], name: Callable[[Part], str]
) -> list[tuple[Part, Part]]:
    counts = Counter(map(name, before)), Counter(map(name, after))
    theirs = {name(part): part for part in after}
    return [
        (part, theirs[name(part)])
        for part in before
        if name(part) and counts[0][name(part)] == counts[1][name(part)] == 1
    ]


def _matched(
    named: Sequence[tuple[Part, Part]], before: Sequence[Part], after: Sequence[Part], renaming: Renaming
) -> Matched[Part]:
    left, right = _left(before, named, 0), _left(after, named, 1)
    here = _unique(left, right, lambda part: part.spot.address) if renaming.steady else []
    same = [*named, *((one, other) for one, other in here if not one.name or not other.name)]
    left, right = _left(before, same, 0), _left(after, same, 1)
    lost, new = _surely(left, right), _surely(right, left)
    replaced: list[tuple[Part, Part]] = []
    for one in lost:
        free = _left(new, replaced, 1)
        replaced += [(one, other) for other in free if renaming.same_slot(one.spot, other.spot)][:1]
    return Matched(
        tuple(same), tuple(replaced), tuple(_left(lost, replaced, 0)), tuple(_left(new, replaced, 1))
    )


def _surely(here: Sequence[Part], there: Sequence[Part]) -> list[Part]:
    """Return leftover parts that cannot be any leftover part of the other side."""
    if not all(part.name for part in there):
        return []
    return [part for part in here if part.name or not there]


def _names(voters: Sequence[Voter], *, lasting: bool) -> Mapping[str, str]:
    """Return new names of roots and bridges by vote of what hangs below, from the roots down.

    Of even votes the name that stayed wins while names last. After it comes the vote of a part that hardly
    moved, of a part with no other choice, and of a GPU. After a renumbering an old name may be another's.
    """
    names: dict[str, str] = {}
    for level in range(max((len(voter.before.chain) for voter in voters), default=0)):
        votes = _votes(voters, names, level)
        choices = Counter(name for old, new in votes for name in (f"from {old}", f"to {new}"))
        ranked = sorted(
            votes.items(),
            key=lambda vote: (
                -len(vote[1]),
                lasting and vote[0][0] != vote[0][1],
                not any(voter.settled for voter in vote[1]),
                choices[f"from {vote[0][0]}"] + choices[f"to {vote[0][1]}"],
                min(voter.name for voter in vote[1]),
            ),
        )
        taken = set[str]()
        for (x, y), _ in ranked:
            if x not in names and y not in taken:
                names[x] = y
                taken.add(y)
    return names


def _votes(
    voters: Sequence[Voter], names: Mapping[str, str], level: int
) -> Mapping[tuple[str, str], Sequence[Voter]]:
    """Voters by what they say was which at one level, where all above is theirs already."""
    chains = ((voter, voter.before.chain, voter.after.chain) for voter in voters)
    return grouped(
        ((one[level], other[level]), voter)
        for voter, one, other in chains
        if min(len(one), len(other)) > level
        and all(names.get(x) == y for x, y in zip(one[:level], other[:level], strict=True))
    )
