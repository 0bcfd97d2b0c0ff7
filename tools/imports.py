"""Who imports whom among the agent's modules, read by grimp without running any of them."""

import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "wirewatch"


def graph(root: Path) -> grimp.ImportGraph:
    """The imports of the agent in a checkout, those for types and those inside functions too.

    Another checkout than this one's can only be asked for before anything of the agent is imported.
    """
    place = str(root / "agent")
    sys.path.insert(0, place)
    try:
        return grimp.build_graph(PACKAGE, cache_dir=None)
    finally:
        sys.path.remove(place)


def room(module: str) -> str:
    """The room that a module of the agent belongs to: the name after the package's; "" for the package."""
    return module.partition(".")[2].partition(".")[0]
