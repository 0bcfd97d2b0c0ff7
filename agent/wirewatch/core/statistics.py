"""Counters over time (differences, resets, windows, streaks), medians, and usual rates."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Generic, NamedTuple, TypeVar

from wirewatch.core.types import Absent, Why

Part = TypeVar("Part", bound=Hashable)
V = TypeVar("V")


class Growth(NamedTuple):
    """The growth of a counter between two of its readings, in monotonic seconds."""

    start: float
    end: float
    grown: int


@dataclass(frozen=True, slots=True)
class Window:
    """Growths of one counter within a window. `mono`: its last reading, in seconds.

    The time of an event between two readings is not known. A growth whose readings were further apart than
    the window counts with the part that lies in it, as if it were spread evenly.
    """

    last: int | None = None
    growths: tuple[Growth, ...] = ()
    mono: float = 0.0

    def add(self, value: int, mono: float, length: float) -> "Window":
        """The window with one more reading; `mono` and `length` in seconds, older growths are dropped."""
        grown = delta(self.last, value)
        kept = tuple(g for g in self.growths if g.end > mono - length)
        return Window(value, (*kept, Growth(self.mono, mono, grown)) if grown else kept, mono)

    def total(self) -> int:
        """Return the growth over all that the window holds, which may have begun before it."""
        return sum(growth.grown for growth in self.growths)

    def within(self, length: float) -> float:
        """Return the growth in the last `length` seconds before the last reading."""
        return round(sum(_share(growth, self.mono - length) for growth in self.growths), 6)

    def seconds(self, length: float) -> float:
        """Return the seconds that `total` covers: `length`, or more where a reading came later."""
        gaps = [self.mono - g.start for g in self.growths if g.end - g.start > length]
        return max(gaps, default=length)

    def words(self, length: float, what: str = "", when: str = "") -> str:
        """Return `12 in 60 s`, after a gap `600 in 6 h`; `what` is counted, `when` names the length."""
        seconds = self.seconds(length)
        if seconds > length:
            return f"{self.total()}{what} in {lasting(seconds)}"
        return f"{self.within(length):.0f}{what} {when or f'in {length:g} s'}"


@dataclass(frozen=True, slots=True)
class Streak:
    """The number of polls in a row that saw a fault; one sample is not enough for a verdict."""

    count: int = 0

    def see(self, *, present: bool, sure: bool = True) -> "Streak":
        """Return the streak after one more poll; a poll that is not `sure` changes nothing."""
        if not sure:
            return self
        return Streak(self.count + 1 if present else 0)


def streaks(before: Mapping[Part, Streak], sure: Mapping[Part, bool]) -> dict[Part, Streak]:
    """Return the streaks of all faults that show; `sure`: whether this poll itself saw it."""
    return {fault: before.get(fault, Streak()).see(present=True, sure=seen) for fault, seen in sure.items()}


DAY = 86400.0
_UNITS = ((DAY, "days"), (3600.0, "h"), (60.0, "min"))
GRACE_WINDOW = DAY
"""Seconds after which used grace is given again."""


@dataclass(frozen=True, slots=True)
class Grace:
    """Stretches of starting, in monotonic seconds; `up`: when a start last came to its end."""

    stretches: tuple[tuple[float, float], ...] = ()
    waiting: bool = False
    up: float = -inf

    def see(self, mono: float, *, waiting: bool, up: bool | None = None) -> "Grace":
        """Return the grace after one more poll; between two polls the state of the first holds.

        `up`: whether it runs now; None: it runs when it does not wait.
        """
        if not (waiting or self.stretches):
            return self
        known = list(self.stretches)
        if self.waiting:
            known[-1] = (known[-1][0], mono)
        elif waiting:
            known.append((mono, mono))
        ended = not waiting if up is None else up
        kept = tuple(s for s in known if s[1] > mono - GRACE_WINDOW)
        return Grace(kept, waiting, mono if ended else self.up)

    def lasts(self, seconds: float) -> bool:
        """Return whether it is starting, for less than so many seconds of this start."""
        return self.waiting and self._spent(self.up) < seconds

    def excuses(self, seconds: float) -> bool:
        """Return whether it is starting, for less than so many seconds of this day."""
        return self.waiting and self._spent(-inf) < seconds

    def _spent(self, since: float) -> float:
        return sum(end - begin for begin, end in self.stretches if begin >= since)


NORMAL = 1.4826
"""Standard deviations in a median absolute deviation of normal noise: 1 / 0.6745."""
KEPT = 40
"""Values kept of a part."""
LEARNING = 10
"""The first values are taken as they come; later values are APART, so that all together span weeks."""
APART = 12 * 3600.0
"""Seconds. With KEPT: three weeks, which a slow decline must outlast to become usual."""
FORGOTTEN = 90 * 24 * 3600.0
"""Seconds after which a part that is no longer seen is dropped."""


@dataclass(frozen=True, slots=True)
class UsualRate:
    """A part's usual rate, the relative spread of its values, their number, and the lowest of them."""

    rate: float
    spread: float
    count: int
    lowest: float


@dataclass(frozen=True)
class AcceptedRates(Generic[Part]):
    """Rates of accepted probes by part, oldest first, all of the same `kind`; `taken`: time of the last."""

    kind: str = ""
    values: Mapping[Part, tuple[float, ...]] = field(default_factory=dict)
    taken: Mapping[Part, float] = field(default_factory=dict)

    def of(self, part: Part, kind: str, least: int) -> UsualRate | None:
        """Return the usual rates; None for fewer than `least` known values of this kind."""
        values = self.values.get(part, ()) if kind == self.kind else ()
        if len(values) < max(1, least):
            return None
        rate = low_median(values)
        return UsualRate(rate, spread([value / rate for value in values], 1.0), len(values), min(values))

    def learned(self, kind: str, rates: Mapping[Part, float], at: float) -> "AcceptedRates[Part]":
        """Return the rates with a probe (at Unix seconds) that found nothing; another kind starts again."""
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


def grouped(pairs: Iterable[tuple[Part, V]]) -> dict[Part, list[V]]:
    """Return the values of each key, in the order in which both come."""
    groups: dict[Part, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def usual(pairs: Iterable[tuple[Part, V]]) -> dict[Part, V]:
    """Return by key the value that more than half of its values share; none for a single one."""
    groups = grouped(pairs)
    common = {key: Counter(values).most_common(1)[0] for key, values in groups.items()}
    return {key: value for key, (value, count) in common.items() if 2 * count > len(groups[key]) > 1}


def delta(before: int | None, now: int) -> int:
    """Return a counter's growth; 0 at first, and after a reset the value since then."""
    if before is None:
        return 0
    return now - before if now >= before else now


def measured(now: int | Absent, before: int | None, twin_growth: int, proof: int) -> int | Absent:
    """Return a counter's value, unless its twin proves that it stood still while data moved.

    `proof` is a growth of the twin, in its own unit, that is impossible while the counter stands still.
    Source: proof/hardware, where the data counter stood still twice in 32 reads under GPM sampling.
    """
    if isinstance(now, Absent) or now != before or twin_growth < proof:
        return now
    return Absent(Why.MALFORMED, f"stood still while its twin grew by {twin_growth}")


def low_median(values: Iterable[float]) -> float:
    """Return the middle value, of an even number the lower of both; ValueError for no values."""
    return _middle(sorted(values), upper=False)


def high_median(values: Iterable[float]) -> float:
    """Return the middle value, of an even number the higher of both; ValueError for no values."""
    return _middle(sorted(values), upper=True)


def spread(values: Sequence[float], center: float) -> float:
    """Standard deviation of the noise around `center`, by the median absolute deviation; 0 for no values."""
    return NORMAL * low_median(abs(value - center) for value in values) if values else 0.0


def lasting(seconds: float) -> str:
    """Return a time in its largest unit that gives two or more: `74 s`, `90 min`, `6 h`, `3 days`."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= 2 * size), (1.0, "s"))
    return f"{round(seconds / size, 1):g} {unit}"


def in_days(seconds: float) -> str:
    """Return `within a day`, for a longer time `in 3 days`."""
    return "within a day" if seconds <= DAY else f"in {lasting(seconds)}"


def _share(growth: Growth, since: float) -> float:
    """Return the part of a growth that came after `since`: all of it, or by even spread."""
    if growth.start >= since:
        return growth.grown
    return growth.grown * max(0.0, growth.end - since) / (growth.end - growth.start)


def _middle(values: Sequence[float], *, upper: bool) -> float:
    if not values:
        raise ValueError("no median of nothing")
    return values[len(values) // 2 if upper else (len(values) - 1) // 2]
