"""The drift component over the recorded node: what is given away or virtual is no loss."""

import pytest

from tests.node.verdict.drift.readings import changes
from tests.support import Node
from wirewatch.core.topology import Topology
from wirewatch.core.types import Failed, Health, OperatorNote
from wirewatch.hw.overlay import AnswerChange, load_overlay
from wirewatch.verdict.drift.baseline import BASELINE, Baseline
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.component import (
    BaselineInMemory,
    DriftContext,
    DriftMemory,
    DriftOptions,
    drift_component,
    keep,
)
from wirewatch.verdict.drift.watch import DriftPolicy, accept_one, name_of

DEMO = "demo-dgx-h200"
PHYSFN = "/sys/bus/pci/devices/0000:29:00.0/physfn"


def learned(overlay: str = "") -> Node:
    """A node that has learned its topology at the start; the fault begins later."""
    node = Node(DEMO, load_overlay(overlay).changes if overlay else ())
    node.poll("drift", times=4, every=1.0)
    state = node.state.components["drift"].memory
    assert isinstance(state, DriftMemory)
    assert state.baseline is not None
    return node


def rules(node: Node) -> dict[str, Health]:
    return {f.rule: f.health for f in node.state.components["drift"].findings}


def test_nothing_is_different_at_first() -> None:
    node = learned()
    assert rules(node) == {}
    assert set(node.series("topology_drift")) == {0}
    assert node.series("topology_baseline_timestamp_seconds")[0] > 0


@pytest.mark.parametrize(
    ("overlay", "rule"),
    [("ib-device-gone", "topology.nic_lost"), ("nvlink-link-down", "topology.nvlink_lost")],
)
def test_what_is_lost_is_reported_at_the_second_reading(overlay: str, rule: str) -> None:
    node = learned(overlay)
    node.clock.seconds = 40.0
    node.poll("drift", every=1.0)
    assert rules(node) == {}
    node.poll("drift", every=1.0)
    assert rules(node) == {rule: Health.FAILED}


def test_a_daemon_that_starts_again_looks_twice_at_once() -> None:
    """What was FAILED when it ended is not ready for the five minutes until the second reading."""
    kept = BaselineInMemory()
    state = learned().state.components["drift"].memory
    assert isinstance(state, DriftMemory)
    assert state.baseline is not None
    assert kept.put(state.baseline, None)
    node = Node(DEMO, load_overlay("nvlink-link-down").changes)
    node.clock.seconds = 40.0
    node.collectors["drift"] = drift_component(DriftOptions(), DriftPolicy(), DriftContext(kept))
    node.poll("drift")
    assert rules(node) == {"topology.nvlink_lost": Health.FAILED}


def test_what_was_accepted_and_is_over_is_reported_when_it_happens_again() -> None:
    kept, down = BaselineInMemory(), AnswerChange("nvml", "gpu2/Field(165,7)", "set", 0)
    node = Node(DEMO)
    node.collectors["drift"] = drift_component(DriftOptions(), DriftPolicy(), DriftContext(kept))
    node.poll("drift", times=4, every=1.0)
    assert kept.baseline is not None
    node.changes.append(down)
    node.poll("drift", times=2, every=1.0)
    state = node.state.components["drift"].memory
    assert isinstance(state, DriftMemory)
    baseline = accept_one(
        kept.baseline, state.watch, name_of(changes(state.watch)[0]), OperatorNote("eve", "meant", 1e9)
    )
    assert isinstance(baseline, Baseline)
    assert kept.put(baseline, kept.baseline)
    node.poll("drift", times=3, every=1.0)
    assert (rules(node), kept.baseline) == ({}, baseline)
    node.changes.clear()
    node.poll("drift", times=3, every=1.0)
    assert kept.baseline.accepted == ()
    node.changes.append(down)
    node.poll("drift", times=2, every=1.0)
    assert rules(node) == {"topology.nvlink_lost": Health.FAILED}


def test_a_nic_that_a_pod_was_given_is_not_lost() -> None:
    node = learned("nic-moved")
    node.clock.seconds = 40.0
    node.poll("drift", times=3, every=1.0)
    assert rules(node) == {}
    assert set(node.series("topology_drift")) == {0}


@pytest.mark.parametrize(
    ("overlay", "found"), [("nic-moved", {}), ("ib-device-gone", {"topology.shape": Health.FAILED})]
)
def test_a_product_s_baseline_misses_no_nic_that_a_pod_was_given(
    overlay: str, found: dict[str, Health]
) -> None:
    whole = Node(DEMO)
    whole.poll("topology")
    topology = whole.state.components["topology"].facts
    assert isinstance(topology, Topology)
    around = DriftContext(given=graph_of(topology))
    node = Node(DEMO, load_overlay(overlay).changes)
    node.collectors["drift"] = drift_component(DriftOptions(), DriftPolicy(), around)
    node.poll("drift")
    assert rules(node) == {}
    node.clock.seconds = 40.0
    node.poll("drift")
    assert rules(node) == found


def test_a_virtual_function_is_no_part() -> None:
    node = Node(DEMO)
    node.changes.append(AnswerChange("sysfs", f"link {PHYSFN}", "set", "/sys/bus/pci/devices/0000:29:00.1"))
    node.poll("drift", times=4, every=1.0)
    state = node.state.components["drift"].memory
    assert isinstance(state, DriftMemory)
    assert state.watch.graph is not None
    assert len(state.watch.graph.nics) == 9
    assert all(nic.paths for nic in state.watch.graph.nics)


def test_a_baseline_of_another_node_is_dropped_and_said() -> None:
    baseline = learned_baseline()
    kept = BaselineInMemory(baseline)
    keep(kept, DriftMemory(read=baseline))
    assert (kept.baseline, kept.trouble) == (baseline, "")
    keep(kept, DriftMemory(read=baseline, foreign="of another node"))
    assert (kept.baseline, kept.trouble) == (None, "of another node")


def test_a_baseline_of_another_node_is_said_at_once_and_nothing_is_compared_with_it() -> None:
    kept = BaselineInMemory(learned_baseline())
    node = Node(DEMO, (AnswerChange("nvml", "gpu2/Field(165,7)", "set", 0),))
    around = DriftContext(kept, foreign=lambda _baseline, _graph: "of another node")
    node.collectors["drift"] = drift_component(DriftOptions(), DriftPolicy(), around)
    for _ in range(2):
        node.poll("drift")
        (finding,) = node.state.components["drift"].findings
        assert (finding.rule, finding.health, finding.evidence) == (
            BASELINE, Health.UNKNOWN, "of another node",
        )  # fmt: skip
    assert kept.baseline is None


def test_another_baseline_than_the_one_that_holds_is_not_replaced() -> None:
    one, other = learned_baseline(), learned_baseline()
    kept = BaselineInMemory(one)
    assert not kept.put(other, None)
    kept.reject(other, "of another node")
    assert (kept.baseline, kept.trouble) == (one, "")


def test_a_baseline_that_holds_is_not_put_again() -> None:
    baseline = learned_baseline()
    kept = BaselineInMemory(baseline, "a put ends this")
    keep(kept, DriftMemory(baseline=baseline, read=baseline))
    assert kept.trouble == "a put ends this"


def test_the_first_reading_counts_once_while_there_is_no_baseline() -> None:
    node = Node(DEMO)
    node.poll("drift")
    state = node.state.components["drift"].memory
    assert isinstance(state, DriftMemory)
    assert (state.watch.same, state.baseline) == (1, None)


def test_a_reading_without_the_driver_says_why_it_failed() -> None:
    node = Node(DEMO)
    node.change("Count()", "code", 12)
    node.poll("drift")
    outcome = node.state.components["drift"].outcome
    assert isinstance(outcome, Failed)
    assert "libnvidia-ml.so.1 not found" in str(outcome.absent)


def test_what_cannot_be_read_of_a_baseline_is_said_until_another_is_learned() -> None:
    node, kept = Node(DEMO), BaselineInMemory(None, "topology.json: not JSON")
    node.collectors["drift"] = drift_component(DriftOptions(), DriftPolicy(), DriftContext(kept))
    node.poll("drift")
    (finding,) = node.state.components["drift"].findings
    assert (finding.rule, finding.health) == (BASELINE, Health.UNKNOWN)
    assert finding.evidence == "topology.json: not JSON"
    for found in ({BASELINE: Health.UNKNOWN}, {}, {}):
        node.poll("drift", every=1.0)
        assert rules(node) == found
    assert kept.trouble == ""


def learned_baseline() -> Baseline:
    state = learned().state.components["drift"].memory
    assert isinstance(state, DriftMemory)
    assert state.baseline is not None
    return state.baseline
