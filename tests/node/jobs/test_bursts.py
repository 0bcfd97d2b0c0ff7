"""The collector `bursts` over drawn GPUs: whom it reads and when, what it compares, exports and says."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from tests.node.collectors.drawn import Files, Gpus, Watched
from tests.node.jobs.burstlooks import DrawnJob, as_json
from tests.rows import each
from tests.support import Node
from wirewatch.core.collector import APART, GpuReading
from wirewatch.core.nvml import BURST
from wirewatch.core.ports import Answer, Gpu, Question
from wirewatch.core.types import Absent, Expect, Health, Json, Ok, Why
from wirewatch.daemon.schedule import ROOM
from wirewatch.hw.nvml.client import GRACE
from wirewatch.hw.nvml.process import PIPE
from wirewatch.hw.nvml.protocol import Reply, absent_code, decode_reply, encode_reply
from wirewatch.jobs.bursts import COLLECTOR, BurstFacts, BurstFigures, BurstHint
from wirewatch.jobs.bursts.judge import grouped, judge, watches
from wirewatch.jobs.bursts.model import BurstMemory, BurstPolicy, GpuJob
from wirewatch.jobs.bursts.read import group_of, reads_of

PROCESSES, MIG, LINKS, SPEED = "ComputeRunningProcesses()", "MigMode()", "Field(91)", "Field(164,0)"
NOT_SUPPORTED, LOST = 3, 15
MINUTE = COLLECTOR.options.interval
RATE = 310e9
HEALTHY = DrawnJob(RATE, 1 << 30, 8e-3)
SLOW = replace(HEALTHY, rate=0.75 * RATE)
LOOKS = 7
SETTLED = 3
"""Readings of a job until the first look: at the third it has settled for 100 s, the next one looks."""


@dataclass
class Listening(Gpus):
    """GPUs that remember whose bursts were read."""

    looked: list[str | None] = field(default_factory=list)

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        self.looked += [gpu for question in questions if question == BURST]
        return super().ask(gpu, questions)


@cache
def look(job: DrawnJob, seed: int) -> Json:
    return as_json(job.look(seed))


class Machine:
    """A node of GPUs with this collector over it; `seed` makes each look one of its own."""

    def __init__(self, gpus: int = 2) -> None:
        self.gpus = Listening([f"0000:0{5 + i}:00.0" for i in range(gpus)])
        self.node = Watched("bursts", gpus=self.gpus)
        self.seed = 0
        for i in range(gpus):
            self.set(i, PROCESSES, [])
            self.set(i, MIG, [0, 0])
            self.set(i, LINKS, 18)
            self.set(i, SPEED, 26562)

    def set(self, gpu: int, question: str, value: Json | Absent) -> None:
        self.gpus.table[f"GPU-{gpu}", question] = value

    def run(
        self, first: int = 100, gpus: Sequence[int] = (0, 1), group: str = "/system.slice/a.service"
    ) -> None:
        """A process of a job on each of these GPUs."""
        for i in gpus:
            self.set(i, PROCESSES, [{"pid": first + i, "usedGpuMemory": 1 << 30}])
            self.node.files.texts[f"/proc/{first + i}/cgroup"] = f"0::{group}"

    def poll(self, job: DrawnJob = HEALTHY, times: int = 1) -> BurstMemory:
        """So many readings; each burst is another look at this job."""
        for _ in range(times):
            self.seed += 1
            answer = look(job, self.seed % LOOKS)
            for i in range(len(self.gpus.addresses)):
                self.set(i, str(BURST), answer)
            self.node.poll(1, MINUTE)
        memory = self.node.component.memory
        assert isinstance(memory, BurstMemory)
        assert self.node.component.findings == ()
        return memory

    def hint(self) -> BurstHint | None:
        facts = self.node.component.facts
        assert isinstance(facts, BurstFacts)
        return facts.hints[0] if facts.hints else None


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_it_is_off_unless_it_is_switched_on_and_keeps_away_from_gpm() -> None:
    assert not COLLECTOR.options.enabled
    assert COLLECTOR.apart == ("lockstep",)
    # A look lasts shorter than a run that keeps its distance may take.
    assert BURST.args[0] == 250
    assert 0.25 < ROOM < APART
    # And than a release waits for the question that is out.
    assert BURST.args[0] / 1000 < GRACE


def test_an_idle_node_is_watched_without_a_single_burst(machine: Machine) -> None:
    assert machine.poll(times=20).why == "no job on several GPUs"
    assert machine.gpus.looked == []
    assert machine.node.component.samples == ()
    assert machine.node.component.health is Health.OK


def test_one_gpu_of_a_job_is_read_in_turn_once_its_processes_have_stayed_longer_than_a_probe(
    machine: Machine,
) -> None:
    machine.run()
    assert machine.poll(times=SETTLED).why == "no GPU has its turn"
    assert machine.gpus.looked == []
    machine.poll(times=5)
    assert machine.gpus.looked == ["GPU-0", "GPU-1", "GPU-0", "GPU-1", "GPU-0"]


def test_jobs_take_turns(machine: Machine) -> None:
    machine = Machine(gpus=5)
    machine.run(100, (0, 1, 2), "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0")
    machine.run(200, (3, 4), "/system.slice/slurmstepd.scope/job_8/step_0/user/task_0")
    machine.poll(times=SETTLED + 6)
    assert machine.gpus.looked == ["GPU-0", "GPU-3", "GPU-1", "GPU-4", "GPU-2", "GPU-3"]
    assert [set(job.processes) for job in machine.poll().jobs] == [
        {"GPU-0", "GPU-1", "GPU-2"}, {"GPU-3", "GPU-4"},
    ]  # fmt: skip


def test_what_a_look_shows_is_exported_and_told_in_facts(machine: Machine) -> None:
    machine.run()
    memory = machine.poll(times=SETTLED + 1)
    series = machine.node.series
    assert series("job_burst_plateau_bytes_per_second", gpu="0", uuid="GPU-0") == pytest.approx(
        [RATE], rel=0.05
    )
    assert series("job_burst_seconds") == pytest.approx([HEALTHY.on_wire], rel=0.05)
    assert series("job_burst_duty_ratio") == pytest.approx([HEALTHY.on_wire / HEALTHY.step], rel=0.15)
    assert series("job_burst_period_seconds") == pytest.approx([HEALTHY.step], rel=0.02)
    assert series("job_burst_hint") == [0]
    assert series("job_burst_look_timestamp_seconds") == [machine.node.clock.now() - MINUTE]
    assert "whole bursts of 1024 MiB, on the wire" in memory.why
    facts = machine.node.component.facts
    assert isinstance(facts, BurstFacts)
    look = facts.looks[0]
    assert (look.gpu, look.uuid, look.pids, look.peak) == ("0", "GPU-0", frozenset({100}), 18 * 26.562e9)
    assert look.figures.long
    assert isinstance(look.reference, Absent)


def test_a_job_that_ends_takes_its_series_along(machine: Machine) -> None:
    machine.run()
    machine.poll(times=8)
    assert machine.node.component.samples != ()
    for i in range(2):
        machine.set(i, PROCESSES, [])
    assert machine.poll().jobs == ()
    assert machine.node.component.samples == ()


def test_a_plateau_that_falls_at_the_same_bytes_is_a_hint_after_three_looks_and_never_a_finding(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wirewatch.jobs.bursts")
    machine.run()
    machine.poll(times=SETTLED + 8)
    assert machine.hint() is None
    hints = []
    for _ in range(4):
        machine.poll(SLOW)
        hints.append(machine.hint() is not None)
    assert hints == [False, False, True, True]
    hint = machine.hint()
    assert hint is not None
    assert hint.plateau == pytest.approx(0.75 * RATE, rel=0.05)
    assert hint.reference == pytest.approx(RATE, rel=0.05)
    assert hint.at - hint.since == MINUTE
    assert "at the same 1024 MiB a burst, 4" in hint.text
    assert hint.text.endswith("of the wire's peak; 4 of the job's last 4 looks")
    assert machine.node.series("job_burst_hint", gpu=hint.gpu) == [1]
    assert sum(machine.node.series("job_burst_hint")) == 1
    assert machine.node.component.health is Health.OK
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("burst hint, no verdict: GPU 0: NVLink carries 23")


def test_a_hint_ends_as_the_plateau_comes_back_and_is_remembered(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.run()
    machine.poll(times=SETTLED + 8)
    machine.poll(SLOW, times=4)
    last = machine.hint()
    caplog.set_level(logging.INFO, "wirewatch.jobs.bursts")
    caplog.clear()
    assert machine.poll().jobs[0].hint is not None
    memory = machine.poll()
    assert machine.hint() is None
    assert memory.last_hint == last
    assert [message.partition(":")[0] for message in caplog.messages] == ["burst hint over"]


def test_two_low_looks_of_four_are_no_hint(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED + 8)
    for _ in range(6):
        machine.poll(SLOW)
        assert machine.hint() is None
        machine.poll()
        assert machine.hint() is None


def test_another_size_of_bursts_is_another_collective_and_not_compared(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED + 8)
    other = replace(SLOW, size=1 << 31)
    for _ in range(5):
        machine.poll(other)
        assert machine.hint() is None
    # From now on there is a past of this size too.
    machine.poll(other, times=4)
    machine.poll(replace(other, rate=0.5 * RATE), times=3)
    assert machine.hint() is not None


def test_a_slow_decline_does_not_become_what_is_usual(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED + 2 * BurstPolicy().most_references)
    for k in range(50):
        machine.poll(replace(HEALTHY, rate=RATE * (1 - 0.004 * k)), times=4)
    assert machine.hint() is not None


def test_other_processes_are_another_job_with_no_past(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED + 8)
    machine.poll(SLOW, times=4)
    assert machine.hint() is not None
    machine.run(500)
    memory = machine.poll(SLOW, times=12)
    assert machine.hint() is None
    assert memory.last_hint is not None
    assert [set(job.processes.values()) for job in memory.jobs] == [{frozenset({500}), frozenset({501})}]


def test_short_collectives_are_compared_only_where_they_are_seen_well_enough(machine: Machine) -> None:
    machine.run()
    short = replace(HEALTHY, size=int(RATE * 0.3e-3))
    memory = machine.poll(short, times=SETTLED + 9)
    assert memory.jobs[0].plateaus == {}
    assert len(machine.node.series("job_burst_plateau_bytes_per_second")) == 2
    assert max(machine.node.series("job_burst_seconds")) < 0.003


def test_a_gpu_that_cannot_be_read_ends_no_job_and_loses_no_past(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED + 4)
    kept = dict(machine.gpus.table)
    machine.gpus.table |= {key: absent_code(LOST) for key in kept if key[0] == "GPU-1"}
    machine.poll()
    before = machine.gpus.looked.count("GPU-1")
    memory = machine.poll(times=0)
    assert set(memory.jobs[0].processes) == {"GPU-0", "GPU-1"}
    machine.gpus.table = kept
    memory = machine.poll(times=2)
    assert machine.gpus.looked.count("GPU-1") > before
    assert len(memory.jobs[0].looks) == 2


def test_a_burst_that_fails_leaves_the_look_before_and_its_time(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED + 2)
    before = machine.node.series("job_burst_look_timestamp_seconds")
    for i in range(2):
        machine.set(i, str(BURST), Absent(Why.TIMEOUT, "the driver timed out"))
    machine.node.poll(1, MINUTE)
    assert machine.node.series("job_burst_look_timestamp_seconds") == before
    assert machine.node.component.memory.why == "GPU 0: timeout: the driver timed out"


def test_a_gpu_that_does_not_offer_its_counters_is_asked_once(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED)
    for i in range(2):
        machine.set(i, str(BURST), absent_code(NOT_SUPPORTED))
    machine.node.poll(6, MINUTE)
    assert sorted(str(gpu) for gpu in machine.gpus.looked) == ["GPU-0", "GPU-1"]
    assert machine.node.component.samples == ()


@pytest.mark.parametrize(
    ("question", "answer"), [(LINKS, 0), (LINKS, absent_code(NOT_SUPPORTED)), (MIG, [1, 1])]
)
def test_gpus_without_nvlink_or_split_by_mig_are_not_applicable(
    machine: Machine, question: str, answer: Json | Absent
) -> None:
    for i in range(2):
        machine.set(i, question, answer)
    machine.run()
    machine.poll(times=8)
    assert machine.node.component.applicable is False
    assert machine.node.component.health is None
    assert machine.gpus.looked == []


def test_nvml_that_cannot_be_asked_is_a_reading_that_failed(machine: Machine) -> None:
    machine.run()
    machine.poll(times=8)
    machine.gpus.absent = Absent(Why.MISSING, "the NVIDIA driver is not loaded")
    machine.node.poll(1, MINUTE)
    assert machine.node.component.health is Health.UNKNOWN
    assert "the NVIDIA driver is not loaded" in str(machine.node.component.outcome)
    assert machine.node.component.samples == ()


def test_a_job_is_played_with_an_overlay_over_a_recording_and_its_bursts_are_seen() -> None:
    node = Node("h200x8", only=("bursts",), also=("bursts",))
    node.change("gpu*/ComputeRunningProcesses()", "set", [{"pid": 4711}])
    node.change(f"gpu*/{BURST}", "set", look(HEALTHY, 1))
    node.poll(times=SETTLED + 2, every=MINUTE)
    assert node.series("job_burst_plateau_bytes_per_second") == pytest.approx([RATE] * 2, rel=0.05)
    facts = node.state.facts(BurstFacts)
    assert facts is not None
    assert [(one.gpu, one.peak) for one in facts.looks] == [("0", 18 * 26.562e9), ("1", 18 * 26.562e9)]
    node.change("gpu1/UUID()", "code", LOST)
    node.poll(times=2, every=MINUTE)
    assert node.series("job_burst_hint") != []


def test_an_answer_passes_the_pipe_of_nvmls_process() -> None:
    answers = (Answer(look(HEALTHY, 1), 250_000.0),)
    line = encode_reply(Reply(answers, 0.25))
    assert decode_reply(line).answers[0].value == answers[0].value
    assert len(line) < PIPE


def job(*pids: int, group: str = "") -> GpuJob:
    return GpuJob(watched=True, processes=frozenset(pids), groups=dict.fromkeys(pids, group), peak=1.0)


def test_gpus_are_of_one_job_by_process_slurm_job_pod_or_session() -> None:
    gpus: dict[str, GpuJob | Absent] = {
        "a": job(1, group="x"), "b": job(2, group="x"), "c": job(3, group="y"), "d": job(3, 4, group="z"),
        "e": job(5, group="alone"), "f": job(), "g": Absent(Why.LOST), "h": job(),
        "i": replace(job(), processes=Absent(Why.LOST)),
    }  # fmt: skip
    assert [sorted(one) for one in grouped(gpus)] == [["a", "b"], ["c", "d"]]
    assert [sorted(one) for one in grouped({"a": job(1), "b": job(2), "c": job(3, group="x")})] == [
        ["a", "b"]
    ]


@each(
    ("text", "group"),
    [
        ("0::/system.slice/slurmstepd.scope/job_81/step_0/user/task_3", "slurm:81"),
        ("0::/user.slice/user-7.slice/session-3.scope", "/user.slice/user-7.slice/session-3.scope"),
        ("0::/", ""),
        ("1:cpu:/\n0::/user.slice/user-7.slice", "/user.slice/user-7.slice"),
        ("nonsense", ""),
        ("name:nonsense", ""),
        (Absent(Why.MISSING, "gone"), ""),
    ],
)
def test_the_job_of_a_process_is_in_its_control_group(text: str | Absent, group: str) -> None:
    assert group_of(Files({"/proc/7/cgroup": text}), 7) == group


@each(
    "answer",
    [
        None, [], {"reads": 7}, {"reads": [[0, 0]]}, {"reads": [[0, 0, "a"]]}, {"reads": [[0, 0, True]]},
        {"reads": [[0, 0, 0], [0, 1, 1]]}, {"reads": [[0, 5, 5], [900, 4, 5]]},
        {"reads": [[0, 5, 5], [900, 5, 4]]},
    ],
)  # fmt: skip
def test_an_answer_that_no_counter_gives_is_malformed(answer: Json) -> None:
    found = reads_of(answer)
    assert isinstance(found, Absent)
    assert found.why is Why.MALFORMED


@each(
    ("values", "wrong"),
    [
        ({"settle": -1.0}, "'settle'"), ({"sure": 0.0}, "'sure'"), ({"drop": 1.0}, "'drop'"),
        ({"confirm": 0}, "'confirm'"), ({"references": 0}, "'references'"),
        ({"confirm": 1}, ""), ({"references": 1}, ""), ({"settle": 0.0}, ""),
        ({"confirm": 5}, "'looks'"), ({"references": 21}, "'most_references'"),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_meant_says_which_value(values: dict[str, float], wrong: str) -> None:
    assert wrong in replace(BurstPolicy(), **values).wrong()  # type: ignore[arg-type]
    assert bool(replace(BurstPolicy(), **values).wrong()) == bool(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "why"),
    [(Absent(Why.UNSUPPORTED, "no counters"), "no counters"), ({"read": []}, "no member 'reads'")],
    ids=["not offered", "without reads"],
)
def test_an_answer_without_reads_says_what_it_lacks(answer: Json | Absent, why: str) -> None:
    found = reads_of(answer)
    assert isinstance(found, Absent)
    assert why in found.detail
    assert found.why is (answer.why if isinstance(answer, Absent) else Why.MALFORMED)


def figures(
    size: int = 1 << 30, rate: float | Absent = RATE, error: float = 0.01, *, long: bool = True
) -> BurstFigures:
    return BurstFigures(0.25, 250, 1, 9, rate, error, size, 3e-3, long=long, duty=0.2, period=0.02)


def judged(
    *looks: BurstFigures, pids: Sequence[int] = (1, 2), peak: float | Absent = 4e11
) -> list[BurstMemory]:
    """Return the memory after each of these looks at the first of two GPUs."""
    memory, policy, found = COLLECTOR.start, BurstPolicy(settle=0.0), []
    for number, look in enumerate(looks):
        first, second = (replace(job(pid), peak=peak) for pid in pids)
        reading = (
            GpuReading(Gpu(0, "GPU-0"), replace(first, burst=look)), GpuReading(Gpu(1, "GPU-1"), second),
        )  # fmt: skip
        memory, _ = judge(memory, Ok(reading, 0.0, float(number)), policy, Expect())
        found.append(memory)
    return found


def test_of_the_plateaus_of_all_sizes_the_newest_are_kept() -> None:
    """A job whose bursts are of another size at each look must not fill the memory."""
    *_, memory = judged(*(figures(2**number) for number in range(250)))
    (one,) = memory.jobs
    assert [plateau.size for plateau in one.plateaus["GPU-0"]] == [2**number for number in range(50, 250)]


UNSEEN = Absent(Why.MISSING, "no burst was whole")


@pytest.mark.parametrize(
    ("guard", "look", "counts"),
    [
        ("it is seen well", figures(), 1),
        ("its error is too large", figures(error=0.051), 0),
        ("no burst was whole, so that its size is not known", figures(0), 0),
        ("it is not known", figures(rate=UNSEEN), 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_plateau_counts_where_it_and_its_size_are_known(
    guard: str, look: BurstFigures, counts: int
) -> None:
    (memory,) = judged(look)
    assert len(memory.jobs[0].plateaus.get("GPU-0", ())) == counts, guard
    assert memory.jobs[0].looks["GPU-0"].figures is look


@pytest.mark.parametrize(
    ("guard", "sizes", "reference"),
    [
        ("three looks before", (100, 100, 100, 100), True),
        ("two looks before", (100, 100, 100), False),
        ("bursts less by 19 %", (100, 100, 100, 81), True),
        ("bursts less by 21 %", (100, 100, 100, 79), False),
        ("bursts more by a fifth of their own", (100, 100, 100, 125), True),
        ("bursts more than that", (100, 100, 100, 126), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_look_is_held_against_three_at_about_as_many_bytes(
    guard: str, sizes: tuple[int, ...], reference: object
) -> None:
    *_, memory = judged(*map(figures, sizes))
    found = memory.jobs[0].looks["GPU-0"].reference
    assert (found == RATE) is isinstance(found, float) is reference, guard


def test_the_past_of_a_size_is_its_first_twenty_looks() -> None:
    *_, memory = judged(*(figures(rate=RATE + number) for number in range(30)))
    assert [one.rate for one in memory.jobs[0].plateaus["GPU-0"]] == [RATE + number for number in range(20)]


@pytest.mark.parametrize(
    ("guard", "peak", "long", "end"),
    [
        ("all is known", 4e11, True, "a burst, 58% of the wire's peak; 3 of the job's last 3 looks"),
        ("the peak is not known", UNSEEN, True, "a burst; 3 of the job's last 3 looks"),
        ("its bursts are short", 4e11, False, "last 3 looks; its bursts are short, so both are lower bounds"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_a_hint_says_what_is_known(guard: str, peak: float | Absent, long: object, end: str) -> None:
    low = figures(rate=0.75 * RATE, long=bool(long))
    *_, memory = judged(*[figures()] * 3, low, low, low, peak=peak)
    assert memory.last_hint is not None
    assert memory.last_hint.text.endswith(end), guard


def test_the_last_hint_is_that_of_the_newest_look() -> None:
    machine = Machine(gpus=4)
    machine.run(100, (0, 1), "/system.slice/slurmstepd.scope/job_7/step_0")
    machine.run(200, (2, 3), "/system.slice/slurmstepd.scope/job_8/step_0")
    machine.poll(times=SETTLED + 16)
    for _ in range(10):
        memory = machine.poll(SLOW)
        hints = [job.hint for job in memory.jobs if job.hint]
        assert memory.last_hint == max(hints, key=lambda hint: hint.mono, default=None)
    assert len(hints) == 2


def test_a_look_that_saw_nothing_says_so(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED)
    still: Json = {"reads": [[900 * k, 7, 7] for k in range(200)]}
    for i in range(2):
        machine.set(i, str(BURST), still)
    machine.node.poll(1, MINUTE)
    assert machine.node.component.memory.why == "GPU 0: no bytes moved over NVLink"


def test_processes_that_cannot_be_read_end_no_job(machine: Machine) -> None:
    machine.run()
    before = machine.poll(times=SETTLED + 2).jobs[0]
    machine.set(1, PROCESSES, Absent(Why.TIMEOUT, "the driver timed out"))
    after = machine.poll().jobs
    assert [(one.since, one.processes) for one in after] == [(before.since, before.processes)]


def test_a_job_that_grows_is_another_and_one_beside_it_changes_nothing() -> None:
    machine = Machine(gpus=5)
    machine.run(100, (0, 1), "/system.slice/slurmstepd.scope/job_7/step_0")
    (first,) = machine.poll(times=SETTLED + 2).jobs
    machine.run(200, (2, 3), "/system.slice/slurmstepd.scope/job_8/step_0")
    assert [one.since for one in machine.poll().jobs] == [first.since, machine.node.clock.mono() - MINUTE]
    machine.run(100, (0, 1, 4), "/system.slice/slurmstepd.scope/job_7/step_0")
    grown = machine.poll().jobs
    assert [sorted(one.processes) for one in grown] == [["GPU-2", "GPU-3"], ["GPU-0", "GPU-1", "GPU-4"]]
    assert grown[1].since == machine.node.clock.mono() - MINUTE


def test_a_gpu_whose_processes_have_changed_is_not_looked_at(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED)
    machine.run(500)
    machine.poll()
    assert machine.gpus.looked == []


def test_a_gpu_of_a_job_without_nvlink_is_never_looked_at(machine: Machine) -> None:
    machine.set(0, LINKS, 0)
    machine.run()
    machine.poll(times=SETTLED + 4)
    assert set(machine.gpus.looked) == {"GPU-1"}
    assert machine.node.component.applicable is True


@pytest.mark.parametrize("mig", [absent_code(NOT_SUPPORTED), Absent(Why.TIMEOUT, "the driver timed out")])
def test_gpus_that_know_no_mig_and_no_rate_of_their_links_are_looked_at(
    machine: Machine, mig: Absent
) -> None:
    for i in range(2):
        machine.set(i, MIG, mig)
        machine.set(i, SPEED, absent_code(NOT_SUPPORTED))
    machine.run()
    memory = machine.poll(times=SETTLED + 1)
    assert machine.gpus.looked == ["GPU-0"]
    assert isinstance(memory.jobs[0].looks["GPU-0"].peak, Absent)


def test_a_gpu_that_is_lost_as_it_is_looked_at_leaves_its_job(machine: Machine) -> None:
    machine.run()
    machine.poll(times=SETTLED)
    for i in range(2):
        machine.set(i, str(BURST), absent_code(LOST))
    machine.node.poll(1, MINUTE)
    memory = machine.node.component.memory
    assert (len(memory.jobs), memory.jobs[0].looks) == (1, {})
    assert memory.why.startswith("GPU 0: lost")


@pytest.mark.parametrize(
    ("guard", "gpus", "watched"),
    [
        ("no GPU can be read", [Absent(Why.LOST)], False),
        ("one of two can be read", [Absent(Why.LOST), job()], True),
        ("one of two has NVLink", [replace(job(), watched=False), job()], True),
        ("none has NVLink", [replace(job(), watched=False)], False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_watches_where_one_gpu_has_nvlink(
    guard: str, gpus: list[GpuJob | Absent], watched: object
) -> None:
    reading = tuple(GpuReading(Gpu(n, f"GPU-{n}"), gpu) for n, gpu in enumerate(gpus))
    assert watches(reading) is watched, guard
