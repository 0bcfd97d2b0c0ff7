"""Records of /dev/kmsg, which of them may concern the wires, and which are lines of one incident.

The form is the kernel's: `priority,sequence,microseconds,flags;text`, then lines of ` KEY=value`
(Documentation/ABI/testing/dev-kmsg).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wirewatch.core.nvml import RECOVERY_ACTIONS
from wirewatch.core.pci import normal_pci
from wirewatch.core.words import RESET_GPU
from wirewatch.core.xids import RECOVERIES, Severity, recovery

WANTED = (
    "NVRM:", "nvidia-nvswitch", "nvidia-peermem", "nvidia_peermem", "mlx5_core ", "pcieport ", "nvidia ",
    "nvidia: probe of ", "mlx5_core: probe of ",
)  # fmt: skip
"""A record is kept when it begins with any of these; wirewatch does not read the rest of the log."""
_LEVEL_BITS = 3
"""Bits of the level in a priority: the rest is the facility."""
_RECORD = re.compile(r"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]*;([^\n]*)", re.ASCII)
_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_INSTANCE = r"(?: GPU-I:\d+)?(?: GPU-CI:\d+)?"
_NUMBER = r"(?P<number>\d{1,9})(?:, ?(?P<rest>.*))?$"
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PCI}{_INSTANCE}\): {_NUMBER}", re.ASCII)
_SXID = re.compile(rf"nvidia-nvswitch\d*: SXid \((?:PCI:)?{_PCI}\): {_NUMBER}", re.ASCII)
_DETAIL = re.compile(r"Severity \d+ Engine instance|Data \{")
"""Further lines of an SXid whose first line is an event already, unless it was lost."""
_CAUSED = re.compile(r"caused by previous Xid (\d{1,9})", re.ASCII)
"""The end of an XID 45, in NVIDIA's open kernel modules (kernel_rc.c)."""
_OFF_BUS = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?{_PCI}:? .*fallen off the bus")
_ABOUT_GPU = re.compile(rf"NVRM: The NVIDIA GPU (?:PCI:)?{_PCI}$")
"""First of several lines; the next lines may say that it is not supported, or that it fell off the bus."""
_UNSUPPORTED = "is not supported"
_FELL = re.compile(r"NVRM: .*fallen off the bus")
_INIT_FAILED = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?{_PCI}: .*(?:RmInitAdapter|rm_init_adapter) failed")
_OPENING = re.compile(rf"NVRM: The NVIDIA GPU (?:PCI:)?{_PCI}")
_BAR = rf"pci {_PCI}: BAR (?P<order>[0-5])\b"
"""The first six are the device's own; others are its ROM and its virtual functions'."""
_MEMORY = re.compile(r"pci \S+ BAR [0-5]\b.*(?:: assigned|no space|can't assign|failed to assign)")
"""Lines that say whether a device got memory; kept beside WANTED."""
_BAR_GIVEN = re.compile(rf"{_BAR}.*: assigned")
_NO_START = (
    re.compile(rf"nvidia(?P<order>):? (?:probe of )?{_PCI}:? (?:probe with driver nvidia )?failed"),
    re.compile(rf"{_BAR}(?!.*\[io).*(?:no space|can't assign|failed to assign)"),
    re.compile(rf"NVRM: .*BAR\d is 0M @ 0x0 \((?:PCI:)?{_PCI}\)"),
    _INIT_FAILED,
)
"""Reasons of a failed start: the driver's own messages say most, the kernel's message of its probe least."""
_WHO = re.compile(r"^pid=(?P<pid>'[^']*'|[^,]*)(?:, ?name=(?:<[^>]*>|[^,]*))?(?:, ?)?")
_LINK = re.compile(r"\blink (-?\d{1,4})\b", re.IGNORECASE | re.ASCII)
_RECOVERY = re.compile(
    r"recovery action changed from 0x[0-9a-fA-F]+ \([^)]*\) to 0x(?P<number>[0-9a-fA-F]+) \((?P<to>[^)]*)\)"
)
XID, SXID, OFF_BUS, UNKNOWN = "xid", "sxid", "off_bus", "unknown"
_NAMED = re.compile(rf"(?:mlx5_core|pcieport|nvidia|mlx5_core: probe of) {_PCI}")
_SENDER = re.compile(rf"(?:AER|DPC): .*(?:from|received:) {_PCI}")
"""The device whose error a port reports."""


@dataclass(frozen=True, slots=True)
class KernelText:
    """A form of message about a wire that is no XID, its severity, and its action.

    `ends`: the kinds of events that are over at this card with this message.
    """

    form: re.Pattern[str]
    severity: Severity = Severity.NOTED
    action: str = ""
    ends: frozenset[str] = frozenset()


def _text(form: str, severity: Severity, action: str) -> KernelText:
    return KernelText(re.compile(form), severity, action)


_F, _S = Severity.FATAL, Severity.SERIOUS
_MLX5 = r"^mlx5_core:? .*"
_PORT = r"^(?:pcieport|mlx5_core|nvidia) .*"
TEXTS: Mapping[str, KernelText] = {
    "nvlink_training": _text(  # NVIDIA's open kernel modules: kernel_nvlink.c
        r"^NVRM: .*Failed to update Rx Detect Link mask", _S,
        f"check the GPU's NVLinks; if one is not up, {RESET_GPU}",
    ),
    "peermem_context": _text(  # the same: nvidia-peermem.c
        r"^nvidia[-_]peermem .*invalid context", _S,
        "a job lost its GPU memory registration; reload nvidia_peermem if it repeats",
    ),
    "nic_power": _text(  # mlx5 events.c: mlx5_pcie_event
        rf"{_MLX5}insufficient power on the PCIe slot", _S,
        "the slot gives the card too little power: check riser, cabling and the BIOS setting",
    ),
    "nic_module": _text(  # mlx5 events.c: port_module, and temp_warn, whose bit 0 is the chip
        rf"{_MLX5}(?:Port module event\[error\]|Cable error|High Temperature|"
        r"High temperature on sensors with bit set \S+ \w*[13579bdf]\b|synd 0x0*10: High t)", _S,
        "cool this card; replace or cool the cable or transceiver of its port",
    ),
    "nic_failed": _text(  # mlx5 health.c, cmd.c: wait_func, cmd_work_handler, main.c: wait_fw_init, probe_one
        rf"{_MLX5}(?:health compromised|Fatal error \d+ detected|unrecoverable hardware error|"
        r"Health issue .*severity\([0-2]\)|timeout\. Will cause a leak of a command|No done completion|"
        r"health recovery (?:failed|flow aborted)|(?:init|load|probe)_one failed with|"
        r"Driver is in error state|PCI slot is unavailable|initializing state, aborting|enable hca failed|"
        r"probe (?:of|with) .*failed with error|pci_resume\b.*device Failed)",
        _F, "drain: the card's firmware does not answer; reload mlx5_core or power the node off and on; "
        "update the firmware, and replace the card if it returns",
    ),
    "nic_firmware": _text(  # mlx5 health.c: print_health_info, cmd.c: wait_func
        rf"{_MLX5}(?:synd 0x0*[1-9a-f]\w*:|Health issue .*severity\(3\)|canceled on out of queue)", _S,
        "look for a failure of this card after it; update its firmware; give the vendor these lines",
    ),
    "nic_timeout": _text(  # mlx5 en_main.c, en/reporter_rx.c, and net/sched/sch_generic.c from 6.8 on
        rf"{_MLX5}(?:TX timeout detected|RX timeout on channel|NETDEV WATCHDOG)", _S,
        "the driver starts the queue again; if it repeats, update the card's firmware and driver",
    ),
    "nic_recovered": KernelText(  # mlx5 health.c, main.c; a start begins with "firmware version", and cmd.c
        # says "recovered after timeout" of a command in place of its time-out.
        re.compile(rf"{_MLX5}(?:health recovery succeeded|mlx5_pci_(?:slot_reset|resume)\b.*recovered$)"),
        ends=frozenset({"nic_failed", "nic_firmware"}),
    ),
    "pcie_fatal": _text(  # drivers/pci/pcie: aer.c, err.c: pcie_do_recovery, dpc.c: dpc_process_error
        rf"{_PORT}(?:\(Fatal\)|device recovery failed|DPC: containment event|DPC: .*ERR_FATAL)", _S,
        "check whether what is behind this port still answers; reseat it; look at slot, riser and cable",
    ),
    "pcie_link_down": _text(  # drivers/pci: hotplug/pciehp_ctrl.c, quirks.c: pcie_failed_link_retrain
        rf"{_PORT}(?:Link Down$|Card not present|retraining failed)", _S,
        "unless somebody took the device out: reseat it; look at slot, riser and cable",
    ),
    "uvm_failed": _text(  # open-gpu-kernel-modules nv_gpu_ops.c: nvGpuOpsReportFatalError
        r"^NVRM: .*uvm encountered global fatal error", _F,
        "drain and reboot the node: no CUDA program can use unified memory until then",
    ),
    "nic_pcie_limited": KernelText(re.compile(rf"{_MLX5}available PCIe bandwidth, limited by")),
    "nic_access_denied": KernelText(re.compile(rf"{_MLX5}ACCESS_REG.*failed")),
}  # fmt: skip
"""Messages about a wire that are not XIDs, by the kind of event that they make; the first that fits counts.

Each row names its source in Linux; mlx5 is drivers/net/ethernet/mellanox/mlx5/core. NVIDIA/NVSentinel,
docs/designs/048, gives the severities of mlx5. Not covered: ports before 5.1, which pciehp names by service.
"""
_SUSPECT = re.compile(r"\bS?Xid\b|fallen off the bus")
"""Lines that must be understood: an unknown line among them is counted."""


@dataclass(frozen=True, slots=True)
class Record:
    """One message; `seconds` since the machine was started; `facility` 0 is the kernel, others are users."""

    sequence: int
    seconds: float
    text: str
    facility: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the kernel; `pci` and `link` are empty where the line names none.

    `seconds` since the machine was started, by the log's own clock, which cannot be set. `process`: the id of
    the process that an XID names, empty where it names none. `cause`: the number of the event that this line
    continues, 0 for a line that stands alone.
    """

    kind: str
    number: int
    pci: str
    link: str
    message: str
    seconds: float
    process: str = ""
    cause: int = 0


PAUSE = 10.0
"""Seconds without a line after which the next line belongs to another incident."""


@dataclass(frozen=True, slots=True)
class Incidents:
    """Incidents of one kind at one part, and the number of their lines.

    An incident is a series of lines about one process without a pause. `open`: the second of the last line of
    each process. Its key is empty for lines without a process; such a line belongs to the incidents under
    way.
    """

    count: int = 0
    lines: int = 0
    open: Mapping[str, float] = field(default_factory=dict)

    def see(self, process: str, seconds: float) -> "Incidents":
        """Return the incidents after one more line, at a second of the log's own clock."""
        going_on = {name: last for name, last in self.open.items() if seconds - last <= PAUSE}
        if not process and going_on:
            return Incidents(self.count, self.lines + 1, dict.fromkeys(going_on, seconds))
        new = process not in going_on and "" not in going_on
        going_on.pop("", None)
        return Incidents(self.count + new, self.lines + 1, {**going_on, process: seconds})


def wanted(raw: str) -> bool:
    """Return whether a raw record may concern the wires."""
    text = raw.partition(";")[2]
    return text.startswith(WANTED) or bool(_MEMORY.match(text))


def vital(raw: str) -> bool:
    """Return whether a raw record may be about an XID or about a GPU that is gone."""
    words = ("Xid", "fallen off the bus", "The NVIDIA GPU", "RmInitAdapter", "rm_init_adapter")
    return any(word in raw for word in words)


def parse_record(raw: str) -> Record | None:
    """The record, None when it is not of the kernel's form."""
    match = _RECORD.match(raw)
    if match is None:
        return None
    return Record(int(match[2]), int(match[3]) * 1e-6, match[4].rstrip(), int(match[1]) >> _LEVEL_BITS)


def parse_events(records: Iterable[Record], about: str = "") -> tuple[tuple[Event, ...], str]:
    """Return the events of the records, oldest first, and `about` for the next call.

    `about`: the GPU of an unfinished message of several lines. A line about an XID or a GPU off the bus is of
    kind `unknown` if it has no known form, or if a program wrote it.
    """
    events = []
    for record in records:
        text = record.text.replace("\\x0a", " ")
        if record.facility:
            events += [Event(UNKNOWN, 0, "", "", text, record.seconds)] if _SUSPECT.search(text) else []
            continue
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
    """Return the newest and most informative message on each GPU that failed to start, by PCI address."""
    found: dict[tuple[str, str], str] = {}
    refused = ""
    for record in (one for one in records if not one.facility):
        text = record.text.replace("\\x0a", " ")
        if opening := _OPENING.search(text):
            refused = normal_pci(opening["pci"])
        if refused and (_UNSUPPORTED in text or _FELL.search(text)):
            found[refused, "~~"], refused = text, ""
        for pattern in _NO_START:
            if match := pattern.search(text):
                found[normal_pci(match["pci"]), match.groupdict().get("order", "~")] = text
        if match := _BAR_GIVEN.search(text):
            found.pop((normal_pci(match["pci"]), match["order"]), None)
    return {pci: found[pci, order] for pci, order in sorted(found)}


def recovery_word(message: str) -> str:
    """Return the recovery action of an XID 154 in lower case; empty where the message has none.

    Unknown words give way to their number, which is NVML's: drivers of 2026 have other words.
    """
    match = _RECOVERY.search(message)
    if match is None:
        return ""
    word, number = match["to"].strip().lower(), int(match["number"], 16)
    named = recovery(word).name in RECOVERIES or number >= len(RECOVERY_ACTIONS)
    return word if named else RECOVERY_ACTIONS[number].replace("_", " ")


def _parse(text: str, seconds: float) -> Event | None:
    for kind, form in ((XID, _XID), (SXID, _SXID)):
        if match := form.search(text):
            number, rest = int(match["number"]), (match["rest"] or "").strip()
            who = _WHO.match(rest)
            process = who["pid"].strip("'") if who else ""
            message = rest[who.end() :] if who else rest
            caused = _CAUSED.search(message) if kind == XID else None
            cause = int(caused[1]) if caused else number if kind == SXID and _DETAIL.match(rest) else 0
            return Event(
                kind, number, normal_pci(match["pci"]), _link(message), message, seconds,
                process if process.isdigit() else "", cause,
            )  # fmt: skip
    if match := _OFF_BUS.search(text):
        return Event(OFF_BUS, 0, normal_pci(match["pci"]), "", text, seconds)
    for kind, one in TEXTS.items():
        if one.form.search(text):
            found = _SENDER.search(text) or _NAMED.search(text)
            return Event(kind, 0, normal_pci(found["pci"]) if found else "", "", text, seconds)
    return Event(UNKNOWN, 0, "", "", text, seconds) if _SUSPECT.search(text) else None


def _link(message: str) -> str:
    match = _LINK.search(message)
    return str(int(match[1])) if match and not match[1].startswith("-") else ""
