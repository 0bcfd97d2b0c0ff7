"""RDMA ports as values: options, policy, counters, a reading, and the memory between polls.

Sources of the counters: the kernel's ABI document sysfs-class-infiniband, and mlx5's and EFA's hw_counters.
The widths of the classic counters, which stop at their highest value: drivers/infiniband/core/sysfs.c.
Sources of the limits: NVSentinel's nic-health-monitor and EKS' node monitoring agent.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import Options, Strict
from wirewatch.core.machine import is_guid
from wirewatch.core.pci import Place
from wirewatch.core.ports import Output
from wirewatch.core.rdma import ACTIVE, Rate
from wirewatch.core.statistics import Grace, Streak, Window
from wirewatch.core.tree import PciLink, Whereabouts
from wirewatch.core.types import Absent, ErrorLimit, value_or


@dataclass(frozen=True, slots=True)
class InfinibandOptions(Options):
    """How ports are read."""

    exclude: tuple[str, ...] = ()
    """Names of devices that are never opened.

    Patterns such as `mlx5_*`. ibstat opens all devices, so it does not run then.
    """
    ibstat: bool = True
    """Whether ibstat runs, where it is installed."""
    ibstat_interval: Seconds = 300.0
    """Time between two runs of ibstat. [seconds]"""
    identity_interval: Seconds = 300.0
    """Time between two readings of what hardly changes. [seconds]"""
    refused_seconds: Seconds = 600.0
    """How long a counter is left alone that the device refused to read; it doubles up to a day. [seconds]"""


@dataclass(frozen=True, slots=True)
class PortCounter:
    """`bits`: width after which a classic counter sticks, 0 for none; `limit` None: not judged."""

    path: str
    bits: int = 0
    limit: ErrorLimit | None = None

    def saturated(self, value: int) -> bool:
        """Return whether it stands at its ceiling; firmware that counts further is past it and counts on."""
        return bool(self.bits) and value == (1 << self.bits) - 1


LINK_DOWNED = PortCounter("counters/link_downed", 8, ErrorLimit(1))
ERRORS: Mapping[str, PortCounter] = {
    # IBTA's limit for a link is a bit error rate of 1e-12, which is 120 symbol errors an hour.
    "symbol": PortCounter("counters/symbol_error", 16, ErrorLimit(120)),
    "link_recovery": PortCounter("counters/link_error_recovery", 8, ErrorLimit(5, 60.0)),
    "receive": PortCounter("counters/port_rcv_errors", 16, ErrorLimit(600, 60.0)),
    "receive_remote_physical": PortCounter("counters/port_rcv_remote_physical_errors", 16),
    "transmit_discards": PortCounter("counters/port_xmit_discards", 16, ErrorLimit(6000, 60.0)),
    "local_integrity": PortCounter("counters/local_link_integrity_errors", 4, ErrorLimit(1)),
    "buffer_overrun": PortCounter("counters/excessive_buffer_overrun_errors", 4, ErrorLimit(1)),
    "rnr_retry": PortCounter("hw_counters/rnr_nak_retry_err", 0, ErrorLimit(1)),
    # A rank that died elsewhere makes these too.
    "ack_timeout": PortCounter("hw_counters/local_ack_timeout_err", 0, ErrorLimit(60, 60.0)),
    "slow_restart": PortCounter("hw_counters/roce_slow_restart", 0, ErrorLimit(600, 60.0)),
    "efa_receive_drops": PortCounter("hw_counters/rx_drops", 0, ErrorLimit(6000, 60.0)),
    "efa_rdma_read": PortCounter("hw_counters/rdma_read_wr_err", 0, ErrorLimit(6000, 60.0)),
    "efa_rdma_write": PortCounter("hw_counters/rdma_write_wr_err", 0, ErrorLimit(6000, 60.0)),
    "efa_unresponsive_remote": PortCounter(
        "hw_counters/unresponsive_remote_events", 0, ErrorLimit(6000, 60.0)
    ),
    "efa_impaired_connection": PortCounter(
        "hw_counters/impaired_remote_conn_events", 0, ErrorLimit(6000, 60.0)
    ),
    "efa_retransmits": PortCounter("hw_counters/retrans_pkts", 0, ErrorLimit(60000, 60.0)),
}
"""Faults of a wire or of either end."""
CONGESTION: Mapping[str, str] = {
    "wait": "counters/port_xmit_wait",
    "ecn_marked": "hw_counters/np_ecn_marked_roce_packets",
    "cnp_sent": "hw_counters/np_cnp_sent",
    "cnp_handled": "hw_counters/rp_cnp_handled",
    "out_of_sequence": "hw_counters/out_of_sequence",
    "adaptive_retransmits": "hw_counters/roce_adp_retrans",
}
"""Signs of a full network: no fault of this node, and never judged."""
WORDS = ("counters/port_xmit_data", "counters/port_rcv_data")
"""Data sent and received in words of 4 bytes."""
EFA_BYTES = ("hw_counters/tx_bytes", "hw_counters/rx_bytes")
"""Data sent and received in bytes, where a device has no classic counters."""
KNOWN = frozenset(
    {*WORDS, *EFA_BYTES, *CONGESTION.values(), LINK_DOWNED.path, *(c.path for c in ERRORS.values())}
)


@dataclass(frozen=True, slots=True)
class InfinibandPolicy(Strict):
    """Limits beyond which a port is at fault."""

    confirm: int = 3
    """Polls in a row before a fault is FAILED."""
    slow_ratio: float = 0.9
    """Least share of the expected rate. [share]"""
    flaps: int = 3
    """How many outages within `flap_window` make a port flapping."""
    flap_seconds: Seconds = 25.0
    """How long so many of them must last for the port to be FAILED, as gpud has it. [seconds]"""
    flap_window: Seconds = 43200.0
    """The time in which they are counted. [seconds]"""
    sibling_ratio: float = 0.75
    """Share of the ports of one model that must be active before one that never was is a finding. [share]"""
    port_grace: Seconds = 60.0
    """Time for which a port may train and wait for the subnet manager each time; it is UNKNOWN until then.

    [seconds]
    """
    error_limits: Mapping[str, ErrorLimit] = field(default_factory=dict)
    """Limits by kind of error, as tables of `events` and `seconds`.

    The kinds and their defaults are in docs/METRICS.md.
    """


@dataclass(frozen=True, slots=True)
class RdmaIdentity:
    """Lasting facts of a device, "" where sysfs has none; `lost`: why a part is from an earlier reading."""

    pci: str
    numa: str
    firmware: str
    model: str
    board: str
    guid: str
    netdevs: tuple[str, ...]
    ports: Mapping[str, tuple[str, ...]]
    """Ports, each with the known counters that it has."""
    lost: Absent | None = None
    beside_gpu: bool | None = False
    """True if it shares a PCIe switch with a GPU, and so carries the traffic of GPUs; None: not shown."""

    def same_card(self, other: "RdmaIdentity") -> bool:
        """Return whether both are one card in one place: another card, or another function, starts again."""
        return (self.guid, self.pci, self.board) == (other.guid, other.pci, other.board)


def names_now(before: Mapping[str, RdmaIdentity], now: Mapping[str, RdmaIdentity]) -> dict[str, str]:
    """Map names of `before` to names of `now`: by GUID, and cards without a GUID of their own by place."""
    ours, theirs = _by_guid(before), _by_guid(now)
    free = {i.pci: name for name, i in now.items() if i.pci and name not in before}
    found = {}
    for name, card in before.items():
        if ours.get(card.guid) == name and theirs.get(card.guid):
            found[name] = theirs[card.guid]
        elif name in now and now[name].same_card(card):
            found[name] = name
        elif name not in now and card.pci in free:
            found[name] = free[card.pci]
    return found


def _by_guid(cards: Mapping[str, RdmaIdentity]) -> dict[str, str]:
    """Names of cards by GUID, without cards that share one and without GUIDs that name no card."""
    counts = Counter(card.guid for card in cards.values())
    return {i.guid: name for name, i in cards.items() if is_guid(i.guid) and counts[i.guid] == 1}


PortKey = tuple[str, str]
"""Device and port."""
DISABLED, TRAINING, SWEPT = "disabled", frozenset({"training", "recovery"}), frozenset({"init", "armed"})
"""States of a port, physical and logical, as core.rdma names them."""
NO_CARRIER = "0"
"""A network device that is switched on and has no signal; a device that is switched off gives no answer."""
_NOTHING = Rate(0.0, 0, "")
BOOT_GRACE = 300.0
"""Seconds after a boot for which cards and ports may take as long as they need."""


@dataclass(frozen=True, slots=True)
class PortReading:
    """One port now; `carrier`: the signal of a disabled Ethernet port's network device, None: not asked."""

    state: str | Absent
    physical: str | Absent
    layer: str | Absent
    rate: Rate | Absent
    lid: int | Absent
    counters: Mapping[str, int | Absent] = field(default_factory=dict)
    carrier: str | Absent | None = None

    @property
    def is_active(self) -> bool:
        """Return whether the port is active, by its subnet manager or its other end."""
        return self.state in ACTIVE

    @property
    def running(self) -> Rate:
        """Return the rate of an active port, a rate of 0 for any other."""
        return _NOTHING if isinstance(self.rate, Absent) or not self.is_active else self.rate

    @property
    def words(self) -> str:
        """Both states of the port."""
        return f"{value_or(self.state, 'not known')}, physical state {value_or(self.physical, 'not known')}"

    @property
    def switched_off(self) -> bool:
        """Disabled on purpose, and not for want of a signal, which Ethernet drivers report alike."""
        return self.physical == DISABLED and self.carrier != NO_CARRIER

    @property
    def coming_up(self) -> bool:
        """Return whether it is trained or training, and not yet made active by the subnet manager."""
        trains = self.state == "down" and self.physical in TRAINING
        return trains or (self.state in SWEPT and self.physical == "link_up")


@dataclass(frozen=True, slots=True)
class CounterRefusal:
    """A counter that a device refused so many times: not asked before `until` (monotonic seconds)."""

    until: float
    times: int


@dataclass(frozen=True, slots=True)
class InfinibandReading:
    """One reading of all ports.

    `identities` and `strays` are read now and then and hold meanwhile; `looked`: the time of that, in
    monotonic seconds. `gone`: known cards that are not listed, by name, or by PCI address where another card
    has the name. `missing`: the reason for each. `names`: the present name of each known card. `strays`:
    places of network cards that no RDMA device claims. `ibstat` None: not its turn. `gpus`: the places of all
    GPUs, also of GPUs without a driver. `bare`: evidence that some of them lack a card. `starting`: the
    machine was started within BOOT_GRACE.
    """

    devices: tuple[str, ...]
    identities: Mapping[str, RdmaIdentity]
    ports: Mapping[PortKey, PortReading]
    links: Mapping[str, PciLink]
    gone: Mapping[str, RdmaIdentity]
    missing: Mapping[str, Whereabouts]
    names: Mapping[str, str]
    strays: Mapping[str, Whereabouts]
    refused: Mapping[str, CounterRefusal]
    ibstat: Output | Absent | None
    looked: float
    gpus: tuple[Place, ...] = ()
    bare: str = ""
    starting: bool = False


class Outage(NamedTuple):
    """An outage of a port that is over (monotonic seconds); `seconds`: 0 for less than one poll."""

    end: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PortMemory:
    """One port's past: monotonic seconds, bytes per second.

    `best`: its highest rate while active, with so many `lanes`. `ceiling`: counters that stood at their
    ceiling when first seen, so that nothing is known of them; `stuck`: counters that reached it since.
    `grace`: the used part of the time for coming up. `accepted`: an operator has accepted its state.
    `down_since`: the first sight of an outage that is not over; `outages` are over.
    """

    last: PortReading
    board: str = ""
    was_active: bool = False
    best: float = 0.0
    lanes: int = 0
    expected: float | None = None
    pinned: bool = False
    down_since: float | None = None
    outages: tuple[Outage, ...] = ()
    flapped: int = 0
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    windows: Mapping[str, Window] = field(default_factory=dict)
    ceiling: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    grace: Grace = field(default_factory=Grace)
    accepted: bool = False

    @property
    def is_down(self) -> bool:
        """Return whether it is down but should be up: it was active before, or its InfiniBand wire is up."""
        if isinstance(self.last.state, Absent) or self.last.is_active or self.last.switched_off:
            return False
        return self.was_active or (self.last.physical == "link_up" and self.last.layer == "InfiniBand")

    @property
    def never_was(self) -> bool:
        """Return whether the port has never been active, as far as the agent remembers."""
        return not self.was_active and not isinstance(self.last.state, Absent) and not self.is_down


@dataclass(frozen=True, slots=True)
class IbstatCheck:
    """The last comparison (monotonic seconds): differences by port, "" for a device, and if `repeated`."""

    asked: float | None = None
    disagreements: Mapping[PortKey, str] = field(default_factory=dict)
    repeated: bool = False
    unparsed: int = 0


@dataclass(frozen=True, slots=True)
class InfinibandFacts:
    """Devices ever seen, newest PCIe link of each card, ports not active, rates of the others (bytes/s)."""

    devices: Mapping[str, RdmaIdentity]
    cards: Mapping[str, PciLink]
    inactive: frozenset[PortKey]
    rates: Mapping[PortKey, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LastingCard:
    """A card as it was last seen."""

    pci: str
    guid: str
    model: str
    board: str


@dataclass(frozen=True, slots=True)
class LastingPort:
    """A port that was active, or was accepted as it is: its highest rate, in bytes per second, and lanes."""

    device: str
    port: str
    rate: float
    lanes: int
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class LastingFabric:
    """The memory that outlives the process: cards by name, and the ports that were active."""

    cards: Mapping[str, LastingCard] = field(default_factory=dict)
    ports: tuple[LastingPort, ...] = ()


@dataclass(frozen=True, slots=True)
class InfinibandMemory:
    """The last known values, for the next poll; `forgotten`: devices that were taken out on purpose."""

    identities: Mapping[str, RdmaIdentity] = field(default_factory=dict)
    looked: float = -inf
    gpus: tuple[Place, ...] = ()
    bare: str = ""
    away: frozenset[str] = frozenset()
    strays: Mapping[str, Whereabouts] = field(default_factory=dict)
    refused: Mapping[str, CounterRefusal] = field(default_factory=dict)
    ports: Mapping[PortKey, PortMemory] = field(default_factory=dict)
    links: Mapping[str, PciLink] = field(default_factory=dict)
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    check: IbstatCheck = field(default_factory=IbstatCheck)
    forgotten: frozenset[str] = frozenset()
