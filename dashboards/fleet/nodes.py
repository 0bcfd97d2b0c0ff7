"""May the next job start, and what is wrong where."""

from dashboards.fleet.queries import NOW, RATIO_OF, SILENT
from dashboards.parts import (
    AT_MOST_NONE,
    SEVERITY,
    SOME_IS_ODD,
    Blank,
    Label,
    Limits,
    Query,
    Row,
    Series,
    Stat,
    Table,
    Value,
)
from dashboards.shared import CLUSTER, COLOURED, COUNTED, findings, what_to_do
from dashboards.versions import MINORITY_COUNT

_READY = "max by (cluster,node) (wirewatch_job_ready{HERE})"
_KINDS = "max by (cluster,node,product) (wirewatch_node_info{HERE})"
_COLOURS = {"ok": "green", "degraded": "orange", "unknown": "purple", "failed": "red"}


def _health(which: str) -> str:
    return f'sum(max by (cluster,node) (wirewatch_health{{HERE,health="{which}"}}))'


START = Row(
    "May the next job start",
    (
        Stat("Nodes", "Nodes whose agent answers now.", f"count({NOW})", "none", COUNTED),
        Stat(
            "Job-ready",
            "Nodes on which the next job may start: OK and DEGRADED. The rest is FAILED or UNKNOWN.",
            f"sum({_READY})",
            "none",
            COUNTED,
        ),
        Stat(
            "FAILED",
            "Nodes that should get no job. A job that runs there is not ended.",
            _health("failed"),
            "none",
            AT_MOST_NONE,
        ),
        Stat(
            "UNKNOWN",
            "Nodes whose health is not known, such as with a driver that does not answer. Not known is not "
            "healthy. Nodes whose GPUs `wirewatch release` has released count here too.",
            _health("unknown"),
            "none",
            Limits("green", ((1, "purple"),)),
        ),
        Stat(
            "DEGRADED",
            "Nodes with something wrong that jobs can live with.",
            _health("degraded"),
            "none",
            SOME_IS_ODD,
        ),
        Stat(
            "Under 70 %",
            "Nodes whose last probe measured a collective under 70 % of the bus bandwidth that their "
            "topology should give at that size.",
            f"sum({RATIO_OF} < bool 0.7)",
            "none",
            AT_MOST_NONE,
            blank=Blank.PROBE,
        ),
        Stat(
            "Silent agents",
            "Agents that answered within the last day and do not now; the dashboard Agent names "
            "them. A node that was taken away counts for a day.",
            SILENT,
            "none",
            SOME_IS_ODD,
        ),
        Stat(
            "Odd versions",
            "Nodes whose driver, NCCL, GPU or NIC firmware differs from most nodes of their product.",
            MINORITY_COUNT,
            "none",
            SOME_IS_ODD,
        ),
        Series(
            "Health of the nodes",
            "How many nodes have each health.",
            (Query("sum by (health) (max by (cluster,node,health) (wirewatch_health{HERE}))", "{{health}}"),),
            "none",
            COUNTED,
            stacked=True,
            colours=_COLOURS,
            height=7,
        ),
        Table(
            "Job-ready by product",
            "Nodes of each product, and how many of them may take a job.",
            (
                Value("nodes", f"count by (cluster,product) ({_KINDS})", "none", COUNTED, 90),
                CLUSTER,
                Label("product"),
                Value(
                    "job-ready",
                    f"sum by (cluster,product) ({_READY} * on (cluster,node) group_left(product) {_KINDS})",
                    "none",
                    COUNTED,
                    100,
                ),
                Value(
                    "share",
                    f"avg by (cluster,product) ({_READY} * on (cluster,node) group_left(product) {_KINDS})",
                    "percentunit",
                    Limits("red", ((0.9, "orange"), (0.98, "green"))),
                    100,
                    decimals=1,
                ),
            ),
            height=7,
            order=(("share", False),),
        ),
    ),
)
_RULES = "count by (rule) (max by (cluster,node,rule) (wirewatch_finding_severity{HERE}))"

WRONG = Row(
    "What is wrong",
    (
        findings("Findings, worst and newest first", width=24, height=10, nodes=True),
        Table(
            "On how many nodes each rule holds",
            "One rule on many nodes is seldom many broken parts: look for what they share before you "
            "drain anything.",
            (
                Value("nodes", f'label_replace({_RULES}, "do", "$1", "rule", "(.+)")', "none", COUNTED, 70),
                Label("rule", 190),
                Value(
                    "worst",
                    "max by (rule) (wirewatch_finding_severity{HERE})",
                    "none",
                    COLOURED,
                    95,
                    SEVERITY,
                ),
                Label("do", words=what_to_do(), whole=True),
            ),
            order=(("nodes", True),),
            blank=Blank.FINDING,
        ),
        Series(
            "Findings by stage",
            "Live: seen now. Latched and on probation: not seen any more, and not known to be "
            "repaired. Acknowledged and suppressed: by an operator; they do not count.",
            (Query("sum by (stage) (max by (cluster,node,stage) (wirewatch_findings{HERE}))", "{{stage}}"),),
            "none",
            COUNTED,
            stacked=True,
        ),
    ),
)
