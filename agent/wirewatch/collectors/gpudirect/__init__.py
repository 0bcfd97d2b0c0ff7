"""GPUDirect RDMA: which NIC is near which GPU, and whether they may talk without the CPU's memory."""

from collections.abc import Iterable

from wirewatch.collectors.gpudirect.judge import (
    RULES,
    CheckState,
    GpudirectCheck,
    checks,
    judge,
    known_acs,
    peer_memory,
)
from wirewatch.collectors.gpudirect.read import (
    GpudirectMemory,
    GpudirectOptions,
    GpudirectPolicy,
    GpudirectReading,
    all_paths,
    read,
)
from wirewatch.core.collector import Collector
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Sample, Tier, family, value_or

UNSEEN = "all of it"
PATH = family(
    "gpu_nic_path_info", ("gpu", "uuid", "device", "path", "nearest"),
    "PCI path from GPU to NIC as nvidia-smi names it (PIX, PXB, PHB, NODE, SYS), or unknown.", UNSEEN,
)  # fmt: skip
CHECK = family(
    "gpudirect_check_state", ("check", "state"),
    "1 for the answer to each question about GPUDirect RDMA: passed, failed or unknown.", UNSEEN,
    tier=Tier.CORE, core=("failed", "unknown"),
)  # fmt: skip
NEEDS = family(
    "gpudirect_check_needs_info", ("check", "privilege"),
    "For a check whose answer is unknown: the privilege that it needs, or none.", UNSEEN,
    undrawn="why a check cannot tell is for whoever sets up the agent",
)  # fmt: skip
INFO = family(
    "gpudirect_info", ("peer_memory", "kernel_module", "rdma_stack"),
    "How NICs may reach GPU memory; likely until a job's own log proves it.", UNSEEN,
    undrawn="the checks beside it say how NICs reach GPU memory",
)  # fmt: skip
UNPARSED = family(
    "nccl_conf_lines_unparsed", (), "Lines of /etc/nccl.conf that are not settings.", UNSEEN, tier=Tier.CORE
)
METRICS = (PATH, CHECK, NEEDS, INFO, UNPARSED)


def samples(reading: GpudirectReading, memory: GpudirectMemory) -> Iterable[Sample]:
    if not reading.nics or not reading.gpus:
        return
    for gpu, device, path, nearest in all_paths(reading):
        name = "unknown" if isinstance(path, Absent) else path.name
        yield PATH.sample(1, str(gpu.index), gpu.uuid, device, name, "true" if path is nearest else "false")
    for check in checks(reading, known_acs(memory, reading)):
        for state in CheckState:
            yield CHECK.sample(check.state is state, check.name, state.value)
        if check.state is CheckState.UNKNOWN:
            yield NEEDS.sample(1, check.name, check.needs)
    software = reading.software
    yield INFO.sample(1, peer_memory(software), value_or(software.module, "unknown"), software.stack)
    if not isinstance(software.conf, Absent):
        yield UNPARSED.sample(len(software.conf.unknown))


__all__ = ["COLLECTOR", "CheckState", "GpudirectCheck", "read_checks"]


def read_checks(hardware: Hardware) -> tuple[GpudirectCheck, ...] | Absent:
    """Return all NICs' answers to each question now; Absent when GPUs or RDMA devices cannot be listed."""
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
