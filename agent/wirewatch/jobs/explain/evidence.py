"""Evidence of one running job from all sources, as the decision takes it; and the answer.

Shares are of time, 0 to 1. A missing source is an `Absent` with its reason. The `sources` list it with the
setting that switches it on: missing evidence is never evidence of health.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from wirewatch.core.types import Absent, Why
from wirewatch.jobs.hangs import StandingJob
from wirewatch.jobs.ledger.spent import JobLedger
from wirewatch.jobs.times import RunningJob

NOT_WATCHED = Absent(Why.MISSING, "not watched")
NOT_BEGUN = Absent(Why.MISSING, "it is watched, and has no second of this job yet")
"""The reason why a job has no ledger."""


class EvidenceSource(Enum):
    """Where evidence of a job comes from; each value is its name for people."""

    LEDGER = "waiting ledger"
    TAP = "collectives (tap)"
    ACTIVITY = "SM and memory activity (GPM)"
    GPU = "clocks, power, utilisation (NVML)"
    BURSTS = "NVLink bursts"
    HANGS = "hang detection"
    THREADS = "threads of its processes"
    SETTINGS = "NCCL settings of its processes"


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source that is watched for this job or not. `why` it is not, and what switches it on, in words."""

    source: EvidenceSource
    watched: bool
    why: str = ""
    switch_on: str = ""


@dataclass(frozen=True, slots=True)
class JobGpu:
    """One GPU of a job. `index`: of it today. `pids`: processes of the job on it.

    `utilisation`: share of the last second in which some kernel ran. `power` in watts. `throttled`: the
    reasons of NVML that hold its clocks down and are faults. `graphics`: share of the last window in which
    anything ran; `sm`, `dram`: busy share of its SMs and of its memory's bandwidth; `math`: of its busiest
    arithmetic unit. `sent`: NVLink bytes per second in that window, `peak` of all its links, one way.
    `plateau`: bytes per second while bytes move, a lower bound where its bursts are `short`; `duty`: the
    share of time in which they do. `thread`: share of one core that the busiest thread of its processes took.
    `memory`: bytes of the GPU's memory by process id, of those whose number the driver gives.
    """

    uuid: str
    index: str
    pids: tuple[int, ...] = ()
    utilisation: float | Absent = NOT_WATCHED
    power: float | Absent = NOT_WATCHED
    throttled: tuple[str, ...] | Absent = NOT_WATCHED
    graphics: float | Absent = NOT_WATCHED
    sm: float | Absent = NOT_WATCHED
    dram: float | Absent = NOT_WATCHED
    math: float | Absent = NOT_WATCHED
    sent: float | Absent = NOT_WATCHED
    peak: float | Absent = NOT_WATCHED
    plateau: float | Absent = NOT_WATCHED
    duty: float | Absent = NOT_WATCHED
    thread: float | Absent = NOT_WATCHED
    short: bool = False
    memory: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LateGpu:
    """A GPU for which the others wait, found without the tap; `text` has the numbers."""

    uuid: str
    index: str
    text: str


@dataclass(frozen=True, slots=True)
class MoreWork:
    """A GPU that does more work than the others: `more` of theirs; `waiting`: the share that they wait."""

    uuid: str
    index: str
    more: float | Absent
    waiting: float | Absent
    text: str


@dataclass(frozen=True, slots=True)
class HungJob:
    """A hang: `text` names kind and culprit, with what shows it and what to do.

    `suspected`: nobody could be asked; it looks like one.
    """

    text: str
    since: float
    evidence: tuple[str, ...] = ()
    action: str = ""
    suspected: bool = False


@dataclass(frozen=True, slots=True)
class JobFinding:
    """A finding about a part that the job uses, as the verdict has it; `gpu`: UUID, empty for other parts."""

    rule: str
    health: str
    subject: str
    gpu: str
    evidence: str
    action: str


@dataclass(frozen=True, slots=True)
class JobSettings:
    """NCCL's settings of one process, or why they cannot be read."""

    pid: int
    settings: Mapping[str, str] | Absent


@dataclass(frozen=True, slots=True)
class JobEvidence:
    """All that is known of one job on this node; `name` as in RunningJob.

    `job`: what the tap says of it; Absent without the tap. `now`: Unix seconds. `ledger`: how its GPUs spend
    their time. `standing`: it stands still now, before anybody has said why. `host`: of this node, empty
    where that is not known.
    """

    name: str
    now: float
    gpus: tuple[JobGpu, ...]
    job: RunningJob | Absent = NOT_WATCHED
    late: LateGpu | None = None
    more: MoreWork | None = None
    hang: HungJob | None = None
    findings: tuple[JobFinding, ...] = ()
    settings: tuple[JobSettings, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    ledger: JobLedger | Absent = NOT_WATCHED
    standing: StandingJob | None = None
    host: str = ""

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the known ids of its processes, as this machine counts them."""
        of_gpus = {pid for gpu in self.gpus for pid in gpu.pids}
        return tuple(sorted(of_gpus.union(() if isinstance(self.job, Absent) else self.job.pids)))

    def watches(self, source: EvidenceSource) -> bool:
        """Tell whether this source is watched."""
        return any(one.watched for one in self.sources if one.source is source)

    @property
    def one_job(self) -> bool:
        """Tell whether its processes are known to be one job, and not several of one owner."""
        return len(self.gpus) == 1 or (not isinstance(self.ledger, Absent) and self.ledger.one_job)


class Wall(Enum):
    """The wall that holds a job up most.

    COMPUTING: no cause of waiting is large enough to be named. NOTHING: all is watched, and nothing of this
    node holds it up.
    """

    HANG = "hang"
    STANDING = "stands still"
    STARTING = "starting"
    SLOW_WIRE = "slow wire"
    LATE_RANK = "late rank"
    UNEVEN_WORK = "uneven work"
    HOST = "host"
    LAUNCH_GAPS = "launch gaps"
    MEMORY = "memory"
    COLLECTIVES = "collectives"
    NOT_ATTRIBUTED = "waiting, not attributed"
    COMPUTING = "computing"
    NOTHING = "nothing"
    NOT_KNOWN = "not known"


class Certainty(Enum):
    """HIGH: two sources agree. MEDIUM: one says so. LOW: something that would decide is not watched."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """The wall that a job hits, in one `sentence`. `cost`: the share of its time that it takes.

    `gpu`: UUID of the GPU that the sentence names first, empty where it names none.
    `causes`: names of what is behind it, such as `NCCL_P2P_DISABLE=1`, `Tree` or `hw_thermal_slowdown`.
    `because`: what shows it. `doubts`: what is not known and would matter. `advice`: what to do.
    """

    wall: Wall
    sentence: str
    certainty: Certainty
    cost: float | Absent = NOT_WATCHED
    causes: tuple[str, ...] = ()
    because: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    gpu: str = ""
