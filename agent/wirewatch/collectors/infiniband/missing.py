"""Where a network card is that is not listed among the RDMA devices.

A card that a pod got into its network namespace, or that a virtual machine got by vfio, is not gone: it is
away, which is no fault of it.
"""

from wirewatch.collectors.infiniband.values import Where
from wirewatch.core.ports import Sysfs
from wirewatch.core.tree import DEVICES
from wirewatch.core.types import Absent, Why

NETNS_MODE = "/sys/module/ib_core/parameters/netns_mode"
PASSED_ON = frozenset({"vfio-pci", "vfio_pci", "mlx5_vfio_pci", "uio_pci_generic"})
VENDORS = frozenset({"0x15b3", "0x1d0f"})
"""Mellanox/NVIDIA and Amazon (EFA)."""
INFINIBAND, ETHERNET = "0x0207", "0x0200"


def where_is(sysfs: Sysfs, address: str) -> Where:
    """Where the card at a PCI address is, once its RDMA device is not listed any more."""
    if not address:
        return Where(None, "not listed any more, and it has no PCI address to look at")
    there = sysfs.link(f"{DEVICES}/{address}")
    if isinstance(there, Absent):
        if there.why in {Why.MISSING, Why.LOST}:
            return Where(away=False, reason=f"no PCI device at {address} any more")
        return Where(None, str(there))
    return _by_driver(sysfs, address)


def _by_driver(sysfs: Sysfs, address: str) -> Where:
    bound = sysfs.link(f"{DEVICES}/{address}/driver")
    if isinstance(bound, Absent):
        if bound.why is Why.MISSING:
            return Where(away=False, reason=f"no driver is bound to {address}")
        return Where(None, str(bound))
    driver = bound.rpartition("/")[2]
    if driver in PASSED_ON:
        return Where(away=True, reason=f"passed on to a virtual machine or program ({driver})")
    return _in_namespace(sysfs, address, driver)


def _in_namespace(sysfs: Sysfs, address: str, driver: str) -> Where:
    """A card with its driver and no RDMA device: in another namespace, if the kernel has those."""
    shared = sysfs.read(NETNS_MODE)
    if not isinstance(shared, Absent):
        if shared in {"Y", "1"}:
            return Where(away=False, reason=f"{driver} is bound to {address} and offers no RDMA device")
        return Where(away=True, reason="moved into another network namespace")
    if shared.why is Why.MISSING:
        return Where(away=False, reason="the RDMA core (ib_core) is not loaded any more")
    return Where(None, str(shared))


def find_strays(sysfs: Sysfs, claimed: set[str]) -> dict[str, Where]:
    """Network cards of vendors that make RDMA, which no RDMA device claims, by PCI address.

    They count when ports are expected: the agent may have been started while a pod had the card. Virtual
    functions do not.
    """
    addresses = sysfs.entries(DEVICES)
    if isinstance(addresses, Absent):
        return {}
    found = {}
    for address in addresses:
        kind = sysfs.read(f"{DEVICES}/{address}/class")
        if address in claimed or isinstance(kind, Absent) or not kind.startswith((INFINIBAND, ETHERNET)):
            continue
        ours = sysfs.read(f"{DEVICES}/{address}/vendor") in VENDORS
        if ours and isinstance(sysfs.link(f"{DEVICES}/{address}/physfn"), Absent):
            found[address] = where_is(sysfs, address)
    return found
