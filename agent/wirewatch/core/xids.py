"""XIDs: what the driver's error numbers mean and what to do, as data.

Source: NVIDIA's Xid catalogue (sheet 1, immediate action) for `action`; the severity is ours: FATAL where the
catalogue asks for a reset, a reboot or support, and where DCGM fails a GPU (48, 74, 79, 95, 119, 120, 140).
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
    """What one error number means and what to do.

    `by_word`: the message itself names the severity, as on Blackwell's NVLink.
    """

    severity: Severity
    meaning: str
    action: str
    by_word: bool = False


RESET = "drain, then reset the GPU"
REBOOT = "drain and reboot the node; on bare metal power it off and on"
NVLINK = (
    "drain and reset; compare this link with its peer: the fault may be at the other end, "
    "and if it returns have the cable, board or switch replaced"
)
RESTART = "restart the application; the same XID on one GPU again and again points to that GPU"
NOTHING = "nothing to do"
SUPPORT = "ask the vendor's support with the lines of the kernel log"
CONVENIENCE = "reset the GPU when its jobs have ended; they are not affected until then"
NVLINK5 = f"{NVLINK}; the registers say more to the vendor"
RECOVERY_CHANGED = 154
FELL_OFF = 79

_F, _S, _A, _N = Severity.FATAL, Severity.SERIOUS, Severity.APPLICATION, Severity.NOTED

XIDS: Mapping[int, Xid] = {
    13: Xid(_A, "graphics engine exception, mostly the application's fault", RESTART),
    31: Xid(_A, "GPU memory page fault, mostly the application's fault", RESTART),
    43: Xid(_N, "the application was stopped", NOTHING),
    45: Xid(_N, "preemptive removal of an application's channel", NOTHING),
    48: Xid(_F, "double-bit memory error", RESET),
    56: Xid(_S, "display engine error", SUPPORT),
    57: Xid(_S, "error programming the video memory interface", SUPPORT),
    58: Xid(_S, "unstable video memory interface", SUPPORT),
    62: Xid(_F, "the GPU's power management unit halted", RESET),
    63: Xid(_S, "a memory row remapping was recorded", CONVENIENCE),
    64: Xid(_F, "a memory row remapping failed", f"{RESET}; {SUPPORT}"),
    65: Xid(_S, "video processor exception", SUPPORT),
    68: Xid(_S, "video processor exception", SUPPORT),
    69: Xid(_S, "graphics engine class error", RESTART),
    73: Xid(_S, "video processor exception", SUPPORT),
    74: Xid(_F, "NVLink error", NVLINK),
    79: Xid(_F, "the GPU has fallen off the bus", REBOOT),
    80: Xid(_S, "corrupted data sent to the GPU", SUPPORT),
    81: Xid(_S, "VGA subsystem error", SUPPORT),
    92: Xid(_S, "high rate of corrected memory errors", SUPPORT),
    94: Xid(_S, "contained memory error", "restart the application that was hit"),
    95: Xid(_F, "uncontained memory error", RESET),
    109: Xid(_F, "context switch timeout", RESET),
    110: Xid(_F, "security fault", RESET),
    119: Xid(_F, "the GPU's system processor (GSP) does not answer", RESET),
    120: Xid(_F, "error of the GPU's system processor (GSP)", RESET),
    121: Xid(_N, "corrected error of the chip-to-chip link", NOTHING),
    136: Xid(_F, "NVLink training failed", NVLINK),
    137: Xid(_A, "NVLink privilege error, mostly wrong peer access by the application", RESTART),
    140: Xid(_F, "unrecovered memory error", RESET),
    143: Xid(_F, "the GPU could not be initialised", RESET),
    144: Xid(_S, "NVLink 5 error (SAW)", NVLINK5, by_word=True),
    145: Xid(_S, "NVLink 5 error (RLW)", NVLINK5, by_word=True),
    146: Xid(_S, "NVLink 5 error (TLW)", NVLINK5, by_word=True),
    147: Xid(_S, "NVLink 5 error (TREX)", NVLINK5, by_word=True),
    148: Xid(_S, "NVLink 5 error (NVLPW_CTRL)", NVLINK5, by_word=True),
    149: Xid(_S, "NVLink 5 error (NETIR)", NVLINK5, by_word=True),
    150: Xid(_F, "NVLink 5 error (MSE)", NVLINK5, by_word=True),
    151: Xid(_S, "key rotation of confidential computing failed", "restart the virtual machine"),
    154: Xid(_N, "the recovery action changed", NOTHING),
    155: Xid(_S, "NVLink taken down by software, which may be meant", RESET),
    156: Xid(_F, "resource retirement", RESET),
    157: Xid(_S, "resource retirement failed", SUPPORT),
    158: Xid(_F, "fatal time-out of the GPU", RESET),
    160: Xid(_N, "channel retirement", NOTHING),
    161: Xid(_N, "channel retirement", NOTHING),
    162: Xid(_N, "power smoothing", NOTHING),
    163: Xid(_N, "power smoothing", NOTHING),
    164: Xid(_N, "power smoothing", NOTHING),
    165: Xid(_N, "power smoothing", NOTHING),
    167: Xid(_S, "fatal PCIe time-out", SUPPORT),
    168: Xid(_S, "the GPU runs with less memory", SUPPORT),
    171: Xid(_N, "details of a DRAM error", NOTHING),
    172: Xid(_N, "details of an SRAM error", NOTHING),
}
UNLISTED = Xid(_S, "not in this table", "look it up in the vendor's XID catalogue")
"""A number that the table does not have is reported, never dropped."""

RECOVERY: Mapping[str, str] = {
    "none": NOTHING,
    "gpu reset required": RESET,
    "gpu reset": RESET,
    "node reboot required": "drain and reboot the node",
    "node reboot": "drain and reboot the node",
    "drain p2p": "let no new peer-to-peer job start here; drain and reset when it suits",
    "drain and reset": RESET,
}
"""What XID 154 asks for, by its own words in lower case."""
HEALTH: Mapping[Severity, Health] = {Severity.FATAL: Health.FAILED, Severity.SERIOUS: Health.DEGRADED}


def lookup(number: int) -> Xid:
    """The entry of an XID; UNLISTED for a number that the table does not have."""
    return XIDS.get(number, UNLISTED)


def severity_of(number: int, message: str) -> Severity:
    """The severity of one event; on Blackwell's NVLink the message itself says Fatal or Nonfatal."""
    known = lookup(number)
    return by_word(message, known.severity) if known.by_word else known.severity


def by_word(message: str, otherwise: Severity) -> Severity:
    """The severity that a message names itself."""
    words = re.findall(r"[a-z]+", message.replace("-", "").lower())
    if "nonfatal" in words:
        return Severity.SERIOUS
    return Severity.FATAL if "fatal" in words else otherwise
