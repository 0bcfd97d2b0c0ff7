"""Agent: whether the agents see, what they cost, and how politely they probe."""

from dashboards.agent.collectors import AGENTS, COLLECTORS, PORT
from dashboards.agent.cost import COST, PROBES
from dashboards.parts import Dashboard
from dashboards.shared import events

AGENT = Dashboard(
    "wirewatch-agent",
    "wirewatch / Agent",
    "Whether the agents read all that they watch, what watching and probing cost, and why no probe ran.",
    (AGENTS, COLLECTORS, PORT, COST, PROBES),
    events(often=False),
)
