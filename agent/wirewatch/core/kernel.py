"""Records of /dev/kmsg, and which of them may concern the wires.

The form is the kernel's: `priority,sequence,microseconds,flags;text`, then lines of ` KEY=value`
(Documentation/ABI/testing/dev-kmsg).
"""

import re
from dataclasses import dataclass

WANTED = ("NVRM:", "nvidia-nvswitch", "nvidia-peermem", "nvidia_peermem", "mlx5_core ", "pcieport ")
"""A record is kept when it begins with one of these; the rest of the log is nobody's business."""

_RECORD = re.compile(r"\d{1,10},(\d{1,20}),(\d{1,20}),[^;]*;([^\n]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Record:
    """One message; `seconds` since the machine was started."""

    sequence: int
    seconds: float
    text: str


def wanted(raw: str) -> bool:
    return raw.partition(";")[2].startswith(WANTED)


def vital(raw: str) -> bool:
    """Whether a record may tell of an XID or of a GPU that has gone."""
    return any(word in raw for word in ("Xid", "fallen off the bus", "The NVIDIA GPU"))


def parse_record(raw: str) -> Record | None:
    """The record, None when it is not of the kernel's form."""
    match = _RECORD.match(raw)
    return Record(int(match[1]), int(match[2]) * 1e-6, match[3].rstrip()) if match else None
