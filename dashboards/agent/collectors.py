"""Agents that are silent and collectors that fail."""

from dashboards.agent.queries import OF_NODE, per_hour
from dashboards.fleet.queries import KNOWN, SILENT
from dashboards.parts import (
    AT_MOST_NONE,
    SOME_IS_ODD,
    Blank,
    Label,
    Limits,
    NoLimit,
    Query,
    Row,
    Series,
    Stat,
    Table,
    Value,
)
from dashboards.shared import CLUSTER, COUNTED, NODE, SINCE

_OF_ONE = "cluster,node,collector"
_BUILD = f"max by ({OF_NODE},version,source) (wirewatch_build_info{{HERE}})"
_FAILING = f"max by ({_OF_ONE}) (wirewatch_collector_success{{HERE}}) == 0"
_SUCCEEDED = "wirewatch_collector_last_success_timestamp_seconds"
_LAST = f"max by ({_OF_ONE}) ({_SUCCEEDED}{{HERE}})"
_TOLD = f"max by ({OF_NODE}) (wirewatch_build_info{{HERE}})"

AGENTS = Row(
    "Agents and what they cannot read",
    (
        Stat("Agents", "Agents that answer now.", f"count({_TOLD})", "none", COUNTED),
        Stat(
            "Silent",
            "Agents that answered within the last day and do not now.",
            SILENT,
            "none",
            SOME_IS_ODD,
            misleads="a node that was taken away on purpose counts for a day.",
        ),
        Stat(
            "Failing",
            "Collectors whose last run did not end well or in time: what they watch is not known.",
            f"sum(max by ({_OF_ONE}) (wirewatch_collector_success{{HERE}}) == bool 0)",
            "none",
            AT_MOST_NONE,
            misleads="a release of the GPUs fails them on purpose.",
        ),
        Stat(
            "NVML restarts",
            "Times in the last hour that the process which talks to NVML was started again after it "
            "hung or died.",
            "sum(increase(wirewatch_agent_nvml_restarts_total{HERE}[1h]))",
            "none",
            SOME_IS_ODD,
            decimals=0,
        ),
        Stat(
            "Stuck",
            "Processes that hang in the driver and cannot be killed. Only a reboot helps.",
            "sum(wirewatch_agent_nvml_stuck_processes{HERE})",
            "none",
            AT_MOST_NONE,
        ),
        Stat(
            "Released",
            "Nodes whose GPUs `wirewatch release` has released; they are UNKNOWN meanwhile, by design.",
            "sum(max by (cluster,node) (wirewatch_released_until_timestamp_seconds{HERE}) > bool 0)",
            "none",
            SOME_IS_ODD,
        ),
        Stat(
            "Log missed",
            "Records of the kernel log that were overwritten unread: an XID may be among them.",
            "sum(wirewatch_kernel_log_missed_total{HERE})",
            "none",
            SOME_IS_ODD,
        ),
        Stat(
            "Not understood",
            "Lines of the kernel log, of ibstat and of nccl.conf that were not understood. Please report.",
            "sum(wirewatch_kernel_log_unparsed_total{HERE}) + "
            "(sum(wirewatch_rdma_ibstat_lines_unparsed_total{HERE}) or vector(0)) + "
            "(sum(wirewatch_nccl_conf_lines_unparsed{HERE}) or vector(0))",
            "none",
            SOME_IS_ODD,
        ),
        Table(
            "Silent agents",
            "Answered within the last day and do not now, and when they were last heard. 50 rows at most.",
            (
                Value(
                    "last heard",
                    f"bottomk(50, {KNOWN} unless on ({OF_NODE}) {_TOLD}) * 1000",
                    "dateTimeFromNow",
                    SINCE,
                    140,
                ),
                CLUSTER,
                NODE,
            ),
            7,
            order=(("last heard", False),),
            blank=Blank.SILENT,
            misleads="a node that was taken away on purpose is here for a day.",
        ),
        Table(
            "Collectors that fail",
            "What is not known, where, since when. 50 rows at most; why is in `curl "
            "localhost:9410/api/v1/state` on the node.",
            (
                Value(
                    "last ok",
                    f"topk(50, ({_LAST} and on ({_OF_ONE}) {_FAILING})) * 1000",
                    "dateTimeFromNow",
                    SINCE,
                    140,
                ),
                CLUSTER,
                NODE,
                Label("collector", 90),
                Value(
                    "fails/h",
                    f"max by ({_OF_ONE}) (increase(wirewatch_collector_failures_total{{HERE}}[1h]))",
                    "none",
                    SOME_IS_ODD,
                    decimals=0,
                    of=_OF_ONE,
                ),
            ),
            10,
            order=(("last ok", False),),
            blank=Blank.COLLECTOR,
        ),
        Table(
            "Versions",
            "Agents by version and by what they read: `live` hardware, a `replay`, or a `synthetic` one.",
            (
                Value("agents", f"count by (version,source) ({_BUILD})", "none", COUNTED, 80),
                Label("version"),
                Label("source"),
            ),
            7,
            order=(("agents", True),),
        ),
    ),
)

PORT = Row(
    "The HTTP port",
    (
        Series(
            "Refused an hour",
            "Connections and requests that were refused at the port, by reason: TLS, host names, users and "
            "tokens, limits. A scrape that is refused is missing everywhere else.",
            (Query(per_hour("wirewatch_web_refused_total{HERE}", "reason"), "{{reason}}"),),
            "none",
            Limits("green", ((1, "orange"),)),
        ),
        Series(
            "Web configurations that could be read",
            "Of the agents that have one. Where it cannot be read, the earlier one stays in "
            "force, and certificates grow old.",
            (
                Query(
                    "sum(max by (cluster,node) (wirewatch_web_config_last_reload_success{HERE}))",
                    "could be read",
                ),
                Query(
                    "count(max by (cluster,node) (wirewatch_web_config_last_reload_success{HERE}))",
                    "have one",
                ),
            ),
            "none",
            COUNTED,
            blank=Blank.WEB,
        ),
    ),
)
COLLECTORS = Row(
    "Collectors",
    (
        Table(
            "Collectors over all agents",
            "On how many nodes there is something to watch, how many runs fail, and how old the oldest "
            "success is.",
            (
                Label("collector", 120),
                Value(
                    "nodes",
                    f"count by (collector) (max by ({_OF_ONE}) (wirewatch_collector_success{{HERE}}))",
                    "none",
                    COUNTED,
                ),
                Value(
                    "something to watch",
                    f"sum by (collector) (max by ({_OF_ONE}) (wirewatch_collector_applicable{{HERE}}))",
                    "none",
                    COUNTED,
                    150,
                ),
                Value(
                    "succeed",
                    f"avg by (collector) (max by ({_OF_ONE}) (wirewatch_collector_success{{HERE}}))",
                    "percentunit",
                    Limits("red", ((0.99, "orange"), (1, "green"))),
                    decimals=0,
                ),
                Value(
                    "oldest success",
                    f"max by (collector) (time() - ({_LAST} > 0))",
                    "s",
                    NoLimit("each has its own interval, in docs/METRICS.md"),
                    decimals=0,
                ),
            ),
            24,
            11,
            order=(("succeed", False), ("oldest success", True)),
        ),
        Series(
            "Longest run by collector",
            "Of all agents. A run that is overdue is a failure.",
            (Query("max by (collector) (wirewatch_collector_duration_seconds{HERE})", "{{collector}}"),),
            "s",
            NoLimit("each has its own deadline, in docs/METRICS.md"),
        ),
        Series(
            "Failures an hour by collector",
            "Runs that failed or were overdue.",
            (
                Query(
                    per_hour("wirewatch_collector_failures_total{HERE}", "collector"),
                    "{{collector}}",
                ),
            ),
            "none",
            Limits("green", ((1, "orange"),)),
        ),
    ),
)
