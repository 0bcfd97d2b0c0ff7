"""Recognise a machine, so that wirewatch never takes the memory of another machine for its own."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from wirewatch.core.ports import Sysfs
from wirewatch.core.tree import RDMA, listed_uuids, rdma_devices
from wirewatch.core.types import Absent, value_or

_DMI = "/sys/class/dmi/id"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SAME_EVERYWHERE = frozenset({
    "03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009",
    "12345678-1234-5678-90ab-cddeefaabbcc", "12345678-1234-5678-1234-567812345678",
})  # fmt: skip
"""System UUIDs that firmware has before anyone sets a real UUID (systemd's list of bad product UUIDs)."""
_NO_SERIAL = re.compile(r"none|n/?a|default|filled|specified|unknown|serial|invalid|empty|applicable|o\.e\.m")
_LEAST = 5
"""The least number of characters of a serial."""
_GPU, _NIC, _BOARD = "gpu", "nic", "board"


@dataclass(frozen=True, slots=True)
class Machine:
    """The firmware's UUID of the system, and `kind:name` of board, GPUs and network cards."""

    system: str = ""
    names: tuple[str, ...] = ()


def read_machine(sysfs: Sysfs) -> Machine:
    """Identify the machine by files, without a driver; only root can read the system's UUID and serial."""
    return reduce(united, (read(sysfs) for read in READERS))


def _firmware(sysfs: Sysfs) -> Machine:
    serial = _serial(sysfs.read(f"{_DMI}/board_serial"))
    names = (f"{_BOARD}:{serial}",) if serial else ()
    return Machine(_system(sysfs.read(f"{_DMI}/product_uuid")), names)


def _gpus(sysfs: Sysfs) -> Machine:
    return Machine("", tuple(sorted(set(gpu_names(listed_uuids(sysfs))))))


def _cards(sysfs: Sysfs) -> Machine:
    devices = value_or(rdma_devices(sysfs), ())
    guids = (value_or(sysfs.read(f"{RDMA}/{device}/node_guid"), "") for device in devices)
    return Machine("", tuple(sorted(set(nic_names(guids)))))


READERS: Sequence[Callable[[Sysfs], Machine]] = (_firmware, _gpus, _cards)
"""Each reads the files of one part: a driver that hangs hides its own part and no other."""


def united(one: Machine, other: Machine) -> Machine:
    """Return the machine with the names of both; the system's UUID of the first counts."""
    return Machine(one.system or other.system, tuple(sorted({*one.names, *other.names})))


def gpu_names(uuids: Iterable[str]) -> Iterator[str]:
    """Return names of GPUs by UUID; a GPU without a known UUID has no name."""
    return (f"{_GPU}:{uuid}" for uuid in uuids if uuid)


def nic_names(guids: Iterable[str]) -> Iterator[str]:
    """Return names of network cards by GUID; a GUID of zeros alone, or of the highest digits, is no name."""
    return (f"{_NIC}:{guid}" for guid in guids if is_guid(guid))


def is_guid(text: str) -> bool:
    """Return whether a GUID names a card: some are zeros until firmware gives one."""
    return len(set(text.lower()) - set("0f:.x-")) > 0 or len(set(text.lower()) - set(":.x-")) > 1


def foreign(kept: Machine, now: Machine) -> str:
    """Return why kept data is another machine's, in words; empty where it is, or may be, this machine's.

    The system's UUID decides where both know it. Else one part in common is enough for the same machine.
    Without any common part of a kind that both know, it is another machine.
    """
    if kept.system and now.system:
        same = kept.system == now.system
        return "" if same else f"system UUID ...{kept.system[-4:]} instead of ...{now.system[-4:]}"
    if set(kept.names) & set(now.names):
        return ""
    kinds = _kinds(kept) & _kinds(now)
    if not kinds:
        return ""
    theirs = sorted(name for name in kept.names if name.partition(":")[0] in kinds)
    return f"none of its parts is here: {', '.join(f'...{name[-4:]}' for name in theirs)}"


def is_decided(kept: Machine, now: Machine) -> bool:
    """Return whether the known parts are enough to decide; otherwise ask the driver for its GPUs."""
    known = (kept.system and now.system) or set(kept.names) & set(now.names)
    return bool(known) or _GPU in _kinds(now) or _GPU not in _kinds(kept)


def _kinds(machine: Machine) -> set[str]:
    return {name.partition(":")[0] for name in machine.names}


def _system(text: str | Absent) -> str:
    uuid = value_or(text, "").strip().lower()
    plain = set(uuid) - {"-"}
    return uuid if _UUID.fullmatch(uuid) and len(plain) > 1 and uuid not in _SAME_EVERYWHERE else ""


def _serial(text: str | Absent) -> str:
    serial = value_or(text, "").strip()
    plain = [c for c in serial.lower() if c.isalnum()]
    counted = "".join(plain) in "01234567890" * 2
    wrong = len(plain) < _LEAST or len(set(plain)) == 1 or counted or _NO_SERIAL.search(serial.lower())
    return "" if wrong else serial
