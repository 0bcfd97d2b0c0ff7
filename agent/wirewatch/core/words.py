"""Words for people: units, shares, ages, lists, counts and UTC times, each written in one way everywhere."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GB = 1e9
"""Bytes of a GB, as in nccl-tests: rates are shown in GB/s."""
GBIT = GB / 8
"""Bytes of a Gb, as ports are named: 400 Gb/s."""
MICRO = 1e6
"""Microseconds of a second."""
UNKNOWN = "-"
"""Stands for an unknown value in a table."""
_AGES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_LAST = 253402300799.0
"""The last second that a date can name."""
RESET_GPU = "`wirewatch release --for 10m`, then reset the GPU"
"""Advice: a GPU that a process holds open cannot be reset, and the daemon is such a process."""


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with each of its texts changed; names of an object stay."""
    match value:
        case str():
            return change(value)
        case list():
            return [each_text(one, change) for one in value]
        case dict():
            return {name: each_text(one, change) for name, one in value.items()}
        case _:
            return value


def size(size_bytes: int) -> str:
    """Return the size of a message, such as `64 MiB`, exactly."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def rate(bytes_per_second: float) -> str:
    """Return a rate with one decimal: `361.2 GB/s`."""
    return f"{bytes_per_second / GB:.1f} GB/s"


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share of 0 to 1 in per cent: `69 %`; a dash where it is not known."""
    return UNKNOWN if share is None else f"{100 * share:.{digits}f} %"


def span(seconds: float) -> str:
    """Return a length of time by its two largest units: `3 h 20 min`."""
    left, parts = int(seconds), []
    for unit, name in _AGES:
        number, left = divmod(left, unit)
        if number:
            parts.append(f"{number} {name}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def short_span(seconds: float) -> str:
    """Return a length of time in the largest unit that gives at least 1, rounded: `3 h`."""
    unit, name = next((one for one in _AGES if seconds >= one[0]), (1, "s"))
    return f"{seconds / unit:.0f} {name}"


def ago(seconds: float) -> str:
    """Return `4 min ago`, or `in 2 h` for a time to come."""
    if abs(seconds) < 1:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def count(number: int, one: str, many: str = "") -> str:
    """Return `1 link`, `2 links`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def first(names: Collection[str], most: int = 3, between: str = ", ") -> str:
    """Return the first names of many, and how many more there are: `a, b, c and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(list(names)[:most]) + more


def either(names: Sequence[str], word: str = "or") -> str:
    """Return names in a sentence: `a, b or c`."""
    return f" {word} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def printable(text: str) -> str:
    """Return the text with a space for each character that could begin a line or a terminal command."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def utc(at: float) -> str:
    """Return Unix seconds as `2026-11-27 08:15:00Z`; `never` for 0."""
    return _date(at).strftime("%Y-%m-%d %H:%M:%SZ") if at else "never"


def stamp(at: float) -> str:
    """Return Unix seconds for programs, as RFC 3339 has them: `2026-11-27T08:15:00Z`."""
    return _date(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def day(at: float) -> str:
    """Return the day of Unix seconds in UTC: `2026-11-27`."""
    return _date(at).strftime("%Y-%m-%d")


def _date(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(at, 0.0), _LAST), UTC)
