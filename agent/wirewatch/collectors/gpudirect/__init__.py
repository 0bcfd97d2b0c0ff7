"""GPUDirect RDMA: which NIC is near which GPU, and whether they may talk without the CPU's memory."""

from wirewatch.collectors.gpudirect.judge import judge
from wirewatch.collectors.gpudirect.reading import read
from wirewatch.collectors.gpudirect.samples import METRICS, samples
from wirewatch.collectors.gpudirect.values import GpudirectOptions, GpudirectPolicy, Memory, Reading
from wirewatch.core.collector import Collector

COLLECTOR: Collector[Reading, Memory, GpudirectOptions, GpudirectPolicy] = Collector(
    name="gpudirect",
    about="GPUDirect RDMA: paths from GPUs to NICs, peer memory, ACS, IOMMU, NCCL's settings",
    lane="nvml",
    options=GpudirectOptions(),
    policy=GpudirectPolicy(),
    metrics=METRICS,
    start=Memory(),
    read=read,
    samples=samples,
    judge=judge,
    applicable=lambda reading: bool(reading.gpus and reading.nics),
)
