"""Agent: whether the agents see, what they cost, and how politely they probe."""

from dashboards.fleet import SILENT
from dashboards.parts import (
    AT_MOST_NONE,
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
from dashboards.shared import CLUSTER, COUNTED, NODE, SINCE, events

_NODE = "cluster,node"
_ONE = "cluster,node,collector"
_BUILD = f"max by ({_NODE},version,source) (wirewatch_build_info{{HERE}})"
_FAILING = f"max by ({_ONE}) (wirewatch_collector_success{{HERE}}) == 0"
_SUCCEEDED = "wirewatch_collector_last_success_timestamp_seconds"
_LAST = f"max by ({_ONE}) ({_SUCCEEDED}{{HERE}})"
_CPU = "sum by (cluster,node) (rate(wirewatch_agent_cpu_seconds_total{HERE}[$__rate_interval]))"
_MEMORY = "sum by (cluster,node) (wirewatch_agent_resident_memory_bytes{HERE})"
_NVML = "max by (cluster,node) (rate(wirewatch_agent_nvml_seconds_total{HERE}[$__rate_interval]))"
_GPUS = "count by (cluster,node) (count by (cluster,node,uuid) (wirewatch_gpu_info{HERE}))"
_SHARE = f"max by ({_NODE}) (rate(wirewatch_probe_gpu_seconds_total{{HERE}}[1h])) / {_GPUS}"
_TOLD = f"max by ({_NODE}) (wirewatch_build_info{{HERE}})"
_PER_HOUR = "[$__rate_interval])) * 3600"
BUDGET = Limits("green", ((0.01, "orange"),))
"""[probe] budget as it is by default; the series do not tell another."""


def _spread(expr: str) -> tuple[Query, ...]:
    return (Query(f"max({expr})", "highest"), Query(f"quantile(0.9, {expr})", "90th percentile"),
            Query(f"quantile(0.5, {expr})", "median"))  # fmt: skip


_SEES = Row("Do the agents see", (
    Stat("Agents", "Agents that answer now.", f"count({_TOLD})", "none", COUNTED),
    Stat("Silent", "Agents that answered within the last day and do not now.", SILENT, "none", SOME_IS_ODD),
    Stat("Failing", "Collectors whose last run did not end well or in time: what they watch is not known.",
         f"sum(max by ({_ONE}) (wirewatch_collector_success{{HERE}}) == bool 0)", "none", AT_MOST_NONE),
    Stat("NVML restarts", "Times in the last hour that the process which talks to NVML was started again "
                          "after it hung or "
         "died.", "sum(increase(wirewatch_agent_nvml_restarts_total{HERE}[1h]))", "none", SOME_IS_ODD,
         decimals=0),
    Stat("Stuck", "Processes that hang in the driver and cannot be killed. Only a reboot helps.",
         "sum(wirewatch_agent_nvml_stuck_processes{HERE})", "none", AT_MOST_NONE),
    Stat("Released", "Nodes whose GPUs `wirewatch release` has let go of; they are UNKNOWN meanwhile, as is "
                     "meant.",
         "sum(max by (cluster,node) (wirewatch_released_until_timestamp_seconds{HERE}) > bool 0)", "none",
         SOME_IS_ODD),
    Stat("Log missed", "Records of the kernel log that were overwritten unread: an XID may be among them.",
         "sum(wirewatch_kernel_log_missed_total{HERE})", "none", SOME_IS_ODD),
    Stat("Not understood", "Lines of the kernel log, of ibstat and of nccl.conf that were not understood. "
                           "Please report.",
         "sum(wirewatch_kernel_log_unparsed_total{HERE}) + "
         "(sum(wirewatch_rdma_ibstat_lines_unparsed_total{HERE}) or "
         "vector(0)) + (sum(wirewatch_nccl_conf_lines_unparsed{HERE}) or vector(0))", "none", SOME_IS_ODD),
    Table("Silent agents", "Answered within the last day and do not now, and when a collector of theirs last "
          "succeeded. 50 rows at most.", (
              Value("last seen", f"bottomk(50, max by ({_NODE}) (last_over_time({_SUCCEEDED}{{HERE}}[1d])) "
                    f"unless on ({_NODE}) {_TOLD}) * 1000", "dateTimeFromNow", SINCE, 140), CLUSTER, NODE,
          ), 8, order=(("last seen", False),), blank=Blank.SILENT),
    Table("Collectors that fail", "What is not known, where, since when. 50 rows at most; why is in "
          "`curl localhost:9410/api/v1/state` on the node.", (
              Value("last success", f"topk(50, ({_LAST} and on ({_ONE}) {_FAILING})) * 1000",
              "dateTimeFromNow",
                    SINCE, 125), CLUSTER, NODE, Label("collector"),
              Value("fails/h", f"max by ({_ONE}) "
                                           f"(increase(wirewatch_collector_failures_total{{HERE}}[1h]))",
                    "none", SOME_IS_ODD, decimals=0, of=_ONE),
          ), 8, order=(("last success", False),), blank=Blank.COLLECTOR),
    Table("Versions", "Agents by version and by what they read: `live` hardware, a `replay`, or a "
                      "`synthetic` one.", (
        Value("agents", f"count by (version,source) ({_BUILD})", "none", COUNTED, 80), Label("version"),
        Label("source"),
    ), 8, order=(("agents", True),)),
))  # fmt: skip

_COLLECTORS = Row("Collectors", (
    Table("Collectors over all agents", "On how many nodes there is something to watch, how many runs fail, "
                                        "how long "
          "they take, and how old the oldest success is.", (
              Label("collector", 120),
              Value("nodes", f"count by (collector) (max by ({_ONE}) (wirewatch_collector_success{{HERE}}))",
              "none",
                    COUNTED),
              Value("something to watch", f"sum by (collector) (max by ({_ONE}) "
                                          f"(wirewatch_collector_applicable{{HERE}}))",
                    "none", COUNTED, 150),
              Value("succeed", f"avg by (collector) (max by ({_ONE}) (wirewatch_collector_success{{HERE}}))",
                    "percentunit", Limits("red", ((0.99, "orange"), (1, "green"))), decimals=0),
              Value("median run", "quantile by (collector) (0.5, "
                                  "wirewatch_collector_duration_seconds{HERE})", "s",
                    NoLimit("each has its own deadline, in docs/METRICS.md")),
              Value("longest run", "max by (collector) (wirewatch_collector_duration_seconds{HERE})", "s",
                    NoLimit("each has its own deadline, in docs/METRICS.md")),
              Value("oldest success", f"max by (collector) (time() - ({_LAST} > 0))", "s",
                    NoLimit("each has its own interval, in docs/METRICS.md"), decimals=0),
          ), 24, 11, order=(("succeed", False), ("longest run", True))),
    Series("Longest run by collector", "Of all agents. A run that is overdue is a failure.",
           (Query("max by (collector) (wirewatch_collector_duration_seconds{HERE})", "{{collector}}"),), "s",
           NoLimit("each has its own deadline, in docs/METRICS.md")),
    Series("Failures an hour by collector", "Runs that failed or were overdue.",
           (Query(f"sum by (collector) (rate(wirewatch_collector_failures_total{{HERE}}{_PER_HOUR}",
           "{{collector}}"),),
           "none", Limits("green", ((1, "orange"),))),
))  # fmt: skip

_COST = Row("What watching costs", (
    Series("CPU of an agent", "Cores that an agent takes, with the process that talks to NVML. What is "
                              "normal: "
           "docs/hardware.", _spread(_CPU), "none", Limits("green", ((0.5, "orange"),), line=False), 8),
    Series("Memory of an agent", "Resident memory of its processes.", _spread(_MEMORY), "bytes",
           Limits("green", ((512 * 2**20, "orange"),), line=False), 8),
    Series("Time inside NVML", "The part of the time that is spent in calls of the driver.", _spread(_NVML),
           "percentunit", Limits("green", ((0.25, "orange"),), line=False), 8),
    Table("Costliest agents", "The twenty with most CPU over the last hour.", (
        Value("cores", "topk(20, sum by (cluster,node) (rate(wirewatch_agent_cpu_seconds_total{HERE}[1h])))",
        "none",
              Limits("green", ((0.5, "orange"),)), 80, decimals=3), CLUSTER, NODE,
        Value("memory", _MEMORY, "bytes", Limits("green", ((512 * 2**20, "orange"),)), 100, of=_NODE),
    ), order=(("cores", True),)),
    Series("CPU by collector", "Cores that each collector takes in the agent, mean of all agents. What NVML "
                               "itself "
           "takes is not here.",
           (Query("avg by (collector) (rate(wirewatch_collector_cpu_seconds_total{HERE}[$__rate_interval]))",
                  "{{collector}}"),), "none", NoLimit("their sum is judged"), stacked=True),
))  # fmt: skip

_PROBES = Row("Probing politely", (
    Series("GPU time held by probes, against the budget", "The part of the GPUs' time for which probes held "
                                                          "contexts, "
           "over an hour. The line is the default budget of 1 %; `[probe] budget` changes it, and probes "
           "stop there.",
           _spread(_SHARE), "percentunit", BUDGET, 8, reach=0.012),
    Series("Why no probe ran", "Times an hour that a probe was due and did not run. `budget`: the hour's "
                               "share is used "
           "up. `busy`, `allocated`, `settling`: normal work.",
           (Query(f"sum by (reason) (rate(wirewatch_probe_skips_total{{HERE}}{_PER_HOUR}", "{{reason}}"),),
           "none",
           COUNTED, 8, stacked=True),
    Series("Probes an hour by how they ended", "`ok` is a complete one; `preempted` made way for a job. "
                                               "Others in a "
           "row become a finding.",
           (Query(f"sum by (result) (rate(wirewatch_probe_runs_total{{HERE}}{_PER_HOUR}", "{{result}}"),),
           "none",
           COUNTED, 8, stacked=True),
    Series("How long a probe takes", "From its start to its end.",
           _spread(f"max by ({_NODE}) (wirewatch_probe_duration_seconds{{HERE}})"), "s",
           Limits("green", ((30, "orange"), (60, "red"))), 8),
    Series("Nodes with fresh results", "The part of the nodes whose last complete probe is not older than "
                                       "two hours. "
           "The rest was busy: no fault.",
           (Query(f"avg(max by ({_NODE}) (wirewatch_probe_fresh{{HERE}}))", "fresh"),), "percentunit",
           NoLimit("a full cluster has few idle nodes"), 8, highest=1),
    Table("Most refusals", "The twenty nodes with most refused probes in the last day, by reason.", (
        Value("refused", f"topk(20, max by ({_NODE},reason) "
                         f"(increase(wirewatch_probe_skips_total{{HERE}}[1d])) > 0)",
              "none", COUNTED, 85, decimals=0), CLUSTER, NODE, Label("reason"),
    ), 8, order=(("refused", True),), blank=Blank.REFUSALS),
))  # fmt: skip

AGENT = Dashboard(
    "wirewatch-agent", "wirewatch / Agent",
    "Whether the agents see, what watching and probing cost, and why no probe ran.",
    (_SEES, _COLLECTORS, _COST, _PROBES), events(often=False),
)  # fmt: skip
