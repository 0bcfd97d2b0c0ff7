"""How processes spend idle time, in words, and which ranks are behind; each guard alone."""

from dataclasses import replace
from typing import Any

import pytest

from tests.node.jobs.ledgerlooks import (
    BEGIN,
    DENIED,
    UNREAD,
    around,
    comm,
    idle,
    job,
    pid,
    process,
    rank,
    sight,
    spinning,
    tapped,
    works,
)
from tests.rows import each
from wirewatch.core.jobs import RingState
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.ledger.doing import added, doing, doing_words, part_of, ranks_behind, together
from wirewatch.jobs.ledger.model import Doing, GpuSight, ProcessSight
from wirewatch.jobs.ledger.spent import RankBehind
from wirewatch.jobs.ledger.split import JobNow

THEN = process("S", 100.0, read=0, written=0)
MB = 1_000_000


def said(then: Any, now: Any, seconds: float = 2.0) -> str:
    return doing_words(doing(then, now, seconds))


@each(
    ("now", "text"),
    [
        (process("S", 100.0), "sleeps"),
        (process("S", 100.19), "sleeps"),
        (process("S", 100.2), "burns 10 % of a core"),
        (process("R", 101.96), "burns 98 % of a core"),
        (process("R", 106.0), "burns 300 % of a core"),
        (process("D", 100.0), "in state D"),
        (process("D", 100.1, written=460 * MB), "in state D, writes 230 MB/s"),
        (process("D", 101.2, read=2 * MB), "in state D, reads 1 MB/s, burns 60 % of a core"),
        (process("S", 100.8, read=2 * MB - 1, written=2 * MB), "writes 1 MB/s"),
        (process("T", 100.0), "stopped"),
        (process("t", 100.0), "stopped"),
        (process("Z", 100.0), "stopped"),
    ],
)
def test_what_a_process_does_in_words(now: ProcessSight, text: str) -> None:
    assert said(THEN, now) == text


@each(
    ("then", "now"),
    [
        (THEN, DENIED), (THEN, None), (None, THEN), (DENIED, THEN), (THEN, process("S", 100.0, began=11.0)),
        (THEN, process("S", 99.0)), (THEN, process("S", DENIED)), (process("S", DENIED), THEN),
    ],
    ids=["hidden", "gone", "new", "was hidden", "its id is used again", "a clock that runs back", "no time",
         "had no time"],
)  # fmt: skip
def test_what_cannot_be_read_is_said_so_and_never_sleeps(then: Any, now: Any) -> None:
    assert said(then, now) == "not readable"


def test_a_state_is_known_without_cpu_time() -> None:
    for state, text in (("D", "in state D"), ("T", "stopped"), ("S", "not readable")):
        assert said(None, process(state, DENIED)) == text


def test_bytes_that_cannot_be_read_are_not_said_to_be_none() -> None:
    assert said(replace(THEN, read=DENIED), process("D", 100.0, read=DENIED, written=DENIED)) == "in state D"


def test_no_time_has_no_words() -> None:
    assert doing_words(Doing()) == ""


def test_processes_of_one_gpu_are_taken_together() -> None:
    one, two = doing(THEN, process("D", 100.5), 2.0), doing(THEN, process("S", 101.5), 2.0)
    assert doing_words(together([one, two])) == "in state D, burns 100 % of a core"
    assert doing_words(together([one, doing(THEN, DENIED, 2.0)])) == "not readable"
    assert together([]) == Doing()


def test_what_is_done_one_after_the_other_adds_up() -> None:
    sleeps, burns = doing(THEN, process("S", 100.0), 2.0), doing(THEN, process("R", 102.0), 2.0)
    assert doing_words(added([sleeps, burns])) == "burns 50 % of a core"
    # A GPU that was idle for all of the first look and a tenth of the second.
    assert doing_words(added([sleeps, part_of(burns, 0.1)])) == "sleeps"


def test_half_the_time_decides_what_is_said() -> None:
    blocked, other = doing(THEN, process("D", 100.0), 2.0), doing(THEN, process("S", 100.0), 2.0)
    assert doing_words(added([blocked, other])) == "sleeps"
    assert doing_words(added([blocked, other, blocked])) == "in state D"
    hidden = doing(THEN, DENIED, 2.0)
    assert doing_words(added([hidden, other])) == "sleeps"
    assert doing_words(added([hidden, hidden, other])) == "not readable"


# Ranks behind

OLD = BEGIN - 9.0


def behind(now: JobNow, then: Any = None, seen: Any = None) -> list[RankBehind]:
    return list(ranks_behind(now, then or {}, seen or {}, 2.0))


def stalled(*ranks: Any, **changes: Any) -> JobNow:
    """Rank 1 is behind, and its GPU idle; the others spin."""
    known = around(tapped(comms=[comm(*ranks)], numbers=range(3)))
    return replace(job(spinning(0), idle(1), spinning(2), known=known), **changes)


RANKS = (rank(0, 9, OLD), rank(1, 7, OLD), rank(2, 9, OLD))


def test_the_rank_that_is_behind_is_named_with_what_it_does() -> None:
    burns = {pid(1): THEN}, {pid(1): process("R", 101.96)}
    assert behind(stalled(*RANKS), *burns) == [
        RankBehind(1, "c0", "GPU-1", "1", 101, 2, 9.0, "burns 98 % of a core")
    ]


def test_what_waiting_ranks_do_is_not_asked() -> None:
    """Their CPU time says nothing: they may spin."""
    (found,) = behind(stalled(*RANKS), {pid(0): THEN}, {pid(0): process("R", 102.0)})
    assert (found.rank, found.does) == (1, "not readable")


@each(
    ("ranks", "named"),
    [
        ((rank(0, 9, OLD), rank(1, 9, OLD), rank(2, 9, OLD)), []),
        ((rank(0, 9, OLD), rank(1, 7, BEGIN - 3.9), rank(2, 9, OLD)), []),
        ((rank(0, 9, OLD), rank(1, 7, BEGIN - 4.0), rank(2, 9, OLD)), [1]),
        ((rank(0, 9, OLD), rank(1, 7, OLD), rank(2, 8, OLD)), [1]),
        ((rank(0, 7, OLD), rank(1, 7, OLD), rank(2, 9, OLD)), [1]),
    ],
    ids=["all are equal", "its call is young", "just old enough", "two are behind, one further",
         "one of those that are behind spins itself"],
)  # fmt: skip
def test_a_guard_alone_decides_who_is_behind(ranks: tuple[Any, ...], named: list[int]) -> None:
    assert [one.rank for one in behind(stalled(*ranks))] == named


def test_two_ranks_that_are_behind_alike_are_both_named() -> None:
    now = stalled(rank(0, 9, OLD), rank(1, 7, OLD), rank(2, 7, OLD))
    now = replace(now, sights={**now.sights, "GPU-2": works(2)})
    assert [one.rank for one in behind(now)] == [1, 2]


def test_nobody_is_behind_while_nobody_waits() -> None:
    """The first ranks work on: they have enqueued ahead and wait for nobody yet."""
    now = stalled(*RANKS)
    working = {"GPU-0": works(0), "GPU-1": idle(1), "GPU-2": works(2)}
    assert behind(replace(now, sights=working)) == []


@pytest.mark.parametrize(("event", "named"), [(BEGIN - 1.0, [1]), (BEGIN - 0.9, [])])
def test_where_use_is_not_known_a_first_rank_without_calls_waits(event: float, named: list[int]) -> None:
    now = stalled(rank(0, 9, event), rank(1, 7, OLD), rank(2, 8, OLD))
    unread: dict[str, GpuSight | Absent] = {"GPU-0": UNREAD, "GPU-1": idle(1), "GPU-2": works(2)}
    assert [one.rank for one in behind(replace(now, sights=unread))] == named


def test_old_counts_name_nobody() -> None:
    known = around(tapped(comms=[comm(*RANKS)], numbers=range(3)), counted=BEGIN - 6.1)
    assert behind(job(spinning(0), idle(1), spinning(2), known=known)) == []


def test_a_rank_whose_process_has_ended_is_said_so() -> None:
    ranks = (RANKS[0], replace(RANKS[1], state=RingState.DEAD), RANKS[2])
    assert [one.does for one in behind(stalled(*ranks))] == ["its process has ended"]


def test_a_rank_without_process_and_gpu_is_named_as_far_as_it_is_known() -> None:
    odd = replace(RANKS[1], gpu=Absent(Why.MISSING), pid=Absent(Why.MISSING), index="")
    (found,) = behind(stalled(RANKS[0], odd, RANKS[2]))
    assert (found.gpu, found.pid, found.does) == ("", None, "")


def test_ranks_of_other_communicators_are_not_compared() -> None:
    known = around(tapped(comms=[comm(rank(0, 9, OLD), name="a"), comm(rank(1, 7, OLD), name="b")]))
    assert behind(job(spinning(0), sight(0.0, 100.0, 101), known=known)) == []
