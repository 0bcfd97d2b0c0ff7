"""What the last probe measured, against what it should have."""

from dashboards.parts import RATIO, Blank, Label, NoLimit, Query, Row, Series, Table, Value
from dashboards.shared import COUNTED

_PLACE = "op,size_bytes,gpus"


def _by_place(metric: str) -> str:
    return f"max by ({_PLACE}) ({metric}{{HERE}})"


_JUDGED = NoLimit("it is judged by the ratio")
_LARGEST = "max by (op) ({}{{HERE}})"

BUSBW = Row(
    "Bus bandwidth against what this topology should give",
    (
        Table(
            "Last probe, by collective and size",
            "Bus bandwidth as nccl-tests counts it, what NCCL's defaults should give on this "
            "topology at that size, and the part of one GPU's wire (a healthy ring reaches 76 %).",
            (
                Label("op", 130),
                Label("size_bytes", 75, "size", "bytes"),
                Label("gpus", 60),
                Value(
                    "ratio", _by_place("wirewatch_probe_busbw_ratio"), "percentunit", RATIO, 80, decimals=1
                ),
                Value("busbw", _by_place("wirewatch_probe_busbw_bytes_per_second"), "Bps", _JUDGED),
                Value(
                    "expected", _by_place("wirewatch_probe_expected_busbw_bytes_per_second"), "Bps", _JUDGED
                ),
                Value(
                    "of the wire",
                    _by_place("wirewatch_probe_busbw_peak_ratio"),
                    "percentunit",
                    _JUDGED,
                    100,
                    decimals=1,
                ),
            ),
            order=(("op", False), ("size", False)),
            height=11,
            blank=Blank.PROBE,
        ),
        Series(
            "Busbw (line) and expected (dashes), at the best size",
            "Of each collective the highest bus bandwidth of its sizes, and what was expected. Gaps: "
            "no fresh probe, because the node was busy.",
            (
                Query(_LARGEST.format("wirewatch_probe_busbw_bytes_per_second"), "{{op}}"),
                Query(_LARGEST.format("wirewatch_probe_expected_busbw_bytes_per_second"), "{{op}} expected"),
            ),
            "Bps",
            _JUDGED,
            height=11,
            dashed="/expected$/",
            colours={
                "all_reduce": "blue",
                "all_reduce expected": "blue",
                "all_gather": "orange",
                "all_gather expected": "orange",
                "reduce_scatter": "green",
                "reduce_scatter expected": "green",
            },
            blank=Blank.PROBE,
        ),
        Series(
            "Ratio by collective",
            "Measured over expected at the worst size. Under 70 % is a fault.",
            (Query("min by (op) (wirewatch_probe_busbw_ratio{HERE})", "{{op}}"),),
            "percentunit",
            RATIO,
            reach=1,
            blank=Blank.PROBE,
        ),
        Table(
            "Latency and path",
            "Time of the smallest message, and how NCCL says that the largest went. A transport "
            "other than p2p or nvls between GPUs that have NVLink is a fault.",
            (
                Value(
                    "latency",
                    "max by (op) (wirewatch_probe_latency_seconds{HERE})",
                    "s",
                    NoLimit("it depends on engine and algorithm"),
                    100,
                ),
                Label("op", 130),
                Value(
                    "",
                    "max by (op,transport,algorithm,protocol,engine) (wirewatch_probe_path_info{HERE})",
                    "none",
                    COUNTED,
                ),
                Label("transport"),
                Label("algorithm"),
                Label("protocol"),
                Label("engine"),
            ),
            blank=Blank.PROBE,
        ),
    ),
)
