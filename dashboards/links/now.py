"""What of all links is wrong now, as numbers."""

from dashboards.links.queries import ACTIVE, GROWS, MISSING, NARROW, OF_GPU, RATE, RATE_EXPECTED
from dashboards.parts import AT_MOST_NONE, SOME_IS_ODD, Row, Stat

NOW = Row(
    "Now",
    (
        Stat(
            "NVLinks missing",
            "Links that are not up and should be, over all GPUs chosen.",
            f"sum({MISSING})",
            "none",
            AT_MOST_NONE,
            width=4,
        ),
        Stat(
            "NVLink errors, last hour",
            "Counted errors of all kinds. The kinds of one generation overlap, so this is a sign and "
            "no number of events.",
            "sum(increase(wirewatch_nvlink_errors_total{GPUS}[1h]))",
            "none",
            GROWS,
            width=4,
            decimals=0,
        ),
        Stat(
            "Fabric not complete",
            "GPUs behind NVSwitches that are not registered with the fabric manager; NCCL fails "
            "there. Those that have no fabric do not count.",
            f"count(max by ({OF_GPU}) "
            f'(wirewatch_fabric_state{{GPUS,state=~"completed|not_supported"}}) == 0) or 0 * '
            f"count(wirewatch_fabric_state{{GPUS}})",
            "none",
            AT_MOST_NONE,
            width=4,
        ),
        Stat(
            "PCIe lanes missing",
            "GPUs with fewer lanes than GPU and slot allow.",
            f"sum({NARROW} > bool 0)",
            "none",
            AT_MOST_NONE,
            width=4,
        ),
        Stat(
            "Ports not active",
            "RDMA ports that are not active, also those that never were and are no fault.",
            f"sum({ACTIVE} == bool 0)",
            "none",
            SOME_IS_ODD,
            width=4,
        ),
        Stat(
            "Ports under their rate",
            "Ports that are slower than they or their siblings have been.",
            f"sum({RATE} < bool {RATE_EXPECTED})",
            "none",
            AT_MOST_NONE,
            width=4,
        ),
    ),
)
