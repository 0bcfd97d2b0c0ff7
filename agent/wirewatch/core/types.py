"""The values that every room exchanges: known or absent values, findings, metrics and their samples.

Units everywhere: bytes, seconds, bytes per second, watts, degrees Celsius.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from typing import ClassVar, Generic, NamedTuple, TypeVar

from wirewatch.core.amounts import Seconds
from wirewatch.core.declared import metric_faults, refuse

T = TypeVar("T")
D = TypeVar("D")
DIGITS = 20
"""No counter of 64 bits has more; Python refuses to turn thousands of digits into a number."""
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


class Why(Enum):
    """Why something is not known. There is no zero, None or NaN for that.

    EXHAUSTED: the reader itself has no file descriptor, process or memory left; it says nothing of the part.
    """

    MISSING = "missing"
    UNSUPPORTED = "unsupported"
    DENIED = "denied"
    LOST = "lost"
    TIMEOUT = "timeout"
    MALFORMED = "malformed"
    RELEASED = "released"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class Absent:
    """A value that could not be read, and why; `code` is the library's own number or errno."""

    why: Why
    detail: str = ""
    code: int | None = None

    def __str__(self) -> str:
        return f"{self.why.value}: {self.detail}" if self.detail else self.why.value


@dataclass(frozen=True, slots=True)
class Ok(Generic[T]):
    """A reading that succeeded; `at` in Unix seconds, `mono` in seconds of the monotonic clock."""

    value: T
    at: float
    mono: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed reading, with the times of the failure."""

    absent: Absent
    at: float
    mono: float


class Health(IntEnum):
    """Healths in order, so that `max()` is the worst: UNKNOWN is worse than DEGRADED, and never healthy."""

    OK = 0
    DEGRADED = 1
    UNKNOWN = 2
    FAILED = 3


FAIL_ON_NAMES = {"failed": Health.FAILED, "unknown": Health.UNKNOWN, "degraded": Health.DEGRADED}
"""The healths with which a job may be kept from starting, as `fail_on` names them."""
FAIL_ON = frozenset({Health.FAILED, Health.UNKNOWN})
"""The healths with which no job starts where nothing else is configured (ADR 0033)."""


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """The part that a finding is about; empty where a level does not apply."""

    gpu: str = ""
    uuid: str = ""
    link: str = ""
    device: str = ""
    port: str = ""

    def __str__(self) -> str:
        named = (("GPU ", self.gpu), ("link ", self.link), ("", self.device), ("port ", self.port))
        return " ".join(word + name for word, name in named if name) or "node"

    @classmethod
    def of(cls, levels: Mapping[str, str]) -> "Subject":
        """The part that has these levels by name; other names are ignored."""
        return cls(**{name: levels[name] for name in LEVELS if name in levels})

    def levels(self) -> dict[str, str]:
        """The levels that apply, by name."""
        return {name: value for name in LEVELS if (value := getattr(self, name))}


LEVELS = tuple(level.name for level in fields(Subject))
"""The names of a subject's levels, as labels of metrics and in JSON documents."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault: its health, subject, numbers, action and beginning (Unix seconds).

    `last`: when an event was last seen (Unix seconds); 0 for a measurement that holds now. `stamp`: that time
    in seconds since the machine was started. That clock cannot be set, so an event that is reported again has
    the same stamp. `absent`: why the part cannot be read, where that is the fault; None for anything else.
    `others`: UUIDs of other GPUs that may be at fault, or are at the other end.
    """

    rule: str
    health: Health
    subject: Subject
    evidence: str
    action: str
    since: float = 0.0
    last: float = 0.0
    stamp: float = 0.0
    absent: "Absent | None" = None
    others: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, Subject]:
        """Return rule and subject, which identify a finding."""
        return (self.rule, self.subject)


class Kind(Enum):
    """Prometheus metric types in use here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    INFO = "info"


class Tier(Enum):
    """The extent of `/metrics`: the series that many nodes need, or all of them."""

    CORE = "core"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Panel:
    """How a dashboard draws a metric by default.

    `title`: the words of the metric's name if empty. `limits`: colours by the value from which they hold, the
    first from the lowest on; none if no value is good or bad.
    """

    title: str = ""
    limits: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family: `name` without the `wirewatch_` prefix of /metrics, which `exposed` has.

    `unit` is the end of the name where that is none of `core.declared.UNITS`, such as `rpm`. `unproven` lists
    the parts that were never seen on real hardware; empty when all were. `panel`: how a dashboard draws it
    where no panel was made by hand; `undrawn` says why no dashboard does. `tier` is the smallest tier with
    this family. Tier `core` has all that alerts, recording rules and the dashboard Fleet ask for (ADR 0062).
    `core` names the values of the last label that tier `core` has, all where it is empty.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    unproven: str = ""
    panel: Panel = Panel()
    undrawn: str = ""
    tier: Tier = Tier.FULL
    unit: str = ""
    core: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse(metric_faults(self))

    @property
    def exposed(self) -> str:
        """The name in /metrics; `process_` begins the names that programs of any kind share."""
        return self.name if self.name.startswith("process_") else f"wirewatch_{self.name}"

    def sample(self, value: float, *labels: str) -> "Sample":
        """Return a sample of this family.

        Raises ValueError for too few or many label values, which the exposition library would misplace.
        """
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} takes labels {self.labels}, got {labels}")
        return Sample(self, labels, value)


def family(
    name: str, labels: tuple[str, ...], about: str, unproven: str = "", *, undrawn: str = "",
    tier: Tier = Tier.FULL, core: tuple[str, ...] = (),
) -> Metric:  # fmt: skip
    """Return a metric family whose kind its name says: `_total` a counter, `_info` an info, else a gauge."""
    kinds = {"total": Kind.COUNTER, "info": Kind.INFO}
    kind = kinds.get(name.rpartition("_")[2], Kind.GAUGE)
    return Metric(name, kind, labels, about, unproven, undrawn=undrawn, tier=tier, core=core)


class Sample(NamedTuple):
    """One series at one moment; a tuple, since thousands are made and compared."""

    metric: Metric
    labels: tuple[str, ...]
    value: float

    def in_tier(self, tier: Tier) -> bool:
        """Return whether a scrape of this tier has the series."""
        if tier is Tier.FULL:
            return True
        metric = self.metric
        return metric.tier is Tier.CORE and (not metric.core or self.labels[-1] in metric.core)


@dataclass(frozen=True, slots=True)
class OperatorNote:
    """An operator's word on a finding, and its time (Unix seconds)."""

    by: str
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class Expect:
    """The parts that the operator expects this node to have; None where the configuration says nothing."""

    gpus: int | None = None
    nvlink_links: int | None = None
    rdma_ports: int | None = None
    rdma_rate_bytes_per_second: float | None = None
    gpudirect: bool | None = None


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """A limit of an error counter."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    events: int
    """Events within `seconds` from which on there is a finding."""
    seconds: Seconds = 3600.0
    """The time in which they are counted. [seconds]"""


class Unusable(Exception):
    """A file, option or setting cannot be used; the text is one line for the user, the exit code 78."""


class Unanswered(Unusable):
    """The daemon, or another service, gives no answer; the text is one line, the exit code 69."""


def worst(findings: Sequence[Finding]) -> Health:
    """Return the worst health of these findings; OK for none."""
    return max((f.health for f in findings), default=Health.OK)


def value_or(value: T | Absent, otherwise: D) -> T | D:
    """Return a value, or `otherwise` where it is absent."""
    return otherwise if isinstance(value, Absent) else value


def whole(text: str) -> int | None:
    """The number that a text of plain digits stands for, None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None


class NotText(ValueError):
    """Bytes that are not text in UTF-8; the message says where, and not in which file."""


def utf8(data: bytes) -> str:
    """Return the text of a file without a byte order mark; NotText where it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The decoder counts from behind a byte order mark.
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise NotText(f"it is not text in UTF-8: line {line} has the byte {byte:#04x}") from None
