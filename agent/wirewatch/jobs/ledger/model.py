"""The waiting ledger's options, policy, reading and memory, and what other collectors hand in."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import GpuReading, Options, Strict, wrong_settings
from wirewatch.core.nvml import Pids, Supported
from wirewatch.core.types import Absent
from wirewatch.jobs.ledger.spent import JobLedger, Spent
from wirewatch.jobs.times import GpuTime, JobRank


@dataclass(frozen=True, slots=True)
class LedgerOptions(Options):
    """How often the time of GPUs is looked at."""

    interval: Seconds = 2.0
    """While something computes on a GPU. A stall that is shorter than that may be missed. [seconds]"""
    deadline: Seconds = 2.0
    idle: Seconds = 4.0
    """The same while nothing computes on any GPU. [seconds]"""


@dataclass(frozen=True, slots=True)
class LedgerPolicy(Strict):
    """Limits by which the time of a GPU is judged."""

    low_power: float = 0.3
    """Share of a GPU's default power limit up to which it does no work. [share]"""
    longest: Seconds = 6.0
    """Longest time between two readings that the later one speaks for. [seconds]"""
    fresh: Seconds = 30.0
    """Age up to which timed collectives and windows of activity speak for now. [seconds]"""
    behind: Seconds = 4.0
    """How long a rank must have made no call to be behind. [seconds]"""
    still: Seconds = 1.0
    """The same, so that a wait may be for it: NVML's utilisation is that of the last second. [seconds]"""
    starting: Seconds = 45.0
    """For how long a job is only starting. [seconds]"""

    def wrong(self) -> str:
        """Return which settings cannot be meant, in words; empty when all can."""
        return wrong_settings(
            self,
            (
                ("longest", "fresh", "behind", "still", "starting"),
                lambda v: 0 < v < math.inf, "must be above 0",
            ),
            (("low_power",), lambda v: 0 < v <= 1, "must be above 0 and at most 1"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GpuSight:
    """One GPU now: who computes on it, for which share of time anything runs, watts now and by default."""

    processes: Pids | Absent
    busy: float | Absent
    power: float | Absent
    limit: float | Absent
    supported: Supported = field(default_factory=Supported)


@dataclass(frozen=True, slots=True)
class ProcessSight:
    """A process now: the kernel's letter for it, when it began, CPU seconds, bytes read and written so far.

    `began`: seconds since the machine was started. Bytes are Absent where only root and its owner may know,
    `began` and `cpu` in recordings that leave them out. `parent`: the process that started it, 0 for none.
    """

    state: str
    began: float | Absent
    cpu: float | Absent
    read: int | Absent
    written: int | Absent
    parent: int = 0


@dataclass(frozen=True, slots=True)
class CountedCommunicator:
    """Ranks of one communicator on this node, whose counts of collectives can be compared."""

    id: str
    here: tuple[JobRank, ...]


@dataclass(frozen=True, slots=True)
class TimedJob:
    """A job with the tap: processes, counts of its communicators, and times of its GPUs.

    `timed`: by GPU, monotonic seconds at which the newest window of collectives began and ended. `partly`:
    GPUs with calls that nobody times, such as sends and replays of graphs. `linked`: GPUs of a communicator.
    """

    name: str
    pids: tuple[int, ...]
    communicators: tuple[CountedCommunicator, ...] = ()
    gpus: Mapping[str, GpuTime] = field(default_factory=dict)
    timed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    partly: frozenset[str] = frozenset()
    linked: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """A window of GPM of one GPU: the shares of `seconds` in which anything ran, and its SMs had work."""

    seconds: float
    graphics: float
    sm: float


@dataclass(frozen=True, slots=True)
class LedgerSurroundings:
    """Facts of other collectors about running jobs.

    `counted`: monotonic seconds at which the rings of `jobs` were read. `activity` by GPU, of the window that
    ended at `seen`. `owners` of processes. `hanging`, `in_step`: GPUs of one hang each, and in lockstep.
    `sent`: bytes over NVLink by GPU, as counted at `sent_at`.
    """

    jobs: tuple[TimedJob, ...] = ()
    counted: float = -math.inf
    activity: Mapping[str, GpuActivity] = field(default_factory=dict)
    seen: float = -math.inf
    owners: Mapping[int, str] = field(default_factory=dict)
    hanging: tuple[tuple[str, ...], ...] = ()
    in_step: tuple[str, ...] = ()
    sent: Mapping[str, int] = field(default_factory=dict)
    sent_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class LedgerReading:
    """GPUs and the processes on them, by id. `looked`: False where it was not time to ask."""

    gpus: tuple[GpuReading[GpuSight], ...] = ()
    processes: Mapping[int, ProcessSight | Absent] = field(default_factory=dict)
    looked: bool = True
    around: LedgerSurroundings = field(default_factory=LedgerSurroundings)


@dataclass(frozen=True, slots=True)
class Doing:
    """How processes spent `seconds` while nothing ran on their GPU.

    `unread`: seconds of which nothing could be read. `blocked` and `stopped`: seconds in those states. `cpu`
    seconds of all threads. `read` and `written` in bytes.
    """

    seconds: float = 0.0
    unread: float = 0.0
    blocked: float = 0.0
    stopped: float = 0.0
    cpu: float = 0.0
    read: float = 0.0
    written: float = 0.0


@dataclass(frozen=True, slots=True)
class SpentTally:
    """Seconds of one GPU by what they were spent on, from `begin` (monotonic seconds) on.

    `spent`: in the order of Spent; then seconds of WIRE without a known expectation, and seconds of
    NOT_ATTRIBUTED known to be waiting. `waits`: seconds of LOCAL_RANK by GPU (UUID). `idle`: how its
    processes spent the seconds of IDLE.
    """

    begin: float
    seconds: float
    spent: tuple[float, ...]
    waits: Mapping[str, float] = field(default_factory=dict)
    idle: Doing = Doing()


NO_TIME = SpentTally(0.0, 0.0, (0.0,) * (len(Spent) + 2))
ProcessId = tuple[int, float]
"""Its id and when it began, so that an id that is used again is another process; -1 where not known."""


@dataclass(frozen=True, slots=True)
class SpentMemory:
    """The memory of one GPU while processes compute on it, first seen at `since` (monotonic seconds).

    `short`: one tally for each look of the last 10 s; `long`: one for each 10 s of the last 5 min. `full`:
    the sum of these but the last, which is not full yet. `worked`: something ran on it since these processes
    came. `spinning`: monotonic seconds since when it has looked as if it spins, None while it does not.
    `sent`: its first count of bytes over NVLink since then; `moved`: it has sent some.
    """

    processes: frozenset[ProcessId]
    worked: bool = False
    spinning: float | None = None
    since: float = -math.inf
    sent: int | None = None
    moved: bool = False
    short: tuple[SpentTally, ...] = ()
    long: tuple[SpentTally, ...] = ()
    full: SpentTally = NO_TIME


@dataclass(frozen=True, slots=True)
class LedgerMemory:
    """The memory from one look to the next, at `mono` (monotonic seconds).

    `since`: by process, when it began or was first seen. `totals`: seconds by GPU, in the order of
    Spent, which outlive their jobs. `labels`: index and UUID of each GPU.
    """

    mono: float = -math.inf
    supported: Mapping[str, Supported] = field(default_factory=dict)
    sights: Mapping[int, ProcessSight | Absent] = field(default_factory=dict)
    since: Mapping[int, float] = field(default_factory=dict)
    gpus: Mapping[str, SpentMemory] = field(default_factory=dict)
    totals: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    jobs: tuple[JobLedger, ...] = ()
