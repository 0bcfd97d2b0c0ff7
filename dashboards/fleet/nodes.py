"""Bad nodes, what is wrong with them by rule, and whether the next job may start."""

from dashboards.fleet.queries import BAD, KNOWN, RATIO_OF, in_state
from dashboards.fleet.versions import MINORITY_COUNT
from dashboards.parts import (
    AT_MOST_NONE,
    SOME_IS_ODD,
    Label,
    Limits,
    Query,
    Row,
    Series,
    Stat,
    Table,
    Value,
)
from dashboards.shared import CLUSTER, COUNTED
from dashboards.wrong import bad_nodes, by_rule

_READY = "max by (cluster,node) (wirewatch_job_ready{HERE})"
_KINDS = "max by (cluster,node,product) (wirewatch_node_info{HERE})"
_COLOURS = {"OK": "green", "DEGRADED": "orange", "silent": "blue", "UNKNOWN": "purple", "FAILED": "red"}


def _number(title: str, about: str, expr: str, limits: Limits, misleads: str = "") -> Stat:
    return Stat(title, about, expr, "none", limits, misleads=misleads)


BAD_NODES = Row("Bad nodes", (bad_nodes(), by_rule()))
START = Row(
    "May the next job start",
    (
        Stat(
            "Nodes", "Nodes that are targets of Prometheus, or were within a day.", f"count({KNOWN})", "none",
            COUNTED,
        ),
        Stat(
            "Job-ready", "Nodes on which the next job may start: OK and DEGRADED, and heard now.",
            f"sum({_READY})", "none", COUNTED,
        ),
        _number(
            "FAILED", "Nodes that should get no job. A job that runs there is not ended.", in_state(4),
            AT_MOST_NONE,
        ),
        _number(
            "UNKNOWN",
            "Nodes that say that something cannot be read, such as with a driver that does not "
            "answer. Not known is not healthy.",
            in_state(3), Limits("green", ((1, "purple"),)),
            "nodes whose GPUs `wirewatch release` has released count here too.",
        ),
        _number(
            "Silent",
            "Nodes that nobody hears and that were not FAILED or UNKNOWN when they were last "
            "heard; the table above names them. A node that was taken away counts for a day.",
            in_state(2), Limits("green", ((1, "blue"),)),
        ),
        _number("DEGRADED", "Nodes with something wrong that jobs can live with.", in_state(1), SOME_IS_ODD),
        _number(
            "Under 70 %",
            "Nodes whose last probe measured a collective under 70 % of the bus bandwidth that their "
            "topology should give at that size.",
            f"sum({RATIO_OF} < bool 0.7)", AT_MOST_NONE,
            "a busy node has no fresh probe and is not counted.",
        ),
        _number(
            "Odd versions",
            "Nodes whose driver, NCCL, GPU or NIC firmware differs from most nodes of their product.",
            MINORITY_COUNT, SOME_IS_ODD,
            "in a rollout the newest version is the odd one for a while.",
        ),
        Series(
            "Health of the nodes",
            "How many nodes are in each state.",
            (
                Query(in_state(4), "FAILED"), Query(in_state(3), "UNKNOWN"), Query(in_state(2), "silent"),
                Query(in_state(1), "DEGRADED"),
                Query(f"count({KNOWN}) - (count({BAD}) or count({KNOWN}) * 0)", "OK"),
            ),
            "none", COUNTED, stacked=True, colours=_COLOURS, height=6,
        ),
        Table(
            "Job-ready by product",
            "Nodes of each product that answer, and how many of them may take a job.",
            (
                Value("nodes", f"count by (cluster,product) ({_KINDS})", "none", COUNTED, 90),
                CLUSTER, Label("product"),
                Value(
                    "job-ready",
                    f"sum by (cluster,product) ({_READY} * on (cluster,node) group_left(product) {_KINDS})",
                    "none", COUNTED, 100,
                ),
                Value(
                    "share",
                    f"avg by (cluster,product) ({_READY} * on (cluster,node) group_left(product) {_KINDS})",
                    "percentunit", Limits("red", ((0.9, "orange"), (0.98, "green"))), 100, decimals=1,
                ),
            ),
            height=6, order=(("share", False),),
            misleads="a product of which all nodes are silent is not here.",
        ),
    ),
)  # fmt: skip
