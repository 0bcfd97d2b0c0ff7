"""The four dashboards."""

from dashboards.agent import AGENT
from dashboards.fleet import FLEET
from dashboards.links import LINKS
from dashboards.node import NODE_PAGE

BOARDS = (FLEET, NODE_PAGE, LINKS, AGENT)
