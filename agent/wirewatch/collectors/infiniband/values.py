"""What is known of RDMA devices and their ports, and what a poll leaves for the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from wirewatch.collectors.infiniband.counters import ERRORS, LINK_DOWNED
from wirewatch.core.collector import Options
from wirewatch.core.policy import ErrorLimit
from wirewatch.core.ports import Output
from wirewatch.core.rates import Streak, Window
from wirewatch.core.rdma import Rate
from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class InfinibandOptions(Options):
    """`exclude`: patterns of device names that are never opened; ibstat, which opens all, is not run then.

    `ibstat`: whether it is run where it is installed, every `ibstat_interval` seconds. `identity_interval`:
    seconds between two looks at what hardly changes. `refused_seconds`: how long a counter is left alone
    that the device refused to tell; it doubles up to a day.
    """

    exclude: tuple[str, ...] = ()
    ibstat: bool = True
    ibstat_interval: float = 300.0
    identity_interval: float = 300.0
    refused_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class InfinibandPolicy:
    """What counts as wrong with a port.

    `confirm`: polls in a row before a fault is FAILED; `slow_ratio` of the expected rate; `flaps` times
    down for `flap_seconds` or longer and up again within `flap_window` seconds (as GPUd has it).
    `sibling_ratio` of the ports of one model must be active before one that never was is conspicuous.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    confirm: int = 3
    slow_ratio: float = 0.9
    flaps: int = 3
    flap_seconds: float = 25.0
    flap_window: float = 43200.0
    sibling_ratio: float = 0.75
    error_limits: Mapping[str, ErrorLimit] = field(default_factory=dict)

    def limit(self, kind: str) -> ErrorLimit | None:
        """The operator's limit for a kind of error, else ours; None when the kind is not judged."""
        default = LINK_DOWNED if kind == "link_downed" else ERRORS[kind]
        return self.error_limits.get(kind) or default.limit


@dataclass(frozen=True, slots=True)
class PciLink:
    """PCIe of a card: generation and lanes now, and the most that card and slot both can."""

    generation: int | Absent
    width: int | Absent
    generation_max: int | Absent
    width_max: int | Absent


@dataclass(frozen=True, slots=True)
class Identity:
    """What hardly ever changes of a device; texts are empty where it does not tell.

    `lost`: why part of it could not be read this time; what was known of that part stands.
    """

    pci: str
    numa: str
    firmware: str
    model: str
    board: str
    guid: str
    netdevs: tuple[str, ...]
    ports: Mapping[str, tuple[str, ...]]
    """Ports, and which of the counters that we know each has."""
    lost: Absent | None = None

    def same_card(self, other: "Identity") -> bool:
        """Whether both are one card in one place: another card, or another function, starts anew."""
        return (self.guid, self.pci, self.board) == (other.guid, other.pci, other.board)


PortKey = tuple[str, str]
"""Device and port."""


@dataclass(frozen=True, slots=True)
class Port:
    """One port now; `counters` by path below the port's folder."""

    state: str | Absent
    physical: str | Absent
    layer: str | Absent
    rate: Rate | Absent
    lid: int | Absent
    counters: Mapping[str, int | Absent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A counter that a device refused so many times: not asked before `until` (monotonic seconds)."""

    until: float
    times: int


@dataclass(frozen=True, slots=True)
class Reading:
    """`identities`, `strays` hold from one look at them to the next; `looked` is when that was, monotonic.

    `missing`: why a device that was known is not listed. `strays`: network cards that no RDMA device claims,
    and where they are. `ibstat` None: not its turn.
    """

    devices: tuple[str, ...]
    identities: Mapping[str, Identity]
    ports: Mapping[PortKey, Port]
    links: Mapping[str, PciLink]
    missing: Mapping[str, "Where"]
    strays: Mapping[str, "Where"]
    refused: Mapping[str, Refusal]
    ibstat: Output | Absent | None
    looked: float


@dataclass(frozen=True, slots=True)
class Where:
    """Where a device is that is not listed: `away` elsewhere on purpose, gone, or (None) not to be told."""

    away: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class PortMemory:
    """One port's past: monotonic seconds, bytes per second.

    `ceiling`: counters that stood at their ceiling when first seen, so that nothing is known of them;
    `stuck`: those that reached it since.
    """

    last: Port
    board: str = ""
    was_active: bool = False
    best: float = 0.0
    expected: float | None = None
    pinned: bool = False
    down_since: float | None = None
    flaps: tuple[float, ...] = ()
    flapped: int = 0
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    windows: Mapping[str, Window] = field(default_factory=dict)
    ceiling: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Check:
    """The last comparison with ibstat; `asked` in monotonic seconds.

    `disagreements`: what differs, by port, port "" for a device; `repeated` when a second look said the same.
    """

    asked: float | None = None
    disagreements: Mapping[PortKey, str] = field(default_factory=dict)
    repeated: bool = False
    unparsed: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    identities: Mapping[str, Identity] = field(default_factory=dict)
    looked: float | None = None
    away: frozenset[str] = frozenset()
    strays: Mapping[str, Where] = field(default_factory=dict)
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    ports: Mapping[PortKey, PortMemory] = field(default_factory=dict)
    links: Mapping[str, PciLink] = field(default_factory=dict)
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    check: Check = field(default_factory=Check)
