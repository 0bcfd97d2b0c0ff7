"""Read the PCI tree through the sysfs port: places of GPUs, NICs and bridges, also without a driver."""

import re
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from wirewatch.core.pci import Place, generation, normal_pci, place, width
from wirewatch.core.ports import Sysfs
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.core.witnesses import Says

DEVICES = "/sys/bus/pci/devices"
RDMA = "/sys/class/infiniband"
NET = "/sys/class/net"
ONLINE_NODES = "/sys/devices/system/node/online"
_NETNS_MODE = "/sys/module/ib_core/parameters/netns_mode"
_PASSED_ON = frozenset({"uio_pci_generic", "pci-stub", "pciback"})
_VENDORS = frozenset({"0x15b3", "0x1d0f"})
"""Mellanox/NVIDIA and Amazon (EFA)."""
_INFINIBAND, _ETHERNET = "0x0207", "0x0200"
_RDMA_DRIVERS = frozenset({"mlx4_core", "mlx5_core", "efa"})
"""Drivers whose every function offers an RDMA device."""
_BOND = "bond"
"""In the name of an RDMA device that stands for all functions of its card."""
NVIDIA = "0x10de"
DRIVER = "nvidia"
_GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers; NVSwitches are bridges of another class."""
_LISTED = "/proc/driver/nvidia/gpus"
_FIELD = re.compile(r"([^:]+):\s*(.*)")
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The state of a network card that has no RDMA device now.

    `away`: True when it was given to a pod or virtual machine, False when it is lost, None when not known.
    `driver`: the bound driver that offers no RDMA device, though the RDMA core is loaded. `due`: it should
    offer an RDMA device, as a card for InfiniBand or as its siblings do.
    """

    away: bool | None
    reason: str
    driver: str = ""
    due: bool = False


@dataclass(frozen=True, slots=True)
class PciLink:
    """PCIe of a card: generation and lanes now, and the most that card and slot both support."""

    generation: int | Absent
    width: int | Absent
    generation_max: int | Absent
    width_max: int | Absent


@dataclass(frozen=True, slots=True)
class GpuSlot:
    """A GPU in the PCI tree; `driver` is empty where none is bound, Absent where that is not known.

    `withheld`: the driver's settings exclude it. `hidden`: the driver has it and does not list it here, as in
    a container without it. `handed`: a virtual machine or a program has it, or is about to. `model`: its PCI
    device id, empty where not known.
    """

    address: str
    driver: str | Absent
    withheld: bool = False
    handed: bool = False
    model: str = ""
    hidden: bool = False

    @property
    def away(self) -> bool:
        """Return whether another user has it, or nobody on purpose."""
        return self.handed or self.withheld or self.hidden

    @property
    def says(self) -> Says:
        """Return the word of the PCI tree about a GPU that NVML does not list."""
        if self.away:
            return Says.HIDDEN if self.hidden else Says.AWAY
        if isinstance(self.driver, Absent):
            return Says.NOTHING
        return Says.HERE if self.driver == DRIVER else Says.ILL


def read_place(sysfs: Sysfs, address: str) -> Place | Absent:
    """Return where the device with this PCI address sits."""
    if not address:
        return Absent(Why.MISSING, "no PCI address")
    resolved = sysfs.link(f"{DEVICES}/{address}")
    if isinstance(resolved, Absent):
        return resolved
    return place(resolved, sysfs.read(f"{DEVICES}/{address}/numa_node"))


def read_pci_link(sysfs: Sysfs, address: str) -> PciLink:
    """The PCIe link of the card with this PCI address, with what the bridge above it can."""
    at = f"{DEVICES}/{address}"
    own = generation(sysfs.read(f"{at}/max_link_speed")), width(sysfs.read(f"{at}/max_link_width"))
    resolved = sysfs.link(at)
    above = "" if isinstance(resolved, Absent) else resolved.rpartition("/")[0].rpartition("/")[2]
    slot: tuple[int | Absent | None, int | Absent | None] = None, None
    if above.count(":") == 2:  # noqa: PLR2004 - a bridge, not the root
        bridge = f"{DEVICES}/{above}"
        slot = (
            generation(sysfs.read(f"{bridge}/max_link_speed")),
            width(sysfs.read(f"{bridge}/max_link_width")),
        )
    return PciLink(
        generation=generation(sysfs.read(f"{at}/current_link_speed")),
        width=width(sysfs.read(f"{at}/current_link_width")),
        generation_max=_least(own[0], slot[0]),
        width_max=_least(own[1], slot[1]),
    )


def rdma_devices(sysfs: Sysfs) -> Sequence[str] | Absent:
    """Names of the RDMA devices; none where the kernel has no RDMA."""
    names = sysfs.entries(RDMA)
    return () if isinstance(names, Absent) and names.why in {Why.MISSING, Why.UNSUPPORTED} else names


def rdma_address(sysfs: Sysfs, device: str) -> str | Absent:
    """The PCI address behind an RDMA device; Absent where it hangs on another bus, as in some clouds."""
    return address_behind(sysfs, f"{RDMA}/{device}")


def address_behind(sysfs: Sysfs, at: str) -> str | Absent:
    """The PCI address behind a device of a class in sysfs; Absent where there is no card behind it."""
    resolved = sysfs.link(f"{at}/device")
    if isinstance(resolved, Absent):
        return resolved
    found = place(resolved, Absent(Why.UNSUPPORTED))
    return found if isinstance(found, Absent) else found.address


def rdma_place(sysfs: Sysfs, device: str) -> Place | Absent:
    """Return where the card of an RDMA device sits."""
    address = rdma_address(sysfs, device)
    return address if isinstance(address, Absent) else read_place(sysfs, address)


def count_nodes(sysfs: Sysfs) -> int | None:
    """NUMA nodes of the machine, None when not known."""
    ranges = [_RANGE.fullmatch(part) for part in value_or(sysfs.read(ONLINE_NODES), "").split(",")]
    counts = [int(m[2] or m[1]) - int(m[1]) + 1 if m else 0 for m in ranges]
    return sum(counts) if min(counts) > 0 else None


def where_is(sysfs: Sysfs, address: str) -> Whereabouts:
    """Return where a card without an RDMA device is; a pod or guest that has it makes it `away`, not lost."""
    if not address:
        return Whereabouts(None, "no longer listed, and it has no PCI address to look at")
    resolved = sysfs.link(f"{DEVICES}/{address}")
    if isinstance(resolved, Absent):
        if resolved.why in {Why.MISSING, Why.LOST}:
            return Whereabouts(away=False, reason=f"no PCI device at {address} any more")
        return Whereabouts(None, str(resolved))
    return _by_driver(sysfs, address)


def find_strays(sysfs: Sysfs, claimed: AbstractSet[str]) -> dict[str, Whereabouts]:
    """Return network cards of RDMA vendors that no RDMA device claims, by PCI address.

    They count when ports are expected: the agent may have been started while a pod had the card. Virtual
    functions do not count. A card for Ethernet is `due` an RDMA device where another card of its kind has
    one. Another function of the same card does not count there, since the functions may be bonded.
    """
    found = {}
    for address in value_or(sysfs.entries(DEVICES), ()):
        kind = value_or(sysfs.read(f"{DEVICES}/{address}/class"), "")
        if address in claimed or not kind.startswith((_INFINIBAND, _ETHERNET)):
            continue
        ours = sysfs.read(f"{DEVICES}/{address}/vendor") in _VENDORS
        if ours and not is_virtual(sysfs, address):
            where = where_is(sysfs, address)
            due = kind.startswith(_INFINIBAND) or _has_sibling(sysfs, address, claimed)
            found[address] = replace(where, due=due and (bool(where.driver) or where.due))
    return found


def rdma_strays(sysfs: Sysfs, claimed: Mapping[str, str]) -> dict[str, Whereabouts]:
    """Return strays that surely lack an RDMA device; a bond in `claimed` (PCI by name) claims its card."""
    bonded = {_card(address) for name, address in claimed.items() if _BOND in name}
    return {
        address: one
        for address, one in find_strays(sysfs, set(claimed.values())).items()
        if one.away is False and _card(address) not in bonded and _makes_rdma(sysfs, address)
    }


def is_virtual(sysfs: Sysfs, address: str) -> bool:
    """Return whether the device at a PCI address is a virtual function."""
    return bool(physical_function(sysfs, address))


def is_guest(sysfs: Sysfs, address: str) -> bool:
    """Return whether an address is a virtual function, or was: it is not listed while its card is."""
    listed = value_or(sysfs.entries(DEVICES), ())
    if address in listed:
        return is_virtual(sysfs, address)
    return f"{address.rpartition(':')[0]}:00.0" in listed


def physical_function(sysfs: Sysfs, address: str) -> str:
    """Return the PCI address of a virtual function's physical function; empty for a physical function."""
    resolved = sysfs.link(f"{DEVICES}/{address}/physfn")
    return "" if isinstance(resolved, Absent) else resolved.rpartition("/")[2]


def driver_of(sysfs: Sysfs, address: str) -> str | Absent:
    """The driver of the device at a PCI address; MISSING where none is bound."""
    bound = sysfs.link(f"{DEVICES}/{address}/driver")
    return bound if isinstance(bound, Absent) else bound.rpartition("/")[2]


def passes_on(driver: str) -> bool:
    """Return whether a driver passes its device on to a virtual machine or a program."""
    return "vfio" in driver or driver in _PASSED_ON


def gpu_addresses(sysfs: Sysfs, names: Collection[str], known: Mapping[str, bool]) -> dict[str, bool]:
    """Return whether each PCI device is a GPU of NVIDIA's; `known` are the earlier answers."""
    return {name: known[name] if name in known else is_gpu(sysfs, name) for name in names}


def is_gpu(sysfs: Sysfs, address: str) -> bool:
    """Return whether the PCI device at this address is a GPU of NVIDIA's; a virtual function is a guest's."""
    ours = value_or(sysfs.read(f"{DEVICES}/{address}/class"), "").startswith(_GPU_CLASSES)
    return ours and sysfs.read(f"{DEVICES}/{address}/vendor") == NVIDIA and not is_virtual(sysfs, address)


def gpu_places(sysfs: Sysfs) -> tuple[Place, ...]:
    """Return the places of all GPUs with a known place, also of GPUs without a driver."""
    names = (name for name in value_or(sysfs.entries(DEVICES), ()) if is_gpu(sysfs, name))
    return tuple(one for one in (read_place(sysfs, name) for name in names) if not isinstance(one, Absent))


def read_slot(sysfs: Sysfs, address: str) -> GpuSlot:
    """Return the driver of the GPU at this address, and whether it offers the GPU."""
    driver = driver_of(sysfs, address)
    if isinstance(driver, Absent) and driver.why is Why.MISSING:
        driver = ""
    handed = is_handed(sysfs, address)
    here = not handed and isinstance(driver, str) and driver != ""
    listed = {normal_pci(name): name for name in value_or(sysfs.entries(_LISTED), ())} if here else {}
    facts = _facts(sysfs, listed[address]) if address in listed else {}
    withheld = "Yes" in {facts.get("GPU Excluded"), facts.get("GPU Blacklisted")}
    hidden = bool(listed) and address not in listed
    return GpuSlot(address, driver, withheld, handed, gpu_model(sysfs, address), hidden)


def gpu_model(sysfs: Sysfs, address: str) -> str:
    """The PCI device id of a GPU, empty where not known."""
    return value_or(sysfs.read(f"{DEVICES}/{address}/device"), "")


def is_handed(sysfs: Sysfs, address: str) -> bool:
    """Return whether a device was handed on: by its driver, or by `driver_override` while it has none."""
    driver = driver_of(sysfs, address)
    if isinstance(driver, Absent) and driver.why is Why.MISSING:
        driver = sysfs.read(f"{DEVICES}/{address}/driver_override")
    return not isinstance(driver, Absent) and passes_on(driver)


def listed_uuids(sysfs: Sysfs) -> tuple[str, ...]:
    """Return UUIDs of the GPUs that the driver has, without asking it; none where it shows none."""
    uuids = (_facts(sysfs, name).get("GPU UUID", "") for name in value_or(sysfs.entries(_LISTED), ()))
    return tuple(uuid for uuid in uuids if uuid.startswith("GPU-") and "?" not in uuid)


def _facts(sysfs: Sysfs, name: str) -> dict[str, str]:
    lines = value_or(sysfs.read(f"{_LISTED}/{name}/information"), "").splitlines()
    return {m[1].strip(): m[2].strip() for m in map(_FIELD.match, lines) if m}


def _has_sibling(sysfs: Sysfs, address: str, claimed: AbstractSet[str]) -> bool:
    """Return whether another card of the same kind offers RDMA, and no other function of this card does."""
    kind = sysfs.read(f"{DEVICES}/{address}/device")
    others = [other for other in claimed if other]
    if isinstance(kind, Absent) or any(_card(other) == _card(address) for other in others):
        return False
    return any(sysfs.read(f"{DEVICES}/{other}/device") == kind for other in others)


def _least(card: int | Absent, slot: int | Absent | None) -> int | Absent:
    """Return the most that both ends support; a slot that reports nothing limits nothing."""
    if isinstance(card, Absent) or slot is None or isinstance(slot, Absent):
        return card
    return min(card, slot)


def _card(address: str) -> str:
    return address.rpartition(".")[0]


def _makes_rdma(sysfs: Sysfs, address: str) -> bool:
    is_infiniband = value_or(sysfs.read(f"{DEVICES}/{address}/class"), "").startswith(_INFINIBAND)
    # An Ethernet card may be used for nothing else, without the RDMA core.
    has_core = not isinstance(sysfs.read(_NETNS_MODE), Absent)
    return is_infiniband or (has_core and driver_of(sysfs, address) in _RDMA_DRIVERS)


def _by_driver(sysfs: Sysfs, address: str) -> Whereabouts:
    driver = driver_of(sysfs, address)
    if is_handed(sysfs, address):
        by = value_or(driver, "driver_override")
        return Whereabouts(away=True, reason=f"passed on to a virtual machine or program ({by})")
    if isinstance(driver, Absent):
        if driver.why is Why.MISSING:
            return Whereabouts(away=False, reason=f"{address} has no driver", due=True)
        return Whereabouts(None, str(driver))
    return _in_namespace(sysfs, address, driver)


def _in_namespace(sysfs: Sysfs, address: str, driver: str) -> Whereabouts:
    """Return where a card with a driver and no RDMA device is: in another namespace if the kernel has any."""
    shared = sysfs.read(_NETNS_MODE)
    if not isinstance(shared, Absent):
        if shared in {"Y", "1"}:
            reason = f"{driver} is bound to {address} and offers no RDMA device"
            return Whereabouts(away=False, reason=reason, driver=driver)
        return Whereabouts(away=True, reason="moved into another network namespace")
    if shared.why is Why.MISSING:
        return Whereabouts(away=False, reason="the RDMA core (ib_core) is not loaded any more")
    return Whereabouts(None, str(shared))
