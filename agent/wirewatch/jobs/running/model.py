"""Running jobs as values: options, policy, one reading of their rings, and what is remembered of each."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import Options, Strict, wrong_settings
from wirewatch.core.jobs import RingCounts, RingsReading, TimedCollective
from wirewatch.core.probe import NOT_KNOWN
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent, Subject, Why
from wirewatch.jobs.times import CommunicatorWindow, JobHint, JobsFacts

MOST_RINGS = 1024
MOST_COMMUNICATORS = 256
MOST_JOINED, JOINED_IN_ALL, FEWEST_JOINED = 2048, 1 << 15, 64
"""Collectives that are kept of a communicator, of all together, and of each at least.

As many wait for the records of other ranks, and as many make a window. A fuller window drops every second
collective, again and again."""
MOST_ROWS, ROWS_IN_ALL, FEWEST_ROWS = 32, 4096, 2
"""Operations with sizes of one window, of all windows together, and of each window at least.

A window keeps the operations that took most of the time.
"""
KEPT_WINDOWS = 8
SLOT = 2.0
"""Seconds; collectives nearer to each other are one moment of a job. Those of one step are not independent:
what is behind in one bucket is behind in the next."""
KEPT_SLOTS = 64
MOST_SPANS, SPANS_IN_ALL = 512, 1 << 14
"""Collectives that are kept of one process, and of all, to know where a rank was before."""
MOST_REFUSED = 16
MOST_RANKS = 1 << 20
"""Ranks that a communicator may claim; of more its ring is refused."""


_NO_TOPOLOGY = Absent(Why.MISSING, "the topology is not read yet")


@dataclass(frozen=True, slots=True)
class JobsOptions(Options):
    """How often the tap's rings are read."""

    interval: Seconds = 2.0
    """Well below `JobsPolicy.window`, since a window ends at a poll: polls as far apart as it is long come a
    moment early as often as not, and each window of which that is true lasts twice as long. [seconds]"""
    deadline: Seconds = 2.0
    names: bool = False
    """True if series name the job that holds a GPU. Off, so that no job's name is in a label."""


@dataclass(frozen=True, slots=True)
class JobsPolicy(Strict):
    """When collectives of a job are judged, and when a rank is late or a wire slow."""

    window: Seconds = 5.0
    """Shortest window that is judged. [seconds]"""
    longest: Seconds = 120.0
    """Longest window. [seconds]"""
    joined: int = 8
    """Collectives timed by all local ranks that a window needs."""
    fewest: int = 4
    """Collectives that are enough once a window has lasted `longest`."""
    confirm: int = 3
    """Windows of the last `windows` that must agree."""
    windows: int = 4
    """Last windows that are looked at."""
    resolution: Seconds = 3e-6
    """Least time by which the late rank must come after the next one, for a vote. [seconds]"""
    clear: float = 0.05
    """The same as a share of the time on the wire. [share]"""
    votes: float = 0.8
    """Share of a window's collectives in which a rank is late that must name the same rank. [share]"""
    cost: float = 0.05
    """Least share of the time that the others lose by waiting for that rank alone.

    Healthy GPUs of a node differ by as much as that. Of a rank that has come to be late while the job ran,
    three fifths of it are enough. [share]
    """
    chance: float = 2e-3
    """How likely it may be at most that a healthy job has one rank last in so many moments. [probability]"""
    ratio: float = 0.7
    """Least share of the expected bus bandwidth. [share]"""
    other_ratio: float = 0.78
    """The same where another algorithm or protocol ran than NCCL takes by default.

    Healthy collectives beside other work reach 79 % and more. [share]"""
    unlike: float = 0.2
    """When NVLink carried at most this share of what the collectives send, they went another way. [share]"""
    domain_time: float = 0.05
    """Least share of the time for a remark.

    It is about a communicator over the network that could stay inside its NVLink domain. [share]
    """
    stale: Seconds = 300.0
    """Time after which the numbers of a job that times nothing any more are withdrawn. [seconds]"""

    def wrong(self) -> str:
        """Say what cannot be meant; empty when all can."""
        return wrong_settings(
            self,
            (("window", "longest", "resolution", "stale"), lambda v: 0 < v < math.inf, "must be above 0"),
            (
                ("clear", "votes", "cost", "chance", "ratio", "other_ratio", "unlike", "domain_time"),
                lambda v: 0 < v <= 1, "must be above 0 and at most 1",
            ),
            (("joined", "fewest", "confirm", "windows"), lambda v: v >= 1, "must be above 0"),
            (("longest",), lambda v: v >= self.window, "must not be below window"),
            (("fewest",), lambda v: v <= self.joined, "must not be above joined"),
            (("windows",), lambda v: self.confirm <= v <= KEPT_WINDOWS,
             f"must not be below confirm, nor above {KEPT_WINDOWS}"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Witness:
    """Something else on this node that is wrong with a wire: its finding's rule, its part, and its text."""

    rule: str
    subject: Subject
    text: str


@dataclass(frozen=True, slots=True)
class NvlinkSent:
    """Bytes that each GPU (by UUID) had sent over NVLink at `mono` (monotonic seconds), raw counters."""

    mono: float = 0.0
    sent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobSurroundings:
    """Knowledge of other components, by which jobs are judged; the verdict hands it in.

    `link_rate`: bytes per second of one NVLink link each way, `links`: how many a GPU must have by the
    operator. `pins`: the operator's busbw as `Conditions` has them. `witnesses`: findings that hold now.
    `gpus`: the GPU (UUID) of each process that computes on one alone.
    """

    topology: Topology | Absent = _NO_TOPOLOGY
    link_rate: float | Absent = NOT_KNOWN
    links: int | None = None
    pins: Mapping[str, float] = field(default_factory=dict)
    nvlink: NvlinkSent = NvlinkSent()
    witnesses: tuple[Witness, ...] = ()
    gpus: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RingProcess:
    """The knowledge of this machine of the process behind a ring.

    `owner`: such as `slurm:4711`, empty for none. `settings`: NCCL's, of its environment.
    """

    owner: str
    settings: Mapping[str, str] | Absent


@dataclass(frozen=True, slots=True)
class JobsReading:
    """The rings as they were read, or why there is no folder; `processes` by the name of the ring.

    `conf`: NCCL's settings of this node, from /etc/nccl.conf. `names`: whether series may name jobs.
    """

    rings: RingsReading | Absent
    processes: Mapping[str, RingProcess] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    around: JobSurroundings = JobSurroundings()
    names: bool = False

    @property
    def indexes(self) -> dict[str, str]:
        """The number of each GPU that this machine has, by UUID; a ring may name any."""
        topology = self.around.topology
        return {} if isinstance(topology, Absent) else {gpu.uuid: str(gpu.index) for gpu in topology.gpus}


CommunicatorKey = tuple[str, int]
"""Identity of its rings and NCCL's number of a communicator: nobody's ring joins another's."""
CallKey = tuple[str, int]
"""Operation and its number by NCCL."""


@dataclass(frozen=True, slots=True)
class JoinedCollective:
    """One collective as all local ranks timed it: `seconds` by rank; `at`: when it was enqueued first.

    `before`: seconds since the preceding collective ended, the mean of the ranks, each by its own GPU's
    clock. It is None where that collective was not joined, or others between may be missing. Time in other
    communicators does not count. `begun`: see `own`, None where it is `seconds`. `causes`: of all waiting in
    it, the share by who is waited for, a GPU (UUID) or ELSEWHERE; None where all of it is for the last rank.
    """

    op: str
    sequence: int
    bytes: int | None
    algorithm: str
    protocol: str
    channels: int
    at: float
    seconds: Mapping[int, float]
    before: float | None = None
    begun: Mapping[int, float] | None = None
    causes: Mapping[str, float] | None = None

    @property
    def own(self) -> Mapping[int, float]:
        """Seconds that each rank would have been in it if nobody had been held up elsewhere before.

        All lateness in them is the ranks' own. Empty where that is not known.
        """
        return self.seconds if self.begun is None else self.begun

    @property
    def wire(self) -> float:
        """Seconds on the wire: the shortest duration over the ranks."""
        return min(self.seconds.values())


@dataclass(frozen=True, slots=True)
class PendingCall:
    """Records of one collective by rank, first seen at poll `poll`; `replayed`: a rank reported it twice."""

    poll: int
    records: Mapping[int, TimedCollective]
    replayed: bool = False


ProcessKey = tuple[Hashable, str]
"""A process on one of its GPUs: a single clock times its work there."""


SpanKey = tuple[CommunicatorKey, str, int]
"""A collective: its communicator, operation and number."""


class ProcessSpan(NamedTuple):
    """A collective of one process by its GPU's clock, of any of its communicators.

    `since`: the beginning of the first call of an unbroken timed row up to this call, of its operation and
    communicator. `gap`: where numbers are missing in front of it, the end of the last timed call before them;
    else None. `waited`: seconds of it, None where not known. `causes`: as `JoinedCollective` has them.
    """

    key: SpanKey
    started: float
    stopped: float
    since: float
    gap: float | None = None
    waited: float | None = None
    causes: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class RingProgress:
    """How far a ring was read, and its counters as they grew since it was first seen.

    `last`: number of the newest record. `raw`: the counters as last read. `idle`: polls since they grew.
    """

    last: int = 0
    raw: RingCounts = field(default_factory=RingCounts)
    calls: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    unsized: Mapping[str, int] = field(default_factory=dict)
    sends: int = 0
    captured: int = 0
    dropped: int = 0
    missed: int = 0
    gone: int = 0
    idle: int = 0


References = Mapping[tuple[str, int, str, str], tuple[float, ...]]
"""By operation, size, algorithm and protocol the two shortest times of windows, while ranks are the same.

The longer time counts, so that a single odd window is no reference."""


class RankMeeting(NamedTuple):
    """A collective before which all ranks had met: what `rank` is late by there is new.

    `computed`, `late`: seconds of computing before it, the ranks' mean, and of lateness.
    """

    rank: int
    computed: float
    late: float


@dataclass(frozen=True, slots=True)
class CommunicatorMemory:
    """The memory of one communicator.

    `ended`: by operation the highest number that was joined, so that a late record does not count twice.
    `front`: the last collective that was joined. `until`: by operation the last number of the newest window
    and its time: calls of the window under way count from there. `paused`: the longest pause in that window,
    in seconds. `begun`: monotonic seconds at which the window under way began, None before the first poll.
    `stride`: every so many joined collectives, a collective is kept. `closed`: when the newest window ended.
    `slots`: by slot of time the rank late in most of its collectives, the newest slots. `met`: the newest
    meetings, of the ranks that were late in most collectives. `tail`: the last collectives of the newest
    window. `even`: of the newest windows that named nobody, by how much of the time each rank was behind
    (`RankTime`). `best`: see `References`. `late_since`, `wire_since`: since when (Unix seconds) a rank was
    late, and an operation at a size was slow.
    """

    pending: Mapping[CallKey, PendingCall] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    front: tuple[CallKey, Mapping[int, TimedCollective]] | None = None
    until: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    paused: float = 0.0
    window: tuple[JoinedCollective, ...] = ()
    seen: int = 0
    stride: int = 1
    begun: float | None = None
    windows: tuple[CommunicatorWindow, ...] = ()
    closed: float | None = None
    slots: Mapping[int, int | None] = field(default_factory=dict)
    met: tuple[RankMeeting, ...] = ()
    tail: tuple[JoinedCollective, ...] = ()
    even: tuple[Mapping[int, float], ...] = ()
    best: References = field(default_factory=dict)
    joined: int = 0
    partial: int = 0
    replayed: int = 0
    ranks: tuple[tuple[int, str], ...] = ()
    late_since: tuple[int, float] | None = None
    wire_since: Mapping[tuple[str, int], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvlinkDue:
    """The bytes that a GPU's collectives had to send so far (`due`), beside what NVLink sent.

    `looked`, `sent` and `then`: when NVLink's counter was last read (monotonic seconds), its value, and what
    was due by then. `share`: what NVLink carried of what was due between the last two such moments, all of it
    while that is not known; `low`: in how many in a row that was too little.
    """

    due: float = 0.0
    looked: float = 0.0
    sent: int | None = None
    then: float = 0.0
    share: float = 1.0
    low: int = 0


@dataclass(frozen=True, slots=True)
class JobsMemory:
    """The memory that a poll leaves for the next; `polls` counts the polls.

    `totals`: calls and bytes by GPU (UUID) and operation, which outlive their rings. `due`: by GPU. `spans`:
    the newest collectives of each process that has several communicators, in the order of their ends.
    """

    polls: int = 0
    rings: Mapping[str, RingProgress] = field(default_factory=dict)
    processes: Mapping[str, RingProcess] = field(default_factory=dict)
    communicators: Mapping[CommunicatorKey, CommunicatorMemory] = field(default_factory=dict)
    calls: Mapping[tuple[str, str], int] = field(default_factory=dict)
    bytes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    due: Mapping[str, NvlinkDue] = field(default_factory=dict)
    spans: Mapping[ProcessKey, tuple[ProcessSpan, ...]] = field(default_factory=dict)
    hints: tuple[JobHint, ...] = ()
    last_hint: JobHint | None = None
    facts: JobsFacts | None = None
