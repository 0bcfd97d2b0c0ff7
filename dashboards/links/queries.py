"""Queries that several rows of the links dashboard use."""

from dashboards.parts import Limits, Query

OF_GPU = "cluster,node,gpu"
OF_PORT = "cluster,node,device,port"
UP = (
    f'sum by ({OF_GPU}) (max by ({OF_GPU},uuid,state) (wirewatch_nvlink_links{{GPUS,state=~"active|sleep"}}))'
)
EXPECTED = f"max by ({OF_GPU}) (wirewatch_nvlink_links_expected{{GPUS}})"
MISSING = f"clamp_min({EXPECTED} - {UP}, 0)"
ACTIVE = f'max by ({OF_PORT}) (wirewatch_rdma_port_state{{HERE,state="active"}})'
RATE = f"max by ({OF_PORT}) (wirewatch_rdma_port_rate_bytes_per_second{{HERE}})"
RATE_EXPECTED = f"max by ({OF_PORT}) (wirewatch_rdma_port_rate_expected_bytes_per_second{{HERE}})"
NARROW = (
    f"max by ({OF_GPU}) (wirewatch_pcie_width_max{{GPUS}}) - max by ({OF_GPU}) (wirewatch_pcie_width{{GPUS}})"
)
FULL = Limits("green", ((0.95, "orange"),))
GROWS = Limits("green", ((1, "orange"),))


def busiest(rate: str, of: str, by: str, legend: str) -> Query:
    """The twelve busiest by their mean over the time shown, as a part of what the wire carries."""
    share = f"max by ({by}) (rate({rate}[$__rate_interval])) / {of}"
    chosen = f"topk(12, max by ({by}) (rate({rate}[$__range] @ end())))"
    return Query(f"{share} and on ({by}) {chosen}", legend)


WHERE = 'label_join({}, "where", " ", "node", "gpu")'
