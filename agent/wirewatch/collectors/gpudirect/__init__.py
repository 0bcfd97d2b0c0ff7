"""GPUDirect RDMA: which NIC is near which GPU, and whether they may talk without the CPU's memory."""

from wirewatch.collectors.gpudirect.judge import RULES, judge
from wirewatch.collectors.gpudirect.metrics import METRICS, samples
from wirewatch.collectors.gpudirect.model import (
    GpudirectMemory,
    GpudirectOptions,
    GpudirectPolicy,
    GpudirectReading,
)
from wirewatch.collectors.gpudirect.read import read
from wirewatch.core.collector import Collector

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
