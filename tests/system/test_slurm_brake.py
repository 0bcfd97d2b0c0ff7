"""The brake of Slurm's scripts, in a real Slurm, by the table that it shares with the controller's."""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brakes import CASES, NODES, POOLS, RACKS, BrakeCase, Now, Shares
from tests.system.cluster import Cluster, tool
from tests.system.gate import SCRIPTS, Gate, daemons, slurm_lines
from wirewatch.hw.slurm import held_by

pytestmark = pytest.mark.system

DAEMON = {"ok": "ok", "degraded": "degraded", "failed": "failed", "unknown": "none"}
TASK_PROLOG = SCRIPTS.parent / "jobs" / "task-prolog.sh"
TIME = re.compile(r"drained [0-9TZ:-]{20}")
REPLACED, OTHERS = "wirewatch: RMA 4711", "maintenance"
OURS = re.compile(
    r"GPU2 link7 wirewatch: nvlink\.link_down GPU 2 link 7: .* drained [0-9TZ:-]{20} #[0-9a-f]{8}"
)
ROUNDS = 2
"""Health checks of each node; slurmd has one each minute."""


def lines(folder: Path) -> str:
    """The README's, and partitions and a topology as the table has pools and racks."""
    (folder / "topology.conf").write_text(
        "".join(f"SwitchName={name} Nodes={','.join(nodes)}\n" for name, nodes in RACKS.items())
        + f"SwitchName=top Switches={','.join(RACKS)}\n",
        "ascii",
    )
    pools = [f"PartitionName={name} Nodes={','.join(nodes)} State=UP\n" for name, nodes in POOLS.items()]
    prolog = folder / "task-prolog"
    prolog.write_text(
        f"#!/bin/sh\nWIREWATCH_BRAKE={folder}/run-$SLURMD_NODENAME/brake exec {TASK_PROLOG}\n", "utf-8"
    )
    prolog.chmod(0o755)
    return slurm_lines(folder) + f"TopologyPlugin=topology/tree\nTaskProlog={prolog}\n" + "".join(pools)


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = Cluster(folder, dict.fromkeys(NODES, 2), lines(folder))
        with Gate(cluster) as made, daemons(folder), cluster:
            yield made
        cluster.wait(lambda: not cluster.processes())


def shares(given: Shares) -> str:
    """Lines of the scripts' configuration."""
    return f"NEW_CLUSTER={given.cluster}; NEW_POOL={given.pool}; NEW_RACK={given.rack}; STOCK={given.stock}"


def check(gate: Gate, *nodes: str) -> None:
    """The health check of these nodes, all at once."""
    running = [gate.by_hand("healthcheck.sh", node) for node in nodes]
    assert [one.wait(60) for one in running] == [0] * len(nodes)


def drain(gate: Gate, node: str, reason: str) -> None:
    gate.cluster.tell("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")


def signed(reason: str) -> str:
    """A reason with the checksum that the scripts put behind it."""
    done = subprocess.run(["cksum"], input=reason.encode(), capture_output=True, check=True)
    return f"{reason} #{int(done.stdout.split()[0]):08x}"


def ago(reason: str, age: float) -> str:
    """A reason of ours, as it was written some seconds ago."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age))
    return signed(TIME.sub(f"drained {at}", reason.rpartition(" #")[0]))


def found(gate: Gate, case: BrakeCase) -> None:
    """Bring the nodes into the state in which the case finds them."""
    gate.configure(shares(Shares()))
    ours = [name for name in NODES if case.found(name).now in {Now.OURS, Now.EDITED, Now.REPLACED}]
    gate.health("failed", *(ours or ["nobody"]))
    check(gate, *ours)
    reasons = gate.drained()
    for name in NODES:
        health, now, age = case.found(name)
        if now is Now.EDITED:
            drain(gate, name, f"RMA 4711, was {ago(reasons[name], age)}")
        elif now is Now.OURS and age:
            drain(gate, name, ago(reasons[name], age))
        elif now in {Now.REPLACED, Now.OTHERS}:
            drain(gate, name, {Now.REPLACED: REPLACED, Now.OTHERS: OTHERS}[now])
        gate.health(DAEMON[health], name)
    out = {name for name in NODES if case.found(name).now not in {Now.IN_USE, Now.RESERVED}}
    assert gate.drained().keys() == out
    gate.configure(shares(case.shares))


def whose(reason: str) -> Now:
    if reason in {REPLACED, OTHERS}:
        return Now.REPLACED if reason == REPLACED else Now.OTHERS
    if reason.startswith("RMA 4711, was "):
        return Now.EDITED
    assert OURS.fullmatch(reason), reason
    return Now.OURS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_brake_leaves_nodes_as_the_table_says(gate: Gate, case: BrakeCase) -> None:
    gate.reset()
    found(gate, case)
    for _ in range(ROUNDS):
        check(gate, *case.nodes)
    out = {name: whose(reason) for name, reason in gate.drained().items()}
    assert case.left_as(out), (out, gate.syslog())
    assert gate.printed() == ""


def test_the_part_is_in_what_sinfo_shows_and_the_stock_in_what_the_brake_prints(gate: Gate) -> None:
    gate.reset()
    gate.health("failed", "g1")
    check(gate, "g1")
    drain(gate, "g4", OTHERS)
    assert gate.cluster.tell("sinfo", "-h", "-R", "-n", "g1", "-o", "%20E") == "GPU2 link7 wirewatch\n"
    gate.told("drained: FAILED nvlink.link_down")
    gate.told("; before it cluster: 0 of 6 nodes taken out within an hour, 1 may be; 0 out of use in all")
    shown = gate.folder / "shown"
    with shown.open("wb") as out:
        command = [str(gate.folder / "slurm" / "brake.sh"), "g2"]
        subprocess.run(command, env={"by_hand": "yes"}, stdout=out, check=True, cwd=gate.folder)
    assert shown.read_text("utf-8").splitlines() == [
        "cluster: 1 of 6 nodes taken out within an hour, 1 may be; 2 out of use in all",
        "pool a: 1 of 3 nodes taken out within an hour, 1 may be; 1 out of use in all",
        "rack r1: 1 of 2 nodes taken out within an hour, 1 may be; 1 out of use in all",
        "the brake holds: cluster: 1 of 6 nodes taken out within an hour, 1 may be",
    ]


def test_a_brake_that_holds_is_said_for_the_daemon_and_for_the_job_until_it_does_no_more(gate: Gate) -> None:
    gate.reset()
    gate.configure(shares(Shares(rack=0)))
    gate.health("failed", "g1")
    file = gate.folder / "run-g1" / "brake"
    line = (
        "not fit for jobs, but in use, since the brake holds (rack r1: 0 of 2 nodes taken out within an hour"
    )
    assert gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="7").wait(60) == 0
    gate.told("the job starts on an unfit node")
    assert held_by(str(file)) == "rack"
    assert file.stat().st_mode & 0o777 == 0o644
    assert file.read_text("utf-8").splitlines()[1].startswith(line)
    job = gate.submit("g1", "-o", f"{gate.folder}/printed-%j")
    gate.cluster.wait(lambda: gate.ran(job))
    assert (gate.folder / f"printed-{job}").read_text("utf-8").startswith(f"wirewatch: g1 is {line}")
    for more, health in (("", "failed"), (shares(Shares(rack=0)), "ok")):
        assert gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="7").wait(60) == 0
        assert held_by(str(file)) == "rack"
        gate.configure(more)
        gate.health(health, "g1")
        check(gate, "g1")
        assert held_by(str(file)) == ""
        gate.health("failed", "g1")
        gate.configure(shares(Shares(rack=0)))
        gate.cluster.tell("scontrol", "update", "NodeName=g1", "State=UNDRAIN")


def test_a_setting_of_before_is_a_number_for_an_hour_and_said_once(gate: Gate) -> None:
    gate.reset()
    gate.configure("MAX_DRAINED=1; STOCK=50%")
    drain(gate, "g6", REPLACED)
    gate.health("failed", "g1", "g4")
    check(gate, "g1")
    check(gate, "g4")
    assert gate.drained().keys() == {"g1", "g6"}
    gate.told("MAX_DRAINED=1 is taken for NEW_CLUSTER", 2)
    check(gate, "g1", "g4")
    gate.told("MAX_DRAINED=1 is taken for NEW_CLUSTER", 2)
    gate.configure("MAX_DRAINED=3")
    check(gate, "g4")
    assert gate.drained().keys() == {"g1", "g4", "g6"}
    gate.configure(f"MAX_DRAINED=0; {shares(Shares())}")
    gate.health("failed", "g3")
    check(gate, "g3")
    assert gate.drained().keys() == {"g1", "g3", "g4", "g6"}


def test_without_a_topology_there_are_no_racks_and_nodes_are_drained(gate: Gate) -> None:
    """As of a version that calls it an error; where nothing is said of a topology, nobody is drained."""
    gate.reset()
    told = gate.folder / "told"
    told.mkdir()
    gate.configure(f"{shares(Shares(rack=0))}; PATH={told}:$PATH")
    gate.health("failed", "g1")
    for words, out in (
        ("Unable to contact the controller", set()),
        ("No topology information available", {"g1"}),
    ):
        script = (
            f'#!/bin/sh\n[ "$2" != show ] || {{ echo "{words}"; exit 1; }}\nexec {tool("scontrol")} "$@"\n'
        )
        (told / "scontrol").write_text(script, "ascii")
        (told / "scontrol").chmod(0o755)
        check(gate, "g1")
        assert gate.drained().keys() == out
    gate.told("Slurm does not say where this node is in its topology: exit status 1: Unable", 1)
