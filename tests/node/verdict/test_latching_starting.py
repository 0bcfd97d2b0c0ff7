"""What may still be starting, over restarts and boots: it is not remembered, and repairs nothing."""

from pathlib import Path

from tests.node.verdict.recordednode import RecordedNode
from wirewatch.core.types import Health
from wirewatch.verdict.ledger import Stage

UNKNOWN, FAILED = Health.UNKNOWN, Health.FAILED
REGISTERING = {"clusterUuid": "", "status": 0, "cliqueId": 0, "state": 2, "healthMask": 0, "healthSummary": 0}
STATE = "fabric.state"


def recorded(folder: Path) -> RecordedNode:
    return RecordedNode(folder, only=("nvlink",))


def registers(node: RecordedNode) -> None:
    node.change("gpu1/GpuFabricInfoV()", "set", REGISTERING)


def test_slow_boots_within_a_week_leave_nothing_behind(tmp_path: Path) -> None:
    """At the third one it latched before."""
    node = recorded(tmp_path)
    for number in range(4):
        node.boot(f"boot-{number}")
        registers(node)
        assert node.poll(times=6).health is UNKNOWN
        node.repair()
        assert node.poll(times=4).health is Health.OK
        assert node.ledger.entries == {}


def test_a_restart_of_the_agent_does_not_renew_a_grace_that_was_spent(tmp_path: Path) -> None:
    node = recorded(tmp_path)
    registers(node)
    assert node.poll(times=25).health is FAILED
    for _ in range(3):
        node.restart()
        assert node.poll(times=5).health is FAILED
    node.repair()
    assert node.poll(times=10).health is Health.DEGRADED
    assert node.stages() == {STATE: Stage.PROBATION}


def test_a_boot_after_a_real_failure_neither_repairs_nor_repeats_it(tmp_path: Path) -> None:
    node = recorded(tmp_path)
    registers(node)
    assert node.poll(times=25).health is FAILED
    node.repair()
    node.boot("next")
    registers(node)
    assert node.poll(times=5).health is FAILED
    node.repair()
    node.change("BootId()", "set", "next", port="host")
    node.poll(times=5)
    (entry,) = node.ledger.entries.values()
    assert (entry.stage, entry.times) == (Stage.PROBATION, 1)
    node.boot("third")
    registers(node)
    node.poll(times=5)
    (entry,) = node.ledger.entries.values()
    assert (node.health, entry.stage, entry.times) == (UNKNOWN, Stage.PROBATION, 1)


def test_what_is_latched_stays_so_while_it_may_be_starting(tmp_path: Path) -> None:
    node = recorded(tmp_path)
    for _ in range(3):
        registers(node)
        node.poll(times=25)
        node.repair()
        node.poll(times=10)
    assert node.stages() == {STATE: Stage.LATCHED}
    node.restart()
    registers(node)
    assert node.poll(times=3).health is FAILED
