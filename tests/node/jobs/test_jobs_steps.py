"""Windows follow the work: steps from 10 ms to 10 s, pauses between them, and stalls now and then."""

from dataclasses import replace

import pytest

from tests.node.jobs.ringjobs import LATE, MIB, TRAINING, DrawnNode, JobShape, gaps_of, lates
from tests.rows import each
from wirewatch.core.jobs import TimedCollective
from wirewatch.jobs.running.model import CommunicatorMemory, JobsPolicy, JoinedCollective
from wirewatch.jobs.running.windows import Shape, roll, too_few

POLICY = JobsPolicy()
TWO = Shape(2, frozenset({0, 1}))
TWELVE = (("all_reduce", 32 * MIB),) * 12


@pytest.mark.parametrize("calls", [1, 12])
@pytest.mark.parametrize("step", [0.01, 0.1, 0.34, 1.0, 3.0, 10.0])
def test_shares_of_the_time_are_right_however_long_a_step_is(step: float, calls: int) -> None:
    """Half of each step is a pause in which nothing is sent; the late rank has a tenth more work."""
    shape = replace(LATE, work=step / 2, pause=step / 2, calls=TWELVE[:calls])
    node = DrawnNode(shape, seed=3, every=2.0)
    *_, facts = node.watch(max(40.0, 30 * step))
    late = 0.05 * step / (1.05 * step + calls * shape.wire("all_reduce", 32 * MIB))
    assert [gpu.waiting for gpu in facts.jobs[0].gpus] == pytest.approx([late, late, 0.0, late], abs=0.01)
    assert lates(facts) == []


@pytest.mark.parametrize(
    ("name", "shape", "within"),
    [
        ("a tenth more work, steps of a second", replace(LATE, work=1.0), 40.0),
        ("the same of 3 s, twelve calls", replace(LATE, work=3.0, calls=TWELVE), 30.0),
        ("1.5 s in each tenth step of 0.34 s", replace(TRAINING, work=0.34, stalls={2: (10, 1.5)}), 50.0),
        ("the same, twelve calls", replace(TRAINING, work=0.34, calls=TWELVE, stalls={2: (10, 1.5)}), 50.0),
        ("4 s in one of 25", replace(TRAINING, work=0.13, calls=TWELVE, stalls={2: (25, 4.0)}), 80.0),
        ("a loader, 30 ms each step of 0.4 s",
         replace(TRAINING, work=0.4, calls=TWELVE, stalls={2: (1, 0.03)}), 30.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_late_rank_is_named_and_nobody_else(name: str, shape: JobShape, within: float) -> None:
    named = [lates(facts) for facts in DrawnNode(shape, seed=1, every=2.0).watch(within)]
    assert named[-1] == ["2"], name
    assert {one for some in named for one in some} == {"2"}


def test_two_gpus_of_which_one_stalls_take_ten_stalls() -> None:
    """Fewer are chance: where each rank stalls at random, one of two has five in a row often enough."""
    node = DrawnNode(replace(TRAINING, gpus=(0, 1), work=0.34, stalls={1: (10, 1.5)}), every=2.0)
    named = [lates(facts) for facts in node.watch(90.0)]
    assert named[22] == []
    assert named[-1] == ["1"]


def test_how_few_collectives_a_slow_job_has_is_said_and_nobody_named() -> None:
    *_, facts = DrawnNode(replace(LATE, work=10.0), every=2.0).watch(36.0)
    assert lates(facts) == []
    assert facts.jobs[0].communicators[0].few == "3 collectives in 34 s: too few to name a rank"
    *_, facts = DrawnNode(LATE, every=2.0).watch(36.0)
    assert facts.jobs[0].communicators[0].few == ""


def joined(number: int, at: float, before: float | None = None) -> JoinedCollective:
    return JoinedCollective("all_reduce", number, MIB, "RING", "SIMPLE", 24, at, {0: 0.5, 1: 0.5}, before)


@pytest.mark.parametrize(
    ("mono", "count", "told"),
    [(104.9, 3, ""), (105.0, 3, "3 collectives in 5 s: too few to name a rank"), (105.0, 8, ""),
     (130.0, 1, "1 collective in 30 s: too few to name a rank")],
)  # fmt: skip
def test_a_window_is_said_to_have_too_few_once_it_should_be_full(mono: float, count: int, told: str) -> None:
    memory = CommunicatorMemory(begun=100.0, window=tuple(joined(n, 100.0 + n) for n in range(count)))
    assert too_few(memory, mono, POLICY) == told
    assert too_few(CommunicatorMemory(), mono, POLICY) == ""


def test_a_window_lasts_as_long_as_two_of_its_pauses_and_of_those_before() -> None:
    found = tuple(joined(n, 100.0 + n, before=0.5) for n in range(8))
    stalled = (*found[:7], joined(7, 107.0, before=3.5))
    for window, paused, full in (
        (found, 0.0, 5.0), (stalled, 0.0, 8.0), (found, 6.0, 12.0), (stalled, 45.0, 30.0), (found, 4e3, 30.0),
    ):  # fmt: skip
        memory = CommunicatorMemory(begun=100.0, window=window, paused=paused)
        assert roll(memory, TWO, 100.0 + full - 0.1, POLICY).windows == ()
        new = roll(memory, TWO, 100.0 + full, POLICY)
        assert len(new.windows) == 1
        assert new.paused == (1.0 if window is found else 4.0)


def test_calls_are_counted_from_the_last_one_of_the_window_before() -> None:
    """Eight at once after a pause of 12 s: one a second and a half, and not a hundred a second."""
    found = tuple(joined(n, 112.0 + n / 100) for n in range(9, 17))
    behind = CommunicatorMemory(begun=103.0, closed=103.0, until={"all_reduce": (8, 100.0)}, window=found)
    share = 0.5 * 8 / 12.16
    window = roll(behind, TWO, 113.0, POLICY).windows[-1]
    assert [one.in_collectives for one in window.ranks] == pytest.approx([share, share])
    for other in (
        replace(behind, closed=90.0), replace(behind, until={}),
        replace(behind, until={"all_reduce": (9, 100.0)}), replace(behind, until={"all_reduce": (8, 112.09)}),
    ):  # fmt: skip
        assert roll(other, TWO, 113.0, POLICY).windows[-1].ranks[0].in_collectives == 1.0


def timed(sequence: int, started: float, op: str = "all_reduce") -> dict[int, TimedCollective]:
    one = TimedCollective(
        1, op, sequence, MIB, "float32", "RING", "SIMPLE", 24, 0.5, started, started + 0.5, started
    )
    return {0: one, 1: replace(one, started=started + 70.0, stopped=started + 70.5)}


@each(
    ("guard", "number", "op", "ended", "known"),
    [
        ("the next one", 8, "all_reduce", {"all_reduce": 7}, True),
        ("one is missing", 9, "all_reduce", {"all_reduce": 7}, False),
        ("the next one of another operation", 4, "all_gather", {"all_reduce": 7, "all_gather": 3}, True),
        ("one of another operation is missing", 5, "all_gather", {"all_reduce": 7, "all_gather": 3}, False),
        ("an operation that was never seen", 4, "all_gather", {"all_reduce": 7}, False),
    ],
)  # fmt: skip
def test_what_comes_between_two_polls_is_known_where_nothing_is_missing(
    guard: str, number: int, op: str, ended: dict[str, int], *, known: bool
) -> None:
    """A slow job has one collective a poll."""
    both, front = frozenset({0, 1}), (("all_reduce", 7), timed(7, 10.0))
    found = gaps_of({(op, number): timed(number, 13.0, op)}, both, ended, front)
    assert found == ({(op, number): 2.5} if known else {}), guard
    assert gaps_of({(op, number): timed(number, 13.0, op)}, both) == {}
