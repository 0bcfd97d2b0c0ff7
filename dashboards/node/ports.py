"""PCIe and RDMA ports of a node."""

from dashboards.parts import AT_MOST_NONE, IS_UP, Label, Limits, NoLimit, Query, Row, Series, Table, Value
from dashboards.shared import COUNTED, GPU_HERE, OF_ITS_KIND

PCIE = Row(
    "PCIe and ports",
    (
        Table(
            "PCIe of GPUs",
            "Generation and lanes now and at most. The generation falls when a GPU is idle, by "
            "design; lanes do not. Replays are packets sent again, since reset.",
            (
                GPU_HERE,
                Value(
                    "generation",
                    "max by (gpu) (wirewatch_pcie_generation{GPUS})",
                    "none",
                    NoLimit("it falls when idle, by design"),
                    100,
                ),
                Value("at most", "max by (gpu) (wirewatch_pcie_generation_max{GPUS})", "none", COUNTED, 80),
                Value("lanes", "max by (gpu) (wirewatch_pcie_width{GPUS})", "none", COUNTED, 70),
                Value("most lanes", "max by (gpu) (wirewatch_pcie_width_max{GPUS})", "none", COUNTED, 100),
                Value(
                    "lanes missing",
                    "max by (gpu) (wirewatch_pcie_width_max{GPUS}) - max by (gpu) "
                    "(wirewatch_pcie_width{GPUS})",
                    "none",
                    AT_MOST_NONE,
                    120,
                ),
                Value(
                    "replays/h",
                    "max by (gpu) (increase(wirewatch_pcie_replays_total{GPUS}[1h]))",
                    "none",
                    Limits("green", ((100, "orange"),)),
                    decimals=0,
                ),
            ),
            height=12,
            misleads="a low generation on an idle GPU saves power and is no fault.",
        ),
        Table(
            "RDMA ports",
            "State and rate of each port, and what it is. A port that is down has no rate here.",
            (
                Value(
                    "active",
                    'max by (device,port) (wirewatch_rdma_port_state{HERE,state="active"})',
                    "none",
                    Limits("red", ((1, "green"),)),
                    65,
                    IS_UP,
                ),
                Label("device", 75),
                Label("port", 45),
                Value(
                    "of rate",
                    "max by (device,port) (wirewatch_rdma_port_rate_bytes_per_second{HERE}) / max by "
                    "(device,port) (wirewatch_rdma_port_rate_expected_bytes_per_second{HERE})",
                    "percentunit",
                    Limits("red", ((1, "green"),)),
                    75,
                    decimals=0,
                ),
                Value(
                    "rate",
                    "max by (device,port) (wirewatch_rdma_port_rate_bytes_per_second{HERE})",
                    "Bps",
                    NoLimit("it is compared beside it"),
                    75,
                ),
                Value(
                    "",
                    "max by (device,port,link_layer,model,firmware,netdev) (wirewatch_rdma_port_info{HERE})",
                    "none",
                    COUNTED,
                ),
                Label("link_layer", 86, "layer"),
                Label("model", 75),
                Label("firmware", 95),
                Label("netdev", 85),
            ),
            height=12,
            order=(("active", False), ("device", False)),
        ),
        Series(
            "RDMA sent",
            "Bytes sent by each port.",
            (
                Query(
                    "max by (device,port) "
                    "(rate(wirewatch_rdma_port_transmit_bytes_total{HERE}[$__rate_interval]))",
                    "{{device}}:{{port}}",
                ),
            ),
            "Bps",
            OF_ITS_KIND,
        ),
        Series(
            "RDMA errors an hour",
            "Errors of all ports by kind. Old ones are no fault, growing ones may be.",
            (
                Query(
                    "sum by (kind) (rate(wirewatch_rdma_port_errors_total{HERE}[$__rate_interval])) * 3600",
                    "{{kind}}",
                ),
            ),
            "none",
            Limits("green", ((1, "orange"),)),
        ),
    ),
)
