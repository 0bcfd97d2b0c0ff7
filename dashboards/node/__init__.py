"""Node: everything that is known of one, and which GPU, link or port it is."""

from dashboards.node.hardware import HELD
from dashboards.node.jobs import JOBS
from dashboards.node.ports import PCIE
from dashboards.node.probe import BUSBW
from dashboards.node.slow import MISLEADING, SLOW
from dashboards.node.verdict import VERDICT
from dashboards.parts import Dashboard
from dashboards.shared import events

NODE_PAGE = Dashboard(
    "wirewatch-node",
    "wirewatch / Node",
    "One node: the verdict, what is wrong and what to do, bus bandwidth against expected, and slow GPUs.",
    (VERDICT, BUSBW, SLOW, JOBS, MISLEADING, HELD, PCIE),
    events(often=True),
    variables=("cluster", "node", "gpu"),
    many=("gpu",),
)
