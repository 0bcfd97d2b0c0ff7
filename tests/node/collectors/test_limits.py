"""Default limits of the collectors from both sides, and labels that must not be swapped."""

import pytest

from tests.node.collectors.drawn import PCI, Files, Gpus, Watched
from tests.rows import each
from tests.support import Node
from wirewatch.collectors.nvlink.judge import error_limit
from wirewatch.collectors.nvlink.model import DEFAULT_LIMITS, NvlinkPolicy
from wirewatch.core.nvml import BURST
from wirewatch.core.ports import NvmlCost, ProcessUse
from wirewatch.core.types import Absent, ErrorLimit, Expect, Health, Why
from wirewatch.jobs.bursts.model import BurstOptions, BurstPolicy
from wirewatch.jobs.lockstep.model import LockstepPolicy

DEGRADED, UNKNOWN, FAILED = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
DAY = 86400.0
GPU = "0000:03:00.0"
CONGESTION = {
    "wait": "counters/port_xmit_wait",
    "ecn_marked": "hw_counters/np_ecn_marked_roce_packets",
    "cnp_sent": "hw_counters/np_cnp_sent",
    "cnp_handled": "hw_counters/rp_cnp_handled",
    "out_of_sequence": "hw_counters/out_of_sequence",
    "adaptive_retransmits": "hw_counters/roce_adp_retrans",
}


# The GPU itself


@pytest.mark.parametrize(("share", "told"), [(0.08, []), (0.12, ["hw_thermal_slowdown"])])
def test_throttling_is_reported_from_a_tenth_of_the_time(share: float, told: list[str]) -> None:
    node = Node()
    node.change("gpu1/Field(270)", "ramp", share * 1e9)
    node.poll("gpu", times=5)
    assert [finding.subject.device for finding in node.findings()] == told


def test_an_uncorrected_error_is_reported_for_a_day() -> None:
    node = Node()
    node.change("gpu3/MemoryErrorCounter(1,0,2)", "set", 2)
    node.poll("gpu", times=23, every=3600.0)
    assert node.rules() == {("gpu.ecc_uncorrected", "3", "", DEGRADED)}


def test_a_row_that_waits_for_a_reset_and_one_that_failed_have_each_its_own_series() -> None:
    node = Node()
    node.change("gpu3/RemappedRows()", "set", [5, 2, 1, 0])
    node.change("gpu4/RemappedRows()", "set", [0, 9, 0, 1])
    node.poll("gpu")
    assert [node.series("row_remap_pending", gpu=gpu) for gpu in ("3", "4")] == [[1], [0]]
    assert [node.series("row_remap_failed", gpu=gpu) for gpu in ("3", "4")] == [[0], [1]]
    assert node.series("rows_remapped", gpu="3", kind="corrected") == [5]
    assert node.series("rows_remapped", gpu="3", kind="uncorrected") == [2]


def test_a_gpu_whose_throttling_cannot_be_read_is_unknown() -> None:
    node = Node()
    node.change("gpu2/CurrentClocksEventReasons()", "code", 10)
    node.poll("gpu")
    assert node.rules() == {("gpu.blind", "2", "", UNKNOWN)}


# PCIe


def errors(**counts: int) -> Watched:
    files = Files()
    aer(files, **counts)
    calls = ("CurrPcieLinkGeneration()", "MaxPcieLinkGeneration()", "CurrPcieLinkWidth()")
    table = dict(zip(calls, (5, 5, 16), strict=True)) | {"MaxPcieLinkWidth()": 16, "PcieReplayCounter()": 0}
    return Watched("pcie", files, Gpus((GPU,), {("GPU-0", call): value for call, value in table.items()}))


def aer(files: Files, correctable: int = 0, nonfatal: int = 0, fatal: int = 0) -> None:
    for name, count in (("correctable", correctable), ("nonfatal", nonfatal), ("fatal", fatal)):
        files.texts[f"{PCI}/{GPU}/aer_dev_{name}"] = f"DLP {count}\nTOTAL_ERR_X {count}"


@pytest.mark.parametrize(
    ("severity", "words"), [("correctable", ""), ("nonfatal", "1 nonfatal"), ("fatal", "1 fatal")]
)
def test_each_severity_of_pcie_errors_is_read_from_its_own_file_and_corrected_ones_are_none(
    severity: str, words: str
) -> None:
    node = errors()
    assert node.poll() == ()
    aer(node.files, **{severity: 1})
    found = node.poll()
    assert [finding.evidence for finding in found] == ([f"{words} PCIe errors within a day"] if words else [])
    told = {name: node.series("pcie_errors_total", severity=name) for name in ("nonfatal", "fatal")}
    assert told == {name: [float(name == severity)] for name in ("nonfatal", "fatal")}


def test_pcie_errors_that_a_late_reading_shows_are_reported_with_the_time_that_passed() -> None:
    node = errors()
    node.poll(every=3 * DAY)
    aer(node.files, fatal=2)
    assert [one.evidence for one in node.poll()] == ["2 fatal PCIe errors in 3 days"]


@pytest.mark.parametrize(
    ("count", "told"), [(9_999, []), (20_000, ["20000 replays in 6 h, limit 31 a minute"])]
)
def test_replays_after_a_gap_are_judged_by_the_time_that_passed(count: int, told: list[str]) -> None:
    node = errors()
    node.poll(every=6 * 3600.0)
    node.policy(confirm=1)
    node.gpus.table["GPU-0", "PcieReplayCounter()"] = count
    assert [one.evidence.partition(";")[0] for one in node.poll()] == told


# Rates of links after a gap


@pytest.mark.parametrize(
    ("count", "told"), [(600, []), (36_000, ["errors: 36000 in 6 h, 36000 since reset"])]
)
def test_nvlink_errors_after_a_gap_are_judged_by_the_time_that_passed(count: int, told: list[str]) -> None:
    node = Node()
    node.policy("nvlink", error_limits={"crc": ErrorLimit(100, 60.0)})
    node.poll("nvlink", every=6 * 3600.0)
    node.change("gpu2/Field(163,all)", "set", count)
    node.poll("nvlink")
    assert [one.evidence.partition(";")[0] for one in node.findings()] == told


@pytest.mark.parametrize(
    ("count", "told"), [(600, []), (36_000, ["errors: 36000 in 6 h, 36000 since reset"])]
)
def test_symbol_errors_after_a_gap_are_judged_by_the_time_that_passed(count: int, told: list[str]) -> None:
    node = port()
    node.policy(error_limits={"symbol_errors": ErrorLimit(100, 60.0)})
    node.poll(every=6 * 3600.0)
    node.files.set("mlx5_0", counters__symbol_error=str(count))
    assert [one.evidence for one in node.poll()] == told


def test_memory_errors_of_a_driver_that_was_loaded_long_ago_are_not_said_to_be_of_a_day() -> None:
    node = Node()
    node.change("gpu3/MemoryErrorCounter(1,0,2)", "set", 2)
    node.clock.seconds = 10 * DAY - node.clock.mono()
    node.poll("gpu")
    (finding,) = node.findings()
    assert finding.evidence == "2 uncorrected dram errors in 10 days, 2 since driver load"


# InfiniBand


def port(**expect: int) -> Watched:
    files = Files()
    files.nic("mlx5_0", "0000:10:00.0", "pci0000:00/0000:00:01.0")
    return Watched("infiniband", files, expect=Expect(**expect))  # type: ignore[arg-type]


@pytest.mark.parametrize(("rate", "slow"), [("362", False), ("358", True), ("320", True), ("300", True)])
def test_a_port_is_slow_below_nine_tenths_of_its_rate(rate: str, slow: bool) -> None:  # noqa: FBT001
    node = port()
    node.poll()
    node.files.set("mlx5_0", rate=f"{rate} Gb/sec (4X NDR)")
    node.poll(3)
    assert node.rules() == ({("infiniband.port_slow", "mlx5_0 port 1"): FAILED} if slow else {})


@each(
    ("counter", "bits"),
    [
        ("symbol_error", 16), ("link_error_recovery", 8), ("link_downed", 8), ("port_rcv_errors", 16),
        ("port_xmit_discards", 16), ("local_link_integrity_errors", 4),
        ("excessive_buffer_overrun_errors", 4),
    ],
)  # fmt: skip
def test_each_counter_is_blind_at_its_own_ceiling_and_not_below(counter: str, bits: int) -> None:
    node = port()
    node.poll()
    for value, stuck in (((1 << bits) - 2, 0), ((1 << bits) - 1, 1), (1 << bits, 0)):
        node.files.set("mlx5_0", **{f"counters__{counter}": str(value)})
        node.poll()
        assert node.series("rdma_port_counters_saturated") == [stuck]
        assert (("infiniband.counter_saturated", "mlx5_0 port 1") in node.rules()) is bool(stuck)


@pytest.mark.parametrize(("apart", "told"), [(30.0, True), (70.0, False)])
def test_receive_errors_count_within_a_minute(apart: float, told: bool) -> None:  # noqa: FBT001
    node = port()
    node.poll(every=apart)
    for count in (300, 600):
        node.files.set("mlx5_0", counters__port_rcv_errors=str(count))
        node.poll(every=apart)
    assert (("infiniband.receive_errors", "mlx5_0 port 1") in node.rules()) is told


def test_each_sign_of_a_full_network_is_read_from_its_own_file() -> None:
    node = port()
    for number, path in enumerate(CONGESTION.values()):
        node.files.set("mlx5_0", **{path.replace("/", "__"): str(1000 + number)})
    assert node.poll(2) == ()
    assert [node.series("rdma_port_congestion_total", kind=kind) for kind in CONGESTION] == [
        [1000.0 + number] for number in range(len(CONGESTION))
    ]


def test_flaps_are_counted_for_half_a_day() -> None:
    node = port()
    node.poll()
    for _ in range(3):
        node.files.set("mlx5_0", state="1: DOWN", phys_state="2: Polling")
        node.poll(2)
        node.files.set("mlx5_0", state="4: ACTIVE", phys_state="5: LinkUp")
        node.poll()
        node.clock.seconds += 5 * 3600.0
    assert node.rules() == {("infiniband.port_flapping", "mlx5_0 port 1"): FAILED}


# NVLink


@pytest.mark.parametrize(("share", "slow"), [(0.92, False), (0.88, True), (0.8, True)])
def test_a_link_is_slow_below_nine_tenths_of_its_rate(share: float, slow: bool) -> None:  # noqa: FBT001
    node = Node()
    node.change("gpu2/Field(164,7)", "set", round(26_562 * share))
    node.poll("nvlink", times=3)
    assert node.rules() == ({("nvlink.link_slow", "2", "7", FAILED)} if slow else set())


@pytest.mark.parametrize(
    ("number", "name", "down"),
    [(0, "inactive", True), (1, "active", False), (2, "sleep", False), (3, "traffic_disabled", True)],
)
def test_each_state_of_a_link_has_its_own_label(number: int, name: str, down: bool) -> None:  # noqa: FBT001
    node = Node()
    node.change("gpu2/Field(165,7)", "set", number)
    node.poll("nvlink")
    counts = dict.fromkeys(("inactive", "active", "sleep", "traffic_disabled"), 0.0) | {"active": 17.0}
    counts[name] += 1
    assert {one: node.series("nvlink_links", gpu="2", state=one) for one in counts} == {
        one: [count] for one, count in counts.items()
    }
    found = [finding.evidence.partition(";")[0] for finding in node.findings()]
    assert found == ([name] if down else [])


def test_limits_of_nvlink_errors() -> None:
    """The table once more, on purpose: a limit is changed in both places or by mistake."""
    hour, minute = 3600.0, 60.0
    often = {"crc": (6000, minute), "crc_data": (6000, minute)}
    once = dict.fromkeys(
        (
            "replay", "recovery", "ecc_data", "recovery_successful", "recovery_failed", "malformed",
            "buffer_overrun", "local_integrity",
        ),
        (1, hour),
    )  # fmt: skip
    told = {kind: (limit.events, limit.seconds) for kind, limit in DEFAULT_LIMITS.items()}
    assert told == often | once
    assert error_limit(NvlinkPolicy(), "symbol") is None


# Who is lost, and who only did not answer


@pytest.mark.parametrize(
    ("absent", "rule"),
    [
        (Absent(Why.TIMEOUT, "the driver timed out", 10), "inventory.blind"),
        (Absent(Why.LOST, "NVML's process died"), "inventory.blind"),
        (Absent(Why.LOST, "fallen off the bus", 15), "gpu.lost"),
    ],
)
def test_a_gpu_is_lost_by_the_driver_s_word_alone(absent: Absent, rule: str) -> None:
    node = Watched("inventory", gpus=Gpus((GPU,)))
    asked = [("GPU-0", "UUID()"), ("GPU-0", "Serial()")]
    node.gpus.table |= dict.fromkeys(asked, "GPU-0")
    assert node.poll() == ()
    node.gpus.table |= dict.fromkeys(asked, absent)
    node.poll(3)
    assert {name for name, _ in node.rules()} == {rule}


def test_the_version_of_cuda_is_written_as_people_write_it() -> None:
    node = Watched("inventory", gpus=Gpus((GPU,)))
    node.gpus.table |= {("GPU-0", "UUID()"): "GPU-0", (None, "SystemGetCudaDriverVersion_v2()"): 13020}
    node.poll()
    assert node.component.memory.versions["cuda_driver"] == "13.2"


# The agent itself


class Stuck(Gpus):
    """An NVML port one of whose processes cannot die."""

    def cost(self) -> NvmlCost:
        return NvmlCost(None, 0.0, 1, 1)


def test_one_process_that_cannot_leave_the_driver_is_reported() -> None:
    node = Watched("agent", gpus=Stuck((GPU,)))
    node.poll()
    assert node.rules() == {("agent.nvml_stuck", "nvml"): UNKNOWN}
    assert node.series("agent_nvml_stuck_processes") == [1]
    assert Watched("agent", gpus=Gpus((GPU,))).poll() == ()


class Apart(Gpus):
    """An NVML port in a process of its own."""

    def cost(self) -> NvmlCost:
        return NvmlCost(4711, 1.5, 0, 0)


def test_the_process_that_talks_to_nvml_has_series_where_there_is_one() -> None:
    for gpus, roles in ((Apart((GPU,)), ["agent", "nvml"]), (Gpus((GPU,)), ["agent"])):
        node = Watched("agent", gpus=gpus)
        node.host.process = lambda pid: ProcessUse(1.0 if pid else 2.0, 1000)  # type: ignore[method-assign]
        node.poll()
        assert [
            s.labels[0] for s in node.component.samples if s.metric.name == "agent_cpu_seconds_total"
        ] == roles


# Bursts of a job


def test_the_figures_of_bursts_are_those_of_the_decision() -> None:
    """ADR 0052 has their reasons; one that moves here moves there."""
    policy = BurstPolicy()
    assert (policy.drop, policy.same_size, policy.sure) == (0.15, 0.2, 0.05)
    assert (policy.confirm, policy.looks, policy.references, policy.most_references) == (3, 4, 3, 20)
    # A probe is killed after 60 s: its processes are never taken for a job.
    assert policy.settle > 60.0
    # A read spins a core: 0.42 % of one, which leaves 50 ms a look for all the rest.
    assert int(BURST.args[0]) / 1000 / BurstOptions().interval < 0.0042


# A job in lockstep


def test_the_figures_of_a_job_in_lockstep_are_those_of_the_decision() -> None:
    """ADR 0013 has their reasons; one that moves here moves there."""
    policy = LockstepPolicy()
    assert (policy.gap, policy.least_gap, policy.shift) == (0.08, 0.03, 0.04)
    assert (policy.same_bytes, policy.same_time, policy.same_others) == (0.05, 0.03, 0.04)
    assert (policy.same_memory, policy.same_math, policy.math_from) == (0.06, 0.1, 0.1)
    assert (policy.confirm, policy.misses, policy.references) == (3, 2, 3)
    assert (policy.settle, policy.shortest, policy.longest, policy.together) == (30.0, 2.0, 60.0, 0.5)
