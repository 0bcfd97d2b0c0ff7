"""Group rings into communicators, and communicators into jobs. Pure.

Rings are joined within one identity and by NCCL's number alone, so that nobody's ring can spoil another's
communicator. Communicators of one job share processes, or an owner that this node knows.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.core.jobs import RefusedRing, Ring, RingReading, RingState
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.jobs.running.model import (
    MOST_COMMUNICATORS,
    MOST_RANKS,
    CommunicatorKey,
    JobsReading,
    RingProcess,
)
from wirewatch.jobs.running.windows import Shape
from wirewatch.jobs.shares import fair
from wirewatch.jobs.times import UNTIMED, JobRank, TimesDoubt

_UNKNOWN = RingProcess("", Absent(Why.MISSING, "its process is not known"))
TWO = 2
MANY_CALLS = 1000
"""Calls among which some are at a moment of timing, but for the first seconds of a job."""


@dataclass(frozen=True, slots=True)
class RingGroup:
    """The rings of one communicator by rank, one each where they are honest; `doubt` where they are not."""

    key: CommunicatorKey
    rings: tuple[RingReading, ...]
    ranks: int
    nodes: int
    doubt: TimesDoubt | None

    @property
    def shape(self) -> Shape:
        """Return how many ranks it has in all, and which of them are here and may be waited for."""
        return Shape(self.ranks, frozenset(one.ring.rank for one in self.rings), coarse=bool(self.source))

    @property
    def source(self) -> str:
        """Return the source of its times where that is not the tap alone."""
        return next((one.ring.source for one in self.rings if one.ring.source), "")

    @property
    def live(self) -> bool:
        """Tell whether its processes still run: it is made of live rings, or has none of them."""
        return self.rings[0].ring.state is RingState.LIVE


@dataclass(frozen=True, slots=True)
class JobGroup:
    """The communicators of one job, by key, with its name and its owners."""

    name: str
    owners: tuple[str, ...]
    uid: int
    keys: tuple[CommunicatorKey, ...]


def possible(reading: JobsReading) -> tuple[RingReading, ...]:
    """The rings that a communicator can have; a ring may hold anything. Each with its process' GPU."""
    rings = () if isinstance(reading.rings, Absent) else reading.rings.rings
    return tuple(
        replace(one, ring=replace(one.ring, gpu=gpu)) if (gpu := _gpu(one.ring, reading)) else one
        for one in rings
        if 0 <= one.ring.rank < one.ring.ranks <= MOST_RANKS
    )


def misplaced(reading: JobsReading) -> tuple[RefusedRing, ...]:
    """Return the rings that name another GPU than their process computes on: nothing of them is believed."""
    rings = () if isinstance(reading.rings, Absent) else reading.rings.rings
    told = ((one.ring.name, one.ring.misplaced(reading.around.gpus, reading.indexes)) for one in rings)
    return tuple(RefusedRing(name, Absent(Why.MALFORMED, why)) for name, why in told if why)


def ring_groups(readings: Iterable[RingReading]) -> tuple[tuple[RingGroup, ...], int]:
    """Return the communicators, live rings first, and how many more exist than are followed."""
    found = grouped(((one.ring.identity, one.ring.communicator), one) for one in readings)
    every = [_ring_group(key, rings) for key, rings in found.items()]
    every.sort(key=lambda group: (not group.live, -max(one.ring.created for one in group.rings), group.key))
    askers = {(*group.rings[0].ring.asker, place): 1 for place, group in enumerate(every)}
    shares = fair(MOST_COMMUNICATORS, askers)
    followed = tuple(group for group, asker in zip(every, askers, strict=True) if shares[asker])
    return followed, len(every) - len(followed)


def untimed(group: RingGroup) -> TimesDoubt:
    """Return why a communicator has no window of times yet."""
    rings = [one.ring for one in group.rings]
    if told := [UNTIMED[ring.untimed] for ring in rings if ring.untimed in UNTIMED]:
        return told[0]
    tapped = [ring for ring in rings if not ring.source]
    if tapped and not any(ring.on for ring in tapped):
        return TimesDoubt.OFF
    never = [
        ring for ring in tapped
        if ring.counts.enqueued >= MANY_CALLS and not (ring.counts.windows or ring.counts.captured)
    ]  # fmt: skip
    return TimesDoubt.UNKNOWN_NCCL if never else TimesDoubt.FEW


def job_groups(groups: Sequence[RingGroup], processes: Mapping[str, RingProcess]) -> tuple[JobGroup, ...]:
    """The jobs that these communicators make, in the order of their names."""
    roots: dict[Hashable, Hashable] = {}

    def root(key: Hashable) -> Hashable:
        while roots.setdefault(key, key) != key:
            roots[key] = roots[roots[key]]
            key = roots[key]
        return key

    for group in groups:
        for one in group.rings:
            roots[root(process_key(one.ring))] = root(group.key)
            owner = processes.get(one.ring.name, _UNKNOWN).owner
            if owner:
                roots[root((one.ring.identity, owner))] = root(group.key)
    jobs = grouped((root(group.key), group) for group in groups)
    return tuple(sorted((_job(found, processes) for found in jobs.values()), key=lambda job: job.name))


def job_rank(ring: Ring, reading: JobsReading) -> JobRank:
    """The rank of a ring with what this machine knows of its process and its GPU."""
    process = reading.processes.get(ring.name, _UNKNOWN)
    index = reading.indexes.get(str(ring.gpu), "")
    return JobRank(
        ring.rank, ring.gpu, index, ring.host_pid, ring.pid, ring.nccl, ring.state, process.settings,
        ring.share, ring.counts.enqueued, ring.counts.event,
    )  # fmt: skip


def settings_of_rank(rank: JobRank, reading: JobsReading) -> dict[str, str]:
    """NCCL's settings of a rank: its environment over the node's file."""
    return {**reading.conf, **value_or(rank.settings, {})}


def _ring_group(key: CommunicatorKey, rings: Sequence[RingReading]) -> RingGroup:
    """Return one ring a rank: a live ring replaces dead rings of the same rank."""
    running = [one for one in rings if one.ring.state is RingState.LIVE] or list(rings)
    running.sort(key=lambda one: (one.ring.rank, one.ring.name))
    ranks = [one.ring.rank for one in running]
    gpus = [one.ring.gpu for one in running if not isinstance(one.ring.gpu, Absent)]
    shapes = {(one.ring.ranks, one.ring.nodes) for one in running}
    size, nodes = min(shapes)
    doubt = None
    if len(set(ranks)) < len(ranks):
        doubt = TimesDoubt.TWICE
    elif len(shapes) > 1:
        doubt = TimesDoubt.UNLIKE
    elif len(set(gpus)) < len(gpus):
        doubt = TimesDoubt.SAME_GPU
    elif len(ranks) * nodes < size:
        doubt = TimesDoubt.UNSEEN
    elif len(ranks) < TWO:
        doubt = TimesDoubt.ALONE
    return RingGroup(key, tuple(running), size, nodes, doubt)


def _gpu(ring: Ring, reading: JobsReading) -> str | None:
    """The GPU of a ring that does not know it: the only one on which its process computes.

    Inspector's file of a process that cannot be seen has the name of this machine, and so this number here.
    """
    pid = value_or(ring.host_pid, ring.pid if ring.source else -1)
    return reading.around.gpus.get(pid) if isinstance(ring.gpu, Absent) else None


def process_key(ring: Ring) -> Hashable:
    """A process: by this machine's number, else by its own, its user and its GPU."""
    if isinstance(ring.host_pid, Absent):
        return ("own", ring.identity, ring.pid, str(ring.gpu))
    return ("host", ring.host_pid)


def _job(groups: Sequence[RingGroup], processes: Mapping[str, RingProcess]) -> JobGroup:
    rings = [one.ring for group in groups for one in group.rings]
    owners = sorted({processes.get(ring.name, _UNKNOWN).owner for ring in rings} - {""})
    pids = [ring.host_pid for ring in rings if not isinstance(ring.host_pid, Absent)]
    lowest = min(pids) if pids else min(ring.pid for ring in rings)
    keys = tuple(sorted(group.key for group in groups))
    return JobGroup(owners[0] if owners else f"pid:{lowest}", tuple(owners), rings[0].uid, keys)
