"""What the node's RDMA ports sent, so that a collective that left by a NIC shows."""

from collections.abc import Mapping

from wirewatch.core.ports import Sysfs
from wirewatch.core.tree import RDMA, rdma_devices
from wirewatch.core.types import Absent

LANES = 4
"""port_xmit_data counts 4-byte words (InfiniBand, volume 1, PortCounters)."""


def sent_bytes(sysfs: Sysfs) -> Mapping[str, int]:
    """Bytes sent so far by `device:port`; what cannot be read is left out."""
    devices = rdma_devices(sysfs)
    found: dict[str, int] = {}
    for device in () if isinstance(devices, Absent) else devices:
        ports = sysfs.entries(f"{RDMA}/{device}/ports")
        for port in () if isinstance(ports, Absent) else ports:
            text = sysfs.read(f"{RDMA}/{device}/ports/{port}/counters/port_xmit_data")
            if isinstance(text, str) and text.isdigit():
                found[f"{device}:{port}"] = int(text) * LANES
    return found


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: after[name] - sent for name, sent in before.items() if after.get(name, -1) >= sent}
