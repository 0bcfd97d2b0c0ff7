"""Which communicators of a job are its TP, PP, DP and EP groups, and how the job counts its ranks. Pure.

Nothing but membership, sizes and operations decides that. Where they do not, a group has no name.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from wirewatch.core.probe import ALLTOALL, SENDRECV
from wirewatch.core.types import value_or
from wirewatch.core.words import either
from wirewatch.jobs.running.grouping import JobGroup, RingGroup, process_key
from wirewatch.jobs.running.model import CommunicatorKey, RingProgress
from wirewatch.jobs.times import JobRank

TENSOR, PIPELINE, DATA, EXPERT = "TP", "PP", "DP", "EP"
OFTEN = 4
"""Times as often meet tensor parallel ranks as data parallel ones: in each layer, and not in each step."""
RARE = 5
"""Times as many sends as collectives has a communicator that is there for sends."""
_PAIR, _SOME = 2, 3
Rings = Mapping[str, RingProgress]


@dataclass(frozen=True, slots=True)
class RankNames:
    """How people are told of the ranks of a communicator.

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
        numbers, parallel = _numbers(ours), dict(_groups(ours, rings))
        for group in ours:
            known = {
                one.ring.rank: numbers[process]
                for one in group.rings
                if (process := process_key(one.ring)) in numbers
            }
            names[group.key] = RankNames(parallel.get(group.key, ""), known)
    return names


def all_to_all(group: RingGroup, rings: Rings) -> bool:
    """Tell whether a communicator's sends are all_to_all, in which all ranks meet: as many on each rank.

    The ends of a pipeline send less than its middle. Two ranks do not show which it is.
    """
    sends = [rings[one.ring.name].sends for one in group.rings]
    return len(sends) >= _SOME and max(sends) > 0 and max(sends) - min(sends) <= max(sends) // 50


def calls_of(ring: RingProgress) -> int:
    """How many collectives it made, sends left out."""
    return sum(count for op, count in ring.calls.items() if op != SENDRECV)


def families(groups: Iterable[RingGroup], rings: Rings) -> list[list[RingGroup]]:
    """Communicators of the same size, on as many nodes, with as many ranks here, and no process in two.

    They make as many calls, at most half of which one of them may not have made yet.
    """
    found: list[list[RingGroup]] = []
    for group in sorted(groups, key=lambda one: (-_calls(one, rings), one.key)):
        mine = next((some for some in found if _fits(group, some, rings)), None)
        if mine is None:
            found.append([group])
        else:
            mine.append(group)
    return found


def _fits(group: RingGroup, family: Sequence[RingGroup], rings: Rings) -> bool:
    first = family[0]
    alike = (group.ranks, group.nodes, len(group.rings)) == (first.ranks, first.nodes, len(first.rings))
    often = 2 * _calls(group, rings) >= _calls(first, rings)
    return alike and often and not any(_shared(group, one) for one in family)


def _numbers(groups: Sequence[RingGroup]) -> dict[Hashable, int]:
    """By process its number in the communicator that holds all of the job's ranks; empty where none does."""
    every = {process for group in groups for process in _processes(group)}
    nodes, ranks = max(group.nodes for group in groups), max(group.ranks for group in groups)
    for group in groups:
        if (group.nodes, group.ranks) == (nodes, ranks) and _processes(group) == every:
            return {process_key(one.ring): one.ring.rank for one in group.rings}
    return {}


def _groups(groups: Sequence[RingGroup], rings: Rings) -> Iterator[tuple[CommunicatorKey, str]]:
    sending = [one for one in groups if _sends(one, rings) > RARE * _calls(one, rings)]
    pairs = [one for one in sending if one.ranks == _PAIR]
    chain = any(_shared(*two) for two in combinations(pairs, 2))
    for group in groups:
        alltoall = any(ALLTOALL in rings[one.ring.name].calls for one in group.rings)
        if alltoall or (group in sending and all_to_all(group, rings)):
            yield group.key, EXPERT
        elif group in sending and (chain if group in pairs else len(group.rings) >= _SOME):
            yield group.key, PIPELINE
    used = [one for one in groups if one not in sending and _calls(one, rings)]
    inside, across = _tensor_and_data(families(used, rings), rings)
    yield from ((group.key, TENSOR) for group in inside)
    yield from ((group.key, DATA) for group in across)


def _tensor_and_data(
    found: Sequence[Sequence[RingGroup]], rings: Rings
) -> tuple[Sequence[RingGroup], Sequence[RingGroup]]:
    """The groups in each of whose layers ranks meet, and those across them with the largest messages."""
    pairs = [
        (inside, across)
        for inside in found
        for across in found
        if inside is not across and inside[0].nodes == 1 and len(inside[0].rings) > 1
        and _cross(inside, across)
        and min(_calls(one, rings) for one in inside) >= OFTEN * max(_calls(one, rings) for one in across)
        and max(_message(one, rings) for one in across) >= max(_message(one, rings) for one in inside)
    ]  # fmt: skip
    if not pairs:
        return (), ()
    return max(pairs, key=lambda two: (_calls(two[0][0], rings), _message(two[1][0], rings)))


def _cross(inside: Sequence[RingGroup], across: Sequence[RingGroup]) -> bool:
    """Tell whether each process is in one of both, and no two processes are together in one of both."""
    covered = [frozenset().union(*(_processes(one) for one in some)) for some in (inside, across)]
    apart = all(len(_processes(one) & _processes(other)) <= 1 for one in inside for other in across)
    return apart and covered[0] == covered[1]


def _shared(one: RingGroup, other: RingGroup) -> bool:
    return bool(_processes(one) & _processes(other))


def _processes(group: RingGroup) -> frozenset[Hashable]:
    return frozenset(process_key(one.ring) for one in group.rings)


def _calls(group: RingGroup, rings: Rings) -> int:
    return max(calls_of(rings[one.ring.name]) for one in group.rings)


def _sends(group: RingGroup, rings: Rings) -> int:
    return max(rings[one.ring.name].sends for one in group.rings)


def _message(group: RingGroup, rings: Rings) -> float:
    """The mean message of the operation with the largest ones."""
    grown = [rings[one.ring.name] for one in group.rings]
    means = (
        one.bytes.get(op, 0) / calls
        for one in grown
        for op, calls in one.calls.items()
        if calls and op != SENDRECV
    )
    return max(means, default=0.0)
