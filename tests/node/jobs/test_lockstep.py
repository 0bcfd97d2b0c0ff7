"""The GPU that never waits, as lists of readings: measured jobs, healthy, slow and uneven."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.node.jobs.lockstepjobs import (
    EVERY,
    LOCKSTEP,
    LOST,
    NOT_ASKED,
    OTHERS,
    SECONDS,
    Row,
    Story,
    measured,
    processes_of,
    shapes,
    spread_over,
    use,
)
from tests.rows import each
from tests.support import EPOCH
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.lockstep.model import WindowReason, facts


def reasons(story: Story, rows: list[Row]) -> list[WindowReason]:
    told = []
    for row in rows:
        told.append(story.see(row).memory.reason)
        assert story.memory.why.startswith(told[-1].value)
    return told


def slow_rows(shape: str, gpu: int) -> list[Row]:
    """Windows of a GPU that does the same work more slowly; the last, of steady state, over and over."""
    first, last = measured(shape, "same", gpu)
    return [first, *[last] * 5]


@each("shape", [*LOCKSTEP, "bursts"])
def test_a_healthy_job_names_nobody_however_long_it_runs(shape: str) -> None:
    story = Story().begin()
    told = reasons(story, measured(shape) * 9)
    assert set(told) == {WindowReason.NOBODY}
    assert story.hint() is None
    assert story.memory.last_hint is None


@pytest.mark.parametrize("shape", LOCKSTEP)
@pytest.mark.parametrize("gpu", [0, 1])
def test_a_gpu_that_becomes_slow_is_named_with_the_numbers_that_show_it(shape: str, gpu: int) -> None:
    story = Story().begin().see(*measured(shape))
    rows = slow_rows(shape, gpu)
    hints = [story.see(row).hint() for row in rows]
    named = hints.index(str(gpu))
    # The first window of the memory-bound job was not yet that of its steady state.
    assert named in {2, 3}
    assert set(hints[:named]) == {None}
    assert set(hints[named:]) == {str(gpu)}
    hint = story.memory.hint
    assert hint is not None
    assert (hint.uuid, hint.sm) == (f"GPU-{gpu}", rows[-1][gpu].sm)
    assert hint.others == rows[-1][1 - gpu].sm
    assert not isinstance(hint.reference, Absent)
    assert hint.gap >= 0.08 or hint.gap - hint.reference >= 0.04
    assert f"GPU {gpu} never waits: SM busy {hint.sm:.1%} against {hint.others:.1%}" in hint.text
    assert "in its first windows" in hint.text


@pytest.mark.parametrize("shape", LOCKSTEP)
def test_a_hint_ends_with_the_first_window_in_which_all_wait_alike(shape: str) -> None:
    story = Story().begin().see(*measured(shape)).see(*slow_rows(shape, 1))
    hint = story.memory.hint
    assert hint is not None
    story.see(measured(shape)[0])
    assert story.memory.hint is None
    assert story.memory.last_hint == hint
    assert hint.last == (EPOCH + story.mono - 2 * EVERY, story.mono - 2 * EVERY)
    assert hint.since == hint.last.at - (hint.windows - 3) * EVERY


UNEVEN = [
    *((shape, how, 1, {WindowReason.UNEVEN}) for shape in LOCKSTEP[:3] for how in ("more", "memory")),
    ("memory_bound", "more", 1, {WindowReason.UNEVEN}),
    ("memory_bound", "memory", 1, {WindowReason.UNEVEN}),
    ("pipeline", "healthy", None, {WindowReason.UNEVEN}),
    ("experts", "healthy", None, {WindowReason.UNEVEN}),
    ("stalls", "healthy", None, {WindowReason.HOST}),
]


@each(("shape", "how", "gpu", "expected"), UNEVEN)
def test_a_job_that_is_not_even_names_nobody_and_says_why(
    shape: str, how: str, gpu: int | None, expected: set[WindowReason]
) -> None:
    for known in ([], measured(shape) if gpu is not None else []):
        story = Story().begin().see(*known)
        assert set(reasons(story, measured(shape, how, gpu) * 3)) == expected
        assert story.hint() is None


def test_what_is_uneven_is_told_of_the_gpu_and_in_numbers() -> None:
    story = Story().begin().see(measured("data_parallel", "memory", 1)[0])
    assert story.memory.why in {
        "the work is uneven: GPU 1: use of memory is +19% against the others",
        "the work is uneven: GPU 0: use of memory is -16% against the others",
    }
    story.see(measured("stalls")[0])
    assert story.memory.why == (
        "the host keeps a GPU waiting: GPU 1: something runs there 74% of the time, elsewhere 99%"
    )
    more = measured("memory_bound", "more", 1)[0]
    assert "tensor work is" in Story().begin().see(more).memory.why


def test_checkpoints_name_nobody_while_one_writes_and_the_others_wait() -> None:
    story = Story().begin()
    told = reasons(story, measured("checkpoints"))
    assert told[:3] == [WindowReason.NOBODY] * 3
    assert set(told[3:6]) <= {WindowReason.NO_LOCKSTEP, WindowReason.HOST}
    assert told[6:] == [WindowReason.NOBODY] * 2
    assert story.hint() is None


@pytest.mark.parametrize(("how", "gpu"), [("foreign memory", 1), ("foreign compute", 0)])
def test_a_gpu_that_somebody_else_uses_too_is_shared_and_named_by_nobody(how: str, gpu: int) -> None:
    story = Story().begin().see(*measured("data_parallel"))
    assert processes_of("data_parallel", how, gpu) == [[2 if i == gpu else 1 for i in range(2)]] * 2
    for row in measured("data_parallel", how, gpu) * 2:
        strangers = [[999] if i == gpu else [] for i in range(2)]
        story.read([use(one, 100 + i, *strangers[i]) for i, one in enumerate(row)])
        assert story.memory.reason is WindowReason.SHARED
        assert story.memory.why == f"a GPU is shared: GPU {gpu}: 2 processes"
    assert story.hint() is None
    # Their job goes on when the stranger has gone, with what was known of it.
    story.see(*slow_rows("data_parallel", 1))
    assert story.hint() == "1"


def test_two_processes_on_a_gpu_from_the_start_are_no_job() -> None:
    story = Story()
    for _ in range(9):
        story.read([use(NOT_ASKED, 100), use(NOT_ASKED, 101, 102)])
        assert story.memory.reason is WindowReason.SHARED
        assert story.memory.job is None


def test_a_gpu_that_is_slow_from_the_start_is_named_only_where_it_stands_out_by_itself() -> None:
    row = measured("data_parallel", "same", 0)[1]
    assert Story().begin().see(*[row] * 3).hint() == "0"
    hint = Story().begin().see(*[row] * 3).memory.hint
    assert hint is not None
    assert isinstance(hint.reference, Absent)
    assert "too few windows before" in hint.text
    # 6 % alone is what a healthy pair may show under a power cap.
    assert Story().begin().see(*[measured("data_parallel", "same", 1)[1]] * 9).hint() is None


def test_a_job_that_has_just_begun_is_not_looked_at() -> None:
    story = Story()
    row = slow_rows("memory_bound", 0)[1]
    told = [story.see(row).memory.reason for _ in range(8)]
    assert told[:5] == [WindowReason.SETTLING] * 5
    # The look that its first window begins with must be one of when it had settled.
    assert told[5:] == [WindowReason.NAMED] * 3
    assert story.hint() == "0"


def test_a_window_that_reaches_to_before_the_job_reports_something_else() -> None:
    story = Story().begin()
    row = tuple(replace(one, seconds=20.0) for one in slow_rows("memory_bound", 0)[1])
    assert story.see(row).memory.reason is WindowReason.WINDOW
    assert "reach to before the job" in story.memory.why
    assert story.memory.busy == {}


@pytest.mark.parametrize(
    "seconds", [(1.9, 1.9), (61.0, 61.0), (SECONDS, SECONDS + 0.6)], ids=["short", "long", "not together"]
)
def test_windows_that_are_not_alike_say_nothing(seconds: tuple[float, float]) -> None:
    story = Story().begin()
    story.mono += 100
    row = slow_rows("memory_bound", 0)[1]
    story.see(tuple(replace(one, seconds=s) for one, s in zip(row, seconds, strict=True)))
    assert story.memory.reason is WindowReason.WINDOW
    assert story.memory.busy == {}


def test_other_processes_are_another_job_and_nothing_of_the_old_one_is_kept() -> None:
    story = Story().begin().see(*measured("data_parallel")).see(*slow_rows("data_parallel", 1))
    assert story.hint() == "1"
    row = slow_rows("data_parallel", 1)[1]
    story.read([use(row[0], 100), use(row[1], 777)])
    assert story.memory.reason is WindowReason.SETTLING
    assert story.hint() is None
    assert story.memory.last_hint is not None
    assert story.memory.job is not None
    assert story.memory.job.gaps == ()
    for _ in range(12):
        story.read([use(row[0], 100), use(row[1], 777)])
    # 6 %, and no healthy window of this job to compare with.
    assert story.hint() is None


def test_a_job_that_ends_takes_its_hint_along_but_not_when_it_was() -> None:
    story = Story().begin().see(*measured("sharded")).see(*slow_rows("sharded", 0))
    last = story.memory.last_hint
    story.read([use(NOT_ASKED), use(NOT_ASKED)])
    assert (story.memory.reason, story.hint()) == (WindowReason.NO_JOB, None)
    assert story.memory.last_hint == last
    assert last is not None
    assert last.last.mono == story.mono - 2 * EVERY


def test_one_process_on_one_gpu_is_no_job_that_could_be_compared() -> None:
    story = Story()
    for _ in range(9):
        story.read([use(NOT_ASKED, 100), use(NOT_ASKED)])
    assert (story.memory.reason, story.memory.job) == (WindowReason.NO_JOB, None)


def test_another_gpu_that_gets_a_process_makes_another_job() -> None:
    story = Story().begin().see(*measured("data_parallel"))
    row = measured("data_parallel")[0]
    story.read([use(row[0], 100), use(row[1], 101), use(NOT_ASKED, 500)])
    assert story.memory.reason is WindowReason.SETTLING
    assert story.memory.job is not None
    assert set(story.memory.job.processes) == {"GPU-0", "GPU-1", "GPU-2"}


def lost(story: Story, row: Row) -> None:
    story.read([LOST, use(row[1], 101)])


def no_window(story: Story, row: Row) -> None:
    story.read([use(row[0], 100), use(Absent(Why.TIMEOUT, "the driver timed out"), 101)])


def no_processes(story: Story, row: Row) -> None:
    unknown = replace(use(row[0]), processes=Absent(Why.TIMEOUT, "the driver timed out"))
    story.read([unknown, use(row[1], 101)])


def not_listed(story: Story, row: Row) -> None:
    story.read([use(row[0], 100)])


def idle_host(story: Story, _row: Row) -> None:
    story.see(measured("stalls")[0])


BLINDNESS = [lost, no_window, no_processes, not_listed, idle_host]


@each("blind", BLINDNESS)
def test_one_reading_that_says_nothing_neither_confirms_nor_clears(
    blind: Callable[[Story, Row], None],
) -> None:
    row = slow_rows("memory_bound", 0)[1]
    story = Story().begin().see(row, row)
    blind(story, row)
    assert story.memory.reason in {WindowReason.UNREAD, WindowReason.HOST}
    assert story.hint() is None
    assert story.see(row).hint() == "0"
    hint = story.memory.hint
    blind(story, row)
    assert story.memory.hint == hint
    assert story.see(row).hint() == "0"


@each("blind", BLINDNESS)
def test_two_in_a_row_clear(blind: Callable[[Story, Row], None]) -> None:
    row = slow_rows("memory_bound", 0)[1]
    story = Story().begin().see(row, row, row)
    assert story.hint() == "0"
    blind(story, row)
    blind(story, row)
    assert story.hint() is None
    assert story.see(row, row).hint() is None
    assert story.see(row).hint() == "0"


def test_the_named_gpu_must_be_the_same_in_every_window() -> None:
    story = Story().begin()
    one, other = (slow_rows("memory_bound", gpu)[1] for gpu in (0, 1))
    assert story.see(one, one, other, other).hint() is None
    assert story.see(other).hint() == "1"
    assert story.see(one).hint() is None


@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
@pytest.mark.parametrize("shape", LOCKSTEP)
def test_any_number_of_gpus(shape: str, gpus: int) -> None:
    story = Story(gpus).begin()
    story.see(*(spread_over(row, gpus) for row in measured(shape)))
    assert story.memory.reason is WindowReason.NOBODY
    story.see(*(spread_over(row, gpus, gpus - 1) for row in slow_rows(shape, 1)))
    assert story.hint() == str(gpus - 1)


def test_two_slow_gpus_of_many_are_not_one() -> None:
    row = slow_rows("tensor_parallel", 0)[1]
    story = Story(8).begin().see(*[tuple(row[0] if i < 2 else row[1] for i in range(8))] * 5)
    assert story.memory.reason is WindowReason.SCATTERED
    assert story.memory.why.startswith("the other GPUs differ among themselves: their SMs are busy 72.1% to")
    assert story.hint() is None


def test_two_jobs_on_one_node_are_not_in_lockstep() -> None:
    one, other = measured("data_parallel")[0], measured("sharded")[0]
    story = Story(4).begin().see((*one, *other))
    assert story.memory.reason is WindowReason.NO_LOCKSTEP
    assert "over NVLink" in story.memory.why
    assert not facts((), story.memory).in_step
    assert facts((), story.see((*one, *one)).memory).in_step


def test_a_lower_clock_is_more_time_for_the_same_work_and_not_more_work() -> None:
    healthy = measured("memory_bound")[2]
    slow, other = slow_rows("memory_bound", 0)[1]
    # Two thirds of the clock: the tensor cores are busy half as long again with the same products.
    throttled = replace(slow, clock=1.32e9, math={**slow.math, "tensor": other.math["tensor"] * 1.5})
    story = Story().begin().see(healthy, healthy, healthy)
    told = reasons(story, [(throttled, other)] * 6)
    # The clock is the median of three looks.
    assert told == [WindowReason.UNEVEN, *[WindowReason.NAMED] * 5]
    assert story.hint() == "0"


def test_math_is_not_compared_without_the_clocks() -> None:
    unknown = Absent(Why.TIMEOUT, "the driver timed out")
    row = tuple(replace(one, clock=unknown) for one in slow_rows("memory_bound", 0)[1])
    assert Story().begin().see(row).memory.reason is WindowReason.UNREAD
    # A job of copies alone has none that would have to be.
    idle = tuple(replace(one, math={}) for one in row)
    assert Story().begin().see(idle).memory.reason is WindowReason.NAMED


def test_no_shape_of_the_measurement_is_left_out_here() -> None:
    assert shapes() == {*LOCKSTEP, *OTHERS}
