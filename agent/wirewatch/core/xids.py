"""XIDs and SXids as data: the error numbers of GPUs and NVSwitches, their meaning and action.

Source: NVIDIA's Xid catalogue, the immediate action of each row. Where that is to ignore the event, the row
says what to look into. The severity is ours. FATAL: the catalogue asks for a reset, a reboot or support, or
DCGM fails a GPU (48, 74, 79, 95, 119, 120, 140). NOTED: the catalogue says to ignore the event.

SXids: the tables of NVIDIA's Fabric Manager user guide, DU-09883, appendix D. An action that drains is FATAL,
whatever the message calls itself.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from wirewatch.core.types import Health
from wirewatch.core.words import RESET_GPU


class Severity(Enum):
    """FATAL stays until a reset, SERIOUS is reported for a day, APPLICATION only if one GPU repeats it.

    UNREAD lasts a day: the severity depends on its text, which was not read. NOTED is counted and shown only.
    """

    FATAL = "fatal"
    UNREAD = "unread"
    SERIOUS = "serious"
    APPLICATION = "application"
    NOTED = "noted"


@dataclass(frozen=True, slots=True)
class Xid:
    """The meaning of a number and its action; `nonfatal`: the action where the message says that word."""

    severity: Severity
    meaning: str
    action: str
    nonfatal: str = ""

    @property
    def by_word(self) -> bool:
        """Return whether the message itself names its severity."""
        return bool(self.nonfatal)


@dataclass(frozen=True, slots=True)
class VendorRow:
    """The severity of one form of an event by the vendor's table, and its action."""

    severity: Severity
    action: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """A recovery that the driver asks for: its name, severity and action."""

    name: str
    health: Health
    action: str


RESET = f"drain; {RESET_GPU}"
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
CONVENIENCE = f"when its jobs have ended, {RESET_GPU}; they are not affected until then"
NVLINK5 = f"{NVLINK}; give the vendor the registers in the log line"
UNSAID = "read this XID's line in the kernel log: its registers say whether the link needs a reset"
HIT = f"{CONTAINED}, if there is one; contact the vendor's support if it returns"
SIGNAL = "no reset needed; if it returns, check this link's cable, seating and temperature"
PEER = f"the vendor's table blames the device at the other end of this link: look there first; {NVLINK}"
OLDER = "look for XID 48, 94 or 95 of this GPU in an older kernel log; run the vendor's diagnostics"
FOLLOW = "do what the driver asks for in XID 154; restart the affected application"
ECC = f"{NVLINK}; an ECC or parity error: report it to the vendor if it comes more than twice on this link"
SEATING = f"{NVLINK}; check this link's connections, reseat, and run the vendor's diagnostics"
MARGINAL = f"{NVLINK}; a marginal signal: check this link's connections, and run the vendor's diagnostics"
SECONDARY = f"{NVLINK}; mostly the effect of another error: follow that one; alone, report it"
RETURNING = f"{NVLINK}; report it to the vendor if it returns"
THRESHOLD = "no reset needed: many corrected ECC errors; run the vendor's diagnostics when convenient"
RECOVERY_CHANGED = 154
NVLINK_ERROR = 74
FELL_OFF = 79
DETAILS: Mapping[int, frozenset[int]] = dict.fromkeys((171, 172), frozenset({48, 94, 95}))
"""XIDs that only give details of an error, and the numbers of these errors."""

_F, _S, _A, _N = Severity.FATAL, Severity.SERIOUS, Severity.APPLICATION, Severity.NOTED
_U = Severity.UNREAD
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
    92: Xid(_N, "high rate of corrected memory errors", LATER),
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
    144: Xid(_U, "NVLink 5 error (SAW)", NVLINK5, LATER),
    145: Xid(_U, "NVLink 5 error (RLW)", NVLINK5, HIT),
    146: Xid(_U, "NVLink 5 error (TLW)", NVLINK5, LATER),
    147: Xid(_U, "NVLink 5 error (TREX)", NVLINK5, LATER),
    148: Xid(_U, "NVLink 5 error (NVLPW_CTRL)", NVLINK5, LATER),
    149: Xid(_U, "NVLink 5 error (NETIR)", NVLINK5, SIGNAL),
    150: Xid(_F, "NVLink 5 error (MSE)", NVLINK5, LATER),
    151: Xid(_S, "key rotation of confidential computing failed", MACHINE),
    **dict.fromkeys((152, 153), Xid(_N, "error of the deep learning accelerator", NOTHING)),
    154: Xid(_N, "the recovery action changed", "do what the driver asks for in the kernel log line"),
    155: Xid(_F, "NVLink taken down by software, which may be intended", RESET),
    156: Xid(_F, "resource retirement", RESET),
    157: Xid(_N, "resource retirement failed", LATER),
    158: Xid(_F, "fatal time-out of the GPU", RESET),
    159: Xid(_S, "error of the chip-to-chip link", f"where unified memory or vGPU is used, {RESET_GPU}"),
    **dict.fromkeys((160, 161), Xid(_N, "channel retirement", NOTHING)),
    **dict.fromkeys(range(162, 166), Xid(_N, "power smoothing", NOTHING)),
    167: Xid(_S, "fatal PCIe time-out", SUPPORT),
    168: Xid(_S, "the GPU runs with less memory", SUPPORT),
    171: Xid(_U, "details of a DRAM error, whose own XID was not seen", OLDER),
    172: Xid(_U, "details of an SRAM error, whose own XID was not seen", OLDER),
}
UNLISTED = Xid(_S, "not in wirewatch's table", "look it up in the vendor's XID catalogue")
"""A number that the table does not have is reported, never dropped."""

NVLINK_BITS: Mapping[tuple[int, int], VendorRow] = {
    (register, bit): row
    for register, bits, row in (
        (1, (0, 23, 30), VendorRow(_N, NOTHING)),
        (1, (4, 5), VendorRow(_F, ECC)),
        (1, (8, 9, 12, 16, 17, 24, 28), VendorRow(_F, SEATING)),
        (1, (21, 22), VendorRow(_F, MARGINAL)),
        (1, (27, 29), VendorRow(_F, RETURNING)),
        (1, (1, 20), VendorRow(_F, SECONDARY)),
        (3, (0, 1, 2, 6), VendorRow(_F, ECC)),
        (3, (13, 16, 17, 18, 19), VendorRow(_F, RETURNING)),
        (4, (16, 17, 18), VendorRow(_F, SECONDARY)),
        (5, (18, 19, 21, 22, 24, 25, 27, 28), VendorRow(_F, ECC)),
        (5, (20, 23, 26, 29), VendorRow(_S, THRESHOLD)),
    )
    for bit in bits
}
"""Rows of XID 74 by register, from 1, and bit: WORKFLOW_NVLINK_ERR of the catalogue (NVSentinel#364)."""
_SPURIOUS = 0x80000000
_FORMS = (
    # XID, units, and error statuses to ignore, to follow XID 154 for, and to reset for.
    (144, "SAW_MVB", (0x1, 0x4, 0x8, 0x20), (), (0x2, 0x10)),
    (145, "RLW_CTRL", (_SPURIOUS,), (), ()),
    (145, "RLW_REMAP", (0x100, 0x200, _SPURIOUS), (0x1, 0x2, 0x4, 0x8, 0x10, 0x20), (0x40, 0x80)),
    (145, "RLW_RSPCOL", (0x1, _SPURIOUS), (), (0x2,)),
    (145, "RLW_RXPIPE", (0x1, 0x2, 0x4, 0x8, _SPURIOUS), (), ()),
    (145, "RLW_SRC_TRACK", (0x2, _SPURIOUS), (0x4, 0x8), (0x1, 0x10, 0x20)),
    (145, "RLW_TAGSTATE", (0x1, 0x10000, _SPURIOUS), (), (0x2, 0x20000, 0x100000)),
    (146, "TLW_CTRL TLW_RX TLW_RX_PIPE0 TLW_RX_PIPE1", (0x1, 0x2, _SPURIOUS), (), (0x4,)),
    (146, "TLW_TX TLW_TX_PIPE0 TLW_TX_PIPE1", (0x1, 0x2, _SPURIOUS), (), (0x4,)),
    (147, "TREX", (0x1, _SPURIOUS), (), ()),
    (148, "NVLPW_CTRL NVLPW", (_SPURIOUS,), (), ()),
    (149, "NETIR NETIR_INT", (), (), (0x0,)),
    (149, "NETIR_BER_EVENT", (0x0, 0x1, 0x2, 0x3), (), ()),
    (149, "NETIR_MFDE_EVENT", (0x3,), (), (0x1, 0x4, 0x5, 0x7)),
    (150, "MSE_WATCHDOG", (), (), (0x0,)),
)
_LINK_DOWN = (
    (VendorRow(_N, NOTHING), (38, 40)),
    (VendorRow(_F, PEER), (21, *range(32, 38))),
    (VendorRow(_F, NVLINK5), (0, 1, 2, 4, 10, 15, 16, 17, 18, 22, 42, 43)),
)
"""NETIR_LINK_EVT of XID 149 by sub-code; its error status is 0."""
NVLINK5_ROWS: Mapping[tuple[int, str, int, int], VendorRow] = {
    **{
        (number, unit, 0, status): VendorRow(severity, action)
        for number, units, *told in _FORMS
        for (severity, action), statuses in zip(
            ((_N, NOTHING), (_S, FOLLOW), (_F, NVLINK5)), told, strict=True
        )
        for unit in units.split()
        for status in statuses
    },
    **{
        (149, unit, code, 0): row
        for row, codes in _LINK_DOWN
        for code in codes
        for unit in ("NETIR_LINK_EVT", "NETIR_LINK_DOWN")
    },
}
"""XIDs 144 to 150 by unit, sub-code and error status: the catalogue's decode table (also in gpud)."""
_PROMOTED = {("RLW_RXPIPE", status) for status in (0x1, 0x2, 0x4)}
"""Ignored unless firmware has made the error fatal, which the message says."""
_REGISTERS = re.compile(r"\((0x[0-9a-f]{1,8}(?:[, ]+0x[0-9a-f]{1,8})*)\)", re.IGNORECASE)

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
        Recovery(
            "bus reset",
            Health.FAILED,
            "drain; `wirewatch release --for 10m`, then reset the GPU's bus; or reboot the node",
        ),
        Recovery("system reboot", Health.FAILED, "drain and reboot the node"),
    )
}
"""Recoveries that the driver may ask for, by the name that NVML and XID 154 have in common."""
CAUSE = "this GPU's other XIDs, if there are any, show the cause"
HEALTH: Mapping[Severity, Health] = {
    Severity.FATAL: Health.FAILED, Severity.UNREAD: Health.UNKNOWN, Severity.SERIOUS: Health.DEGRADED,
}  # fmt: skip


SWITCH_DRAIN = (
    "drain all GPUs of this NVLink domain; check the link named here from both ends, restart the fabric "
    "manager after a reset, and have the switch board replaced if the error returns"
)
"""Advice for a fatal error of a switch."""
SWITCH_REBOOT = "drain and reboot the node: no reset of a GPU ends an error of the whole switch"
SWITCH_RESET = "drain, reset all GPUs and switches of this NVLink domain together, restart the fabric manager"
SWITCH_WATCH = "no immediate action; check whether NVLink errors or a fatal SXid of this link follow"
"""Advice for an error of a switch that is not fatal and has no row."""

_PARTITION = (
    "drain: NVLink traffic of this link stands still; restart what runs on its GPUs, or the virtual machine; "
    "check the fabric manager's partitions"
)
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
"""The action on each XID that the guide calls fatal, by number."""
_CORRECTED = VendorRow(_N, "nothing to do: the switch has corrected the error")
SWITCH_NONFATAL: Mapping[int, VendorRow] = {
    **dict.fromkeys((11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011), _CORRECTED),
    **dict.fromkeys((19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071), _CORRECTED),
    **dict.fromkeys((24001, 24002, 24003), _CORRECTED),
    10005: VendorRow(_N, "nothing to do if the switch stays cool"),
    22013: VendorRow(_N, NOTHING),
    **dict.fromkeys((10001, 10002), VendorRow(_S, "no immediate action; check whether a fatal SXid follows")),
    10004: VendorRow(_S, "check the cooling of this node: the switch is hot"),
    20001: VendorRow(_S, "no immediate action; check this link if NVLink is slow"),
    20012: VendorRow(_S, "check the seating and the cable of this link"),
    **dict.fromkeys((11004, 12028), VendorRow(_F, _PARTITION)),
    19084: VendorRow(_F, SWITCH_RESET),
}
"""SXids that the guide does not call fatal, by number: severity and action."""
_WATCHED = VendorRow(_S, SWITCH_WATCH)
_SWITCH_SEVERITY = re.compile(r"Severity ([01]) Engine")
"""The severity in a data line of an SXid; 1 is fatal."""


def lookup(number: int) -> Xid:
    """The entry of an XID; UNLISTED for a number that the table does not have."""
    return XIDS.get(number, UNLISTED)


def recovery(words: str) -> Recovery:
    """Return the recovery that the driver asks for, by its words or by NVML's; other words are UNKNOWN."""
    name = words.strip().lower().replace("_", " ").removesuffix(" required")
    return RECOVERIES.get(name) or Recovery(name, Health.UNKNOWN, f"the driver asks for: {name}; {SUPPORT}")


def row_of(number: int, message: str) -> VendorRow | None:
    """Return the vendor's row for the registers in a message; None without registers or without a row."""
    registers = _registers(message)
    if number == NVLINK_ERROR:
        return _row_of_bits(registers)
    units = message.split(maxsplit=1)[0].split("/") if message.strip() else []
    if len(registers) > 1:
        code, status = registers[0] >> 20 & 0x3F, registers[1]
        for unit in units:
            promoted = (unit, status) in _PROMOTED and by_word(message, _N) is _F
            if not promoted and (row := NVLINK5_ROWS.get((number, unit, code, status))):
                return row
    return None


def decoded(number: int, message: str) -> str:
    """Return the reading of the registers of an XID from 144 to 150, in words."""
    if row_of(number, message) is None:
        return "registers not decoded"
    code, status, *_ = (*_registers(message), 0)
    return f"sub-code {code >> 20 & 0x3F}, error status {status:#x}"


def _registers(message: str) -> list[int]:
    found = _REGISTERS.search(message)
    return [int(one, 16) for one in re.findall("0x[0-9a-f]+", found[1].lower())] if found else []


def _row_of_bits(registers: Sequence[int]) -> VendorRow | None:
    """Return the worst row of all set bits; a bit that the table does not have is fatal."""
    bits = [(n, bit) for n, value in enumerate(registers, 1) for bit in range(32) if value >> bit & 1]
    rows = [NVLINK_BITS.get(bit, VendorRow(_F, RETURNING)) for bit in bits]
    order = (_F, _S, _N)
    return min(rows, key=lambda row: (order.index(row.severity), row.action == SECONDARY), default=None)


def severity_of(number: int, message: str) -> Severity:
    """The severity of one event: the vendor's row for its registers, else its own word, else its number's."""
    known = lookup(number)
    if row := row_of(number, message):
        return row.severity
    if number == NVLINK_ERROR and not message:
        return Severity.UNREAD
    return by_word(message, known.severity) if known.by_word else known.severity


def action_of(number: int, message: str) -> str:
    """Return the action for one event: by the vendor's row for its registers, else by its number."""
    known, severity = lookup(number), severity_of(number, message)
    if row := row_of(number, message):
        return row.action
    if severity is Severity.UNREAD and (known.by_word or number == NVLINK_ERROR):
        return UNSAID
    return known.nonfatal if known.by_word and severity is Severity.SERIOUS else known.action


def by_word(message: str, otherwise: Severity) -> Severity:
    """The severity that a message names itself."""
    words = re.findall(r"[a-z]+", message.replace("-", "").lower())
    named = {"nonfatal": Severity.SERIOUS, "fatal": Severity.FATAL}
    return next((severity for word, severity in named.items() if word in words), otherwise)


def switch_row(number: int, message: str) -> VendorRow:
    """Return the severity and action of a switch's event: fatal by its message, or by the guide."""
    coded = _SWITCH_SEVERITY.search(message)
    word = ("Non-fatal", "Fatal")[int(coded[1])] if coded else message
    severity = by_word(word, Severity.FATAL if number in SWITCH_FATAL else Severity.SERIOUS)
    if severity is Severity.FATAL:
        return VendorRow(severity, SWITCH_FATAL.get(number, SWITCH_DRAIN))
    return SWITCH_NONFATAL.get(number, _WATCHED)
