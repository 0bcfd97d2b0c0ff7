"""GPUDirect RDMA as series."""

from collections.abc import Iterable

from wirewatch.collectors.gpudirect.judge import CheckState, checks, known_acs, peer_memory
from wirewatch.collectors.gpudirect.model import GpudirectMemory, GpudirectReading, all_paths
from wirewatch.core.types import Absent, Kind, Metric, Sample, value_or

UNSEEN = "all of it"
PATH = Metric(
    "gpu_nic_path_info",
    Kind.INFO,
    ("gpu", "uuid", "device", "path", "nearest"),
    "PCI path from GPU to NIC as nvidia-smi names it (PIX, PXB, PHB, NODE, SYS), or unknown.",
    UNSEEN,
)
CHECK = Metric(
    "gpudirect_check_state",
    Kind.GAUGE,
    ("check", "state"),
    "1 for the answer to each question about GPUDirect RDMA: passed, failed or unknown.",
    UNSEEN,
)
NEEDS = Metric(
    "gpudirect_check_needs_info",
    Kind.INFO,
    ("check", "privilege"),
    "For a check whose answer is unknown: the privilege that it needs, or none.",
    UNSEEN,
    undrawn="why a check cannot tell is for whoever sets up the agent",
)
INFO = Metric(
    "gpudirect_info",
    Kind.INFO,
    ("peer_memory", "kernel_module", "rdma_stack"),
    "How NICs may reach GPU memory; likely until a job's own log proves it.",
    UNSEEN,
    undrawn="the checks beside it say how NICs reach GPU memory",
)
UNPARSED = Metric(
    "nccl_conf_lines_unparsed", Kind.GAUGE, (), "Lines of /etc/nccl.conf that are not settings.", UNSEEN
)
METRICS = (PATH, CHECK, NEEDS, INFO, UNPARSED)


def samples(reading: GpudirectReading, memory: GpudirectMemory) -> Iterable[Sample]:
    """The series; none where there is no GPU or no NIC."""
    if not reading.nics or not reading.gpus:
        return
    for gpu, device, path, nearest in all_paths(reading.gpus, reading.nics, reading.nodes):
        name = "unknown" if isinstance(path, Absent) else path.name
        yield PATH.sample(1, str(gpu.index), gpu.uuid, device, name, "true" if nearest else "false")
    for check in checks(reading, known_acs(memory, reading)):
        for state in CheckState:
            yield CHECK.sample(check.state is state, check.name, state.value)
        if check.state is CheckState.UNKNOWN:
            yield NEEDS.sample(1, check.name, check.needs)
    software = reading.software
    yield INFO.sample(1, peer_memory(software), value_or(software.module, "unknown"), software.stack)
    if not isinstance(software.conf, Absent):
        yield UNPARSED.sample(len(software.conf.unknown))
