"""GPUDirect RDMA as values: options, policy, paths from GPUs to NICs, a reading, and what is remembered."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wirewatch.core.collector import Options, Strict
from wirewatch.core.pci import Path, Place, path_between
from wirewatch.core.ports import Gpu
from wirewatch.core.statistics import Streak
from wirewatch.core.types import Absent
from wirewatch.nccl.settings import NcclConf


@dataclass(frozen=True, slots=True)
class GpudirectOptions(Options):
    """How GPUDirect is checked."""

    interval: float = 60.0
    exclude: tuple[str, ...] = ()
    """RDMA devices that GPUs do not use. Patterns such as `mlx5_8`."""
    acs_interval: float = 600.0
    """Time between two readings of ACS. [seconds]"""


@dataclass(frozen=True, slots=True)
class GpudirectPolicy(Strict):
    """What counts as wrong with GPUDirect."""

    confirm: int = 2
    """Polls in a row in which a check must fail."""
    judge_iommu: bool = True
    """Whether an IOMMU that translates is a finding; some machines need one."""


GpuPlaces = Sequence[tuple[Gpu, Place | Absent]]
AcsBits = Mapping[str, Sequence[str] | Absent]
"""Redirect bits that are set, by the bridge's address."""


@dataclass(frozen=True, slots=True)
class RdmaSoftware:
    """Drivers and settings; `peermem` names the module that is loaded, empty for none."""

    peermem: str | Absent
    module: str | Absent
    kernel: str | Absent
    verbs: bool | Absent
    stack: str
    conf: NcclConf | Absent
    topology_file: bool | Absent


@dataclass(frozen=True, slots=True)
class GpudirectReading:
    """GPUs, NICs, what lies between, the software; `iommu`: type of the group by address, if any."""

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
    """What was last known of bridges (`acs_looked`: monotonic seconds), of places by address or device."""

    acs: AcsBits = field(default_factory=dict)
    acs_looked: float | None = None
    places: Mapping[str, Place] = field(default_factory=dict)
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)


NEAR = frozenset({Path.PIX, Path.PXB})
"""Paths that do not cross the root: NCCL uses GPUDirect over these by default."""


def near_pairs(
    gpus: GpuPlaces, nics: Mapping[str, Place | Absent], nodes: int | None
) -> tuple[tuple[Place, Place], ...]:
    """GPU and NIC that talk below the root."""
    return tuple(
        (gpu, nic)
        for _, gpu in gpus
        for nic in nics.values()
        if not isinstance(gpu, Absent)
        and not isinstance(nic, Absent)
        and path_between(gpu, nic, nodes=nodes) in NEAR
    )


def all_paths(
    gpus: GpuPlaces, nics: Mapping[str, Place | Absent], nodes: int | None
) -> Iterator[tuple[Gpu, str, Path | Absent, bool]]:
    """GPU, NIC, path, and whether it is among the nearest of that GPU."""
    for gpu, place in gpus:
        paths = {name: path_between(place, nic, nodes=nodes) for name, nic in nics.items()}
        best = min((p for p in paths.values() if not isinstance(p, Absent)), default=None)
        for name, one in paths.items():
            yield gpu, name, one, not isinstance(one, Absent) and one is best


def hidden(gpus: GpuPlaces, nics: Mapping[str, Place | Absent], nodes: int | None) -> bool:
    """Whether no path is known, as in a virtual machine with a flat PCI bus."""
    return all(isinstance(one, Absent) for _, _, one, _ in all_paths(gpus, nics, nodes))
