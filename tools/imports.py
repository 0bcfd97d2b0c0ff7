"""Who imports whom among the agent's modules, read by grimp without running any of them."""

import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "wirewatch"
PACKAGES = (PACKAGE, "wirewatch_lab", "wirewatch_fleet")
"""The node's agent, and the programs beside it in the same wheel."""


def graph(root: Path) -> grimp.ImportGraph:
    """The imports of the agent in a checkout, those for types and those inside functions too.

    Another checkout than this one's can only be asked for before anything of the agent is imported.
    """
    place = str(root / "agent")
    sys.path.insert(0, place)
    try:
        there = [name for name in PACKAGES if (root / "agent" / name).is_dir()]
        return grimp.build_graph(*there, cache_dir=None)
    finally:
        sys.path.remove(place)


def room(module: str) -> str:
    """Return the room that a module belongs to: the name after the node's package, or the other package."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] if package == PACKAGE else package
