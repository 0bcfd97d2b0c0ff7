"""A recording of a node that was never here, drawn from a row of the product matrix.

What is not drawn is not supported by NVML, and is not there as a file.
"""

from collections.abc import Iterator
from typing import Any

from tests.node.products.rows import BRIDGE, MESH, SWITCH, VGPU, Row
from tests.support import EPOCH, NOT_SUPPORTED
from wirewatch.core.ports import Answer
from wirewatch.core.types import Json
from wirewatch.hw.nvml.protocol import absent_code
from wirewatch.hw.recording import Key, Recording

OLD = frozenset({"volta", "turing", "ampere"})
"""Generations before fields 164 and 165."""
GPU, HIDDEN = 0, "FFFFFFFF:FF:FF.0"
PCI = "/sys/bus/pci/devices"
OLD_SPEEDS = (*range(84, 90), *range(132, 138))
ERROR_FIELDS = {
    "volta": (38, 45, 52, 59),
    "turing": (38, 45, 52, 59),
    "ampere": (38, 45, 52, 59, 160),
    "hopper": (161, 162, 163),
    "blackwell": (*range(206, 216), 219, 221),
}
TRAFFIC = {"blackwell": (201, 202, 203, 204)}
Answers = dict[Key, Json]


class _Drawn(dict[Key, Any]):
    """Answers by question; NVML refuses each that was not drawn."""

    def get(self, key: Key, default: Any = ()) -> Any:
        found = super().get(key)
        if found is None and key[0] == "nvml":
            return ((0, Answer(absent_code(NOT_SUPPORTED))),)
        return default if found is None else found


def draw(row: Row) -> Recording:
    """The node of a row, healthy."""
    answers: Answers = dict(_node(row))
    for gpu in range(row.gpus):
        drawn = {**_gpu(row, gpu), **_links(row, gpu)}
        answers |= {("nvml", f"gpu{gpu}/{question}"): value for question, value in drawn.items()}
    told = _Drawn({key: ((0, Answer(value)),) for key, value in answers.items()})
    return Recording(row.id, {"moments": [{"at": EPOCH}], "source": "synthetic"}, (0.0,), told)


def address(gpu: int) -> str:
    """The PCI address of a GPU."""
    return f"0000:{16 * (gpu + 1):02x}:00.0"


def peer(row: Row, gpu: int, link: int) -> int | None:
    """The GPU at the other end of a link; None for a switch."""
    if row.wires == BRIDGE:
        return gpu ^ 1
    if row.wires == MESH:
        others = [other for other in range(row.gpus) if other != gpu]
        return others[row.active.index(link) % len(others)]
    return None


def _node(row: Row) -> Iterator[tuple[Key, Json]]:
    yield ("nvml", "Count()"), row.gpus
    yield ("nvml", "SystemGetDriverVersion()"), "580.159.04"
    yield ("nvml", "SystemGetNVMLVersion()"), "13.580.159.04"
    yield ("nvml", "SystemGetCudaDriverVersion_v2()"), 13000
    yield ("host", "BootId()"), f"boot-{row.id}"
    yield ("host", "BootTime()"), EPOCH - 864_000.0
    yield ("host", "Machine()"), "aarch64" if row.c2c else "x86_64"
    yield ("kmsg", "Records()"), []
    yield ("sysfs", "list /sys/class/infiniband"), []
    yield ("sysfs", f"list {PCI}"), [address(gpu) for gpu in range(row.gpus)]
    yield ("sysfs", "read /sys/devices/system/node/online"), "0"
    for gpu in range(row.gpus):
        where = address(gpu)
        above = f"0000:{16 * (gpu + 1) - 1:02x}:00.0"
        yield ("sysfs", f"link {PCI}/{where}"), f"/sys/devices/pci{above[:7]}/{above}/{where}"
        yield ("sysfs", f"link {PCI}/{where}/driver"), "/sys/bus/pci/drivers/nvidia"
        files = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "0"}
        yield from ((("sysfs", f"read {PCI}/{where}/{file}"), text) for file, text in files.items())


def _gpu(row: Row, gpu: int) -> dict[str, Json]:
    found: dict[str, Json] = {
        "UUID()": f"GPU-00000000-0000-4000-8000-{gpu:012d}",
        "Name()": row.name,
        "PciInfo()": {"busId": f"0000{address(gpu)}"},
        "Serial()": f"{gpu + 1:013d}",
        "VbiosVersion()": "00.00.00.00.00",
        "ModuleId()": gpu + 1,
        "MinorNumber()": gpu,
        "VirtualizationMode()": row.virtual,
        "ComputeMode()": 0,
        "PerformanceState()": 0,
        "PowerUsage()": 90_000,
        "Temperature(0)": 35,
        "MemoryInfo()": {"free": 40 << 30, "total": 40 << 30, "used": 0},
        "UtilizationRates()": {"gpu": 0, "memory": 0},
        "ComputeRunningProcesses()": [],
        "MPSComputeRunningProcesses()": [],
        "CurrentClocksEventReasons()": 1,
        "SupportedClocksEventReasons()": 511,
        "CurrPcieLinkGeneration()": row.pcie,
        "MaxPcieLinkGeneration()": row.pcie,
        "CurrPcieLinkWidth()": 16,
        "MaxPcieLinkWidth()": 16,
        "PcieReplayCounter()": 0,
    }
    if row.ecc:
        found |= {
            f"MemoryErrorCounter({kind},{c},{at})": 0 for kind in (0, 1) for c in (0, 1) for at in (2, 7)
        }
    if row.ecc and row.generation not in {"volta", "turing"} and row.virtual != VGPU:
        found["RemappedRows()"] = [0, 0, 0, 0]
    if row.splits:
        found["MigMode()"] = [int(gpu in row.mig)] * 2
    if row.generation in {"hopper", "blackwell"}:
        found["Field(230)"] = 0
        found["GpuFabricInfoV()"] = _fabric(row)
    return found


def _fabric(row: Row) -> Json:
    return {
        "state": 3 if row.fabric else 0, "status": 0, "healthMask": 0, "healthSummary": 0,
        "cliqueId": 7 if row.cluster else 0,
        "clusterUuid": (row.cluster or "0").ljust(32, row.cluster[:1] or "0"),
    }  # fmt: skip


def _links(row: Row, gpu: int) -> dict[str, Json]:
    """What a GPU says of its links, in the way that its generation has."""
    found: dict[str, Json] = {}
    if row.c2c:
        found |= {"Field(170)": row.c2c}
        found |= {f"Field(171,{n})": 1 for n in range(row.c2c)}
        found |= {f"Field(172,{n})": 44_712 for n in range(row.c2c)}
    if not row.links:
        return found
    found["Field(91)"] = row.links
    found |= {f"Field({field})": 0 for field in ERROR_FIELDS[row.generation] if row.generation in OLD}
    found |= {f"Field({field},all)": 0 for field in ERROR_FIELDS[row.generation] if row.generation not in OLD}
    found |= {f"Field({field},all)": 1000 for field in TRAFFIC.get(row.generation, range(138, 142))}
    if row.generation == "blackwell":
        found["Field(220,all)"] = 15 << 8 | 255
    for link in range(row.links):
        found |= _link(row, gpu, link)
    return found


def _link(row: Row, gpu: int, link: int) -> dict[str, Json]:
    up = link in row.active and gpu not in row.mig
    if row.generation in OLD:
        found: dict[str, Json] = {f"NvLinkState({link})": int(up), "Field(90)": row.rate}
        found |= {f"Field({OLD_SPEEDS[link]})": row.rate if up else 0}
    else:
        found = {f"Field(165,{link})": int(up), f"Field(164,{link})": row.rate if up else 0}
    if up:
        other = peer(row, gpu, link)
        found[f"NvLinkRemoteDeviceType({link})"] = 2 if row.wires == SWITCH else GPU
        bus = HIDDEN if other is None else f"0000{address(other)}"
        found[f"NvLinkRemotePciInfo({link})"] = {"busId": bus}
    return found
