"""Bursts of jobs as values: options, policy, a reading of the GPUs, and what is remembered of each job."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import GpuReading, Options, Strict, wrong_settings
from wirewatch.core.nvml import Supported
from wirewatch.core.types import Absent, Kind, Metric, Sample
from wirewatch.jobs.bursts.estimate import BurstFigures


@dataclass(frozen=True, slots=True)
class BurstOptions(Options):
    """Short looks at running jobs; off unless switched on (docs/inspector.md)."""

    enabled: bool = False
    interval: Seconds = 60.0
    """Time from a look at one GPU to a look at the next. [seconds]"""
    deadline: Seconds = 5.0


@dataclass(frozen=True, slots=True)
class BurstPolicy(Strict):
    """When the plateau of a job's collectives is lower than it was."""

    settle: Seconds = 100.0
    """How long a job's processes must have been the same before a look; longer than a probe. [seconds]"""
    sure: float = 0.05
    """Largest relative standard error of a plateau that counts. [share]"""
    same_size: float = 0.2
    """How far the bytes of bursts may differ and still be compared. [share]"""
    drop: float = 0.15
    """How far below the median of this GPU's first plateaus it must be. [share]"""
    references: int = 3
    """Plateaus that this median needs."""
    most_references: int = 20
    """Plateaus that it takes at most."""
    confirm: int = 3
    """Looks of the last `looks` that must be low."""
    looks: int = 4
    """Last looks of a job that are compared."""

    def wrong(self) -> str:
        """Say in words which values are invalid; empty when all are valid."""
        return wrong_settings(
            self,
            (("settle",), lambda v: 0 <= v < math.inf, "must not be below 0"),
            (("sure", "same_size", "drop"), lambda v: 0 < v < 1, "must be above 0 and below 1"),
            (("references", "confirm"), lambda v: v >= 1, "must be above 0"),
            (("looks",), lambda v: v >= self.confirm, "must not be below confirm"),
            (("most_references",), lambda v: v >= self.references, "must not be below references"),
        )


@dataclass(frozen=True, slots=True)
class GpuJob:
    """One GPU now: whether its NVLink bytes can be read, and the processes that compute on it.

    `groups`: by process, the job, pod or session that it belongs to, as far as the kernel shows it. `peak`:
    bytes per second of all links, each way. `burst`: what its look shows; None for a GPU whose turn it was
    not.
    """

    watched: bool
    processes: frozenset[int] | Absent
    groups: Mapping[int, str]
    peak: float | Absent
    burst: BurstFigures | Absent | None = None
    supported: Supported = field(default_factory=Supported)


BurstReading = tuple[GpuReading[GpuJob], ...]


@dataclass(frozen=True, slots=True)
class Plateau:
    """A plateau that counts: bytes per second, and the bytes of a typical burst of that look."""

    rate: float
    size: int


@dataclass(frozen=True, slots=True)
class BurstLook:
    """The newest look at a GPU of a job that runs.

    `at`: Unix seconds. `pids`: processes on it. `peak`: as in GpuJob. `reference`: the plateau to compare
    with, bytes per second; Absent while there are too few.
    """

    gpu: str
    uuid: str
    pids: frozenset[int]
    at: float
    figures: BurstFigures
    peak: float | Absent
    reference: float | Absent


@dataclass(frozen=True, slots=True)
class BurstHint:
    """A job whose plateau is lower than it was, at the same bytes a burst; seen last at a GPU of it.

    `since`, `at`: Unix seconds; `mono`: monotonic seconds of the last look that confirmed it. `plateau` and
    `reference`: bytes per second. `text`: the evidence, in words.
    """

    gpu: str
    uuid: str
    since: float
    at: float
    mono: float
    plateau: float
    reference: float
    text: str


@dataclass(frozen=True, slots=True)
class BurstJob:
    """A job: its processes by GPU (`Gpu.key`), first seen at `since` (monotonic seconds).

    `settled`: it is looked at from now on. `turns`: when each GPU had its turn, monotonic seconds.
    `plateaus`: of each GPU, the first that were not low. `low`: of its last looks that were compared, whether
    each was low. `looks`: the newest of each GPU.
    """

    processes: Mapping[str, frozenset[int]]
    since: float
    settled: bool = False
    turns: Mapping[str, float] = field(default_factory=dict)
    plateaus: Mapping[str, tuple[Plateau, ...]] = field(default_factory=dict)
    low: tuple[bool, ...] = ()
    looks: Mapping[str, BurstLook] = field(default_factory=dict)
    hint: BurstHint | None = None


@dataclass(frozen=True, slots=True)
class BurstMemory:
    """The state that a reading leaves for the next reading.

    `why`: the result of the reading, in words. `last_hint` stays when the hint is over.
    """

    supported: Mapping[str, Supported] = field(default_factory=dict)
    jobs: tuple[BurstJob, ...] = ()
    why: str = ""
    last_hint: BurstHint | None = None


@dataclass(frozen=True, slots=True)
class BurstFacts:
    """The newest look at each GPU of the jobs that run, the hints that hold, and the newest hint of all."""

    looks: tuple[BurstLook, ...]
    hints: tuple[BurstHint, ...]
    last_hint: BurstHint | None


GPU = ("gpu", "uuid")
PLATEAU = Metric(
    "job_burst_plateau_bytes_per_second",
    Kind.GAUGE,
    GPU,
    "NVLink bytes per second of this GPU while a collective of the running job is on the wire, one way: its "
    "bus bandwidth (ring) where job_burst_seconds is 0.003 or more, else a lower bound of it.",
    "NVLink SHARP, more than four GPUs",
)
LENGTH = Metric(
    "job_burst_seconds", Kind.GAUGE, GPU, "How long a typical burst of the job's bytes lasts on this GPU."
)
DUTY = Metric(
    "job_burst_duty_ratio", Kind.GAUGE, GPU, "Share of the time in which the job's bytes are on the wire."
)
PERIOD = Metric(
    "job_burst_period_seconds",
    Kind.GAUGE,
    GPU,
    "The running job's step, by its bytes on NVLink; none where three do not fit in a look.",
)
HINT = Metric(
    "job_burst_hint",
    Kind.GAUGE,
    GPU,
    "1 for the GPU at which a job's plateau was last seen below its own past at the same bytes a burst, "
    "0 for the others.",
    "a hint of the running daemon",
)
LOOKED = Metric(
    "job_burst_look_timestamp_seconds",
    Kind.GAUGE,
    GPU,
    "When this GPU of a job was last looked at; its other job_burst series are of that moment.",
    undrawn="the age of a value, for rules",
)
METRICS = (PLATEAU, LENGTH, DUTY, PERIOD, HINT, LOOKED)


def samples(_reading: BurstReading, memory: BurstMemory) -> Iterable[Sample]:
    """The series of each GPU that was looked at while its job ran; none of a job that has ended."""
    for job in memory.jobs:
        for look in job.looks.values():
            labels, seen = (look.gpu, look.uuid), look.figures
            values = (
                (PLATEAU, seen.plateau), (LENGTH, seen.length), (DUTY, seen.duty), (PERIOD, seen.period),
                (LOOKED, look.at),
            )  # fmt: skip
            for metric, value in values:
                if not isinstance(value, Absent):
                    yield metric.sample(value, *labels)
            yield HINT.sample(job.hint is not None and job.hint.uuid == look.uuid, *labels)


def facts(_reading: BurstReading, memory: BurstMemory) -> BurstFacts:
    """Return the facts for other rooms."""
    looks = tuple(look for job in memory.jobs for look in job.looks.values())
    hints = tuple(job.hint for job in memory.jobs if job.hint is not None)
    return BurstFacts(looks, hints, memory.last_hint)
