"""The verdict on a node, and what to do."""

from dashboards.parts import (
    HEALTH,
    RATIO,
    SOME_IS_ODD,
    YES_NO,
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
from dashboards.shared import AGE, COLOURED, COUNTED
from dashboards.wrong import findings
from wirewatch_fleet import worst

_HEALTH = " + ".join(
    (
        f'{code} * max(wirewatch_health{{HERE,health="{name}"}})'
        for code, name in ((1, "degraded"), (2, "unknown"), (3, "failed"))
    )
)
_WORST = worst.bad("HERE")
_NOW = " or ".join(
    (
        f"({_HEALTH})",
        *(f"max({_WORST} == {state}) * 0 + {health}" for state, health in ((4, 3), (3, 2), (2, 4), (1, 1))),
    )
)
"""While the agent is not heard, what it said last; 4 where that was no more than silence."""
_LAST = "max(wirewatch_probe_last_success_timestamp_seconds{HERE})"

VERDICT = Row(
    "Verdict",
    (
        Stat(
            "Health",
            "The worst of all findings. UNKNOWN: it is not known.",
            _NOW,
            "none",
            COLOURED,
            HEALTH,
        ),
        Stat(
            "May a job start",
            "Whether the next job may start here: OK and DEGRADED.",
            "min(wirewatch_job_ready{HERE})",
            "none",
            Limits("red", ((1, "green"),)),
            YES_NO,
        ),
        Stat(
            "Lowest ratio",
            "Measured over expected bus bandwidth, of the worst collective in the last probe.",
            "min(wirewatch_probe_busbw_ratio{HERE})",
            "percentunit",
            RATIO,
            decimals=1,
            blank=Blank.PROBE,
        ),
        Stat(
            "Last probe",
            "Since the last complete probe. A busy node has an old one.",
            f"time() - ({_LAST} > 0) or ({_LAST} == 0) + 1e12",
            "s",
            AGE,
            {"1000000000000": ("never", "orange")},
            decimals=0,
            misleads="old is not slow: a busy node is not probed.",
        ),
        Stat(
            "Findings",
            "What is wrong and seen at this moment.",
            'max(wirewatch_findings{HERE,stage="live"})',
            "none",
            SOME_IS_ODD,
            misleads="what is latched counts under Held.",
        ),
        Stat(
            "Held",
            "Latched or on probation: not seen any more, and not known to be repaired.",
            'sum(max by (stage) (wirewatch_findings{HERE,stage=~"latched|probation"}))',
            "none",
            SOME_IS_ODD,
        ),
        Stat(
            "GPUs",
            "GPUs that the driver lists.",
            "count(count by (uuid) (wirewatch_gpu_info{HERE}))",
            "none",
            COUNTED,
        ),
        Stat(
            "GPUs in use",
            "GPUs with a process that computes. No probe runs while there is one.",
            "sum(max by (uuid) (wirewatch_gpu_compute_processes{HERE}) > bool 0)",
            "none",
            COUNTED,
        ),
        findings(),
        Series(
            "Health over time",
            "0 OK, 1 DEGRADED, 2 UNKNOWN, 3 FAILED.",
            (Query(_HEALTH, "health"),),
            "none",
            Limits("green", ((1, "orange"), (2, "purple"), (3, "red"))),
            height=5,
            highest=3,
            stepped=True,
        ),
        Table(
            "What this node is",
            "Product, driver, NCCL as the last probe found it, and the name of the topology's shape "
            "that was accepted as baseline.",
            (
                Value(
                    "",
                    "max by (product,gpus,driver,nccl,fingerprint) (wirewatch_node_info{HERE})",
                    "none",
                    COUNTED,
                ),
                Label("product"),
                Label("gpus", 60),
                Label("driver", 110),
                Label("nccl", 90),
                Label("fingerprint", 160),
            ),
            height=5,
        ),
    ),
)
