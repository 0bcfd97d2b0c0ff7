"""SXids: what the error numbers of an NVSwitch ask for, as data.

Source: NVIDIA's Fabric Manager user guide, its tables of non-fatal, fatal, always fatal and other errors. How
bad an event is, the message itself says; the table says it where a message does not, and what to do.
"""

from collections.abc import Mapping

from wirewatch.core.xids import Severity, by_word

FABRIC = (
    "drain all GPUs of this NVLink domain; look at the link named here from both ends, restart the fabric "
    "manager after a reset, and have the switch board replaced if it returns"
)
"""For a fatal error."""
REBOOT = "drain and reboot the node: no reset of a GPU ends an error of the whole switch"
RESET_ALL = "drain, reset all GPUs and switches of this NVLink domain together, restart the fabric manager"
WATCH = "nothing to do at once; look whether NVLink errors or a fatal SXid of this link follow"
"""For one that is not fatal, and not in the table."""

_CORRECTED = "nothing to do: the switch has corrected it; ask the vendor's support if it goes on"
_PARTITION = "restart what runs on the GPUs of this link; look at the partitions of the fabric manager"
_FATAL = (
    *(11001, 11009, 11013, 11018, 11019, 11020, 12001, 12002, 12022, 12024, 12025, 12026, 12027, 12030),
    *(12031, 12032, 14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058),
    *(19060, 19061, 19063, 19064, 19066, 19067, 19069, 19070, 20034, 22012, 24004, 24005, 24006, 24007),
)
_ALWAYS_FATAL = (12020, 22003, 22011, *range(23001, 23018))
FATAL: Mapping[int, str] = {
    **dict.fromkeys(_FATAL, FABRIC),
    **dict.fromkeys(_ALWAYS_FATAL, REBOOT),
    10003: RESET_ALL,
}
"""What to do about those that the guide calls fatal, by number."""
NONFATAL: Mapping[int, str] = {
    **dict.fromkeys((11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011), _CORRECTED),
    **dict.fromkeys((19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071), _CORRECTED),
    **dict.fromkeys((24001, 24002, 24003), _CORRECTED),
    **dict.fromkeys((11004, 12028), _PARTITION),
    **dict.fromkeys((10001, 10002, 22013), "nothing to do at once; look whether a fatal SXid follows"),
    10004: "look at the cooling of this node: the switch is hot",
    10005: "nothing to do if the switch stays cool",
    20001: "nothing to do at once; look at this link if NVLink is slow",
    20012: "look at the seat and the cable of this link",
    19084: RESET_ALL,
}
"""What to do about those that are not fatal, by number."""


def severity_of(number: int, message: str) -> Severity:
    """The severity of one event, by its own word, else by the table."""
    return by_word(message, Severity.FATAL if number in FATAL else Severity.SERIOUS)


def action_of(number: int, message: str) -> str:
    """What to do about one event."""
    if severity_of(number, message) is Severity.FATAL:
        return FATAL.get(number, FABRIC)
    return NONFATAL.get(number, WATCH)
