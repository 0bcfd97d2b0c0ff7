"""GPUDirect RDMA: checks, and the paths from GPUs to NICs."""

from dashboards.links.queries import OF_GPU, WHERE
from dashboards.parts import Blank, Label, Matrix, Row, Table, Value
from dashboards.shared import CLUSTER, COLOURED, COUNTED, NODE

_GDR = "max by (cluster,node,check,state) (wirewatch_gpudirect_check_state{HERE})"
_NEAR = "max by (cluster,node,gpu,device,path) (wirewatch_gpu_nic_path_info{GPUS})"
_FIRST = f"topk(16, max by ({OF_GPU}) (wirewatch_gpu_nic_path_info{{GPUS}}))"

GPUDIRECT = Row(
    "GPUDirect RDMA",
    (
        Matrix(
            "Checks",
            "On how many nodes each check passed, failed or could not be done.",
            f"sum by (check,state) ({_GDR})",
            "check",
            "state",
            "none",
            COUNTED,
            width=8,
            height=9,
            misleads="a check that could not be done is neither passed nor failed.",
        ),
        Table(
            "Checks that fail",
            "A failed check costs GPUDirect between some GPU and NIC. 50 rows at most.",
            (
                Value(
                    "failed",
                    "topk(50, max by (cluster,node,check) "
                    '(wirewatch_gpudirect_check_state{HERE,state="failed"}) == 1)',
                    "none",
                    COLOURED,
                    75,
                    {"1": ("failed", "red")},
                ),
                CLUSTER,
                NODE,
                Label("check"),
            ),
            16,
            9,
            blank=Blank.GPUDIRECT,
        ),
        Matrix(
            "Path from GPU to NIC",
            "As nvidia-smi names it: PIX one PCI switch, PXB several, PHB one root, NODE one NUMA "
            "node, SYS across. Of sixteen GPUs at most.",
            WHERE.format(f"{_NEAR} and on ({OF_GPU}) {_FIRST}"),
            "where",
            "device",
            "none",
            COLOURED,
            shows="path",
            words={
                "PIX": ("PIX", "green"),
                "PXB": ("PXB", "green"),
                "PHB": ("PHB", "yellow"),
                "NODE": ("NODE", "transparent"),
                "SYS": ("SYS", "transparent"),
                "unknown": ("?", "purple"),
            },
            width=24,
            height=10,
            first=130,
        ),
    ),
)
