"""Node: everything that is known of one, and which GPU, link or port it is."""

from dashboards.parts import (
    AT_MOST_NONE,
    HEALTH,
    IS_UP,
    RATIO,
    SOME_IS_ODD,
    YES_NO,
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
    Text,
    Value,
)  # fmt: skip
from dashboards.shared import AGE, COLOURED, COUNTED, GPU_HERE, OF_ITS_KIND, events, findings

_HEALTH = " + ".join(
    f'{code} * max(wirewatch_health{{HERE,health="{name}"}})'
    for code, name in ((1, "degraded"), (2, "unknown"), (3, "failed"))
)
_LAST = "max(wirewatch_probe_last_success_timestamp_seconds{HERE})"

_VERDICT = Row("Verdict", (
    Stat("Health", "The worst of all findings. UNKNOWN: it cannot be told.", _HEALTH, "none", COLOURED,
    HEALTH),
    Stat("May a job start", "Whether the next job may start here: OK and DEGRADED.",
    "min(wirewatch_job_ready{HERE})",
         "none", Limits("red", ((1, "green"),)), YES_NO),
    Stat("Lowest ratio", "Measured over expected bus bandwidth, of the worst collective in the last probe.",
         "min(wirewatch_probe_busbw_ratio{HERE})", "percentunit", RATIO, decimals=1),
    Stat("Last probe", "Since the last complete probe. A busy node has an old one.",
         f"time() - ({_LAST} > 0) or ({_LAST} == 0) + 1e12", "s", AGE,
         {"1000000000000": ("never", "orange")}, decimals=0),
    Stat("Findings", "What is wrong and seen at this moment.",
         'max(wirewatch_findings{HERE,stage="live"})', "none", SOME_IS_ODD),
    Stat("Held", "Latched or on probation: not seen any more, and not known to be repaired.",
         'sum(max by (stage) (wirewatch_findings{HERE,stage=~"latched|probation"}))', "none", SOME_IS_ODD),
    Stat("GPUs", "GPUs that the driver lists.", "count(count by (uuid) (wirewatch_gpu_info{HERE}))", "none",
    COUNTED),
    Stat("GPUs in use", "GPUs with a process that computes. No probe runs while there is one.",
         "sum(max by (uuid) (wirewatch_gpu_compute_processes{HERE}) > bool 0)", "none", COUNTED),
    findings("Findings and what to do", width=24, height=9, nodes=False),
    Series("Health over time", "0 OK, 1 DEGRADED, 2 UNKNOWN, 3 FAILED.", (Query(_HEALTH, "health"),), "none",
           Limits("green", ((1, "orange"), (2, "purple"), (3, "red"))), height=6, highest=3, stepped=True),
    Table("What this node is", "Product, driver, NCCL as the last probe found it, and the name of the "
                               "topology's shape "
          "that was accepted as baseline.", (
              Value("", "max by (product,gpus,driver,nccl,fingerprint) (wirewatch_node_info{HERE})", "none",
                    COUNTED),
              Label("product"), Label("gpus", 60), Label("driver", 110), Label("nccl", 90),
              Label("fingerprint", 160),
          ), height=6),
))  # fmt: skip

_PLACE = "op,size_bytes,gpus"


def _by_place(metric: str) -> str:
    return f"max by ({_PLACE}) ({metric}{{HERE}})"


_JUDGED = NoLimit("it is judged by the ratio")
_LARGEST = "max by (op) ({}{{HERE}})"
_BUSBW = Row("Bus bandwidth against what this topology should give", (
    Table("Last probe, by collective and size", "Bus bandwidth as nccl-tests counts it, what NCCL's "
                                                "defaults should "
          "give on this topology at that size, and the part of one GPU's wire (a healthy ring reaches 76 "
          "%).", (
              Label("op", 130), Label("size_bytes", 75, "size", "bytes"), Label("gpus", 60),
              Value("ratio", _by_place("wirewatch_probe_busbw_ratio"), "percentunit", RATIO, 80, decimals=1),
              Value("busbw", _by_place("wirewatch_probe_busbw_bytes_per_second"), "Bps", _JUDGED),
              Value("expected", _by_place("wirewatch_probe_expected_busbw_bytes_per_second"), "Bps", _JUDGED),
              Value("of the wire", _by_place("wirewatch_probe_busbw_peak_ratio"), "percentunit", _JUDGED,
              100, decimals=1),
          ), order=(("op", False), ("size", False)), height=11),
    Series("Busbw (line) and expected (dashes), at the best size", "Of each collective the highest bus "
                                                                   "bandwidth of "
           "its sizes, and what was expected. Gaps: no fresh probe, because the node was busy.",
           (Query(_LARGEST.format("wirewatch_probe_busbw_bytes_per_second"), "{{op}}"),
            Query(_LARGEST.format("wirewatch_probe_expected_busbw_bytes_per_second"), "{{op}} expected")),
           "Bps", _JUDGED, height=11, dashed="/expected$/",
           colours={"all_reduce": "blue", "all_reduce expected": "blue", "all_gather": "orange",
                    "all_gather expected": "orange", "reduce_scatter": "green",
                    "reduce_scatter expected": "green"}),
    Series("Ratio by collective", "Measured over expected at the worst size. Under 70 % is a fault.",
           (Query("min by (op) (wirewatch_probe_busbw_ratio{HERE})", "{{op}}"),), "percentunit", RATIO,
           reach=1),
    Table("Latency and path", "Time of the smallest message, and how NCCL says that the largest went. A "
                              "transport other "
          "than p2p or nvls between GPUs that have NVLink is a fault.", (
              Value("latency", "max by (op) (wirewatch_probe_latency_seconds{HERE})", "s",
                    NoLimit("it depends on engine and algorithm"), 100),
              Label("op", 130),
              Value("", "max by (op,transport,algorithm,protocol,engine) (wirewatch_probe_path_info{HERE})",
              "none",
                    COUNTED),
              Label("transport"), Label("algorithm"), Label("protocol"), Label("engine"),
          )),
))  # fmt: skip

_PEER = "max by (src,dst) (wirewatch_peer_bandwidth_bytes_per_second{HERE})"
_SCORE = "max by (gpu,signal) (wirewatch_straggler_score{GPUS})"
_SLOW = Row("Who is slow", (
    Matrix("Peer matrix, of its median", "Copies from each GPU (row) to each other (column), against the "
                                         "median of all "
           "pairs of this node: a slow pair, a slow row (source) or a slow column (destination) stands out.",
           f"{_PEER} / on () group_left() quantile(0.5, {_PEER})", "src", "dst", "percentunit",
           Limits("red", ((0.75, "orange"), (0.9, "green"))), height=10, decimals=0),
    Matrix("Peer matrix, GB/s", "The same as bandwidths in GB/s, while both directions of disjoint pairs "
                                "run.",
           f"{_PEER} / 1e9", "src", "dst", "none",
           NoLimit("what is right depends on the wires; the matrix beside it compares"), height=10,
           decimals=0),
    Matrix("Straggler scores", "How much slower each part of a GPU is than its own history or its peers, in "
                               "standard "
           "deviations of the noise: above 4, and costly enough, is a straggler.", _SCORE, "gpu", "signal",
           "none",
           Limits("green", ((4, "orange"), (10, "red"))), height=10, decimals=1),
    Series("Highest straggler score by GPU", "The highest of a GPU's signals over time.",
           (Query("max by (gpu) (wirewatch_straggler_score{GPUS})", "GPU {{gpu}}"),), "none",
           Limits("green", ((4, "orange"), (10, "red"))), lowest=None),
    Table("Believed to be slow", "By name, confirmed in two of three probes.", (
        Value("score", f"{_SCORE} and on (gpu,signal) max by (gpu,signal) (wirewatch_straggler{{GPUS}}) == "
                       f"1", "none",
              Limits("orange", ((20, "red"),)), 90, decimals=1), Label("gpu", 60), Label("signal"),
    ), 6, order=(("score", True),), blank=Blank.STRAGGLER),
    Series("Hint from the running job", "1 for the GPU of a job in lockstep that never waits: a hint "
                                        "without a "
           "verdict, which brings the next probe forward.",
           (Query("max by (gpu) (wirewatch_straggler_hint{GPUS})", "GPU {{gpu}}"),), "none",
           NoLimit("a hint is no verdict"), 6, highest=1, blank=Blank.LOCKSTEP),
))  # fmt: skip

_MISLEADING = Row("Utilisation misleads: read it beside what the GPU really does", (
    Series("Utilisation (misleading)", "Share of time in which some kernel ran. It reads 100 % on every GPU "
                                       "of a job "
           "that waits for one slow GPU, so it says neither that work is done nor that all is well. It is "
           "here to be "
           "compared with its two neighbours.",
           (Query("max by (gpu) (wirewatch_gpu_utilization_ratio{GPUS})", "GPU {{gpu}}"),), "percentunit",
           NoLimit("100 % of it may be waiting"), 8, highest=1),
    Series("SM active", "Share of the SMs' time in which they had work, from NVML's GPM. In a job in "
                        "lockstep the "
           "straggler's is high while its peers' falls: they wait.",
           (Query("max by (gpu) (wirewatch_gpu_sm_busy_ratio{GPUS})", "GPU {{gpu}}"),), "percentunit",
           NoLimit("it depends on the job"), 8, highest=1, blank=Blank.LOCKSTEP),
    Series("NVLink sent", "Payload bytes sent over all NVLinks of each GPU. In a data-parallel job all "
                          "lines are alike.",
           (Query("max by (gpu) (rate(wirewatch_nvlink_transmit_bytes_total{GPUS}[$__rate_interval]))",
           "GPU {{gpu}}"),),
           "Bps", OF_ITS_KIND, 8),
    Text("How to read these three", "Why utilisation stands first.",
         "All at 100 % utilisation, one GPU's SMs busier than the rest, NVLink low and equal: **one GPU is "
         "slow and the "
         "others wait for it**. All SMs busy and NVLink at its usual rate: the job works. SM active needs "
         "`[collectors.lockstep] enabled = true` and Hopper or later."),
))  # fmt: skip

_ACTIVE = "max by (gpu,reason) (wirewatch_clocks_event_active{GPUS})"
_FAULTY = "max by (gpu,reason) (wirewatch_clocks_event_active{GPUS,reason=~'hw_.*|sw_thermal_slowdown'})"
_DOWN = f"{_FAULTY} * 2 or {_ACTIVE}"
_HELD = Row("Clocks, heat, memory", (
    Series("Share of time held down, by reason", "The part of the time for which each reason held the "
                                                 "clocks of the "
           "worst GPU down. `sw_power_cap` is normal at full load; the `hw_` ones and heat are not.",
           (Query("max by (reason) (rate(wirewatch_clocks_event_seconds_total{GPUS}[$__rate_interval]))",
           "{{reason}}"),),
           "percentunit", Limits("green", ((0.1, "orange"),)), 8, 11, highest=1),
    Matrix("Held down now", "Which reasons hold the GPU's clocks down. Those in colour are faults; an idle "
                            "GPU, "
           "the power cap and application clocks are normal.", _DOWN, "reason", "gpu", "none", COLOURED,
           words={"0": ("", "transparent"), "1": ("yes", "transparent"), "2": ("held", "orange")}, width=16,
           height=11,
           first=170),
    Series("Power", "Power draw of each GPU. One lower than its peers in the same job waits, or is held "
                    "down.",
           (Query("max by (gpu) (wirewatch_gpu_power_watts{GPUS})", "GPU {{gpu}}"),), "watt",
           NoLimit("it depends on the job and the product"), 8),
    Series("Temperature", "Of each GPU's hottest sensor.",
           (Query("max by (gpu) (wirewatch_gpu_temperature_celsius{GPUS})", "GPU {{gpu}}"),),
           "celsius", NoLimit("each product has its own limit, which it tells as a throttle reason"), 8),
    Table("XIDs", "Errors of the driver since the machine was started; what each number means is in "
                  "docs/METRICS.md.", (
        Value("events", "max by (gpu,xid) (wirewatch_xid_events_total{HERE})", "none", AT_MOST_NONE, 90),
        Label("gpu", 60), Label("xid", 80),
        Value("last of this GPU", "max by (gpu) (wirewatch_xid_last_event_timestamp_seconds{HERE} > 0) * "
                                  "1000",
              "dateTimeFromNow", NoLimit("a moment")),
    ), 8, order=(("events", True),), blank=Blank.XID),
    Table("Memory errors and repairs", "Errors since the driver was loaded, rows remapped in the GPU's "
                                       "life, and what "
          "the driver asks for. A pending row wants a reset when jobs have ended; a failed one wants a new "
          "board.", (
              GPU_HERE,
              Value("uncorrected", 'sum by (gpu) (max by (gpu,uuid,location) '
                    '(wirewatch_ecc_errors_total{GPUS,kind="uncorrected"}))', "none", AT_MOST_NONE),
              Value("corrected", 'sum by (gpu) (max by (gpu,uuid,location) '
                    '(wirewatch_ecc_errors_total{GPUS,kind="corrected"}))', "none", COUNTED),
              Value("remapped rows", "sum by (gpu) (max by (gpu,uuid,kind) (wirewatch_rows_remapped{GPUS}))",
              "none",
                    COUNTED),
              Value("remap pending", "max by (gpu) (wirewatch_row_remap_pending{GPUS})", "none", SOME_IS_ODD),
              Value("remap failed", "max by (gpu) (wirewatch_row_remap_failed{GPUS})", "none", AT_MOST_NONE),
              Value("driver asks", 'max by (gpu) (wirewatch_gpu_recovery_action{GPUS,action!="none"})',
              "none",
                    AT_MOST_NONE, words={"0": ("nothing", ""), "1": ("recovery", "red")}),
          ), 24, 10),
))  # fmt: skip

_PCIE = Row("PCIe and ports", (
    Table("PCIe of GPUs", "Generation and lanes now and at most. The generation falls when a GPU is idle, "
                          "by design; "
          "lanes do not. Replays are packets sent again, since reset.", (
              GPU_HERE,
              Value("generation", "max by (gpu) (wirewatch_pcie_generation{GPUS})", "none",
                    NoLimit("it falls when idle, by design")),
              Value("at most", "max by (gpu) (wirewatch_pcie_generation_max{GPUS})", "none", COUNTED),
              Value("lanes", "max by (gpu) (wirewatch_pcie_width{GPUS})", "none", COUNTED),
              Value("most lanes", "max by (gpu) (wirewatch_pcie_width_max{GPUS})", "none", COUNTED),
              Value("lanes missing", "max by (gpu) (wirewatch_pcie_width_max{GPUS}) - max by (gpu) "
                    "(wirewatch_pcie_width{GPUS})", "none", AT_MOST_NONE),
              Value("replays/h", "max by (gpu) (increase(wirewatch_pcie_replays_total{GPUS}[1h]))", "none",
                    Limits("green", ((100, "orange"),)), decimals=0),
          ), height=12),
    Table("RDMA ports", "State and rate of each port, and what it is. A port that is down has no rate here.",
    (
        Value("active", 'max by (device,port) (wirewatch_rdma_port_state{HERE,state="active"})', "none",
              Limits("red", ((1, "green"),)), 65, IS_UP),
        Label("device", 75), Label("port", 45),
        Value("of its rate", "max by (device,port) (wirewatch_rdma_port_rate_bytes_per_second{HERE}) / max "
                             "by "
              "(device,port) (wirewatch_rdma_port_rate_expected_bytes_per_second{HERE})", "percentunit",
              Limits("red", ((1, "green"),)), 90, decimals=0),
        Value("rate", "max by (device,port) (wirewatch_rdma_port_rate_bytes_per_second{HERE})", "Bps",
              NoLimit("it is compared beside it"), 80),
        Value("", "max by (device,port,link_layer,model,firmware,netdev) (wirewatch_rdma_port_info{HERE})",
        "none",
              COUNTED),
        Label("link_layer", 90), Label("model", 75), Label("firmware", 105), Label("netdev", 85),
    ), height=12, order=(("active", False), ("device", False))),
    Series("RDMA sent", "Bytes sent by each port.",
           (Query("max by (device,port) "
                  "(rate(wirewatch_rdma_port_transmit_bytes_total{HERE}[$__rate_interval]))",
                  "{{device}}:{{port}}"),), "Bps", OF_ITS_KIND),
    Series("RDMA errors an hour", "Errors of all ports by kind. Old ones are no fault, growing ones may be.",
           (Query("sum by (kind) (rate(wirewatch_rdma_port_errors_total{HERE}[$__rate_interval])) * 3600",
           "{{kind}}"),),
           "none", Limits("green", ((1, "orange"),))),
))  # fmt: skip

NODE_PAGE = Dashboard(
    "wirewatch-node", "wirewatch / Node",
    "One node: the verdict, what is wrong and what to do, bus bandwidth against expected, and who is slow.",
    (_VERDICT, _BUSBW, _SLOW, _MISLEADING, _HELD, _PCIE), events(often=True),
    variables=("cluster", "node", "gpu"), many=("gpu",),
)  # fmt: skip
