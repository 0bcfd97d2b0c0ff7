"""Links: NVLink, PCIe and RDMA ports of the GPUs and nodes chosen, the worst of them where they are many."""

from dashboards.parts import (
    AT_MOST_NONE,
    IS_UP,
    SOME_IS_ODD,
    Blank,
    Dashboard,
    Label,
    Limits,
    Matrix,
    NoLimit,
    Query,
    Row,
    Series,
    Stat,
    Table,
    Value,
)  # fmt: skip
from dashboards.shared import CLUSTER, COLOURED, COUNTED, GPU, NODE, events

_GPU = "cluster,node,gpu"
_LINK = "cluster,node,gpu,link"
_PORT = "cluster,node,device,port"
_UP = f'sum by ({_GPU}) (max by ({_GPU},uuid,state) (wirewatch_nvlink_links{{GPUS,state=~"active|sleep"}}))'
_EXPECTED = f"max by ({_GPU}) (wirewatch_nvlink_links_expected{{GPUS}})"
_MISSING = f"clamp_min({_EXPECTED} - {_UP}, 0)"
_PEAK = f"max by ({_GPU}) (wirewatch_nvlink_peak_bytes_per_second{{GPUS}})"
_ACTIVE = f'max by ({_PORT}) (wirewatch_rdma_port_state{{HERE,state="active"}})'
_RATE = f"max by ({_PORT}) (wirewatch_rdma_port_rate_bytes_per_second{{HERE}})"
_RATE_EXPECTED = f"max by ({_PORT}) (wirewatch_rdma_port_rate_expected_bytes_per_second{{HERE}})"
_NARROW = (
    f"max by ({_GPU}) (wirewatch_pcie_width_max{{GPUS}}) - max by ({_GPU}) (wirewatch_pcie_width{{GPUS}})"
)
_FULL = Limits("green", ((0.95, "orange"),))
_GROWS = Limits("green", ((1, "orange"),))


def _busiest(rate: str, of: str, by: str, legend: str) -> Query:
    """The twelve busiest by their mean over the time shown, as a part of what the wire carries."""
    share = f"max by ({by}) (rate({rate}[$__rate_interval])) / {of}"
    chosen = f"topk(12, max by ({by}) (rate({rate}[$__range] @ end())))"
    return Query(f"{share} and on ({by}) {chosen}", legend)


def _hour(metric: str, by: str) -> str:
    return f"sum by ({by}) (increase({metric}[1h]))"


_NOW = Row("Now", (
    Stat("NVLinks missing", "Links that are not up and should be, over all GPUs chosen.", f"sum({_MISSING})",
    "none",
         AT_MOST_NONE, width=4),
    Stat("NVLink errors, last hour", "Counted errors of all kinds. The kinds of one generation overlap, so "
                                     "this is a "
         "sign and no number of events.", "sum(increase(wirewatch_nvlink_errors_total{GPUS}[1h]))", "none",
         _GROWS, width=4, decimals=0),
    Stat("Fabric not complete", "GPUs behind NVSwitches that are not registered with the fabric manager; "
                                "NCCL fails "
         "there. Those that have no fabric do not count.",
         f'count(max by ({_GPU}) (wirewatch_fabric_state{{GPUS,state=~"completed|not_supported"}}) == 0) or '
         f"0 * count(wirewatch_fabric_state{{GPUS}})", "none", AT_MOST_NONE, width=4),
    Stat("PCIe lanes missing", "GPUs with fewer lanes than GPU and slot allow.", f"sum({_NARROW} > bool 0)",
    "none",
         AT_MOST_NONE, width=4),
    Stat("Ports not active", "RDMA ports that are not active, also those that never were and are no fault.",
         f"sum({_ACTIVE} == bool 0)", "none", SOME_IS_ODD, width=4),
    Stat("Ports under their rate", "Ports that are slower than they or their siblings have been.",
         f"sum({_RATE} < bool {_RATE_EXPECTED})", "none", AT_MOST_NONE, width=4),
))  # fmt: skip

_DETAIL = f"max by ({_GPU},link) (rate(wirewatch_nvlink_link_transmit_bytes_total{{GPUS}}[30m]))"
_UNEVEN = f"topk(16, max by ({_GPU}) ({_DETAIL}) - min by ({_GPU}) ({_DETAIL}))"
_TWO_DIGITS = 'label_replace({}, "link", "0$1", "link", "([0-9])")'
"""So that columns, which are in the order of texts, are in that of links."""
_WHERE = 'label_join({}, "where", " ", "node", "gpu")'
_NVLINK = Row("NVLink", (
    Table("NVLinks of GPUs, fewest first", "Links that are up, that should be, and the line rate of the "
                                           "active ones "
          "together each way. The fifty GPUs with most missing.", (
              Value("missing", f"topk(50, {_MISSING})", "none", AT_MOST_NONE, 80), CLUSTER, NODE, GPU,
              Value("up", _UP, "none", COUNTED, 60, of=_GPU), Value("expected", _EXPECTED, "none", COUNTED,
              85, of=_GPU),
              Value("line rate", _PEAK, "Bps", NoLimit("it follows from the links that are up"), 95, of=_GPU),
          ), order=(("missing", True), ("node", False), ("gpu", False)), height=9),
    Series("NVLink errors an hour, by kind", "Over all GPUs chosen. CRC errors are corrected by sending "
                                             "again; replay "
           "and recovery mean a link that had to start anew.",
           (Query("sum by (kind) (rate(wirewatch_nvlink_errors_total{GPUS}[$__rate_interval])) * 3600",
           "{{kind}}"),),
           "none", _GROWS, height=9),
    Series("NVLink sent, of the line rate", "The twelve GPUs that sent most in the time shown.",
           (_busiest("wirewatch_nvlink_transmit_bytes_total{GPUS}", _PEAK, _GPU, "{{cluster}} {{node}} GPU "
                                                                                 "{{gpu}}"),),
           "percentunit", _FULL, legend="highest"),
    Series("NVLink received, of the line rate", "The twelve GPUs that received most in the time shown.",
           (_busiest("wirewatch_nvlink_receive_bytes_total{GPUS}", _PEAK, _GPU, "{{cluster}} {{node}} GPU "
                                                                                "{{gpu}}"),),
           "percentunit", _FULL, legend="highest"),
    Table("GPUs with NVLink errors in the last day", "Counted since a day ago, most first. 50 rows at most.",
    (
        Value("errors", f"topk(50, sum by ({_GPU},kind) "
                        f"(increase(wirewatch_nvlink_errors_total{{GPUS}}[1d])) > 0)",
              "none", _GROWS, 90, decimals=0), CLUSTER, NODE, GPU, Label("kind"),
    ), order=(("errors", True),), blank=Blank.ERRORS),
    Table("Single links that are down", "Which link it is. 50 rows at most.", (
        Value("up", f"bottomk(50, max by ({_GPU},link) (wirewatch_nvlink_link_up{{GPUS}}))", "none",
              Limits("red", ((1, "green"),)), 60, IS_UP), CLUSTER, NODE, GPU, Label("link", 60),
        Value("line rate", f"max by ({_GPU},link) (wirewatch_nvlink_link_speed_bytes_per_second{{GPUS}})",
        "Bps",
              NoLimit("its product has a rate, in docs/METRICS.md"), 100, of=_LINK),
        Value("errors in a day", f"sum by ({_GPU},link) "
                                 f"(increase(wirewatch_nvlink_link_errors_total{{GPUS}}[1d]))",
              "none", _GROWS, decimals=0, of=_LINK),
    ), order=(("up", False),), blank=Blank.LINK_DETAIL),
    Matrix("Sent by single link", "Bytes a second by link over half an hour, of the sixteen GPUs whose "
                                  "links differ "
           "most. A link beside its GPU's others that carries less is slow or down.",
           _WHERE.format(_TWO_DIGITS.format(f"{_DETAIL} and on ({_GPU}) {_UNEVEN}")), "where", "link", "Bps",
           NoLimit("links of one GPU are compared with each other"), width=24, height=9, decimals=0,
           first=130,
           blank=Blank.LINK_DETAIL),
    Table("NVLink peers", "Links that are up, by what is at their other end. On a board with NVSwitches all "
                          "go to "
          "`switch`. 50 rows at most.", (
              Value("links", "topk(50, max by (cluster,node,gpu,peer) (wirewatch_nvlink_peer_links{GPUS}))",
              "none",
                    COUNTED, 70), CLUSTER, NODE, GPU, Label("peer"),
          ), order=(("node", False), ("gpu", False))),
    Series("Fabric registration", "GPUs by the state of their registration with the fabric manager.",
           (Query("sum by (state) (max by (cluster,node,gpu,state) (wirewatch_fabric_state{GPUS}))",
           "{{state}}"),),
           "none", COUNTED, stacked=True),
    Series("Effective bit error rate", "After forward error correction, of the worst GPU.",
           (Query("max(wirewatch_nvlink_effective_ber{GPUS})", "worst"),), "sci", Limits("green", ((1e-12,
           "red"),)), 24, 6,
           blank=Blank.NVLINK5),
))  # fmt: skip

_REPLAYS = f"max by ({_GPU}) (increase(wirewatch_pcie_replays_total{{GPUS}}[1h]))"
_PCIE = Row("PCIe", (
    Table("PCIe of GPUs, worst first", "Lanes missing, generation, replays and errors. The generation falls "
                                       "when a "
          "GPU is idle, by design. The fifty GPUs with most lanes missing, then most replays.", (
              Value("replays/h", f"topk(50, {_REPLAYS} + 1e6 * ({_NARROW})) - 1e6 * ({_NARROW})", "none",
              Limits("green", ((100, "orange"),)), 85,
                    decimals=0), CLUSTER, NODE, GPU,
              Value("lanes missing", _NARROW, "none", AT_MOST_NONE, of=_GPU),
              Value("generation", f"max by ({_GPU}) (wirewatch_pcie_generation{{GPUS}})", "none",
                    NoLimit("it falls when idle, by design"), of=_GPU),
              Value("at most", f"max by ({_GPU}) (wirewatch_pcie_generation_max{{GPUS}})", "none", COUNTED,
              of=_GPU),
          ), order=(("lanes missing", True), ("replays/h", True))),
    Series("PCIe errors an hour that the kernel counted (AER)", "By severity. Corrected ones are no fault, "
                                                                "others are.",
           (Query("sum by (severity) (rate(wirewatch_pcie_errors_total{GPUS}[$__rate_interval])) * 3600",
                  "{{severity}}"),), "none", _GROWS),
))  # fmt: skip

_RDMA = Row("InfiniBand and RoCE", (
    Table("Ports, worst first", "Whether a port is active and at its rate; flaps, times it went down in a "
          "day, and error counters that are blind because they stand at their ceiling. The fifty lowest.", (
        Value("active", f"bottomk(50, {_ACTIVE})", "none", Limits("red", ((1, "green"),)), 65, IS_UP),
        CLUSTER, NODE, Label("device", 90), Label("port", 50),
        Value("of its rate", f"{_RATE} / {_RATE_EXPECTED}", "percentunit", Limits("red", ((1, "green"),)), 95,
              decimals=0, of=_PORT),
        Value("flaps", f"max by ({_PORT}) (wirewatch_rdma_port_flaps_total{{HERE}})", "none", SOME_IS_ODD,
        65, of=_PORT),
        Value("went down", f"max by ({_PORT}) (increase(wirewatch_rdma_port_link_downed_total{{HERE}}[1d]))",
        "none",
              SOME_IS_ODD, 95, decimals=0, of=_PORT),
        Value("blind", f"max by ({_PORT}) (wirewatch_rdma_port_counters_saturated{{HERE}})", "none",
              SOME_IS_ODD, of=_PORT),
    ), order=(("active", False), ("of its rate", False)), height=9),
    Table("Ports with errors in the last hour", "By kind, most first; which kinds are judged is in "
                                                "docs/METRICS.md. "
          "50 rows at most.", (
              Value("errors", f"topk(50, {_hour('wirewatch_rdma_port_errors_total{HERE}', _PORT + ',kind')} "
                              f"> 0)", "none",
                    _GROWS, 90, decimals=0), CLUSTER, NODE, Label("device", 90), Label("port", 50),
                    Label("kind"),
          ), order=(("errors", True),), blank=Blank.PORTS, height=9),
    Series("Sent, of the port's rate", "The twelve ports that sent most in the time shown.",
           (_busiest("wirewatch_rdma_port_transmit_bytes_total{HERE}", _RATE, _PORT, "{{cluster}} {{node}} "
                                                                                     "{{device}}:{{port}}"),),
           "percentunit", _FULL, legend="highest"),
    Series("Received, of the port's rate", "The twelve ports that received most in the time shown.",
           (_busiest("wirewatch_rdma_port_receive_bytes_total{HERE}", _RATE, _PORT, "{{cluster}} {{node}} "
                                                                                    "{{device}}:{{port}}"),),
           "percentunit", _FULL, legend="highest"),
    Series("Errors an hour, by kind", "Over all ports chosen. Counts from before the agent started are no "
                                      "fault.",
           (Query("sum by (kind) (rate(wirewatch_rdma_port_errors_total{HERE}[$__rate_interval])) * 3600",
           "{{kind}}"),),
           "none", _GROWS),
    Series("Congestion an hour, by kind", "Signs of a full network, each in its own unit; no fault of the "
                                          "node.",
           (Query("sum by (kind) (rate(wirewatch_rdma_port_congestion_total{HERE}[$__rate_interval])) * 3600",
                  "{{kind}}"),), "short", NoLimit("what is much depends on the network")),
))  # fmt: skip

_GDR = "max by (cluster,node,check,state) (wirewatch_gpudirect_check_state{HERE})"
_NEAR = "max by (cluster,node,gpu,device,path) (wirewatch_gpu_nic_path_info{GPUS})"
_FIRST = f"topk(16, max by ({_GPU}) (wirewatch_gpu_nic_path_info{{GPUS}}))"
_GPUDIRECT = Row("GPUDirect RDMA", (
    Matrix("Checks", "On how many nodes each check passed, failed or cannot tell.", f"sum by (check,state) "
                                                                                    f"({_GDR})",
           "check", "state", "none", COUNTED, width=8, height=9),
    Table("Checks that fail", "A failed check costs GPUDirect between some GPU and NIC. 50 rows at most.", (
        Value("failed", 'topk(50, max by (cluster,node,check) '
                        '(wirewatch_gpudirect_check_state{HERE,state="failed"}) '
              "== 1)", "none", COLOURED, 75, {"1": ("failed", "red")}), CLUSTER, NODE, Label("check"),
    ), 16, 9, blank=Blank.GPUDIRECT),
    Matrix("Path from GPU to NIC", "As nvidia-smi names it: PIX one PCI switch, PXB several, PHB one root, "
                                   "NODE one "
           "NUMA node, SYS across. Of sixteen GPUs at most.",
           _WHERE.format(f"{_NEAR} and on ({_GPU}) {_FIRST}"), "where", "device", "none", COLOURED,
           shows="path",
           words={"PIX": ("PIX", "green"), "PXB": ("PXB", "green"), "PHB": ("PHB", "yellow"),
                  "NODE": ("NODE", "transparent"), "SYS": ("SYS", "transparent"), "unknown": ("?", "purple")},
           width=24, height=10, first=130),
))  # fmt: skip

LINKS = Dashboard(
    "wirewatch-links", "wirewatch / Links",
    "NVLink, PCIe, InfiniBand and RoCE of the nodes and GPUs chosen: what is down, slow, or counts errors.",
    (_NOW, _NVLINK, _PCIE, _RDMA, _GPUDIRECT), events(often=False),
    variables=("cluster", "node", "gpu"), many=("cluster", "node", "gpu"),
)  # fmt: skip
