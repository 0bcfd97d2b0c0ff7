"""Two witnesses of the same thing over several rounds, compared by their medians."""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Compared:
    """Medians; `spread` is how far our values lie apart, as a part of their median."""

    theirs: float
    ours: float
    spread: float

    @property
    def off(self) -> float:
        """By how much of theirs ours is more."""
        return self.ours / self.theirs - 1 if self.theirs else float("inf")


def compare(theirs: Mapping[K, Sequence[float]], ours: Mapping[K, Sequence[float]]) -> dict[K, Compared]:
    """What both have given, in their order."""
    found = {}
    for key, values in theirs.items():
        mine = ours.get(key, ())
        if values and mine:
            middle = statistics.median(mine)
            apart = (max(mine) - min(mine)) / middle if middle else 0.0
            found[key] = Compared(statistics.median(values), middle, apart)
    return found


def farthest(compared: Mapping[K, Compared]) -> tuple[K, float] | None:
    """Where the two are farthest apart, and by how much; None when there is nothing to compare."""
    if not compared:
        return None
    key = max(compared, key=lambda name: abs(compared[name].off))
    return key, compared[key].off


def percent(part: float) -> str:
    """With its sign; `-` where nothing was there to compare with, as a busbw that is printed as 0.00."""
    return f"{100 * part:+.2f} %" if math.isfinite(part) else "-"
