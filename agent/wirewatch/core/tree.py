"""Reading the PCI tree through the sysfs port: where GPUs, NICs and bridges sit."""

import re
from collections.abc import Sequence

from wirewatch.core.pci import Place, place
from wirewatch.core.ports import Sysfs
from wirewatch.core.types import Absent, Why

DEVICES = "/sys/bus/pci/devices"
RDMA = "/sys/class/infiniband"
ONLINE_NODES = "/sys/devices/system/node/online"
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


def read_place(sysfs: Sysfs, address: str) -> Place | Absent:
    """Where the device with this PCI address sits."""
    if not address:
        return Absent(Why.MISSING, "no PCI address")
    resolved = sysfs.link(f"{DEVICES}/{address}")
    if isinstance(resolved, Absent):
        return resolved
    return place(resolved, sysfs.read(f"{DEVICES}/{address}/numa_node"))


def rdma_devices(sysfs: Sysfs) -> Sequence[str] | Absent:
    """Names of the RDMA devices; none where the kernel has no RDMA."""
    names = sysfs.entries(RDMA)
    if isinstance(names, Absent) and names.why in {Why.MISSING, Why.UNSUPPORTED}:
        return ()
    return names


def rdma_address(sysfs: Sysfs, device: str) -> str | Absent:
    """The PCI address behind an RDMA device; Absent where it hangs on another bus, as in some clouds."""
    resolved = sysfs.link(f"{RDMA}/{device}/device")
    if isinstance(resolved, Absent):
        return resolved
    found = place(resolved, Absent(Why.UNSUPPORTED))
    return found if isinstance(found, Absent) else found.address


def rdma_place(sysfs: Sysfs, device: str) -> Place | Absent:
    """Where the card of an RDMA device sits."""
    address = rdma_address(sysfs, device)
    return address if isinstance(address, Absent) else read_place(sysfs, address)


def count_nodes(sysfs: Sysfs) -> int | None:
    """NUMA nodes of the machine, None when not told."""
    text = sysfs.read(ONLINE_NODES)
    if isinstance(text, Absent):
        return None
    ranges = [_RANGE.fullmatch(part) for part in text.split(",")]
    counts = [int(m[2] or m[1]) - int(m[1]) + 1 if m else 0 for m in ranges]
    return sum(counts) if min(counts) > 0 else None
