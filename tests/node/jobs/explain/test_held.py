"""A first line holds for 15 s unless a surer one comes: lists of answers over time, and what is shown."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.node.jobs.explain.drawn import NOW, evidence, gpus, job
from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.evidence import Certainty, JobAnswer, Wall
from wirewatch.jobs.explain.held import HOLD, HeldAnswer, HeldAnswers, held, job_key
from wirewatch.jobs.times import RunningJob

LOW, MEDIUM, HIGH = Certainty.LOW, Certainty.MEDIUM, Certainty.HIGH


def answer(wall: Wall, said: str, sure: Certainty = MEDIUM, gpu: str = "") -> JobAnswer:
    return JobAnswer(wall, said, sure, 0.1, because=(f"because {said}",), gpu=gpu)


LATE = answer(Wall.LATE_RANK, "late 12 %", gpu="GPU-1")
MORE = answer(Wall.LATE_RANK, "late 13 %", gpu="GPU-1")
OTHER = answer(Wall.LATE_RANK, "late 12 % too", gpu="GPU-2")
SURE = answer(Wall.LATE_RANK, "throttled", HIGH, gpu="GPU-1")
WELL = answer(Wall.NOTHING, "well", HIGH)
SMALL = answer(Wall.COMPUTING, "small causes", HIGH)
HOST = answer(Wall.HOST, "host", LOW)
LOST = answer(Wall.NOT_KNOWN, "not known", LOW)
NONE = Absent(Why.MISSING, "no tap")
STILL, STILL_LATER = answer(Wall.STANDING, "since 14 s"), answer(Wall.STANDING, "since 16 s")
HANG = answer(Wall.HANG, "hang", HIGH)
STARTING = answer(Wall.STARTING, "starting", LOW)


def without_pids(since: float) -> RunningJob:
    """A job of which this machine knows no process."""
    (comm,) = job().communicators
    here = tuple(replace(rank, pid=NONE) for rank in comm.here)
    return replace(job(), since=since, communicators=(replace(comm, here=here),))


def lines(*answers: tuple[float, JobAnswer]) -> list[str]:
    """Return the sentence that is shown at each of these times."""
    shown, previous = [], None
    for at, one in answers:
        previous = held(previous, one, at)
        shown.append(previous.answer.sentence)
    return shown


@each(
    ("guard", "answers", "shown"),
    [
        ("it stays until it is 15 s old", [(0, LATE), (2, HOST), (14.9, HOST), (15, HOST)],
         ["late 12 %", "late 12 %", "late 12 %", "host"]),
        ("an old one goes at once", [(0, LATE), (20, LATE), (22, HOST)], ["late 12 %", "late 12 %", "host"]),
        ("another GPU is another line", [(0, LATE), (2, OTHER), (15, OTHER)],
         ["late 12 %", "late 12 %", "late 12 % too"]),
        ("its numbers stay as long", [(0, LATE), (14, MORE), (15, MORE)],
         ["late 12 %", "late 12 %", "late 13 %"]),
        ("the same sentence goes on, and is old", [(0, LATE), (16, LATE), (18, HOST)],
         ["late 12 %", "late 12 %", "host"]),
        ("new numbers are a new sentence", [(0, LATE), (16, MORE), (18, HOST), (31, HOST)],
         ["late 12 %", "late 13 %", "late 13 %", "host"]),
        ("a surer one comes at once", [(0, LATE), (2, SURE), (4, LATE)],
         ["late 12 %", "throttled", "throttled"]),
        ("that it is well is no surer", [(0, LATE), (2, WELL)], ["late 12 %", "late 12 %"]),
        ("that it is well holds against a guess", [(0, WELL), (2, HOST)], ["well", "well"]),
        ("that it is well does not hold against what is measured", [(0, WELL), (2, LATE)],
         ["well", "late 12 %"]),
        ("that it is well is no surer than a guess", [(0, HOST), (2, WELL)], ["host", "host"]),
        ("that it is well ends where nothing is known", [(0, WELL), (2, LOST), (4, WELL)],
         ["well", "not known", "not known"]),
        ("where nothing is known a wall stays", [(0, LATE), (2, LOST), (15, LOST)],
         ["late 12 %", "late 12 %", "not known"]),
        ("that no cause is known is no surer than a guess", [(0, HOST), (2, SMALL)], ["host", "host"]),
        ("that it stands still comes at once, and its time goes on",
         [(0, SURE), (2, STILL), (4, STILL_LATER), (6, SURE)],
         ["throttled", "since 14 s", "since 16 s", "since 16 s"]),
        ("a hang is the surest", [(0, STILL), (2, HANG), (4, STILL)], ["since 14 s", "hang", "hang"]),
        ("a start is over at once", [(0, STARTING), (2, HOST), (4, LATE)], ["starting", "host", "late 12 %"]),
        ("a start does not hide what was known", [(0, LATE), (2, STARTING)], ["late 12 %", "late 12 %"]),
        ("a clock that was put back", [(1000, LATE), (2, HOST)], ["late 12 %", "host"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_first_line_holds(
    guard: str, answers: Sequence[tuple[float, JobAnswer]], shown: Sequence[str]
) -> None:
    assert lines(*answers) == shown, guard


def test_what_is_beside_the_line_is_new_while_it_names_the_same() -> None:
    first = held(None, LATE, 0.0)
    same = held(first, MORE, 5.0).answer
    assert (same.sentence, same.cost, same.because) == ("late 12 %", 0.1, ("because late 13 %",))
    assert held(first, HOST, 5.0) == replace(first, answer=replace(LATE, certainty=LOW)), "it is no surer"


ANY = st.sampled_from([LATE, MORE, OTHER, SURE, WELL, HOST, replace(HOST, certainty=MEDIUM)])


@given(st.lists(st.tuples(st.floats(0.1, 9.0), ANY), min_size=1, max_size=40))
def test_no_line_is_younger_than_15_s_when_one_comes_that_is_no_surer(
    steps: Sequence[tuple[float, JobAnswer]],
) -> None:
    at, began, previous = 0.0, 0.0, None
    for seconds, one in steps:
        at += seconds
        now = held(previous, one, at)
        if previous is not None and now.answer.sentence != previous.answer.sentence:
            order = [LOW, MEDIUM, HIGH]
            sure, was = (order.index(each.answer.certainty) for each in (now, previous))
            well = previous.answer.wall is Wall.NOTHING
            assert at - began >= HOLD - 1e-6 or sure > (0 if well else was)
            assert at - began >= HOLD - 1e-6 or now.answer.wall is not Wall.NOTHING
        if previous is None or now.answer.sentence != previous.answer.sentence:
            began = at
        previous = now


def test_each_job_has_a_line_of_its_own_and_one_that_is_gone_is_forgotten() -> None:
    a, b, answers = ("a", "GPU-0", 4711.0), ("b", "GPU-1", 4712.0), HeldAnswers()
    assert answers.shown({a: LATE, b: WELL}, 0.0)[b] == HeldAnswer(WELL, 0.0)
    assert answers.shown({a: HOST}, 5.0)[a].answer.sentence == LATE.sentence
    again = answers.shown({a: HOST, b: HOST}, 6.0)
    assert (again[a].answer.sentence, again[b].answer) == (LATE.sentence, HOST)


def test_a_job_that_was_started_again_begins_with_a_line_of_its_own() -> None:
    untapped, rings = evidence(NONE, gpus()), evidence(without_pids(NOW - 60))
    rings = replace(rings, gpus=tuple(replace(one, pids=()) for one in rings.gpus))
    for before, after in (
        (untapped, replace(untapped, gpus=tuple(replace(o, pids=(9000 + n,)) for n, o in enumerate(gpus())))),
        (rings, replace(rings, job=without_pids(NOW))),
    ):
        answers = HeldAnswers()
        assert answers.shown({job_key(before): LATE}, 0.0)[job_key(before)].answer == LATE
        assert answers.shown({job_key(after): WELL}, 2.0)[job_key(after)].answer == WELL
