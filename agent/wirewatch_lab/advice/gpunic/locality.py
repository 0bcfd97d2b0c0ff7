"""The surroundings of each GPU of a node: RDMA ports with their PCI paths, and processors."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wirewatch.core.hostlink import Pcie
from wirewatch.core.pci import Path, Place, path_between
from wirewatch.core.ports import Sysfs
from wirewatch.core.probe import RdmaPort
from wirewatch.core.topology import GpuPart, NicPart, Topology
from wirewatch.core.tree import DEVICES, NET, address_behind, count_nodes, read_pci_link, read_place
from wirewatch.core.types import Absent, Why, value_or, whole
from wirewatch.probe.network import rdma_ports

_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_MOST_CPUS = 8192
ETHERNET = "Ethernet"
VIRTUAL = "a virtual function: the wire is its card's"
_NOT_STATED = Absent(Why.UNSUPPORTED, "a document of a topology does not state it")


@dataclass(frozen=True, slots=True)
class Locality:
    """RDMA ports and processors near a node's GPUs.

    `gpus`: by index, in the order of each port's `paths`. `stated`: whether the source has states of ports; a
    document has none. `others`: devices whose ports are not for GPUs, with the reason. `cpus`: processors of
    a GPU's NUMA node, by UUID, as `local_cpulist` lists them. `slots`: full PCIe capability of a card whose
    link runs at less, by device. `by_numa`: a hypervisor hides the PCI bridges, so only NUMA nodes show
    proximity. `interfaces`: network interfaces with a card, where the node has no RDMA port; plugins such as
    GPUDirect-TCPX use them.
    """

    gpus: tuple[GpuPart, ...]
    ports: tuple[RdmaPort, ...]
    stated: bool
    others: tuple[tuple[str, str], ...] = ()
    cpus: Mapping[str, str] = field(default_factory=dict)
    slots: Mapping[str, Pcie] = field(default_factory=dict)
    by_numa: bool = False
    interfaces: tuple[RdmaPort, ...] = ()


def read_locality(sysfs: Sysfs, topology: Topology) -> Locality:
    """Return the surroundings on a node, live or recorded."""
    gpus = in_order(topology.gpus)
    ports = rdma_ports(sysfs, topology, gpus)
    shown = {port.device for port in ports}
    cpus = {gpu.uuid: sysfs.read(f"{DEVICES}/{gpu.place.address}/local_cpulist") for gpu in gpus}
    trained = {nic.device: _trained(sysfs, nic) for nic in topology.nics}
    slots = {one.device: one.pcie for one in ports if _is_less(trained[one.device], one.pcie)}
    near = Locality(
        gpus,
        tuple(replace(one, pcie=trained[one.device]) if one.device in slots else one for one in ports),
        stated=True,
        others=tuple((nic.device, VIRTUAL) for nic in topology.nics if nic.ports and nic.device not in shown),
        cpus={key: text for key, text in cpus.items() if not isinstance(text, Absent) and cpu_numbers(text)},
        slots={device: slot for device, slot in slots.items() if not isinstance(slot, Absent)},
        interfaces=() if ports else tuple(_interfaces(sysfs, gpus)),
    )  # fmt: skip
    return _with_numa(near, topology)


def _interfaces(sysfs: Sysfs, gpus: Sequence[GpuPart]) -> Iterator[RdmaPort]:
    """Yield network interfaces with a card behind them; a speed in Mb/s that is not above 0 is unknown."""
    nodes = count_nodes(sysfs)
    for name in value_or(sysfs.entries(NET), ()):
        address = address_behind(sysfs, f"{NET}/{name}")
        if isinstance(address, Absent):
            continue
        spot = read_place(sysfs, address)
        megabits = whole(value_or(sysfs.read(f"{NET}/{name}/speed"), ""))
        link = read_pci_link(sysfs, address)
        known = not isinstance(link.generation, Absent) and not isinstance(link.width, Absent)
        yield RdmaPort(
            device=name, port="", card=address.rpartition(".")[0], layer=ETHERNET,
            state="active" if sysfs.read(f"{NET}/{name}/operstate") == "up" else "not up",
            rate=megabits * 1e6 / 8 if megabits and megabits > 0 else Absent(Why.MISSING, "its speed"),
            pcie=Pcie(value_or(link.generation, 0), value_or(link.width, 0)) if known
            else Absent(Why.MISSING, "its PCIe link"),
            paths=tuple(_way(gpu.place, spot, nodes) for gpu in gpus),
        )  # fmt: skip


def _way(one: Place, other: Place | Absent, nodes: int | None) -> str:
    """Return the path by name, bounded by NUMA nodes where bridges are hidden; empty where unknown."""
    found = path_between(one, other, nodes=nodes)
    if not isinstance(found, Absent):
        return found.name
    if isinstance(other, Absent) or one.numa is None or other.numa is None:
        return ""
    return (Path.NODE if one.numa == other.numa else Path.SYS).name


def locality_of(topology: Topology) -> Locality:
    """Return the surroundings in a document, without states of ports or processors."""
    gpus = in_order(topology.gpus)
    paths = {(path.uuid, path.device): path.path for path in topology.paths}
    ports = tuple(
        RdmaPort(
            device=nic.device, port=port, card=nic.place.address.rpartition(".")[0], state="", layer=layer,
            rate=_NOT_STATED, pcie=_NOT_STATED,
            paths=tuple(paths.get((gpu.uuid, nic.device), "") for gpu in gpus),
        )
        for nic in topology.nics
        for port, layer in nic.ports
    )  # fmt: skip
    return _with_numa(Locality(gpus, ports, stated=False), topology)


def in_order(gpus: Iterable[GpuPart]) -> tuple[GpuPart, ...]:
    """Return the GPUs by index."""
    return tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid)))


def cpu_numbers(text: str) -> tuple[int, ...]:
    """Return the processors of a list such as `0-55,112-167`; none for other text."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first <= last < _MOST_CPUS:
            return ()
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def _trained(sysfs: Sysfs, nic: NicPart) -> Pcie | Absent:
    if not nic.place.address:
        return Absent(Why.MISSING, "its PCI address is not known")
    link = read_pci_link(sysfs, nic.place.address)
    if isinstance(link.generation, Absent):
        return link.generation
    return link.width if isinstance(link.width, Absent) else Pcie(link.generation, link.width)


def _is_less(trained: Pcie | Absent, slot: Pcie | Absent) -> bool:
    if isinstance(trained, Absent) or isinstance(slot, Absent):
        return False
    return trained.generation < slot.generation or trained.lanes < slot.lanes


def _with_numa(near: Locality, topology: Topology) -> Locality:
    """Bound hidden PCI paths by the NUMA nodes of both ends."""
    nodes = {nic.device: nic.place.numa for nic in topology.nics}

    def bounded(port: RdmaPort) -> Iterator[str]:
        node = nodes[port.device]
        for path, gpu in zip(port.paths, near.gpus, strict=True):
            known = node is not None and gpu.place.numa is not None
            yield path or ((Path.NODE if node == gpu.place.numa else Path.SYS).name if known else "")

    ports = tuple(replace(port, paths=tuple(bounded(port))) for port in near.ports)
    return replace(near, ports=ports, by_numa=ports != near.ports)
