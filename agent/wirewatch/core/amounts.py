"""Times and sizes as people write them, `10m` and `64MiB`: one grammar for options and the configuration."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

TIMES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([smhd]?)", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))? ?(?:([KMGT])(i?B)?|B)?", re.ASCII | re.IGNORECASE)


def seconds(text: str) -> float | None:
    """Return the seconds of `90s`, `10m`, `2h`, `1d`, or of a number alone; None for another text."""
    found = _TIME.fullmatch(text.strip().lower())
    return float(found[1]) * TIMES[found[2] or "s"] if found else None


def size(text: str) -> int | None:
    """Return the bytes of `64MiB`, `64M` (the same), `64MB` (of powers of 1000), or of a number alone."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    base = 1000 if (found[4] or "").upper() == "B" else 1024
    unit: int = base ** _POWERS[(found[3] or "").upper()]
    part = found[2] or ""
    return int(found[1]) * unit + (int(part) * unit // 10 ** len(part) if part else 0)


def time_text(value: float) -> str:
    """Return seconds in the largest unit that divides them, such as `10m`; `seconds` reads the same back."""
    for unit in ("d", "h", "m"):
        if value and value % TIMES[unit] == 0:
            return f"{int(value / TIMES[unit])}{unit}"
    return f"{Decimal(repr(value)):f}".removesuffix(".0") + "s"


def size_text(value: float) -> str:
    """Return bytes in the largest unit that divides them, such as `64MiB`; `size` reads the same back."""
    for unit in ("T", "G", "M", "K"):
        if value and value % 1024 ** _POWERS[unit] == 0:
            return f"{int(value) >> 10 * _POWERS[unit]}{unit}iB"
    return f"{int(value)}B"


@dataclass(frozen=True, slots=True)
class Amount:
    """The ways to write a number of the configuration in quotes; pydantic asks it for the schema of a value.

    `name`: the kind of value in words. `read`: returns the number of a text, None for a text of another kind.
    """

    name: str
    example: str
    read: Callable[[str], float | None]
    write: Callable[[float], str]

    def taken(self, value: Any) -> Any:
        """Return the number of a text; any other value as it is."""
        number = self.read(value) if isinstance(value, str) else None
        if number is None:
            return value
        return int(number) if number == int(number) else number

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the schema of the number, before which a text is read."""
        read = {"type": "no-info", "function": self.taken}
        return {"type": "function-before", "function": read, "schema": handler(source)}


TIME = Amount("time", "10m", seconds, time_text)
SIZE = Amount("size", "64MiB", size, size_text)
Seconds = Annotated[float, TIME]
WholeSeconds = Annotated[int, TIME]
Bytes = Annotated[int, SIZE]
"""Bytes that are counted; a limit that may be a fraction of a byte is a `float` with `SIZE`."""
