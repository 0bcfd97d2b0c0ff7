"""Versions in a cohort, the nodes of one product in one cluster, and what differs from the baseline.

A minority is what is not commonest. The recording rules count: group wirewatch-boards.
"""

from dashboards.parts import Blank, Label, NoLimit, Table, Value
from dashboards.shared import CLUSTER, COUNTED, NODE

_OF = "cluster,kind,product"
_IN = 'cluster=~"$cluster"'
_COUNTED = (
    f"max by ({_OF},version) (product_version:wirewatch_nodes:count{{{_IN}}} or "
    f"product_version:wirewatch_gpu_nodes:count{{{_IN}}})"
)
_ODD = "max by (cluster,node,kind,product,version) (node:wirewatch_version:minority{HERE})"
_DRIFT = "max by (cluster,node,kind) (wirewatch_topology_drift{HERE})"
MINORITY_COUNT = (
    f"count(count by (cluster,node) ({_ODD})) or count(node:wirewatch_gpu_version:info{{HERE}}) * 0"
)
"""Nodes with any of them; 0 only where versions are known."""

DRIFT = Table(
    "Drift by node",
    "What has changed since the accepted baseline, by kind. `wirewatch topology diff` on the node names it, "
    "`topology accept` makes it the baseline. 50 rows at most.",
    (Value("changes", f"topk(50, {_DRIFT} > 0)", "none", COUNTED, 90), CLUSTER, NODE, Label("kind")),
    8, 6, order=(("changes", True),), blank=Blank.DRIFT,
    misleads="an upgrade that was meant is drift too, until somebody accepts it.",
)  # fmt: skip
VERSIONS = (
    Table(
        "Versions by product",
        "How many nodes of a product run each version of driver, NCCL (as the probe found it) and firmware, "
        "in the clusters chosen. Rare ones first; 100 rows at most.",
        (
            Value("nodes", f"bottomk(100, {_COUNTED})", "none", COUNTED, 70),
            CLUSTER, Label("kind", 110), Label("product"), Label("version"),
            Value(
                "share", f"{_COUNTED} / on ({_OF}) group_left() sum by ({_OF}) ({_COUNTED})", "percentunit",
                NoLimit("in a rollout every share is right for a while"), 80, decimals=0, of=f"{_OF},version",
            ),
        ),
        12, 7, order=(("nodes", False), ("kind", False)),
    ),
    Table(
        "Nodes with a minority version",
        "Nodes whose version is not the commonest among the nodes of their product; none of them is where "
        "two are equally common. Slow nodes that share one here are a lead. 50 rows at most.",
        (
            Value("nodes alike", f"bottomk(50, {_ODD})", "none", COUNTED, 100),
            CLUSTER, NODE, Label("kind", 110), Label("product"), Label("version"),
        ),
        12, 7, order=(("nodes alike", False),), blank=Blank.VERSIONS,
        misleads="in a rollout the newest version is the minority for a while.",
    ),
)  # fmt: skip
