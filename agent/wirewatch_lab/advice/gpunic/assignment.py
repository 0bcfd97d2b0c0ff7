"""Items into bins at the least cost, exactly: a cost of each pair, and one of a bin that grows with its load.

It is the flow of least cost, found by shortest paths, one item after the other. Costs are whole numbers of
any size, so that several aims can stand in one of them, the first in the highest digits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Bins:
    """Where each item is so far; `by_pair[item][bin]`: the cost of that pair."""

    by_pair: Sequence[Sequence[int]]
    more: Callable[[int, int], int]
    place: list[int] = field(default_factory=list)

    def add(self) -> None:
        """Put in the next item; others may move to make room."""
        item = len(self.place)
        costs, came = self._paths(item)
        end = min(
            range(len(costs)), key=lambda one: (costs[one] + self.more(one, self.place.count(one) + 1), one)
        )
        self.place.append(end)
        while (step := came[end]) is not None:
            end, moved = step
            self.place[moved], self.place[item] = self.place[item], end

    def _paths(self, item: int) -> tuple[list[int], list[tuple[int, int] | None]]:
        """The least cost of one item more in each bin, and from where which item comes to it then."""
        costs = list(self.by_pair[item])
        came: list[tuple[int, int] | None] = [None] * len(costs)
        changed = True
        while changed:
            changed = False
            for moved, at in enumerate(self.place):
                left = costs[at] - self.by_pair[moved][at]
                for to, cost in enumerate(self.by_pair[moved]):
                    if left + cost < costs[to]:
                        costs[to], came[to], changed = left + cost, (at, moved), True
        return costs, came


def spread(by_pair: Sequence[Sequence[int]], more: Callable[[int, int], int]) -> tuple[int, ...]:
    """The bin of each item, so that the sum of all costs is the least.

    Args:
        by_pair: for each item, the cost of each bin; at least one bin.
        more: what the n-th item of a bin costs beside, by bin and n from 1 on; it never falls with n.
    """
    bins = _Bins(by_pair, more)
    for _ in by_pair:
        bins.add()
    return tuple(bins.place)
