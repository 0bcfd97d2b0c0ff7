"""Read what GPUDirect RDMA needs: PCI places, redirecting bridges, IOMMU, drivers, NCCL's settings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import Options, Strict, is_lost
from wirewatch.core.nvml import as_str
from wirewatch.core.pci import Path, Place, acs_redirects, bridges_between, path_between
from wirewatch.core.ports import Gpu, Hardware, Question, Sysfs
from wirewatch.core.statistics import Streak
from wirewatch.core.tree import DEVICES, count_nodes, rdma_devices, rdma_place, read_place
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.nccl.settings import TOPOLOGY, NcclConf, parse_nccl_conf


@dataclass(frozen=True, slots=True)
class GpudirectOptions(Options):
    """How GPUDirect is checked."""

    interval: Seconds = 60.0
    exclude: tuple[str, ...] = ()
    """RDMA devices that GPUs do not use. Patterns such as `mlx5_8`."""
    acs_interval: Seconds = 600.0
    """Time between two readings of ACS. [seconds]"""


@dataclass(frozen=True, slots=True)
class GpudirectPolicy(Strict):
    """Limits beyond which GPUDirect is at fault."""

    confirm: int = 2
    """Polls in a row in which a check must fail."""
    judge_iommu: bool = True
    """Whether an IOMMU that translates is a finding; some machines need one."""


GpuPlaces = Sequence[tuple[Gpu, Place | Absent]]
AcsBits = Mapping[str, tuple[str, ...] | Absent]
"""Redirect bits that are set, by the bridge's address."""


@dataclass(frozen=True, slots=True)
class RdmaSoftware:
    """Drivers and settings; `peermem` names the loaded module, empty for none."""

    peermem: str | Absent
    module: str | Absent
    kernel: str | Absent
    verbs: bool | Absent
    stack: str
    conf: NcclConf | Absent
    topology_file: bool | Absent


@dataclass(frozen=True, slots=True)
class GpudirectReading:
    """GPUs, NICs, the paths between, the software; `iommu`: type of the group by address, if any."""

    gpus: tuple[tuple[Gpu, Place | Absent], ...]
    nics: Mapping[str, Place | Absent]
    nodes: int | None
    machine: str
    acs: AcsBits
    acs_looked: float
    iommu: Mapping[str, str | Absent]
    software: RdmaSoftware


@dataclass(frozen=True, slots=True)
class GpudirectMemory:
    """The last known of bridges (`acs_looked`: monotonic seconds), of places by address or device."""

    acs: AcsBits = field(default_factory=dict)
    acs_looked: float = -inf
    places: Mapping[str, Place] = field(default_factory=dict)
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)


NEAR = frozenset({Path.PIX, Path.PXB})
"""Paths that do not cross the root: NCCL uses GPUDirect over these by default."""


def near_pairs(
    gpus: GpuPlaces, nics: Mapping[str, Place | Absent], nodes: int | None
) -> tuple[tuple[Place, Place], ...]:
    """GPU and NIC that talk below the root."""
    ours = [place for _, place in gpus if isinstance(place, Place)]
    theirs = [place for place in nics.values() if isinstance(place, Place)]
    return tuple((gpu, nic) for gpu in ours for nic in theirs if path_between(gpu, nic, nodes=nodes) in NEAR)


def all_paths(reading: GpudirectReading) -> Iterator[tuple[Gpu, str, Path | Absent, Path | None]]:
    """GPU, NIC, path, and the nearest path of that GPU to any NIC."""
    for gpu, place in reading.gpus:
        paths = {name: path_between(place, nic, nodes=reading.nodes) for name, nic in reading.nics.items()}
        best = min((p for p in paths.values() if not isinstance(p, Absent)), default=None)
        for name, one in paths.items():
            yield gpu, name, one, best


PEERMEM: Mapping[str, str] = {
    "/sys/module/nvidia_peermem/version": "nvidia_peermem",
    "/sys/kernel/mm/memory_peers/nv_mem/version": "nv_mem",
    "/sys/kernel/mm/memory_peers/nv_mem_nc/version": "nv_mem_nc",
}
"""The places where NCCL itself finds a peer memory module."""
DRIVER = "/proc/driver/nvidia/version"
KERNEL = "/proc/sys/kernel/osrelease"
VERBS = "/sys/class/infiniband_verbs"
STACK = "/sys/module/mlx5_core/version"
CONF = "/etc/nccl.conf"


def read(hardware: Hardware, memory: GpudirectMemory, options: GpudirectOptions) -> GpudirectReading | Absent:
    """One reading; Absent when GPUs or RDMA devices cannot even be listed."""
    gpus = hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    sysfs, mono = hardware.sysfs, hardware.clock.mono()
    places = tuple((gpu, _known(read_place(sysfs, gpu.pci), memory.places.get(gpu.pci))) for gpu in gpus)
    nics = _nics(sysfs, options, memory)
    if isinstance(nics, Absent):
        return nics
    nodes = count_nodes(sysfs)
    pairs = near_pairs(places, nics, nodes)
    ends = {place.address for pair in pairs for place in pair}
    bridges = sorted({bridge for gpu, nic in pairs for bridge in bridges_between(gpu, nic)})
    new = not set(bridges) <= set(memory.acs)
    due = new or mono - memory.acs_looked >= options.acs_interval
    return GpudirectReading(
        gpus=places,
        nics=nics,
        nodes=nodes,
        machine=value_or(as_str(hardware.host.ask(Question("Machine")).value), ""),
        acs={bridge: _acs(sysfs, bridge) if due else memory.acs[bridge] for bridge in bridges},
        acs_looked=mono if due else memory.acs_looked,
        iommu={address: _iommu(sysfs, address) for address in sorted(ends)},
        software=_software(sysfs),
    )


def _known(place: Place | Absent, last: Place | None) -> Place | Absent:
    """Return a place; an unreadable place is as before: cards do not move while the machine is up."""
    return last if is_lost(place) and last is not None else place


def _nics(
    sysfs: Sysfs, options: GpudirectOptions, memory: GpudirectMemory
) -> Mapping[str, Place | Absent] | Absent:
    names = rdma_devices(sysfs)
    if isinstance(names, Absent):
        return names
    return {
        name: _known(rdma_place(sysfs, name), memory.places.get(name))
        for name in names
        if not any(fnmatchcase(name, pattern) for pattern in options.exclude)
    }


def _acs(sysfs: Sysfs, bridge: str) -> tuple[str, ...] | Absent:
    config = sysfs.data(f"{DEVICES}/{bridge}/config")
    return config if isinstance(config, Absent) else acs_redirects(config)


def _iommu(sysfs: Sysfs, address: str) -> str | Absent:
    group = sysfs.link(f"{DEVICES}/{address}/iommu_group")
    if isinstance(group, Absent):
        return "" if group.why is Why.MISSING else group
    return sysfs.read(f"/sys/kernel/iommu_groups/{group.rpartition('/')[2]}/type")


def _software(sysfs: Sysfs) -> RdmaSoftware:
    conf = _conf(sysfs)
    return RdmaSoftware(
        peermem=_peermem(sysfs),
        module=_module(sysfs.read(DRIVER)),
        kernel=sysfs.read(KERNEL),
        verbs=_verbs(sysfs.entries(VERBS)),
        stack=value_or(sysfs.read(STACK), ""),
        conf=conf,
        topology_file=_topology_file(sysfs, conf),
    )


def _verbs(names: Sequence[str] | Absent) -> bool | Absent:
    """Return whether there is a device for user programs; the version alone exists without a device too."""
    if isinstance(names, Absent):
        return False if names.why is Why.MISSING else names
    return any(name.startswith("uverbs") for name in names)


def _peermem(sysfs: Sysfs) -> str | Absent:
    versions = {name: sysfs.read(path) for path, name in PEERMEM.items()}
    absent = {name: version for name, version in versions.items() if isinstance(version, Absent)}
    loaded = (name for name in versions if name not in absent)
    barred = (version for version in absent.values() if version.why is not Why.MISSING)
    return next(loaded, None) or next(barred, "")


def _module(text: str | Absent) -> str | Absent:
    """`open` or `proprietary` kernel module, from the driver's own line."""
    if isinstance(text, Absent):
        return text
    if "NVRM version:" not in text:
        return Absent(Why.MALFORMED, f"{DRIVER}: {text[:40]!r}")
    return "open" if "Open Kernel Module" in text else "proprietary"


def _conf(sysfs: Sysfs) -> NcclConf | Absent:
    text = sysfs.read(CONF)
    if isinstance(text, Absent):
        return NcclConf({}) if text.why is Why.MISSING else text
    return parse_nccl_conf(text)


def _topology_file(sysfs: Sysfs, conf: NcclConf | Absent) -> bool | Absent:
    """Return whether the topology file in the settings exists; true where they name none."""
    if isinstance(conf, Absent):
        return conf
    path = conf.settings.get(TOPOLOGY, "")
    found = sysfs.link(path) if path else path
    if isinstance(found, Absent):
        return False if found.why is Why.MISSING else found
    return True
