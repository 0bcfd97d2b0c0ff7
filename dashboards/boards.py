"""The four dashboards, and the files that they are."""

from dataclasses import replace
from pathlib import Path

from dashboards.agent import AGENT
from dashboards.build import text
from dashboards.fleet import FLEET
from dashboards.links import LINKS
from dashboards.node import NODE_PAGE
from dashboards.node.others import others

FOLDER = Path(__file__).parent / "json"
_OTHERS = others((FLEET, NODE_PAGE, LINKS, AGENT))
BOARDS = (FLEET, replace(NODE_PAGE, rows=(*NODE_PAGE.rows, *_OTHERS)), LINKS, AGENT)


def files() -> dict[str, str]:
    """File names in dashboards/json, with what they hold."""
    return {f"{board.uid}.json": text(board) for board in BOARDS}
