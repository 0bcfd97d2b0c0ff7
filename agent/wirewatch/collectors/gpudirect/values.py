"""What GPUDirect RDMA needs of a node, as read, and what is remembered of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from wirewatch.core.collector import Options
from wirewatch.core.ncclconf import NcclConf
from wirewatch.core.pci import Place
from wirewatch.core.ports import Gpu
from wirewatch.core.rates import Streak
from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class GpudirectOptions(Options):
    """`exclude`: patterns of RDMA devices that GPUs do not use; `acs_interval`: seconds between looks."""

    interval: float = 60.0
    exclude: tuple[str, ...] = ()
    acs_interval: float = 600.0


@dataclass(frozen=True, slots=True)
class GpudirectPolicy:
    """`confirm`: polls in a row before a missing peer memory is told.

    `judge_iommu`: whether an IOMMU that translates is a finding; some machines need one.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    confirm: int = 2
    judge_iommu: bool = True


Acs = Mapping[str, Sequence[str] | Absent]
"""Redirect bits that are set, by the bridge's address."""


@dataclass(frozen=True, slots=True)
class Software:
    """Drivers and settings; `peermem` names the module that is loaded, empty for none."""

    peermem: str | Absent
    module: str | Absent
    kernel: str | Absent
    verbs: bool | Absent
    stack: str
    conf: NcclConf | Absent
    topology_file: bool | Absent


@dataclass(frozen=True, slots=True)
class Reading:
    """GPUs and NICs with their places, what lies between them, and the software.

    `iommu`: by PCI address, the type of its group; empty where there is no IOMMU.
    """

    gpus: tuple[tuple[Gpu, Place | Absent], ...]
    nics: Mapping[str, Place | Absent]
    nodes: int | None
    machine: str
    acs: Acs
    acs_looked: float
    iommu: Mapping[str, str | Absent]
    software: Software


@dataclass(frozen=True, slots=True)
class Memory:
    """`acs` holds what was last known of each bridge, `acs_looked` when, in monotonic seconds.

    `places`: where each GPU and NIC was last seen, by PCI address or device.
    """

    acs: Acs = field(default_factory=dict)
    acs_looked: float | None = None
    places: Mapping[str, Place] = field(default_factory=dict)
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)
