"""NVLink as values: options, policy, what one GPU reports, and what a poll leaves for the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.core.collector import GpuReading, Options, Strict
from wirewatch.core.nvml import Supported
from wirewatch.core.ports import Gpu, Question
from wirewatch.core.statistics import Grace, Streak, Window
from wirewatch.core.types import Absent, ErrorLimit


@dataclass(frozen=True, slots=True)
class NvlinkOptions(Options):
    """How links are read."""

    link_detail: bool = False
    """Whether there are series for each single link."""
    link_detail_interval: float = 600.0
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
    """What counts as wrong with a link."""

    confirm: int = 3
    """Polls in a row before a fault of a link or of the fabric is FAILED."""
    slow_ratio: float = 0.9
    """Least share of the usual rate. [share]"""
    effective_ber: float = 1e-12
    """Bit error rate, after correction, from which on there is a finding. [errors/bit]"""
    fabric_grace: float = 300.0
    """Time a day for which a node may register with its fabric, or bring up its first link.

    It is UNKNOWN until then. [seconds]
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
    """What one GPU reports about its links and has; `virtual`: a machine that may have part of a board."""

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


@dataclass(frozen=True, slots=True)
class NvlinkFacts:
    """The links of each GPU that was read and is whole; `sent`: its payload bytes by UUID, where read."""

    links: Mapping[Gpu, tuple[NvlinkLink, ...]]
    sent: Mapping[str, int] = field(default_factory=dict)


NvlinkReading = tuple[GpuReading[GpuLinks], ...]


@dataclass(frozen=True, slots=True)
class ActiveLinks:
    """Links of a GPU that were active, by number, chip-to-chip links apart; `rate`: the best, in bytes/s."""

    index: int
    name: str
    links: tuple[int, ...]
    rate: float = 0.0
    c2c: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LastingLinks:
    """What outlives the process: the links that were active, by the UUID of their GPU."""

    gpus: Mapping[str, ActiveLinks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvlinkMemory:
    """What a poll leaves for the next one; `links` is how many are asked for.

    `fastest`: the highest rate that most links of the GPU ran at, in bytes per second. `grace`: what fabric
    and first link have spent of theirs. `last` holds what was last known of each value, for judging what
    cannot be read now.
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


START = NvlinkMemory()
