"""Links: NVLink, PCIe and RDMA ports of the GPUs and nodes chosen, the worst of them where they are many."""

from dashboards.links.gpudirect import GPUDIRECT
from dashboards.links.now import NOW
from dashboards.links.nvlink import NVLINK
from dashboards.links.ports import PCIE, RDMA
from dashboards.parts import Dashboard
from dashboards.shared import events

LINKS = Dashboard(
    "wirewatch-links",
    "wirewatch / Links",
    "NVLink, PCIe, InfiniBand and RoCE of the nodes and GPUs chosen: what is down, slow, or counts errors.",
    (NOW, NVLINK, PCIE, RDMA, GPUDIRECT),
    events(often=False),
    variables=("cluster", "node", "gpu"),
    many=("cluster", "node", "gpu"),
)
