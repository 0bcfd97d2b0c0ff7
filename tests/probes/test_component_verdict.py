"""What the probe's component believes of a drawn node, probe after probe."""

from itertools import pairwise

import pytest

from tests.collectors.drawn import Watched
from tests.probes.idle import Idle
from wirewatch.core.types import Absent, Expect, Health, Why
from wirewatch.daemon.schedule import Job
from wirewatch.probe.component import PROBE_NAME, components, probe_component
from wirewatch.probe.model import ProbeOptions, ProbePolicy


def last_wait(node: Idle) -> float:
    """Seconds from the start of the last probe but one to the last."""
    return [b.at - a.at for a, b in pairwise(node.memory.past)][-1]


def test_one_slow_probe_is_degraded_and_looked_at_again_within_a_minute_or_so() -> None:
    node = Idle(8)
    node.probe()
    node.knobs = {"speed": 0.5}
    node.probe()
    assert node.healths() == {"probe.busbw": Health.DEGRADED}
    node.probe()
    assert node.healths() == {"probe.busbw": Health.FAILED}
    assert last_wait(node) < 100.0
    node.probe()
    assert last_wait(node) >= 600.0
    node.knobs = {}
    node.probe()
    assert (node.component.findings, node.component.health) == ((), Health.OK)


def test_wrong_sums_fail_at_once_and_a_fallback_names_wire_and_setting() -> None:
    node = Idle(2)
    node.knobs = {"wrong": 1}
    node.probe()
    assert node.healths() == {"probe.wrong_data": Health.FAILED}
    node.probes.environment = {"NCCL_P2P_DISABLE": "1"}
    node.knobs = {"transport": "SHM/direct/direct", "speed": 0.1}
    told = {finding.rule: finding.evidence for finding in node.probe()}
    assert "host memory" in told["probe.transport"]
    assert "NCCL_P2P_DISABLE=1" in told["probe.transport"]
    assert node.series("probe_path_info", transport="shm") == [1.0] * 3


@pytest.mark.parametrize("outcome", ["failed", "timeout", "garbage", "stuck", "out_of_memory"])
def test_probes_that_cannot_be_done_are_unknown_from_the_third_on(outcome: str) -> None:
    node = Idle(2)
    node.outcome = outcome  # type: ignore[assignment]
    found = [node.probe() and node.component.health for _ in range(5)]
    assert [health or Health.OK for health in found] == [Health.OK] * 2 + [Health.UNKNOWN] * 3
    node.outcome = "ok"
    node.probe()
    assert node.component.health is Health.OK


def test_gloo_needs_no_gpu_and_finds_nothing_of_any() -> None:
    node = Idle(0, engine="gloo", ranks=2)
    node.probes.name = "gloo"
    node.gpus.absent = Absent(Why.MISSING, "no NVML here", 12)
    node.poll(4, every=600.0)
    assert len(node.probes.ordered) == 4
    assert (node.component.findings, node.component.health) == ((), Health.OK)
    assert set(node.series("probe_expected_known")) == {0.0}
    assert node.series("probe_gpu_seconds_total") == [0.0]
    node.probes.name = Absent(Why.MISSING, "no torch")
    node.poll(2, every=600.0)
    assert (node.reason(), node.component.applicable) == ("no_engine", False)


def test_it_is_one_of_all_components_and_raises_for_nothing() -> None:
    assert [c.name for c in components()].count(PROBE_NAME) == 1
    node = Watched(PROBE_NAME)
    node.poll(2)
    assert (node.component.health, node.component.failures) == (None, 0)
    made = probe_component(ProbeOptions(), ProbePolicy(), Expect())
    step = Job(made, node.hardware, Expect()).run(made.start)
    assert step.applicable is False
