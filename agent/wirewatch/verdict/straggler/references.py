"""What each GPU and pair gave while all was well: its own accepted history, by which it is judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.core.statistics import low_median, spread
from wirewatch.verdict.straggler.signals import Signals, Unit

KEPT = 40
"""Values of a unit."""
LEARNING = 10
"""Values that are taken as they come; later ones are APART, so that all together look far back."""
APART = 12 * 3600.0
"""Seconds. With KEPT: three weeks, which a slow decline must outlast to become what is usual."""

FORGOTTEN = 90 * 24 * 3600.0
"""Seconds after which a unit that is not seen any more is dropped."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A unit's usual rate, the relative spread of its values, and how many there are."""

    rate: float
    spread: float
    count: int


@dataclass(frozen=True, slots=True)
class References:
    """Rates of accepted probes by unit, oldest first, all of one `kind`; `at`: when the last was taken."""

    kind: str = ""
    values: Mapping[Unit, tuple[float, ...]] = field(default_factory=dict)
    taken: Mapping[Unit, float] = field(default_factory=dict)

    def of(self, unit: Unit, kind: str, least: int) -> Reference | None:
        """None while fewer than `least` values of this kind are known."""
        values = self.values.get(unit, ()) if kind == self.kind else ()
        if len(values) < max(1, least):
            return None
        rate = low_median(values)
        return Reference(rate, spread([value / rate for value in values], 1.0), len(values))


def learn(references: References, told: Signals, at: float) -> References:
    """The references after a probe (at Unix seconds) that found nothing; another kind begins them anew."""
    if not told.rates:
        return references
    if told.kind != references.kind:
        references = References(told.kind)
    values, taken = dict(references.values), dict(references.taken)
    for unit, rate in told.rates.items():
        known = values.get(unit, ())
        if len(known) < LEARNING or not 0 <= at - taken[unit] < APART:
            values[unit] = (*known, rate)[-KEPT:]
            taken[unit] = at
    kept = [unit for unit in values if at - taken[unit] < FORGOTTEN]
    return References(told.kind, {unit: values[unit] for unit in kept}, {unit: taken[unit] for unit in kept})
