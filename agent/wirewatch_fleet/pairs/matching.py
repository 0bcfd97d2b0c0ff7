"""Random perfect matchings: who runs with whom, so that no pair meets twice and leafs are as asked. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

Pair = tuple[str, str]
TRIES = 40
"""Swaps that are tried for a pair that should not be."""


def matching(
    names: Sequence[str], wrong: Callable[[str, str], bool], chance: Random, rested: Mapping[str, int]
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Random pairs of all names, and who rests: of an odd number the one that has rested least.

    A pair that is `wrong` is undone by swaps with others; where none helps it stays, since a member that does
    not run is the greater loss.
    """
    order = list(names)
    chance.shuffle(order)
    resting: tuple[str, ...] = ()
    if len(order) % 2:
        spared = min(order, key=lambda one: rested.get(one, 0))
        order.remove(spared)
        resting = (spared,)
    pairs = [[order[n], order[n + 1]] for n in range(0, len(order), 2)]
    for place, pair in enumerate(pairs):
        if wrong(*pair):
            _mend(pairs, place, wrong, chance)
    return tuple((a, b) for a, b in pairs), resting


def _mend(pairs: list[list[str]], place: int, wrong: Callable[[str, str], bool], chance: Random) -> None:
    """Swap the second of a wrong pair with one of another, so that fewer of both are wrong than before."""
    pair = pairs[place]
    for _ in range(TRIES):
        other = pairs[chance.randrange(len(pairs))]
        if other is pair:
            continue
        side = chance.randrange(2)
        before = 1 + wrong(*other)
        pair[1], other[side] = other[side], pair[1]
        if wrong(*pair) + wrong(*other) < before:
            if not wrong(*pair):
                return
        else:
            pair[1], other[side] = other[side], pair[1]


def inside(
    names: Sequence[str], leafs: Mapping[str, str], met: Callable[[str, str], bool], chance: Random,
    rested: Mapping[str, int],
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:  # fmt: skip
    """Pairs within each leaf; who is left over of its leaf runs with another that is."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(leafs.get(name, ""), []).append(name)
    pairs: list[Pair] = []
    over: list[str] = groups.pop("", [])
    for group in groups.values():
        made, left = matching(group, met, chance, rested)
        pairs += made
        over += left
    made, resting = matching(over, met, chance, rested)
    return (*pairs, *made), resting


def meetings(pairs: Iterable[Pair]) -> Callable[[str, str], bool]:
    """Whether two have met in one of these pairs."""
    known = {frozenset(pair) for pair in pairs}
    return lambda a, b: frozenset((a, b)) in known
