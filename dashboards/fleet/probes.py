"""Bus bandwidth against what the topology should give, and how old the results are."""

from dashboards.fleet.queries import RATIO_OF
from dashboards.fleet.versions import DRIFT, VERSIONS
from dashboards.parts import RATIO, Blank, Label, NoLimit, Query, Row, Series, Table, Value
from dashboards.shared import AGE, CLUSTER, NODE

_AGE = "time() - (max by (cluster,node) (wirewatch_probe_last_success_timestamp_seconds{HERE}) > 0)"
_LOWEST = (
    "bottomk by (cluster,node) (1, min by (cluster,node,op,size_bytes,gpus) "
    "(wirewatch_probe_busbw_ratio{HERE}))"
)
_PLACE = "cluster,node,op,size_bytes,gpus"


def _beside(header: str, metric: str, why: str, width: int) -> Value:
    return Value(header, f"max by ({_PLACE}) ({metric}{{HERE}})", "Bps", NoLimit(why), width, of=_PLACE)


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
                    "ratio", f"({_LOWEST} < 0.7) or bottomk(20, {_LOWEST})", "percentunit", RATIO, 70,
                    decimals=1,
                ),
                CLUSTER, NODE, Label("op", 115), Label("size_bytes", 75, "size", "bytes"), Label("gpus", 50),
                _beside("busbw", "wirewatch_probe_busbw_bytes_per_second", "it is judged by the ratio", 80),
                _beside(
                    "expected", "wirewatch_probe_expected_busbw_bytes_per_second",
                    "it is what the other is compared with", 85,
                ),
            ),
            height=8, order=(("ratio", False),), blank=Blank.PROBE,
            misleads="above 70 % nothing is wrong: they are the lowest of the good ones. A result "
            "may be two hours old.",
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
            "percentunit", RATIO, height=8, reach=1, blank=Blank.PROBE,
            misleads="only nodes with a fresh probe are in it, which are the idle ones.",
        ),
    ),
)  # fmt: skip
PROBES = Row(
    "Probes, drift and versions",
    (
        Series(
            "Age of the last probe",
            "Seconds since the last complete probe of each node that ever had one. Nodes that are "
            "busy for weeks have old probes: a ticket at most. Why none ran is on Agent.",
            (
                Query(f"max({_AGE})", "oldest"),
                Query(f"quantile(0.9, {_AGE})", "90th percentile"),
                Query(f"quantile(0.5, {_AGE})", "median"),
            ),
            "s", AGE, 8, 6, blank=Blank.PROBE,
        ),
        Table(
            "Oldest probes",
            "The twenty nodes whose last complete probe is oldest; `never` for none yet.",
            (
                Value(
                    "age",
                    f"topk(20, {_AGE} or (max by (cluster,node) "
                    f"(wirewatch_probe_last_success_timestamp_seconds{{HERE}}) == 0) + 1e12)",
                    "s", AGE, 120, {"1000000000000": ("never", "orange")},
                ),
                CLUSTER, NODE,
            ),
            8, 6, order=(("age", True),), misleads="old is not slow: busy nodes are not probed.",
        ),
        DRIFT,
        *VERSIONS,
    ),
)  # fmt: skip
