"""GPUDirect RDMA: which NIC is near which GPU, and whether they may talk without the CPU's memory."""

from wirewatch.collectors.gpudirect.judge import (
    RULES,
    CheckState,
    GpudirectCheck,
    checks,
    judge,
    known_acs,
)
from wirewatch.collectors.gpudirect.metrics import METRICS, samples
from wirewatch.collectors.gpudirect.model import (
    GpudirectMemory,
    GpudirectOptions,
    GpudirectPolicy,
    GpudirectReading,
)
from wirewatch.collectors.gpudirect.read import read
from wirewatch.core.collector import Collector
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent

__all__ = ["COLLECTOR", "CheckState", "GpudirectCheck", "read_checks"]


def read_checks(hardware: Hardware) -> tuple[GpudirectCheck, ...] | Absent:
    """The answer to each question now, of all NICs; Absent when GPUs or RDMA devices cannot be listed."""
    memory = GpudirectMemory()
    reading = read(hardware, memory, GpudirectOptions())
    if isinstance(reading, Absent):
        return reading
    return tuple(checks(reading, known_acs(memory, reading)))


COLLECTOR: Collector[GpudirectReading, GpudirectMemory, GpudirectOptions, GpudirectPolicy] = Collector(
    name="gpudirect",
    about="GPUDirect RDMA: paths from GPUs to NICs, peer memory, ACS, IOMMU, NCCL's settings",
    lane="nvml",
    options=GpudirectOptions(),
    policy=GpudirectPolicy(),
    metrics=METRICS,
    start=GpudirectMemory(),
    read=read,
    samples=samples,
    judge=judge,
    rules=RULES,
    series=81,
    applicable=lambda reading: bool(reading.gpus and reading.nics),
)
