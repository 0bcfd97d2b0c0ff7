"""NVLink as values: options, policy, readings, the memory between polls, and comparison of siblings."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import LENT, GpuReading, Memories, Options, Strict, remembered
from wirewatch.core.nvml import FABRIC_STATES, UP, Supported
from wirewatch.core.ports import Gpu, Question
from wirewatch.core.statistics import Grace, Streak, Window, grouped, usual
from wirewatch.core.topology import BOARD, NvlinkProduct, due_links, nvlink_product
from wirewatch.core.types import Absent, ErrorLimit


@dataclass(frozen=True, slots=True)
class NvlinkOptions(Options):
    """How links are read."""

    link_detail: bool = False
    """Whether there are series for each single link."""
    link_detail_interval: Seconds = 600.0
    """Time between two readings of the single links. [seconds]"""


DEFAULT_LIMITS: Mapping[str, ErrorLimit] = {
    # DCGM's health watch: one replay or recovery is a finding, CRC from 100 a second.
    "replay": ErrorLimit(1),
    "recovery": ErrorLimit(1),
    "crc": ErrorLimit(6000, 60.0),
    "crc_data": ErrorLimit(6000, 60.0),
    "ecc_data": ErrorLimit(1),
    # NVLink 5: recoveries and malformed traffic; symbol errors are normal on PAM4 and judged by BER.
    "recovery_successful": ErrorLimit(1),
    "recovery_failed": ErrorLimit(1),
    "malformed": ErrorLimit(1),
    "buffer_overrun": ErrorLimit(1),
    "local_integrity": ErrorLimit(1),
}


@dataclass(frozen=True, slots=True)
class NvlinkPolicy(Strict):
    """Limits beyond which a link is at fault."""

    confirm: int = 3
    """Polls in a row before a fault of a link or of the fabric is FAILED."""
    slow_ratio: float = 0.9
    """Least share of the usual rate. [share]"""
    effective_ber: float = 1e-12
    """Bit error rate, after correction, from which on there is a finding. [errors/bit]"""
    fabric_grace: Seconds = 300.0
    """Time for which a node may register with its fabric each time, or bring up its first link.

    After a boot any link may take as long. It is UNKNOWN until then. [seconds]
    """
    error_limits: Mapping[str, ErrorLimit] = field(default_factory=dict)
    """Limits by kind of error, as tables of `events` and `seconds`.

    Kinds that are not named keep their defaults.
    """


LINK_STATES: Mapping[int, str] = {0: "inactive", 1: "active", 2: "sleep", 3: "traffic_disabled"}


@dataclass(frozen=True, slots=True)
class NvlinkLink:
    """`state` as NVML numbers it: 0 inactive, 1 active, 2 sleep, 3 traffic disabled; `speed` in bytes/s."""

    link: int
    state: int | Absent
    speed: float | Absent


@dataclass(frozen=True, slots=True)
class Fabric:
    """Fabric registration; `state`, `summary` index `FABRIC_STATES` and `FABRIC_SUMMARIES` of core.nvml."""

    state: int
    status: int
    mask: int
    summary: int | None
    clique: int
    cluster: str

    @property
    def completed(self) -> bool:
        """Return whether the registration has ended well."""
        return self.state == len(FABRIC_STATES) - 1

    @property
    def registers(self) -> bool:
        """Return whether the registration has not ended."""
        return 0 < self.state < len(FABRIC_STATES) - 1

    @property
    def place(self) -> tuple[str, int]:
        """Return cluster and clique; the cluster is empty for none, as of a board outside a rack."""
        return (self.cluster if self.cluster.strip("0-") else "", self.clique)


NO_FABRIC = Fabric(0, 0, 0, None, 0, "")


@dataclass(frozen=True, slots=True)
class LinkDetail:
    """Counters of single links at one moment: bytes by direction, errors by kind, each by link."""

    mono: float
    transmit: Mapping[int, int]
    receive: Mapping[int, int]
    errors: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class NvlinkTraffic:
    """Payload bytes over all links, raw readings for the next poll, and why a counter was `lost`."""

    transmit: int | Absent
    receive: int | Absent
    lost: Absent | None = None
    raw: Mapping[Question, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """Links of one GPU, as reported and as present; `virtual`: a machine that may have part of a board.

    `booted`: as `since_boot` has it.
    """

    mig: bool
    links: tuple[NvlinkLink, ...]
    traffic: NvlinkTraffic
    errors: Mapping[str, int | Absent]
    effective_ber: float | Absent
    fabric: Fabric | Absent
    c2c: tuple[NvlinkLink, ...]
    detail: LinkDetail | Absent | None
    count: int
    supported: Supported
    virtual: bool = False
    booted: float = math.inf


@dataclass(frozen=True, slots=True)
class NvlinkFacts:
    """The links of each GPU that was read and is whole; `sent`: its payload bytes by UUID, where read."""

    links: Mapping[Gpu, tuple[NvlinkLink, ...]]
    sent: Mapping[str, int] = field(default_factory=dict)


NvlinkReading = tuple[GpuReading[GpuLinks], ...]


@dataclass(frozen=True, slots=True)
class ActiveLinks:
    """Links of a GPU that were active, by number, chip-to-chip links apart; `rate`: the best, in bytes/s.

    `slot`: its PCI address. `registered`: with a fabric.
    """

    index: int
    name: str
    links: tuple[int, ...]
    rate: float = 0.0
    c2c: tuple[int, ...] = ()
    slot: str = ""
    registered: bool = False


@dataclass(frozen=True, slots=True)
class LastingLinks:
    """The memory that outlives the process: links that were active, by the UUID of their GPU."""

    gpus: Mapping[str, ActiveLinks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvlinkMemory:
    """A poll's memory for the next poll; `links`: how many links are asked for.

    `fastest`: the highest rate that most links of the GPU ran at, in bytes per second. `grace`: the used
    grace of fabric and first link. `last`: the last known of each value, for judging where it cannot be read
    now. `lit`: links that were active in this run; `seen_active` may be from before. `registered`: the GPU
    was registered with a fabric.
    """

    supported: Supported = field(default_factory=Supported)
    links: int = 0
    raw: Mapping[Question, int] = field(default_factory=dict)
    errors: Mapping[str, Window] = field(default_factory=dict)
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    seen_active: frozenset[int] = frozenset()
    c2c_active: frozenset[int] = frozenset()
    expected: int | None = None
    fastest: float = 0.0
    grace: Grace = field(default_factory=Grace)
    detail: LinkDetail | None = None
    last: GpuLinks | None = None
    lit: frozenset[int] = frozenset()
    registered: bool = False

    def rested(self) -> "NvlinkMemory":
        """Return what stays after a pause: the memory that outlives the process."""
        kept = NvlinkMemory(seen_active=self.seen_active, c2c_active=self.c2c_active)
        return replace(kept, fastest=self.fastest, registered=self.registered)


START = NvlinkMemory()


@dataclass(frozen=True, slots=True)
class Siblings:
    """The GPUs of one product on this node; rates in bytes per second, 0 while no link is up.

    `rate`: of most links that are up, the higher of two that are as common. `fastest`: of any. `counts`:
    active links of each since the agent started. `node`: the node's number of GPUs. `dark`: no GPU of the
    node has had a link active. `virtual`: they are in a virtual machine. `registered`: any of them has
    completed its registration with a fabric, which a GPU without links has not. `clique`: of the fabric, with
    its cluster, of more than half of the GPUs that have any. `away`: any GPU is split by MIG or lent, and
    with it the other ends of links that lead to no switch.
    """

    rate: float
    fastest: float
    counts: tuple[int, ...]
    node: int
    dark: bool
    virtual: bool
    registered: bool
    clique: tuple[str, int] | None = None
    away: bool = False

    @property
    def alone(self) -> bool:
        """Return whether it is the only GPU of the node and has no link: there is no GPU to join it with."""
        return self.dark and self.node == 1

    def partition(self, product: NvlinkProduct | None) -> bool:
        """Whether all have fewer links than our table says, as in a virtual machine with part of a board."""
        fewer = product is not None and len(set(self.counts)) == 1 and self.counts[0] < product.counts[0]
        meant = any(self.counts) or not self.registered
        return fewer and meant and self.virtual and self.node < BOARD


NO_SIBLINGS = Siblings(0.0, 0.0, (), node=0, dark=False, virtual=False, registered=False)
"""Siblings of a GPU whose product has no links."""


@dataclass(frozen=True, slots=True)
class DueLinks:
    """The due number of active links by GPU's key, and by product that of GPUs that have all.

    `more`: how many other pairs of the product have, for GPUs of a pair that has fewer.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    patterns: Mapping[str, frozenset[int]] = field(default_factory=dict)
    more: Mapping[str, int] = field(default_factory=dict)


def find_siblings(
    reading: NvlinkReading, memories: Memories[NvlinkMemory]
) -> tuple[Mapping[str, Siblings], DueLinks]:
    """Return the siblings by product, and how many links each GPU should have.

    GPUs that could not be read, that are split by MIG or that have no links are left out.
    """
    known = [
        (item.gpu, item.value)
        for item in reading
        if not isinstance(item.value, Absent) and item.value.links and not item.value.mig
    ]
    seen = {gpu.key: seen_active(remembered(memories, gpu, START), value) for gpu, value in known}
    siblings: dict[str, Siblings] = {}
    due, patterns, more = dict[str, int](), dict[str, frozenset[int]](), dict[str, int]()
    away = {i.gpu.name for i in reading if i.value == LENT or (isinstance(i.value, GpuLinks) and i.value.mig)}
    for name, alike in grouped((gpu.name, (gpu, value)) for gpu, value in known).items():
        counts = {gpu.key: len(seen[gpu.key]) for gpu, _ in alike}
        rates = [rate for _, value in alike for rate in _rates(value)]
        fabrics = [value.fabric for _, value in alike if isinstance(value.fabric, Fabric)]
        joined = [f.place for f in fabrics if f.completed]
        product = nvlink_product(name)
        switched = bool(joined or (product and product.fabric and len(reading) >= BOARD))
        siblings[name] = Siblings(
            rate=_commonest(rates),
            fastest=max(rates, default=0.0),
            counts=tuple(counts.values()),
            node=len(reading),
            dark=not any(seen.values()),
            virtual=all(value.virtual for _, value in alike),
            registered=bool(joined),
            clique=joined[0] if len(joined) == 1 else usual((name, one) for one in joined).get(name),
            away=name in away and not switched,
        )
        due |= (now := _due(name, counts))
        if product and len(product.counts) > 1:
            pairs = {n for n, gpus in Counter(now.values()).items() if n and gpus > 1}
            more |= {key: max(pairs) for key, n in now.items() if n in pairs and n < max(pairs)}
        patterns[name] = frozenset().union(*(seen[key] for key, count in counts.items() if count == due[key]))
    return siblings, DueLinks(due, patterns, more)


def seen_active(memory: NvlinkMemory, value: GpuLinks) -> frozenset[int]:
    """Return links of a GPU that are up now, or were since the agent started."""
    return memory.seen_active | {link.link for link in value.links if link.state in UP}


def usual_rate(value: GpuLinks) -> float:
    """Return the rate of most active links of a GPU; 0 for none."""
    return _commonest(_rates(value))


def _rates(value: GpuLinks) -> list[float]:
    return [k.speed for k in value.links if k.state in UP and not isinstance(k.speed, Absent)]


def _commonest(rates: list[float]) -> float:
    counted = Counter(rates)
    return max(counted, key=lambda rate: (counted[rate], rate), default=0.0)


def _due(name: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the due links of each GPU of a product: its links, rounded up to the counts of bridges.

    Where bridges decide, two GPUs share each bridge and have as many links. Where the product is not known,
    most of the GPUs decide; a GPU without any link has no bridge.
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
    """Raise the only GPU with fewer links to a GPU without a partner; a partner may also be a guest's."""
    counts = Counter(due.values())
    lone = sorted((n for n, gpus in counts.items() if gpus % 2), reverse=True)
    raised = {less: more for more, less in zip(lone[::2], lone[1::2], strict=False) if counts[less] == 1}
    return {key: raised.get(n, n) for key, n in due.items()}
