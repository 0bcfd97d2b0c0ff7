"""Versions, and what has changed since the baseline."""

from dashboards.parts import Blank, Label, Query, Row, Series, Table, Value
from dashboards.shared import CLUSTER, COUNTED, NODE
from dashboards.versions import MINORITY, VERSIONS

_DRIFT = "max by (cluster,node,kind) (wirewatch_topology_drift{HERE})"

CHANGES = Row(
    "Versions and drift",
    (
        VERSIONS,
        MINORITY,
        Series(
            "Nodes that differ from their baseline",
            "Nodes with changes that nobody has accepted, information included, so that a fleet's "
            "upgrades show; and nodes that have no baseline yet.",
            (
                Query(f"sum(max by (cluster,node) ({_DRIFT}) > bool 0)", "differ"),
                Query(
                    "sum(max by (cluster,node) (wirewatch_topology_baseline_timestamp_seconds{HERE}) == bool "
                    "0)",
                    "no baseline yet",
                ),
            ),
            "none",
            COUNTED,
        ),
        Table(
            "Drift by node",
            "What has changed since the accepted baseline, by kind. `wirewatch topology diff` on the "
            "node names it, `topology accept` makes it the baseline. 50 rows at most.",
            (Value("changes", f"topk(50, {_DRIFT} > 0)", "none", COUNTED, 90), CLUSTER, NODE, Label("kind")),
            order=(("changes", True),),
            blank=Blank.DRIFT,
            misleads="an upgrade that was meant is drift too, until somebody accepts it.",
        ),
    ),
)
