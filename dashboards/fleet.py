"""Fleet: which of many nodes, worst first. Nothing grows with their number but tables that end."""

from dashboards.parts import (
    AT_MOST_NONE,
    RATIO,
    SEVERITY,
    SOME_IS_ODD,
    Blank,
    Dashboard,
    Label,
    Limits,
    NoLimit,
    Query,
    Row,
    Series,
    Stat,
    Table,
    Value,
)  # fmt: skip
from dashboards.shared import AGE, CLUSTER, COLOURED, COUNTED, GPU, NODE, events, findings, what_to_do
from dashboards.versions import MINORITY, MINORITY_COUNT, VERSIONS

RATIO_OF = "min by (cluster,node) (wirewatch_probe_busbw_ratio{HERE})"
_READY = "max by (cluster,node) (wirewatch_job_ready{HERE})"
_KINDS = "max by (cluster,node,product) (wirewatch_node_info{HERE})"
_SEEN = "max by (cluster,node) (last_over_time(wirewatch_build_info{HERE}[1d]))"
_NOW = "max by (cluster,node) (wirewatch_build_info{HERE})"
_COLOURS = {"ok": "green", "degraded": "orange", "unknown": "purple", "failed": "red"}
_AGE = "time() - (max by (cluster,node) (wirewatch_probe_last_success_timestamp_seconds{HERE}) > 0)"


def _health(which: str) -> str:
    return f'sum(max by (cluster,node) (wirewatch_health{{HERE,health="{which}"}}))'


SILENT = f"count({_SEEN}) - (count({_NOW}) or vector(0))"
"""Agents that were scraped within a day and are not now; no value where none ever was."""

_START = Row("May the next job start", (
    Stat("Nodes", "Nodes whose agent answers now.", f"count({_NOW})", "none", COUNTED),
    Stat("Job-ready", "Nodes on which the next job may start: OK and DEGRADED. The rest is FAILED or "
                      "UNKNOWN.",
         f"sum({_READY})", "none", COUNTED),
    Stat("FAILED", "Nodes that should get no job. A job that runs there is not ended.", _health("failed"),
    "none",
         AT_MOST_NONE),
    Stat("UNKNOWN", "Nodes of which it cannot be told, such as with a driver that does not answer. Not "
                    "knowing is not "
         "healthy. GPUs that `wirewatch release` has let go of are here too.", _health("unknown"), "none",
         Limits("green", ((1, "purple"),))),
    Stat("DEGRADED", "Nodes with something wrong that jobs can live with.", _health("degraded"), "none",
    SOME_IS_ODD),
    Stat("Under 70 %", "Nodes whose last probe measured a collective under 70 % of the bus bandwidth that "
         "their topology should give at that size.", f"sum({RATIO_OF} < bool 0.7)", "none", AT_MOST_NONE),
    Stat("Silent agents", "Agents that answered within the last day and do not now; the dashboard Agent "
                          "names them. "
         "A node that was taken away counts for a day.", SILENT, "none", SOME_IS_ODD),
    Stat("Odd versions", "Nodes whose driver, NCCL, GPU or NIC firmware differs from most nodes of their "
                         "product.",
         MINORITY_COUNT, "none", SOME_IS_ODD),
    Series("Health of the nodes", "How many nodes have each health.",
           (Query("sum by (health) (max by (cluster,node,health) (wirewatch_health{HERE}))", "{{health}}"),),
           "none", COUNTED, stacked=True, colours=_COLOURS, height=7),
    Table("Job-ready by product", "Nodes of each product, and how many of them may take a job.", (
        Value("nodes", f"count by (cluster,product) ({_KINDS})", "none", COUNTED, 90), CLUSTER,
        Label("product"),
        Value("job-ready", f"sum by (cluster,product) ({_READY} * on (cluster,node) group_left(product) "
                           f"{_KINDS})",
              "none", COUNTED, 100),
        Value("share", f"avg by (cluster,product) ({_READY} * on (cluster,node) group_left(product) "
                       f"{_KINDS})",
              "percentunit", Limits("red", ((0.9, "orange"), (0.98, "green"))), 100, decimals=1),
    ), height=7, order=(("share", False),)),
))  # fmt: skip

_RULES = "count by (rule) (max by (cluster,node,rule) (wirewatch_finding_severity{HERE}))"
_WRONG = Row("What is wrong", (
    findings("Findings, worst and newest first", width=24, height=10, nodes=True),
    Table("On how many nodes each rule holds",
          "One rule on many nodes is seldom many broken parts: look for what they share before you drain "
          "anything.", (
              Value("nodes", f'label_replace({_RULES}, "do", "$1", "rule", "(.+)")', "none", COUNTED, 70),
              Label("rule", 190),
              Value("worst", "max by (rule) (wirewatch_finding_severity{HERE})", "none", COLOURED, 95,
              SEVERITY),
              Label("do", words=what_to_do(), whole=True),
          ), order=(("nodes", True),), blank=Blank.FINDING),
    Series("Findings by what became of them", "Live: seen now. Latched and on probation: not seen any more, "
                                              "and not "
           "known to be repaired. Acknowledged and suppressed: an operator's word; they take no part.",
           (Query("sum by (stage) (max by (cluster,node,stage) (wirewatch_findings{HERE}))", "{{stage}}"),),
           "none",
           COUNTED, stacked=True),
))  # fmt: skip

_WORST = (
    f"{RATIO_OF} and on (cluster,node) "
    "bottomk(10, min by (cluster,node) (wirewatch_probe_busbw_ratio{HERE} @ end()))"
)
_LOWEST = (
    "bottomk by (cluster,node) (1, "
    "min by (cluster,node,op,size_bytes,gpus) (wirewatch_probe_busbw_ratio{HERE}))"
)
_PLACE = "cluster,node,op,size_bytes,gpus"


def _beside(metric: str) -> str:
    return f"max by ({_PLACE}) ({metric}{{HERE}})"


_BUSBW = Row("Bus bandwidth against what the topology should give", (
    Table("Under 70 % of expected, worst first",
          "The worst collective of each node in its last probe: all nodes under 70 %, and the twenty lowest "
          "of the "
          "rest. Busy nodes have no fresh probe and are not here; their age is below.", (
              Value("ratio", f"({_LOWEST} < 0.7) or bottomk(20, {_LOWEST})", "percentunit", RATIO, 70,
              decimals=1),
              CLUSTER, NODE, Label("op", 115), Label("size_bytes", 75, "size", "bytes"), Label("gpus", 50),
              Value("busbw", _beside("wirewatch_probe_busbw_bytes_per_second"), "Bps",
                    NoLimit("it is judged by the ratio"), 80, of=_PLACE),
              Value("expected", _beside("wirewatch_probe_expected_busbw_bytes_per_second"), "Bps",
                    NoLimit("it is what the other is compared with"), 85, of=_PLACE),
          ), order=(("ratio", False),), height=10),
    Series("Lowest ratio by node: the ten worst now",
           "Measured over expected of each node's worst collective, for the ten nodes that are lowest at "
           "the end of "
           "the time shown. Gaps: the result grew old (two hours) because the node was busy.",
           (Query(_WORST, "{{cluster}} {{node}}"),), "percentunit", RATIO, height=10, reach=1,
           legend="lowest"),
    Series("Ratio over the fleet", "The lowest, the tenth percentile and the median of the nodes' lowest "
                                   "ratios. All "
           "falling together: look for what the nodes share, such as NCCL settings or a driver.",
           (Query(f"min({RATIO_OF})", "lowest"), Query(f"quantile(0.1, {RATIO_OF})", "10th percentile"),
            Query(f"quantile(0.5, {RATIO_OF})", "median")), "percentunit", RATIO, reach=1),
    Table("GPUs that are believed to be slow", "Stragglers by name: what of them is slow, and by how many "
                                               "standard "
          "deviations of the noise, against their own history or their peers. 50 rows at most.", (
              Value("score", "topk(50, max by (cluster,node,gpu,signal) (wirewatch_straggler_score{HERE}) "
                             "and on "
                    "(cluster,node,gpu,signal) max by (cluster,node,gpu,signal) (wirewatch_straggler{HERE}) "
                    "== 1)",
                    "none", Limits("orange", ((20, "red"),)), 90, decimals=1),
              CLUSTER, NODE, GPU, Label("signal"),
          ), order=(("score", True),), blank=Blank.STRAGGLER),
))  # fmt: skip

_PROBES = Row("Probes", (
    Series("Age of the last probe", "Seconds since the last complete probe of each node that ever had one. "
                                    "Nodes that "
           "are busy for weeks have old probes: a ticket at most.",
           (Query(f"max({_AGE})", "oldest"), Query(f"quantile(0.9, {_AGE})", "90th percentile"),
            Query(f"quantile(0.5, {_AGE})", "median")), "s", AGE, 8),
    Table("Oldest probes", "The twenty nodes whose last complete probe is oldest; `never` for none yet.", (
        Value("age", f"topk(20, {_AGE} or "
              "(max by (cluster,node) (wirewatch_probe_last_success_timestamp_seconds{HERE}) == 0) + 1e12)",
              "s", AGE,
              120, {"1000000000000": ("never", "orange")}), CLUSTER, NODE,
        ), 8, order=(("age", True),)),
    Series("Why no probe ran", "Times an hour that a probe was due and did not run, over all nodes. `busy` "
                               "is normal; "
           "`blind`, `locked` and `no_engine` for long are not.",
           (Query("sum by (reason) (rate(wirewatch_probe_skips_total{HERE}[$__rate_interval])) * 3600",
           "{{reason}}"),),
           "none", COUNTED, 8, stacked=True),
))  # fmt: skip

_DRIFT = "max by (cluster,node,kind) (wirewatch_topology_drift{HERE})"
_CHANGES = Row("Versions and drift", (
    VERSIONS, MINORITY,
    Series("Nodes that differ from their baseline", "Nodes with changes that nobody has accepted, "
                                                    "information "
           "included, so that a fleet's upgrades show; and nodes that have no baseline yet.",
           (Query(f"sum(max by (cluster,node) ({_DRIFT}) > bool 0)", "differ"),
            Query("sum(max by (cluster,node) (wirewatch_topology_baseline_timestamp_seconds{HERE}) == bool "
                  "0)",
                  "no baseline yet")), "none", COUNTED),
    Table("Drift by node", "What has changed since the accepted baseline, by kind. `wirewatch topology "
                           "diff` on the "
          "node names it, `topology accept` takes it over. 50 rows at most.", (
              Value("changes", f"topk(50, {_DRIFT} > 0)", "none", COUNTED, 90), CLUSTER, NODE, Label("kind"),
          ), order=(("changes", True),), blank=Blank.DRIFT),
))  # fmt: skip

FLEET = Dashboard(
    "wirewatch-fleet", "wirewatch / Fleet",
    "Which of many nodes has slow or broken wires, since when, and on how many the next job may start.",
    (_START, _WRONG, _BUSBW, _PROBES, _CHANGES), events(often=False),
)  # fmt: skip
