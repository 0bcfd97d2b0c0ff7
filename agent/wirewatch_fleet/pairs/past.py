"""A whole fleet beside its own past: slow all alike, which no pair shows beside the others. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from wirewatch.core.pairs import Measure
from wirewatch.core.statistics import spread
from wirewatch_fleet.pairs.model import PairLimits
from wirewatch_fleet.pairs.naming import TypicalRate

FEW = 3
"""Earlier results that show by how much they differ; with fewer, twice the least loss counts."""
DEVIATIONS = 4.0


@dataclass(frozen=True, slots=True)
class AlikeLoss:
    """All runs of a kind are slower than they were: by which share, than which rate in bytes per second.

    `results`: how many earlier ones have that rate, of which it is the median.
    """

    measure: Measure
    across: bool | None
    loss: float
    past: float
    results: int


def alike(
    now: Sequence[TypicalRate], earlier: Sequence[Sequence[TypicalRate]], limits: PairLimits
) -> tuple[AlikeLoss, ...]:
    """Kinds of runs that are slower than in the earlier results by more than those differ from each other."""
    return tuple(found for one in now if (found := _beside(one, earlier, limits)) is not None)


def _beside(
    one: TypicalRate, earlier: Sequence[Sequence[TypicalRate]], limits: PairLimits
) -> AlikeLoss | None:
    rates = [
        other.rate for some in earlier for other in some
        if (other.measure, other.across) == (one.measure, one.across) and other.rate > 0
    ]  # fmt: skip
    if not rates:
        return None
    usual = median(rates)
    loss = math.log(usual / one.rate)
    least = -math.log1p(-limits.least)
    differ = spread([math.log(rate / usual) for rate in rates], 0.0)
    if loss < (2 * least if len(rates) < FEW else max(least, DEVIATIONS * differ)):
        return None
    return AlikeLoss(one.measure, one.across, -math.expm1(-loss), usual, len(rates))
