"""What the kernel writes about an RDMA port. Source: drivers/infiniband/core/sysfs.c and its ABI document."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from wirewatch.core.types import Absent, Why
from wirewatch.core.whole import whole

STATES: Mapping[int, str] = {
    0: "nop",
    1: "down",
    2: "init",
    3: "armed",
    4: "active",
    5: "active_defer",
}
PHYSICAL: Mapping[int, str] = {
    0: "unknown",
    1: "sleep",
    2: "polling",
    3: "disabled",
    4: "training",
    5: "link_up",
    6: "recovery",
    7: "phy_test",
}
ACTIVE = frozenset({"active", "active_defer"})
WORD = 4
"""Bytes that one unit of the data counters stands for."""

_NUMBERED = re.compile(r"(\d{1,4}): ?(.*)", re.ASCII)
_RATE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?) Gb/sec \((\d{1,3})X(?: (\w+))?\)", re.ASCII)
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,16}|\d{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rate:
    """Line rate of a port in bytes per second; `speed` is empty where an old kernel does not name it.

    The word says nothing of the kind of network: 25G Ethernet reads EDR.
    """

    bytes_per_second: float
    lanes: int
    speed: str

    def __str__(self) -> str:
        name = f" {self.speed}" if self.speed else ""
        return f"{gigabits(self.bytes_per_second)} ({self.lanes}X{name})"


def gigabits(bytes_per_second: float) -> str:
    """For people: `400 Gb/s`."""
    return f"{bytes_per_second * 8e-9:g} Gb/s"


def _named(text: str | Absent, names: Mapping[int, str], what: str) -> str | Absent:
    if isinstance(text, Absent):
        return text
    match = _NUMBERED.fullmatch(text)
    name = names.get(int(match[1])) if match else None
    return name or Absent(Why.MALFORMED, f"not a {what}: {text[:40]!r}")


def port_state(text: str | Absent) -> str | Absent:
    """The logical state from the text of `state`, such as `4: ACTIVE`."""
    return _named(text, STATES, "port state")


def physical_state(text: str | Absent) -> str | Absent:
    """The physical state from the text of `phys_state`, such as `5: LinkUp`."""
    return _named(text, PHYSICAL, "physical state")


def port_rate(text: str | Absent) -> Rate | Absent:
    """The rate from the text of `rate`, such as `400 Gb/sec (4X NDR)`; a port that is down shows one too."""
    if isinstance(text, Absent):
        return text
    match = _RATE.fullmatch(text)
    if match is None:
        return Absent(Why.MALFORMED, f"not a rate: {text[:40]!r}")
    return Rate(float(match[1]) * 1e9 / 8, int(match[2]), match[3] or "")


def counter(text: str | Absent) -> int | Absent:
    """A counter; some devices answer `N/A (no PMA)`."""
    if isinstance(text, Absent):
        return text
    value = whole(text)
    if value is not None:
        return value
    why = Why.UNSUPPORTED if text.startswith("N/A") else Why.MALFORMED
    return Absent(why, f"not a counter: {text[:40]!r}")


def number(text: str | Absent) -> int | Absent:
    """A whole number, decimal or hexadecimal with 0x, as in `lid`."""
    if isinstance(text, Absent):
        return text
    if not _NUMBER.fullmatch(text):
        return Absent(Why.MALFORMED, f"not a number: {text[:40]!r}")
    return int(text, 16) if text.startswith("0x") else int(text)
