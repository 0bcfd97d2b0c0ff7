"""Each guard of jobs in lockstep alone: readings and windows in which only that guard refuses."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from tests.node.jobs.lockstepjobs import LOST, NOT_ASKED, Row, Story, reading, use
from tests.node.jobs.test_lockstep_read import CLOCK, HEALTHY, MIG, PROCESSES, SLOW, Machine, as_json
from tests.rows import each
from wirewatch.core.collector import GpuReading
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Expect, Ok, Why
from wirewatch.hw.nvml.protocol import absent_code
from wirewatch.jobs.lockstep import LockstepFacts, judge_and_log
from wirewatch.jobs.lockstep.judge import WindowResult, watches
from wirewatch.jobs.lockstep.model import (
    GpuUse,
    GpuWindow,
    LockstepMemory,
    LockstepPolicy,
    UnevenWork,
    WindowReason,
    facts,
    goes_on,
    samples,
)
from wirewatch.jobs.lockstep.read import METRICS, SINCE, window_of

UNSUPPORTED = Absent(Why.UNSUPPORTED, "no GPM")
UNREAD = Absent(Why.TIMEOUT, "the driver timed out")
NO_GPM = "no GPM: before Hopper, or a driver that does not know it"


def one(**but: Any) -> GpuWindow:
    """A GPU of a job that works as all others do."""
    made = GpuWindow(7.5, 0.99, 0.8, 0.5, 1e9, 1e9, {"tensor": 0.4}, 1.98e9)
    return replace(made, **but)


def row(*buts: Mapping[str, Any]) -> Row:
    return tuple(one(**but) for but in buts)


def seen(
    first: Row, *rows: Row, policy: LockstepPolicy | None = None, even: int = 0, but: Row | None = None
) -> Story:
    """A story of these windows, after so many in which all GPUs are alike, or differ as `but` says."""
    story = Story(len(first), policy).begin()
    story.mono += 100.0
    return story.see(*[but or row(*[{}] * len(first))] * even, first, *rows)


def test_a_job_is_found_beside_gpus_that_are_lost_split_idle_or_not_known() -> None:
    unknown = replace(use(NOT_ASKED), processes=UNREAD)
    split = replace(use(NOT_ASKED, 300), mig=True)
    story = Story(6).read([LOST, use(NOT_ASKED, 101), unknown, use(NOT_ASKED, 102), split, use(NOT_ASKED)])
    assert story.memory.job is not None
    assert story.memory.job.processes == {"GPU-1": 101, "GPU-3": 102}
    assert story.memory.reason is WindowReason.SETTLING


@pytest.mark.parametrize(
    ("guard", "uses", "why"),
    [
        ("GPUs that are lost", [LOST, LOST], str(LOST)),
        ("for several reasons", [LOST, UNREAD, use(NOT_ASKED)], ""),
        ("two reasons", [LOST, UNREAD], f"{LOST}; {UNREAD}"),
        ("split by MIG", [replace(use(NOT_ASKED, 1), mig=True)], "split by MIG"),
        ("it does not offer it", [replace(use(NOT_ASKED, 1), offers=False)], NO_GPM),
        ("it knows nothing of it", [replace(use(NOT_ASKED, 1), offers=UNSUPPORTED)], NO_GPM),
        ("whether it does is not known", [replace(use(NOT_ASKED, 1), offers=UNREAD)], str(UNREAD)),
        ("there is none", [], "no GPU"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_why_there_is_nothing_to_watch(
    guard: str, uses: Sequence[GpuUse | Absent], why: str
) -> None:
    story = Story(len(uses)).read(uses)
    assert (story.memory.reason is WindowReason.NOT_HERE) is bool(why), guard
    assert story.memory.why == (
        f"no GPU here offers what is read: {why}" if why else "no job on several GPUs"
    )


def test_one_gpu_that_offers_what_is_read_is_enough() -> None:
    assert watches(reading([LOST, use(NOT_ASKED)]))
    assert not watches(reading([LOST, replace(use(NOT_ASKED), offers=False)]))
    assert not watches(reading([replace(use(NOT_ASKED), mig=True)]))
    assert not watches(())


@pytest.mark.parametrize(
    ("guard", "uses", "same"),
    [
        ("as it was", [use(NOT_ASKED, 100), use(NOT_ASKED, 101)], True),
        ("another process beside its own", [use(NOT_ASKED, 100, 7), use(NOT_ASKED, 101)], True),
        ("another process", [use(NOT_ASKED, 7), use(NOT_ASKED, 101)], False),
        ("a GPU is lost", [LOST, use(NOT_ASKED, 101)], True),
        ("the processes of a GPU are not known",
         [replace(use(NOT_ASKED), processes=UNREAD), use(NOT_ASKED, 101)], True),
        ("a process on another GPU", [use(NOT_ASKED, 100), use(NOT_ASKED, 101), use(NOT_ASKED, 7)], False),
        ("another GPU that is idle", [use(NOT_ASKED, 100), use(NOT_ASKED, 101), use(NOT_ASKED)], True),
        ("a process on a GPU that is split",
         [use(NOT_ASKED, 100), use(NOT_ASKED, 101), replace(use(NOT_ASKED, 7), mig=True)], True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_it_is_the_same_job(
    guard: str, uses: Sequence[GpuUse | Absent], *, same: bool
) -> None:
    story = Story().begin()
    job = story.memory.job
    assert job is not None
    assert goes_on(job, {f"GPU-{number}": one for number, one in enumerate(uses)}) is same, guard


@each(
    ("guard", "window", "reason", "why"),
    [
        ("windows that are short", row({"seconds": 1.9}, {"seconds": 1.9}), WindowReason.WINDOW,
         "1.9 to 1.9 s"),
        ("just not", row({"seconds": 2.0}, {"seconds": 2.5}), WindowReason.NOBODY, ""),
        ("one is too long", row({"seconds": 59.9}, {"seconds": 60.1}), WindowReason.WINDOW, "59.9 to 60.1 s"),
        ("too far apart", row({"seconds": 7.5}, {"seconds": 8.1}), WindowReason.WINDOW, "7.5 to 8.1 s"),
        ("few bytes, alike", row({"sent": 9e7}, {"sent": 9e7}), WindowReason.NO_LOCKSTEP,
         "90 to 90 MB/s sent over NVLink"),
        ("other bytes", row({"received": 1e9}, {"received": 0.94e9}), WindowReason.NO_LOCKSTEP,
         "940 to 1000 MB/s received over NVLink"),
        ("nearly the same bytes", row({"sent": 1e9}, {"sent": 0.951e9}), WindowReason.NOBODY, ""),
        ("a host keeps one waiting", row({"graphics": 0.95}, {"graphics": 0.99}), WindowReason.HOST,
         "GPU 0: something runs there 95% of the time, elsewhere 99%"),
        ("hardly waiting", row({"graphics": 0.97}, {"graphics": 0.99}), WindowReason.NOBODY, ""),
        ("other use of memory", row({"dram": 0.5}, {"dram": 0.55}), WindowReason.UNEVEN,
         "GPU 0: use of memory is -9% against the others"),
        ("use of memory of one alone", row({"dram": 0.0}, {"dram": 0.1}), WindowReason.UNEVEN,
         "GPU 0: use of memory is -100% against the others"),
        ("use of memory of the second alone", row({"dram": 0.1}, {"dram": 0.0}), WindowReason.UNEVEN,
         "GPU 0: use of memory is more than none on the others"),
        ("a unit that one alone uses", row({"math": {}}, {"math": {"tensor": 0.4}}), WindowReason.UNEVEN,
         "GPU 0: tensor work is -100% against the others"),
        ("a unit that both hardly use", row({"math": {"fp64": 0.05}}, {"math": {"fp64": 0.1}}),
         WindowReason.NOBODY, ""),
        ("SMs that have no work", row({"sm": 0.0}, {"sm": 0.0}), WindowReason.NOBODY, ""),
        ("the others differ", row({"sm": 0.8}, {"sm": 0.95}, {"sm": 1.0}), WindowReason.SCATTERED,
         "their SMs are busy 80.0% to 95.0%"),
        ("the others hardly differ", row({"sm": 0.961}, {"sm": 1.0}, {"sm": 1.0}), WindowReason.NOBODY, ""),
        ("a clock is not known", row({"clock": UNREAD}, {}), WindowReason.UNREAD,
         "tensor work cannot be compared without every clock"),
        ("busier by enough", row({"sm": 0.865}, {"sm": 0.8}), WindowReason.NAMED,
         "GPU 0: SM busy 86.5% against 80.0%"),
        ("busier by too little", row({"sm": 0.863}, {"sm": 0.8}), WindowReason.NOBODY, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_what_a_window_shows(
    guard: str, window: Row, reason: WindowReason, why: str
) -> None:
    memory = seen(window).memory
    assert memory.reason is reason, f"{guard}: {memory.why}"
    assert why in memory.why
    assert bool(memory.busy) is (reason is not WindowReason.WINDOW)


@pytest.mark.parametrize(
    ("guard", "first", "before", "even", "named"),
    [
        ("busier than in the first windows", 0.0, 0.045, 3, True),
        ("too few windows were even", 0.0, 0.045, 2, False),
        ("not busier by enough", 0.0, 0.039, 3, False),
        ("as busy as in the first windows", 0.03, 0.045, 3, False),
        ("not much busier than the others", -0.05, 0.02, 3, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_a_gpu_is_busier_than_at_first(
    guard: str, first: float, before: float, even: int, *, named: bool
) -> None:
    """By less than what is enough for any job."""
    at_first = row({"sm": 0.8 * (1 + first)}, {"sm": 0.8})
    memory = seen(row({"sm": 0.8 * (1 + before)}, {"sm": 0.8}), even=even, but=at_first).memory
    assert (memory.reason is WindowReason.NAMED) is named, f"{guard}: {memory.why}"


def test_twenty_first_windows_are_references() -> None:
    memory = seen(row({}, {}), even=30).memory
    assert memory.job is not None
    assert len(memory.job.gaps) == 20


FIRST, SECOND = row({"sm": 0.9}, {}), row({}, {"sm": 0.9})
AT_ONCE = LockstepPolicy(confirm=1)


def test_a_hint_of_another_gpu_began_when_that_was_named(caplog: pytest.LogCaptureFixture) -> None:
    story = seen(FIRST, FIRST, policy=AT_ONCE)
    before = story.memory
    assert before.hint is not None
    assert (before.hint.gpu, before.hint.since) == ("0", before.hint.last.at - 7.5)
    after = story.see(SECOND).memory.hint
    assert after is not None
    assert (after.gpu, after.since, after.windows) == ("1", after.last.at, 1)
    caplog.set_level(logging.INFO, "wirewatch.jobs.lockstep")
    uses = reading([use(one, 100 + number) for number, one in enumerate(SECOND)])
    judge_and_log(before, Ok(uses, 1.0, story.mono), AT_ONCE, Expect())
    assert [message.partition(" (")[0].partition(": ")[0] for message in caplog.messages] == [
        "straggler hint over after 2 windows", "straggler hint, no verdict",
    ]  # fmt: skip


def more(**but: Any) -> dict[str, Any]:
    """A GPU with a fifth more work of each kind."""
    return {"sm": 0.9, "dram": 0.6, "math": {"tensor": 0.48}, **but}


def test_more_work_of_another_gpu_began_when_that_was_seen() -> None:
    story = seen(row(more(), {}), row(more(), {}), policy=AT_ONCE, even=3)
    before = story.memory.uneven
    assert before is not None
    assert (before.gpu, before.since) == ("0", before.last.at - 7.5)
    after = story.see(row({}, more())).memory.uneven
    assert after is not None
    assert (after.gpu, after.since, after.windows) == ("1", after.last.at, 1)
    assert after.text.startswith("GPU 1 has 12% more work; the others wait 11% of the time")
    assert "SM busy 90.0% against 80.0% of the others" in after.text


@pytest.mark.parametrize(
    ("guard", "window", "even", "work"),
    [
        ("of two GPUs that were even before", row(more(), {}), 3, {"use of memory": 0.2, "tensor work": 0.2}),
        ("of two GPUs that were not", row(more(), {}), 0, None),
        ("of three GPUs", row(more(), {}, {}), 0, {"use of memory": 0.2, "tensor work": 0.2}),
        ("nobody waits for it", row(more(sm=0.82), {}, {}), 0, None),
        ("of one kind more, of another as much", row(more(math={"tensor": 0.4}), {}, {}), 0,
         {"use of memory": 0.2, "tensor work": 0.0}),
        ("of one kind more, of another far less", row(more(math={"tensor": 0.35}), {}, {}), 0, None),
        ("of one kind more, of another a little less", row(more(math={"tensor": 0.365}), {}, {}), 0,
         {"use of memory": 0.2, "tensor work": -0.0875}),
        ("of a kind that the others do not do", row(more(math={"tensor": 0.4, "fp64": 0.3}), {}, {}), 0,
         {"use of memory": 0.2, "tensor work": 0.0}),
        ("the others do other work", row(more(), {}, {"dram": 0.469}), 0, None),
        ("the others do nearly the same", row(more(), {}, {"dram": 0.4705}), 0,
         {"use of memory": 0.2752, "tensor work": 0.2}),
        ("it does no more, but the others are not quite alike",
         row({"sm": 0.9, "dram": 0.475}, {"dram": 0.5}, {"dram": 0.4705}), 0, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_a_gpu_has_more_work(
    guard: str, window: Row, even: int, work: Mapping[str, float] | None
) -> None:
    memory = seen(window, policy=AT_ONCE, even=even).memory
    assert memory.reason is WindowReason.UNEVEN, f"{guard}: {memory.why}"
    found = {} if memory.uneven is None else memory.uneven.work
    assert found == pytest.approx(work or {}, abs=1e-3), guard
    assert isinstance(memory.uneven, UnevenWork) is (work is not None)


def test_a_job_that_is_not_judged_yet_has_no_series_and_no_gpu_of_another_one_has() -> None:
    story = Story()
    uses = [use(NOT_ASKED, 100), use(NOT_ASKED, 101), use(NOT_ASKED)]
    story.read(uses)
    assert list(samples(reading(uses), story.memory)) == []
    assert list(samples(reading(uses), LockstepMemory())) == []
    for _ in range(5):
        story.read(uses)
    found = list(samples(reading(uses), story.memory))
    assert {one.labels for one in found} == {("0", "GPU-0"), ("1", "GPU-1")}
    assert {one.metric.name for one in found} == {"straggler_hint", "job_uneven_work_ratio"}


def test_facts_have_the_windows_of_those_gpus_that_have_one() -> None:
    uses = reading([LOST, use(NOT_ASKED, 1), use(one(), 2)])
    assert facts(uses, LockstepMemory(age=one().seconds)).windows == {"GPU-2": one()}


def test_facts_have_no_window_that_began_before_its_job() -> None:
    uses = reading([use(one(), 2)])
    assert facts(uses, LockstepMemory(age=one().seconds - 0.1)).windows == {}


@each(
    ("name", "value", "wrong"),
    [
        ("settle", -1.0, "must not be below 0"), ("settle", 0.0, ""), ("gap", 0.0, "must be above 0"),
        ("gap", 1.0, ""), ("clocks", 1, ""), ("confirm", 0, "must be above 0"), ("misses", 1, ""),
        ("references", 1, ""), ("longest", 1.9, "must not be below shortest"),
        ("most_references", 2, "must not be below references"), ("most_references", 3, ""),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_meant_is_wrong(name: str, value: Any, wrong: str) -> None:
    said = replace(LockstepPolicy(), **{name: value}).wrong()
    assert (wrong in said) if wrong else (said == "")


ALL = {str(number): 1.0 for number in METRICS.values()}


@pytest.mark.parametrize(
    ("guard", "answer", "why"),
    [
        ("no answer", UNREAD, UNREAD.detail),
        ("no time", {"metrics": ALL}, "seconds"),
        ("no metrics", {"seconds": 3.0}, "metrics"),
        ("one is missing", {"seconds": 3.0, "metrics": {k: v for k, v in ALL.items() if k != "2"}},
         "GPM does not report sm here"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_why_there_is_no_window(guard: str, answer: Any, why: str) -> None:
    found = window_of(answer, 1e9)
    assert isinstance(found, Absent), guard
    assert why in found.detail


def test_of_a_job_that_has_changed_no_sample_is_taken() -> None:
    machine = Machine()
    machine.run(HEALTHY)
    machine.poll(7)
    looks = machine.gpus.looks()
    assert looks > 0
    machine.set("GPU-0", PROCESSES, [{"pid": 7}])
    assert machine.poll().reason is WindowReason.SETTLING
    assert machine.gpus.looks() == looks


def windows_of(machine: Machine) -> Mapping[str, GpuWindow]:
    known = machine.node.component.facts
    assert isinstance(known, LockstepFacts)
    return known.windows


def test_a_clock_is_in_hertz_and_one_that_is_not_read_costs_itself_alone() -> None:
    machine = Machine()
    machine.run(HEALTHY)
    machine.poll(7)
    windows = windows_of(machine)
    assert [one.clock for one in windows.values()] == pytest.approx([one.clock for one in HEALTHY])
    machine.set("GPU-0", CLOCK, absent_code(999))
    machine.poll()
    windows = windows_of(machine)
    assert isinstance(windows["GPU-0"].clock, Absent)
    assert windows["GPU-0"].seconds == HEALTHY[0].seconds


def test_a_gpu_that_gives_no_window_says_why_and_keeps_its_processes() -> None:
    machine = Machine()
    machine.run(SLOW)
    machine.poll(7)
    for question in (str(SINCE), CLOCK):
        machine.set("GPU-0", question, absent_code(999))
    assert machine.poll().reason is WindowReason.UNREAD
    assert "NVML error 999" in machine.node.component.memory.why
    machine.run(SLOW)
    assert machine.poll().reason is WindowReason.NAMED


def test_a_gpu_that_knows_no_mig_is_not_split() -> None:
    machine = Machine()
    for gpu in ("GPU-0", "GPU-1"):
        machine.set(gpu, MIG, absent_code(3))
    machine.run(HEALTHY)
    assert machine.poll(7).reason is WindowReason.NOBODY
    assert as_json(HEALTHY[0]) == machine.gpus.table["GPU-0", str(SINCE)]


@pytest.mark.parametrize(("key", "said"), [("GPU-0", "GPU 0: x"), ("GPU-gone", "GPU-gone: x")])
def test_a_gpu_that_the_reading_lacks_is_named_by_its_uuid(key: str, said: str) -> None:
    seen = WindowResult(WindowReason.NO_JOB, key, "x")
    read: tuple[GpuReading[GpuUse], ...] = (GpuReading(Gpu(0, "GPU-0"), LOST),)
    module = import_module("wirewatch.jobs.lockstep.judge")
    assert vars(module)["_with_result"](LockstepMemory(), seen, read).why.endswith(said)
