"""The limits of what is said of a job: each a little above, and a little below."""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.node.jobs.ringjobs import AROUND, gaps_of, joined_of, uuid
from tests.rows import each
from wirewatch.core.jobs import Ring, RingCounts, RingReading, RingsReading, RingState, TimedCollective
from wirewatch.core.probe import MIB, Conditions
from wirewatch.core.types import Absent, Ok, Why
from wirewatch.jobs.running.confirm import (
    LateVotes,
    chance,
    elsewhere,
    late_rank,
    late_votes,
    slow_rows,
    slow_wire,
)
from wirewatch.jobs.running.expected import conditions_of
from wirewatch.jobs.running.join import RankRecords, records_of
from wirewatch.jobs.running.judge import judge_rings
from wirewatch.jobs.running.model import (
    MOST_ROWS,
    CommunicatorMemory,
    JobsMemory,
    JobsPolicy,
    JobsReading,
    JoinedCollective,
    RankMeeting,
    References,
)
from wirewatch.jobs.running.parallel import RankNames
from wirewatch.jobs.running.windows import Shape, best_times, roll, vote, window_of
from wirewatch.jobs.times import CommunicatorWindow, JobRank, OperationTimes

POLICY = JobsPolicy()
SHAPE = Shape(2, frozenset({0, 1}))
STEP = 0.1


def joined(count: int, *, late: int, gap: float, wire: float = 1e-3) -> tuple[JoinedCollective, ...]:
    """So many collectives, one each 0.1 s; in the first `late` of ten rank 1 is late by `gap` seconds."""
    return tuple(
        JoinedCollective(
            "all_reduce", n, 256 * MIB, "RING", "SIMPLE", 24, n * STEP,
            {0: wire + gap, 1: wire} if n % 10 < late else {0: wire, 1: wire + gap},
        )
        for n in range(count)
    )  # fmt: skip


def window(found: Sequence[JoinedCollective]) -> CommunicatorWindow:
    return window_of(CommunicatorMemory(window=tuple(found)), SHAPE, POLICY)[0]


@pytest.mark.parametrize(("late", "named"), [(10, 1), (8, 1), (7, None), (5, None)])
def test_a_rank_is_late_by_four_fifths_of_a_window(late: int, named: int | None) -> None:
    assert window(joined(40, late=late, gap=0.02)).late == named


@pytest.mark.parametrize(("gap", "named"), [(0.0055, 1), (0.0045, None)])
def test_a_late_rank_costs_more_than_healthy_gpus_cost_each_other(gap: float, named: int | None) -> None:
    found = window(joined(40, late=10, gap=gap))
    assert found.late == named
    assert found.cost == pytest.approx(gap / STEP if named else 0.0)


@each(
    ("seconds", "named"),
    [
        ({0: 1.06e-3, 1: 1e-3}, 1),
        ({0: 1.04e-3, 1: 1e-3}, None),
        ({0: 14e-6, 1: 10e-6}, 1),
        ({0: 12e-6, 1: 10e-6}, None),
        ({0: 3e-3, 1: 2e-3, 2: 1.001e-3, 3: 1e-3}, None),
        ({3: 1.0}, None),
    ],
)
def test_a_vote_takes_a_clear_distance_to_the_next_rank(seconds: dict[int, float], named: int | None) -> None:
    assert vote(seconds, POLICY) == named


def test_three_windows_of_the_last_four_must_agree() -> None:
    bad, good = window(joined(40, late=10, gap=0.02)), window(joined(40, late=5, gap=0.02))
    sure = dict.fromkeys(range(12), 1)
    assert late_votes([bad, bad], sure, 2, POLICY) is None
    assert late_votes([bad, good, good, bad], sure, 2, POLICY) is None
    found = late_votes([good, bad, bad, bad], sure, 2, POLICY)
    assert found is not None
    assert (found.rank, found.windows, found.of, found.votes, found.voted) == (1, 3, 4, 140, 160)
    assert late_votes([bad, bad, bad, good, good], sure, 2, POLICY) is None


GOOD, BAD, OTHER = (
    CommunicatorWindow(0.0, 5.0, (), (), late, cost) for late, cost in ((None, 0.0), (1, 0.2), (0, 0.2))
)
CHEAP = replace(BAD, cost=0.12)


@pytest.mark.parametrize(
    ("guard", "windows", "slots", "cost"),
    [
        ("three of eight, a pause between all", [BAD, GOOD, GOOD, BAD, GOOD, GOOD, BAD, GOOD], 12, 0.075),
        ("as long a pause as before", [BAD, GOOD, GOOD, BAD, BAD, GOOD, GOOD], 12, 0.6 / 7),
        ("it is over", [BAD, GOOD, BAD, BAD, GOOD, GOOD], 12, None),
        ("it never paused, and is over", [GOOD, GOOD, GOOD, BAD, BAD, BAD, GOOD, GOOD], 12, None),
        ("two of eight", [BAD, GOOD, GOOD, GOOD, GOOD, GOOD, GOOD, BAD], 12, None),
        ("another rank too", [BAD, GOOD, OTHER, BAD, GOOD, GOOD, BAD, GOOD], 12, None),
        ("it costs too little", [CHEAP, GOOD, GOOD, CHEAP, GOOD, GOOD, CHEAP, GOOD], 12, None),
        ("too few moments", [BAD, GOOD, GOOD, BAD, GOOD, GOOD, BAD, GOOD], 9, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_who_is_late_now_and_then(
    guard: str, windows: Sequence[CommunicatorWindow], slots: int, cost: float | None
) -> None:
    """Of a job that is as fast as ever between its stalls; most of its moments name nobody."""
    moments = {n: 1 if n % 3 == 0 else None for n in range(3 * slots)}
    found = late_votes(windows, moments, 2, POLICY)
    assert (found and (found.rank, round(found.cost, 6))) == (cost and (1, round(cost, 6))), guard


@each(
    ("ranks", "slots", "named"),
    [
        (2, [1] * 10, True),
        (2, [1] * 9, False),
        (4, [1] * 7, True),
        (4, [1] * 6, False),
        (2, [0] * 20 + [1] * 10, True),
        (2, [1] * 20 + [0, 1, 1, 1], True),
        (2, [1, 0] * 20, False),
        (2, [1, None] * 9, False),
        (2, [1, None] * 10, True),
        (2, [1, None, 0] * 20, False),
    ],
)
def test_a_few_moments_of_a_job_are_chance(ranks: int, slots: list[int | None], *, named: bool) -> None:
    """However many collectives each of them has: in one step all buckets of a rank are behind together."""
    bad = window(joined(400, late=10, gap=0.02))
    assert (late_votes([bad] * 4, dict(enumerate(slots)), ranks, POLICY) is not None) is named


def test_who_is_late_in_most_of_a_moment_is_counted_once() -> None:
    memory = CommunicatorMemory(begun=0.0, window=joined(40, late=6, gap=0.02))
    assert roll(memory, SHAPE, 5.0, POLICY).slots == {0: 1, 1: 1}
    scattered = CommunicatorMemory(begun=0.0, window=joined(40, late=5, gap=0.02))
    assert roll(scattered, SHAPE, 5.0, POLICY).slots == {0: None, 1: None}


def test_chance_is_never_below_the_binomial_tail() -> None:
    assert chance(24, 24, 0.5) == pytest.approx(2**-24)
    assert chance(20, 24, 0.5) > 0.000_77
    assert chance(12, 24, 0.5) == chance(3, 24, 0.5) == chance(0, 0, 0.5) == 1.0


def slow(ratio: float, **values: object) -> CommunicatorWindow:
    row = OperationTimes(
        op="all_reduce", size_bytes=256 * MIB, ranks=4, joined=10, calls=10, bytes=256 * MIB,
        wire_seconds=1e-3, low=1e-3, high=1e-3, algorithm="RING", protocol="SIMPLE", channels=24,
        busbw=1e9 * ratio, best=1e9 * ratio, expected=1e9, trusted=True,
    )  # fmt: skip
    made = {name: getattr(row, name) for name in row.__dataclass_fields__} | values
    return CommunicatorWindow(0.0, 5.0, (OperationTimes(**made),), ())


@each(
    ("one", "said"),
    [
        (slow(0.69), True),
        (slow(0.71), False),
        (slow(0.77, other_way=True), True),
        (slow(0.79, other_way=True), False),
        (slow(0.34, trusted=False), True),
        (slow(0.36, trusted=False), False),
        (slow(0.69, trusted=False, other_way=True), True),
        (slow(0.71, trusted=False, other_way=True), False),
        (slow(0.3, joined=3), False),
        (slow(0.3, joined=4), True),
        (slow(0.3, votes={2: 8}, waits={0: 0.4e-3, 2: 0.0}), False),
        (slow(0.3, votes={2: 8, 1: 2}, waits={0: 0.4e-3, 2: 0.0}), False),
        (slow(0.3, votes={2: 7, 1: 3}), True),
        (slow(0.3, waits={0: 0.4e-3, 2: 0.0}), True),
        (replace(slow(0.3, waits={0: 0.4e-3, 2: 0.0}), late=2), False),
        (slow(0.3, votes={2: 10}, waits={0: 0.3e-3, 2: 0.0}), True),
        (slow(0.3, votes={2: 10}, waits={0: 0.4e-3, 2: 0.0}), False),
        (replace(slow(0.3, votes={2: 10}, waits={0: 0.3e-3, 2: 0.0}), late=2), True),
        (replace(slow(0.3, votes={2: 10}, waits={0: 0.4e-3, 2: 0.0}), late=2), False),
        (slow(0.71, votes={2: 10}, waits={0: 0.0, 2: 0.0}), False),
    ],
)
def test_a_wire_is_slow_below_its_limit_where_nobody_is_late_or_it_costs_far_more(
    one: CommunicatorWindow, *, said: bool
) -> None:
    """With P2P off one of two H200 was always last, by too little to be named, and the wire was not named."""
    assert bool(slow_rows([one] * 3, POLICY)) is said
    assert slow_rows([one] * 2, POLICY) == ()


def test_a_slow_wire_says_who_is_always_last() -> None:
    waits = {0: 0.3e-3, 2: 0.0}
    (one,) = slow_rows([slow(0.3, votes={2: 10}, waits=waits)] * 3, POLICY)
    assert (
        "on all ranks alike, and waiting for rank 2, the last, costs far less" in slow_wire(one, 0.0, ()).text
    )
    (other,) = slow_rows([slow(0.3)] * 3, POLICY)
    assert "on all ranks alike, and nobody is late" in slow_wire(other, 0.0, ()).text


def test_a_window_closes_when_it_is_full_or_has_waited_long() -> None:
    few, many = joined(4, late=0, gap=0.0), joined(8, late=0, gap=0.0)
    begun = CommunicatorMemory(begun=100.0, window=many)
    assert roll(begun, SHAPE, 104.9, POLICY).windows == ()
    assert len(roll(begun, SHAPE, 105.0, POLICY).windows) == 1
    slow_job = CommunicatorMemory(begun=100.0, window=few)
    assert roll(slow_job, SHAPE, 219.0, POLICY).window == few
    assert len(roll(slow_job, SHAPE, 220.0, POLICY).windows) == 1
    none = roll(CommunicatorMemory(begun=100.0, window=few[:3]), SHAPE, 220.0, POLICY)
    assert (none.windows, none.window, none.begun) == ((), (), 220.0)
    assert roll(begun, SHAPE, 50.0, POLICY).begun == 50.0


def call(number: int, sequence: int, size: int | None = MIB) -> TimedCollective:
    return TimedCollective(
        number, "all_reduce", sequence, size, "float32", "RING", "SIMPLE", 24, 1e-3, 0.0, 1e-3, float(number)
    )


def records(rank: int, *sequences: int) -> RankRecords:
    return RankRecords(rank, tuple(call(n, sequence) for n, sequence in enumerate(sequences, 1)))


BOTH = frozenset({0, 1})


def test_what_all_ranks_timed_is_joined_and_the_rest_is_counted() -> None:
    memory = joined_of(CommunicatorMemory(), (records(0, 1, 2, 3), records(1, 2, 3, 4)), BOTH, 1)
    assert [one.sequence for one in memory.window] == [2, 3]
    assert memory.joined == 2
    memory = joined_of(memory, (records(0, 4), records(1)), BOTH, 2)
    assert [one.sequence for one in memory.window] == [2, 3, 4]
    memory = joined_of(memory, (records(0), records(1)), BOTH, 3)
    assert (memory.joined, memory.partial, memory.pending) == (3, 1, {})
    late = joined_of(memory, (records(0), records(1, 1)), BOTH, 4)
    assert late.window == memory.window


def test_of_a_window_and_of_what_waits_only_so_much_is_kept() -> None:
    """Every second joined collective goes, again and again; of those that wait the newest stay."""
    both, alone = range(1, 41), range(41, 61)
    memory = joined_of(CommunicatorMemory(), (records(0, *both, *alone), records(1, *both)), BOTH, 1, most=4)
    assert (memory.joined, len(memory.window), memory.stride) == (40, 3, 16)
    assert [number for _, number in memory.pending] == [57, 58, 59, 60]


def test_many_communicators_share_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[judge_rings.__module__], "FEWEST_JOINED", 2)
    monkeypatch.setattr(sys.modules[judge_rings.__module__], "JOINED_IN_ALL", 8)
    for many, most in ((1, 8), (2, 4), (16, 2)):
        every = [one for number in range(many) for one in timed_by_both(number)]
        reading = JobsReading(RingsReading(tuple(every)))
        judged = judge_rings(JobsMemory(), Ok(reading, 1.0, 1.0), JobsPolicy())
        kept = [len(one.window) for one in judged.memory.communicators.values()]
        assert len(kept) == many
        assert 0 < max(kept) <= most


@pytest.mark.parametrize(("most", "rows"), [(MOST_ROWS, 3), (2, 2)])
def test_of_the_rows_of_a_window_those_that_took_most_time_are_kept(most: int, rows: int) -> None:
    several = enumerate(joined(12, late=0, gap=0.0))
    wires = [(number % 3, 1e-3 * (number % 3 + 1), one) for number, one in several]
    sizes = [replace(one, bytes=MIB << size, seconds={0: wire, 1: wire}) for size, wire, one in wires]
    memory = CommunicatorMemory(window=tuple(sizes), begun=0.0)
    found, _ = window_of(memory, SHAPE, POLICY, most)
    assert [row.bytes for row in found.collectives] == [MIB, 2 * MIB, 4 * MIB][-rows:]


def test_many_communicators_share_the_rows_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    module = sys.modules[judge_rings.__module__]

    def rolled(memory: CommunicatorMemory, *rest: Any) -> CommunicatorMemory:
        given.append(rest[-1])
        return memory

    monkeypatch.setattr(module, "roll", rolled)
    for many in (1, 64, 1000):
        every = [one for number in range(many) for one in timed_by_both(number)]
        judge_rings(JobsMemory(), Ok(JobsReading(RingsReading(tuple(every))), 1.0, 1.0), JobsPolicy())
    assert sorted(set(given)) == [2, 8, MOST_ROWS], "of 1000 communicators 256 are followed"


def timed_by_both(communicator: int) -> list[RingReading]:
    """The rings of two ranks that timed twenty collectives."""
    made = rings((0, "GPU-0"), (1, "GPU-1")).rings
    assert isinstance(made, RingsReading)
    calls = tuple(call(number, number) for number in range(1, 21))
    return [
        RingReading(
            replace(one.ring, name=f"{communicator}-{one.ring.name}", communicator=communicator), calls
        )
        for one in made.rings
    ]


def test_a_record_of_another_rank_is_in_no_collective() -> None:
    memory = joined_of(CommunicatorMemory(), (records(0, 1), records(1, 1), records(2, 1)), BOTH, 1)
    assert [set(one.seconds) for one in memory.window] == [BOTH]


def rings(*ranks: tuple[int, str]) -> JobsReading:
    """One communicator of these ranks and GPUs, of which nothing is timed now."""
    made = (
        Ring(f"r{rank}", 1, 2, rank, 1, gpu, rank, rank, 1000, 0.0, RingState.LIVE, RingCounts())
        for rank, gpu in ranks
    )
    return JobsReading(RingsReading(tuple(RingReading(one) for one in made)))


REMEMBERED = replace(
    joined_of(CommunicatorMemory(), (records(0, 1, 2, 9), records(1, 1, 2)), BOTH, 1),
    ranks=((0, "GPU-0"), (1, "GPU-1")), begun=100.0, seen=2, stride=2,
    windows=(window(joined(8, late=0, gap=0.0)),),
    closed=99.0, slots={9: 1}, met=(RankMeeting(1, 0.1, 0.1),), even=({0: 0.0, 1: 0.1},),
)  # fmt: skip
OF_RANKS = ("pending", "window", "seen", "stride", "windows", "closed", "slots", "met", "even")
"""Fields of a communicator's memory that hold for its ranks alone."""


@pytest.mark.parametrize(
    ("ranks", "kept"),
    [
        (((0, "GPU-0"), (1, "GPU-1")), True),
        (((0, "GPU-0"), (1, "GPU-2")), False),
        (((0, "GPU-0"),), False),
    ],
    ids=["the same", "a rank on another GPU", "a rank less"],
)
def test_nothing_of_other_ranks_comes_into_a_window(ranks: Sequence[tuple[int, str]], *, kept: bool) -> None:
    before = JobsMemory(communicators={("user:1000", 1): REMEMBERED})
    memory = judge_rings(before, Ok(rings(*ranks), 1.0, 101.0), POLICY).memory.communicators["user:1000", 1]
    assert memory.ranks == tuple(ranks)
    for name in OF_RANKS:
        new = getattr(REMEMBERED if kept else CommunicatorMemory(), name)
        assert getattr(memory, name) == new, name
    assert memory.begun == (100.0 if kept else 101.0)
    assert memory.ended == REMEMBERED.ended


@each(
    ("guard", "gpus", "nodes", "expects"),
    [
        ("all GPUs of the node", range(8), 1, 8),
        ("some of them", (1, 4), 1, 2),
        ("a GPU that this node does not know", (1, 4, 9), 1, 0),
        ("one GPU", (1,), 1, 0),
        ("no GPU that is known", (8, 9), 1, 0),
        ("ranks on other nodes", (1, 4), 2, 0),
    ],
)
def test_bus_bandwidth_is_expected_of_just_the_gpus_of_a_communicator(
    guard: str, gpus: Sequence[int], nodes: int, expects: int
) -> None:
    found = conditions_of(AROUND, [uuid(number) for number in gpus], nodes, {})
    if not expects:
        assert isinstance(found, Absent), guard
    else:
        assert isinstance(found, Conditions)
        assert [gpu.index for gpu in found.group.gpus] == list(gpus), guard


def test_a_number_that_comes_twice_is_a_replay_and_is_not_joined() -> None:
    memory = joined_of(CommunicatorMemory(), (records(0, 5, 5, 6), records(1, 5, 5, 6)), BOTH, 1)
    assert [one.sequence for one in memory.window] == [6]
    assert memory.replayed == 1


def test_ranks_that_do_not_agree_on_the_size_leave_it_unknown() -> None:
    odd = RankRecords(1, (call(1, 7, 2 * MIB),))
    memory = joined_of(CommunicatorMemory(), (records(0, 7), odd), BOTH, 1)
    assert [one.bytes for one in memory.window] == [None]


def test_many_records_are_thinned_alike_on_all_ranks() -> None:
    def ring(rank: int, first: int) -> RingReading:
        about = Ring(
            f"r{rank}", 1, 2, rank, 1, f"GPU-{rank}", rank, rank, 1000, 0.0, RingState.LIVE, RingCounts()
        )
        return RingReading(about, tuple(call(n, n) for n in range(first, first + 4000)))

    found = records_of((ring(0, 0), ring(1, 700)))
    kept = [{one.sequence for one in rank.calls} for rank in found]
    assert len(kept[0]) == 512
    assert kept[0] & set(range(700, 4000)) == kept[1] & set(range(4000))
    assert sum(n + 1 in kept[0] for n in kept[0]) == 496  # most are next to each other


def spaced(*found: tuple[str, int, float]) -> dict[tuple[str, int], dict[int, TimedCollective]]:
    """Each of (operation, number, start) takes a second on rank 0, and begins 0.5 s later on rank 1."""
    return {
        (op, sequence): {
            rank: replace(call(1, sequence), op=op, started=start + 0.5 * rank, stopped=start + 1.0)
            for rank in BOTH
        }
        for op, sequence, start in found
    }


def test_gaps_are_of_what_follows_each_other_by_every_operations_numbers() -> None:
    found = gaps_of(
        spaced(
            ("all_reduce", 4, 0.0), ("all_reduce", 5, 3.0), ("all_gather", 9, 6.0), ("all_gather", 10, 9.0),
            ("all_reduce", 6, 10.0), ("all_gather", 12, 15.0), ("all_reduce", 7, 18.0),
        ), BOTH,
    )  # fmt: skip
    # Of the second all_gather on nothing is missing, until number 11 is, somewhere before number 12.
    assert found == {("all_gather", 10): 2.25, ("all_reduce", 7): 2.25}


def test_gaps_by_clocks_that_hold_nonsense_are_none() -> None:
    odd = spaced(("all_reduce", 4, 0.0), ("all_reduce", 5, math.inf), ("all_reduce", 6, math.nan))
    assert gaps_of(odd, BOTH) == {}
    assert gaps_of(spaced(("all_reduce", 4, 0.0), ("all_reduce", 5, 1e308)), BOTH) == {}
    assert gaps_of({}, BOTH) == gaps_of({}, frozenset()) == {}
    assert gaps_of(spaced(("all_reduce", 4, 0.0), ("all_reduce", 5, 0.5)), BOTH) == {("all_reduce", 5): 0.0}


def named(*late: int | None, grown: float | None = None, cost: float = 0.2) -> list[CommunicatorWindow]:
    """Windows that each name such a rank."""
    made = window(joined(40, late=10, gap=0.02))
    return [replace(made, late=rank, cost=cost, grown=grown) for rank in late]


@pytest.mark.parametrize(
    ("guard", "windows", "rank"),
    [
        ("the rank that most windows name", named(0, 1, 1, 1), 1),
        ("and not one that fewer name", named(1, 0, 0, 0), 0),
        ("nobody", named(None, None, None, None), None),
        ("too few name it", named(1, 1, None, None), None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_who_is_believed_to_be_late(
    guard: str, windows: Sequence[CommunicatorWindow], rank: int | None
) -> None:
    found = late_votes(windows, dict.fromkeys(range(12), rank), 2, POLICY)
    assert (None if found is None else found.rank) == rank, guard


def test_what_a_late_rank_costs_and_how_far_it_fell_behind_is_of_the_windows_that_name_it() -> None:
    windows = [*named(0, cost=0.5, grown=0.5), *named(1, 1, cost=0.1, grown=0.08), *named(1, cost=0.2)]
    found = late_votes(windows, dict.fromkeys(range(12), 1), 2, POLICY)
    assert found is not None
    assert (found.cost, found.grown) == (0.1, 0.08)
    unknown = late_votes(named(1, 1, 1), dict.fromkeys(range(12), 1), 2, POLICY)
    assert unknown is not None
    assert unknown.grown is None


@pytest.mark.parametrize(
    ("grown", "said"),
    [(0.05, ", and it fell behind by 5% while the job ran"), (0.04, ""), (None, "")],
)
def test_a_rank_is_said_to_have_fallen_behind_where_that_is_most_of_its_cost(
    grown: float | None, said: str
) -> None:
    rank = JobRank(1, "GPU-1", "1", 4001, 4001, "2.28.9", RingState.LIVE, {})
    found = late_rank(LateVotes(1, 3, 4, 240, 266, 0.09, grown), {1: rank}, 0.0, 1, WHOLE)
    assert found.text.endswith(f"; the others lose 9% of the time to it{said}")


@pytest.mark.parametrize(
    ("gpu", "index", "said"),
    [
        ("GPU-1", "5", "rank 1 (GPU 5) is late"),
        ("GPU-1", "", "rank 1 (GPU-1) is late"),
        (Absent(Why.MISSING), "", "rank 1 (a GPU not known) is late"),
    ],
)
def test_a_late_rank_is_said_with_its_gpu_as_far_as_that_is_known(
    gpu: str | Absent, index: str, said: str
) -> None:
    rank = JobRank(1, gpu, index, 4001, 4001, "2.28.9", RingState.LIVE, {})
    assert late_rank(LateVotes(1, 3, 4, 240, 266, 0.09), {1: rank}, 0.0, 1, WHOLE).text.startswith(said)


def test_a_slow_wire_is_said_with_what_is_known_of_it() -> None:
    (plain,) = slow_rows([slow(0.3)] * 3, POLICY)
    text = (
        "all_reduce of 256 MiB on 4 ranks gives 0.3 GB/s at best of 1.0 expected (30%, 3 of 3 windows), "
        "on all ranks alike, and nobody is late (1 to 1 ms"
    )
    assert slow_wire(plain, 0.0, ()).text == f"{text})"
    row = replace(plain.row, explained=("LL", "P2P off"), trusted=False)
    assert slow_wire(replace(plain, row=row), 0.0, ()).text == (
        f"{text}); what is expected there is not sure; LL; P2P off"
    )


def test_operations_whose_wire_is_slow_are_told_the_slowest_first() -> None:
    ops = [slow(ratio, op=op).collectives[0] for op, ratio in (("broadcast", 0.5), ("all_gather", 0.4))]
    windows = [replace(slow(0.3), collectives=tuple(ops))] * 3
    found = slow_rows(windows, POLICY)
    assert [one.row.op for one in found] == ["all_gather", "broadcast"]
    assert [one.ratio for one in found] == pytest.approx([0.4, 0.5])


def across(times: float, op: str = "all_reduce", **but: object) -> CommunicatorWindow:
    """A window in which a collective takes so many times its best, beside one that takes as long as ever."""
    rows = [slow(0.3, wire_seconds=1e-3 * times, op=op), slow(0.3, op="all_gather")]
    return replace(rows[0], collectives=tuple(one.collectives[0] for one in rows), **but)  # type: ignore[arg-type]


SLOW = across(1.6)
WHOLE = RankNames(ranks={1: 1})


def remembered(windows: Sequence[CommunicatorWindow]) -> CommunicatorMemory:
    """A communicator that had these windows, of which eight are kept."""
    best: References = {}
    for one in windows:
        best = best_times(best, one, 32)
    return CommunicatorMemory(windows=tuple(windows[-8:]), best=best)


@pytest.mark.parametrize(
    ("guard", "windows", "nodes", "said"),
    [
        ("three of four windows are slow on all ranks alike", [SLOW, SLOW, across(1.0), SLOW], 2, True),
        ("a little slower is nothing", [across(1.4)] * 4, 2, False),
        ("two windows are few", [SLOW, SLOW, across(1.0), across(1.0)], 2, False),
        ("three windows long ago", [SLOW, SLOW, SLOW, across(1.0), across(1.0)], 2, False),
        ("there is no other node", [SLOW] * 4, 1, False),
        ("the ranks here do not wait alike", [across(1.6, alike=False)] * 4, 2, False),
        ("a rank here is late", [across(1.6, late=1)] * 4, 2, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_another_node_is_waited_for(
    guard: str, windows: Sequence[CommunicatorWindow], nodes: int, *, said: bool
) -> None:
    found = elsewhere(remembered(windows), nodes, POLICY)
    assert bool(found) is said, guard
    assert ("all_reduce of 256 MiB takes 1.6 ms, 1.6 times its best here" in found) is said


def test_another_node_is_waited_for_by_the_best_of_all_windows() -> None:
    long_ago = replace(SLOW, collectives=tuple(replace(row, low=0.5e-3) for row in SLOW.collectives))
    assert "3.2 times its best here" in elsewhere(remembered([long_ago, long_ago, *[SLOW] * 90]), 2, POLICY)
    assert "1.6 times its best here" in elsewhere(remembered([long_ago, *[SLOW] * 4]), 2, POLICY), (
        "one is odd"
    )
    first = elsewhere(remembered([across(9.0)]), 2, replace(POLICY, confirm=1))
    assert first == "", "one window is its own best"


def test_the_best_is_of_the_same_algorithm_and_protocol() -> None:
    row = SLOW.collectives[0]
    other = replace(SLOW, collectives=(replace(row, low=0.5e-3, algorithm="TREE"),))
    assert "1.6 times its best" in elsewhere(remembered([other, other, *[SLOW] * 4]), 2, POLICY)
    assert len(remembered([other, SLOW]).best) == 3
    many = replace(SLOW, collectives=tuple(replace(row, size_bytes=1 << n) for n in range(9)))
    assert [key[1] for key in best_times({}, many, 2)] == [1 << n for n in range(5, 9)]


@pytest.mark.parametrize(
    ("votes", "said"),
    [
        (
            240,
            "rank 1 (GPU 1) is late: last in 240 of 266 collectives of 3 of 4 windows; the others lose 9%",
        ),
        (
            46,
            "rank 1 (GPU 1) is held up: last in 46 of 266 collectives of 3 of 4 windows, by far; the others",
        ),
    ],
)
def test_a_rank_that_is_held_up_in_a_few_collectives_is_not_said_to_be_late_in_all(
    votes: int, said: str
) -> None:
    rank = JobRank(1, "GPU-1", "1", 4001, 4001, "2.28.9", RingState.LIVE, {})
    found = late_rank(LateVotes(1, 3, 4, votes, 266, 0.09), {1: rank}, 0.0, 1, WHOLE)
    assert found.text.startswith(said)
