"""Bundles of equal size in a hierarchy of units: as narrow as any arrangement can be, in few units. Pure.

A bundle takes `size` pieces: a TP group its GPUs, a replica its TP groups. Units of one level lie inside
units of the next (islands in nodes, nodes in leafs). However bundles are arranged, a unit with c pieces holds
at most c // size of them; filling level by level from the narrowest reaches that bound at every level at
once, because a bundle inside a unit takes `size` pieces from each unit around it and so one from each bound.
So for each level no arrangement has more bundles inside single units of it (ADR 0045). Into which of several
equal units they go: the smallest that holds all that is left, else the largest first; ties by what is lost,
then by order.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Nesting = tuple[int, ...]
"""The units that a leaf lies in, the narrowest (itself) first and the one around all of them last."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """`level`: that of the narrowest unit around it. `parts`: leaves with the number of pieces from each."""

    level: int
    parts: tuple[tuple[int, int], ...]


def most(capacity: Sequence[int], paths: Sequence[Nesting], size: int) -> tuple[int, ...]:
    """For each level, how many bundles lie inside single units of it at most."""
    if not paths:
        return ()
    tree = _Tree(capacity, paths)
    return tuple(sum(amount // size for amount in level.values()) for level in tree.left)


def bundles(
    capacity: Sequence[int],
    paths: Sequence[Nesting],
    size: int,
    count: int,
    widest: int | None = None,
    spare: Sequence[int] = (),
) -> tuple[Bundle, ...]:
    """So many bundles, or as many as there can be if they are fewer.

    Args:
        capacity: pieces of each leaf.
        paths: of each leaf, all of one length, with one unit around all of them.
        size: pieces of a bundle.
        count: how many bundles.
        widest: level that no bundle goes beyond; the last by default.
        spare: what each leaf has beside its pieces, which is lost with them; of equal units that with the
            least is taken.
    """
    if not paths:
        return ()
    tree = _Tree(capacity, paths, spare)
    found: list[Bundle] = []
    for level in range(1 + (len(paths[0]) - 1 if widest is None else widest)):
        for unit, number in tree.shares(level, size, count - len(found)):
            found += [Bundle(level, tree.carve(level, unit, size)) for _ in range(number)]
        if len(found) == count:
            break
    return tuple(sorted(found, key=lambda one: one.parts[0]))


class _Tree:
    """What is left in each unit, while bundles are taken out of it."""

    def __init__(self, capacity: Sequence[int], paths: Sequence[Nesting], spare: Sequence[int] = ()) -> None:
        self._paths = paths
        self._top = len(paths[0]) - 1
        self._children: list[dict[int, dict[int, None]]] = [{} for _ in paths[0]]
        self.left: list[dict[int, int]] = [{} for _ in paths[0]]
        self._spare: list[dict[int, int]] = [{} for _ in paths[0]]
        for pieces, lost, path in zip(capacity, spare or [0] * len(paths), paths, strict=True):
            for level, unit in enumerate(path):
                self.left[level][unit] = self.left[level].get(unit, 0) + pieces
                self._spare[level][unit] = self._spare[level].get(unit, 0) + lost
            for level in range(1, len(path)):
                self._children[level].setdefault(path[level], {})[path[level - 1]] = None

    def shares(self, level: int, size: int, count: int) -> list[tuple[int, int]]:
        """Units of a level with the number of bundles that each of them takes, `count` in all at most."""
        fitting = {unit: amount // size for unit, amount in self.left[level].items() if amount >= size}
        if sum(fitting.values()) <= count:
            return list(fitting.items())
        amounts: list[dict[int, int]] = [{} for _ in self.left]
        amounts[level] = fitting
        for above in range(level + 1, self._top + 1):
            for unit, below in self._children[above].items():
                amounts[above][unit] = sum(amounts[above - 1].get(child, 0) for child in below)
        (root,) = amounts[self._top]
        return list(self._take(self._top, root, count, amounts, level))

    def carve(self, level: int, unit: int, size: int) -> tuple[tuple[int, int], ...]:
        """Take a bundle out of a unit."""
        parts = list(self._take(level, unit, size, self.left, 0))
        for leaf, pieces in parts:
            for above, around in enumerate(self._paths[leaf]):
                self.left[above][around] -= pieces
        # From the widest unit inwards, so that neighbours in a bundle share as narrow a unit as they can.
        return tuple(sorted(parts, key=lambda part: self._paths[part[0]][::-1]))

    def _take(
        self, level: int, unit: int, count: int, amounts: Sequence[dict[int, int]], floor: int
    ) -> Iterator[tuple[int, int]]:
        """Units of the level `floor` with what is taken from each."""
        if level == floor:
            yield unit, count
            return
        below, spare = amounts[level - 1], self._spare[level - 1]
        children = sorted(
            (child for child in self._children[level][unit] if below.get(child)),
            key=lambda child: (below[child], spare[child]),
        )
        sizes = [below[child] for child in children]
        while count:
            place = bisect_left(sizes, count)
            if place == len(sizes):
                place = bisect_left(sizes, sizes[-1])
            taken = min(count, sizes.pop(place))
            yield from self._take(level - 1, children.pop(place), taken, amounts, floor)
            count -= taken
