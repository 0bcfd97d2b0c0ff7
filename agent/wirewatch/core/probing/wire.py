"""The wire under a group of GPUs: how many bytes a second one GPU can send each way when nothing is lost."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.core.pci import LANE_RATES
from wirewatch.core.probing.islands import PATHS, Group, Kind, due_links
from wirewatch.core.products import nvlink_product
from wirewatch.core.types import Absent, Why

GB = 1e9
"""For texts that people read."""
NOT_TOLD = Absent(Why.MISSING, "not told")
_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Pcie:
    """Generation and lanes that the card and its slot should train to, not those that they show now."""

    generation: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """All that an expectation follows from.

    `link_rate`: of one NVLink link each way in bytes per second, as most links of the node show it; used for
    products without data. `links`: the operator's count of links a GPU. `multicast`: whether the driver
    offers what NVLS needs. `settings`: NCCL's, the environment over nccl.conf. `pins`: the operator's bus
    bandwidths in bytes per second, by `op` (of ever larger messages) or `op@bytes`.
    """

    group: Group
    link_rate: float | Absent = NOT_TOLD
    links: int | None = None
    pcie: Pcie | Absent = NOT_TOLD
    multicast: bool | Absent = NOT_TOLD
    settings: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wire:
    """Bytes per second of one GPU each way, and how they follow."""

    rate: float
    lines: tuple[str, ...]


def wire(conditions: Conditions) -> Wire | Absent:
    """The wire of the group's slowest GPU, as if no link were lost: a lost link is the probe's to find.

    Returns:
        Absent for one GPU alone, for wires that are not known, and for rates that nobody tells.
    """
    group = conditions.group
    if group.kind is Kind.UNKNOWN:
        return Absent(Why.MISSING, group.why or Kind.UNKNOWN.value)
    if group.kind is Kind.ALONE:
        return Absent(Why.UNSUPPORTED, "one GPU alone has no wire to another")
    return _pcie(conditions) if group.kind is Kind.PCIE else _nvlink(conditions)


def _pcie(conditions: Conditions) -> Wire | Absent:
    if isinstance(conditions.pcie, Absent):
        return Absent(conditions.pcie.why, f"PCIe generation and lanes: {conditions.pcie.detail}")
    generation, lanes = conditions.pcie.generation, conditions.pcie.lanes
    rate = pcie_rate(generation, lanes)
    if isinstance(rate, Absent):
        return rate
    crossing = conditions.group.crossing
    where = "a path that is not told" if crossing is None or isinstance(crossing, Absent) else PATHS[crossing]
    return Wire(
        rate,
        (
            f"no NVLink joins all {conditions.group.ranks} GPUs: a ring crosses {where}",
            f"PCIe {generation} x{lanes} = {rate / GB:.1f} GB/s each way",
        ),
    )


def pcie_rate(generation: int, lanes: int) -> float | Absent:
    """Bytes per second each way after line coding: 8b/10b, from generation 3 128b/130b, 242 of 256 for 6."""
    transfers = next((rate for rate, number in LANE_RATES.items() if number == generation), None)
    if transfers is None or lanes < 1:
        return Absent(Why.MALFORMED, f"not a PCIe link: generation {generation}, {lanes} lanes")
    coding = {1: 8 / 10, 2: 8 / 10, 6: 242 / 256}.get(generation, 128 / 130)
    return transfers * 1e9 * coding * lanes / 8


def _nvlink(conditions: Conditions) -> Wire | Absent:
    found: list[Wire] = []
    for place, gpu in enumerate(conditions.group.gpus):
        one = _gpu(conditions, place)
        if isinstance(one, Absent):
            return Absent(one.why, f"GPU {gpu.index}: {one.detail}")
        found.append(one)
    slowest = min(found, key=lambda one: one.rate)
    lost = tuple(line for one in found for line in one.lines[1:])
    mixed = any(one.rate != slowest.rate for one in found)
    return Wire(slowest.rate, (slowest.lines[0], *(["of the slowest GPU"] if mixed else []), *lost))


def _gpu(conditions: Conditions, place: int) -> Wire | Absent:
    """One GPU's wire: the first line is the product of links and rate, the others are remarks."""
    group = conditions.group
    gpu, live = group.gpus[place], group.links[place]
    peers = (due_links(g.name, n) for g, n in zip(group.gpus, group.links, strict=True) if g.name == gpu.name)
    links = max(peers) if conditions.links is None else conditions.links
    product = nvlink_product(gpu.name)
    told = conditions.link_rate
    if product is None and isinstance(told, Absent):
        return Absent(
            told.why, f"the rate of a link of {gpu.name or 'a product without name'}: {told.detail}"
        )
    rate = product.link_rate if product else told
    if isinstance(rate, Absent) or links < 1:
        return Absent(Why.MISSING, "no NVLink link is up, and none is known to be due")
    lines = [f"{links} NVLink links x {_short(rate)} GB/s = {links * rate / GB:.1f} GB/s each way"]
    if live < links:
        lost = "that lowers what is measured, not what is expected"
        lines.append(f"GPU {gpu.index} shows {live} of {links} links up: {lost}")
    if not isinstance(told, Absent) and abs(told - rate) > _NOISE * rate and place == 0:
        lines.append(f"the driver shows {_short(told)} GB/s a link: the product's data are used")
    return Wire(links * rate, tuple(lines))


def _short(rate: float) -> str:
    return f"{rate / GB:.3f}".rstrip("0").rstrip(".")
