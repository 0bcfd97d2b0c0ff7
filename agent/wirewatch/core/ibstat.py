"""What `ibstat` prints. Source: infiniband-diags, ibstat.c, versions 44 to 61.

It lists devices in the order of their names as text (mlx5_10 before mlx5_2), prints what it has before it
fails (exit 255), and some captures of it have spaces for tabs and no last newline.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wirewatch.core.whole import whole

_CA = re.compile(r"(?:CA|Switch|Router|iWARP RNIC|\?\?\?):? '([^']+)'")
_HEADER = re.compile(r"\S[^:]*:? '[^']+'")
_PORT = re.compile(r"Port (\d{1,4}):", re.ASCII)
_FIELD = re.compile(r"([A-Za-z][A-Za-z ]*): ?(.*)")
_RATE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(?: \(FDR10\))?", re.ASCII)

DEVICE_FIELDS = frozenset(
    {
        "CA type",
        "Switch type",
        "Router type",
        "iWARP RNIC type",
        "Number of ports",
        "Firmware version",
        "Hardware version",
        "Node GUID",
        "System image GUID",
    }
)
PORT_FIELDS = frozenset(
    {
        "State",
        "Physical state",
        "Rate",
        "Effective speed",
        "Base lid",
        "LMC",
        "SM lid",
        "Capability mask",
        "Port GUID",
        "Link layer",
    }
)
STATES: Mapping[str, str] = {
    "Down": "down",
    "Initializing": "init",
    "Armed": "armed",
    "Active": "active",
}
PHYSICAL: Mapping[str, str] = {
    "No state change": "",
    "Sleep": "sleep",
    "Polling": "polling",
    "Disabled": "disabled",
    "PortConfigurationTraining": "training",
    "LinkUp": "link_up",
    "LinkErrorRecovery": "recovery",
    "PhyTest": "phy_test",
}


@dataclass(frozen=True, slots=True)
class PortFacts:
    """One port as printed; names as sysfs has them, empty or None where the line was missing or not clear.

    `rate` in bytes per second; ibstat rounds to whole Gb/s but for 2.5.
    """

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


def parse_ibstat(text: str) -> Ibstat:
    """Everything in an output, whole or cut short."""
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
        elif port and match[1] in PORT_FIELDS:
            facts = _told(ports[device, port], match[1], match[2].strip())
            if facts is None:
                unknown.append(line)
            else:
                ports[device, port] = facts
        elif match[1] in DEVICE_FIELDS:
            devices[device][match[1]] = match[2].strip()
        else:
            unknown.append(line)
    return Ibstat(devices, ports, tuple(unknown))


def _told(facts: PortFacts, name: str, value: str) -> PortFacts | None:
    """The facts with one more; None when the value is not one of those that ibstat prints."""
    match name:
        case "State":
            return replace(facts, state=STATES[value]) if value in STATES else None
        case "Physical state":
            return replace(facts, physical=PHYSICAL[value]) if value in PHYSICAL else None
        case "Rate":
            rate = _RATE.fullmatch(value)
            return replace(facts, rate=float(rate[1]) * 1e9 / 8) if rate else None
        case "Link layer":
            layer = {"IB": "InfiniBand"}.get(value, value)
            return replace(facts, link_layer=layer) if value else None
        case "Base lid":
            lid = whole(value)
            return None if lid is None else replace(facts, lid=lid)
    return facts
