"""The examples of docs/explain.md are what the code prints today: `make generated` prints them again.

A line `<!-- drawn: NAME -->` before a block of code says which drawn job (tests/node/jobs/ringjobs.py) or
node it is of.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tests.node.cli.topnodes import finding, held, people, snapshot
from tests.node.jobs.explain.cases import printed
from tests.node.jobs.explain.drawn import evidence, job, late
from tests.node.jobs.explain.drawnnodes import watched
from tests.node.jobs.ringjobs import FSDP, LATE, P2P_OFF, JobShape
from tests.support import EPOCH
from wirewatch.cli.check.polling import NodeSource, played
from wirewatch.cli.jobs.explained import page as explained_page
from wirewatch.cli.jobs.topview import CHOSEN, LinkRates, view
from wirewatch.cli.output import shown
from wirewatch.documents.jobs import explain
from wirewatch.jobs.explain.gather import jobs_of

PAGE = Path(__file__).parents[1] / "docs" / "explain.md"
HOURS = 7200.0
WIDTH = 80
_BLOCK = re.compile(r"(<!-- drawn: ([a-z0-9 ]+) -->\n\n```(?:console)?\n(?:\$ .*\n)?)(?:.*\n)*?(?=```)")


def page(text: str) -> str:
    """The page with the examples as they are printed today.

    Raises:
        KeyError: a block names no drawn job.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}{_EXAMPLES[found[2]]()}\n", text)


def _of_job(shape: JobShape) -> Callable[[], str]:
    owned = replace(shape, owner="slurm:4711")

    def printed() -> str:
        (one,) = jobs_of(watched(owned), EPOCH + HOURS)
        return shown(line.rstrip() for line in explained_page(explain(one, EPOCH + HOURS, "live"), WIDTH))

    return printed


def _of_case(name: str) -> Callable[[], str]:
    """The page of a golden text, down to the tables of its ledger."""

    def shortened() -> str:
        return printed()[name].partition("\nRanks and GPUs")[0].rstrip()

    return shortened


def _hang() -> str:
    """Of a bundled recording and overlay, as the command beside it plays them."""
    document = played(NodeSource(None, "demo-dgx-h200", ("job-hang-stopped",))).snapshot().jobs
    (one,) = document.jobs
    return shown(
        line.rstrip() for line in explained_page(explain(one.evidence, document.at, document.source), WIDTH)
    )


def _top() -> str:
    one = held(evidence(job(late=late(), waiting=0.12)))
    shots = [snapshot(one, at=EPOCH + s, sent=s * 1e9, findings=[finding(2)]) for s in (0, 15)]
    rates = LinkRates().after(shots[0].state).after(shots[1].state)
    return shown(line.text for line in view(shots[1], rates, WIDTH, CHOSEN, people(0, 1, 2, 3)).lines)


_EXAMPLES: Mapping[str, Callable[[], str]] = {
    "late rank": _of_job(LATE),
    "p2p off": _of_job(replace(P2P_OFF, settings={"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "WARN"})),
    "fsdp": _of_job(FSDP),
    "hang": _hang,
    "stalling": _of_case("stalling"),
    "standing": _of_case("standing"),
    "not attributed": _of_case("not-attributed"),
    "top": _top,
}
