"""What is read of the GPUs of a job, and what is remembered while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple

from wirewatch.core.asking import Supported
from wirewatch.core.collector import Options
from wirewatch.core.pergpu import GpuReading
from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class LockstepOptions(Options):
    """How it runs; off unless it is switched on. `interval` is the length of a window; both in seconds."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    enabled: bool = False
    interval: float = 7.5
    deadline: float = 5.0


@dataclass(frozen=True, slots=True)
class Window:
    """What one GPU did between two looks, `seconds` apart.

    `graphics` is the share of that time in which anything ran, `sm` that of the SMs' time in which they had
    work, `dram` the used share of the memory's bandwidth; `received` and `sent` NVLink bytes per second of
    all links; `math` the busy shares of the arithmetic units that the GPU tells of; `clock` of the SMs, in
    Hz, at the end.
    """

    seconds: float
    graphics: float
    sm: float
    dram: float
    received: float
    sent: float
    math: Mapping[str, float] = field(default_factory=dict)
    clock: float | Absent = 0.0


@dataclass(frozen=True, slots=True)
class Use:
    """One GPU now: whether it offers GPM, whether it is split by MIG, the processes that compute on it.

    `window` is Absent while there is no job to look at.
    """

    offers: bool | Absent
    mig: bool
    processes: frozenset[int] | Absent
    window: Window | Absent
    supported: Supported = field(default_factory=Supported)

    @property
    def watched(self) -> bool:
        return self.offers is True and not self.mig


Reading = tuple[GpuReading[Use], ...]


class Reason(Enum):
    """What one window says, and if nothing, why."""

    NAMED = "one GPU never waits"
    NOBODY = "all wait alike"
    NOT_HERE = "nothing here that could tell"
    NO_JOB = "no job on several GPUs"
    SHARED = "a GPU is shared"
    SETTLING = "the job has just begun"
    UNREAD = "a GPU could not be read"
    WINDOW = "no good window"
    NO_LOCKSTEP = "the GPUs do not run in lockstep"
    HOST = "the host keeps a GPU waiting"
    UNEVEN = "the work is uneven"
    SCATTERED = "the other GPUs differ among themselves"


@dataclass(frozen=True, slots=True)
class Job:
    """Processes by GPU (`Gpu.key`), one each, first seen at `since` (monotonic seconds).

    `gaps`: of each reference window, how much busier each GPU was than the others. `clocks`: of each GPU,
    the last ones, in Hz.
    """

    processes: Mapping[str, int]
    since: float
    gaps: tuple[Mapping[str, float], ...] = ()
    clocks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suspect:
    """The GPU that so many windows in a row have named, and how many in a row since told nothing."""

    gpu: str = ""
    count: int = 0
    misses: int = 0


class Moment(NamedTuple):
    """Unix and monotonic seconds."""

    at: float
    mono: float


@dataclass(frozen=True, slots=True)
class Hint:
    """A GPU (`gpu` its index) that never waits, since when (Unix seconds), and what shows it, in words.

    `last`: when a window last named it. `sm` and `others`: how busy its SMs were then, and the others'.
    `gap` is their relation less 1, `reference` what it was in the first windows of the job, Absent when there
    were too few. `windows` named it so far.
    """

    gpu: str
    uuid: str
    since: float
    last: Moment
    text: str
    sm: float
    others: float
    gap: float
    reference: float | Absent
    windows: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What a window leaves for the next one.

    `settled`: the job is to be looked at. `reason` and `why`, in words, are the newest window's. `busy`: the
    SMs' busy share by GPU, of that window alone. `last_hint` stays when the hint is over.
    """

    supported: Mapping[str, Supported] = field(default_factory=dict)
    job: Job | None = None
    settled: bool = False
    suspect: Suspect = Suspect()
    reason: Reason = Reason.NO_JOB
    why: str = ""
    busy: Mapping[str, float] = field(default_factory=dict)
    hint: Hint | None = None
    last_hint: Hint | None = None

    @property
    def last_hint_at(self) -> Moment | None:
        """When a window last confirmed a hint, also one that is over."""
        return None if self.last_hint is None else self.last_hint.last


def hint_of(memory: object) -> Hint | None:
    """The hint that a component's memory holds now; None for the memory of any other."""
    return memory.hint if isinstance(memory, Memory) else None


def last_hint_of(memory: object) -> Hint | None:
    """The newest hint, also one that is over; None for the memory of any other component."""
    return memory.last_hint if isinstance(memory, Memory) else None


def goes_on(job: Job, uses: Mapping[str, Use | Absent]) -> bool:
    """Whether these are still the GPUs and processes of a job; a GPU that cannot be read proves nothing."""
    for key, use in uses.items():
        if isinstance(use, Absent) or isinstance(use.processes, Absent):
            continue
        if key in job.processes:
            if job.processes[key] not in use.processes:
                return False
        elif use.watched and use.processes:
            return False
    return True
