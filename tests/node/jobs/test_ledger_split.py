"""On what a GPU spends its time at one look: each rule, with what alone refuses it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.node.jobs.ledgerlooks import (
    BEGIN,
    DENIED,
    UNREAD,
    active,
    around,
    comm,
    gpu,
    idle,
    job,
    rank,
    sight,
    spinning,
    tapped,
    time_of,
    works,
)
from tests.rows import each
from wirewatch.core.jobs import RingState
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.ledger.model import LedgerSurroundings
from wirewatch.jobs.ledger.spent import Spent
from wirewatch.jobs.ledger.split import NCCL_SMS, JobNow, Split, split
from wirewatch.jobs.times import ELSEWHERE

AGO = BEGIN - 5.0
"""A call so long ago that its rank stands still."""
NOBODY = {Spent.NOT_ATTRIBUTED: 1.0}


def of(now: JobNow, number: int = 0) -> dict[Spent, float]:
    """The shares of a GPU that are not 0, rounded."""
    return rounded(split(gpu(number), now))


def rounded(found: Split) -> dict[Spent, float]:
    assert sum(found.shares.values()) == pytest.approx(1.0)
    return {kind: round(part, 3) for kind, part in found.shares.items() if round(part, 3)}


def waits(now: JobNow, number: int = 0) -> dict[str, float]:
    """For whom a GPU waits."""
    found = split(gpu(number), now)
    assert sum(found.waits.values()) == pytest.approx(found.shares.get(Spent.LOCAL_RANK, 0.0))
    return {other: round(part, 3) for other, part in found.waits.items()}


# A GPU on which nothing runs, and one of which nothing is known


@pytest.mark.parametrize("busy", [0.0, 0.25])
def test_time_in_which_nothing_runs_is_idle(busy: float) -> None:
    now = job(sight(busy, 100.0, 100), works(1))
    assert of(now).get(Spent.IDLE) == 1.0 - busy


def test_a_gpu_whose_use_cannot_be_read_is_not_attributed_unless_gpm_has_it() -> None:
    blind = sight(Absent(Why.UNSUPPORTED), 400.0, 100)
    assert of(job(blind, works(1))) == NOBODY
    known = LedgerSurroundings(activity=active(0.0, graphics=0.4), seen=BEGIN)
    assert of(job(blind, works(1), known=known)) == {Spent.IDLE: 0.6, Spent.NOT_ATTRIBUTED: 0.4}


def test_without_times_and_without_activity_nothing_is_called_computing() -> None:
    assert of(job(works(0), works(1))) == NOBODY


# Who spins, waits


def test_counts_name_the_rank_that_is_behind() -> None:
    here = comm(rank(0, 9, AGO), rank(1, 8, AGO), rank(2, 9, AGO))
    now = job(spinning(0), works(1), idle(2), known=around(tapped(comms=[here], numbers=range(3))))
    assert of(now) == {Spent.LOCAL_RANK: 1.0}
    assert waits(now) == {gpu(1): 1.0}


def test_two_ranks_that_are_behind_alike_share_the_wait() -> None:
    here = comm(rank(0, 9, AGO), rank(1, 8, AGO), rank(2, 8, AGO))
    now = job(spinning(0), works(1), idle(2), known=around(tapped(comms=[here], numbers=range(3))))
    assert waits(now) == {gpu(1): 0.5, gpu(2): 0.5}


def test_equal_counts_name_nobody_also_where_one_gpu_alone_does_not_spin() -> None:
    here = comm(rank(0, 9, AGO), rank(1, 9, AGO))
    assert of(job(spinning(0), idle(1), known=around(tapped(comms=[here])))) == NOBODY


def test_a_rank_that_goes_on_is_not_behind() -> None:
    """Ranks enqueue ahead of their GPUs, each by as much as it likes."""
    here = comm(rank(0, 9, AGO), rank(1, 8, BEGIN - 0.9), rank(2, 8, BEGIN - 0.9))
    now = job(spinning(0), works(1), works(2), known=around(tapped(comms=[here], numbers=range(3))))
    assert of(now) == NOBODY
    known = around(tapped(comms=[comm(rank(0, 9, AGO), rank(1, 8, BEGIN - 1.0))]))
    assert of(job(spinning(0), works(1), known=known)) == {Spent.LOCAL_RANK: 1.0}


@pytest.mark.parametrize("counted", [BEGIN - 6.1, BEGIN - 6.0])
def test_counts_that_are_old_say_nothing(counted: float) -> None:
    here = comm(rank(0, 9, AGO - 9), rank(1, 8, AGO - 9), rank(2, 9, AGO - 9))
    known = around(tapped(comms=[here], numbers=range(3)), counted=counted)
    now = job(spinning(0), works(1), works(2), known=known)
    assert of(now) == (NOBODY if counted < BEGIN - 6.0 else {Spent.LOCAL_RANK: 1.0})


def test_counts_of_different_communicators_are_not_compared() -> None:
    """Stages of a pipeline: the second has fewer calls in a communicator of its own."""
    first, second = comm(rank(0, 90, AGO), rank(1, 90, AGO)), comm(rank(2, 3, AGO), rank(3, 3, AGO))
    known = around(tapped(comms=[first, second], numbers=range(4)))
    now = job(spinning(0), spinning(1), works(2), works(3), known=known)
    assert of(now) == NOBODY


def test_a_rank_that_waits_in_another_communicator_passes_the_blame_on() -> None:
    """TP pairs 0-1 and 2-3 and DP pairs 0-2 and 1-3: 0 waits for 1, which waits for 3."""
    comms = [
        comm(rank(0, 9, AGO), rank(1, 8, AGO), name="tp"), comm(rank(1, 5, AGO), rank(3, 4, AGO), name="dp"),
    ]  # fmt: skip
    known = around(tapped(comms=comms, numbers=range(4)))
    now = job(spinning(0), spinning(1), works(2), idle(3), known=known)
    assert waits(now) == {gpu(3): 1.0}
    assert waits(now, 1) == {gpu(3): 1.0}


def test_a_rank_behind_that_spins_for_nobody_is_not_the_cause() -> None:
    now = job(
        spinning(0), spinning(1), idle(2),
        known=around(tapped(comms=[comm(rank(0, 9, AGO), rank(1, 8, AGO))], numbers=range(3))),
    )  # fmt: skip
    assert of(now) == NOBODY


def test_waiting_in_a_circle_names_nobody() -> None:
    comms = [
        comm(rank(0, 9, AGO), rank(1, 8, AGO), name="a"), comm(rank(1, 5, AGO), rank(0, 4, AGO), name="b"),
    ]  # fmt: skip
    assert of(job(spinning(0), spinning(1), known=around(tapped(comms=comms)))) == NOBODY


def test_a_rank_whose_gpu_is_not_known_is_not_named() -> None:
    here = comm(rank(0, 9, AGO), rank(1, 8, AGO, gpu=Absent(Why.MISSING)))
    assert of(job(spinning(0), works(1), known=around(tapped(comms=[here])))) == NOBODY


@pytest.mark.parametrize("state", [RingState.DEAD, RingState.LIVE])
def test_counts_of_a_ring_that_is_dead_do_not_say_what_the_gpu_waits_for(state: RingState) -> None:
    """A job that was started again: the ring of its last life lies there for two minutes."""
    here = comm(rank(0, 9, AGO, state=state), rank(1, 8, AGO), rank(2, 9, AGO))
    now = job(spinning(0), works(1), works(2), known=around(tapped(comms=[here], numbers=range(3))))
    assert of(now) == (NOBODY if state is RingState.DEAD else {Spent.LOCAL_RANK: 1.0})


def test_without_counts_the_one_gpu_that_does_not_spin_is_waited_for() -> None:
    for other in (idle(1), works(1)):
        now = job(spinning(0), other, spinning(2))
        assert waits(now) == {gpu(1): 1.0}
        assert waits(now, 2) == {gpu(1): 1.0}


@each(
    "others",
    [
        (spinning(1), spinning(2)),
        (works(1), idle(2)),
        (works(1), UNREAD),
        (works(1), sight(1.0, DENIED, 102)),
        (works(1), sight(DENIED, 125.0, 102)),
        (),
    ],
    ids=["all spin", "two do not", "one is lost", "no power", "no use", "it is alone"],
)
def test_without_counts_and_without_that_one_gpu_the_wait_is_not_attributed(others: tuple[Any, ...]) -> None:
    assert of(job(spinning(0), *others)) == NOBODY


@pytest.mark.parametrize(
    ("busy", "power", "spun"),
    [(0.99, 210.0, True), (0.98, 125.0, False), (1.0, 211.0, False)],
    ids=["at both limits", "not all busy", "power above"],
)
def test_what_counts_as_spinning(busy: float, power: float, *, spun: bool) -> None:
    found = of(job(sight(busy, power, 100), idle(1)))
    assert (Spent.LOCAL_RANK in found) == spun
    assert found.get(Spent.IDLE, 0.0) == round(1 - busy, 3)


# A GPU that looks as if it spins, and works


@pytest.mark.parametrize(
    ("since", "sm", "works_on"),
    [(BEGIN - 7.5, 0.5, True), (BEGIN - 7.4, 0.5, False), (BEGIN - 7.5, NCCL_SMS, False)],
    ids=["a window since it spins", "a window from before", "no more than NCCL's own SMs"],
)
def test_activity_belies_the_look_of_spinning(since: float, sm: float, *, works_on: bool) -> None:
    known = LedgerSurroundings(activity=active(sm), seen=BEGIN)
    found = of(job(spinning(0), idle(1), known=known, spinning={gpu(0): since}))
    least = round((0.5 - NCCL_SMS) / (1 - NCCL_SMS), 3)
    assert found == (
        {Spent.COMPUTING: least, Spent.NOT_ATTRIBUTED: round(1 - least, 3)} if works_on
        else {Spent.LOCAL_RANK: 1.0}
    )  # fmt: skip


@pytest.mark.parametrize("since", [BEGIN - 8.0, BEGIN - 7.9])
def test_times_since_it_spins_belie_the_look_and_older_ones_do_not(since: float) -> None:
    known = around(tapped(time_of(0, 0.1)))
    found = of(job(spinning(0), idle(1), known=known, spinning={gpu(0): since}))
    computes = {Spent.COMPUTING: 0.9, Spent.WIRE: 0.1}
    assert found == (computes if since <= BEGIN - 8.0 else {Spent.LOCAL_RANK: 1.0})


def test_counts_are_believed_before_windows_that_belie_the_look() -> None:
    known = around(tapped(time_of(0, 0.1), comms=[comm(rank(0, 9, AGO), rank(1, 8, AGO))]))
    assert waits(job(spinning(0), idle(1), known=known, spinning={gpu(0): 0.0})) == {gpu(1): 1.0}


# Waiting for nobody who is known, and what may be work


def decode(watts: float) -> JobNow:
    """Two GPUs that replay CUDA graphs: all busy, and no collective of theirs is timed."""
    here = comm(rank(0, 9, AGO), rank(1, 9, AGO))
    known = around(tapped(time_of(0, 0.0, measured=False), comms=[here]))
    return job(sight(1.0, watts, 100), sight(1.0, watts, 101), known=known)


@pytest.mark.parametrize(
    ("guard", "now", "part"),
    [
        ("it spins", job(spinning(0), spinning(1)), 1.0),
        ("it spins, and the tap times nothing", decode(125.0), 1.0),
        ("it replays graphs at much power", decode(700.0), 0.0),
        ("its use is not read", job(sight(Absent(Why.UNSUPPORTED), 125.0, 100), spinning(1)), 0.0),
        ("its power is not read", job(sight(1.0, Absent(Why.UNSUPPORTED), 100), spinning(1)), 0.0),
        ("it is not all busy", job(sight(0.98, 125.0, 100), spinning(1)), 0.0),
        ("it is shared", job(spinning(0), spinning(1), shared=frozenset({gpu(0)})), 0.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_of_what_is_not_attributed_only_what_spins_is_waiting(guard: str, now: JobNow, part: float) -> None:
    found = split(gpu(0), now)
    assert found.shares[Spent.NOT_ATTRIBUTED] >= 0.9, guard
    assert found.waiting == part


# A GPU that works


def test_timed_collectives_divide_the_time_of_a_gpu_that_works() -> None:
    times = time_of(0, 0.5, 0.3, waits={gpu(1): 0.1, ELSEWHERE: 0.15}, beyond=0.05)
    found = split(gpu(0), job(works(0), works(1), known=around(tapped(times))))
    assert rounded(found) == {
        Spent.COMPUTING: 0.5, Spent.LOCAL_RANK: 0.1, Spent.OTHER_NODE: 0.15, Spent.NOT_ATTRIBUTED: 0.05,
        Spent.WIRE: 0.15, Spent.BEYOND: 0.05,
    }  # fmt: skip
    assert found.waits == pytest.approx({gpu(1): 0.1})
    assert found.unjudged == 0.0
    assert found.waiting == pytest.approx(0.05)


def test_the_wire_of_which_nothing_is_known_to_expect_is_said() -> None:
    found = split(gpu(0), job(works(0), works(1), known=around(tapped(time_of(0, 0.5, 0.3)))))
    assert rounded(found) == {Spent.COMPUTING: 0.5, Spent.NOT_ATTRIBUTED: 0.3, Spent.WIRE: 0.2}
    assert found.unjudged == pytest.approx(0.2)


def test_causes_are_no_more_than_the_wait_and_never_the_gpu_itself() -> None:
    times = time_of(0, 0.5, 0.2, waits={gpu(1): 0.3, ELSEWHERE: 0.1, gpu(0): 0.4})
    assert of(job(works(0), works(1), known=around(tapped(times)))) == {
        Spent.COMPUTING: 0.5, Spent.LOCAL_RANK: 0.15, Spent.OTHER_NODE: 0.05, Spent.WIRE: 0.3,
    }  # fmt: skip


def test_collectives_take_no_more_time_than_something_runs() -> None:
    times = time_of(0, 0.8, 0.4, waits={gpu(1): 0.4})
    found = of(job(sight(0.4, 300.0, 100), works(1), known=around(tapped(times))))
    assert found == {Spent.IDLE: 0.6, Spent.LOCAL_RANK: 0.2, Spent.WIRE: 0.2}


@pytest.mark.parametrize(
    ("changes", "span"),
    [
        ({"measured": False}, (BEGIN - 8.0, BEGIN - 2.0)), ({}, (BEGIN - 36.1, BEGIN - 30.1)),
        ({"gpu": gpu(5)}, (BEGIN - 8.0, BEGIN - 2.0)),
    ],
    ids=["nothing was timed", "an old window", "times of another GPU"],
)  # fmt: skip
def test_times_that_do_not_speak_for_now_are_no_evidence(
    changes: dict[str, Any], span: tuple[float, float]
) -> None:
    timed = tapped(replace(time_of(0, 0.2), **changes), span=span)
    assert of(job(works(0), works(1), known=around(timed))) == NOBODY


def test_activity_bounds_computing_from_below_and_the_rest_is_not_attributed() -> None:
    known = LedgerSurroundings(activity=active(0.9), seen=BEGIN)
    least = round((0.9 - NCCL_SMS) / (1 - NCCL_SMS), 3)
    found = of(job(works(0), works(1), known=known))
    assert found == {Spent.COMPUTING: least, Spent.NOT_ATTRIBUTED: round(1 - least, 3)}
    assert of(job(works(0), works(1), known=replace(known, seen=BEGIN - 30.1))) == NOBODY
    quiet = LedgerSurroundings(activity=active(NCCL_SMS), seen=BEGIN)
    assert of(job(works(0), works(1), known=quiet)) == NOBODY


def test_computing_beside_collectives_is_no_waiting() -> None:
    """Buckets of DDP beside the backward pass: 60 % in collectives, and the SMs are busy for 92 %."""
    times = time_of(0, 0.6, 0.3, waits={gpu(1): 0.3})
    known = around(tapped(times), activity=active(0.92), seen=BEGIN)
    computing = 0.92 - 0.6 * NCCL_SMS
    found = of(job(works(0), works(1), known=known))
    assert found[Spent.COMPUTING] == round(computing, 3)
    assert found[Spent.LOCAL_RANK] == pytest.approx((1 - computing) / 2, abs=1e-3)
    assert found[Spent.WIRE] == pytest.approx((1 - computing) / 2, abs=1e-3)


def test_where_calls_are_not_timed_the_rest_of_the_busy_time_is_not_called_computing() -> None:
    """A GPU that sends, or replays graphs, may wait in these: only GPM shows that it computes."""
    times = time_of(0, 0.3, 0.2, waits={gpu(1): 0.2}, beyond=0.0)
    partly = replace(tapped(times), partly=frozenset({gpu(0)}))
    other = replace(partly, partly=frozenset({gpu(1)}))
    found = split(gpu(0), job(works(0), works(1), known=around(partly)))
    assert rounded(found) == {Spent.NOT_ATTRIBUTED: 0.7, Spent.LOCAL_RANK: 0.2, Spent.WIRE: 0.1}
    assert found.waiting == 0.0
    assert of(job(works(0), works(1), known=around(other)))[Spent.COMPUTING] == 0.7
    known = around(partly, activity=active(0.9), seen=BEGIN)
    seen = of(job(works(0), works(1), known=known))
    assert seen[Spent.COMPUTING] == round((0.9 - NCCL_SMS) / (1 - NCCL_SMS), 3)
    assert sum(seen.values()) == pytest.approx(1.0, abs=2e-3)


def test_timed_waiting_for_a_gpu_of_another_job_is_for_nobody_who_is_known() -> None:
    times = time_of(0, 0.5, 0.3, waits={gpu(7): 0.3})
    found = split(gpu(0), job(works(0), works(1), known=around(tapped(times))))
    assert (found.waits, round(found.waiting, 3)) == ({}, 0.3)


# A GPU that jobs share


def test_the_busy_time_of_a_gpu_that_jobs_share_is_nobodys() -> None:
    times = time_of(0, 0.2)
    known = around(tapped(times), activity=active(0.9), seen=BEGIN)
    shared = job(sight(0.7, 600.0, 100, 200), works(1), known=known, shared=frozenset({gpu(0)}))
    assert of(shared) == {Spent.IDLE: 0.3, Spent.NOT_ATTRIBUTED: 0.7}
    spins = job(sight(1.0, 125.0, 100, 200), works(1), known=known, shared=frozenset({gpu(0)}))
    assert of(spins) == NOBODY


def test_a_job_of_one_gpu_has_nobody_to_wait_for() -> None:
    alone, beside = job(spinning(0)), job(spinning(0), idle(1))
    assert split(gpu(0), alone).waiting == 0.0
    assert of(alone) == NOBODY
    assert waits(beside) == {gpu(1): 1.0}


def test_a_gpu_that_jobs_share_is_not_named_for_not_spinning() -> None:
    assert waits(job(spinning(0), works(1))) == {gpu(1): 1.0}
    assert waits(job(spinning(0), works(1), shared=frozenset({gpu(1)}))) == {}
