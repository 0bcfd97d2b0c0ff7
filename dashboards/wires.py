"""Tables that Node and Links share: PCIe of GPUs, and RDMA ports; and the queries of Links."""

from dashboards.parts import AT_MOST_NONE, IS_UP, SOME_IS_ODD, Label, Limits, NoLimit, Query, Table, Value
from dashboards.shared import CLUSTER, COUNTED, GPU, GPU_HERE, NODE

OF_GPU = "cluster,node,gpu"
OF_PORT = "cluster,node,device,port"
UP = (
    f'sum by ({OF_GPU}) (max by ({OF_GPU},uuid,state) (wirewatch_nvlink_links{{GPUS,state=~"active|sleep"}}))'
)
EXPECTED = f"max by ({OF_GPU}) (wirewatch_nvlink_links_expected{{GPUS}})"
MISSING = f"clamp_min({EXPECTED} - {UP}, 0)"
RATE = f"max by ({OF_PORT}) (wirewatch_rdma_port_rate_bytes_per_second{{HERE}})"
RATE_EXPECTED = f"max by ({OF_PORT}) (wirewatch_rdma_port_rate_expected_bytes_per_second{{HERE}})"
_STATE = f'max by ({OF_PORT}) (wirewatch_rdma_port_state{{HERE,state="active"}})'
ACTIVE = f"({_STATE} or {RATE_EXPECTED} * 0 - 1)"
"""1 for a port that is active, 0 for one that is not, -1 for one that cannot be read."""
_FLAPS = f"max by ({OF_PORT}) (wirewatch_rdma_port_flaps_total{{HERE}})"
_DOWNED = f"max by ({OF_PORT}) (increase(wirewatch_rdma_port_link_downed_total{{HERE}}[1h]))"
OF_RATE = f"{RATE} / {RATE_EXPECTED} or {RATE_EXPECTED} * 0 and {_STATE} == 0"
"""Of what a port should have; a port that is down has no rate, and is at 0."""
NARROW = (
    f"max by ({OF_GPU}) (wirewatch_pcie_width_max{{GPUS}}) - max by ({OF_GPU}) (wirewatch_pcie_width{{GPUS}})"
)
FULL = Limits("green", ((0.95, "orange"),))
GROWS = Limits("green", ((1, "orange"),))
_IS_UP = {**IS_UP, "-1": ("?", "purple")}
WHERE = 'label_join({}, "where", " ", "node", "gpu")'


def busiest(rate: str, of: str, by: str, legend: str) -> Query:
    """The twelve busiest by their mean over the time shown, as a part of what the wire carries."""
    share = f"max by ({by}) (rate({rate}[$__rate_interval])) / ({of} > 0)"
    chosen = f"topk(12, max by ({by}) (rate({rate}[$__range] @ end())))"
    return Query(f"{share} and on ({by}) {chosen}", legend)


def gpus_pcie(*, nodes: bool) -> Table:
    """Lanes and generation of each GPU; of the nodes chosen, the fifty with most lanes missing."""
    where = (CLUSTER, NODE, GPU) if nodes else (GPU_HERE,)
    of = OF_GPU if nodes else "gpu"

    def beside(header: str, metric: str, why: str, width: int) -> Value:
        return Value(header, f"max by ({of}) ({metric}{{GPUS}})", "none", NoLimit(why), width, of=of)

    missing = NARROW if nodes else NARROW.replace(OF_GPU, of)
    return Table(
        "PCIe of GPUs, worst first",
        "Lanes missing, lanes now, and generation. The generation falls when a GPU is idle, by design; lanes "
        "do not. The fifty GPUs with most lanes missing.",
        (
            *where,
            Value("lanes missing", f"topk(50, {missing})", "none", AT_MOST_NONE, 110),
            beside("lanes", "wirewatch_pcie_width", "it is compared beside it", 70),
            beside("generation", "wirewatch_pcie_generation", "it falls when idle, by design", 0),
        ),
        12 if nodes else 8, 9 if nodes else 10, order=(("lanes missing", True),),
        misleads="a low generation on an idle GPU saves power and is no fault.",
    )  # fmt: skip


def ports(*, nodes: bool) -> Table:
    """State and rate of each port, and what it is; of the nodes chosen, the fifty lowest."""
    where, of = ((CLUSTER, NODE), OF_PORT) if nodes else ((), "device,port")

    def at(expr: str) -> str:
        return expr.replace(OF_PORT, of)

    info = f"max by ({of},link_layer,model,firmware,netdev) (wirewatch_rdma_port_info{{HERE}})"
    facts = () if nodes else (Value("", info, "none", COUNTED), Label("link_layer", 86, "layer"),
                              Label("model", 75), Label("firmware", 95), Label("netdev", 85))  # fmt: skip
    return Table(
        "RDMA ports, worst first",
        "Whether a port is active (? where it cannot be read) and at its rate, where a port that is down is "
        "at 0 %; flaps, and times it went down in an hour. The fifty lowest.",
        (
            Value("active", f"bottomk(50, {at(ACTIVE)})", "none", Limits("red", ((1, "green"),)), 65, _IS_UP),
            *where, Label("device", 80), Label("port", 50),
            Value(
                "of rate", at(OF_RATE), "percentunit", Limits("red", ((1, "green"),)), 75, decimals=0, of=of
            ),
            Value("flaps", at(_FLAPS), "none", SOME_IS_ODD, 65, of=of),
            Value("went down", at(_DOWNED), "none", SOME_IS_ODD, 95, decimals=0, of=of),
            *facts,
        ),
        12 if nodes else 16, 9 if nodes else 10, order=(("active", False), ("of rate", False)),
        misleads="ports without a cable on purpose are here too, until `[expect]` says how many there "
        "should be.",
    )  # fmt: skip
