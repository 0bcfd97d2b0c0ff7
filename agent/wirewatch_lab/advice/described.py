"""A node as its owner describes it in short (`8xH100+8xNDR`), or as NCCL's topology file lists it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wirewatch.busbw.profiles import PROFILES, NetworkKind, NetworkProfile, plain
from wirewatch.core import words
from wirewatch.core.hostlink import Pcie
from wirewatch.core.names import did_you_mean
from wirewatch.core.pci import Place
from wirewatch.core.probe import Conditions, RdmaPort
from wirewatch.core.topology import (
    GpuPart,
    Group,
    NicPart,
    NvlinkWires,
    Topology,
    WireKind,
    groups,
    islands,
    nvlink_product,
)
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.gpunic.locality import ETHERNET, Locality, in_order
from wirewatch_lab.advice.machine import DESCRIBED, AdvisedMachine
from wirewatch_lab.advice.products import PRODUCTS, GpuProduct, gpu_product
from wirewatch_lab.advice.shell import ranges
from wirewatch_lab.study.curve import Study
from wirewatch_lab.study.topologyxml import (
    NcclTopology,
    XmlGpu,
    XmlNic,
    XmlPlace,
    path_in_file,
)  # fmt: skip

LANES = 16
FEWEST, BRIDGED = 1, 2
FOUR_WAY = "H200 NVL"
"""The card whose bridge joins two or four."""
MOST_PORTS = 144
THREE_BRIDGES = 12
"""Links of a card with all its bridges, where the chip has more."""
ONE_BRIDGE = re.compile(r"\bA(30|40|6000)\b")
"""Cards that take a single bridge: 112.5 GB/s both ways of an A40 and A6000, 200 of an A30 (data sheets)."""
MESHED, CUBE = 4, 8
"""The most V100 with a link between every two, and the most without a switch (DGX-1's cube mesh)."""
_NICS = r"(\d{1,3}) ?x ?([a-z0-9]+)"
_FORM = re.compile(rf"(\d{{1,3}}) ?x ?([^+]+?) ?(?:\+ ?(?:{_NICS}|([a-z0-9-]+)))?", re.ASCII | re.IGNORECASE)
_DRIVER = "mlx5"
"""The kernel driver that names NVIDIA's NICs with such ports."""
FORM = "give GPUs by number and product, and RDMA ports or a network, such as 8xH100+8xNDR or 8xH100+p5"


class DescriptionError(Exception):
    """The description names no node; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class PortKind:
    """An RDMA port by the name of its speed: `rate` in bytes per second, PCIe `generation` of its card."""

    layer: str
    rate: float
    generation: int


_INFINIBAND = {
    "FDR": (56, 3), "EDR": (100, 3), "HDR100": (100, 4), "HDR": (200, 4), "NDR200": (200, 5), "NDR": (400, 5),
    "XDR": (800, 6),
}  # fmt: skip
_ETHERNET = {25: 3, 50: 3, 100: 4, 200: 4, 400: 5, 800: 6}
PORTS: Mapping[str, PortKind] = {
    **{name: PortKind("InfiniBand", gb * 1e9 / 8, pcie) for name, (gb, pcie) in _INFINIBAND.items()},
    **{f"{gb}G": PortKind("Ethernet", gb * 1e9 / 8, pcie) for gb, pcie in _ETHERNET.items()},
}
"""InfiniBand's names, and Gb/s of Ethernet (RoCE), with the PCIe generation of their first NICs: ConnectX-4
and 5 have 3, ConnectX-6 4, ConnectX-7 5, ConnectX-8 6 (NVIDIA's data sheets)."""


_OTHER_FORM = "8xNDR, 8x400G for RoCE, or 2x100G:sockets"
_NAMED = re.compile(r"(\d{1,3})x([A-Za-z0-9]{2,8})(?::([a-z]{2,8}))?", re.ASCII)
_KINDS: Mapping[str, NetworkKind] = {
    "ib": NetworkKind.INFINIBAND, "roce": NetworkKind.ROCE, "efa": NetworkKind.EFA, "tcpx": NetworkKind.TCPX,
    "tcpxo": NetworkKind.TCPXO, "sockets": NetworkKind.SOCKETS,
}  # fmt: skip


def described(text: str, studies: Sequence[Study] = ()) -> AdvisedMachine:
    """Return the node, with `studies` as its measurements.

    Raises DescriptionError: the text describes no node, or its GPUs may be joined in several ways.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise DescriptionError(FORM)
    count, name = int(found[1]), found[2].strip()
    product = gpu_product(name)
    if product is None:
        known = sorted({_short(one) for one in PRODUCTS})
        meant = did_you_mean(name.upper(), known, f"there are {', '.join(known)}")
        raise DescriptionError(f"no data of a product {name[:40]!r}; {meant}")
    if count < FEWEST:
        raise DescriptionError("a node has one GPU or more")
    group = group_of(count, product)
    ports = _ports(int(found[3]), found[4], count, product) if found[3] else ()
    network = network_of(found[5]) if found[5] else None
    conditions = Conditions(group, pcie=Pcie(product.pcie, LANES), network=ports)
    nics = (
        f" with {words.count(len(ports), 'port')} {found[4].upper()}"
        if ports
        else f" on {network.name}"
        if network
        else ""
    )
    of = f"{count} {product.name}{nics}, as described"
    return AdvisedMachine(of, DESCRIBED, (conditions,), tuple(studies), network=network)


def network_of(name: str) -> NetworkProfile:
    """Return the network of a name, such as `p5` or `8xNDR`. Raises DescriptionError: the name is unknown."""
    found = next((one for one in PROFILES if one.name == name.lower()), None)
    if found is not None:
        return found
    match = _NAMED.fullmatch(name)
    port = PORTS.get(match[2].upper()) if match else None
    if match is None or port is None or not int(match[1]) or (match[3] and match[3] not in _KINDS):
        meant = did_you_mean(name.lower(), [one.name for one in PROFILES], f"or give its NICs: {_OTHER_FORM}")
        raise DescriptionError(f"no network {name[:40]!r} is known; {meant}")
    usual = NetworkKind.INFINIBAND if port.layer == "InfiniBand" else NetworkKind.ROCE
    return plain(_KINDS.get(match[3] or "", usual), int(match[1]), port.rate)


def group_of(count: int, product: GpuProduct) -> Group:
    """Return so many GPUs, joined as in the product. Raises DescriptionError: this is ambiguous."""
    place = Place("", "", (), None)
    gpus = tuple(GpuPart(f"gpu-{n}", n, product.name, place) for n in range(count))
    kind, links = _wires(count, product)
    crossing = Absent(Why.MISSING, "the slots are not described") if kind is WireKind.PCIE else None
    return Group(gpus, kind, (links,) * count, whole=True, crossing=crossing)


def _wires(count: int, product: GpuProduct) -> tuple[WireKind, int]:
    """Return the wires that join all GPUs, and how many links of each lead there."""
    wires = nvlink_product(product.name)
    if wires is None or count == FEWEST:
        return WireKind.PCIE, 0
    most = max(wires.counts)
    if product.domain <= BRIDGED:
        four = FOUR_WAY in product.name and count > BRIDGED
        if product.domain < BRIDGED or four:
            raise DescriptionError(f"{product.name} may be joined in several ways: pass --machine FILE")
        several = THREE_BRIDGES in wires.counts and not ONE_BRIDGE.search(product.name)
        bridged = THREE_BRIDGES if several else min(filter(None, wires.counts))
        return (WireKind.PAIR, bridged) if count == BRIDGED else (WireKind.PCIE, 0)
    if count > product.domain:
        raise DescriptionError(
            f"NVLink joins at most {product.domain} {product.name}: for more, describe one node, and give "
            "the others by --nodes"
        )
    if "V100" in product.name and count <= CUBE:
        return (WireKind.MESH if count <= MESHED else WireKind.PARTIAL), most
    return WireKind.SWITCH, most


def _ports(count: int, name: str, gpus: int, product: GpuProduct) -> tuple[RdmaPort, ...]:
    kind = PORTS.get(name.upper())
    if kind is None:
        meant = did_you_mean(name.upper(), PORTS, f"there are {', '.join(PORTS)}")
        raise DescriptionError(f"no data of a port {name[:20]!r}; {meant}")
    if not 1 <= count <= MOST_PORTS:
        raise DescriptionError(f"a node has 1 to {MOST_PORTS} ports, not {count}")
    pcie = Pcie(min(kind.generation, product.pcie), LANES)
    return tuple(
        RdmaPort(f"{_DRIVER}_{n}", "1", f"card {n}", "active", kind.layer, kind.rate, pcie, ("",) * gpus)
        for n in range(count)
    )


def _short(product: GpuProduct) -> str:
    """Return the common name, without maker, memory and slot."""
    words = re.sub(r"NVIDIA|Tesla|GeForce|Generation|Blackwell Server Edition", "", product.name)
    return re.split(r"[- ](?:\d\dGB|SXM|480GB)", words.strip())[0].strip()


SOCKETS = "a network interface, which NCCL uses by sockets"
_INTERFACE = re.compile(r"(eth|en[opsx]|ib|bond|veth|docker|br-)\w*$", re.ASCII)
_MASK = re.compile(r"[0-9a-fA-F]{1,8}(,[0-9a-fA-F]{1,8}){0,255}", re.ASCII)
_MOST_LINKS = 64


def machine_of(found: NcclTopology, name: str, measured: Sequence[Study] = ()) -> AdvisedMachine:
    """Return the machine, with PCI addresses as names of GPUs, and of NICs without names in the file."""
    numbers = _numbers(found.gpus)
    gpus = in_order(
        GpuPart(gpu.place.address, number, "", _place(gpu.place))
        for gpu, number in zip(found.gpus, numbers, strict=True)
    )
    places = {gpu.place.address: gpu for gpu in found.gpus}
    nics = {nic.name or nic.place.address: nic for nic in found.nics if not _INTERFACE.match(nic.name)}
    # A file without any NVLink was not written by NCCL, as those of providers.
    own = any(gpu.nvlinks or gpu.dev is not None for gpu in found.gpus)
    sockets = {nic.name: nic for nic in found.nics if _INTERFACE.match(nic.name)}
    others = tuple((name, SOCKETS) for name in sockets)
    topology = Topology(
        gpus=gpus,
        nics=tuple(
            NicPart("", device, "", "", _place(nic.place), (("", ""),))
            for device, nic in nics.items()
        ),
        nvlink=tuple(wire for gpu in found.gpus for wire in _links_by_peer(gpu, places)),
        paths=(), numa_nodes=None, versions=(),
        unread=() if own else tuple(gpu.place.address for gpu in found.gpus),
    )  # fmt: skip

    def port(device: str, nic: XmlNic, layer: str) -> RdmaPort:
        rate = Absent(Why.MISSING, "the file does not have it") if nic.rate is None else nic.rate
        ways = tuple(path_in_file(places[gpu.uuid].place, nic.place).name for gpu in gpus)
        card = nic.place.address.rpartition(".")[0]
        return RdmaPort(device, "", card, "", layer, rate, _pcie(nic.place), ways)

    ports = tuple(port(device, nic, "") for device, nic in nics.items())
    interfaces = tuple(port(name, nic, ETHERNET) for name, nic in sockets.items())
    known = {key: text for key, gpu in places.items() if (text := _cpus(gpu.place.affinity))}
    near = Locality(gpus, ports, stated=False, others=others, cpus=known, interfaces=interfaces)
    conditions = conditions_of(topology)
    return AdvisedMachine(f"NCCL's topology in {name}", topology, conditions, tuple(measured), near)


def conditions_of(topology: Topology) -> tuple[Conditions, ...]:
    """Return the wires of a node and of its islands; a single GPU has the node without wires."""
    lone = (Group(topology.gpus, WireKind.PCIE, (0,), whole=True),) if len(topology.gpus) == 1 else ()
    return tuple(map(Conditions, lone or groups(topology, islands(topology))))


def _numbers(gpus: Sequence[XmlGpu]) -> Sequence[int]:
    """Return NVML's numbers where every GPU has its own, else the order of the file."""
    given = [gpu.dev for gpu in gpus if gpu.dev is not None]
    return given if len(set(given)) == len(gpus) else range(len(gpus))


def _place(place: XmlPlace) -> Place:
    return Place(place.address, f"cpu{place.cpu}", place.bridges, place.numa)


def _links_by_peer(gpu: XmlGpu, known: "dict[str, XmlGpu]") -> Sequence[NvlinkWires]:
    """Return links by peer; NCCL's file does not number links."""
    found, first = [], 0
    for peer, count in gpu.nvlinks.items():
        if peer in known or ":" not in peer:
            found.append(
                NvlinkWires(gpu.place.address, peer, tuple(range(first, first + min(count, _MOST_LINKS))))
            )
            first += count
    return found


def _pcie(place: XmlPlace) -> Pcie | Absent:
    if place.generation is None or place.lanes is None:
        return Absent(Why.MISSING, "the file does not have its PCIe link")
    return Pcie(place.generation, place.lanes)


def _cpus(affinity: str) -> str:
    if not _MASK.fullmatch(affinity):
        return ""
    mask = int("".join(word.zfill(8) for word in affinity.split(",")), 16)
    return ranges(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
