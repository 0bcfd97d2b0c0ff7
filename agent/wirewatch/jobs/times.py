"""Times of the collectives of running jobs: by job, communicator, window, operation and size.

The collector `jobs` offers these facts to rooms that explain, show or judge running jobs. They are all about
the ranks on this node. In a collective all ranks end together. So the shortest duration is the time on the
wire, and the excess of another rank is its waiting. The rank that waits least is late.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from wirewatch.core.jobs import RefusedRing, RingState
from wirewatch.core.types import Absent, Why

LATENCY_BELOW = 1 << 20
"""Bytes; a smaller message is judged by its time against the floor, never by its busbw."""
ELSEWHERE = "elsewhere"
"""In the place of a GPU: a rank of another node."""
NO_REFERENCE = Absent(Why.MISSING, "the wires of this node are not known here")


class TimesDoubt(Enum):
    """Why a communicator's times are not judged; each value is a sentence for people."""

    ALONE = "one rank of it is on this node: nothing to compare its waiting with"
    UNSEEN = "not all ranks of this node are seen: an unseen one may be late"
    TWICE = "one rank is claimed by two rings"
    SAME_GPU = "two ranks claim the same GPU"
    UNLIKE = "its rings contradict each other"
    FEW = "too few collectives were timed on all ranks"
    OFF = "its tap only counts: WIREWATCH_TAP_ON_MS or WIREWATCH_TAP_BUDGET is 0"
    NOT_MEASURED = "its tap only counts: its times were not proven with this version of NCCL"
    BROADCAST = "its tap counts since a broadcast: this NCCL would give it times of other collectives"
    OVERRIDDEN = "its tap only counts: somebody took the channels out of NCCL's mask"
    UNKNOWN_NCCL = "its tap only counts: this NCCL keeps its calls where the tap does not know them"
    FORMAT = "NCCL Inspector writes as with NCCL 2.31 or later, whose times are those of other collectives"
    SHIFTED = "NCCL Inspector may write times of other collectives since an operation that it does not name"
    CPU_CLOCK = "NCCL Inspector took the times by the CPU's clock, which does not say who waits"
    SPARSE = "NCCL Inspector writes fewer than half of its collectives, so that ranks rarely write the same"


INSPECTOR_FORMAT, INSPECTOR_SHIFTED, INSPECTOR_CPU, INSPECTOR_SPARSE = range(64, 68)
UNTIMED: Mapping[int, TimesDoubt] = {
    1: TimesDoubt.OFF, 2: TimesDoubt.NOT_MEASURED, 3: TimesDoubt.UNKNOWN_NCCL, 5: TimesDoubt.BROADCAST,
    6: TimesDoubt.OVERRIDDEN, INSPECTOR_FORMAT: TimesDoubt.FORMAT, INSPECTOR_SHIFTED: TimesDoubt.SHIFTED,
    INSPECTOR_CPU: TimesDoubt.CPU_CLOCK, INSPECTOR_SPARSE: TimesDoubt.SPARSE,
}  # fmt: skip
"""Why nothing is timed, for a tap by `ww_untimed` of agent/tap/ring.h; of graphs the counters tell."""


@dataclass(frozen=True, slots=True)
class JobRank:
    """A rank of a communicator on this node.

    `gpu`: UUID of its GPU; `index`: of it today, empty where not known. `pid`: as this machine counts,
    `own_pid` as the process does. `nccl`: version, empty where not known. `settings`: NCCL's of its
    environment. `sampling`: share of its collectives that its tap times now, 0 where not known.
    `enqueued`: collectives since the communicator was made, timed or not. `event`: monotonic seconds of its
    last call.
    """

    rank: int
    gpu: str | Absent
    index: str
    pid: int | Absent
    own_pid: int
    nccl: str
    state: RingState
    settings: Mapping[str, str] | Absent
    sampling: float = 0.0
    enqueued: int = 0
    event: float = 0.0


@dataclass(frozen=True, slots=True)
class RankTime:
    """One rank in one window: the shares of the window's time that it was in collectives, and that it waited.

    `late`: the share of the collectives in which this rank was late. `behind`: the share of the time by which
    it came to them after the next rank, on average; below 0 by which it came before the last one. Both are of
    what begins in this communicator alone. `waits`: parts of `waiting` as `GpuTime` has them.
    """

    rank: int
    in_collectives: float
    waiting: float
    late: float
    behind: float
    waits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """One operation at one size in one window, timed on all local ranks `joined` times.

    `size_bytes`: the power of two at or below the message, `bytes` the median message, both as nccl-tests
    counts them; 0 where NCCL does not name the type of the elements. `calls`: how many were enqueued
    meanwhile, timed or not, as far as its ranks tell.
    `wire_seconds`: median of the shortest duration over the ranks, as measured; `low` and `high`: its 10th
    and 90th percentile.
    `busbw`: bytes per second of the median, `best` of the 10th percentile, by the tap's clock; Absent for
    small messages. `expected`: by the same clock, of NCCL's defaults on this topology at that size with
    nothing beside it, and how that follows in `derivation`;
    `trusted`: whether it may carry a verdict. `floor`: seconds of the smallest message where known.
    `waits`: mean seconds of each rank, `votes`: how often each was late; `undecided`: how often nobody was,
    where that is known. `mean`: of the shortest durations. `explained`: why it may be below what is expected:
    algorithm, protocol, settings, in words. `other_way`: NCCL ran another algorithm or protocol than its
    defaults take there.
    """

    op: str
    size_bytes: int
    ranks: int
    joined: int
    calls: int
    bytes: int
    wire_seconds: float
    low: float
    high: float
    algorithm: str
    protocol: str
    channels: int
    busbw: float | Absent
    best: float | Absent
    expected: float | Absent = NO_REFERENCE
    derivation: tuple[str, ...] = ()
    trusted: bool = False
    floor: float | Absent = NO_REFERENCE
    waits: Mapping[int, float] = field(default_factory=dict)
    votes: Mapping[int, int] = field(default_factory=dict)
    undecided: int = 0
    explained: tuple[str, ...] = ()
    other_way: bool = False
    mean: float = 0.0

    @property
    def small(self) -> bool:
        """Tell whether its time is latency and not bandwidth; False where the size is not known."""
        return 0 < self.size_bytes < LATENCY_BELOW

    @property
    def ratio(self) -> float | None:
        """Got over expected; None where either is not known."""
        return _over(self.busbw, self.expected)

    @property
    def best_ratio(self) -> float | None:
        """The best over expected; None where either is not known."""
        return _over(self.best, self.expected)


@dataclass(frozen=True, slots=True)
class CommunicatorWindow:
    """What a communicator did in one window, from `started` (monotonic seconds) on.

    `late`: the rank that was late in most collectives, None for nobody; `others`: ranks that were as late.
    `cost`: the share of the window that the other ranks lost to it, the median of them. `grown`: by how much
    of the time that rank is farther behind than while nobody was late, None where that is not known. `alike`:
    all local ranks waited alike.
    """

    started: float
    seconds: float
    collectives: tuple[OperationTimes, ...]
    ranks: tuple[RankTime, ...]
    late: int | None = None
    cost: float = 0.0
    alike: bool = True
    grown: float | None = None
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LateRank:
    """The rank for which the others wait: in `windows` of the last `of`, `votes` of `voted` collectives.

    `cost`: the share of the time that the others lose, the median over ranks and windows: what they wait,
    without lateness that is only older (ADR 0075); `at_most` so much where starts are not known. `since` in
    Unix seconds. `text` says it with these numbers, `who` its rank and GPU alone. `rank` is the job's number
    where one communicator holds all of its ranks, else the communicator's, with which `who` says so.
    `others`: ranks that are as late.
    """

    rank: int
    gpu: str | Absent
    index: str
    pid: int | Absent
    windows: int
    of: int
    votes: int
    voted: int
    cost: float
    since: float
    text: str
    at_most: bool = False
    who: str = ""
    others: tuple[JobRank, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowWire:
    """Collectives whose wire is slow on all local ranks alike, at one operation and size.

    `ratio`: the best busbw over the expected one, the median of `windows` windows of the last `of`.
    `witnesses`: what else on this node agrees, in words; without one it is a hint. `explained`: the
    algorithm, protocol, transport or setting that would do it. `since` in Unix seconds.
    """

    op: str
    size_bytes: int
    busbw: float
    expected: float
    ratio: float
    windows: int
    of: int
    since: float
    witnesses: tuple[str, ...]
    explained: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class CommunicatorTimes:
    """One communicator of a job: its ranks on this node and its newest windows, the last one last.

    `id`: NCCL's, hexadecimal, the same on all nodes. `ranks` and `nodes` of all of it, `here` those seen.
    `doubt`: why it is not judged, None where it is. Since it was first seen: `joined` collectives that all
    local ranks timed, `partial` ones that only some did, `missed` records that were overwritten unread,
    `dropped` ones that the tap could not keep; `calls`, `bytes` and `unsized` by operation of the rank that
    made most, `sends` sends and receives, which are not judged, `captured` calls that went into CUDA graphs.
    `fresh`: the newest window is of now. `elsewhere`: all local ranks wait alike for a rank of another node,
    or takes far longer than its siblings, in words; empty where not so. `group`: TP, PP, DP or EP, empty
    where that is not decided. `source`: what timed it, if not the tap: then starts, gaps, algorithms and
    protocols are not known, and only calls that were written are counted. `few`: how few collectives the
    window under way has, in words; empty where they are enough to name a rank, or one is named.
    """

    id: str
    name: str
    ranks: int
    nodes: int
    here: tuple[JobRank, ...]
    windows: tuple[CommunicatorWindow, ...] = ()
    doubt: TimesDoubt | None = None
    late: LateRank | None = None
    wire: SlowWire | None = None
    fresh: bool = False
    elsewhere: str = ""
    joined: int = 0
    partial: int = 0
    missed: int = 0
    dropped: int = 0
    sends: int = 0
    captured: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    unsized: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    group: str = ""
    few: str = ""

    @property
    def newest(self) -> CommunicatorWindow | None:
        """The newest window; None before the first is full."""
        return self.windows[-1] if self.windows else None


class JobRemarkKind(Enum):
    """What is said of a job that is not a fault of the node."""

    VERSIONS = "NCCL versions differ"
    DOMAIN = "leaves its NVLink domain"
    SETTINGS = "settings that slow"
    OWNERS = "several owners"
    TAPS = "tap versions differ"
    RAIL = "slow rail"


@dataclass(frozen=True, slots=True)
class JobRemark:
    """Something that its owner should know, in words; `cost` is a share of the job's time where known."""

    kind: JobRemarkKind
    text: str
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class GpuTime:
    """One GPU of a job over the windows of the last seconds, of all communicators; shares of time, 0 to 1.

    `waiting` is a share of all time, not of `in_collectives`; in communicators over several nodes, time far
    beyond their best is waiting for another node. `late`: the greatest share of collectives of a
    communicator in which this GPU was waited for. `measured`: whether a window says so, or nothing was timed.
    `calls` and `bytes` by operation since first seen. Of `waiting`, `waits` says for whom: by GPU (UUID), or
    ELSEWHERE; the rest has no one cause. Of the time on the wire, `beyond` is the share of all time beyond
    what is expected; Absent where nothing is known to expect.
    """

    gpu: str
    index: str
    in_collectives: float
    waiting: float
    late: float
    measured: bool = False
    calls: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    beyond: float | Absent = NO_REFERENCE


@dataclass(frozen=True, slots=True)
class RunningJob:
    """Processes that share communicators, or an owner.

    `name`: `slurm:ID`, `pod:UID`, `container:ID`, or `pid:N` of the lowest process where no owner is known;
    `owners`: all that its processes have, normally one. `uid` of all its rings. `since`: the first ring (Unix
    seconds). `late` and `wire`: the worst of its communicators. `live`: one of its processes still runs.
    """

    name: str
    owners: tuple[str, ...]
    uid: int
    since: float
    live: bool
    communicators: tuple[CommunicatorTimes, ...]
    gpus: tuple[GpuTime, ...]
    late: LateRank | None = None
    wire: SlowWire | None = None
    remarks: tuple[JobRemark, ...] = ()

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the known ids of its processes, as this machine counts them."""
        found = {one.pid for comm in self.communicators for one in comm.here}
        return tuple(sorted(pid for pid in found if not isinstance(pid, Absent)))


@dataclass(frozen=True, slots=True)
class JobHint:
    """A hint that brings a probe forward and changes no verdict: a late GPU, or a wire that is slow alone.

    `kind`: `late` or `wire`. `gpu`: UUID of the late GPU, empty for a wire. `since`, `at` in Unix seconds,
    `mono` in monotonic seconds: when it was first and last seen.
    """

    kind: str
    job: str
    gpu: str
    since: float
    at: float
    mono: float
    text: str


@dataclass(frozen=True, slots=True)
class JobsFacts:
    """All that is known of running jobs at one moment; `at` in Unix, `mono` in monotonic seconds.

    `hints` hold now; `last_hint` is the newest one, which stays when it is over. `refused`: the first files
    that are not rings. `left_out`: communicators beyond what is followed. `folder`: Absent where there
    is no folder of rings, and why.
    """

    at: float
    mono: float
    jobs: tuple[RunningJob, ...] = ()
    hints: tuple[JobHint, ...] = ()
    last_hint: JobHint | None = None
    refused: tuple[RefusedRing, ...] = ()
    left_out: int = 0
    folder: Absent | None = None

    def rows(self) -> Iterator[OperationTimes]:
        """Every operation and size of the newest windows of all jobs that still run and are timed."""
        for job in self.jobs:
            for one in job.communicators:
                if one.fresh and one.doubt is None:
                    yield from (row for window in one.windows[-1:] for row in window.collectives)


def _over(got: float | Absent, expected: float | Absent) -> float | None:
    if isinstance(got, Absent) or isinstance(expected, Absent) or expected <= 0:
        return None
    return got / expected
