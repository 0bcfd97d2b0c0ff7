"""GPUs by name, and those that go missing."""

from tests.support import Node
from wirewatch.core.types import Expect, Health
from wirewatch.verdict.node import judge_node

LOST, TIMEOUT = 15, 10


def test_every_gpu_is_named_with_its_place() -> None:
    node = Node()
    node.poll("inventory", times=3)
    assert node.findings() == ()
    assert len(node.series("gpu_info")) == 8
    assert node.series("gpu_info", gpu="3", pci="0000:00:09.0", name="NVIDIA H200") == [1]
    assert node.series("node_info", gpus="8", product="NVIDIA H200", driver="580.159.04") == [1]


def test_a_lost_gpu_is_unknown_at_first_sight_and_failed_when_it_stays_lost() -> None:
    node = Node()
    node.poll("inventory")
    node.change("gpu5/*", "code", LOST)
    node.poll("inventory")
    assert node.rules() == {("inventory.blind", "5", "", Health.UNKNOWN)}
    node.poll("inventory")
    (finding,) = node.findings()
    assert (finding.rule, finding.health) == ("gpu.lost", Health.FAILED)
    assert finding.subject.uuid.endswith("000000000005")
    assert "fallen off the bus" in finding.evidence
    assert len(node.series("gpu_info")) == 7


def test_all_collectors_keep_the_other_gpus_when_one_is_lost() -> None:
    node = Node()
    node.poll(times=2)
    before = {name: len(c.samples) for name, c in node.state.components.items()}
    node.change("gpu5/*", "code", LOST)
    node.poll(times=2)
    assert node.health() is Health.FAILED
    assert node.findings()[0].rule == "gpu.lost"
    for name, component in node.state.components.items():
        per_gpu = [s for s in component.samples if "uuid" in s.metric.labels]
        assert len(component.samples) >= before[name] * 7 // 8, name
        assert not [s for s in per_gpu if s.labels[0] == "5"], name


def test_a_gpu_that_came_back_is_healthy_again() -> None:
    node = Node()
    node.poll()
    lost = node.change("gpu5/*", "code", LOST)
    node.poll(times=3)
    node.undo(lost)
    node.poll()
    assert node.findings() == ()
    assert node.health() is Health.OK


def test_a_gpu_that_is_not_enumerated_any_more_is_lost_by_name() -> None:
    node = Node()
    node.poll(times=2)
    node.change("Count()", "set", 7)
    node.poll(times=2)
    assert node.health() is Health.FAILED
    assert ("gpu.lost", "7", "", Health.FAILED) in node.rules()


def test_a_time_out_is_not_a_loss() -> None:
    node = Node()
    node.poll("inventory")
    node.change("gpu5/*", "code", TIMEOUT)
    node.poll("inventory", times=5)
    assert node.rules() == {("inventory.blind", "5", "", Health.UNKNOWN)}


def test_fewer_gpus_than_the_operator_expects_are_failed() -> None:
    node = Node(expect=Expect(gpus=8))
    node.change("Count()", "set", 7)
    node.poll("inventory")
    assert node.rules() == {("gpu.missing", "", "", Health.UNKNOWN)}
    node.poll("inventory")
    assert node.rules() == {("gpu.missing", "", "", Health.FAILED)}
    assert node.findings()[0].evidence == "7 of 8 expected GPUs answer"


def test_a_node_without_gpus_is_unknown_and_not_ok() -> None:
    node = Node()
    node.change("Count()", "set", 0)
    node.poll(times=3)
    assert node.findings() == ()
    assert node.health() is Health.UNKNOWN


def test_a_node_whose_driver_is_gone_is_unknown_and_every_collector_that_needs_it_says_why() -> None:
    node = Node()
    node.poll()
    node.change("*", "code", 9)
    node.poll(times=2)
    assert node.health() is Health.UNKNOWN
    verdict = judge_node(node.state)
    # XIDs have a second source, which fails for a reason of its own.
    assert {one.finding.rule for one in verdict.standings} == {"inventory.blind", "xid.blind"}
    found = [one.finding for one in verdict.every]
    rules = {(f.rule, f.subject.gpu) for f in found}
    others = {"infiniband", "jobs", "pairs"}
    assert rules == {(f"{name}.blind", "") for name in node.collectors if name not in others}
    assert all("driver is not loaded" in f.evidence for f in found)
    assert not any(c.samples for c in node.state.components.values())


def test_a_gpu_that_is_lost_before_it_told_its_name_is_known_by_its_index_until_it_does() -> None:
    node = Node()
    lost = node.change("gpu5/*", "code", LOST)
    node.poll(times=2)
    assert ("gpu.lost", "5", "", Health.FAILED) in node.rules()
    node.undo(lost)
    node.poll(times=2)
    assert node.findings() == ()
    assert node.health() is Health.OK
