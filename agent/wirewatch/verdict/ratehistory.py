"""What a part usually gives: rates of accepted probes, so spread that no slow decline becomes usual soon."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from wirewatch.core.statistics import low_median, spread

Part = TypeVar("Part", bound=Hashable)

KEPT = 40
"""Values of a part."""
LEARNING = 10
"""So many first values are taken as they come; later ones are APART, so that all together span weeks."""
APART = 12 * 3600.0
"""Seconds. With KEPT: three weeks, which a slow decline must outlast to become what is usual."""
FORGOTTEN = 90 * 24 * 3600.0
"""Seconds after which a part that is not seen any more is dropped."""


@dataclass(frozen=True, slots=True)
class UsualRate:
    """A part's usual rate, the relative spread of its values, how many there are, and the lowest of them."""

    rate: float
    spread: float
    count: int
    lowest: float


@dataclass(frozen=True)
class AcceptedRates(Generic[Part]):
    """Rates of accepted probes by part, oldest first, all of one `kind`; `taken`: when the last was."""

    kind: str = ""
    values: Mapping[Part, tuple[float, ...]] = field(default_factory=dict)
    taken: Mapping[Part, float] = field(default_factory=dict)

    def of(self, part: Part, kind: str, least: int) -> UsualRate | None:
        """None while fewer than `least` values of this kind are known."""
        values = self.values.get(part, ()) if kind == self.kind else ()
        if len(values) < max(1, least):
            return None
        rate = low_median(values)
        return UsualRate(rate, spread([value / rate for value in values], 1.0), len(values), min(values))

    def learned(self, kind: str, rates: Mapping[Part, float], at: float) -> "AcceptedRates[Part]":
        """With the rates of a probe (at Unix seconds) that found nothing; another kind begins anew."""
        if not rates:
            return self
        before = self if kind == self.kind else AcceptedRates(kind)
        values, taken = dict(before.values), dict(before.taken)
        for part, rate in rates.items():
            known = values.get(part, ())
            if len(known) < LEARNING or not 0 <= at - taken[part] < APART:
                values[part] = (*known, rate)[-KEPT:]
                taken[part] = at
        kept = [part for part in values if at - taken[part] < FORGOTTEN]
        return AcceptedRates(
            kind, {part: values[part] for part in kept}, {part: taken[part] for part in kept}
        )
