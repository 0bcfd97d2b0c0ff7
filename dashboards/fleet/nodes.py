"""May the next job start, and what is wrong where."""

from dashboards.fleet.queries import BAD, KNOWN, RATIO_OF, in_state
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
from dashboards.shared import CLUSTER, COLOURED, COUNTED
from dashboards.versions import MINORITY_COUNT
from dashboards.wrong import alerts, bad_nodes, findings, reasons, what_to_do

_READY = "max by (cluster,node) (wirewatch_job_ready{HERE})"
_KINDS = "max by (cluster,node,product) (wirewatch_node_info{HERE})"
_COLOURS = {"OK": "green", "DEGRADED": "orange", "silent": "blue", "UNKNOWN": "purple", "FAILED": "red"}

BAD_NODES = Row("Bad nodes", (bad_nodes(), reasons()))
START = Row(
    "May the next job start",
    (
        Stat(
            "Nodes",
            "Nodes that are targets of Prometheus, or were within a day.",
            f"count({KNOWN})",
            "none",
            COUNTED,
        ),
        Stat(
            "Job-ready",
            "Nodes on which the next job may start: OK and DEGRADED, and heard now.",
            f"sum({_READY})",
            "none",
            COUNTED,
        ),
        Stat(
            "FAILED",
            "Nodes that should get no job. A job that runs there is not ended.",
            in_state(4),
            "none",
            AT_MOST_NONE,
        ),
        Stat(
            "UNKNOWN",
            "Nodes that say that something cannot be read, such as with a driver that does not "
            "answer. Not known is "
            "not healthy.",
            in_state(3),
            "none",
            Limits("green", ((1, "purple"),)),
            misleads="nodes whose GPUs `wirewatch release` has released count here too.",
        ),
        Stat(
            "Silent",
            "Nodes that nobody hears and that were not FAILED or UNKNOWN when they were last "
            "heard; the table above "
            "names them. One that was taken away counts for a day.",
            in_state(2),
            "none",
            Limits("green", ((1, "blue"),)),
        ),
        Stat(
            "DEGRADED",
            "Nodes with something wrong that jobs can live with.",
            in_state(1),
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
            misleads="a busy node has no fresh probe and is not counted.",
        ),
        Stat(
            "Odd versions",
            "Nodes whose driver, NCCL, GPU or NIC firmware differs from most nodes of their product.",
            MINORITY_COUNT,
            "none",
            SOME_IS_ODD,
            misleads="in a rollout the newest version is the odd one for a while.",
        ),
        Series(
            "Health of the nodes",
            "How many nodes are in each state.",
            (
                Query(in_state(4), "FAILED"),
                Query(in_state(3), "UNKNOWN"),
                Query(in_state(2), "silent"),
                Query(in_state(1), "DEGRADED"),
                Query(f"count({KNOWN}) - (count({BAD}) or count({KNOWN}) * 0)", "OK"),
            ),
            "none",
            COUNTED,
            stacked=True,
            colours=_COLOURS,
            height=7,
        ),
        Table(
            "Job-ready by product",
            "Nodes of each product that answer, and how many of them may take a job.",
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
            misleads="a product of which all nodes are silent is not here.",
        ),
    ),
)
_RULES = "count by (rule) (max by (cluster,node,rule) (wirewatch:finding_severity:held{HERE}))"

WRONG = Row(
    "What is wrong",
    (
        findings("Findings, worst and newest first", width=24, height=10, nodes=True),
        alerts(width=24, height=9, nodes=True),
        Table(
            "On how many nodes each rule holds",
            "One rule on many nodes is seldom many broken parts: look for what they share before you "
            "drain anything.",
            (
                Value("nodes", f'label_replace({_RULES}, "do", "$1", "rule", "(.+)")', "none", COUNTED, 70),
                Label("rule", 190),
                Value(
                    "worst",
                    "max by (rule) (wirewatch:finding_severity:held{HERE})",
                    "none",
                    COLOURED,
                    95,
                    SEVERITY,
                ),
                Label("do", header="what to do", words=what_to_do(), whole=True),
            ),
            order=(("nodes", True),),
            blank=Blank.FINDING,
            misleads="it counts nodes, and not the parts of a node.",
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
