"""XIDs and SXids: what the error numbers of GPUs and of NVSwitches mean and what to do, as data.

Source: NVIDIA's Xid catalogue, of each row the immediate action and, where that is to ignore it, what to look
into. The severity is ours: FATAL where the catalogue asks for a reset, a reboot or support, and where DCGM
fails a GPU (48, 74, 79, 95, 119, 120, 140).

SXids: the tables of NVIDIA's Fabric Manager user guide. How bad one is, its message says; else the
table.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from wirewatch.core.types import Health


class Severity(Enum):
    """FATAL stays until a reset, SERIOUS is reported for a day, APPLICATION only if one GPU repeats it."""

    FATAL = "fatal"
    SERIOUS = "serious"
    APPLICATION = "application"
    NOTED = "noted"


@dataclass(frozen=True, slots=True)
class Xid:
    """What a number means and what to do, also where the message says `nonfatal`, if it can."""

    severity: Severity
    meaning: str
    action: str
    nonfatal: str = ""

    @property
    def by_word(self) -> bool:
        """Whether the message itself says how bad it is."""
        return bool(self.nonfatal)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What the driver asks for: how it is called, how bad that is, and what to do."""

    name: str
    health: Health
    action: str


RESET = "drain, then reset the GPU"
REBOOT = "drain and reboot the node; on bare metal, power it off and on"
NVLINK = (
    "drain and reset; compare this link with its peer: the fault may be at the other end; "
    "if it returns, have the cable, board or switch replaced"
)
RESTART = "restart the application; if one GPU reports this XID again and again, suspect that GPU"
CONTAINED = "restart the affected application"
MACHINE = "restart the virtual machine"
ENGINE = "restart the application; contact the vendor's support if it returns"
NOTHING = "nothing to do"
SUPPORT = "contact the vendor's support with the kernel log lines"
LATER = "no immediate action; contact the vendor's support if it returns"
CONVENIENCE = "reset the GPU when its jobs have ended; they are not affected until then"
NVLINK5 = f"{NVLINK}; give the vendor the registers in the log line"
UNSAID = f"check in the kernel log whether it is fatal; if so, {NVLINK5}"
HIT = f"{CONTAINED}, if there is one; contact the vendor's support if it returns"
SIGNAL = "no reset needed; if it returns, check this link's cable, seating and temperature"
RECOVERY_CHANGED = 154
FELL_OFF = 79

_F, _S, _A, _N = Severity.FATAL, Severity.SERIOUS, Severity.APPLICATION, Severity.NOTED
_COPY, _VIDEO, _IMAGE, _FLOW, _SECURITY = (
    Xid(_S, f"error of the GPU's {name}", ENGINE)
    for name in ("copy engine", "video decoder", "image decoder", "optical flow engine", "security engine")
)
_IGNORED = Xid(_N, "of no consequence", NOTHING)

XIDS: Mapping[int, Xid] = {
    8: Xid(_S, "a channel of the GPU does not answer", ENGINE),
    11: Xid(_S, "graphics engine: hardware that is not there", RESTART),
    13: Xid(_A, "graphics engine exception, mostly the application's fault", RESTART),
    14: _IGNORED,
    25: Xid(_S, "graphics engine: illegal notification", RESTART),
    31: Xid(_A, "GPU memory page fault, mostly the application's fault", RESTART),
    32: Xid(_S, "corrupted push buffer", RESTART),
    37: _IGNORED,
    38: Xid(_N, "firmware watchdog", NOTHING),
    **dict.fromkeys((39, 40, 41), _COPY),
    43: Xid(_N, "the application was stopped", NOTHING),
    44: Xid(_N, "graphics engine: fault in a context switch", NOTHING),
    45: Xid(_N, "preemptive removal of an application's channel", NOTHING),
    46: Xid(_F, "the GPU has stopped working", RESET),
    48: Xid(_F, "double-bit memory error", RESET),
    54: Xid(_S, "auxiliary power is not connected", "check the GPU's power cable and seating"),
    56: Xid(_S, "display engine error", SUPPORT),
    57: Xid(_S, "error programming the video memory interface", SUPPORT),
    58: Xid(_S, "unstable video memory interface", SUPPORT),
    60: _SECURITY,
    62: Xid(_F, "the GPU's power management unit halted", RESET),
    63: Xid(_S, "a memory row remapping was recorded", CONVENIENCE),
    64: Xid(_F, "a memory row remapping failed", f"{RESET}; {SUPPORT}"),
    65: Xid(_S, "video processor exception", SUPPORT),
    **dict.fromkeys((66, 67), _IGNORED),
    68: Xid(_S, "video processor exception", ENGINE),
    69: Xid(_S, "graphics engine class error", RESTART),
    **dict.fromkeys((70, 71, 72), _COPY),
    73: Xid(_S, "video processor exception", SUPPORT),
    74: Xid(_F, "NVLink error", NVLINK),
    **dict.fromkeys((75, 76, 77), _COPY),
    78: Xid(_S, "a virtual GPU could not start", "update driver and firmware of host and guest"),
    79: Xid(_F, "the GPU has fallen off the bus", REBOOT),
    80: Xid(_S, "corrupted data sent to the GPU", RESTART),
    81: Xid(_S, "VGA subsystem error", SUPPORT),
    82: _IMAGE,
    **dict.fromkeys((83, 84), _VIDEO),
    85: _COPY,
    86: _FLOW,
    **dict.fromkeys((88, 89), _VIDEO),
    92: Xid(_S, "high rate of corrected memory errors", LATER),
    93: Xid(_N, "wear limit of the InfoROM", NOTHING),
    94: Xid(_S, "contained memory error", CONTAINED),
    95: Xid(_F, "uncontained memory error", RESET),
    **dict.fromkeys(range(96, 99), _VIDEO),
    **dict.fromkeys(range(99, 106), _IMAGE),
    **dict.fromkeys((106, 107, 108), _IGNORED),
    109: Xid(_F, "context switch timeout", RESET),
    110: Xid(_F, "security fault", RESET),
    119: Xid(_F, "the GPU's system processor (GSP) does not answer", RESET),
    120: Xid(_F, "error of the GPU's system processor (GSP)", RESET),
    121: Xid(_N, "corrected error of the chip-to-chip link", NOTHING),
    **dict.fromkeys(range(126, 136), _COPY),
    136: Xid(_F, "NVLink training failed", NVLINK),
    137: Xid(_A, "NVLink privilege error, mostly wrong peer access by the application", RESTART),
    139: _FLOW,
    140: Xid(_F, "unrecovered memory error", RESET),
    141: Xid(_N, "fast path error", NOTHING),
    142: Xid(_S, "video encoder error", SUPPORT),
    143: Xid(_F, "the GPU could not be initialised", RESET),
    144: Xid(_S, "NVLink 5 error (SAW)", NVLINK5, LATER),
    145: Xid(_S, "NVLink 5 error (RLW)", NVLINK5, HIT),
    146: Xid(_S, "NVLink 5 error (TLW)", NVLINK5, LATER),
    147: Xid(_S, "NVLink 5 error (TREX)", NVLINK5, LATER),
    148: Xid(_S, "NVLink 5 error (NVLPW_CTRL)", NVLINK5, LATER),
    149: Xid(_S, "NVLink 5 error (NETIR)", NVLINK5, SIGNAL),
    150: Xid(_F, "NVLink 5 error (MSE)", NVLINK5, LATER),
    151: Xid(_S, "key rotation of confidential computing failed", MACHINE),
    154: Xid(_N, "the recovery action changed", "do what the driver asks for in the kernel log line"),
    155: Xid(_S, "NVLink taken down by software, which may be intended", RESET),
    156: Xid(_F, "resource retirement", RESET),
    157: Xid(_S, "resource retirement failed", LATER),
    158: Xid(_F, "fatal time-out of the GPU", RESET),
    159: Xid(_S, "error of the chip-to-chip link", "reset the GPU where unified memory or vGPU is used"),
    **dict.fromkeys((160, 161), Xid(_N, "channel retirement", NOTHING)),
    **dict.fromkeys(range(162, 166), Xid(_N, "power smoothing", NOTHING)),
    167: Xid(_S, "fatal PCIe time-out", SUPPORT),
    168: Xid(_S, "the GPU runs with less memory", SUPPORT),
    171: Xid(_N, "details of a DRAM error", NOTHING),
    172: Xid(_N, "details of an SRAM error", NOTHING),
}
UNLISTED = Xid(_S, "not in wirewatch's table", "look it up in the vendor's XID catalogue")
"""A number that the table does not have is reported, never dropped."""

RECOVERIES: Mapping[str, Recovery] = {
    one.name: one
    for one in (
        Recovery("none", Health.OK, NOTHING),
        Recovery("gpu reset", Health.FAILED, RESET),
        Recovery("node reboot", Health.FAILED, "drain and reboot the node"),
        Recovery(
            "drain p2p", Health.FAILED, "drain: let no new peer-to-peer job start here; reset when convenient"
        ),
        Recovery("drain and reset", Health.FAILED, RESET),
        Recovery("recover imex domain", Health.DEGRADED, "restart the IMEX service of this NVLink domain"),
        Recovery("bus reset", Health.FAILED, "drain, then reset the GPU's bus, or reboot the node"),
        Recovery("system reboot", Health.FAILED, "drain and reboot the node"),
    )
}
"""What the driver may ask for, by the name that NVML and XID 154 have in common."""
CAUSE = "this GPU's earlier XIDs show the cause"
HEALTH: Mapping[Severity, Health] = {Severity.FATAL: Health.FAILED, Severity.SERIOUS: Health.DEGRADED}


SWITCH_DRAIN = (
    "drain all GPUs of this NVLink domain; check the link named here from both ends, restart the fabric "
    "manager after a reset, and have the switch board replaced if the error returns"
)
"""For a fatal error."""
SWITCH_REBOOT = "drain and reboot the node: no reset of a GPU ends an error of the whole switch"
SWITCH_RESET = "drain, reset all GPUs and switches of this NVLink domain together, restart the fabric manager"
SWITCH_WATCH = "no immediate action; check whether NVLink errors or a fatal SXid of this link follow"
"""For one that is not fatal, and not in the table."""

_CORRECTED = "nothing to do: the switch has corrected the error; contact the vendor's support if it continues"
_PARTITION = "restart what runs on the GPUs of this link; check the fabric manager's partitions"
_FATAL_SXIDS = (
    *(11001, 11009, 11013, 11018, 11019, 11020, 12001, 12002, 12022, 12024, 12025, 12026, 12027, 12030),
    *(12031, 12032, 14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058),
    *(19060, 19061, 19063, 19064, 19066, 19067, 19069, 19070, 20034, 22012, 24004, 24005, 24006, 24007),
)
_ALWAYS_FATAL_SXIDS = (12020, 22003, 22011, *range(23001, 23018))
SWITCH_FATAL: Mapping[int, str] = {
    **dict.fromkeys(_FATAL_SXIDS, SWITCH_DRAIN),
    **dict.fromkeys(_ALWAYS_FATAL_SXIDS, SWITCH_REBOOT),
    10003: SWITCH_RESET,
}
"""What to do about those that the guide calls fatal, by number."""
SWITCH_NONFATAL: Mapping[int, str] = {
    **dict.fromkeys((11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011), _CORRECTED),
    **dict.fromkeys((19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071), _CORRECTED),
    **dict.fromkeys((24001, 24002, 24003), _CORRECTED),
    **dict.fromkeys((11004, 12028), _PARTITION),
    **dict.fromkeys((10001, 10002, 22013), "no immediate action; check whether a fatal SXid follows"),
    10004: "check the cooling of this node: the switch is hot",
    10005: "nothing to do if the switch stays cool",
    20001: "no immediate action; check this link if NVLink is slow",
    20012: "check the seating and the cable of this link",
    19084: SWITCH_RESET,
}
"""What to do about those that are not fatal, by number."""


def lookup(number: int) -> Xid:
    """The entry of an XID; UNLISTED for a number that the table does not have."""
    return XIDS.get(number, UNLISTED)


def recovery(words: str) -> Recovery:
    """What the driver asks for by the words of XID 154 or of NVML; one that is not known here is DEGRADED."""
    name = words.strip().lower().replace("_", " ").removesuffix(" required")
    return RECOVERIES.get(name) or Recovery(name, Health.DEGRADED, f"drain, then {name}")


def severity_of(number: int, message: str) -> Severity:
    """The severity of one event; on Blackwell's NVLink the message itself says Fatal or Nonfatal."""
    known = lookup(number)
    return by_word(message, known.severity) if known.by_word else known.severity


def action_of(number: int, message: str) -> str:
    """What to do about one event, by its number, and by what its message says where it says how bad it is."""
    known = lookup(number)
    if not known.by_word or severity_of(number, message) is Severity.FATAL:
        return known.action
    return known.nonfatal if by_word(message, Severity.NOTED) is Severity.SERIOUS else UNSAID


def by_word(message: str, otherwise: Severity) -> Severity:
    """The severity that a message names itself."""
    words = re.findall(r"[a-z]+", message.replace("-", "").lower())
    named = {"nonfatal": Severity.SERIOUS, "fatal": Severity.FATAL}
    return next((severity for word, severity in named.items() if word in words), otherwise)


def switch_severity(number: int, message: str) -> Severity:
    """The severity of one event: what its message says, else what the table says."""
    return by_word(message, Severity.FATAL if number in SWITCH_FATAL else Severity.SERIOUS)


def switch_action(number: int, message: str) -> str:
    """What to do about one event."""
    if switch_severity(number, message) is Severity.FATAL:
        return SWITCH_FATAL.get(number, SWITCH_DRAIN)
    return SWITCH_NONFATAL.get(number, SWITCH_WATCH)
