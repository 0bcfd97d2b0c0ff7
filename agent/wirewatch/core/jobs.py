"""Readings of running jobs: rings of the tap inside them, NCCL Inspector's lines, NCCL's RAS.

Both are hostile input, since a job's owner may write anything. Adapters check shapes and bounds, and make
these values.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import Enum

from wirewatch.core.types import Absent, Why

NOT_READ = Absent(Why.MISSING, "not read")


def asker(owner: str, uid: int) -> tuple[str, str]:
    """Return the owner and the user that take a share of a budget; the shared level is one owner."""
    return owner, "" if owner else str(uid)


class RingState(Enum):
    """LIVE: its writer holds the lock. FINALIZED: the communicator was destroyed. DEAD: no writer is left."""

    LIVE = "live"
    FINALIZED = "finalized"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class RingCounts:
    """The counters of a ring, which only grow; `calls`, `bytes` and `unsized` by op as nccl-tests names it.

    `enqueued`: collectives, timed or not. `unsized`: collectives of a type that NCCL does not name, so that
    their bytes are not known. `dropped`: timed collectives without a record. `event`: monotonic seconds of
    the last event.
    """

    written: int = 0
    dropped: int = 0
    enqueued: int = 0
    sends: int = 0
    captured: int = 0
    windows: int = 0
    event: float = 0.0
    calls: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    unsized: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ring:
    """One communicator of one process, as the tap describes it.

    `name`: of its file, below the folder of rings. `communicator`: the same on every rank, also on other
    nodes. `gpu`: the UUID of its GPU. `pid`: as the process sees itself; `host_pid`: as this machine does,
    where the lock's holder can be seen. `uid`: owner of the file. `nccl`: such as `2.28.9`, empty where not
    known. `created`: Unix seconds. `on`, `period`: seconds; channels are timed for `on` of every `period`.
    `budget`: timed collectives a second of its process. `stride`: the number of blocks of calls of which one
    is timed now. Both are 0 where the ring does not say, as rings of 0.2. `untimed`: why calls are not timed,
    by `ww_untimed` of agent/tap/ring.h; 0 while they are. `source`: another program that timed it, with the
    version of NCCL and the clock; empty for the tap. `owner`: such as `pod:UID`, by the folder that the
    platform made for the job; empty where there is none.
    """

    name: str
    communicator: int
    ranks: int
    rank: int
    nodes: int
    gpu: str | Absent
    pid: int
    host_pid: int | Absent
    uid: int
    created: float
    state: RingState
    counts: RingCounts
    comm_name: str = ""
    nccl: str = ""
    interface: int = 0
    tap: str = ""
    on: float = 0.0
    period: float = 0.0
    untimed: int = 0
    source: str = ""
    owner: str = ""
    budget: int = 0
    stride: int = 0

    @property
    def share(self) -> float:
        """Return the share of its calls that is timed now; 0 where nothing is, or it cannot be known."""
        known = not self.untimed and 0 < self.on <= self.period
        return self.on / self.period / max(1, self.stride) if known else 0.0

    @property
    def identity(self) -> str:
        """Return the scope in which rings may be joined: the owner, else the user of the file."""
        return self.owner or f"user:{self.uid}"

    def misplaced(self, gpus: Mapping[int, str], known: Container[str]) -> str:
        """Return in words that its process computes on another GPU than it names; empty where not seen.

        `gpus`: the GPU of each process that computes on one alone, by UUID. `known`: GPUs of this machine. A
        MIG instance is not among them, and its UUID is believed.
        """
        runs = self.gpu if isinstance(self.host_pid, Absent) else gpus.get(self.host_pid, self.gpu)
        return f"says {self.gpu}, runs on {runs}" if runs != self.gpu and self.gpu in known else ""

    @property
    def asker(self) -> tuple[str, str]:
        """Return the holder of its share of a budget: its owner, or a user of the shared level."""
        return asker(self.owner, self.uid)


@dataclass(frozen=True, slots=True)
class TimedCollective:
    """One collective that one rank timed on its GPU.

    `number`: of the record in its ring. `sequence`: NCCL's number of this op in this communicator, the same
    on every rank. `size_bytes`: the message as nccl-tests counts it; None where NCCL does not name its type.
    `seconds`: of the longest channel, including its wait for other ranks. `started`, `stopped`: seconds of
    the GPU's own clock, None where not written. `enqueued`: seconds of this machine's monotonic clock.
    Without a written start, it is the time of the line. `channels`: 0 where not known.
    """

    number: int
    op: str
    sequence: int
    size_bytes: int | None
    dtype: str
    algorithm: str
    protocol: str
    channels: int
    seconds: float
    started: float | None
    stopped: float | None
    enqueued: float
    root: int | None = None


@dataclass(frozen=True, slots=True)
class RingReading:
    """A ring and its records that are new since the last reading; `missed` were overwritten unread.

    `implausible`: records with impossible values. `last`: number of the last record that was looked at; the
    next question asks for later records.
    """

    ring: Ring
    calls: tuple[TimedCollective, ...] = ()
    missed: int = 0
    implausible: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class RefusedRing:
    """A file that is not a ring of ours, with the reason: its owner, its shape, its size."""

    name: str
    why: Absent


@dataclass(frozen=True, slots=True)
class RingsReading:
    """All rings of a folder, and the files that were refused."""

    rings: tuple[RingReading, ...] = ()
    refused: tuple[RefusedRing, ...] = ()


class RasPhase(Enum):
    """The phase of a rank's communicator, by the rank; LEFT: it answered, and is not a member."""

    STARTING = "starting"
    RUNNING = "running"
    FINALIZING = "finalizing"
    ABORTING = "aborting"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class RasRank:
    """One rank by RAS; `pid` is its id in the job's own pid namespace, `nvml` the index that the job sees.

    `counts`: launched collectives by op as nccl-tests names it; replays of CUDA graphs are not counted.
    `errors`: NCCL's results other than success, in words. `missing`: why it did not answer, `unresponsive` or
    `dead`; empty where it did. Numbers are -1 and the host is `unknown` where RAS does not know them.
    """

    rank: int
    host: str
    pid: int
    cuda: int
    nvml: int
    counts: Mapping[str, int] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    missing: str = ""
    phase: RasPhase = RasPhase.RUNNING


@dataclass(frozen=True, slots=True)
class RasCrowd:
    """A number of ranks with the same count of one op, which NCCL before 2.28.7 does not list in its text."""

    op: str
    ranks: int
    launched: int


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    """One communicator of a job; `hash` with `secondary` name it. `size`: its ranks on all nodes.

    The text of NCCL before 2.28.7 lists only ranks that stand out, and no hash where none does. Then `crowds`
    are the other ranks, this value describes `alike` communicators, and `listed` is False. `lost`: ranks that
    did not answer, listed or not. `phase`: the phase of most of its ranks.
    """

    hash: str
    secondary: str
    size: int
    ranks: tuple[RasRank, ...]
    crowds: tuple[RasCrowd, ...] = ()
    listed: bool = True
    lost: int = 0
    alike: int = 1
    phase: RasPhase = RasPhase.RUNNING


@dataclass(frozen=True, slots=True)
class RasReport:
    """One job's answer; `seconds` until it had come. `repaired`: its JSON lacked a comma, which was added.

    `uid`: owner of the socket that answered. `silent`: connections that nobody answered, as at a stopped
    process. `timeouts`: of the job's RAS threads among themselves. `processes`: of the whole job, 0 where the
    report does not say. `odd`: lines of a text that were not understood.
    """

    nccl: str
    communicators: tuple[RasCommunicator, ...]
    seconds: float
    repaired: bool = False
    uid: int | Absent = NOT_READ
    silent: int = 0
    timeouts: int = 0
    processes: int = 0
    odd: int = 0


@dataclass(frozen=True, slots=True)
class RasListener:
    """A listening socket of RAS and its owner; `open`: other machines can reach its address."""

    address: str
    uid: int
    inode: int
    open: bool
