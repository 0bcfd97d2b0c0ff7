"""PCIe of GPUs, and RDMA ports."""

from dashboards.links.queries import (
    ACTIVE,
    FULL,
    GROWS,
    NARROW,
    OF_GPU,
    OF_PORT,
    RATE,
    RATE_EXPECTED,
    busiest,
)
from dashboards.parts import (
    AT_MOST_NONE,
    IS_UP,
    SOME_IS_ODD,
    Blank,
    Label,
    Limits,
    NoLimit,
    Query,
    Row,
    Series,
    Table,
    Value,
)
from dashboards.shared import CLUSTER, COUNTED, GPU, NODE


def _hour(metric: str, by: str) -> str:
    return f"sum by ({by}) (increase({metric}[1h]))"


_REPLAYS = f"max by ({OF_GPU}) (increase(wirewatch_pcie_replays_total{{GPUS}}[1h]))"

PCIE = Row(
    "PCIe",
    (
        Table(
            "PCIe of GPUs, worst first",
            "Lanes missing, generation, replays and errors. The generation falls when a GPU is idle, "
            "by design. The fifty GPUs with most lanes missing, then most replays.",
            (
                Value(
                    "replays/h",
                    f"topk(50, {_REPLAYS} + 1e6 * ({NARROW})) - 1e6 * ({NARROW})",
                    "none",
                    Limits("green", ((100, "orange"),)),
                    85,
                    decimals=0,
                ),
                CLUSTER,
                NODE,
                GPU,
                Value("lanes missing", NARROW, "none", AT_MOST_NONE, of=OF_GPU),
                Value(
                    "generation",
                    f"max by ({OF_GPU}) (wirewatch_pcie_generation{{GPUS}})",
                    "none",
                    NoLimit("it falls when idle, by design"),
                    of=OF_GPU,
                ),
                Value(
                    "at most",
                    f"max by ({OF_GPU}) (wirewatch_pcie_generation_max{{GPUS}})",
                    "none",
                    COUNTED,
                    of=OF_GPU,
                ),
            ),
            order=(("lanes missing", True), ("replays/h", True)),
            misleads="a low generation on an idle GPU saves power and is no fault.",
        ),
        Series(
            "PCIe errors an hour that the kernel counted (AER)",
            "By severity. Corrected ones are no fault, others are.",
            (
                Query(
                    "sum by (severity) (rate(wirewatch_pcie_errors_total{GPUS}[$__rate_interval])) * 3600",
                    "{{severity}}",
                ),
            ),
            "none",
            GROWS,
        ),
    ),
)

RDMA = Row(
    "InfiniBand and RoCE",
    (
        Table(
            "Ports, worst first",
            "Whether a port is active and at its rate; flaps, times it went down in an hour, and error "
            "counters that are blind because they stand at their ceiling. The fifty lowest.",
            (
                Value("active", f"bottomk(50, {ACTIVE})", "none", Limits("red", ((1, "green"),)), 65, IS_UP),
                CLUSTER,
                NODE,
                Label("device", 80),
                Label("port", 50),
                Value(
                    "of rate",
                    f"{RATE} / {RATE_EXPECTED}",
                    "percentunit",
                    Limits("red", ((1, "green"),)),
                    75,
                    decimals=0,
                    of=OF_PORT,
                ),
                Value(
                    "flaps",
                    f"max by ({OF_PORT}) (wirewatch_rdma_port_flaps_total{{HERE}})",
                    "none",
                    SOME_IS_ODD,
                    65,
                    of=OF_PORT,
                ),
                Value(
                    "went down",
                    f"max by ({OF_PORT}) (increase(wirewatch_rdma_port_link_downed_total{{HERE}}[1h]))",
                    "none",
                    SOME_IS_ODD,
                    95,
                    decimals=0,
                    of=OF_PORT,
                ),
                Value(
                    "blind",
                    f"max by ({OF_PORT}) (wirewatch_rdma_port_counters_saturated{{HERE}})",
                    "none",
                    SOME_IS_ODD,
                    of=OF_PORT,
                ),
            ),
            order=(("active", False), ("of rate", False)),
            height=9,
            misleads="ports without a cable on purpose are here too, until `[expect]` says how "
            "many there should be.",
        ),
        Table(
            "Ports with errors in the last hour",
            "By kind, most first; which kinds are judged is in docs/METRICS.md. 50 rows at most.",
            (
                Value(
                    "errors",
                    f"topk(50, {_hour('wirewatch_rdma_port_errors_total{HERE}', OF_PORT + ',kind')} > 0)",
                    "none",
                    GROWS,
                    90,
                    decimals=0,
                ),
                CLUSTER,
                NODE,
                Label("device", 90),
                Label("port", 50),
                Label("kind"),
            ),
            order=(("errors", True),),
            blank=Blank.PORTS,
            height=9,
            misleads="a counter at its ceiling (blind) counts no more.",
        ),
        Series(
            "Sent, of the port's rate",
            "The twelve ports that sent most in the time shown.",
            (
                busiest(
                    "wirewatch_rdma_port_transmit_bytes_total{HERE}",
                    RATE,
                    OF_PORT,
                    "{{cluster}} {{node}} {{device}}:{{port}}",
                ),
            ),
            "percentunit",
            FULL,
            legend="highest",
            misleads="the twelve are chosen by their mean over the time shown: a short burst of "
            "another is not here.",
        ),
        Series(
            "Received, of the port's rate",
            "The twelve ports that received most in the time shown.",
            (
                busiest(
                    "wirewatch_rdma_port_receive_bytes_total{HERE}",
                    RATE,
                    OF_PORT,
                    "{{cluster}} {{node}} {{device}}:{{port}}",
                ),
            ),
            "percentunit",
            FULL,
            legend="highest",
            misleads="the twelve are chosen by their mean over the time shown: a short burst of "
            "another is not here.",
        ),
        Series(
            "Errors an hour, by kind",
            "Over all ports chosen. Counts from before the agent started are no fault.",
            (
                Query(
                    "sum by (kind) (rate(wirewatch_rdma_port_errors_total{HERE}[$__rate_interval])) * 3600",
                    "{{kind}}",
                ),
            ),
            "none",
            GROWS,
        ),
        Series(
            "Congestion an hour, by kind",
            "Signs of a full network, each in its own unit; no fault of the node.",
            (
                Query(
                    "sum by (kind) (rate(wirewatch_rdma_port_congestion_total{HERE}[$__rate_interval])) * "
                    "3600",
                    "{{kind}}",
                ),
            ),
            "short",
            NoLimit("what is much depends on the network"),
            misleads="units differ by kind: compare a line only with itself.",
        ),
    ),
)
