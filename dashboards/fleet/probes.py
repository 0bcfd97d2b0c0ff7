"""Bus bandwidth against what the topology should give, which GPUs are slow, and how old the results are."""

from dashboards.fleet.queries import RATIO_OF
from dashboards.parts import RATIO, Blank, Label, Limits, NoLimit, Query, Row, Series, Table, Value
from dashboards.shared import AGE, CLUSTER, COUNTED, GPU, NODE

_AGE = "time() - (max by (cluster,node) (wirewatch_probe_last_success_timestamp_seconds{HERE}) > 0)"
_WORST = (
    f"{RATIO_OF} and on (cluster,node) bottomk(10, min by (cluster,node) "
    f"(wirewatch_probe_busbw_ratio{{HERE}} @ end()))"
)
_LOWEST = (
    "bottomk by (cluster,node) (1, min by (cluster,node,op,size_bytes,gpus) "
    "(wirewatch_probe_busbw_ratio{HERE}))"
)
_PLACE = "cluster,node,op,size_bytes,gpus"


def _beside(metric: str) -> str:
    return f"max by ({_PLACE}) ({metric}{{HERE}})"


BUSBW = Row(
    "Bus bandwidth against what the topology should give",
    (
        Table(
            "Lowest bus bandwidth of expected, by node",
            "The worst collective of each node in its last probe: all nodes under 70 %, and the "
            "twenty lowest of the rest. Busy nodes have no fresh probe and are not here; their age "
            "is below.",
            (
                Value(
                    "ratio",
                    f"({_LOWEST} < 0.7) or bottomk(20, {_LOWEST})",
                    "percentunit",
                    RATIO,
                    70,
                    decimals=1,
                ),
                CLUSTER,
                NODE,
                Label("op", 115),
                Label("size_bytes", 75, "size", "bytes"),
                Label("gpus", 50),
                Value(
                    "busbw",
                    _beside("wirewatch_probe_busbw_bytes_per_second"),
                    "Bps",
                    NoLimit("it is judged by the ratio"),
                    80,
                    of=_PLACE,
                ),
                Value(
                    "expected",
                    _beside("wirewatch_probe_expected_busbw_bytes_per_second"),
                    "Bps",
                    NoLimit("it is what the other is compared with"),
                    85,
                    of=_PLACE,
                ),
            ),
            order=(("ratio", False),),
            height=10,
            blank=Blank.PROBE,
            misleads="above 70 % nothing is wrong: they are the lowest of the good ones. A result "
            "may be two hours old.",
        ),
        Series(
            "Lowest ratio by node: the ten worst now",
            "Measured over expected of each node's worst collective, for the ten nodes that are "
            "lowest at the end of the time shown. Gaps: the result grew old (two hours) because the "
            "node was busy.",
            (Query(_WORST, "{{cluster}} {{node}}"),),
            "percentunit",
            RATIO,
            height=10,
            reach=1,
            legend="lowest",
            blank=Blank.PROBE,
            misleads="a line that ends is a busy node, and no repair.",
        ),
        Series(
            "Ratio over the fleet",
            "The lowest, the tenth percentile and the median of the nodes' lowest ratios. All "
            "falling together: look for what the nodes share, such as NCCL settings or a driver.",
            (
                Query(f"min({RATIO_OF})", "lowest"),
                Query(f"quantile(0.1, {RATIO_OF})", "10th percentile"),
                Query(f"quantile(0.5, {RATIO_OF})", "median"),
            ),
            "percentunit",
            RATIO,
            reach=1,
            blank=Blank.PROBE,
            misleads="only nodes with a fresh probe are in it, which are the idle ones.",
        ),
        Table(
            "GPUs named as slow",
            "What is slow of each, and by how many standard deviations of the noise, against its own "
            "history or its peers. 50 rows at most.",
            (
                Value(
                    "score",
                    "topk(50, max by (cluster,node,gpu,signal) (wirewatch_straggler_score{HERE}) and on "
                    "(cluster,node,gpu,signal) max by (cluster,node,gpu,signal) (wirewatch_straggler{HERE}) "
                    "== 1)",
                    "none",
                    Limits("orange", ((20, "red"),)),
                    90,
                    decimals=1,
                ),
                CLUSTER,
                NODE,
                GPU,
                Label("signal"),
            ),
            order=(("score", True),),
            blank=Blank.STRAGGLER,
            misleads="a score counts standard deviations of the noise, not lost bandwidth: that of a quiet "
            "signal is soon high.",
        ),
    ),
)

PROBES = Row(
    "Probes",
    (
        Series(
            "Age of the last probe",
            "Seconds since the last complete probe of each node that ever had one. Nodes that are "
            "busy for weeks have old probes: a ticket at most.",
            (
                Query(f"max({_AGE})", "oldest"),
                Query(f"quantile(0.9, {_AGE})", "90th percentile"),
                Query(f"quantile(0.5, {_AGE})", "median"),
            ),
            "s",
            AGE,
            8,
            blank=Blank.PROBE,
        ),
        Table(
            "Oldest probes",
            "The twenty nodes whose last complete probe is oldest; `never` for none yet.",
            (
                Value(
                    "age",
                    f"topk(20, {_AGE} or (max by (cluster,node) "
                    f"(wirewatch_probe_last_success_timestamp_seconds{{HERE}}) == 0) + 1e12)",
                    "s",
                    AGE,
                    120,
                    {"1000000000000": ("never", "orange")},
                ),
                CLUSTER,
                NODE,
            ),
            8,
            order=(("age", True),),
            misleads="old is not slow: busy nodes are not probed.",
        ),
        Series(
            "Why no probe ran",
            "Times an hour that a probe was due and did not run, over all nodes. `busy` is normal; "
            "`blind`, `locked` and `no_engine` for long are not.",
            (
                Query(
                    "sum by (reason) (rate(wirewatch_probe_skips_total{HERE}[$__rate_interval])) * 3600",
                    "{{reason}}",
                ),
            ),
            "none",
            COUNTED,
            8,
            stacked=True,
            misleads="many refusals are busy nodes, and no fault.",
        ),
    ),
)
