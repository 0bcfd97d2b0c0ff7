"""GPUs as the PCI tree and the driver's own files show them, beside NVML, which may not list them all."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from wirewatch.core.pci import normal_pci
from wirewatch.core.ports import Sysfs
from wirewatch.core.tree import DEVICES, driver_of, is_virtual, passes_on
from wirewatch.core.types import Absent, Why

NVIDIA = "0x10de"
DRIVER = "nvidia"
_GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers; NVSwitches are bridges of another class."""
_LISTED = "/proc/driver/nvidia/gpus"
_FIELD = re.compile(r"([^:]+):\s*(.*)")


@dataclass(frozen=True, slots=True)
class GpuSlot:
    """A GPU in the PCI tree; `driver` is empty where none is bound, Absent where that is not known.

    `withheld`: the driver has it and does not show it here: it is excluded by the driver's settings, was not
    given to this container, or is a virtual function, which belongs to a guest.
    """

    address: str
    driver: str | Absent
    withheld: bool = False

    @property
    def held(self) -> bool:
        """Whether NVIDIA's driver has it, and should offer it."""
        return self.driver == DRIVER and not self.withheld

    @property
    def lent(self) -> bool:
        """Whether a virtual machine or a program has it, or it is withheld on purpose."""
        return self.withheld or (not isinstance(self.driver, Absent) and passes_on(self.driver))


def gpu_addresses(sysfs: Sysfs, names: Collection[str], known: Mapping[str, bool]) -> dict[str, bool]:
    """Whether each PCI device is a GPU of NVIDIA's; `known` are the answers of before."""
    return {name: known[name] if name in known else is_gpu(sysfs, name) for name in names}


def is_gpu(sysfs: Sysfs, address: str) -> bool:
    """Whether the PCI device at this address is a GPU of NVIDIA's."""
    kind = sysfs.read(f"{DEVICES}/{address}/class")
    ours = not isinstance(kind, Absent) and kind.startswith(_GPU_CLASSES)
    return ours and sysfs.read(f"{DEVICES}/{address}/vendor") == NVIDIA


def read_slot(sysfs: Sysfs, address: str) -> GpuSlot:
    """Which driver has the GPU at this address, and whether it offers it."""
    driver = driver_of(sysfs, address)
    if isinstance(driver, Absent):
        return GpuSlot(address, "" if driver.why is Why.MISSING else driver)
    return GpuSlot(address, driver, _withheld(sysfs, address))


def listed_uuids(sysfs: Sysfs) -> tuple[str, ...]:
    """UUIDs of the GPUs that the driver has, without asking it; none where it shows none."""
    names = sysfs.entries(_LISTED)
    found = (_facts(sysfs, name) for name in (() if isinstance(names, Absent) else names))
    uuids = (facts.get("GPU UUID", "") for facts in found if facts)
    return tuple(uuid for uuid in uuids if uuid.startswith("GPU-") and "?" not in uuid)


def _withheld(sysfs: Sysfs, address: str) -> bool:
    if is_virtual(sysfs, address):
        return True
    names = sysfs.entries(_LISTED)
    if isinstance(names, Absent) or not names:
        return False
    here = {normal_pci(name): name for name in names}
    if address not in here:
        return True
    facts = _facts(sysfs, here[address])
    return "Yes" in {facts.get("GPU Excluded"), facts.get("GPU Blacklisted")}


def _facts(sysfs: Sysfs, name: str) -> dict[str, str]:
    text = sysfs.read(f"{_LISTED}/{name}/information")
    lines = () if isinstance(text, Absent) else text.splitlines()
    return {m[1].strip(): m[2].strip() for m in map(_FIELD.match, lines) if m}
