"""The PCI part of demo-dgx-h200: what sysfs shows of a node laid out like a DGX H100. All of it is made up.

Bus numbers, names and identifiers are those of public listings of such nodes (`nvidia-smi`, `lspci -tv`, the
DGX H100 user guide). Left out: management endpoints of the switches, disks, the BMC.
"""

from collections.abc import Iterator
from dataclasses import dataclass

FileTree = dict[str, str | bytes]
"""Content by absolute path; a path that ends with a slash is an empty folder."""
Links = dict[str, str]
"""Where a path points, both absolute."""

PCI = "/sys/bus/pci"
CPUS = {0: "0-55,112-167", 1: "56-111,168-223"}
GPU_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
STORAGE_BUSES = (0x29, 0xAA)
NVSWITCH_BUSES = (0x07, 0x08, 0x09, 0x0A)
MANAGEMENT_BUS = 0x0B
GEN5 = "32.0 GT/s PCIe"
_FIRST_OF_NODE_1 = 0x97

_CORRECTABLE = "RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF TOTAL_ERR_COR"
_UNCORRECTABLE = (
    "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr "
    "BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked"
)
AER = {
    "aer_dev_correctable": _CORRECTABLE,
    "aer_dev_nonfatal": f"{_UNCORRECTABLE} TOTAL_ERR_NONFATAL",
    "aer_dev_fatal": f"{_UNCORRECTABLE} TOTAL_ERR_FATAL",
}
"""Names of errors in the order of drivers/pci/pcie/aer.c."""

ROOT_PORT, UPSTREAM, DOWNSTREAM = 4, 5, 6
"""Kinds of port as the PCI Express capability has them."""


@dataclass(frozen=True, slots=True)
class Model:
    """What a device is: identifiers as sysfs writes them, its driver, speed and lanes of its link."""

    vendor: str
    device: str
    code: str
    driver: str
    revision: str = "0x00"
    subsystem: tuple[str, str] = ("0x0000", "0x0000")
    speed: str = GEN5
    width: int = 16


GPU = Model("0x10de", "0x2335", "0x030200", "nvidia", "0xa1", ("0x10de", "0x18bf"))
CONNECTX7 = Model("0x15b3", "0x1021", "0x020700", "mlx5_core", subsystem=("0x15b3", "0x0041"))
STORAGE = Model("0x15b3", "0x1021", "0x020000", "mlx5_core", subsystem=("0x15b3", "0x0055"))
NVSWITCH = Model(
    "0x10de", "0x22a3", "0x068000", "nvidia-nvswitch", "0xa1", ("0x10de", "0x1796"), "16.0 GT/s PCIe", 2
)
MANAGEMENT = Model("0x8086", "0x1563", "0x020000", "ixgbe", "0x01", ("0x8086", "0x001d"), "8.0 GT/s PCIe", 4)
INTEL_PORT = ("0x8086", "0x352a", "0x30")
SWITCH_PORT = ("0x1000", "0xc030", "0xb0")


@dataclass(frozen=True, slots=True)
class Device:
    """One device; `path` is its place below /sys/devices, from the root bus down."""

    path: str
    model: Model
    numa: int
    config: bytes = b""

    @property
    def address(self) -> str:
        return self.path.rpartition("/")[2]


def address(bus: int, device: int = 0) -> str:
    return f"0000:{bus:02x}:{device:02x}.0"


def gpu_address(index: int) -> str:
    return address(GPU_BUSES[index])


def nic_bus(index: int) -> int:
    """The NIC beside a GPU has the first bus below their switch."""
    return GPU_BUSES[index] - 3


def _node(bus: int) -> int:
    return int(bus >= _FIRST_OF_NODE_1)


def devices() -> tuple[Device, ...]:
    return (*_board(), *(d for bus in GPU_BUSES for d in _switch(bus)), *_storage())


def device_at(where: str) -> Device:
    return next(d for d in devices() if d.address == where)


def _board() -> Iterator[Device]:
    """NVSwitches and the network card for management, each below a port of the first root."""
    ends = [(bus, NVSWITCH) for bus in NVSWITCH_BUSES] + [(MANAGEMENT_BUS, MANAGEMENT)]
    for number, (bus, model) in enumerate(ends):
        yield from _below_port(0x00, 0x10 + number, bus, model)


def _storage() -> Iterator[Device]:
    for bus in STORAGE_BUSES:
        yield from _below_port(bus - 3, 0x05, bus, STORAGE)


def _below_port(root: int, device: int, bus: int, model: Model) -> Iterator[Device]:
    """A root port and the one device below it."""
    path = f"pci0000:{root:02x}/{address(root, device)}"
    yield _bridge(path, ROOT_PORT, (root, bus, bus), model)
    yield Device(f"{path}/{address(bus)}", model, _node(root))


def _switch(gpu: int) -> Iterator[Device]:
    """A root, its port, a switch below it, and the NIC and the GPU of that switch."""
    root, above, inside, nic = gpu - 6, gpu - 5, gpu - 4, gpu - 3
    port = f"pci0000:{root:02x}/{address(root, 1)}"
    yield _bridge(port, ROOT_PORT, (root, above, gpu), GPU)
    upstream = f"{port}/{address(above)}"
    yield _bridge(upstream, UPSTREAM, (above, inside, gpu), GPU)
    for device, bus, model in ((0, nic, CONNECTX7), (3, gpu, GPU)):
        downstream = f"{upstream}/{address(inside, device)}"
        yield _bridge(downstream, DOWNSTREAM, (inside, bus, bus), model)
        yield Device(f"{downstream}/{address(bus)}", model, _node(root))


def _bridge(path: str, kind: int, buses: tuple[int, int, int], below: Model) -> Device:
    """A port whose link is as fast and wide as that of what hangs below it."""
    vendor, device, revision = INTEL_PORT if kind == ROOT_PORT else SWITCH_PORT
    model = Model(
        vendor, device, "0x060400", "pcieport", revision, (vendor, "0x0000"), below.speed, below.width
    )
    return Device(path, model, _node(buses[0]), config_space(model, kind, buses))


def config_space(model: Model, kind: int, buses: tuple[int, int, int]) -> bytes:
    """Configuration space of a bridge: its header, the PCI Express capability, AER, and ACS where it has it.

    ACS stands at source validation only, as on healthy machines; upstream ports have none.
    """
    space = bytearray(4096)

    def put(at: int, value: int, size: int) -> None:
        space[at : at + size] = value.to_bytes(size, "little")

    put(0x00, int(model.vendor, 16), 2)
    put(0x02, int(model.device, 16), 2)
    put(0x04, 0x0547, 2)  # memory, bus master, parity, SERR, no legacy interrupt
    put(0x06, 0x0010, 2)  # has capabilities
    put(0x08, int(model.revision, 16), 1)
    put(0x09, int(model.code, 16), 3)
    put(0x0E, 0x01, 1)  # a bridge
    for place, bus in enumerate(buses):
        put(0x18 + place, bus, 1)
    put(0x34, 0x40, 1)
    put(0x40, 0x10 | (2 | kind << 4) << 16, 4)  # PCI Express, the last of the list
    put(0x48, 0x2830, 2)  # packets of 256 bytes, read requests of 512
    has_acs = kind != UPSTREAM
    put(0x100, 0x0001 | 2 << 16 | (0x148 if has_acs else 0) << 20, 4)
    if has_acs:
        put(0x148, 0x000D | 1 << 16, 4)
        put(0x14C, 0x005F, 2)  # what it could do
        put(0x14E, 0x0001, 2)  # what it does
    return bytes(space)


def pci_files() -> tuple[FileTree, Links]:
    files: FileTree = {"/sys/kernel/iommu_groups/": ""}
    links: Links = {}
    for device in devices():
        at, model = f"/sys/devices/{device.path}", device.model
        texts = {
            "vendor": model.vendor,
            "device": model.device,
            "class": model.code,
            "revision": model.revision,
            "subsystem_vendor": model.subsystem[0],
            "subsystem_device": model.subsystem[1],
            "numa_node": str(device.numa),
            "local_cpulist": CPUS[device.numa],
            "driver_override": "(null)",
            **{f"{which}_link_speed": model.speed for which in ("current", "max")},
            **{f"{which}_link_width": str(model.width) for which in ("current", "max")},
            **{name: "\n".join(f"{error} 0" for error in errors.split()) for name, errors in AER.items()},
        }
        files |= {f"{at}/{name}": f"{text}\n" for name, text in texts.items()}
        if device.config:
            files[f"{at}/config"] = device.config
        files[f"{PCI}/drivers/{model.driver}/"] = ""
        links[f"{PCI}/devices/{device.address}"] = at
        links[f"{at}/driver"] = f"{PCI}/drivers/{model.driver}"
    return files, links
