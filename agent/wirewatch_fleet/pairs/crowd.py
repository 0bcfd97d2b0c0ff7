"""Joint slowness of runs, by links that pairs of a round share or by other traffic. Pure.

Simultaneous pairs are independent only where their routes share no link. Hashing of flows onto links (ECMP)
makes some meet on a link, others in each round. Then a slow run says nothing about its ends, and a whole run
still clears them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from wirewatch.core.pairs import PartKind, Way
from wirewatch.core.statistics import grouped
from wirewatch_fleet.pairs.model import SlowPlace
from wirewatch_fleet.pairs.observations import ALL_RAILS, Observation

End = tuple[str, Way]
SLOW = 0.1
"""Least loss, as a logarithm, that surely counts as slowed by others: sharing a link halves the rate."""
SURE = 3.0
"""Standard deviations of healthy runs from which on half that loss counts too."""
OFTEN, LEAST = 0.1, 3
"""A kind is crowded from this share and number of slow runs on, at ends that are not always slow."""
ALWAYS = 0.75
"""An end that is slow in this share of its runs may itself be slow."""
PAIR = 2
OUTSIDE = 0.5
"""How much less often outside runs are slow than a group's own, if the group itself is slow."""


class Crowd(NamedTuple):
    """Runs of a kind on a rail whose losses are not their ends' own. `across`: None for leafs not known."""

    across: bool | None
    rail: str


def slow_from(spread: float) -> float:
    """Return the least loss that counts as slowed by others, given the spread of healthy runs."""
    return min(SLOW, max(SLOW / 2, SURE * spread))


def crowds(
    every: Sequence[Observation], ends: Mapping[End, Sequence[Observation]], slow: float
) -> frozenset[Crowd]:
    """Return crowded kinds of runs, and explain their slow runs by that; runs alone are never crowded."""
    shared = [one for one in every if not one.alone]
    kinds = grouped((Crowd(one.across, rail), one) for one in shared for rail in one.losses)
    always = {
        (end, rail) for end, some in ends.items() for rail in {kind.rail for kind in kinds}
        if _slow_share(some, rail, slow) >= ALWAYS
    }  # fmt: skip
    found = frozenset(kind for kind, some in kinds.items() if _crowded(some, kind.rail, always, slow))
    for one in shared if found else ():
        for rail, loss in one.losses.items():
            if loss > slow and Crowd(one.across, rail) in found:
                one.mask(max(loss, one.explained(rail)), rail)
    return found


def _crowded(
    some: Iterable[Observation], rail: str, always: Collection[tuple[End, str]], slow: float
) -> bool:
    free = [
        one.losses[rail] > slow for one in some
        if one.explained(rail) <= 0 and not any((end, rail) in always for end in one.ends)
    ]  # fmt: skip
    return sum(free) >= max(LEAST, OFTEN * len(free))


def _slow_share(some: Iterable[Observation], rail: str, limit: float) -> float:
    """Return the share of runs that lose more on a rail, or over all rails; 0 for none."""
    losses = [one.losses[rail] if rail else one.loss for one in some if rail in {ALL_RAILS, *one.losses}]
    return sum(loss > limit for loss in losses) / len(losses) if losses else 0.0


def unseen(
    ends: Mapping[End, Sequence[Observation]], found: frozenset[Crowd], slow: float
) -> list[tuple[str, int]]:
    """Return members without any run alone or whole run, on a rail and in a direction.

    Each comes with its number of slow runs there. The most often slow come first.
    """
    most: dict[str, int] = {}
    for (name, _), some in ends.items():
        for rail in {one.rail for one in found}:
            mine = [one for one in some if rail in one.losses]
            hidden = [one for one in mine if Crowd(one.across, rail) in found and one.losses[rail] > slow]
            if mine and len(hidden) == len(mine) and not any(one.alone for one in mine):
                most[name] = max(most.get(name, 0), len(hidden))
    return sorted(most.items(), key=lambda one: (-one[1], one[0]))


def stands_out(
    place: SlowPlace, some: Sequence[Observation], every: Sequence[Observation], limit: float,
    leafs: Mapping[str, str], doubtful: Collection[str],
) -> bool:  # fmt: skip
    """Return whether runs of a rail or leaf are slow far more often than similar runs elsewhere.

    Runs of other `doubtful` leafs do not count as similar. Where all leafs are doubtful, they count. With
    only two leafs there are no others: a leaf stands out unless its runs alone are whole.
    """
    inside = OUTSIDE * _slow_share(some, place.rail, limit)
    if place.kind is PartKind.RAIL:
        others = [loss > limit for one in some for rail, loss in one.losses.items() if rail != place.rail]
        return sum(others) <= inside * len(others)
    if len({*leafs.values()}) <= PAIR:
        quiet = [one for one in some if one.alone]
        return not quiet or _slow_share(quiet, place.rail, limit) > OUTSIDE
    across = [one for one in every if one.across and one.explained(place.rail) <= 0]
    for but in ({place.name, *doubtful}, {place.name}):
        apart = [one for one in across if not but & {leafs[one.sender], leafs[one.receiver]}]
        if apart:
            return _slow_share(apart, place.rail, limit) <= min(inside, OFTEN)
    return False
