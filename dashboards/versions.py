"""Versions in a cohort: the nodes of one product in one cluster. A minority is what is not commonest."""

from dataclasses import dataclass

from dashboards.parts import Blank, Label, NoLimit, Table, Value
from dashboards.shared import CLUSTER, COUNTED, NODE


@dataclass(frozen=True, slots=True)
class Versioned:
    """What has a version: the metric that has it, and its labels of the cohort and of the version."""

    part: str
    metric: str
    cohort: str
    version: str

    @property
    def held(self) -> str:
        """One series for each node and version that is known."""
        by, known = (f"cluster,node,{self.cohort},{self.version}", f'{{HERE,{self.version}!=""}}')
        return f"max by ({by}) ({self.metric}{known})"

    @property
    def nodes(self) -> str:
        return f"count by (cluster,{self.cohort},{self.version}) ({self.held})"

    @property
    def share(self) -> str:
        by = f"cluster,{self.cohort}"
        return f"{self.nodes} / on ({by}) group_left() count by ({by}) ({self.held})"

    @property
    def odd(self) -> str:
        """The nodes of a minority; the value is how many are alike."""
        by = f"cluster,{self.cohort}"
        few = f"({self.nodes} < on ({by}) group_left() max by ({by}) ({self.nodes}))"
        return f"{self.held} * on ({by},{self.version}) group_left() {few}"

    def query(self, expr: str, *more: str) -> str:
        """With the same labels for whatever has a version: part, cohort, release, and `more` of its own."""
        cohort = f'label_replace({expr}, "cohort", "$1", "{self.cohort}", "(.+)")'
        release = f'label_replace({cohort}, "release", "$1", "{self.version}", "(.+)")'
        by = ",".join(("cluster", *more, "part", "cohort", "release"))
        return f'max by ({by}) (label_replace({release}, "part", "{self.part}", "", ""))'


PARTS = (
    Versioned("driver", "wirewatch_node_info", "product", "driver"),
    Versioned("NCCL", "wirewatch_node_info", "product", "nccl"),
    Versioned("GPU firmware", "wirewatch_gpu_info", "name", "firmware"),
    Versioned("GPU VBIOS", "wirewatch_gpu_info", "name", "vbios"),
    Versioned("NIC firmware", "wirewatch_rdma_port_info", "model", "firmware"),
)
MINORITY_COUNT = (
    f"count(count by (cluster,node) ({' or '.join(one.odd for one in PARTS)})) or "
    f"count(wirewatch_node_info{{HERE}}) * 0"
)
"""Nodes with any of them; 0 only where nodes are known."""
VERSIONS = Table(
    "Versions by product",
    "How many nodes of a product run each version of driver, NCCL (as the probe found it) "
    "and firmware. Rare ones first; 100 rows at most.",
    (
        Value(
            "nodes",
            f"bottomk(100, {' or '.join(one.query(one.nodes) for one in PARTS)})",
            "none",
            COUNTED,
            70,
        ),
        CLUSTER,
        Label("part", 120),
        Label("cohort", 0, "product"),
        Label("release"),
        Value(
            "share",
            " or ".join(one.query(one.share) for one in PARTS),
            "percentunit",
            NoLimit("in a rollout every share is right for a while"),
            80,
            decimals=0,
            of="cluster,part,cohort,release",
        ),
    ),
    order=(("nodes", False), ("part", False)),
)
MINORITY = Table(
    "Nodes with a minority version",
    "Nodes whose version is not the commonest among the nodes of their product; none of them "
    "is where two are equally common. Slow nodes that share one here are a lead. 50 rows at "
    "most.",
    (
        Value(
            "nodes alike",
            f"bottomk(50, {' or '.join(one.query(one.odd, 'node') for one in PARTS)})",
            "none",
            COUNTED,
            100,
        ),
        CLUSTER,
        NODE,
        Label("part", 120),
        Label("cohort", 0, "product"),
        Label("release"),
    ),
    order=(("nodes alike", False),),
    blank=Blank.VERSIONS,
    misleads="in a rollout the newest version is the minority for a while.",
)
