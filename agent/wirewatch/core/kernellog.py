"""Records of /dev/kmsg, which of them may concern the wires, and which are lines of one incident.

The form is the kernel's: `priority,sequence,microseconds,flags;text`, then lines of ` KEY=value`
(Documentation/ABI/testing/dev-kmsg).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wirewatch.core.pci import normal_pci

WANTED = ("NVRM:", "nvidia-nvswitch", "nvidia-peermem", "nvidia_peermem", "mlx5_core ", "pcieport ")
"""A record is kept when it begins with one of these; the rest of the log is none of our business."""
_RECORD = re.compile(r"\d{1,10},(\d{1,20}),(\d{1,20}),[^;]*;([^\n]*)", re.ASCII)
_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_INSTANCE = r"(?: GPU-I:\d+)?(?: GPU-CI:\d+)?"
_NUMBER = r"(?P<number>\d{1,9})(?:, ?(?P<rest>.*))?$"
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PCI}{_INSTANCE}\): {_NUMBER}", re.ASCII)
_SXID = re.compile(rf"nvidia-nvswitch\d*: SXid \((?:PCI:)?{_PCI}\): {_NUMBER}", re.ASCII)
_DETAIL = re.compile(r"nvidia-nvswitch\d*: SXid \([^)]*\): \d+, (?:Severity \d+ Engine instance|Data \{)")
"""Further lines of an SXid whose first line is an event already."""
_OFF_BUS = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?{_PCI}:? .*fallen off the bus")
_ABOUT_GPU = re.compile(rf"NVRM: The NVIDIA GPU (?:PCI:)?{_PCI}$")
"""First of several lines; what follows may be that it is not supported, or that it fell off the bus."""
_UNSUPPORTED = "is not supported"
_FELL = re.compile(r"NVRM: .*fallen off the bus")
_INIT_FAILED = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?{_PCI}: .*(?:RmInitAdapter|rm_init_adapter) failed")
_WHO = re.compile(r"^pid=(?P<pid>'[^']*'|[^,]*)(?:, ?name=(?:<[^>]*>|[^,]*))?(?:, ?)?")
_LINK = re.compile(r"\blink (-?\d{1,4})\b", re.IGNORECASE | re.ASCII)
_RECOVERY = re.compile(
    r"recovery action changed from 0x[0-9a-fA-F]+ \([^)]*\) to 0x[0-9a-fA-F]+ \((?P<to>[^)]*)\)"
)
XID, SXID, OFF_BUS, UNKNOWN = "xid", "sxid", "off_bus", "unknown"
_CARD = re.compile(rf"mlx5_core {_PCI}")
OTHERS: Mapping[str, re.Pattern[str]] = {
    "nvlink_training": re.compile(r"NVRM: .*Failed to update Rx Detect Link mask"),
    "peermem_context": re.compile(r"nvidia[-_]peermem .*invalid context"),
    "nic_power": re.compile(r"mlx5_core .*insufficient power on the PCIe slot"),
    "nic_module": re.compile(r"mlx5_core .*(?:Port module event\[error\]|Cable error|High Temperature)"),
    "nic_pcie_limited": re.compile(r"mlx5_core .*available PCIe bandwidth, limited by"),
    "nic_access_denied": re.compile(r"mlx5_core .*ACCESS_REG.*failed"),
}
"""Messages about a wire that are not XIDs, by the kind of event that they make."""
_SUSPECT = re.compile(r"\bS?Xid\b|fallen off the bus")
"""Lines that must be understood: one that is not is counted."""


@dataclass(frozen=True, slots=True)
class Record:
    """One message; `seconds` since the machine was started."""

    sequence: int
    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """One thing the kernel said; `pci` and `link` are empty where the line names none.

    `seconds` since the machine was started, by the log's own clock, which cannot be set. `process`: the id
    of the one that an XID names, empty where it names none.
    """

    kind: str
    number: int
    pci: str
    link: str
    message: str
    seconds: float
    process: str = ""


PAUSE = 10.0
"""Seconds without a line after which the next one is of another incident."""


@dataclass(frozen=True, slots=True)
class Incidents:
    """Incidents of one kind at one part, and how many lines they made.

    An incident is what one process did without a pause. `open`: the second of the last line of each process,
    empty for one that no line names; such a line belongs to what is going on.
    """

    count: int = 0
    lines: int = 0
    open: Mapping[str, float] = field(default_factory=dict)

    def see(self, process: str, seconds: float) -> "Incidents":
        """The incidents after one more line, at a second of the log's own clock."""
        going_on = {name: last for name, last in self.open.items() if seconds - last <= PAUSE}
        if not process and going_on:
            return Incidents(self.count, self.lines + 1, dict.fromkeys(going_on, seconds))
        new = process not in going_on and "" not in going_on
        going_on.pop("", None)
        return Incidents(self.count + new, self.lines + 1, {**going_on, process: seconds})


def wanted(raw: str) -> bool:
    """Whether a raw record may concern the wires."""
    return raw.partition(";")[2].startswith(WANTED)


def vital(raw: str) -> bool:
    """Whether a raw record may be about an XID or about a GPU that is gone."""
    words = ("Xid", "fallen off the bus", "The NVIDIA GPU", "RmInitAdapter", "rm_init_adapter")
    return any(word in raw for word in words)


def parse_record(raw: str) -> Record | None:
    """The record, None when it is not of the kernel's form."""
    match = _RECORD.match(raw)
    return Record(int(match[1]), int(match[2]) * 1e-6, match[3].rstrip()) if match else None


def parse_events(records: Iterable[Record], about: str = "") -> tuple[tuple[Event, ...], str]:
    """Return what the records say, oldest first, and `about` for the next call.

    `about`: the GPU of an unfinished message of several lines. A line that speaks of an XID or a GPU off the
    bus and has no known form is an event of kind `unknown`.
    """
    events = []
    for record in records:
        text = record.text.replace("\\x0a", " ")
        event = _parse(text, record.seconds)
        if event is not None and event.kind == UNKNOWN and about and _FELL.search(text):
            event = Event(OFF_BUS, 0, about, "", text, record.seconds)
        if opening := _ABOUT_GPU.search(text):
            about = normal_pci(opening["pci"])
        elif event is not None or _UNSUPPORTED in text:
            about = ""
        events += [event] if event is not None else []
    return tuple(events), about


def failed_starts(records: Iterable[Record]) -> Mapping[str, str]:
    """The newest message of each GPU that the driver could not start, by its PCI address."""
    found = ((_INIT_FAILED.search(record.text), record.text) for record in records)
    return {normal_pci(match["pci"]): text for match, text in found if match}


def recovery_word(message: str) -> str:
    """What XID 154 says the action is now, in lower case; empty when it does not say."""
    match = _RECOVERY.search(message)
    return match["to"].strip().lower() if match else ""


def _parse(text: str, seconds: float) -> Event | None:
    if _DETAIL.search(text):
        return None
    for kind, form in ((XID, _XID), (SXID, _SXID)):
        if match := form.search(text):
            rest = (match["rest"] or "").strip()
            who = _WHO.match(rest)
            process = who["pid"].strip("'") if who else ""
            message = rest[who.end() :] if who else rest
            return Event(
                kind, int(match["number"]), normal_pci(match["pci"]), _link(message), message, seconds,
                process if process.isdigit() else "",
            )  # fmt: skip
    if match := _OFF_BUS.search(text):
        return Event(OFF_BUS, 0, normal_pci(match["pci"]), "", text, seconds)
    for kind, other in OTHERS.items():
        if other.search(text):
            found = _CARD.search(text)
            return Event(kind, 0, normal_pci(found["pci"]) if found else "", "", text, seconds)
    return Event(UNKNOWN, 0, "", "", text, seconds) if _SUSPECT.search(text) else None


def _link(message: str) -> str:
    match = _LINK.search(message)
    return str(int(match[1])) if match and not match[1].startswith("-") else ""
