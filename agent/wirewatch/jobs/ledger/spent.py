"""The waiting ledger as values: on what the GPUs of each job spend their time, and who is behind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeGuard

from wirewatch.core.types import Absent

ROUNDING = 1e-6


def is_share(value: float | Absent) -> TypeGuard[float]:
    """Tell whether a value is a share of 0 to 1, but for rounding; NaN is none."""
    return not isinstance(value, Absent) and -ROUNDING <= value <= 1 + ROUNDING


class Spent(Enum):
    """A kind of time of a GPU; each value is its name for people."""

    COMPUTING = "computing"
    LOCAL_RANK = "waiting for a rank of this node"
    OTHER_NODE = "waiting for another node"
    WIRE = "on the wire, as expected"
    BEYOND = "on the wire, beyond what is expected"
    IDLE = "nothing runs on it"
    NOT_ATTRIBUTED = "not attributed"


@dataclass(frozen=True, slots=True)
class GpuLedger:
    """How one GPU of a job spent the last `seconds`.

    `shares` of that time are 0 to 1 and add up to 1. `waits_for`: the part of LOCAL_RANK by the GPU (UUID)
    that is waited for. `idle`: in words, how its processes spend the IDLE part; empty where not known.
    `unjudged`: the part of WIRE of which nothing is known to expect. `waiting`: the part of NOT_ATTRIBUTED
    that is known to be waiting; the rest of it may be work.
    """

    gpu: str
    index: str
    seconds: float
    shares: Mapping[Spent, float]
    waits_for: Mapping[str, float] = field(default_factory=dict)
    idle: str = ""
    unjudged: float = 0.0
    waiting: float = 0.0


@dataclass(frozen=True, slots=True)
class RankBehind:
    """A rank that has enqueued fewer collectives than others of its communicator, and has not moved lately.

    `rank` of the communicator `communicator`, `gpu` its UUID. `calls`: how many it is behind the first.
    `seconds`: since its last call. `does`: in words, how its process spends the time.
    """

    rank: int
    communicator: str
    gpu: str
    index: str
    pid: int | None
    calls: int
    seconds: float
    does: str = ""


@dataclass(frozen=True, slots=True)
class JobLedger:
    """The ledger of one job: `short` over the last 10 s, `long` over 5 min, one entry a GPU.

    `since`: monotonic seconds at which its processes were first seen. `starting`: less than a minute ago, or
    it has not worked yet. `behind`: ranks for which the others stand still now. `one_job`: its processes are
    known to communicate; those of one owner may be several jobs.
    """

    name: str
    pids: tuple[int, ...]
    since: float
    starting: bool
    short: tuple[GpuLedger, ...]
    long: tuple[GpuLedger, ...]
    behind: tuple[RankBehind, ...] = ()
    one_job: bool = False


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """The ledgers of all running jobs at `mono` (monotonic seconds)."""

    mono: float
    jobs: tuple[JobLedger, ...] = ()
