"""A node as its owner describes it in a few letters: `8xH100+8xNDR`, joined as product data say."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.names import did_you_mean
from wirewatch.core.pci import Place
from wirewatch.core.probe import Conditions, Pcie, RdmaPort
from wirewatch.core.topology import GpuPart, Group, WireKind, nvlink_product
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.machine import DESCRIBED, AdvisedMachine
from wirewatch_lab.advice.products import PRODUCTS, GpuProduct, gpu_product
from wirewatch_lab.study.curve import Study

LANES = 16
FEWEST, BRIDGED = 2, 2
FOUR_WAY = "H200 NVL"
"""The card of which a bridge joins two or four."""
MOST_PORTS = 144
THREE_BRIDGES = 12
"""Links of a card with all its bridges, where the chip has more."""
MESHED, CUBE = 4, 8
"""The most V100 with a link between every two, and the most without a switch (DGX-1's cube mesh)."""
_FORM = re.compile(r"(\d{1,3}) ?x ?([^+]+?) ?(?:\+ ?(\d{1,3}) ?x ?([A-Za-z0-9]+))?", re.ASCII | re.IGNORECASE)
_DRIVER = "mlx5"
"""The kernel's driver of every NIC with such a port by NVIDIA, after which it names them."""
FORM = "give a number of GPUs and a product, and RDMA ports if it has any, such as 8xH100+8xNDR"


class DescriptionError(Exception):
    """A description that does not describe a node; one line for people."""


@dataclass(frozen=True, slots=True)
class PortKind:
    """An RDMA port by the name of its speed: `rate` in bytes per second, PCIe `generation` of its card."""

    layer: str
    rate: float
    generation: int


def _port(layer: str, gigabits: int, generation: int) -> PortKind:
    return PortKind(layer, gigabits * 1e9 / 8, generation)


PORTS: Mapping[str, PortKind] = {
    "FDR": _port("InfiniBand", 56, 3),
    "EDR": _port("InfiniBand", 100, 3),
    "HDR100": _port("InfiniBand", 100, 4),
    "HDR": _port("InfiniBand", 200, 4),
    "NDR200": _port("InfiniBand", 200, 5),
    "NDR": _port("InfiniBand", 400, 5),
    "XDR": _port("InfiniBand", 800, 6),
    "25G": _port("Ethernet", 25, 3),
    "50G": _port("Ethernet", 50, 3),
    "100G": _port("Ethernet", 100, 4),
    "200G": _port("Ethernet", 200, 4),
    "400G": _port("Ethernet", 400, 5),
    "800G": _port("Ethernet", 800, 6),
}
"""InfiniBand's names, and Gb/s of Ethernet (RoCE), with the PCIe generation of the NICs that brought them:
ConnectX-4 and 5 have 3, ConnectX-6 4, ConnectX-7 5, ConnectX-8 6 (NVIDIA's data sheets)."""


def described(text: str, studies: Sequence[Study] = ()) -> AdvisedMachine:
    """The node, with `studies` as what was measured on it.

    Raises:
        DescriptionError: the text describes no node, or one that may be joined in several ways.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise DescriptionError(FORM)
    count, name = int(found[1]), found[2].strip()
    product = gpu_product(name)
    if product is None:
        raise DescriptionError(no_product(name))
    if count < FEWEST:
        raise DescriptionError("collectives take two GPUs or more")
    group = _group(count, product)
    ports = _ports(int(found[3]), found[4], count, product) if found[3] else ()
    conditions = Conditions(group, pcie=Pcie(product.pcie, LANES), network=ports)
    nics = f" with {found[3]} ports {found[4].upper()}" if ports else ""
    return AdvisedMachine(
        f"{count} {product.name}{nics}, as described", DESCRIBED, (conditions,), tuple(studies)
    )


def no_product(name: str) -> str:
    """Why nothing is known of a product, with the nearest names or all of them."""
    known = sorted({_short(one) for one in PRODUCTS})
    meant = did_you_mean(name.upper(), known, f"there are {', '.join(known)}")
    return f"no data of a product {name[:40]!r}; {meant}"


def _group(count: int, product: GpuProduct) -> Group:
    place = Place("", "", (), None)
    gpus = tuple(GpuPart(f"gpu-{n}", n, product.name, place) for n in range(count))
    kind, links = _wires(count, product)
    crossing = Absent(Why.MISSING, "the slots are not described") if kind is WireKind.PCIE else None
    return Group(gpus, kind, (links,) * count, whole=True, crossing=crossing)


def _wires(count: int, product: GpuProduct) -> tuple[WireKind, int]:
    """What joins all of them, and how many links of each lead there."""
    wires = nvlink_product(product.name)
    if wires is None:
        return WireKind.PCIE, 0
    most = max(wires.counts)
    if product.domain <= BRIDGED:
        four = FOUR_WAY in product.name and count > BRIDGED
        if product.domain < BRIDGED or four:
            raise DescriptionError(f"{product.name} may be joined in several ways: pass --topology")
        bridged = THREE_BRIDGES if THREE_BRIDGES in wires.counts else most
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
    """What people call it: the name without maker, memory and slot."""
    words = re.sub(r"NVIDIA|Tesla|GeForce|Generation|Blackwell Server Edition", "", product.name)
    return re.split(r"[- ](?:\d\dGB|SXM|480GB)", words.strip())[0].strip()
