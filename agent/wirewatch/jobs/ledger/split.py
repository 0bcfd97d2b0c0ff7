"""Split the time of one GPU of a job between two looks: shares that add up to 1. Pure.

Nothing is called computing, and nobody is waited for, without evidence: the rest is not attributed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from wirewatch.core.jobs import RingState
from wirewatch.core.types import Absent, value_or
from wirewatch.jobs.ledger.model import (
    CountedCommunicator,
    GpuActivity,
    GpuSight,
    LedgerPolicy,
    LedgerSurroundings,
    TimedJob,
)
from wirewatch.jobs.ledger.spent import Spent, is_share
from wirewatch.jobs.times import ELSEWHERE, GpuTime, JobRank

ALL_BUSY = 0.99
"""Share of the time: a kernel that waits for other ranks runs all the time."""
NCCL_SMS = 32 / 132
"""Largest share of a GPU's SMs that collectives occupy: on eight H200, NCCL 2.28 has 24 channels for them,
and 32 for sends. Each channel holds one of 132 SMs. SMs that are busy above that share compute."""


@dataclass(frozen=True, slots=True)
class Split:
    """Shares of a GPU's time.

    `waits`: of LOCAL_RANK by GPU. `unjudged`: of WIRE, with nothing to expect. `waiting`: of NOT_ATTRIBUTED,
    known to be waiting.
    """

    shares: Mapping[Spent, float]
    waits: Mapping[str, float] = field(default_factory=dict)
    unjudged: float = 0.0
    waiting: float = 0.0


@dataclass(frozen=True, slots=True)
class JobNow:
    """A job at one look: its GPUs and processes, with what is known of it, at `mono`.

    `sights` of its GPUs; Absent for a GPU that could not be read. `shared`: GPUs of several jobs; `worked`:
    GPUs on which something ran. `spinning`: by GPU, since when it has looked as if it spins. `timed`: its
    rings, None without the tap. `bound`: groups of its GPUs whose processes are known to communicate.
    """

    name: str
    gpus: tuple[str, ...]
    pids: tuple[int, ...]
    mono: float
    sights: Mapping[str, GpuSight | Absent]
    around: LedgerSurroundings
    policy: LedgerPolicy
    shared: frozenset[str] = frozenset()
    worked: frozenset[str] = frozenset()
    spinning: Mapping[str, float] = field(default_factory=dict)
    timed: TimedJob | None = None
    bound: tuple[tuple[str, ...], ...] = ()

    def others(self, gpu: str) -> tuple[str, ...]:
        """Return the GPUs for which this GPU may wait."""
        return tuple(other for some in self.bound if gpu in some for other in some if other != gpu)

    @property
    def counted(self) -> tuple[CountedCommunicator, ...]:
        """The communicators whose counts are of now."""
        fresh = self.mono - self.around.counted <= self.policy.longest
        return self.timed.communicators if self.timed is not None and fresh else ()


def spins(sight: GpuSight | Absent, policy: LedgerPolicy) -> bool | None:
    """Return whether a GPU is all busy without work, as in a collective that waits; None: not known."""
    if isinstance(sight, Absent) or not is_share(sight.busy):
        return None
    if sight.busy < ALL_BUSY:
        return False
    if isinstance(sight.power, Absent) or isinstance(sight.limit, Absent):
        return None
    known = sight.power >= 0 and sight.limit > 0
    return sight.power <= policy.low_power * sight.limit if known else None


def split(gpu: str, job: JobNow) -> Split:
    """Return on what a GPU that was read spends its time now."""
    sight, activity = job.sights[gpu], _activity(gpu, job)
    if isinstance(sight, Absent):
        return Split({Spent.NOT_ATTRIBUTED: 1.0})
    busy: float | Absent = sight.busy
    if not is_share(busy) and activity is not None:
        busy = activity.graphics
    if not is_share(busy):
        return Split({Spent.NOT_ATTRIBUTED: 1.0})
    busy = min(1.0, max(0.0, busy))
    if gpu in job.shared:
        return _with_idle(busy, Split({Spent.NOT_ATTRIBUTED: busy}))
    if spins(sight, job.policy) and job.others(gpu):
        causes = waited_by_counts(gpu, job)
        if causes or not _works(gpu, job):
            found = waited_by_signature(gpu, job) if causes is None else causes
            return _with_idle(busy, _waiting(busy, found))
    return _with_idle(busy, _working(busy, gpu, job))


def waited_by_counts(gpu: str, job: JobNow) -> frozenset[str] | None:
    """Return the GPUs here whose ranks a GPU waits for, by what each rank of a communicator has enqueued.

    A rank that is behind in one communicator may wait in another: the first of all is meant. None where
    counts say nothing, also where a rank that is behind goes on; empty where they name nobody here.
    """
    said = [rows for rows in (_behind(gpu, one) for one in job.counted) if rows is not None]
    behind = [rank for rows in said for rank in rows]
    if not said or (behind and not any(_is_still(rank, job) for rank in behind)):
        return None
    return _first_of_all(gpu, job, frozenset({gpu})) or frozenset()


def waited_by_signature(gpu: str, job: JobNow) -> frozenset[str]:
    """Return the GPU that alone does not spin while all others do; nobody where that is not so.

    Light kernels look alike, so that the job's processes must be known to communicate. A GPU on which nothing
    ever ran does not count: a process may merely hold it.
    """
    states = {other: spins(job.sights[other], job.policy) for other in job.others(gpu)}
    free = frozenset(other for other, state in states.items() if state is False)
    return (free & job.worked) - job.shared if len(free) == 1 and None not in states.values() else frozenset()


def _behind(gpu: str, one: CountedCommunicator) -> tuple[JobRank, ...] | None:
    """Return the ranks that enqueued least, where this GPU's rank enqueued more; None: there is no other."""
    own = [rank.enqueued for rank in one.here if rank.gpu == gpu and rank.state is RingState.LIVE]
    others = [rank for rank in one.here if rank.gpu != gpu]
    if not own or not others:
        return None
    least = min(rank.enqueued for rank in others)
    return tuple(rank for rank in others if rank.enqueued == least < max(own))


def _is_still(rank: JobRank, job: JobNow) -> bool:
    """Tell whether a rank has made no call lately: ranks enqueue ahead of their GPUs, each by its own."""
    return job.around.counted - rank.event >= job.policy.still


def _first_of_all(gpu: str, job: JobNow, path: frozenset[str]) -> frozenset[str] | None:
    """Return the GPUs at which waiting begins.

    None where it leads in a circle, out of the job, or to a GPU that waits for nobody.
    """
    found: frozenset[str] = frozenset()
    for rank in (rank for one in job.counted for rank in _behind(gpu, one) or () if _is_still(rank, job)):
        if isinstance(rank.gpu, Absent) or rank.gpu in path or rank.gpu not in job.gpus:
            return None
        first: frozenset[str] | None = frozenset({rank.gpu})
        if spins(job.sights[rank.gpu], job.policy):
            first = _first_of_all(rank.gpu, job, path | {rank.gpu})
        if not first:
            return None
        found |= first
    return found


def _works(gpu: str, job: JobNow) -> bool:
    """Tell whether a GPU that looks as if it spins works: windows that began since it looks so show it."""
    activity = _activity(gpu, job)
    return _times(gpu, job) is not None or (activity is not None and activity.sm > NCCL_SMS)


def _activity(gpu: str, job: JobNow) -> GpuActivity | None:
    """Return the newest window of GPM, if it speaks for now and has shares."""
    seen, found = job.around.seen, job.around.activity.get(gpu)
    if found is None or not (is_share(found.graphics) and is_share(found.sm)):
        return None
    return found if _is_of_now(gpu, job, seen - found.seconds, seen) else None


def _times(gpu: str, job: JobNow) -> GpuTime | None:
    """Return the newest times of its collectives, if they speak for now, with waits for GPUs of this job."""
    if job.timed is None or gpu not in job.timed.gpus or gpu not in job.timed.timed:
        return None
    found = job.timed.gpus[gpu]
    shares = (found.in_collectives, found.waiting, value_or(found.beyond, 0.0), *found.waits.values())
    if not found.measured or not all(map(is_share, shares)):
        return None
    ours = {cause: part for cause, part in found.waits.items() if cause in {*job.gpus, ELSEWHERE}}
    return replace(found, waits=ours) if _is_of_now(gpu, job, *job.timed.timed[gpu]) else None


def _is_of_now(gpu: str, job: JobNow, begin: float, end: float) -> bool:
    """Tell whether a window speaks for now: of before a GPU began to spin, none speaks for it."""
    return 0 <= job.mono - end <= job.policy.fresh and begin >= job.spinning.get(gpu, begin)


def _working(busy: float, gpu: str, job: JobNow) -> Split:
    """Return the shares of a GPU that works, or of which nothing says that it waits."""
    times, activity = _times(gpu, job), _activity(gpu, job)
    # All that is busy may be in collectives; what their SMs cannot explain computes.
    least = 0.0 if activity is None else (activity.sm - busy * NCCL_SMS) / (1 - NCCL_SMS)
    least = min(busy, max(0.0, least))
    if times is None:
        return Split({Spent.COMPUTING: least, Spent.NOT_ATTRIBUTED: busy - least})
    inside = min(1.0, max(0.0, times.in_collectives))
    if job.timed is not None and gpu in job.timed.partly:
        return _partly_timed(busy, least, inside, times)
    computing = max(0.0, busy - inside)
    if activity is not None:
        # Computing beside collectives is no waiting.
        computing = max(computing, min(busy, activity.sm - inside * NCCL_SMS))
    return _in_collectives(busy - computing, computing, inside, times)


def _partly_timed(busy: float, least: float, inside: float, times: GpuTime) -> Split:
    """Return the shares of a GPU with calls that nobody times: in these calls it may compute or wait."""
    known = min(inside, busy - least)
    found = _in_collectives(known, least, inside, times)
    rest = found.shares[Spent.NOT_ATTRIBUTED] + max(0.0, busy - least - known)
    return replace(found, shares={**found.shares, Spent.NOT_ATTRIBUTED: rest})


def _in_collectives(left: float, computing: float, inside: float, times: GpuTime) -> Split:
    """Divide what is left beside computing as the timed collectives divide their time."""
    scale = left / inside if inside > 0 else 0.0
    waited = min(inside, max(0.0, times.waiting))
    causes = {cause: part for cause, part in times.waits.items() if part > 0 and cause != times.gpu}
    named = sum(causes.values())
    part = scale * min(1.0, waited / named) if named else 0.0
    waits = {cause: part * share for cause, share in causes.items() if cause != ELSEWHERE}
    other = part * causes.get(ELSEWHERE, 0.0)
    waiting = scale * waited
    wire = max(0.0, left - waiting)
    beyond = 0.0 if isinstance(times.beyond, Absent) else min(wire, scale * max(0.0, times.beyond))
    local = sum(waits.values())
    unnamed = max(0.0, waiting - local - other)
    shares = {
        Spent.COMPUTING: computing, Spent.LOCAL_RANK: local, Spent.OTHER_NODE: other,
        Spent.WIRE: wire - beyond, Spent.BEYOND: beyond, Spent.NOT_ATTRIBUTED: unnamed,
    }  # fmt: skip
    return Split(shares, waits, wire if isinstance(times.beyond, Absent) else 0.0, unnamed)


def _waiting(busy: float, causes: Collection[str]) -> Split:
    if causes:
        return Split({Spent.LOCAL_RANK: busy}, {cause: busy / len(causes) for cause in causes})
    return Split({Spent.NOT_ATTRIBUTED: busy}, waiting=busy)


def _with_idle(busy: float, rest: Split) -> Split:
    return replace(rest, shares={**rest.shares, Spent.IDLE: 1.0 - busy})
