"""What is known of NVLink: one GPU's reading, and what a poll leaves for the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.core.asking import Supported
from wirewatch.core.collector import Options
from wirewatch.core.pergpu import GpuReading
from wirewatch.core.ports import Question
from wirewatch.core.rates import Streak, Window
from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class NvlinkOptions(Options):
    """`link_detail`: series for each single link, read every `link_detail_interval` seconds."""

    link_detail: bool = False
    link_detail_interval: float = 600.0


@dataclass(frozen=True, slots=True)
class Link:
    """`state` as NVML numbers it: 0 inactive, 1 active, 2 sleep, 3 traffic disabled; `speed` in bytes/s."""

    link: int
    state: int | Absent
    speed: float | Absent


@dataclass(frozen=True, slots=True)
class Fabric:
    """Fabric registration; `state`, `summary` index `bits.FABRIC_STATES` and `FABRIC_SUMMARIES`."""

    state: int
    status: int
    mask: int
    summary: int | None
    clique: int
    cluster: str


@dataclass(frozen=True, slots=True)
class Detail:
    """Counters of single links at one moment: bytes by direction, errors by kind, each by link."""

    mono: float
    transmit: Mapping[int, int]
    receive: Mapping[int, int]
    errors: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Payload bytes over all links, and the raw readings that the next poll compares with.

    `lost` is why a counter could not be read; one that stood still beside its moving twin was read.
    """

    transmit: int | Absent
    receive: int | Absent
    lost: Absent | None = None
    raw: Mapping[Question, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """What one GPU told about its links; kinds of error that it does not have are left out."""

    mig: bool
    links: tuple[Link, ...]
    traffic: Traffic
    errors: Mapping[str, int | Absent]
    effective_ber: float | Absent
    fabric: Fabric | Absent
    c2c: tuple[Link, ...]
    detail: Detail | Absent | None
    count: int
    supported: Supported


@dataclass(frozen=True, slots=True)
class Memory:
    """What a poll leaves for the next one; `links` is how many are asked for.

    `last` holds what was last known of each value, for judging what cannot be read now.
    """

    supported: Supported = field(default_factory=Supported)
    links: int = 0
    raw: Mapping[Question, int] = field(default_factory=dict)
    errors: Mapping[str, Window] = field(default_factory=dict)
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    seen_active: frozenset[int] = frozenset()
    expected: int | None = None
    detail: Detail | None = None
    last: GpuLinks | None = None


Reading = tuple[GpuReading[GpuLinks], ...]
START = Memory()
