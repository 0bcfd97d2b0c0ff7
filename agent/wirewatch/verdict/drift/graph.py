"""The node's topology in a form that does not depend on how its parts are numbered today.

GPUs go by UUID, NICs by GUID; functions of one card that share a GUID by GUID and function. NICs with no
GUID, or cards with the same, go by PCI address, and so do GPUs that told no UUID: these have no lasting name,
and when the buses are numbered anew as well, nothing is said of them. Indexes, device names and addresses
stand beside for people and are not compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class What(StrEnum):
    """What of a part is not known."""

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
    what: What


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a part sits in the PCI tree.

    `branch`: the root's number, then each bridge's among those of its parent, counted in the order of the
    least key below; empty where the place is not told. `numa` None: not told.
    """

    branch: tuple[int, ...]
    numa: int | None
    root: str = field(compare=False)
    bridges: tuple[str, ...] = field(compare=False)
    address: str = field(compare=False)

    @property
    def chain(self) -> tuple[str, ...]:
        """Root and bridges as they are called today; empty where the place is not told."""
        return (self.root, *self.bridges) if self.root else ()


@dataclass(frozen=True, slots=True)
class Wire:
    """Links that are up to a peer: the key of a GPU, `switch`, or `unknown`."""

    peer: str
    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GpuNode:
    """`uuid` is empty where never told; `read`: whether its wires were; `clique` as in the topology."""

    uuid: str
    product: str
    spot: Spot
    wires: tuple[Wire, ...]
    read: bool
    index: int = field(compare=False)
    clique: str | None = ""

    @property
    def key(self) -> str:
        return self.uuid or self.spot.address

    @property
    def name(self) -> str:
        """What tells it from all others, anywhere; empty where that is not known."""
        return self.uuid

    def peers(self) -> Mapping[int, str]:
        """Peer by number of the link, for links that are up."""
        return {link: wire.peer for wire in self.wires for link in wire.links}


@dataclass(frozen=True, slots=True)
class Reach:
    """PCIe path to a GPU: PIX, PXB, PHB, NODE, SYS, empty where it is not told."""

    gpu: str
    path: str


@dataclass(frozen=True, slots=True)
class NicNode:
    """`ports` with their link layers; `guid` is empty where it is not told."""

    key: str
    guid: str
    model: str
    firmware: str
    spot: Spot
    ports: tuple[tuple[str, str], ...]
    paths: tuple[Reach, ...]
    device: str = field(compare=False)

    @property
    def name(self) -> str:
        """What tells it from all others, anywhere; empty where that is not known."""
        lasting = self.guid and self.key != self.spot.address
        return f"{self.guid}.{function(self.spot.address)}" if lasting else ""


Node = GpuNode | NicNode


def function(address: str) -> str:
    """The function of a PCI address; a number of the card's own, not of the bus."""
    return address.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class GpuIsland:
    """GPUs that reach each other over NVLink; `kind` as `core.probing.islands.Kind`, in lower case."""

    kind: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything in the order of its keys, so that two are equal when nothing but numbers differs.

    Equality is strict. To compare with what is not known now is `diff`'s: it takes `unknown` for no change.
    """

    gpus: tuple[GpuNode, ...]
    nics: tuple[NicNode, ...]
    islands: tuple[GpuIsland, ...]
    numa_nodes: int | None
    versions: tuple[tuple[str, str], ...]
    unknown: tuple[Unknown, ...]

    @property
    def parts(self) -> tuple[Node, ...]:
        return (*self.gpus, *self.nics)
