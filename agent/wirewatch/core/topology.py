"""The node as one graph: GPUs, NICs, what hangs where, and which wires join them.

Parts are named by what does not change when they are numbered anew: GPUs by UUID, NICs by GUID and port.
"""

from dataclasses import dataclass

SWITCH, UNKNOWN_PEER = "switch", "unknown"


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Address, root complex and the bridges from the root down; empty where it is not told."""

    address: str
    root: str
    bridges: tuple[str, ...]
    numa: int | None


@dataclass(frozen=True, slots=True)
class GpuPart:
    """`clique`: the fabric's beyond this node, as `cluster/clique`; empty: none, None: not told."""

    uuid: str
    index: int
    name: str
    place: PciPlace
    clique: str | None = ""


@dataclass(frozen=True, slots=True)
class NicPart:
    """A NIC by its GUID; `ports` with their link layers."""

    guid: str
    device: str
    model: str
    firmware: str
    place: PciPlace
    ports: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NvlinkWires:
    """Links that are up between a GPU and a peer: a GPU's UUID, `switch`, or `unknown`."""

    uuid: str
    peer: str
    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NicPath:
    """PCI path between a GPU and a NIC: PIX, PXB, PHB, NODE, SYS, or empty where it cannot be told."""

    uuid: str
    device: str
    path: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything at one moment; versions of driver, kernel and RDMA drivers, empty where not told.

    `unread`: GPUs whose NVLink wires could not be read this time, so that nothing may be concluded of them.
    """

    gpus: tuple[GpuPart, ...]
    nics: tuple[NicPart, ...]
    nvlink: tuple[NvlinkWires, ...]
    paths: tuple[NicPath, ...]
    numa_nodes: int | None
    versions: tuple[tuple[str, str], ...]
    unread: tuple[str, ...] = ()

    def bridges(self) -> frozenset[str]:
        """PCI bridges above GPUs and NICs."""
        places = [*(gpu.place for gpu in self.gpus), *(nic.place for nic in self.nics)]
        return frozenset(bridge for place in places for bridge in place.bridges)
