"""The examples of docs/explain.md are what the code prints today: `make generated` prints them again.

A line `<!-- drawn: NAME -->` before a block of code says which drawn job or node it is of.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.node.cli.topnodes import finding, held, people, snapshot
from tests.node.jobs.explain.cases import printed
from tests.node.jobs.explain.drawn import evidence, job, late
from tests.support import EPOCH
from wirewatch.cli.jobs.topview import CHOSEN, LinkRates, view
from wirewatch.cli.output import shown

PAGE = Path(__file__).parents[1] / "docs" / "explain.md"
WIDTH = 80
_BLOCK = re.compile(r"(<!-- drawn: ([a-z0-9 ]+) -->\n\n```(?:console)?\n(?:\$ .*\n)?)(?:.*\n)*?(?=```)")


def page(text: str) -> str:
    """The page with the examples as they are printed today.

    Raises:
        KeyError: a block names no drawn job.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}{_EXAMPLES[found[2]]()}\n", text)


def _of_case(name: str) -> Callable[[], str]:
    """The page of a golden text, down to the tables of its ledger."""

    def shortened() -> str:
        return printed()[name].partition("\nRanks and GPUs")[0].rstrip()

    return shortened


def _top() -> str:
    one = held(evidence(job(late=late(), waiting=0.12)))
    shots = [snapshot(one, at=EPOCH + s, sent=s * 1e9, findings=[finding(2)]) for s in (0, 15)]
    rates = LinkRates().after(shots[0].state).after(shots[1].state)
    return shown(line.text for line in view(shots[1], rates, WIDTH, CHOSEN, people(0, 1, 2, 3)).lines)


_EXAMPLES: Mapping[str, Callable[[], str]] = {"stalling": _of_case("stalling"), "top": _top}
