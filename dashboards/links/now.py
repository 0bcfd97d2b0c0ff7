"""What of all links is wrong now, as numbers that tier `core` has."""

from dashboards.parts import AT_MOST_NONE, SOME_IS_ODD, Limits, Row, Stat
from dashboards.wires import ACTIVE, MISSING, NARROW, OF_GPU, OF_RATE

_FABRIC = f'max by ({OF_GPU}) (wirewatch_fabric_state{{GPUS,state=~"completed|not_supported"}})'
_FOUND = (
    "max by (cluster,node,rule,gpu,link,device,port) (wirewatch_finding_since_timestamp_seconds{HERE,"
    'rule=~"(gpu|nvlink|fabric|pcie|infiniband|gpudirect|nics)\\\\..+"})'
)


def _number(title: str, about: str, expr: str, limits: Limits = AT_MOST_NONE, misleads: str = "") -> Stat:
    return Stat(title, about, expr, "none", limits, width=4, misleads=misleads)


NOW = Row(
    "Now",
    (
        _number(
            "NVLinks missing", "Links that are not up and should be, over all GPUs chosen.", f"sum({MISSING})"
        ),
        _number(
            "Fabric not complete",
            "GPUs behind NVSwitches that are not registered with the fabric manager; NCCL fails "
            "there. Those that have no fabric do not count.",
            f"sum({_FABRIC} == bool 0)",
        ),
        _number(
            "PCIe lanes missing", "GPUs with fewer lanes than GPU and slot allow.", f"sum({NARROW} > bool 0)"
        ),
        _number(
            "Ports not active",
            "RDMA ports that are not active or cannot be read, also those that never were and are no fault.",
            f"sum({ACTIVE} < bool 1)", SOME_IS_ODD,
        ),
        _number(
            "Ports under their rate",
            "Ports that are down, or slower than they or their siblings have been.",
            f"sum(({OF_RATE}) < bool 1)",
        ),
        _number(
            "Findings",
            "What is wrong with GPUs and links, on all nodes chosen, also what cannot be read; Node has each "
            "of them.",
            f"count({_FOUND}) or count(wirewatch_job_ready{{HERE}}) * 0",
            SOME_IS_ODD,
        ),
    ),
)  # fmt: skip
