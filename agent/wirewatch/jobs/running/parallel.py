"""How communicators of a job are called, and how it counts its ranks: `nccl.parallel` of rings. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wirewatch.core.probe import ALLTOALL, SENDRECV
from wirewatch.core.types import value_or
from wirewatch.core.words import either
from wirewatch.jobs.running.grouping import JobGroup, RingGroup, process_key
from wirewatch.jobs.running.model import CommunicatorKey, RingProgress
from wirewatch.jobs.times import JobRank
from wirewatch.nccl import parallel
from wirewatch.nccl.parallel import ParallelGroup

Rings = Mapping[str, RingProgress]


@dataclass(frozen=True, slots=True)
class RankNames:
    """The names of a communicator's ranks for people.

    `group`: TP, PP, DP, EP, or empty. `ranks`: the job's number of each rank, where a communicator holds all
    of the job's ranks; `only`: this is the job's only communicator.
    """

    group: str = ""
    ranks: Mapping[int, int] = field(default_factory=dict)

    def number(self, rank: JobRank) -> int:
        """The job's number of a rank; the communicator's where that is not known."""
        return self.ranks.get(rank.rank, rank.rank)

    def words(self, ranks: Sequence[JobRank]) -> str:
        """Some ranks with their GPUs: `rank 2 (GPU 2)`, `ranks 0 (GPU 2) and 1 (GPU 3) of the TP group`."""
        named = [f"{self.number(one)} ({gpu_words(one)})" for one in ranks]
        group = "" if self.ranks else f" of the {self.group} group" if self.group else " of its communicator"
        return f"rank{'s' if len(named) > 1 else ''} {either(named, 'and')}{group}"


def gpu_words(rank: JobRank) -> str:
    """`GPU 2`, or by its UUID where this machine does not have it."""
    return f"GPU {rank.index}" if rank.index else str(value_or(rank.gpu, "a GPU not known"))


def rank_names(
    jobs: Iterable[JobGroup], groups: Mapping[CommunicatorKey, RingGroup], rings: Rings
) -> dict[CommunicatorKey, RankNames]:
    """The names of all communicators of all jobs."""
    names = {}
    for job in jobs:
        ours = [groups[key] for key in job.keys]
        numbers = _numbers(ours)
        called = parallel.group_names([_used(one, rings) for one in ours])
        for group in ours:
            known = {
                one.ring.rank: numbers[process]
                for one in group.rings
                if (process := process_key(one.ring)) in numbers
            }
            names[group.key] = RankNames(called.get(group.key, ""), known)
    return names


def all_to_all(group: RingGroup, rings: Rings) -> bool:
    """Tell whether a communicator's sends are all_to_all."""
    return parallel.all_to_all([rings[one.ring.name].sends for one in group.rings])


def calls_of(ring: RingProgress) -> int:
    """Return how many collectives it made, sends left out."""
    return sum(count for op, count in ring.calls.items() if op != SENDRECV)


def families(groups: Iterable[RingGroup], rings: Rings) -> list[list[RingGroup]]:
    """Communicators that are alike: see `nccl.parallel`."""
    by_key: dict[Hashable, RingGroup] = {group.key: group for group in groups}
    found = parallel.families(_used(group, rings) for group in by_key.values())
    return [[by_key[one.key] for one in some] for some in found]


def _numbers(groups: Sequence[RingGroup]) -> dict[Hashable, int]:
    """Return by process its number in the communicator of all of the job's ranks; empty without one."""
    every = {process for group in groups for process in _processes(group)}
    nodes, ranks = max(group.nodes for group in groups), max(group.ranks for group in groups)
    for group in groups:
        if (group.nodes, group.ranks) == (nodes, ranks) and _processes(group) == every:
            return {process_key(one.ring): one.ring.rank for one in group.rings}
    return {}


def _processes(group: RingGroup) -> frozenset[Hashable]:
    return frozenset(process_key(one.ring) for one in group.rings)


def _used(group: RingGroup, rings: Rings) -> ParallelGroup:
    grown = [rings[one.ring.name] for one in group.rings]
    means = (
        one.bytes.get(op, 0) / calls
        for one in grown
        for op, calls in one.calls.items()
        if calls and op != SENDRECV
    )
    return ParallelGroup(
        group.key, _processes(group), group.ranks, group.nodes, max(map(calls_of, grown)),
        tuple(one.sends for one in grown), any(ALLTOALL in one.calls for one in grown),
        max(means, default=0.0),
    )  # fmt: skip
