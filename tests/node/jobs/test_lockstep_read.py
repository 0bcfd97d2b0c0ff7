"""The collector `lockstep` over drawn GPUs: what it asks and when, what it exports and what it says."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.collectors.drawn import Gpus, Watched
from tests.node.jobs.lockstepjobs import EVERY, SECONDS, Row, measured
from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, Health, Json, Why
from wirewatch.core.words import MIB
from wirewatch.hw.nvml.protocol import absent_code
from wirewatch.jobs.lockstep import COLLECTOR
from wirewatch.jobs.lockstep.model import GpuWindow, LockstepMemory, WindowReason
from wirewatch.jobs.lockstep.read import BYTES, MATH, METRICS, RATIOS, SINCE, window_of

PROCESSES, MIG, OFFERS, CLOCK = "ComputeRunningProcesses()", "MigMode()", "GpmSupported()", "ClockInfo(1)"
NOT_SUPPORTED, NOT_FOUND, NO_FUNCTION, UNKNOWN = 3, 6, 13, 999


@dataclass
class Listening(Gpus):
    """GPUs that remember what they were asked."""

    asked: list[tuple[str | None, Question]] = field(default_factory=list)

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        self.asked += [(gpu, question) for question in questions]
        return super().ask(gpu, questions)

    def looks(self) -> int:
        """How many samples of GPM were taken."""
        return sum(question.call == "GpmSince" for _, question in self.asked)


def as_json(window: GpuWindow) -> Json:
    """A window as NVML tells it: per cent and MiB/s."""
    shares = {RATIOS["graphics"]: window.graphics, RATIOS["sm"]: window.sm, RATIOS["dram"]: window.dram}
    shares |= {number: window.math[unit] for unit, number in MATH.items()}
    metrics = {str(number): 100 * share for number, share in shares.items()}
    metrics |= {str(BYTES["received"]): window.received / MIB, str(BYTES["sent"]): window.sent / MIB}
    return {"seconds": window.seconds, "metrics": metrics}


class Machine:
    """A node of some GPUs with this collector over it."""

    def __init__(self, gpus: int = 2) -> None:
        self.gpus = Listening([f"0000:{5 + number:02x}:00.0" for number in range(gpus)])
        self.node = Watched("lockstep", gpus=self.gpus)
        for gpu in (f"GPU-{number}" for number in range(gpus)):
            self.set(gpu, PROCESSES, [])
            self.set(gpu, MIG, [0, 0])
            self.set(gpu, OFFERS, value=True)

    def set(self, gpu: str, question: str, value: Json | Absent) -> None:
        self.gpus.table[gpu, question] = value

    def run(self, row: Row) -> None:
        """A process computes on each GPU, which does this in every window."""
        for i, window in enumerate(row):
            assert isinstance(window.clock, int | float)
            self.set(f"GPU-{i}", PROCESSES, [{"pid": 100 + i, "usedGpuMemory": 1 << 30}])
            self.set(f"GPU-{i}", str(SINCE), as_json(window))
            self.set(f"GPU-{i}", CLOCK, window.clock / 1e6)

    def poll(self, times: int = 1) -> LockstepMemory:
        self.node.poll(times, EVERY)
        memory = self.node.component.memory
        assert isinstance(memory, LockstepMemory)
        assert self.node.component.findings == ()
        return memory


@pytest.fixture
def machine() -> Machine:
    return Machine()


HEALTHY = measured("memory_bound")[2]
SLOW = measured("memory_bound", "same", 0)[1]


def test_an_idle_node_is_watched_without_a_single_sample(machine: Machine) -> None:
    assert machine.poll(20).reason is WindowReason.NO_JOB
    assert machine.gpus.looks() == 0
    assert machine.node.component.health is Health.OK
    assert machine.node.component.samples == ()


def test_a_job_is_looked_at_from_its_second_turn_on_and_judged_once_its_processes_have_stayed(
    machine: Machine,
) -> None:
    machine.run(HEALTHY)
    assert machine.poll().reason is WindowReason.SETTLING
    assert machine.gpus.looks() == 0, "nothing says yet that it is the job of the next turn"
    assert machine.poll(3).reason is WindowReason.SETTLING
    assert machine.gpus.looks() == 6
    assert machine.node.component.samples == ()
    # 30 s after the first sight it has settled; the next turn is the first that is judged.
    assert machine.poll().reason is WindowReason.SETTLING
    for gpu in ("GPU-0", "GPU-1"):
        machine.set(gpu, str(SINCE), absent_code(NOT_FOUND))
    assert machine.poll().reason is WindowReason.WINDOW
    assert machine.node.series("straggler_hint") == [0, 0]
    assert machine.node.series("gpu_sm_busy_ratio") == []
    machine.run(HEALTHY)
    assert machine.poll().reason is WindowReason.NOBODY
    assert machine.node.series("gpu_sm_busy_ratio") == pytest.approx([one.sm for one in HEALTHY])


def test_a_hint_is_a_series_and_two_lines_in_the_log_and_never_a_finding(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wirewatch.jobs.lockstep")
    machine.run(HEALTHY)
    machine.poll(9)
    machine.run(SLOW)
    hint = machine.poll(3).hint
    assert hint is not None
    assert machine.node.series("straggler_hint", gpu="0", uuid="GPU-0") == [1]
    assert machine.node.series("straggler_hint", gpu="1", uuid="GPU-1") == [0]
    assert machine.node.component.health is Health.OK
    began = f"straggler hint, no verdict: {hint.text}"
    assert caplog.messages == [began]
    assert "SM busy 93.1% against 84.9% of the others, gap +9.6% (+0.3% in its first windows)" in began
    assert "use of memory 54.4% against 54.4%, NVLink 3.69 against 3.69 GB/s" in began
    machine.poll(2)
    machine.run(HEALTHY)
    assert machine.poll().hint is None
    assert machine.node.series("straggler_hint") == [0, 0]
    last = machine.node.component.memory.last_hint
    why = "all wait alike: GPU 0: SM busy 93.4% against 93.1%"
    assert caplog.messages[1:] == [f"straggler hint over after 5 windows ({why}): {last.text}"]


def test_asked_for_more_the_log_has_what_each_window_says(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "wirewatch.jobs.lockstep")
    machine.run(HEALTHY)
    machine.poll(7)
    assert caplog.messages[-1] == "all wait alike: GPU 0: SM busy 93.4% against 93.1%"
    assert caplog.messages[0] == "the job has just begun"
    assert len(caplog.messages) == 7


def test_a_gpu_that_is_lost_in_between_has_no_series_and_its_job_goes_on(machine: Machine) -> None:
    machine.run(SLOW)
    assert machine.poll(8).hint is not None
    kept = dict(machine.gpus.table)
    machine.gpus.table |= {key: absent_code(15) for key in kept if key[0] == "GPU-0"}
    memory = machine.poll()
    assert (memory.reason, memory.hint is not None) == (WindowReason.UNREAD, True)
    assert machine.node.series("straggler_hint") == [0]
    assert machine.node.series("gpu_sm_busy_ratio") == []
    machine.gpus.table = kept
    assert machine.poll().reason is WindowReason.NAMED
    assert machine.node.series("straggler_hint") == [1, 0]


@pytest.mark.parametrize("answer", [False, absent_code(NOT_SUPPORTED), absent_code(NO_FUNCTION)])
def test_gpus_before_hopper_are_not_applicable_and_that_is_said_once(
    machine: Machine, answer: Json | Absent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wirewatch.jobs.lockstep")
    for gpu in ("GPU-0", "GPU-1"):
        machine.set(gpu, OFFERS, answer)
    machine.run(SLOW)
    memory = machine.poll(9)
    why = "no GPU here offers what is read: no GPM: before Hopper, or a driver that does not know it"
    assert (memory.reason, memory.why) == (WindowReason.NOT_HERE, why)
    assert machine.node.component.applicable is False
    assert machine.node.component.health is None
    assert machine.node.component.samples == ()
    assert machine.gpus.looks() == 0
    assert caplog.messages == [f"lockstep has nothing to watch: {why}"]
    assert machine.gpus.asked.count(("GPU-0", Question("GpmSupported"))) == 1


def test_a_gpu_that_is_split_is_not_watched(machine: Machine) -> None:
    machine.set("GPU-0", MIG, [1, 1])
    machine.set("GPU-1", MIG, [1, 1])
    machine.run(SLOW)
    memory = machine.poll(9)
    assert memory.why == "no GPU here offers what is read: split by MIG"
    assert machine.node.component.applicable is False
    assert machine.gpus.looks() == 0


def test_whether_a_gpu_offers_it_is_not_known(machine: Machine) -> None:
    for gpu in ("GPU-0", "GPU-1"):
        machine.set(gpu, OFFERS, absent_code(UNKNOWN))
    assert machine.poll().why == "no GPU here offers what is read: malformed: unknown error (NVML error 999)"
    assert machine.node.component.applicable is False
    # It is asked again, unlike what is not supported.
    for gpu in ("GPU-0", "GPU-1"):
        machine.set(gpu, OFFERS, value=True)
    machine.poll()
    assert machine.node.component.applicable is True


def test_a_gpu_without_nvlink_is_reported_as_such(machine: Machine) -> None:
    machine.run(SLOW)
    for gpu in ("GPU-0", "GPU-1"):
        answer = machine.gpus.table[gpu, str(SINCE)]
        assert isinstance(answer, dict)
        metrics = {k: v for k, v in answer["metrics"].items() if k not in {"60", "61"}}
        machine.set(gpu, str(SINCE), {**answer, "metrics": metrics})
    assert machine.poll(9).reason is WindowReason.NOT_HERE
    assert "GPM does not report received here" in machine.node.component.memory.why


def test_nvml_that_cannot_be_asked_is_a_reading_that_failed(machine: Machine) -> None:
    machine.run(SLOW)
    assert machine.poll(8).hint is not None
    machine.gpus.absent = Absent(Why.MISSING, "the NVIDIA driver is not loaded")
    machine.node.poll(1, EVERY)
    assert machine.node.component.samples == ()
    assert machine.node.component.health is Health.UNKNOWN
    machine.gpus.absent = None
    assert machine.poll().hint is not None


def test_it_is_on_and_keeps_away_from_nvlink() -> None:
    assert COLLECTOR.options.enabled
    assert COLLECTOR.apart == ("nvlink", "probe")
    assert SINCE.args == (1, 2, 10, 5, 11, 12, 13, 60, 61)


def test_a_window_is_in_ratios_and_bytes() -> None:
    read = window_of(as_json(HEALTHY[0]), HEALTHY[0].clock)
    assert isinstance(read, GpuWindow)
    assert read.seconds == SECONDS
    assert (read.sm, read.sent, read.clock) == pytest.approx((HEALTHY[0].sm, HEALTHY[0].sent, 1.98e9))
    assert read.math == pytest.approx(HEALTHY[0].math)


def test_arithmetic_that_a_gpu_does_not_report_is_left_out() -> None:
    metrics = {str(number): 1 for name, number in METRICS.items() if name not in MATH}
    read = window_of({"seconds": 3, "metrics": metrics}, 1e9)
    assert isinstance(read, GpuWindow)
    assert read.math == {}
    assert read.received == MIB


JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["seconds", "metrics", "1", "2", "10", "60", "61", "pid"]), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_answer_is_a_window_or_a_reason(answer: Json) -> None:
    assert isinstance(window_of(answer, 1e9), GpuWindow | Absent)


@given(JSON, JSON, JSON)
def test_no_answer_breaks_the_collector(processes: Json, mode: Json, offers: Json) -> None:
    machine = Machine()
    machine.set("GPU-1", PROCESSES, processes)
    machine.set("GPU-1", MIG, mode)
    machine.set("GPU-1", OFFERS, offers)
    machine.poll(2)
    assert machine.node.component.succeeding


def test_a_gpu_that_is_not_of_the_job_is_not_looked_at() -> None:
    """A third GPU, on which nothing runs: a sample of it would cost time and show nothing."""
    machine = Machine(3)
    machine.run(HEALTHY)
    machine.poll(7)
    assert {gpu for gpu, question in machine.gpus.asked if question == SINCE} == {"GPU-0", "GPU-1"}
    assert machine.node.series("gpu_sm_busy_ratio") == pytest.approx([one.sm for one in HEALTHY])
