"""PCIe of GPUs, RDMA ports, and GPUDirect between them."""

from dashboards.parts import Blank, Label, Matrix, NoLimit, Query, Row, Series, Table, Value
from dashboards.shared import CLUSTER, COLOURED, COUNTED, NODE
from dashboards.wires import FULL, GROWS, OF_GPU, OF_PORT, RATE, WHERE, busiest, gpus_pcie, ports

_ERRORS = "wirewatch_rdma_port_errors_total{HERE}"
_NEAR = "max by (cluster,node,gpu,device,path) (wirewatch_gpu_nic_path_info{GPUS})"
_FIRST = f"topk(16, max by ({OF_GPU}) (wirewatch_gpu_nic_path_info{{GPUS}}))"


def _by(label: str, counter: str) -> Query:
    return Query(f"sum by ({label}) (rate({counter}[$__rate_interval])) * 3600", f"{{{{{label}}}}}")


def _busy(title: str, about: str, direction: str) -> Series:
    """The busiest ports in one direction."""
    counter = f"wirewatch_rdma_port_{direction}_bytes_total{{HERE}}"
    line = busiest(counter, RATE, OF_PORT, "{{cluster}} {{node}} {{device}}:{{port}}")
    return Series(
        title, about, (line,), "percentunit", FULL, height=7, reach=0.1, legend="highest",
        misleads="the twelve are chosen by their mean over the time shown: a short burst of another is not "
        "here.",
    )  # fmt: skip


PCIE = Row(
    "PCIe",
    (
        gpus_pcie(nodes=True),
        Series(
            "PCIe replays and errors an hour",
            "Packets sent again, and errors that the kernel counted (AER), by severity. Corrected ones are "
            "no fault, others are.",
            (
                Query("sum(rate(wirewatch_pcie_replays_total{GPUS}[$__rate_interval])) * 3600", "replays"),
                _by("severity", "wirewatch_pcie_errors_total{GPUS}"),
            ),
            "none", GROWS, height=9,
        ),
    ),
)  # fmt: skip
RDMA = Row(
    "InfiniBand and RoCE",
    (
        ports(nodes=True),
        Table(
            "Ports with errors in the last hour",
            "By kind, most first; which kinds are judged is in docs/METRICS.md. 50 rows at most.",
            (
                Value(
                    "errors", f"topk(50, sum by ({OF_PORT},kind) (increase({_ERRORS}[1h])) > 0)", "none",
                    GROWS, 90, decimals=0,
                ),
                CLUSTER, NODE, Label("device", 90), Label("port", 50), Label("kind"),
            ),
            height=9, order=(("errors", True),), blank=Blank.PORTS,
            misleads="a counter at its ceiling counts no more: that is a finding.",
        ),
        _busy("Sent, of the port's rate", "The twelve ports that sent most in the time shown.", "transmit"),
        _busy(
            "Received, of the port's rate", "The twelve ports that received most in the time shown.",
            "receive",
        ),
        Series(
            "Congestion an hour, by kind",
            "Signs of a full network, each in its own unit; no fault of the node.",
            (_by("kind", "wirewatch_rdma_port_congestion_total{HERE}"),),
            "short", NoLimit("what is much depends on the network"), 24, 6,
            misleads="units differ by kind: compare a line only with itself.",
        ),
    ),
)  # fmt: skip
GPUDIRECT = Row(
    "GPUDirect RDMA",
    (
        Table(
            "Checks that fail, or cannot be done",
            "A failed check costs GPUDirect between some GPU and NIC; of an unknown one nobody "
            "knows. 50 rows at most.",
            (
                Value(
                    "",
                    "topk(50, max by (cluster,node,check,state) "
                    '(wirewatch_gpudirect_check_state{HERE,state=~"failed|unknown"}) == 1)',
                    "none", COUNTED,
                ),
                Label("state", 90, words={"failed": ("failed", "red"), "unknown": ("unknown", "purple")}),
                CLUSTER, NODE, Label("check"),
            ),
            8, 9, order=(("state", False),), blank=Blank.GPUDIRECT,
        ),
        Matrix(
            "Path from GPU to NIC",
            "As nvidia-smi names it: PIX one PCI switch, PXB several, PHB one root, NODE one NUMA "
            "node, SYS across. Of sixteen GPUs at most.",
            WHERE.format(f"{_NEAR} and on ({OF_GPU}) {_FIRST}"),
            "where", "device", "none", COLOURED, shows="path",
            words={
                "PIX": ("PIX", "green"), "PXB": ("PXB", "green"), "PHB": ("PHB", "yellow"),
                "NODE": ("NODE", "transparent"), "SYS": ("SYS", "transparent"), "unknown": ("?", "purple"),
            },
            width=16, height=9, first=150,
        ),
    ),
)  # fmt: skip
