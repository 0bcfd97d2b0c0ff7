"""Record a node: every question to the ports, at several moments, and the changes between them.

`Recorder` asks and writes; the catalogue is `walk` for sysfs and `gpu_questions` for NVML.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from wirewatch.core.nvml import BURST, count_links, gpu_processes
from wirewatch.core.ports import ALL_LINKS, Answer, Gpu, Hardware, Nvml, Pod, Question, SlurmJob, Sysfs
from wirewatch.core.types import Absent, Json, Why, value_or
from wirewatch.hw import recording
from wirewatch.hw.command import ALLOWED as PROGRAMS
from wirewatch.hw.host import CATALOGUE as HOST
from wirewatch.hw.masking import Masker
from wirewatch.hw.recording import Key
from wirewatch.hw.replay import RUN
from wirewatch.jobs.ras.recorded import record_ras
from wirewatch.jobs.tap.recorded import RINGS, record_rings, record_settings

T = TypeVar("T")
JOB = 200
"""NVML questions in one job, so that it stays far below its deadline."""
RecordedAnswer = tuple[Key, Answer]
PCI = "/sys/bus/pci/devices"
PCI_FILES = (
    "vendor", "device", "class", "revision", "subsystem_vendor", "subsystem_device", "numa_node",
    "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "local_cpulist",
    "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal", "driver_override",
)  # fmt: skip
BRIDGE = "0x0604"
VERBS = "/sys/class/infiniband_verbs"
IOMMU_GROUPS = "/sys/kernel/iommu_groups"
NET_FILES = (
    "address", "mtu", "operstate", "speed", "carrier", "carrier_changes", "carrier_down_count", "type",
)  # fmt: skip
NET = "/sys/class/net"
RDMA = "/sys/class/infiniband"
RDMA_FILES = (
    "board_id", "fw_ver", "hca_type", "hw_rev", "node_guid", "node_type", "sys_image_guid", "node_desc",
)  # fmt: skip
PORT_FILES = ("state", "phys_state", "link_layer", "rate", "lid", "lid_mask_count", "sm_lid", "cap_mask")
MODULES = (
    "nvidia", "nvidia_peermem", "nv_peer_mem", "ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib", "gdrdrv",
)  # fmt: skip
SINGLE = (
    "/sys/kernel/mm/memory_peers/nv_mem/version", "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "/proc/driver/nvidia/version", "/proc/sys/kernel/osrelease", "/sys/devices/system/node/online",
    "/sys/module/ib_core/parameters/netns_mode", "/etc/nccl.conf", "/sys/class/dmi/id/product_uuid",
    "/sys/class/dmi/id/board_serial",
)  # fmt: skip
DRIVER_GPUS = "/proc/driver/nvidia/gpus"
Access = tuple[str, str]
"""An act (`read`, `data`, `list`, `link`) and its path."""
SYSTEM = tuple(
    Question(call)
    for call in (
        "Count", "SystemGetDriverVersion", "SystemGetNVMLVersion", "SystemGetCudaDriverVersion_v2", "Events",
    )
)  # fmt: skip
FIELDS = range(1, 308)
LINK_FIELDS = (*range(138, 142), 146, *range(161, 168), *range(201, 224), *range(231, 251), *range(289, 297))
_COUNTS = {
    "Temperature": (1,), "TemperatureThreshold": (8,), "ClockInfo": (4,), "MaxClockInfo": (4,),
    "TotalEccErrors": (2, 2), "MemoryErrorCounter": (2, 2, 8), "ViolationStatus": (6,),
    "PcieThroughput": (2,),
}  # fmt: skip
"""Calls with arguments, and the number of values of each argument, from 0 on."""
_LINK_CALLS = ("NvLinkState", "NvLinkVersion", "NvLinkRemotePciInfo", "NvLinkRemoteDeviceType")
_LINK_COUNTS = {"NvLinkCapability": 6, "NvLinkErrorCounter": 5}
_SKIPPED = frozenset(
    {
        "Count",
        "VgpuMetadata",
        "VgpuSchedulerLog",
        "FieldValues",
        # Stops the caller for 70 ms and says nothing about wires.
        "InforomConfigurationChecksum",
    }
)


@dataclass
class Recorder:
    """Collects moments of one node; `rows` are the lines so far, not masked yet; `probed` a probe of it.

    `ras`: the RAS of running jobs is asked at each moment, which makes them talk. `lines` and `written` count
    the lines and the moments that are in the folder.
    """

    hardware: Hardware
    probed: Json = None
    ras: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    moments: list[dict[str, Any]] = field(default_factory=list)
    lines: int = 0
    written: int = 0
    _masker: Masker = field(default_factory=Masker)
    _last: dict[Key, Json | Absent] = field(default_factory=dict)
    _after: Mapping[str, int] = field(default_factory=dict)

    def take(self, note: str = "") -> int:
        """Record one moment; return how many answers differ from the moment before."""
        number = len(self.moments)
        known = dict(self._last)
        rows: list[dict[str, Any]] = []
        clock = self.hardware.clock
        mono = clock.mono()
        moment = {"moment": number, "at": clock.now(), "mono": mono, "note": note}
        began = self.moments[0]["mono"] if self.moments else mono
        rings = record_rings(self.hardware.rings, self._after, began)
        of_jobs = ((RINGS, Answer(rings.value)), *record_settings(self.hardware.sysfs, rings.pids))
        for key, answer in (*self._everything(), *of_jobs):
            if key not in known or known[key] != answer.value:
                known[key] = answer.value
                rows.append(recording.pack(number, *key, answer))
        # All at once: a moment that was interrupted was not taken.
        self._last, self._after = known, rings.after
        self.rows += rows
        self.moments.append(moment)
        return len(rows)

    def write(self, folder: Path, version: str) -> int:
        """Write the moments since the last call, masked, and return the number of lines in all.

        Raises OSError: it cannot be written; earlier moments can be played.
        """
        manifest, more = self._manifest(version), self.rows[self.lines :]
        if self._masker.learn(more) or not self.lines:
            # A name that was not known may stand in the lines of before.
            self.lines = recording.write(folder, manifest, self._masker.mask(self.rows))
        else:
            self.lines = recording.append(folder, manifest, self._masker.mask(more), self.lines)
        self.written = len(self.moments)
        return self.lines

    def _manifest(self, version: str) -> dict[str, Any]:
        start = self.moments[0]["mono"]
        moments = [
            {
                "moment": m["moment"],
                "at": round(m["at"], 3),
                "seconds": round(m["mono"] - start, 3),
                "note": m["note"],
            }
            for m in self.moments
        ]
        names = sorted({str(v) for k, v in self._last.items() if k[1].endswith("/Name()")})
        driver = self._last.get(("nvml", "SystemGetDriverVersion()"))
        return {
            "wirewatch": version,
            "masked": True,
            "moments": moments,
            "product": ", ".join(names),
            "gpus": sum(k[1].endswith("/UUID()") for k in self._last),
            "driver": driver if isinstance(driver, str) else "",
            "source": self.hardware.source,
        }

    def _everything(self) -> Iterator[RecordedAnswer]:
        yield from self._nvml()
        yield from ((("host", str(q)), self.hardware.host.ask(q)) for q in HOST)
        sysfs = self.hardware.sysfs
        calls: dict[str, Callable[[str], Json | Absent]] = {
            "read": sysfs.read, "list": sysfs.entries, "link": sysfs.link,
            "data": lambda path: _packed(sysfs.data(path), bytes.hex),
        }  # fmt: skip
        for call, path in walk(sysfs):
            started = time.perf_counter()
            value = calls[call](path)
            yield ("sysfs", f"{call} {path}"), Answer(value, (time.perf_counter() - started) * 1e6)

        yield (
            ("kmsg", "Records()"),
            Answer(_packed(self.hardware.kmsg.records(-1), lambda log: list(log.records))),
        )
        for name in PROGRAMS:
            yield ("command", f"{name}()"), Answer(_packed(self.hardware.command.run(name), asdict))
        yield ("kubelet", "Pods()"), Answer(_packed(self.hardware.kubelet.pods(), _listed))
        yield ("slurm", "Jobs()"), Answer(_packed(self.hardware.slurm.jobs(), _listed))
        if self.ras:
            yield from record_ras(self.hardware)
        if self.probed is not None:
            yield RUN, Answer(self.probed)

    def _nvml(self) -> Iterator[RecordedAnswer]:
        nvml = self.hardware.nvml
        system = nvml.ask(None, SYSTEM)
        yield from ((("nvml", str(q)), a) for q, a in zip(SYSTEM, system, strict=True))
        gpus = nvml.gpus()
        if isinstance(gpus, Absent):
            return
        getters = nvml.ask(None, [Question("Getters")])[0].value
        names = [str(n) for n in getters] if isinstance(getters, list) else []
        for gpu in gpus:
            questions = gpu_questions(names, len(gpus), count_links(nvml, gpu.key))
            yield from self._gpu(nvml, gpu, questions)
            listed = gpu_processes(nvml, gpu)
            # An idle GPU has no bursts, and a look at them takes its time.
            if not isinstance(listed, Absent) and listed[0]:
                yield from self._gpu(nvml, gpu, (BURST,))

    def _gpu(self, nvml: Nvml, gpu: Gpu, questions: Sequence[Question]) -> Iterator[RecordedAnswer]:
        wanted = [q for q in questions if not self._refused(("nvml", f"gpu{gpu.index}/{q}"))]
        for start in range(0, len(wanted), JOB):
            job = wanted[start : start + JOB]
            for question, answer in zip(job, nvml.ask(gpu.key, job), strict=True):
                yield ("nvml", f"gpu{gpu.index}/{question}"), answer

    def _refused(self, key: Key) -> bool:
        last = self._last.get(key)
        return isinstance(last, Absent) and last.why is Why.UNSUPPORTED


def walk(sysfs: Sysfs) -> Iterator[Access]:
    """Every file, link and folder of the catalogue that this machine has."""
    yield from _folder(sysfs, PCI, PCI_FILES)
    yield from _folder(sysfs, NET, NET_FILES)
    for device in _names(sysfs, PCI):
        yield from _pci(sysfs, f"{PCI}/{device}")
    for module in MODULES:
        yield from (("read", f"/sys/module/{module}/{file}") for file in ("initstate", "version"))
    yield from (("read", path) for path in SINGLE)
    yield "list", DRIVER_GPUS
    yield from (("read", f"{DRIVER_GPUS}/{gpu}/information") for gpu in _names(sysfs, DRIVER_GPUS))
    yield "list", VERBS
    yield "list", IOMMU_GROUPS
    yield from (("read", f"{IOMMU_GROUPS}/{group}/type") for group in _names(sysfs, IOMMU_GROUPS))
    for device in _names(sysfs, RDMA):
        yield from _rdma(sysfs, f"{RDMA}/{device}")
    yield "list", RDMA


def gpu_questions(getters: Sequence[str], gpus: int, links: int) -> list[Question]:
    """Return the whole catalogue for one GPU with `links` links, of a node with `gpus` GPUs.

    It asks for a link more than the GPU has, so that the end is recorded too.
    """
    questions = [Question(name) for name in getters if name not in _SKIPPED]
    questions += [Question("GpuFabricInfoV"), Question("SramEccErrorStatus")]
    for call, counts in _COUNTS.items():
        questions += [Question(call, args) for args in product(*map(range, counts))]
    for link in range(links + 1):
        questions += [Question(call, (link,)) for call in _LINK_CALLS]
        questions += [Question(c, (link, n)) for c, count in _LINK_COUNTS.items() for n in range(count)]
    for other in range(gpus):
        questions += [Question("TopologyCommonAncestor", (other,))]
        questions += [Question("P2PStatus", (other, index)) for index in range(6)]
    questions += [Question("Field", (number,)) for number in FIELDS]
    scopes = (*range(links + 1), ALL_LINKS)
    questions += [Question("Field", (number, scope)) for number in LINK_FIELDS for scope in scopes]
    return questions


def _packed(value: T | Absent, how: Callable[[T], Json]) -> Json | Absent:
    return value if isinstance(value, Absent) else how(value)


def _listed(values: Sequence[Pod] | Sequence[SlurmJob]) -> Json:
    return [asdict(value) for value in values]


def _names(sysfs: Sysfs, path: str) -> Sequence[str]:
    return value_or(sysfs.entries(path), ())


def _folder(sysfs: Sysfs, path: str, files: Sequence[str]) -> Iterator[Access]:
    yield "list", path
    for name in _names(sysfs, path):
        yield "link", f"{path}/{name}"
        yield from (("read", f"{path}/{name}/{file}") for file in files)


def _pci(sysfs: Sysfs, device: str) -> Iterator[Access]:
    """The links of a PCI device; of bridges also the configuration, whose ACS bits redirect traffic."""
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
