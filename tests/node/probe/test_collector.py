"""The probe's component over drawn nodes: when it runs, what it shows while it may not, what it is worth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from tests.node.collectors.drawn import Watched
from tests.node.probe.idle import DENIED, Idle
from tests.support import EPOCH
from wirewatch.catalogue import components
from wirewatch.core.ports import Order, Pod, SlurmJob
from wirewatch.core.types import Absent, Expect, Health, Why
from wirewatch.daemon.schedule import Job
from wirewatch.probe.collector import PROBE_NAME, probe_collector
from wirewatch.probe.model import ProbeOptions, ProbePolicy

HOUR, DAY = 3600.0, 86_400.0
MIG = [1, 1]


def waits(node: Idle) -> list[float]:
    """Seconds between the starts of probes so far."""
    at = [past.at for past in node.memory.past]
    return [b - a for a, b in pairwise(at)]


# --- when it runs


def test_the_first_probe_runs_when_all_was_quiet_for_two_minutes_and_then_every_ten() -> None:
    node = Idle(4)
    node.poll(4, every=30.0)
    assert (node.probes.ordered, node.reason()) == ([], "settling")
    node.probe()
    assert node.memory.past[0].at - EPOCH == 120.0
    node.probe(3)
    assert all(600.0 <= wait < 640.0 for wait in waits(node))
    assert node.reason() == ""
    assert (node.component.health, node.component.findings) == (Health.OK, ())
    order = node.probes.ordered[0]
    assert [gpu.index for gpu in order.gpus] == [0, 1, 2, 3]
    assert (order.by, order.forced, order.deadline) == ("daemon", False, 60.0)


def test_jitter_moves_the_next_probe_but_within_its_part() -> None:
    node = Idle(2, jitter=0.5)
    node.probe(12)
    found = waits(node)
    assert all(300.0 <= wait <= 940.0 for wait in found)
    assert max(found) - min(found) > 200.0


def test_a_process_that_comes_and_goes_begins_the_wait_again() -> None:
    node = Idle(2)
    node.poll(3, every=30.0)
    node.busy(1, 4711)
    node.poll(1, every=30.0)
    assert node.reason() == "busy"
    node.busy(1)
    node.poll(4, every=30.0)
    assert (node.probes.ordered, node.reason()) == ([], "settling")
    node.probe()
    assert node.memory.past[0].at - EPOCH == 240.0


@pytest.mark.parametrize("kind", ["pod", "job", "job of unknown GPUs"])
def test_what_was_given_away_is_not_touched(kind: str) -> None:
    node = Idle(2)
    if kind == "pod":
        node.pods.told = [Pod("default", "train", (("nvidia.com/gpu", "GPU-1"),))]
    else:
        node.jobs.told = [SlurmJob("7", "RUNNING", None if "unknown" in kind else (1,))]
    node.poll(20, every=30.0)
    assert (node.probes.ordered, node.reason()) == ([], "allocated")
    node.pods.told, node.jobs.told = [], []
    node.probe()
    assert node.component.findings == ()


@dataclass
class Counted:
    """Slurm that counts how often it is asked."""

    asked: int = 0

    def jobs(self) -> Sequence[SlurmJob] | Absent:
        self.asked += 1
        return []


def test_slurms_controller_is_asked_only_before_a_probe() -> None:
    node, slurm = Idle(2), Counted()
    node.hardware = replace(node.hardware, slurm=slurm)
    node.probe(3)
    assert slurm.asked == 3
    node.busy(0, 1)
    node.poll(100, every=60.0)
    assert slurm.asked == 3


def test_another_who_holds_the_lock_is_not_disturbed() -> None:
    node = Idle(2, settle=0.0)
    node.probes.holder = "pid 12 (wirewatch probe)"
    node.poll(3, every=30.0)
    assert (node.probes.ordered, node.reason()) == ([], "locked")
    assert node.memory.refusal is not None
    assert "pid 12" in node.memory.refusal.detail
    assert node.series("probe_skips_total", reason="locked") == [1.0]
    node.probes.holder = None
    node.probe()
    assert node.reason() == ""


def test_an_order_says_who_is_given_gpus_while_it_runs() -> None:
    node = Idle(2)
    told: list[str | None] = []

    def during(order: Order) -> None:
        told.append(order.allocations())
        node.pods.told = [Pod("default", "late", (("nvidia.com/gpu", "GPU-0"),))]
        told.append(order.allocations())

    node.during, node.outcome = during, "preempted"
    node.probe()
    assert told == [None, "pod:default/late was given GPUs: pod default/late"]
    assert (node.component.findings, node.series("probe_runs_total", result="preempted")) == ((), [1.0])


# --- while it may not


def test_busy_for_weeks_is_no_fault_and_only_the_age_grows() -> None:
    node = Idle(8)
    node.probe()
    (success,) = node.series("probe_last_success_timestamp_seconds")
    for gpu in range(8):
        node.busy(gpu, 100 + gpu)
    node.poll(3, every=600.0)
    assert node.series("probe_fresh") == [1.0]
    assert len(node.series("probe_busbw_ratio")) == 9
    node.poll(3 * 7 * 24 * 2, every=HOUR / 2)
    assert (node.component.findings, node.component.health) == ((), Health.OK)
    assert node.series("probe_last_success_timestamp_seconds") == [success]
    assert node.series("probe_fresh") == [0.0]
    assert node.series("probe_busbw_ratio") == node.series("peer_bandwidth_bytes_per_second") == []
    (skips,) = node.series("probe_skips_total", reason="busy")
    assert skips == pytest.approx(3 * 7 * 24 * 2 + 3, abs=2)
    for gpu in range(8):
        node.busy(gpu)
    node.probe()
    assert node.series("probe_fresh") == [1.0]
    assert node.series("probe_last_success_timestamp_seconds")[0] > success + 20 * DAY


def test_what_was_found_before_stays_while_the_node_is_busy() -> None:
    node = Idle(2)
    node.knobs = {"speed": 0.4}
    (first,) = node.probe()
    node.probe()
    node.busy(0, 1)
    node.poll(48, every=HOUR)
    assert node.healths() == {"probe.busbw": Health.FAILED}
    assert node.component.findings[0].since == first.since
    assert node.series("probe_busbw_ratio") == []
    assert node.component.applicable


def test_a_skip_counts_once_between_probes_however_often_it_is_looked() -> None:
    node = Idle(2)
    node.busy(0, 1)
    node.poll(60, every=10.0)
    assert node.series("probe_skips_total", reason="busy") == [1.0]
    node.poll(60, every=10.0)
    assert node.series("probe_skips_total", reason="busy") == [2.0]


@pytest.mark.parametrize("reason", ["few_gpus", "mig", "no_engine"])
def test_where_there_is_nothing_to_probe_it_takes_no_part(reason: str) -> None:
    node = Idle(1 if reason == "few_gpus" else 2)
    if reason == "mig":
        node.answer(1, "MigMode", MIG)
    if reason == "no_engine":
        node.probes.name = Absent(Why.MISSING, "neither is installed")
        node.busy(0, 1)
    node.poll(10, every=120.0)
    assert (node.reason(), node.probes.ordered) == (reason, [])
    assert (node.component.applicable, node.component.health) == (False, None)
    assert node.component.findings == ()


@pytest.mark.parametrize("call", ["MemoryInfo", "ComputeRunningProcesses", "MigMode", "ComputeMode"])
def test_what_cannot_be_read_shuts_the_gate_and_is_no_fault_of_the_wires(call: str) -> None:
    node = Idle(2)
    node.answer(1, call, DENIED)
    node.poll(20, every=60.0)
    assert (node.reason(), node.probes.ordered) == ("blind", [])
    assert (node.component.findings, node.component.applicable) == ((), True)


@pytest.mark.parametrize("port", ["pods", "jobs"])
def test_a_kubelet_or_slurm_that_does_not_answer_shuts_the_gate(port: str) -> None:
    node = Idle(2)
    getattr(node, port).told = DENIED
    node.poll(20, every=60.0)
    assert (node.reason(), node.probes.ordered) == ("blind", [])


def test_without_nvml_it_knows_nothing_and_forgets_nothing() -> None:
    node = Idle(2)
    node.knobs = {"speed": 0.4}
    node.probe(2)
    node.gpus.absent = Absent(Why.TIMEOUT, "no answer")
    node.poll(5, every=60.0)
    assert node.healths() == {"probe.busbw": Health.FAILED, "probe.blind": Health.UNKNOWN}
    assert node.component.samples == ()
    node.gpus.absent, node.knobs = None, {}
    node.probe()
    assert node.component.findings == ()


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
    made = probe_collector(ProbeOptions(), ProbePolicy(), Expect())
    step = Job(made, node.hardware, Expect()).run(made.start)
    assert step.applicable is False
