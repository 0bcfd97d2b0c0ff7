"""What can keep NICs from reaching GPU memory."""

from wirewatch.core.collector import CONFIRMED, DEGRADED, Rule

RULES = (
    Rule("gpudirect.rdma_stack", CONFIRMED, "GPUDirectLost"),
    Rule("gpudirect.peer_memory", CONFIRMED, "GPUDirectLost"),
    Rule("gpudirect.acs", DEGRADED, "GPUDirectLost"),
    Rule("gpudirect.iommu", DEGRADED, "GPUDirectLost"),
    Rule("gpudirect.nccl_conf", DEGRADED, "GPUDirectLost"),
    Rule("gpudirect.missing", CONFIRMED, "GPUDirectLost"),
)
