"""Find the TP, PP, DP and EP groups among the communicators of a job. Pure.

Membership, sizes and operations alone decide. Where they do not, a group has no name.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

TENSOR, PIPELINE, DATA, EXPERT = "TP", "PP", "DP", "EP"
OFTEN = 4
"""Times as often tensor parallel ranks meet as data parallel ranks: in each layer, and not in each step."""
RARE = 5
"""Times as many sends as collectives has a communicator that is there for sends."""
_PAIR, _SOME = 2, 3


@dataclass(frozen=True, slots=True)
class ParallelGroup:
    """A communicator of `ranks` on so many `nodes`, with the `processes` of it that are known.

    `calls`: collectives of the rank that made most, sends left out. `sends`: of each known rank. `alltoall`:
    whether it made that collective. `message`: the mean bytes of the operation with the largest messages.
    """

    key: Hashable
    processes: frozenset[Hashable]
    ranks: int
    nodes: int
    calls: int
    sends: tuple[int, ...]
    alltoall: bool
    message: float

    @property
    def sending(self) -> bool:
        """Tell whether it is there for sends."""
        return max(self.sends) > RARE * self.calls


def all_to_all(sends: Sequence[int]) -> bool:
    """Tell whether a communicator's sends are all_to_all, in which all ranks meet: as many on each rank.

    The ends of a pipeline send less than its middle. Two ranks do not show which it is.
    """
    return len(sends) >= _SOME and max(sends) > 0 and max(sends) - min(sends) <= max(sends) // 50


def group_names(groups: Sequence[ParallelGroup]) -> Mapping[Hashable, str]:
    """Return TP, PP, DP or EP by key; a communicator of which too little is known has none."""
    return dict(_named(groups))


def families(groups: Iterable[ParallelGroup]) -> list[list[ParallelGroup]]:
    """Group communicators of equal size, equal node count and equal ranks here, with no process in two.

    They make equally many calls; a communicator may still lack at most half of them.
    """
    found: list[list[ParallelGroup]] = []
    for group in sorted(groups, key=lambda one: (-one.calls, one.key)):
        mine = next((some for some in found if _fits(group, some)), None)
        if mine is None:
            found.append([group])
        else:
            mine.append(group)
    return found


def _fits(group: ParallelGroup, family: Sequence[ParallelGroup]) -> bool:
    first = family[0]
    shapes = [(one.ranks, one.nodes, len(one.sends)) for one in (group, first)]
    often = 2 * group.calls >= first.calls
    return shapes[0] == shapes[1] and often and not any(group.processes & one.processes for one in family)


def _named(groups: Sequence[ParallelGroup]) -> Iterator[tuple[Hashable, str]]:
    sending = [one for one in groups if one.sending]
    pairs = [one for one in sending if one.ranks == _PAIR]
    chain = any(one.processes & other.processes for one, other in combinations(pairs, 2))
    for group in groups:
        if group.alltoall or (group.sending and all_to_all(group.sends)):
            yield group.key, EXPERT
        elif group.sending and (chain if group in pairs else len(group.sends) >= _SOME):
            yield group.key, PIPELINE
    used = [one for one in groups if one.calls and not (one.sending or one.alltoall)]
    inside, across = _tensor_and_data(families(used))
    yield from ((group.key, TENSOR) for group in inside)
    yield from ((group.key, DATA) for group in across)


def _tensor_and_data(
    found: Sequence[Sequence[ParallelGroup]],
) -> tuple[Sequence[ParallelGroup], Sequence[ParallelGroup]]:
    """The groups in each of whose layers ranks meet, and those across them with the largest messages."""
    pairs = [
        (inside, across)
        for inside in found
        for across in found
        if inside is not across and inside[0].nodes == 1 and len(inside[0].sends) > 1
        and _cross(inside, across)
        and min(one.calls for one in inside) >= OFTEN * max(one.calls for one in across)
        and max(one.message for one in across) >= max(one.message for one in inside)
    ]  # fmt: skip
    if not pairs:
        return (), ()
    return max(pairs, key=lambda two: (two[0][0].calls, two[1][0].message))


def _cross(inside: Sequence[ParallelGroup], across: Sequence[ParallelGroup]) -> bool:
    """Tell whether both cover the same processes, and no two processes share a group in both."""
    covered = [frozenset().union(*(one.processes for one in some)) for some in (inside, across)]
    apart = all(len(one.processes & other.processes) <= 1 for one in inside for other in across)
    return apart and covered[0] == covered[1]
