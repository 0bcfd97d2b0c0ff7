"""Fleet: which of many nodes, worst first, on two screens. Only tables grow with their number, and end."""

from dashboards.fleet.nodes import BAD_NODES, START
from dashboards.fleet.probes import BUSBW, PROBES
from dashboards.parts import Dashboard
from dashboards.shared import events

FLEET = Dashboard(
    "wirewatch-fleet",
    "wirewatch / Fleet",
    "Which of many nodes has slow or broken wires, since when, and on how many the next job may start.",
    (BAD_NODES, START, BUSBW, PROBES),
    events(often=False),
)
