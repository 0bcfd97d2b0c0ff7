"""What watching and probing cost."""

from dashboards.agent.queries import OF_NODE, per_hour
from dashboards.parts import Blank, Label, Limits, NoLimit, Query, Row, Series, Table, Value
from dashboards.shared import CLUSTER, COUNTED, NODE

_CPU = "sum by (cluster,node) (rate(wirewatch_agent_cpu_seconds_total{HERE}[$__rate_interval]))"
_MEMORY = "sum by (cluster,node) (wirewatch_agent_resident_memory_bytes{HERE})"
_NVML = "max by (cluster,node) (rate(wirewatch_agent_nvml_seconds_total{HERE}[$__rate_interval]))"
_GPUS = "count by (cluster,node) (count by (cluster,node,uuid) (wirewatch_gpu_info{HERE}))"
_SHARE = f"max by ({OF_NODE}) (rate(wirewatch_probe_gpu_seconds_total{{HERE}}[1h])) / {_GPUS}"
BUDGET = Limits("green", ((0.01, "orange"),))
"""The default of `[probe] budget`; no series has a configured one."""


def _spread(expr: str) -> tuple[Query, ...]:
    return (
        Query(f"max({expr})", "highest"),
        Query(f"quantile(0.9, {expr})", "90th percentile"),
        Query(f"quantile(0.5, {expr})", "median"),
    )


COST = Row(
    "What watching costs",
    (
        Series(
            "CPU of an agent",
            "Cores that an agent takes, with the process that talks to NVML. What is normal: proof/hardware.",
            _spread(_CPU),
            "none",
            Limits("green", ((0.5, "orange"),), line=False),
            8,
        ),
        Series(
            "Memory of an agent",
            "Resident memory of its processes.",
            _spread(_MEMORY),
            "bytes",
            Limits("green", ((512 * 2**20, "orange"),), line=False),
            8,
        ),
        Series(
            "Time inside NVML",
            "The part of the time that is spent in calls of the driver.",
            _spread(_NVML),
            "percentunit",
            Limits("green", ((0.25, "orange"),), line=False),
            8,
        ),
        Table(
            "Costliest agents",
            "The twenty with most CPU over the last hour.",
            (
                Value(
                    "cores",
                    "topk(20, sum by (cluster,node) (rate(wirewatch_agent_cpu_seconds_total{HERE}[1h])))",
                    "none",
                    Limits("green", ((0.5, "orange"),)),
                    80,
                    decimals=3,
                ),
                CLUSTER,
                NODE,
                Value(
                    "memory", _MEMORY, "bytes", Limits("green", ((512 * 2**20, "orange"),)), 100, of=OF_NODE
                ),
            ),
            order=(("cores", True),),
        ),
        Series(
            "CPU by collector",
            "Cores that each collector takes in the agent, mean of all agents. What NVML itself "
            "takes is not here.",
            (
                Query(
                    "avg by (collector) "
                    "(rate(wirewatch_collector_cpu_seconds_total{HERE}[$__rate_interval]))",
                    "{{collector}}",
                ),
            ),
            "none",
            NoLimit("their sum is judged"),
            stacked=True,
            misleads="the time inside NVML is another process's, and is not here.",
        ),
    ),
)

PROBES = Row(
    "Probes and their budget",
    (
        Series(
            "GPU time held by probes, against the budget",
            "The part of the GPUs' time for which probes held contexts, over an hour. The line is "
            "the default budget of 1 %; `[probe] budget` changes it, and probes stop there.",
            _spread(_SHARE),
            "percentunit",
            BUDGET,
            8,
            reach=0.012,
        ),
        Series(
            "Why no probe ran",
            "Times an hour that a probe was due and did not run. `budget`: the hour's share is used "
            "up. `busy`, `allocated`, `settling`: normal work.",
            (Query(per_hour("wirewatch_probe_skips_total{HERE}", "reason"), "{{reason}}"),),
            "none",
            COUNTED,
            8,
            stacked=True,
        ),
        Series(
            "Probes an hour by how they ended",
            "`ok` is a complete one; `preempted` made way for a job. Others in a row become a finding.",
            (Query(per_hour("wirewatch_probe_runs_total{HERE}", "result"), "{{result}}"),),
            "none",
            COUNTED,
            8,
            stacked=True,
        ),
        Series(
            "How long a probe takes",
            "From its start to its end.",
            _spread(f"max by ({OF_NODE}) (wirewatch_probe_duration_seconds{{HERE}})"),
            "s",
            Limits("green", ((30, "orange"), (60, "red"))),
            8,
            blank=Blank.PROBE,
        ),
        Series(
            "Nodes with fresh results",
            "The part of the nodes whose last complete probe is not older than two hours. The rest "
            "was busy: no fault.",
            (Query(f"avg(max by ({OF_NODE}) (wirewatch_probe_fresh{{HERE}}))", "fresh"),),
            "percentunit",
            NoLimit("a full cluster has few idle nodes"),
            8,
            highest=1,
        ),
        Table(
            "Most refusals",
            "The twenty nodes with most refused probes in the last hour, by reason.",
            (
                Value(
                    "refused",
                    f"topk(20, max by ({OF_NODE},reason) (increase(wirewatch_probe_skips_total{{HERE}}[1h])) "
                    "> 0)",
                    "none",
                    COUNTED,
                    85,
                    decimals=0,
                ),
                CLUSTER,
                NODE,
                Label("reason"),
            ),
            8,
            order=(("refused", True),),
            blank=Blank.REFUSALS,
        ),
    ),
)
