"""The brake of Slurm's scripts, in a real Slurm, by the table that it shares with the controller's."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brakes import CASES, BrakeCase, Now, left_as
from tests.system.cluster import Cluster
from tests.system.gate import Gate, daemons, slurm_lines

pytestmark = pytest.mark.system

NODES = ("g1", "g2", "g3", "g4", "g5", "g6")
DAEMON = {"ok": "ok", "degraded": "degraded", "failed": "failed", "unknown": "none"}
EDITED, OTHERS = "wirewatch: RMA 4711", "maintenance"
OURS = re.compile(r"wirewatch: nvlink\.link_down GPU 2 link 7: .* #[0-9a-f]{8}")
ROUNDS = 2
"""Health checks of each node; slurmd has one each minute."""


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = Cluster(folder, dict.fromkeys(NODES, 2), slurm_lines(folder))
        with Gate(cluster) as made, daemons(folder), cluster:
            yield made
        cluster.wait(lambda: not cluster.processes())


def check(gate: Gate, *nodes: str) -> None:
    """The health check of these nodes, all at once."""
    running = [gate.by_hand("healthcheck.sh", node) for node in nodes]
    assert [one.wait(60) for one in running] == [0] * len(nodes)


def found(gate: Gate, case: BrakeCase) -> None:
    """Bring the nodes into the state in which the case finds them."""
    gate.configure(f"MAX_DRAINED={len(NODES)}")
    ours = [name for name, (_, now) in case.nodes.items() if now in {Now.OURS, Now.EDITED}]
    gate.health("failed", *(ours or ["nobody"]))
    check(gate, *ours)
    for name, (_, now) in case.nodes.items():
        reason = {Now.EDITED: EDITED, Now.OTHERS: OTHERS}.get(now)
        if reason:
            gate.cluster.tell("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")
    for name, (health, _) in case.nodes.items():
        gate.health(DAEMON[health], name)
    out = {name for name, (_, now) in case.nodes.items() if now is not Now.IN_USE}
    assert gate.drained().keys() == out
    gate.configure(f"MAX_DRAINED={case.most}")


def whose(reason: str) -> Now:
    if reason in {EDITED, OTHERS}:
        return Now.EDITED if reason == EDITED else Now.OTHERS
    assert OURS.fullmatch(reason), reason
    return Now.OURS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_brake_leaves_nodes_as_the_table_says(gate: Gate, case: BrakeCase) -> None:
    gate.reset()
    found(gate, case)
    for _ in range(ROUNDS):
        check(gate, *case.nodes)
    out = {name: whose(reason) for name, reason in gate.drained().items()}
    assert left_as(case, out), (out, gate.syslog())
    assert gate.printed() == ""
