"""Node: everything that is known of one, and which GPU, link or port it is, on three screens."""

from dashboards.node.hardware import HELD
from dashboards.node.jobs import JOBS
from dashboards.node.probe import BUSBW, SLOW
from dashboards.node.verdict import VERDICT
from dashboards.parts import Dashboard, Row
from dashboards.shared import events
from dashboards.wires import gpus_pcie, ports

NODE_PAGE = Dashboard(
    "wirewatch-node",
    "wirewatch / Node",
    "One node: the verdict, what is wrong and what to do, bus bandwidth against expected, and slow GPUs.",
    (VERDICT, BUSBW, SLOW, HELD, Row("PCIe and ports", (gpus_pcie(nodes=False), ports(nodes=False))), JOBS),
    events(often=True),
    variables=("cluster", "node", "gpu"),
    many=("gpu",),
)
