"""Numbers of a job as people read them."""

from wirewatch.busbw.references import GIB
from wirewatch.core.probe import KIB, MIB
from wirewatch.core.types import Absent
from wirewatch.core.words import GB
from wirewatch.core.words import size as human


def percent(share: float) -> str:
    """A share of 0 to 1 in per cent, with a decimal below ten."""
    value = 100 * share
    return f"{value:.1f} %" if 0 < value < 9.95 else f"{value:.0f} %"  # noqa: PLR2004


def rate(value: float) -> str:
    """Bytes per second in GB/s."""
    gigabytes = value / GB
    return f"{gigabytes:.1f} GB/s" if gigabytes < 100 else f"{gigabytes:.0f} GB/s"  # noqa: PLR2004


def operation(op: str, size: int) -> str:
    """An operation with the size of its message, 0 where that is not known; jobs have any size."""
    if not size:
        return f"{op} of a size not known"
    units = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))
    unit, name = next(one for one in units if size >= one[0])
    return f"{op} of {human(size)}" if size % unit == 0 else f"{op} of {size / unit:.1f} {name}"


def share_or_dash(value: float | Absent) -> str:
    """A share in per cent; a dash where it is not known."""
    return "-" if isinstance(value, Absent) else percent(value)


def gpu_name(index: str, uuid: str | Absent) -> str:
    """`GPU 2`, or its UUID where its number is not known."""
    if index:
        return f"GPU {index}"
    return "a GPU that is not known" if isinstance(uuid, Absent) else uuid
