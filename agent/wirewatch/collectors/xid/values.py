"""What is read of XIDs, and what is remembered of them while the machine is up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from wirewatch.core.kernelevents import Event
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent
from wirewatch.core.xids import Severity


@dataclass(frozen=True, slots=True)
class XidPolicy:
    """`serious_seconds`: how long an event that asks for no reset is told.

    `repeats` of an application's XID within that time on one GPU, and on no other, point to the GPU.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    serious_seconds: float = 86400.0
    repeats: int = 10


@dataclass(frozen=True, slots=True)
class Reading:
    """What is new since the last reading, from the kernel log or else from NVML.

    `started` is when the machine was, in Unix seconds. `missed` is how many records of the log were
    overwritten unread since the agent started, `unparsed` how many new ones were not of the kernel's form,
    `odd` how many of NVML's events are not understood.
    """

    source: str
    boot: str
    started: float | Absent
    gpus: tuple[Gpu, ...]
    session: int
    events: tuple[Event, ...]
    after: int
    about: str = ""
    missed: int = 0
    unparsed: int = 0
    odd: int = 0


class Time(NamedTuple):
    """When something was: Unix seconds to be told, monotonic ones to be counted from.

    A clock that is set while the agent runs makes no event older.
    """

    at: float
    mono: float


@dataclass(frozen=True, slots=True)
class Standing:
    """Events of one kind at one place; `first` and `last` in Unix seconds, `mono` the last in monotonic ones.

    `ended` when the driver said that it is over.
    """

    severity: Severity
    count: int
    first: float
    last: float
    message: str
    mono: float = 0.0
    ended: bool = False


Place = tuple[str, str, str]
"""Rule, PCI address without the function, link."""
Counts = Mapping[tuple[str, int], int]
"""By PCI address without the function, and number."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything since the machine was started, as far as the log reached back.

    `after` is the last sequence number that was seen, of the log or of NVML's events in `session`.
    """

    boot: str = ""
    started: float | Absent = 0.0
    source: str = ""
    after: int = -1
    about: str = ""
    session: int = -1
    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    xids: Counts = field(default_factory=dict)
    sxids: Counts = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    last: Mapping[str, float] = field(default_factory=dict)
    standing: Mapping[Place, Standing] = field(default_factory=dict)
    repeats: Mapping[tuple[int, str], tuple[Time, ...]] = field(default_factory=dict)
    recovery: Mapping[str, str] = field(default_factory=dict)
    unparsed: int = 0
    odd: int = 0
