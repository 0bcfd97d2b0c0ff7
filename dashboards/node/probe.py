"""What the last probe measured against what it should have, and which GPU or pair is slow by it."""

from dashboards.parts import RATIO, Blank, Label, Limits, Matrix, NoLimit, Query, Row, Series, Table, Value
from dashboards.shared import COUNTED, OF_ITS_KIND

_PLACE = "op,size_bytes,gpus"
_JUDGED = NoLimit("it is judged by the ratio")
_PEER = "max by (src,dst) (wirewatch_peer_bandwidth_bytes_per_second{HERE})"


def _by_place(metric: str) -> str:
    return f"max by ({_PLACE}) ({metric}{{HERE}})"


BUSBW = Row(
    "Bus bandwidth against what this topology should give",
    (
        Table(
            "Last probe, by collective and size",
            "Bus bandwidth as nccl-tests counts it, what NCCL's defaults should give on this "
            "topology at that size, and the part of one GPU's wire (a healthy ring reaches 76 %).",
            (
                Label("op", 130), Label("size_bytes", 75, "size", "bytes"), Label("gpus", 60),
                Value(
                    "ratio", _by_place("wirewatch_probe_busbw_ratio"), "percentunit", RATIO, 80, decimals=1
                ),
                Value("busbw", _by_place("wirewatch_probe_busbw_bytes_per_second"), "Bps", _JUDGED),
                Value(
                    "expected", _by_place("wirewatch_probe_expected_busbw_bytes_per_second"), "Bps", _JUDGED
                ),
                Value(
                    "of the wire", _by_place("wirewatch_probe_busbw_peak_ratio"), "percentunit", _JUDGED, 100,
                    decimals=1,
                ),
            ),
            order=(("op", False), ("size", False)), height=10, blank=Blank.PROBE,
        ),
        Series(
            "Ratio by collective",
            "Measured over expected at the worst size. Under 70 % is a fault. Gaps: no fresh probe, because "
            "the node was busy.",
            (Query("min by (op) (wirewatch_probe_busbw_ratio{HERE})", "{{op}}"),),
            "percentunit", RATIO, height=10, reach=1, blank=Blank.PROBE,
        ),
    ),
)  # fmt: skip
SLOW = Row(
    "Slow GPUs and links",
    (
        Matrix(
            "Peer matrix, of its median",
            "Copies from each GPU (row) to each other (column), against the median of all pairs of "
            "this node: a slow pair, a slow row (source) or a slow column (destination) stands out. The "
            "status page has the bandwidths.",
            f"{_PEER} / on () group_left() quantile(0.5, {_PEER})",
            "src", "dst", "percentunit", Limits("red", ((0.75, "orange"), (0.9, "green"))),
            width=12, height=10, decimals=0, blank=Blank.PROBE,
        ),
        Matrix(
            "Straggler scores",
            "How much slower each part of a GPU is than its own history or its peers, in standard "
            "deviations of the noise: above 4, and costly enough, is a straggler.",
            "max by (gpu,signal) (wirewatch_straggler_score{GPUS})",
            "signal", "gpu", "none", Limits("green", ((4, "orange"), (10, "red"))),
            width=12, height=10, first=100, decimals=1, blank=Blank.PROBE,
            misleads="a score counts standard deviations of the noise, not lost bandwidth.",
        ),
        Series(
            "Host links",
            "Copies between each GPU and pinned memory of the host, alone, by direction; both: each way at "
            "once. A GPU below its siblings has a bad riser, slot or NUMA node.",
            (
                Query(
                    "max by (gpu,direction) "
                    "(wirewatch_probe_host_link_bytes_per_second{GPUS,direction!~'all_.*'})",
                    "GPU {{gpu}} {{direction}}",
                ),
            ),
            "Bps", OF_ITS_KIND, legend="lowest", height=7, blank=Blank.PROBE,
        ),
        Table(
            "Latency and path",
            "Time of the smallest message, and how NCCL says that the largest went. A transport "
            "other than p2p or nvls between GPUs that have NVLink is a fault.",
            (
                Value(
                    "latency", "max by (op) (wirewatch_probe_latency_seconds{HERE})", "s",
                    NoLimit("it depends on engine and algorithm"), 100,
                ),
                Label("op", 130),
                Value(
                    "", "max by (op,transport,algorithm,protocol,engine) (wirewatch_probe_path_info{HERE})",
                    "none", COUNTED,
                ),
                Label("transport"), Label("algorithm"), Label("protocol"), Label("engine"),
            ),
            height=7, blank=Blank.PROBE,
        ),
    ),
)  # fmt: skip
