"""The files that a recording holds: PCI tree, RDMA devices, network devices, modules, NCCL's own."""

from collections.abc import Iterator, Sequence

from wirewatch.core.ports import Sysfs
from wirewatch.core.types import Absent

PCI = "/sys/bus/pci/devices"
PCI_FILES = (
    "vendor", "device", "class", "revision", "subsystem_vendor", "subsystem_device", "numa_node",
    "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "local_cpulist",
    "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal",
)  # fmt: skip
BRIDGE = "0x0604"
VERBS = "/sys/class/infiniband_verbs"
IOMMU_GROUPS = "/sys/kernel/iommu_groups"
NET = "/sys/class/net"
NET_FILES = ("address", "mtu", "operstate", "speed", "carrier_changes", "carrier_down_count", "type")
RDMA = "/sys/class/infiniband"
RDMA_FILES = (
    "board_id",
    "fw_ver",
    "hca_type",
    "hw_rev",
    "node_guid",
    "node_type",
    "sys_image_guid",
    "node_desc",
)
PORT_FILES = ("state", "phys_state", "link_layer", "rate", "lid", "lid_mask_count", "sm_lid", "cap_mask")
MODULES = (
    "nvidia",
    "nvidia_peermem",
    "nv_peer_mem",
    "ib_core",
    "ib_uverbs",
    "mlx5_core",
    "mlx5_ib",
    "gdrdrv",
)
SINGLE = (
    "/sys/kernel/mm/memory_peers/nv_mem/version",
    "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "/proc/driver/nvidia/version",
    "/proc/sys/kernel/osrelease",
    "/sys/devices/system/node/online",
    "/sys/module/ib_core/parameters/netns_mode",
    "/etc/nccl.conf",
)

Access = tuple[str, str]
"""What to do (`read`, `data`, `list`, `link`) and where."""


def walk(sysfs: Sysfs) -> Iterator[Access]:
    """Every access of the catalogue on this machine."""
    yield from _folder(sysfs, PCI, PCI_FILES)
    yield from _folder(sysfs, NET, NET_FILES)
    for device in _names(sysfs, PCI):
        yield from _pci(sysfs, f"{PCI}/{device}")
    for module in MODULES:
        yield from (("read", f"/sys/module/{module}/{file}") for file in ("initstate", "version"))
    yield from (("read", path) for path in SINGLE)
    yield "list", VERBS
    yield "list", IOMMU_GROUPS
    yield from (("read", f"{IOMMU_GROUPS}/{group}/type") for group in _names(sysfs, IOMMU_GROUPS))
    for device in _names(sysfs, RDMA):
        yield from _rdma(sysfs, f"{RDMA}/{device}")
    yield "list", RDMA


def _names(sysfs: Sysfs, path: str) -> Sequence[str]:
    names = sysfs.entries(path)
    return () if isinstance(names, Absent) else names


def _folder(sysfs: Sysfs, path: str, files: Sequence[str]) -> Iterator[Access]:
    yield "list", path
    for name in _names(sysfs, path):
        yield "link", f"{path}/{name}"
        yield from (("read", f"{path}/{name}/{file}") for file in files)


def _pci(sysfs: Sysfs, device: str) -> Iterator[Access]:
    """What hangs at a device; the configuration of bridges only, which redirect what passes them."""
    yield "link", f"{device}/driver"
    yield "link", f"{device}/physfn"
    yield "link", f"{device}/iommu_group"
    code = sysfs.read(f"{device}/class")
    if not isinstance(code, Absent) and code.startswith(BRIDGE):
        yield "data", f"{device}/config"


def _rdma(sysfs: Sysfs, device: str) -> Iterator[Access]:
    yield "link", f"{device}/device"
    yield "read", f"{device}/device/numa_node"
    yield "list", f"{device}/device/net"
    yield from (("read", f"{device}/{file}") for file in RDMA_FILES)
    yield "list", f"{device}/ports"
    for port in _names(sysfs, f"{device}/ports"):
        at = f"{device}/ports/{port}"
        yield from (("read", f"{at}/{file}") for file in PORT_FILES)
        for folder in ("counters", "hw_counters", "gids", "gid_attrs/types", "gid_attrs/ndevs"):
            yield "list", f"{at}/{folder}"
            yield from (("read", f"{at}/{folder}/{file}") for file in _names(sysfs, f"{at}/{folder}"))
