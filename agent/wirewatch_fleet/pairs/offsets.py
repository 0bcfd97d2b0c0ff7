"""What healthy members differ by for good, so that a partner's own pace is not laid on the other. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.pairs import Way
from wirewatch_fleet.pairs.observations import Observation
from wirewatch_fleet.pairs.spread import HealthySpread

CLIP = 2.5
"""Standard deviations at which a loss is cut, since a slow partner is not the member's own pace."""
End = tuple[str, Way]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Sums of cut losses, and how many, of each end of the observations that nothing named explains.

    `most`: where a loss is cut, to both sides.
    """

    sums: Mapping[End, tuple[float, int]]
    between: float
    noise: float
    most: float

    def without(self, end: End, one: Observation) -> float:
        """A member's own loss by all its runs but this one, drawn towards 0 as far as so few can be wrong."""
        total, count = self.sums.get(end, (0.0, 0))
        if count and one.explained() <= 0:
            total, count = total - _cut(one.loss, self.most), count - 1
        if not count:
            return 0.0
        known = count * self.between**2
        return total / count * known / (known + self.noise**2)


def set_paces(every: Sequence[Observation], spread: HealthySpread) -> None:
    """Fill the paces of both ends; `spread`: of members whose partners' own paces are not taken out."""
    known = _offsets(every, spread)
    for one in every:
        a, b = one.ends
        one.paces = (known.without(a, one), known.without(b, one))


def _offsets(every: Iterable[Observation], spread: HealthySpread) -> Offsets:
    most = CLIP * math.hypot(spread.between, spread.within)
    sums: dict[End, tuple[float, int]] = {}
    for one in every:
        if one.explained() > 0:
            continue
        cut = _cut(one.loss, most)
        for end in one.ends:
            total, count = sums.get(end, (0.0, 0))
            sums[end] = (total + cut, count + 1)
    return Offsets(sums, spread.between, spread.within, most)


def _cut(loss: float, most: float) -> float:
    return max(-most, min(most, loss))
