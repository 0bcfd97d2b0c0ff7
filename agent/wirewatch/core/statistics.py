"""Counters over time (differences, resets, windows, streaks), and medians."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wirewatch.core.types import Absent, Why


@dataclass(frozen=True, slots=True)
class Window:
    """Growths of one counter with the monotonic time of each, in seconds; only what a window still holds."""

    last: int | None = None
    growths: tuple[tuple[float, int], ...] = ()

    def add(self, value: int, mono: float, length: float) -> "Window":
        """The window with one more reading; `mono` and `length` in seconds, older growths are dropped."""
        grown = delta(self.last, value)
        kept = tuple(g for g in self.growths if g[0] > mono - length)
        return Window(value, (*kept, (mono, grown)) if grown else kept)

    def total(self) -> int:
        """By how much the counter grew within the window."""
        return sum(n for _, n in self.growths)


@dataclass(frozen=True, slots=True)
class Streak:
    """In how many polls in a row a fault was seen; one sample is not enough for a verdict."""

    count: int = 0

    def see(self, *, present: bool, sure: bool = True) -> "Streak":
        """The streak after one more poll; one that could not see it (not `sure`) changes nothing."""
        if not sure:
            return self
        return Streak(self.count + 1 if present else 0)


NORMAL = 1.4826
"""Standard deviations in a median absolute deviation of normal noise: 1 / 0.6745."""


def delta(before: int | None, now: int) -> int:
    """Growth of a counter; a counter that shrank was reset and has grown by what it shows since.

    Returns:
        0 for the first reading: what happened before it is not counted.
    """
    if before is None:
        return 0
    return now - before if now >= before else now


def measured(now: int | Absent, before: int | None, twin_growth: int, proof: int) -> int | Absent:
    """A counter's value, unless its twin proves that it stood still while data moved.

    `proof` is the growth of the twin, in its own unit, that cannot happen without the counter moving
    (docs/hardware: twice in 32 reads under GPM sampling the data counter stood still).
    """
    if isinstance(now, Absent) or now != before or twin_growth < proof:
        return now
    return Absent(Why.MALFORMED, f"stood still while its twin grew by {twin_growth}")


def low_median(values: Iterable[float]) -> float:
    """The middle value, of an even number the lower of both; always one of them.

    Raises:
        ValueError: no values.
    """
    return _middle(sorted(values), upper=False)


def high_median(values: Iterable[float]) -> float:
    """The middle value, of an even number the higher of both.

    Raises:
        ValueError: no values.
    """
    return _middle(sorted(values), upper=True)


def spread(values: Sequence[float], center: float) -> float:
    """Standard deviation of the noise around `center`, by the median absolute deviation; 0 for no values."""
    return NORMAL * low_median(abs(value - center) for value in values) if values else 0.0


def _middle(values: Sequence[float], *, upper: bool) -> float:
    if not values:
        raise ValueError("no median of nothing")
    return values[len(values) // 2 if upper else (len(values) - 1) // 2]
