"""A job's hang as values: options, policy, a reading of GPUs and processes, what is remembered and found."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from wirewatch.core.amounts import SIZE, Seconds
from wirewatch.core.collector import GpuReading, Options, Strict, wrong_settings
from wirewatch.core.jobs import RasListener, RasReport
from wirewatch.core.nvml import Supported
from wirewatch.core.types import Absent, Kind, Metric, Panel, Sample, Tier, Why


@dataclass(frozen=True, slots=True)
class HangOptions(Options):
    """How jobs that seem to hang are asked."""

    interval: Seconds = 2.0
    deadline: Seconds = 9.0
    ask: Seconds = 7.0
    """How long NCCL's RAS may take for its answer. It is asked only on suspicion. [seconds]"""

    @property
    def longest(self) -> float:
        """Return the longest time of a run: a poll, and now and then the question to RAS."""
        return self.interval + self.ask


@dataclass(frozen=True, slots=True)
class HangPolicy(Strict):
    """Limits of what a hang looks like from outside, and when RAS is asked about it."""

    after: Seconds = 8.0
    """How long a job must look stuck before anybody is asked. [seconds]"""
    again: Seconds = 10.0
    """Time until the second answer, without which there is no finding. [seconds]"""
    seldom: Seconds = 600.0
    """Longest time between further answers, each of which comes twice as late as the one before. [seconds]"""
    standing: Seconds = 10.0
    """How long a job must look stuck until it is said to stand still, without a finding. [seconds]"""
    unmoved: Seconds = 60.0
    """How long before anybody is asked, for a job that was never seen to move bytes over NVLink. [seconds]"""
    asleep: Seconds = 60.0
    """How long, to be a finding without RAS, where processes of idle GPUs are seen to sleep. [seconds]"""
    unseen: Seconds = 120.0
    """How long, to be a finding where RAS names processes that cannot be seen to sleep. [seconds]"""
    unasked: Seconds = 300.0
    """How long a job must look stuck to be a finding although nobody answered. [seconds]"""
    busy: Seconds = 600.0
    """How long, to be a finding where the processes it waits for are at work. [seconds]"""
    low_power: float = 0.3
    """Share of a GPU's default power limit up to which it does no work. [share]"""
    still: Annotated[float, SIZE] = 65536.0
    """Bytes over NVLink between two polls that count as none. [bytes]"""
    moved: Annotated[float, SIZE] = 1048576.0
    """Bytes over NVLink between two polls that show that the job uses NVLink at all. [bytes]"""
    files: float = 1e6
    """Rate at which a process that reads and writes files is at work and not stuck. [bytes/s]"""
    cpu: float = 0.03
    """Share of one core from which on a process is at work and not stuck: an upload takes little. [share]"""

    def wrong(self) -> str:
        """Say what cannot be meant; empty when all can."""
        return wrong_settings(
            self,
            (
                (
                    "after", "again", "seldom", "standing", "unmoved", "asleep", "unseen", "unasked", "busy",
                    "still", "moved", "files", "cpu",
                ),
                lambda v: 0 < v < math.inf, "must be above 0",
            ),
            (("low_power",), lambda v: 0 < v <= 1, "must be above 0 and at most 1"),
            (("seldom",), lambda v: v >= self.again, "must not be below again"),
            (("moved",), lambda v: v > self.still, "must be above still"),
        )  # fmt: skip


class HangKind(Enum):
    """The kind of a hang. SUSPECTED: the GPUs look like a hang, and RAS did not answer."""

    STOPPED = "stopped"
    ASYMMETRIC = "asymmetric"
    SYMMETRIC = "symmetric"
    ERROR = "error"
    SUSPECTED = "suspected"


NOT_READ = Absent(Why.MISSING, "not read")
NOT_COUNTED = Absent(Why.MISSING, "bytes were not read at this poll")
CALM = 6.0
"""Seconds until bytes are read again of a job that looks stuck, and moves some."""
HELD = 10.0
"""Seconds from one reading of bytes to the next, of a job that has looked stuck for a while."""
LEARN, LEARNT = 10.0, 600.0
"""Seconds until it is seen again whether a job moves bytes at all: at first, and at most."""


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """One GPU now: the processes that compute on it, how busy it is (0 to 1), watts now and by default.

    `sent`: bytes over all NVLinks since the driver was loaded; NOT_COUNTED at most polls. `memory`: share of
    time in which its memory was read or written.
    """

    processes: frozenset[int | None] | Absent
    busy: float | Absent
    power: float | Absent
    limit: float | Absent
    sent: int | Absent
    supported: Supported = field(default_factory=Supported)
    memory: float | Absent = NOT_READ


GpuLoads = Mapping[str, GpuLoad | Absent]
"""By GPU (`Gpu.key`)."""


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A process of a job while it looks stuck.

    `state` is the kernel's letter for it. `inner`: its id inside its own pid namespace. `files`: bytes that
    it and its children have read and written; `disk`: bytes of these that a disk moved, also through memory
    that is mapped. `cpu`: seconds of CPU time of it and its children; `faults`: pages that it waited for.
    """

    state: str | Absent
    inner: int | Absent
    uid: int | Absent
    files: int | Absent
    disk: int | Absent = NOT_READ
    cpu: float | Absent = NOT_READ
    faults: int | Absent = NOT_READ


@dataclass(frozen=True, slots=True)
class JobLook:
    """A look at a job that seems to hang, at `mono`: its processes by id, and what RAS answered.

    `ras`: the reports of all jobs that answered; `listeners`: who listens in the job's network namespace.
    `elsewhere`: processes that we cannot reach. `about`: the owner of the job, in words.
    """

    mono: float
    processes: Mapping[int, JobProcess]
    ras: Sequence[RasReport] | Absent
    listeners: Sequence[RasListener] | Absent
    elsewhere: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class HangReading:
    """GPUs, whose process is whose, and looks at those jobs that were due, by the job's owner.

    `listeners`: who listens for RAS in the jobs' network namespaces; None where that was not read this time.
    `owned`: when (monotonic seconds) the owners were read.
    """

    gpus: tuple[GpuReading[GpuLoad], ...]
    owners: Mapping[int, str] = field(default_factory=dict)
    looks: Mapping[str, JobLook] = field(default_factory=dict)
    listeners: Sequence[RasListener] | None = None
    owned: float = -math.inf

    @property
    def loads(self) -> GpuLoads:
        """The GPUs by key."""
        return {item.gpu.key: item.value for item in self.gpus}


@dataclass(frozen=True, slots=True)
class Culprit:
    """Whom a hang waits for; `gpu` is its index here, empty where it is on another node or not known."""

    text: str
    gpu: str = ""
    uuid: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of two looks at a job; without a kind it is no finding yet, and `text` says why.

    `goes_on`: it does not stand still, or nothing shows that it waits. `busy`: its culprits are at work.
    """

    kind: HangKind | None
    text: str
    culprits: tuple[Culprit, ...] = ()
    snapshot: str = ""
    goes_on: bool = False
    busy: bool = False


@dataclass(frozen=True, slots=True)
class StandingJob:
    """A job that stands still, before anybody has said why: no finding yet.

    `processes` by GPU (`Gpu.key`), 0 for an id that is not known. `since`: Unix seconds. `text`: in words.
    `busy`: ranks behind whose processes work, as in a compile or a checkpoint.
    """

    processes: Mapping[str, frozenset[int]]
    since: float
    text: str
    busy: bool = False


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """Processes by GPU (`Gpu.key`) of one owner, 0 where an id is unknown; times are monotonic seconds.

    `gone`: processes that were there and are not, by GPU. `sent`: bytes of each GPU when they were last read,
    at `read`; `quiet`: since when they have not grown. `moved`: bytes have moved since it began. `count`:
    when bytes are read next; `learn`: when to check again whether it moves any, `learnt` checks so far.

    `low`: since when its GPUs have looked as in a hang. `since`: the same, where no byte moved since; None
    while it does not look stuck. `began`: the Unix second of `since`. `looks`: the last two while it did;
    `asked` counts them, `due` is the next. `found`: Unix seconds when the diagnosis became what it is.
    """

    processes: Mapping[str, frozenset[int]]
    gone: Mapping[int, str] = field(default_factory=dict)
    sent: Mapping[str, int] = field(default_factory=dict)
    read: float = -math.inf
    quiet: float = -math.inf
    moved: bool = False
    count: float = -math.inf
    learn: float = -math.inf
    learnt: int = 0
    low: float | None = None
    since: float | None = None
    began: float | None = None
    looks: tuple[JobLook, ...] = ()
    asked: int = 0
    due: float = math.inf
    diagnosis: Diagnosis | None = None
    found: float = 0.0
    standing: StandingJob | None = None

    @property
    def lone(self) -> bool:
        """Tell whether one process on one GPU is all that is known of it here."""
        return sum(map(len, self.processes.values())) + len(self.gone) == 1

    @property
    def hang(self) -> HangKind | None:
        """The kind in which it hangs now; None where it does not, or that is not known."""
        return None if self.diagnosis is None else self.diagnosis.kind


@dataclass(frozen=True, slots=True)
class PastHang:
    """A hang that was found, kept when its job is gone: Unix seconds from when to when, and what was seen."""

    kind: str
    owner: str
    begin: float
    end: float
    text: str
    snapshot: str


@dataclass(frozen=True, slots=True)
class KeptJob:
    """A job that has moved bytes or hangs: its processes by GPU (`Gpu.key`), and its hang.

    `began`, `found`: Unix seconds since when it has looked stuck, and when the hang was found.
    """

    processes: Mapping[str, tuple[int, ...]]
    moved: bool = True
    diagnosis: Diagnosis | None = None
    began: float | None = None
    found: float = 0.0


@dataclass(frozen=True, slots=True)
class KeptHangs:
    """Kept over restarts of the agent: the newest hangs, `total` by kind, and the jobs by owner.

    Without the jobs a hanging job would never be found again: it moves no byte that shows its beginning.
    """

    past: tuple[PastHang, ...] = ()
    total: Mapping[str, int] = field(default_factory=dict)
    jobs: Mapping[str, KeptJob] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HangMemory:
    """Jobs by owner, the newest hangs, and how often each kind was found.

    `listened`: when (monotonic seconds) the listeners were last read; `open`: addresses of listeners that
    other machines can reach. `asked`: how many looks have been taken. `owners`: the owners read at `owned`.
    """

    supported: Mapping[str, Supported] = field(default_factory=dict)
    jobs: Mapping[str, WatchedJob] = field(default_factory=dict)
    past: tuple[PastHang, ...] = ()
    total: Mapping[str, int] = field(default_factory=dict)
    asked: int = 0
    listened: float = -math.inf
    open: tuple[str, ...] = ()
    owners: Mapping[int, str] = field(default_factory=dict)
    owned: float = -math.inf


@dataclass(frozen=True, slots=True)
class HangingJob:
    """A job that hangs now: its processes by GPU (`Gpu.key`), whom it waits for, and what was seen, in words.

    `found`: Unix seconds when this was found. `action`: what to do, as the finding says it.
    """

    kind: HangKind
    processes: Mapping[str, frozenset[int]]
    culprits: tuple[Culprit, ...]
    found: float
    text: str
    snapshot: str
    action: str


@dataclass(frozen=True, slots=True)
class HangFacts:
    """Hangs that are over, the newest last; and the jobs that hang now.

    `standing`: jobs that stand still and are not among these. `owners`: the owner of each process on the
    GPUs, such as `slurm:ID`, `pod:UID`, `container:ID`, `parent:PID`, or empty where that is not known.
    """

    past: tuple[PastHang, ...]
    now: tuple[HangingJob, ...] = ()
    owners: Mapping[int, str] = field(default_factory=dict)
    standing: tuple[StandingJob, ...] = ()


HANG = Metric(
    "job_hang", Kind.GAUGE, ("kind",), "1 while a job on this node hangs in this way, 0 while none does.",
    panel=Panel("Jobs that hang, by kind", limits=((0, "green"), (1, "orange"))), tier=Tier.CORE,
)  # fmt: skip
HANGS = Metric(
    "job_hangs_total", Kind.COUNTER, ("kind",), "Hangs of jobs found since the agent's state was created.",
    undrawn="each hang is a step of the gauge job_hang, which is drawn",
)  # fmt: skip
ASKED = Metric(
    "job_ras_looks_total", Kind.COUNTER, (),
    "Times that the RAS of jobs was asked, which happens only when a hang is suspected.",
    undrawn="it proves to an operator that jobs are left alone; there is nothing to see in it",
)  # fmt: skip
METRICS = (HANG, HANGS, ASKED)


def samples(_reading: HangReading, memory: HangMemory) -> Iterable[Sample]:
    """One series a kind, and the count of looks."""
    now = {one.diagnosis.kind for one in memory.jobs.values() if one.diagnosis is not None}
    for kind in HangKind:
        yield HANG.sample(kind in now, kind.value)
        yield HANGS.sample(memory.total.get(kind.value, 0), kind.value)
    yield ASKED.sample(memory.asked)


def keep(memory: HangMemory) -> KeptHangs:
    """Return the part of the memory that outlives the process."""
    jobs = {
        owner: KeptJob(
            {gpu: tuple(sorted(pids)) for gpu, pids in job.processes.items()}, job.moved,
            job.diagnosis if job.hang else None, job.began if job.hang else None, job.found,
        )
        for owner, job in memory.jobs.items()
        if job.moved or job.hang
    }  # fmt: skip
    return KeptHangs(memory.past, memory.total, jobs)


def recall(kept: KeptHangs) -> HangMemory:
    """The memory to begin with: a hang holds until its GPUs show that it is over."""
    jobs = {
        owner: WatchedJob(
            {key: frozenset(pids) for key, pids in job.processes.items()}, moved=job.moved,
            diagnosis=job.diagnosis, began=job.began, found=job.found,
        )
        for owner, job in kept.jobs.items()
    }  # fmt: skip
    return HangMemory(jobs=jobs, past=tuple(kept.past), total=dict(kept.total))
