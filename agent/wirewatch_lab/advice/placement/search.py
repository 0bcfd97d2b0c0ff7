"""Search for the cheapest assignment of groups to stages and replicas. Pure.

Groups of one source (an NVLink domain) are alike. Tiles of some replicas and stages go into the narrowest
units that fit. The search then improves the cheapest tiling by exchanging two groups, as long as the cost
falls. With few groups in few domains it tries all ways. So neither stages nor replicas have priority.
proof/lab/placements.md shows how near the optimum it comes.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations, combinations_with_replacement, islice, product

from wirewatch.core.statistics import grouped
from wirewatch_lab.advice.placement.space import Nesting, bundles

Grid = list[list[int]]
"""The source of each group, by replica and stage."""
Price = Callable[[Grid], tuple[float, float]]
"""Returns the cost of a grid, and the sum of the costs of all its parts."""
MOST_GROUPS = 64
"""Most groups for which exchanges are tried."""
MOST_PRICED = 400_000
"""Most groups priced in one search, in all tilings and exchanges; a second or two."""
STARTS = 4
"""Tilings that are improved."""
SOURCES = 8
"""Sources to which a group may move."""
MOST_REPLICAS, MOST_STEPS = 20_000, 400_000
"""Most ways to place a replica in a full search, and most steps of the full search."""


@dataclass(frozen=True, slots=True)
class GroupSources:
    """Sources of groups, such as domains. `room`: groups in each; `paths`: the units around it.

    `spare`: GPUs that no group takes.
    """

    room: Sequence[int]
    paths: Sequence[Nesting]
    spare: Sequence[int] = ()


def closest(sources: GroupSources, replicas: int, stages: int) -> Grid:
    """Return the grid with the stages of each replica in the narrowest units."""
    return _tiled(sources, replicas, stages, (1, stages), (True, True))


def cheapest(sources: GroupSources, replicas: int, stages: int, price: Price) -> Grid:
    """Return the cheapest grid found; the closest grid where nothing is cheaper."""
    found = [closest(sources, replicas, stages)]
    most = max(STARTS, MOST_PRICED // 10 // (replicas * stages))
    for tile in islice(_tilings(sources, replicas, stages), most):
        if tile not in found:
            found.append(tile)
    costs = [price(one) for one in found]
    order = sorted(range(len(found)), key=lambda one: costs[one])
    if replicas * stages > MOST_GROUPS or math.isinf(costs[order[0]][0]):
        return found[order[0]]
    better = [bettered(sources.room, found[one], price) for one in order[:STARTS]]
    best = min(range(len(better)), key=lambda one: better[one][1])
    return better[best][0] if _less(better[best][1], costs[0]) else found[0]


def bettered(room: Sequence[int], grid: Grid, price: Price) -> tuple[Grid, tuple[float, float]]:
    """Return the grid and its cost after all helpful exchanges of two groups, or with a spare group."""
    grid = [list(one) for one in grid]
    cells = [(r, s) for r, one in enumerate(grid) for s in range(len(one))]
    cost, left = price(grid), MOST_PRICED // len(cells) // STARTS
    helped = True
    while helped and left > 0:
        helped = False
        for change in _changes(room, grid, cells):
            before = [grid[r][s] for (r, s), _ in change]
            for (r, s), source in change:
                grid[r][s] = source
            now, left = price(grid), left - 1
            if _less(now, cost):
                cost, helped = now, True
            else:
                for ((r, s), _), source in zip(change, before, strict=True):
                    grid[r][s] = source
            if helped or left <= 0:
                break
    return grid, cost


def _less(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether it costs less, by more than the rounding of sums."""
    (first, all_), (than, together) = one, other
    return first < than * (1 - 1e-9) or (first <= than * (1 + 1e-9) and all_ < together * (1 - 1e-9))


Cell = tuple[int, int]


def _changes(room: Sequence[int], grid: Grid, cells: Sequence[Cell]) -> Iterator[list[tuple[Cell, int]]]:
    """Yield exchanges of two groups, moves to a source with room, and exchanges of whole sources."""
    for (r, s), (q, t) in combinations(cells, 2):
        if grid[r][s] != grid[q][t]:
            yield [((r, s), grid[q][t]), ((q, t), grid[r][s])]
    for cell in cells:
        used = Counter(grid[r][s] for r, s in cells)
        for source in _near(room, used):
            yield [(cell, source)]
    for one in sorted({grid[r][s] for r, s in cells}):
        by_source = grouped((grid[r][s], (r, s)) for r, s in cells)
        ours = by_source.get(one, [])
        for source in {*_near(room, Counter({n: len(of) for n, of in by_source.items()})), *by_source} - {
            one
        }:
            theirs = by_source.get(source, [])
            if room[source] >= len(ours) and room[one] >= len(theirs):
                yield [*((cell, source) for cell in ours), *((cell, one) for cell in theirs)]


def _near(room: Sequence[int], used: Counter[int]) -> list[int]:
    """Return sources with a spare group: used sources first, then the largest."""
    free = (source for source, groups in enumerate(room) if groups > used[source])
    return nsmallest(SOURCES, free, key=lambda one: (one not in used, -room[one]))


def _tilings(sources: GroupSources, replicas: int, stages: int) -> Iterator[Grid]:
    """Yield grids of tiles of each size, from the widest over all replicas; each in four layouts."""
    sizes = [(a, b) for a in _divisors(replicas) for b in _divisors(stages)]
    filled = set(sources.room)
    # First those that fill a domain, then all replicas of a stage, then the others.
    sizes.sort(key=lambda size: (size[0] * size[1] not in filled, size[0] < replicas, -size[0] * size[1]))
    for tile in sizes:
        for ways in ((False, False), (True, True), (False, True), (True, False)):
            yield _tiled(sources, replicas, stages, tile, ways)


def _tiled(
    sources: GroupSources, replicas: int, stages: int, tile: tuple[int, int], ways: tuple[bool, bool]
) -> Grid:
    """Return a grid of such tiles. `ways`: whether stages come first in a tile, and among tiles."""
    rows, columns = replicas // tile[0], stages // tile[1]
    found = bundles(sources.room, sources.paths, tile[0] * tile[1], rows * columns, spare=sources.spare)
    grid = [[0] * stages for _ in range(replicas)]
    for number, one in enumerate(found):
        row, column = divmod(number, columns) if ways[1] else divmod(number, rows)[::-1]
        for place, source in enumerate(leaf for leaf, groups in one.parts for _ in range(groups)):
            r, s = divmod(place, tile[1]) if ways[0] else divmod(place, tile[0])[::-1]
            grid[row * tile[0] + r][column * tile[1] + s] = source
    return grid


def _divisors(number: int) -> list[int]:
    return [one for one in range(number, 0, -1) if number % one == 0]


def least(
    takes: Sequence[Sequence[int]], free: Sequence[int], replicas: int, stages: int,
    of_replica: Callable[[Sequence[int]], float], of_stage: Callable[[Sequence[int]], float], below: float,
) -> Grid | None:  # fmt: skip
    """Return the cheapest grid of all, by the ways to place a group.

    Returns None where no grid costs less than `below`, or where there are too many ways to try.

    `takes`: GPUs of each domain that a way takes, out of the `free` GPUs. `of_replica`, `of_stage`: costs;
    the greatest of each kind add up.
    """
    every = list(islice(_fitting(takes, free, stages), MOST_REPLICAS + 1))
    if len(every) > MOST_REPLICAS:
        return None
    priced = sorted(one for one in ((of_replica(ways), ways) for ways in every) if one[0] < below)
    sums = [[sum(n) for n in zip(*(takes[way] for way in one), strict=True)] for _, one in priced]
    best, found, steps = below * (1 - 1e-9), None, 0
    lowest = _lowest(takes, free, replicas, of_stage)

    def deal(first: int, left: Sequence[int], chosen: list[Sequence[int]], bound: float) -> None:
        nonlocal best, found, steps
        if len(chosen) == replicas:
            cost = priced[first][0] + max(map(of_stage, zip(*chosen, strict=True)))
            if cost < best:
                best, found = cost, [list(one) for one in chosen]
            return
        for number in range(first, len(priced)):
            steps += 1
            if priced[number][0] + bound >= best or steps > MOST_STEPS:
                return
            rest = [n - taken for n, taken in zip(left, sums[number], strict=True)]
            if min(rest) >= 0:
                more = [*chosen, priced[number][1]]
                deal(number, rest, more, _bound(lowest, more))

    deal(0, free, [], lowest.get((), 0.0))
    return found


Taken = tuple[tuple[int, int], ...]
"""Ways, with how many replicas take each, in a stage."""


def _lowest(
    takes: Sequence[Sequence[int]], free: Sequence[int], replicas: int,
    of_stage: Callable[[Sequence[int]], float],
) -> dict[Taken, float]:  # fmt: skip
    """Return the least cost of a stage with some replicas placed; empty where there are too many ways."""
    stages = list(islice(combinations_with_replacement(range(len(takes)), replicas), MOST_REPLICAS + 1))
    lowest: dict[Taken, float] = {}
    for stage in stages if len(stages) <= MOST_REPLICAS else ():
        if any(
            sum(of) > n for of, n in zip(zip(*(takes[way] for way in stage), strict=True), free, strict=True)
        ):
            continue
        cost, counts = of_stage(stage), sorted(Counter(stage).items())
        for part in product(*(range(n + 1) for _, n in counts)):
            some = tuple((way, n) for (way, _), n in zip(counts, part, strict=True) if n)
            lowest[some] = min(cost, lowest.get(some, math.inf))
    return lowest


def _bound(lowest: dict[Taken, float], chosen: Sequence[Sequence[int]]) -> float:
    """Return the least final cost of the stages of so many replicas; infinite where they do not fit."""
    stages = (tuple(sorted(Counter(stage).items())) for stage in zip(*chosen, strict=True))
    return max((lowest.get(stage, math.inf) for stage in stages), default=0.0) if lowest else 0.0


def _fitting(takes: Sequence[Sequence[int]], free: Sequence[int], stages: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways of so many groups that fit."""
    if not stages:
        yield ()
        return
    for way, taken in enumerate(takes):
        left = [n - gpus for n, gpus in zip(free, taken, strict=True)]
        if min(left) >= 0:
            yield from ((way, *rest) for rest in _fitting(takes, left, stages - 1))
