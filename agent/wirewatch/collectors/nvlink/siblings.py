"""What the GPUs of a product show of each other: their rates, and how many links each should have."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.collectors.nvlink.model import START, GpuLinks, NvlinkMemory, NvlinkReading
from wirewatch.core.collector import Memories, remembered
from wirewatch.core.nvml import FABRIC_STATES, UP
from wirewatch.core.ports import Gpu
from wirewatch.core.statistics import grouped
from wirewatch.core.topology import BOARD, NvlinkProduct, due_links, nvlink_product
from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class Siblings:
    """The GPUs of one product on this node; rates in bytes per second, 0 while no link is up.

    `rate`: of most links that are up, the higher of two that are as common. `fastest`: of any. `counts`: how
    many links each of them has had active since the agent started. `node`: how many GPUs the node has.
    `dark`: no GPU of the node has had a link active. `virtual`: they are in a virtual machine. `registered`:
    one of them has completed its registration with a fabric, which a GPU without links has not.
    """

    rate: float
    fastest: float
    counts: tuple[int, ...]
    node: int
    dark: bool
    virtual: bool
    registered: bool

    @property
    def alone(self) -> bool:
        """The only GPU of the node, which has no link: there is nothing for it to be joined with."""
        return self.dark and self.node == 1

    def partition(self, product: NvlinkProduct | None) -> bool:
        """Whether all have fewer links than our table says, as in a virtual machine with part of a board."""
        fewer = product is not None and len(set(self.counts)) == 1 and self.counts[0] < product.counts[0]
        meant = any(self.counts) or not self.registered
        return fewer and meant and self.virtual and self.node < BOARD


@dataclass(frozen=True, slots=True)
class DueLinks:
    """How many links should be active, by GPU's key, and by product which those are of GPUs that have all."""

    counts: Mapping[str, int] = field(default_factory=dict)
    patterns: Mapping[str, frozenset[int]] = field(default_factory=dict)


def find_siblings(reading: NvlinkReading, memories: Memories[NvlinkMemory]) -> Mapping[str, Siblings]:
    """By product; GPUs that could not be read, that are split by MIG or that have no links are left out."""
    known = [
        (item.gpu, item.value)
        for item in reading
        if not isinstance(item.value, Absent) and item.value.links and not item.value.mig
    ]
    active = {gpu.key: len(seen_active(remembered(memories, gpu, START), value)) for gpu, value in known}
    dark = not any(active.values())
    return {
        name: _siblings([one for one in known if one[0].name == name], active, len(reading), dark=dark)
        for name in {gpu.name for gpu, _ in known}
    }


def seen_active(memory: NvlinkMemory, value: GpuLinks) -> frozenset[int]:
    """Links of a GPU that are up now, or were since the agent started."""
    return memory.seen_active | {link.link for link in value.links if link.state in UP}


def usual_rate(value: GpuLinks) -> float:
    """The rate of most links of a GPU that are up; 0 for none."""
    return _commonest(_rates(value))


def find_due(reading: NvlinkReading, memories: Memories[NvlinkMemory]) -> DueLinks:
    """By the links that GPUs have active now, or had before; GPUs split by MIG are left out."""
    known = [(i.gpu, i.value) for i in reading if not isinstance(i.value, Absent) and not i.value.mig]
    seen = {g.key: seen_active(remembered(memories, g, START), value) for g, value in known if value.links}
    counts: dict[str, int] = {}
    patterns: dict[str, frozenset[int]] = {}
    for name, gpus in grouped((gpu.name, gpu) for gpu, _ in known if gpu.key in seen).items():
        counts |= _due(name, {gpu.key: len(seen[gpu.key]) for gpu in gpus})
        whole = [seen[gpu.key] for gpu in gpus if len(seen[gpu.key]) == counts[gpu.key]]
        patterns[name] = frozenset().union(*whole)
    return DueLinks(counts, patterns)


def _siblings(
    alike: list[tuple[Gpu, GpuLinks]], active: Mapping[str, int], node: int, *, dark: bool
) -> Siblings:
    rates = [rate for _, value in alike for rate in _rates(value)]
    return Siblings(
        rate=_commonest(rates),
        fastest=max(rates, default=0.0),
        counts=tuple(active[gpu.key] for gpu, _ in alike),
        node=node,
        dark=dark,
        virtual=all(value.virtual for _, value in alike),
        registered=any(_registered(value) for _, value in alike),
    )


def _registered(value: GpuLinks) -> bool:
    return not isinstance(value.fabric, Absent) and value.fabric.state == len(FABRIC_STATES) - 1


def _rates(value: GpuLinks) -> list[float]:
    return [k.speed for k in value.links if k.state in UP and not isinstance(k.speed, Absent)]


def _commonest(rates: list[float]) -> float:
    counted = Counter(rates)
    return max(counted, key=lambda rate: (counted[rate], rate), default=0.0)


def _due(name: str, counts: Mapping[str, int]) -> dict[str, int]:
    """How many links each GPU of a product should have: what it has, rounded up to what bridges make.

    Where bridges decide, two GPUs share each bridge and have as many links. Where the product is not known,
    most of the GPUs decide; one without any link has no bridge.
    """
    product = nvlink_product(name)
    if product is None:
        usual, share = Counter(counts.values()).most_common(1)[0]
        least = usual if 2 * share > len(counts) > 2 else 0  # noqa: PLR2004 - of two neither is usual
        return {key: max(n, least) if n else 0 for key, n in counts.items()}
    if len(product.counts) == 1:
        return dict(counts)
    return _in_pairs({key: due_links(name, n) for key, n in counts.items()})


def _in_pairs(due: Mapping[str, int]) -> dict[str, int]:
    """Give a GPU without a partner the only one with fewer links; a partner may also be a guest's."""
    counts = Counter(due.values())
    lone = sorted((n for n, gpus in counts.items() if gpus % 2), reverse=True)
    raised = {less: more for more, less in zip(lone[::2], lone[1::2], strict=False) if counts[less] == 1}
    return {key: raised.get(n, n) for key, n in due.items()}
