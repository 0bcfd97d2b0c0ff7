"""A job in lockstep as values: options, policy, a reading of its GPUs, and what is remembered of it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import GpuReading, Options, Strict, wrong_settings
from wirewatch.core.nvml import Supported
from wirewatch.core.types import Absent, Kind, Metric, Panel, Sample


@dataclass(frozen=True, slots=True)
class LockstepOptions(Options):
    """The GPU of a running job that never waits; off where nvlink and the probe leave no time (ADR 0013)."""

    interval: Seconds = 7.5
    """Length of a window. [seconds]"""
    deadline: Seconds = 5.0


@dataclass(frozen=True, slots=True)
class LockstepPolicy(Strict):
    """What a window must be like, and how far one GPU must stand out."""

    settle: Seconds = 30.0
    """How long a job's processes must have been the same before it is judged. [seconds]"""
    shortest: Seconds = 2.0
    """Shortest window. [seconds]"""
    longest: Seconds = 60.0
    """Longest window. [seconds]"""
    together: Seconds = 0.5
    """How far apart the windows of the GPUs may be. [seconds]"""
    same_bytes: float = 0.05
    """How far the NVLink bytes of the GPUs may be from each other. [share]"""
    least_bytes: float = 100e6
    """Least rate of these bytes. [bytes/s]"""
    same_time: float = 0.03
    """How far the times in which anything runs on a GPU may be from each other. [share]"""
    same_memory: float = 0.06
    """How far a GPU's use of its memory may be from that of the others. [share]"""
    same_math: float = 0.10
    """How far a GPU's use of its arithmetic units may be from that of the others. [share]"""
    math_from: float = 0.10
    """Use from which on an arithmetic unit counts. [share]"""
    clocks: int = 3
    """Last clocks of which the median is taken."""
    same_others: float = 0.04
    """How far the other GPUs may be from each other in how busy their SMs are. [share]"""
    gap: float = 0.08
    """How much busier than those of the others a GPU's SMs must be. [share]"""
    least_gap: float = 0.03
    """The same, where they are also `shift` busier than in the first windows of the job. [share]"""
    shift: float = 0.04
    """How much busier than in these first windows they must be. [share]"""
    references: int = 3
    """First windows that this needs."""
    most_references: int = 20
    """First windows that it takes at most."""
    confirm: int = 3
    """Windows in a row that must name the same GPU."""
    misses: int = 2
    """Windows in a row without a result that end it."""

    def wrong(self) -> str:
        """Say in words which values are invalid; empty when all are valid."""
        return wrong_settings(
            self,
            (
                ("settle", "shortest", "longest", "together", "least_bytes"),
                lambda v: 0 <= v < math.inf, "must not be below 0",
            ),
            (
                ("same_bytes", "same_time", "same_memory", "same_math", "math_from", "same_others", "gap",
                 "least_gap", "shift"),
                lambda v: 0 < v <= 1, "must be above 0 and at most 1",
            ),
            (("clocks", "references", "confirm", "misses"), lambda v: v >= 1, "must be above 0"),
            (("longest",), lambda v: v >= self.shortest, "must not be below shortest"),
            (("most_references",), lambda v: v >= self.references, "must not be below references"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GpuWindow:
    """The activity of one GPU between two readings, `seconds` apart.

    `graphics`: share of that time in which anything ran. `sm`: share of the SMs' time in which they had work.
    `dram`: used share of the memory's bandwidth. `received`, `sent`: NVLink bytes per second of all links.
    `math`: busy shares of the arithmetic units that the GPU reports. `clock`: of the SMs, in Hz, at the end.
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
class GpuUse:
    """One GPU now: whether it offers GPM, whether it is split by MIG, the processes that compute on it.

    `window` is Absent while there is no job to judge.
    """

    offers: bool | Absent
    mig: bool
    processes: frozenset[int] | Absent
    window: GpuWindow | Absent
    supported: Supported = field(default_factory=Supported)

    @property
    def watched(self) -> bool:
        """Tell whether its windows can be read at all."""
        return self.offers is True and not self.mig


LockstepReading = tuple[GpuReading[GpuUse], ...]


class WindowReason(Enum):
    """The result of a window, or the reason for none."""

    NAMED = "one GPU never waits"
    NOBODY = "all wait alike"
    NOT_HERE = "no GPU here offers what is read"
    NO_JOB = "no job on several GPUs"
    SHARED = "a GPU is shared"
    SETTLING = "the job has just begun"
    UNREAD = "a GPU could not be read"
    WINDOW = "no good window"
    NO_LOCKSTEP = "the GPUs do not run in lockstep"
    HOST = "the host keeps a GPU waiting"
    UNEVEN = "the work is uneven"
    SCATTERED = "the other GPUs differ among themselves"


_IN_STEP = frozenset(
    {WindowReason.NAMED, WindowReason.NOBODY, WindowReason.HOST, WindowReason.UNEVEN, WindowReason.SCATTERED}
)
"""Results that a window can only have for GPUs that send and receive alike."""


@dataclass(frozen=True, slots=True)
class LockstepJob:
    """Processes by GPU (`Gpu.key`), one each, first seen at `since` (monotonic seconds).

    `settled`: the job is judged from now on. `gaps`: of each reference window, how much busier each GPU was
    than the others. `clocks`: the last clocks of each GPU, in Hz.
    """

    processes: Mapping[str, int]
    since: float
    settled: bool = False
    gaps: tuple[Mapping[str, float], ...] = ()
    clocks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suspect:
    """The GPU that so many windows in a row have named, and how many in a row since had no result."""

    gpu: str = ""
    count: int = 0
    misses: int = 0


class HintTime(NamedTuple):
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
    last: HintTime
    text: str
    sm: float
    others: float
    gap: float
    reference: float | Absent
    windows: int


@dataclass(frozen=True, slots=True)
class UnevenWork:
    """A GPU (`gpu` its index) that has more work than the others of its job, who wait for it; it is not slow.

    `since`: Unix seconds. `more`: by which share its SMs have work for longer than the others' SMs. `waits`:
    share of their time for which the others wait. `costs`: by which share a step could be shorter at most,
    were the work spread evenly. `work`: by kind, how much more than the others it does, arithmetic by busy
    share times clock. `reference`: `more` in the first windows of the job, Absent when there were too few.
    `windows` showed it so far; `text` in words.
    """

    gpu: str
    uuid: str
    since: float
    last: HintTime
    text: str
    more: float
    waits: float
    costs: float
    work: Mapping[str, float]
    reference: float | Absent
    windows: int


@dataclass(frozen=True, slots=True)
class LockstepMemory:
    """The state that a window leaves for the next window.

    `reason` and `why`, in words, come from the newest window. `busy`: the SMs' busy share by GPU, of that
    window alone. `last_hint` stays when the hint is over. `loaded`: the GPU that windows showed to have more
    work than the others; `uneven`, once enough of them did. `age`: of the job at the newest reading, in
    seconds.
    """

    supported: Mapping[str, Supported] = field(default_factory=dict)
    job: LockstepJob | None = None
    suspect: Suspect = Suspect()
    reason: WindowReason = WindowReason.NO_JOB
    why: str = ""
    busy: Mapping[str, float] = field(default_factory=dict)
    hint: Hint | None = None
    last_hint: Hint | None = None
    loaded: Suspect = Suspect()
    uneven: UnevenWork | None = None
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class LockstepFacts:
    """The hint that holds now, and the newest one, which stays when it is over; and whose work is uneven.

    `windows`: what each GPU (`Gpu.key`) of the job did in the newest window, also of a job that has just
    begun; `why`: what that window shows, and if there is none, why, in words. `in_step`: that window shows
    that these GPUs run one job in lockstep.
    """

    hint: Hint | None
    last_hint: Hint | None
    windows: Mapping[str, GpuWindow] = field(default_factory=dict)
    why: str = ""
    uneven: UnevenWork | None = None
    in_step: bool = False


def facts(reading: LockstepReading, memory: LockstepMemory) -> LockstepFacts:
    """Return the facts for other rooms about the job in lockstep."""
    windows = {
        item.gpu.key: item.value.window
        for item in reading
        if isinstance(item.value, GpuUse)
        and isinstance(item.value.window, GpuWindow)
        # A longer window is of what ran there before.
        and item.value.window.seconds <= memory.age
    }
    return LockstepFacts(
        memory.hint, memory.last_hint, windows, memory.why, memory.uneven, memory.reason in _IN_STEP
    )


GPU = ("gpu", "uuid")
HINT = Metric(
    "straggler_hint",
    Kind.GAUGE,
    GPU,
    "1 for the GPU of a job in lockstep that never waits, 0 for the others; only while a job is watched.",
    "jobs on more than two GPUs, and a hint of the running daemon",
)
BUSY = Metric(
    "gpu_sm_busy_ratio",
    Kind.GAUGE,
    GPU,
    "Share of the SMs' time in which they had work, in the newest window of a job that is watched.",
)
UNEVEN = Metric(
    "job_uneven_work_ratio",
    Kind.GAUGE,
    GPU,
    "By how much longer the work of this GPU takes than that of the others of its job, who wait for it: it "
    "has more, and is not slow. 0 for the others, and where work is even; only while a job is watched.",
    "jobs on more than two GPUs, and a hint of the running daemon",
    Panel("More work than the others of its job"),
)
METRICS = (HINT, BUSY, UNEVEN)


def goes_on(job: LockstepJob, uses: Mapping[str, GpuUse | Absent]) -> bool:
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


def samples(reading: LockstepReading, memory: LockstepMemory) -> Iterable[Sample]:
    """The series of the GPUs of the job that is watched; none while there is no such job."""
    if memory.job is None or not memory.job.settled:
        return
    for item in reading:
        if item.gpu.key in memory.job.processes and not isinstance(item.value, Absent):
            labels = (str(item.gpu.index), item.gpu.uuid)
            yield HINT.sample(memory.hint is not None and memory.hint.uuid == item.gpu.uuid, *labels)
            more = memory.uneven.more if memory.uneven and memory.uneven.uuid == item.gpu.uuid else 0.0
            yield UNEVEN.sample(more, *labels)
            if item.gpu.key in memory.busy:
                yield BUSY.sample(memory.busy[item.gpu.key], *labels)
