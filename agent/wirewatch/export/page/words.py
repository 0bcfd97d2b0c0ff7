"""Times and quantities for people: UTC, and how long ago; GB/s are 10^9 bytes per second."""

from collections.abc import Iterable
from datetime import UTC, datetime

from wirewatch.export.page.model import Moment

GB = 1e9
GBIT = 1.25e8
"""Bytes per second of one Gb/s."""
_STEPS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_LAST = 253402300799.0
"""The last second that has a date of four digits."""


def moment(at: float, now: float) -> Moment:
    """A time in Unix seconds as seen from `now`."""
    day = datetime.fromtimestamp(min(max(at, 0.0), _LAST), UTC)
    return Moment(day.strftime("%Y-%m-%d %H:%M:%S UTC"), day.strftime("%Y-%m-%dT%H:%M:%SZ"), ago(now - at))


def ago(seconds: float) -> str:
    """`4 min ago`, `in 2 h`; whole seconds."""
    if abs(seconds) < 1:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A length of time by its two largest units: `3 h 20 min`."""
    left, told = int(seconds), []
    for size, unit in _STEPS:
        count, left = divmod(left, size)
        if count:
            told.append(f"{count} {unit}")
        elif told:
            break
    return " ".join(told[:2]) or "0 s"


def percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


def plain(value: float) -> str:
    """A count, or a number with one digit behind the point where it has any."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def listed(words: Iterable[str], most: int = 3) -> str:
    """The first of many, and how many more there are."""
    every = list(words)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def count(number: int, one: str, many: str = "") -> str:
    """`1 link`, `2 links`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"
