"""Numbers of a job as people read them."""

import math
from collections.abc import Mapping

from wirewatch.core import words
from wirewatch.core.types import Absent, value_or

TINY = 0.005
"""Share of the time below which a kind is not mentioned."""


def percent(share: float | Absent) -> str:
    """Return a share of 0 to 1 in per cent, with a decimal below ten; a dash where it is not known."""
    if isinstance(share, Absent) or math.isnan(share):
        return words.UNKNOWN
    return words.percent(share, 1 if 0 < 100 * share < 9.95 else 0)  # noqa: PLR2004


def in_words(shares: Mapping[str, float]) -> str:
    """Return shares of time by name in words, the first and all that are not tiny: `97 % computing`."""
    return ", ".join(
        f"{percent(share)} {name}" for n, (name, share) in enumerate(shares.items()) if share >= TINY or not n
    )


def rate(value: float | Absent) -> str:
    """Return bytes per second in GB/s, with a decimal below 100; a dash where they are not known."""
    if isinstance(value, Absent):
        return words.UNKNOWN
    return words.rate(value) if value / words.GB < 100 else f"{value / words.GB:.0f} GB/s"  # noqa: PLR2004


def operation(op: str, size: int) -> str:
    """Return an operation with the size of its message, 0 where that is not known; jobs have any size."""
    if not size:
        return f"{op} of a size not known"
    units = ((words.GIB, "GiB"), (words.MIB, "MiB"), (words.KIB, "KiB"), (1, "B"))
    unit, name = next(one for one in units if size >= one[0])
    return f"{op} of {words.size(size)}" if size % unit == 0 else f"{op} of {size / unit:.1f} {name}"


def gpu_name(index: str, uuid: str | Absent, host: str = "") -> str:
    """Return `GPU 2`, or its UUID where its number is not known, with its host where that is known."""
    name = f"GPU {index}" if index.isdigit() else value_or(uuid, "a GPU that is not known")
    return f"{name} of {host}" if host else name
