"""Files of the kernel about an RDMA port. Source: drivers/infiniband/core/sysfs.c and its ABI document."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wirewatch.core.types import Absent, Why, whole

STATES = ("nop", "down", "init", "armed", "active", "active_defer")
PHYSICAL = ("unknown", "sleep", "polling", "disabled", "training", "link_up", "recovery", "phy_test")
"""States by the kernel's numbers, from 0."""
ACTIVE = frozenset({"active", "active_defer"})
WORD = 4
"""Bytes in a unit of the data counters."""
_NUMBERED = re.compile(r"(\d{1,4}): ?(.*)", re.ASCII)
_RATE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?) Gb/sec \((\d{1,3})X(?: (\w+))?\)", re.ASCII)
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,16}|\d{1,20}", re.ASCII)


_CA = re.compile(r"(?:CA|Switch|Router|iWARP RNIC|\?\?\?):? '([^']+)'")
_HEADER = re.compile(r"\S[^:]*:? '[^']+'")
_PORT = re.compile(r"Port (\d{1,4}):", re.ASCII)
_FIELD = re.compile(r"([A-Za-z][A-Za-z ]*): ?(.*)")
_IBSTAT_RATE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(?: \(FDR10\))?", re.ASCII)
DEVICE_FIELD = re.compile(
    "(?:CA|Switch|Router|iWARP RNIC) type|Number of ports|(?:Firmware|Hardware) version"
    "|(?:Node|System image) GUID"
)
PORT_FIELD = re.compile(
    "State|Physical state|Rate|Effective speed|Base lid|LMC|SM lid|Capability mask|Port GUID|Link layer"
)
IBSTAT_STATES: Mapping[str, str] = {
    "Down": "down", "Initializing": "init", "Armed": "armed", "Active": "active",
}  # fmt: skip
IBSTAT_PHYSICAL: Mapping[str, str] = {
    "No state change": "", "Sleep": "sleep", "Polling": "polling", "Disabled": "disabled",
    "PortConfigurationTraining": "training", "LinkUp": "link_up", "LinkErrorRecovery": "recovery",
    "PhyTest": "phy_test",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rate:
    """Line rate in bytes per second; `speed`: InfiniBand's name, on Ethernet too, "" from old kernels."""

    bytes_per_second: float
    lanes: int
    speed: str

    def __str__(self) -> str:
        name = f" {self.speed}" if self.speed else ""
        return f"{gigabits(self.bytes_per_second)} ({self.lanes}X{name})"


@dataclass(frozen=True, slots=True)
class PortFacts:
    """One port as printed, in sysfs' names; "" or None where a line is missing. Rates are whole Gb/s."""

    state: str = ""
    physical: str = ""
    rate: float | None = None
    link_layer: str = ""
    lid: int | None = None


@dataclass(frozen=True, slots=True)
class Ibstat:
    """All ports by device and port, and every line that was not understood."""

    devices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ports: Mapping[tuple[str, str], PortFacts] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def gigabits(bytes_per_second: float) -> str:
    """For people: `400 Gb/s`."""
    return f"{bytes_per_second * 8e-9:g} Gb/s"


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


def parse_ibstat(text: str) -> Ibstat:
    """Return everything in an output, whole or cut short."""
    devices: dict[str, dict[str, str]] = {}
    ports: dict[tuple[str, str], PortFacts] = {}
    unknown: list[str] = []
    device, port = "", ""
    for line in text.splitlines():
        words = line.strip()
        if not words:
            continue
        if match := _CA.fullmatch(words):
            device, port = match[1], ""
            devices.setdefault(device, {})
        elif _HEADER.fullmatch(line):
            # Whatever it heads, what follows is not the last device's.
            device, port = "", ""
            unknown.append(line)
        elif device and (match := _PORT.fullmatch(words)):
            port = match[1]
            ports.setdefault((device, port), PortFacts())
        elif not (device and (match := _FIELD.fullmatch(words))):
            unknown.append(line)
        elif port and PORT_FIELD.fullmatch(match[1]):
            facts = _with_field(ports[device, port], match[1], match[2].strip())
            if facts is None:
                unknown.append(line)
            else:
                ports[device, port] = facts
        elif DEVICE_FIELD.fullmatch(match[1]):
            devices[device][match[1]] = match[2].strip()
        else:
            unknown.append(line)
    return Ibstat(devices, ports, tuple(unknown))


def _named(text: str | Absent, names: Sequence[str], what: str) -> str | Absent:
    if isinstance(text, Absent):
        return text
    match = _NUMBERED.fullmatch(text)
    if match is None or int(match[1]) >= len(names):
        return Absent(Why.MALFORMED, f"not a {what}: {text[:40]!r}")
    return names[int(match[1])]


def _with_field(facts: PortFacts, name: str, value: str) -> PortFacts | None:
    """Return the facts with one more field; None for a value that ibstat does not print."""
    rate = _IBSTAT_RATE.fullmatch(value)
    known: Mapping[str, tuple[str, Any]] = {
        "State": ("state", IBSTAT_STATES.get(value)),
        "Physical state": ("physical", IBSTAT_PHYSICAL.get(value)),
        "Rate": ("rate", float(rate[1]) * 1e9 / 8 if rate else None),
        "Link layer": ("link_layer", {"IB": "InfiniBand"}.get(value, value) or None),
        "Base lid": ("lid", whole(value)),
    }
    field, found = known.get(name, ("", ""))
    if not field:
        return facts
    return None if found is None else replace(facts, **{field: found})
