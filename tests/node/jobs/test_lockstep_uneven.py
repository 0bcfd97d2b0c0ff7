"""A GPU that has more work than the others of its job, as lists of readings: told so, and never as slow."""

import logging
from dataclasses import replace

import pytest

from tests.node.jobs.lockstepjobs import (
    EVERY,
    LOCKSTEP,
    LOST,
    OTHERS,
    Row,
    Story,
    measured,
    spread_over,
    use,
)
from tests.node.jobs.test_lockstep_read import Machine
from tests.rows import each
from tests.support import EPOCH
from wirewatch.core.types import Absent, Health
from wirewatch.jobs.lockstep import LockstepFacts, UnevenWork
from wirewatch.jobs.lockstep.model import WindowReason


def loaded(shape: str, how: str = "more") -> Row:
    """A window in which GPU 1 of two has more work."""
    return measured(shape, how, 1)[1]


def noted(story: Story) -> UnevenWork:
    assert story.memory.uneven is not None
    return story.memory.uneven


@pytest.mark.parametrize("shape", LOCKSTEP)
def test_a_tenth_more_work_is_noted_after_three_windows_with_what_it_costs(shape: str) -> None:
    story = Story().begin().see(*measured(shape))
    row = loaded(shape)
    seen = [story.see(row).uneven() for _ in range(4)]
    assert seen == [None, None, "1", "1"]
    assert story.hint() is None
    assert story.memory.last_hint is None
    note = noted(story)
    ratio = row[1].sm / row[0].sm
    assert note.more == pytest.approx(ratio - 1)
    assert note.waits == pytest.approx(1 - 1 / ratio)
    assert note.costs == pytest.approx(note.waits / 2)
    # 10 % more products were given to it; 5 to 14 % more memory and 8 to 14 % more time is what they took.
    assert 0.08 <= note.more <= 0.14
    assert note.work["use of memory"] == pytest.approx(row[1].dram / row[0].dram - 1)
    assert note.work["tensor work"] > 0.04
    assert not isinstance(note.reference, Absent)
    assert (note.gpu, note.uuid, note.windows) == ("1", "GPU-1", 4)
    assert note.last == (EPOCH + story.mono - EVERY, story.mono - EVERY)
    assert note.since == note.last.at - EVERY


def test_the_note_says_it_in_a_sentence_with_its_figures() -> None:
    story = Story().begin().see(*measured("data_parallel")).see(*[loaded("data_parallel")] * 3)
    assert noted(story).text == (
        "GPU 1 has 11% more work; the others wait 10% of the time, and a step could be 5% shorter at "
        "most, were it spread evenly: SM busy 93.3% against 83.9% of the others (-1.6% in its first "
        "windows), use of memory +13%, tensor work +7%; 3 windows, the last of 7.4 s"
    )


@pytest.mark.parametrize("gpus", [3, 4, 8])
@pytest.mark.parametrize("shape", LOCKSTEP)
def test_of_more_than_two_gpus_no_even_past_is_needed(shape: str, gpus: int) -> None:
    row = spread_over(loaded(shape), gpus, gpus - 1)
    story = Story(gpus).begin().see(*[row] * 3)
    assert (story.uneven(), story.hint()) == (str(gpus - 1), None)
    note = noted(story)
    assert note.costs == pytest.approx(note.waits * (gpus - 1) / gpus)
    assert isinstance(note.reference, Absent)


def test_four_h200_with_a_tenth_more_products_on_one_wait_as_the_tap_measured() -> None:
    """proof/hardware: SM busy and tensor active by GPU; the tap saw the others wait 4.6 of 37.3 ms."""
    even = measured("data_parallel")[0][0]
    figures = ((0.819, 0.763), (0.809, 0.753), (0.920, 0.887), (0.808, 0.754))
    row = tuple(
        replace(even, sm=sm, dram=even.dram * tensor / 0.753, math={**even.math, "tensor": tensor})
        for sm, tensor in figures
    )
    story = Story(4).begin().see(*[row] * 3)
    assert story.uneven() == "2"
    assert noted(story).waits == pytest.approx(4.6 / 37.3, abs=0.01)


@each("shape", OTHERS)
def test_a_job_that_is_uneven_by_design_is_never_noted(shape: str) -> None:
    story = Story().begin()
    for row in measured(shape) * 4:
        assert story.see(row).uneven() is None
        assert story.hint() is None


def test_stages_of_a_pipeline_and_hot_experts_move_other_bytes_and_are_never_noted() -> None:
    """On more than two GPUs: the ends have one neighbour, a hot expert gets more tokens."""
    first, last = measured("pipeline")[1]
    middle = replace(first, received=2 * first.received, sent=2 * first.sent)
    story = Story(4).begin().see(*[(first, middle, middle, last)] * 6)
    assert story.memory.reason is WindowReason.NO_LOCKSTEP
    assert story.uneven() is None
    hot, rest = measured("experts")[1]
    story = Story(4).begin().see(*[(replace(hot, received=1.13 * hot.received), rest, rest, rest)] * 6)
    assert story.memory.reason is WindowReason.NO_LOCKSTEP
    assert story.uneven() is None


def test_two_gpus_that_were_never_even_are_a_design_and_not_a_note() -> None:
    story = Story().begin().see(*[loaded("data_parallel")] * 9)
    assert story.memory.reason is WindowReason.UNEVEN
    assert story.uneven() is None


@each("shape", [*LOCKSTEP, "bursts"])
def test_a_healthy_or_slow_gpu_is_never_noted(shape: str) -> None:
    story = Story().begin().see(*measured(shape) * 3)
    assert story.uneven() is None
    for gpu in (0, 1) if shape in LOCKSTEP else ():
        slow = Story().begin().see(*measured(shape))
        for row in [measured(shape, "same", gpu)[1]] * 5:
            assert slow.see(row).uneven() is None
        assert slow.hint() == str(gpu)


def test_copies_beside_the_work_are_noted_only_where_the_others_wait_for_them() -> None:
    story = Story().begin().see(*measured("memory_bound")).see(*[loaded("memory_bound", "memory")] * 3)
    assert story.uneven() == "1"
    assert noted(story).work["use of memory"] == pytest.approx(0.46, abs=0.01)
    assert noted(story).waits == pytest.approx(0.22, abs=0.01)
    # The copies hide behind the products: nobody waits.
    idle = Story().begin().see(*measured("data_parallel")).see(*[loaded("data_parallel", "memory")] * 5)
    assert idle.memory.reason is WindowReason.UNEVEN
    assert idle.uneven() is None


def test_two_of_many_with_more_work_are_not_one() -> None:
    low, high = loaded("data_parallel")
    story = Story(8).begin().see(*[tuple(high if i < 2 else low for i in range(8))] * 5)
    assert story.uneven() is None


def test_the_others_must_do_the_same_among_themselves() -> None:
    low, high = loaded("data_parallel")
    other = replace(low, dram=0.8 * low.dram)
    story = Story(4).begin().see(*[(low, low, other, high)] * 5)
    assert story.memory.reason is WindowReason.UNEVEN
    assert story.uneven() is None


def test_more_of_one_and_less_of_another_kind_is_other_work_and_not_more() -> None:
    low, high = loaded("data_parallel")
    other = replace(high, math={**high.math, "tensor": 0.6 * low.math["tensor"]})
    story = Story(4).begin().see(*[(low, low, low, other)] * 5)
    assert story.memory.reason is WindowReason.UNEVEN
    assert story.uneven() is None


def test_a_note_ends_as_the_work_is_even_again_and_goes_on_past_one_window_without_a_result() -> None:
    row, even = loaded("sharded"), measured("sharded")
    story = Story().begin().see(*even).see(row, row, row)
    story.read([LOST, use(row[1], 101)])
    assert story.uneven() == "1"
    story.see(row)
    story.read([LOST, use(row[1], 101)])
    story.read([LOST, use(row[1], 101)])
    assert story.uneven() is None
    story.see(row, row, row)
    assert story.uneven() == "1"
    assert story.see(even[0]).uneven() is None


def test_another_job_begins_without_a_note() -> None:
    row = loaded("sharded")
    story = Story().begin().see(*measured("sharded")).see(row, row, row)
    story.read([use(row[0], 100), use(row[1], 777)])
    assert story.uneven() is None


def test_the_note_is_a_series_two_lines_in_the_log_and_a_fact_and_never_a_finding(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "wirewatch.jobs.lockstep")
    machine = Machine()
    machine.run(measured("data_parallel")[0])
    machine.poll(9)
    assert machine.node.series("job_uneven_work_ratio") == [0, 0]
    machine.run(loaded("data_parallel"))
    note = machine.poll(3).uneven
    assert note is not None
    assert machine.node.series("job_uneven_work_ratio", gpu="1", uuid="GPU-1") == [note.more]
    assert machine.node.series("job_uneven_work_ratio", gpu="0") == [0]
    assert machine.node.series("straggler_hint") == [0, 0]
    assert machine.node.component.health is Health.OK
    facts = machine.node.component.facts
    assert isinstance(facts, LockstepFacts)
    assert (facts.uneven, facts.hint, facts.last_hint) == (note, None, None)
    machine.run(measured("data_parallel")[0])
    # The clock is the median of three looks: arithmetic times clock is even at the second.
    machine.poll(2)
    assert machine.node.series("job_uneven_work_ratio") == [0, 0]
    assert [message.partition(": ")[0] for message in caplog.messages] == [
        "uneven work, no verdict",
        "uneven work over after 3 windows (all wait alike",
    ]
    assert caplog.messages[0].endswith(note.text)
