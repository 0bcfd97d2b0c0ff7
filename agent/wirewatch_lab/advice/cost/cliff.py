"""The bandwidth cliff: a GPU's rate each way over HBM, NVLink, PCIe and the network.

All rates are one way, in bytes per second. Vendors print both ways together for NVLink. NVLink has its
nominal rate here, 25 or 50 GB/s a link; with line coding the driver shows 26.562 and 53.125. A probe compares
with `wire` of busbw.expected.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from wirewatch.busbw.expected import pcie_rate, wire
from wirewatch.busbw.network import SOURCE, count_ports, network_share
from wirewatch.busbw.references import Confidence, architecture
from wirewatch.core.hostlink import Pcie
from wirewatch.core.probe import Conditions
from wirewatch.core.topology import WireKind, due_links, nvlink_product
from wirewatch.core.types import Absent
from wirewatch.core.words import GB
from wirewatch_lab.advice.described import PORTS
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.products import SOURCE as PRODUCT_DATA
from wirewatch_lab.advice.products import product_of

LANES = 16
AXIS = "GB/s of one GPU, one way"
NOMINAL = (14.0625e9, 20e9, 25e9, 50e9)
"""Nominal rates of one NVLink link each way."""
TYPICAL: Mapping[str, str] = {"Volta": "EDR", "Ampere": "HDR", "Hopper": "NDR", "Blackwell": "NDR"}
"""Common port of each GPU architecture, where none is known."""


@dataclass(frozen=True, slots=True)
class LinkGeneration:
    """A generation of NVLink: `links` of a GPU, `rate` of a link each way in bytes per second."""

    generation: str
    product: str
    links: int
    rate: float

    @property
    def each_way(self) -> float:
        """Return a GPU's rate over all its links."""
        return self.links * self.rate


GENERATIONS: tuple[LinkGeneration, ...] = (
    LinkGeneration("1", "P100", 4, 20e9),
    LinkGeneration("2", "V100", 6, 25e9),
    LinkGeneration("3", "A100", 12, 25e9),
    LinkGeneration("4", "H100, H200", 18, 25e9),
    LinkGeneration("5", "B200, GB200", 18, 50e9),
)
"""NVIDIA's data sheets print twice the product: both ways together."""


@dataclass(frozen=True, slots=True)
class CliffStep:
    """One step: `rate` of a GPU one way. `printed`: what vendors print for both ways, None where they do not.

    `known`: whether it is this machine's, or what such machines commonly have. `below`: how many times slower
    than the step above it, None for the first.
    """

    name: str
    what: str
    rate: float
    printed: float | None
    known: bool
    confidence: Confidence
    source: str
    below: float | None = None


def cliff(machine: AdvisedMachine) -> tuple[CliffStep, ...]:
    """Return the known steps, from HBM down; unknown network parts have typical values."""
    steps = (*_memory(machine), *_nvlink(machine), *_pcie(machine), *_network(machine))
    below = (replace(step, below=above.rate / step.rate) for above, step in pairwise(steps))
    return (*steps[:1], *below)


def ratio(steps: Sequence[CliffStep], above: str, below: str) -> float | None:
    """Return how many times faster one step is than another; None where either step is missing."""
    rates = {step.name: step.rate for step in steps}
    return rates[above] / rates[below] if {above, below} <= rates.keys() else None


HBM, NVLINK, PCIE, NETWORK = "HBM", "NVLink", "PCIe", "network"


def _memory(machine: AdvisedMachine) -> Iterator[CliffStep]:
    product = product_of(machine)
    if product is not None:
        what = f"memory of {product.name}, reads and writes together"
        rate = product.memory_rate
        yield CliffStep(HBM, what, rate, None, True, Confidence.PUBLISHED, PRODUCT_DATA)  # noqa: FBT003


def _nvlink(machine: AdvisedMachine) -> Iterator[CliffStep]:
    """Yield the step of the best-joined GPUs."""
    joined = [one for one in machine.conditions if one.group.kind is not WireKind.PCIE]
    for conditions in joined[-1:]:
        group = conditions.group
        product = nvlink_product(group.gpus[0].name)
        rail = wire(conditions)
        if product is None or isinstance(rail, Absent):
            return
        links = max(due_links(gpu.name, n) for gpu, n in zip(group.gpus, group.links, strict=True))
        link = min(NOMINAL, key=lambda rate: abs(rate - product.link_rate))
        shown = f"the driver shows {rail.rate / GB:.1f}"
        what = f"{links} links x {link / GB:g} GB/s over {group.kind.value}; {shown}"
        yield CliffStep(
            NVLINK, what, links * link, 2 * links * link, known=True, confidence=Confidence.PUBLISHED,
            source=product.source,
        )  # fmt: skip


def _pcie(machine: AdvisedMachine) -> Iterator[CliffStep]:
    product = product_of(machine)
    read = next((one.pcie for one in machine.conditions), None)
    bus = read if isinstance(read, Pcie) else Pcie(product.pcie if product else 0, LANES)
    rate = pcie_rate(bus.generation, bus.lanes)
    if not isinstance(rate, Absent):
        whose = "" if isinstance(read, Pcie) else " by its product"
        what = f"PCIe {bus.generation} x{bus.lanes}{whose}, shared with NICs and disks"
        source = "PCI Express base specification, after line coding"
        known = isinstance(read, Pcie)
        yield CliffStep(PCIE, what, rate, 2 * rate, known, Confidence.DERIVED, source)


def _network(machine: AdvisedMachine) -> Iterator[CliffStep]:
    if not machine.conditions:
        return
    whole = machine.conditions[0]
    # One GPU alone has no collective, and its ports all the same.
    share = network_share(whole)
    if not isinstance(share, Absent):
        what = f"{_counted(whole)}a GPU's share of them"
        yield CliffStep(NETWORK, what, share.rate, None, True, Confidence.DERIVED, SOURCE)  # noqa: FBT003
        return
    arch = architecture(whole.group.gpus[0].name)
    name = "" if isinstance(arch, Absent) else TYPICAL.get(arch, "")
    if not name:
        return
    port = PORTS[name]
    what = f"one port {name} a GPU, as such machines commonly have: none is known here"
    source = "InfiniBand's rates"
    yield CliffStep(NETWORK, what, port.rate, None, False, Confidence.LOW, source)  # noqa: FBT003


def _counted(whole: Conditions) -> str:
    """Return how many RDMA ports the GPUs share, and out of how many."""
    if isinstance(whole.network, Absent):
        return ""
    counted, every = len(count_ports(whole)[0]), len(whole.network)
    return f"{counted} RDMA ports, " if counted == every else f"{counted} of {every} RDMA ports, "


def bars(steps: Sequence[CliffStep], width: int) -> tuple[str, ...]:
    """Return a bar for each step, linear in its rate: `width` characters for the fastest, 1 for the least."""
    most = max((step.rate for step in steps), default=1.0)
    return tuple("#" * max(1, round(step.rate / most * width)) for step in steps)


def plotted(steps: Sequence[CliffStep]) -> list[tuple[str, float, str, bool]]:
    """Return each step for `draw_bars`: name, GB/s, label, and whether it is only typical."""
    less = [f", {one.below:.1f}x less" if one.below is not None and one.below >= 1 else "" for one in steps]
    rates = zip(steps, less, strict=True)
    return [(one.name, one.rate / GB, f"{one.rate / GB:,.0f}{text}", not one.known) for one, text in rates]
