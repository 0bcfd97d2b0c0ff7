"""The GPU's own state: what is normal work, and what is a fault."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.collectors.drawn import Gpus, Watched
from tests.rows import each
from tests.support import Node
from wirewatch.collectors.gpu import THROTTLE_ACTIONS, GpuFacts, facts
from wirewatch.core.nvml import CLOCK_REASONS
from wirewatch.core.types import Absent, Health, Json, Ok, Why

BENIGN = ("gpu_idle", "applications_clocks", "sw_power_cap", "sync_boost", "display_clocks")


def test_a_healthy_node_has_no_finding() -> None:
    node = Node()
    node.poll("gpu")
    assert node.series("gpu_temperature_celsius", gpu="0", sensor="core") == [37]
    assert node.series("gpu_power_watts", gpu="0") == pytest.approx([78.251])
    assert node.series("gpu_recovery_action", action="none") == [1] * 8
    assert node.series("gpu_compute_processes") == [0] * 8
    node.poll("gpu", times=20)
    assert node.findings() == ()


@given(st.sets(st.sampled_from(BENIGN)))
def test_any_mix_of_normal_reasons_is_no_finding(names: set[str]) -> None:
    node = Node()
    node.change("gpu1/CurrentClocksEventReasons()", "set", sum(CLOCK_REASONS[n] for n in names))
    node.poll("gpu", times=4)
    assert node.findings() == ()
    active = {n for n in CLOCK_REASONS if node.series("clocks_event_active", gpu="1", reason=n) == [1]}
    assert active == names


@pytest.mark.parametrize("reason", sorted(THROTTLE_ACTIONS))
def test_a_fault_reason_that_stays_is_a_finding(reason: str) -> None:
    node = Node()
    node.change(
        "gpu1/CurrentClocksEventReasons()", "set", CLOCK_REASONS[reason] | CLOCK_REASONS["sw_power_cap"]
    )
    node.poll("gpu", times=2)
    assert node.findings() == ()
    node.poll("gpu")
    (finding,) = node.findings()
    assert (finding.rule, finding.subject.gpu, finding.subject.device) == ("gpu.throttle", "1", reason)
    assert finding.health is Health.DEGRADED
    assert reason in finding.evidence


def test_the_superset_reason_is_not_told_twice() -> None:
    node = Node()
    node.change("gpu1/CurrentClocksEventReasons()", "set", 0x8 | 0x40)
    node.poll("gpu", times=4)
    assert [f.subject.device for f in node.findings()] == ["hw_thermal_slowdown"]


def test_throttling_between_polls_is_seen_by_its_seconds() -> None:
    node = Node()
    node.change("gpu1/Field(270)", "ramp", 5e8)
    node.poll("gpu", times=4)
    assert [(f.rule, f.subject.device) for f in node.findings()] == [("gpu.throttle", "hw_thermal_slowdown")]
    (seconds,) = node.series("clocks_event_seconds_total", gpu="1", reason="hw_thermal_slowdown")
    assert seconds == pytest.approx(22.5)


@each(
    ("number", "name", "health"),
    [
        (1, "gpu reset", Health.FAILED),
        (2, "node reboot", Health.FAILED),
        (3, "drain p2p", Health.FAILED),
        (4, "drain and reset", Health.FAILED),
        (5, "recover imex domain", Health.DEGRADED),
        (42, "action 42", Health.UNKNOWN),
    ],
)
def test_a_recovery_action_is_believed_at_the_second_look(number: int, name: str, health: Health) -> None:
    node = Node()
    node.change("gpu6/Field(230)", "set", number)
    node.poll("gpu")
    assert node.rules() == {("gpu.recovery_action", "6", "", Health.DEGRADED)}
    node.poll("gpu")
    assert node.rules() == {("gpu.recovery_action", "6", "", health)}
    assert name in node.findings()[0].evidence


def test_uncorrected_errors_are_found_also_when_they_came_before_we_looked() -> None:
    node = Node()
    node.change("gpu3/MemoryErrorCounter(1,0,2)", "set", 2)
    node.poll("gpu")
    (finding,) = node.findings()
    assert (finding.rule, finding.subject.device) == ("gpu.ecc_uncorrected", "dram")
    assert node.series("ecc_errors_total", gpu="3", kind="uncorrected", location="dram") == [2]
    node.poll("gpu", times=25, every=3600.0)
    assert node.findings() == ()


def test_corrected_errors_are_counted_and_no_finding() -> None:
    node = Node()
    node.change("gpu3/MemoryErrorCounter(0,0,2)", "set", 2000)
    node.poll("gpu", times=3)
    assert node.findings() == ()
    assert node.series("ecc_errors_total", gpu="3", kind="corrected", location="dram") == [2000]


def test_row_remapping_pending_is_degraded_and_failed_is_failed() -> None:
    node = Node()
    node.change("gpu3/RemappedRows()", "set", [1, 2, 1, 0])
    node.change("gpu4/RemappedRows()", "set", [0, 9, 0, 1])
    node.poll("gpu")
    assert node.rules() == {
        ("gpu.row_remap_pending", "3", "", Health.DEGRADED),
        ("gpu.row_remap_failed", "4", "", Health.FAILED),
    }
    assert node.series("rows_remapped", gpu="4", kind="uncorrected") == [9]


def test_memory_errors_are_totals_only_where_locations_are_not_told() -> None:
    node = Node()
    node.change("gpu0/MemoryErrorCounter(*)", "code", 3)
    node.poll("gpu")
    assert node.series("ecc_errors_total", gpu="0", location="all") == [0, 0]
    assert node.series("ecc_errors_total", gpu="0", location="dram") == []
    assert node.series("ecc_errors_total", gpu="1", location="all") == []


def test_a_gpu_without_ecc_and_remapping_has_no_such_series_and_no_finding() -> None:
    node = Node()
    for question in (
        "MemoryErrorCounter(*)",
        "TotalEccErrors(*)",
        "RemappedRows()",
        "Field(230)",
        "Field(82)",
    ):
        node.change(f"gpu*/{question}", "code", 3)
    node.poll("gpu", times=3)
    assert node.findings() == ()
    for metric in ("ecc_errors_total", "rows_remapped", "gpu_recovery_action"):
        assert node.series(metric) == []


def test_nonsense_from_the_driver_is_malformed_and_never_a_number() -> None:
    node = Node()
    node.change("gpu2/Temperature(0)", "set", "hot")
    node.change("gpu2/RemappedRows()", "set", [1, 2])
    node.change("gpu2/ComputeRunningProcesses()", "set", 7)
    node.poll("gpu")
    assert node.rules() == {("gpu.blind", "2", "", Health.UNKNOWN)}
    assert node.series("gpu_temperature_celsius", gpu="2", sensor="core") == []
    assert node.series("gpu_compute_processes", gpu="2") == []


def test_a_recovery_action_is_degraded_at_first_sight_however_long_there_was_none() -> None:
    node = Node()
    node.poll("gpu", times=5)
    node.change("gpu3/Field(230)", "set", 1)
    node.poll("gpu")
    assert node.rules() == {("gpu.recovery_action", "3", "", Health.DEGRADED)}
    node.poll("gpu")
    assert node.rules() == {("gpu.recovery_action", "3", "", Health.FAILED)}


GPUS = ("0000:03:00.0", "0000:04:00.0")
WELL: dict[str, Json] = {
    "CurrentClocksEventReasons()": 0, "SupportedClocksEventReasons()": 0x1FF, "Temperature(0)": 40,
    "Field(230)": 0, "RemappedRows()": (0, 0, 0, 0), "PowerUsage()": 70_000, "UtilizationRates()": {"gpu": 5},
    "ComputeRunningProcesses()": [], "MemoryErrorCounter(0,0,2)": 0, "MemoryErrorCounter(1,0,2)": 0,
    "Field(270)": 0,
}  # fmt: skip
UNREAD = Absent(Why.TIMEOUT, "no answer", 10)


def watched() -> Watched:
    """Two GPUs of which all is well."""
    node = Watched("gpu", gpus=Gpus(GPUS))
    for gpu in ("GPU-0", "GPU-1"):
        node.gpus.table |= {(gpu, question): value for question, value in WELL.items()}
    return node


def answer(node: Watched, question: str, value: Json | Absent) -> None:
    node.gpus.table["GPU-1", question] = value


def test_totals_of_memory_errors_are_asked_for_at_every_poll_where_there_are_no_locations() -> None:
    node = Node(only=("gpu",))
    node.change("gpu0/MemoryErrorCounter(*)", "code", 3)
    for _ in range(3):
        node.poll()
        assert node.series("ecc_errors_total", gpu="0", location="all") == [0, 0]


def test_a_count_of_memory_errors_that_is_lost_for_a_poll_keeps_its_finding() -> None:
    node = watched()
    answer(node, "MemoryErrorCounter(1,0,2)", 1)
    node.poll()
    answer(node, "MemoryErrorCounter(1,0,2)", UNREAD)
    node.poll()
    assert node.rules() == {
        ("gpu.ecc_uncorrected", "GPU 1 dram"): Health.DEGRADED,
        ("gpu.blind", "GPU 1"): Health.UNKNOWN,
    }


@pytest.mark.parametrize(
    ("seconds", "active"),
    [
        ((0.0, None, 10.0), False),
        ((0.0, 10.0, 2.0), False),
        ((0.0, 1.4, 2.8), False),
        ((0.0, 1.6, 3.2), True),
    ],
    ids=["one is lost", "the driver was loaded again", "less than a tenth", "more than a tenth"],
)
def test_seconds_of_throttling_count_between_two_polls_that_have_them(
    seconds: tuple[float | None, ...],
    active: bool,  # noqa: FBT001
) -> None:
    node = watched()
    node.policy(confirm=1)
    for value in seconds:
        answer(node, "Field(270)", UNREAD if value is None else round(value * 1e9))
        node.poll(every=15.0)
    assert (("gpu.throttle", "GPU 1 hw_thermal_slowdown") in node.rules()) is active


def test_the_seconds_of_a_reason_are_in_its_evidence_where_the_driver_counts_them() -> None:
    node = watched()
    node.policy(confirm=1)
    answer(node, "CurrentClocksEventReasons()", CLOCK_REASONS["hw_thermal_slowdown"])
    answer(node, "Field(270)", 7_500_000_000)
    (finding,) = node.poll()
    assert finding.evidence.endswith("for 1 polls in a row, 7.5 s since the driver was loaded")
    answer(node, "CurrentClocksEventReasons()", CLOCK_REASONS["hw_slowdown"])
    (finding,) = node.poll()
    assert finding.evidence.endswith("for 1 polls in a row")


def test_a_recovery_action_that_was_not_offered_before_is_degraded_at_first_sight() -> None:
    node = watched()
    answer(node, "Field(230)", Absent(Why.UNSUPPORTED, "no", 3))
    node.poll(3)
    answer(node, "Field(230)", 1)
    node.gpus.number += 1
    node.poll()
    assert node.rules() == {("gpu.recovery_action", "GPU 1"): Health.DEGRADED}


def test_a_gpu_that_answers_nothing_is_blind_and_the_others_are_read() -> None:
    node = watched()
    for question in WELL:
        answer(node, question, UNREAD)
    node.poll()
    assert node.rules() == {("gpu.blind", "GPU 1"): Health.UNKNOWN}
    assert node.component.findings[0].evidence.endswith("no answer")
    assert node.series("gpu_power_watts") == [70.0]


def test_facts_are_of_gpus_that_have_a_name_and_were_read() -> None:
    node = watched()
    answer(node, "CurrentClocksEventReasons()", UNREAD)
    node.poll()
    known = node.component.facts
    assert isinstance(known, GpuFacts)
    assert known.well == {"GPU-0", "GPU-1"}
    assert known.now["GPU-0"].throttled == ()
    assert isinstance(known.now["GPU-1"].throttled, Absent)
    answer(node, "Field(230)", 2)
    answer(node, "CurrentClocksEventReasons()", CLOCK_REASONS["hw_power_brake"] | CLOCK_REASONS["gpu_idle"])
    node.poll()
    known = node.component.facts
    assert isinstance(known, GpuFacts)
    assert known.well == {"GPU-0"}
    assert known.now["GPU-1"].throttled == ("hw_power_brake",)
    assert isinstance(node.component.outcome, Ok)
    named, lost = node.component.outcome.value
    nameless = replace(named, gpu=replace(named.gpu, uuid=""))
    assert facts((nameless, replace(lost, value=UNREAD)), {}) == GpuFacts(frozenset())
