"""Fleet: which of many nodes, worst first. Nothing grows with their number but tables that end."""

from dashboards.fleet.changes import CHANGES
from dashboards.fleet.nodes import BAD_NODES, START, WRONG
from dashboards.fleet.probes import BUSBW, PROBES
from dashboards.parts import Dashboard
from dashboards.shared import events

FLEET = Dashboard(
    "wirewatch-fleet",
    "wirewatch / Fleet",
    "Which of many nodes has slow or broken wires, since when, and on how many the next job may start.",
    (BAD_NODES, START, WRONG, BUSBW, PROBES, CHANGES),
    events(often=False),
)
