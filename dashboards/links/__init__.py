"""Links: NVLink, PCIe and RDMA ports of the GPUs and nodes chosen, the worst of them where they are many."""

from dashboards.links.now import NOW
from dashboards.links.nvlink import NVLINK, SINGLE
from dashboards.links.ports import GPUDIRECT, PCIE, RDMA
from dashboards.parts import Dashboard
from dashboards.shared import events

LINKS = Dashboard(
    "wirewatch-links",
    "wirewatch / Links",
    "NVLink, PCIe, InfiniBand and RoCE of the nodes and GPUs chosen: what is down, slow, or counts errors.",
    (NOW, NVLINK, RDMA, PCIE, GPUDIRECT, SINGLE),
    events(often=False),
    variables=("cluster", "node", "gpu"),
    many=("cluster", "node", "gpu"),
)
