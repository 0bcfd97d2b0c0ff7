"""Each guard of a window alone: what it says of rows and ranks, who is late in it, and what that costs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from wirewatch.core.probe import ALL_REDUCE, MIB
from wirewatch.core.types import Absent
from wirewatch.jobs.running.lateness import covered, fresh, held_up, lost_by, meetings, overlap
from wirewatch.jobs.running.model import CommunicatorMemory, JobsPolicy, JoinedCollective, RankMeeting
from wirewatch.jobs.running.windows import Shape, roll, vote, window_of
from wirewatch.jobs.times import CommunicatorWindow, OperationTimes

POLICY = JobsPolicy()
TWO, ONE = Shape(2, frozenset({0, 1})), Shape(1, frozenset({0}))
STEP = 0.125
Found = Sequence[JoinedCollective]


def one(number: int, late: float = 0.0, before: float | None = None, **but: Any) -> JoinedCollective:
    """One collective each eighth of a second; rank 1 is so much later than rank 0, or so much before it."""
    seconds = {0: 0.25 + max(0.0, late), 1: 0.25 + max(0.0, -late)}
    made = JoinedCollective(
        ALL_REDUCE, number, 256 * MIB, "RING", "SIMPLE", 24, number * STEP, seconds, before
    )
    return replace(made, **but)


def several(*lates: float, before: float | None = None) -> Found:
    return [one(number, late, before) for number, late in enumerate(lates)]


def window(found: Found, shape: Shape = TWO, **memory: Any) -> CommunicatorWindow:
    return window_of(CommunicatorMemory(window=tuple(found), **memory), shape, POLICY)[0]


def row(found: Found, shape: Shape = TWO) -> OperationTimes:
    (only,) = window(found, shape).collectives
    return only


FULL = several(*[0.0] * 8)


def test_a_window_does_not_end_at_the_moment_in_which_it_begins() -> None:
    memory = CommunicatorMemory(begun=100.0, window=tuple(FULL))
    assert roll(memory, TWO, 100.0, POLICY) == memory


def test_so_many_windows_slots_and_even_windows_are_kept_the_newest() -> None:
    even = [{0: float(number), 1: 0.0} for number in range(8)]
    memory = CommunicatorMemory(
        begun=0.0, window=tuple(FULL), windows=tuple(window(FULL) for _ in range(8)),
        slots=dict.fromkeys(range(-70, 0), 1), even=tuple(even),
    )  # fmt: skip
    new = roll(memory, TWO, 5.0, POLICY)
    assert len(new.windows) == len(new.even) == 8
    assert sorted(new.slots) == list(range(-63, 1))
    assert new.even == (*even[1:], {0: 0.0, 1: 0.0})
    assert (new.closed, new.begun, new.window, new.seen, new.stride) == (5.0, 5.0, (), 0, 1)
    late = replace(memory, window=tuple(several(*[0.0625] * 8)))
    assert roll(late, TWO, 5.0, POLICY).windows[-1].late == 1
    assert roll(late, TWO, 5.0, POLICY).even == tuple(even)


def test_a_window_is_from_its_first_to_its_last_collective() -> None:
    found = window([one(3), one(1), one(9)])
    assert (found.started, found.seconds) == (STEP, 8 * STEP)


def test_calls_are_counted_by_nccl_s_numbers_timed_or_not() -> None:
    found = [one(number, sequence=10 * number, bytes=MIB << number // 5) for number in range(10)]
    small, large = window(found).collectives
    assert (small.calls, large.calls) == (40, 40)
    assert (small.size_bytes, large.size_bytes) == (MIB, 2 * MIB)
    assert row([one(number, at=1.0) for number in range(4)]).calls == 0
    assert window([one(number, at=1.0) for number in range(4)]).ranks[0].in_collectives == 0.0


def test_a_row_is_of_most_of_its_collectives_and_the_median_message() -> None:
    ways = ("TREE", "RING", "RING", "RING")
    found = [one(n, algorithm=way, bytes=256 * MIB + n) for n, way in enumerate(ways)]
    assert (row(found).algorithm, row(found).bytes, row(found).joined) == ("RING", 256 * MIB + 1, 4)
    voted = row(several(0.125, 0.125, -0.125, 0.0))
    assert (voted.votes, voted.undecided) == ({0: 1, 1: 2}, 1)
    assert voted.waits == {0: pytest.approx(0.0625), 1: pytest.approx(0.03125)}


def test_of_many_sizes_those_that_took_most_of_the_time_are_rows() -> None:
    found = [one(n, bytes=1 << n, seconds={0: 1.0 + n, 1: 1.0 + n}) for n in range(40)]
    assert [one.size_bytes for one in window(found).collectives] == [1 << n for n in range(8, 40)]


@pytest.mark.parametrize(
    ("guard", "found", "shape", "busbw"),
    [
        ("as it was timed", one(0, seconds={0: 1e-3, 1: 1e-3}), TWO, 256 * MIB / 1e-3),
        ("no time", one(0, seconds={0: 0.0, 1: 0.0}), TWO, "took no time"),
        ("an operation without a factor", one(0, op="?"), TWO, "no bus bandwidth of ?"),
        ("one rank", one(0, seconds={0: 1e-3}), ONE, "one rank has no bus"),
        ("a size that is not known", one(0, bytes=None), TWO, "does not name the type"),
        ("no size", one(0, bytes=0), TWO, "does not name the type"),
        ("a MiB", one(0, bytes=MIB, seconds={0: 1e-3, 1: 1e-3}), TWO, MIB / 1e-3),
        ("less than a MiB", one(0, bytes=MIB - 1), TWO, "under 1 MiB"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_a_row_has_bus_bandwidth(
    guard: str, found: JoinedCollective, shape: Shape, busbw: float | str
) -> None:
    only = row([found], shape)
    for value in (only.busbw, only.best):
        if isinstance(busbw, str):
            assert isinstance(value, Absent), guard
            assert busbw in value.detail
        else:
            assert value == pytest.approx(busbw), guard


def test_the_best_is_of_the_short_ones_and_the_median_of_all() -> None:
    only = row([one(n, bytes=MIB, seconds={0: n + 1.0, 1: n + 1.0}) for n in range(10)])
    assert (only.low, only.wire_seconds, only.high) == (1.0, 5.0, 9.0)
    assert only.best == pytest.approx(MIB / 2)
    assert only.busbw == pytest.approx(MIB / 6)


def test_one_rank_alone_is_never_late_and_waits_for_nobody() -> None:
    found = window([one(n, seconds={0: 0.0625}) for n in range(8)], ONE)
    (rank,) = found.ranks
    assert (rank.in_collectives, rank.waiting, rank.behind, rank.late) == (0.5, 0.0, 0.0, 0.0)
    assert (found.late, found.alike) == (None, True)


@pytest.mark.parametrize(
    ("alike", "said"),
    [((0.9,) * 4, True), ((0.89,) * 4, False), ((1, 1, 1, 0.5), True), ((1, 1, 0.5, 0.5), False)],
)
def test_all_ranks_wait_alike_where_they_take_as_long_in_most(alike: Sequence[float], *, said: bool) -> None:
    found = [one(n, seconds={0: 1.0, 1: share}) for n, share in enumerate(alike)]
    assert window(found).alike is said


@pytest.mark.parametrize(("late", "named"), [(8, 1), (7, None)])
def test_one_is_late_in_most_where_some_rank_is_late_in_a_fifth(late: int, named: int | None) -> None:
    assert window(several(*[0.125] * late, *[0.0] * (40 - late))).late == named


EVEN = {0: 0.0, 1: -0.05}


@pytest.mark.parametrize(
    ("guard", "behind", "even", "named", "grown"),
    [
        ("it fell behind by more than it costs", 0.04, [EVEN] * 3, 1, 0.09),
        ("it costs too little", 0.029, [EVEN] * 3, None, None),
        ("it fell behind by too little", 0.04, [{0: 0.0, 1: -0.01}] * 3, None, None),
        ("too few windows were even", 0.04, [EVEN] * 2, None, None),
        ("in most of the even windows it was behind already", 0.04,
         [EVEN, {0: 0.0, 1: 0.03}, {0: 0.0, 1: 0.03}, EVEN, {0: 0.0, 1: 0.03}], None, None),
        ("it costs enough, and no window was even", 0.06, [], 1, None),
        ("it costs enough, and was behind already", 0.06, [{0: 0.0, 1: 0.06}] * 3, 1, 0.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_a_rank_that_fell_behind_is_late(
    guard: str, behind: float, even: Sequence[Mapping[int, float]], named: int | None, grown: float | None
) -> None:
    seconds = {0: 0.001 + behind * STEP, 1: 0.001}
    found = window([one(number, seconds=seconds) for number in range(40)], even=tuple(even))
    assert found.late == named, guard
    assert found.cost == pytest.approx(behind if named else 0.0)
    assert found.grown == (None if grown is None else pytest.approx(grown, abs=1e-9))


AHEAD = [one(number, 2.0, 1.0, at=4.0 * number) for number in range(20)]
"""The others compute on while they wait: nothing shows how much of the lateness is new."""


def before(late: int | None) -> tuple[CommunicatorWindow, ...]:
    known = replace(window(FULL), late=late, cost=0.2)
    return (replace(known, late=1, cost=0.3), known)


@pytest.mark.parametrize(
    ("guard", "windows", "late", "cost"),
    [
        ("the window before has shown it", before(1), 1, 0.2),
        ("the window before named another one", before(0), None, 0.0),
        ("the window before named nobody", before(None), None, 0.0),
        ("there was no window", (), None, 0.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_window_does_not_show_is_what_the_one_before_it_showed(
    guard: str, windows: tuple[CommunicatorWindow, ...], late: int | None, cost: float
) -> None:
    found = window(AHEAD, windows=windows)
    assert (found.late, found.cost) == (late, cost), guard


@pytest.mark.parametrize(("rank", "late", "cost"), [(1, 1, 0.1), (0, None, 0.0)])
def test_what_is_new_is_seen_where_that_rank_has_met_the_others(
    rank: int, late: int | None, cost: float
) -> None:
    found = window(AHEAD, met=(RankMeeting(rank, 1.0, 0.1),) * 4)
    assert found.late == late
    assert found.cost == pytest.approx(cost)


def steps(*held: Mapping[int, float]) -> Found:
    """Steps of ten collectives after a second of computing each; in the first some ranks come far later."""
    return [
        one(10 * step + place, late, 1.0, at=1.5 * (10 * step + place))
        for step, ranks in enumerate(held)
        for place, late in enumerate([ranks.get(1, 0.0), 0, 0, 0, 0, -ranks.get(0, 0.0), 0, 0, 0, 0])
    ]


@pytest.mark.parametrize(
    ("guard", "held", "late", "cost"),
    [
        ("once a step", [{}, *[{1: 0.75}] * 4], 1, 0.047),
        ("for less than it takes", [{}, *[{1: 0.5}] * 4], None, 0.0),
        ("as another one is", [{}, *[{0: 0.75, 1: 0.75}] * 4], None, 0.0),
        ("far more than another one", [{}, *[{1: 0.875}] * 3, {0: 0.375, 1: 0.875}], 1, 0.055),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_a_rank_is_held_up(
    guard: str, held: Sequence[Mapping[int, float]], late: int | None, cost: float
) -> None:
    found = window_of(CommunicatorMemory(window=tuple(steps(*held))), TWO, replace(POLICY, cost=0.04))[0]
    assert found.late == late, guard
    assert found.cost == pytest.approx(cost, abs=0.002)


@pytest.mark.parametrize(
    ("guard", "late", "before", "named"),
    [
        ("another may be held up too", -2.0, None, None),
        ("another one is known not to be", -2.0, 20.0, 1),
        ("another is hardly behind", -0.9, None, 1),
        ("it may be held up itself", 2.0, None, 1),
    ],
)
def test_who_may_be_held_up_counts_too(
    guard: str, late: float, before: float | None, named: int | None
) -> None:
    memory = CommunicatorMemory(window=(*steps({}, *[{1: 0.75}] * 4), one(50, late, before, at=75.0)))
    assert window_of(memory, TWO, replace(POLICY, cost=0.03))[0].late == named, guard


@pytest.mark.parametrize(
    ("guard", "between", "waited"),
    [("later than a slow GPU can be", 0.06, 0.03 / 8), ("as late as a slow GPU can be", 0.1, 0.03 / 1.5)],
)
def test_what_is_waited_beside_computing_is_not_lost(guard: str, between: float, waited: float) -> None:
    """Accumulation: rank 1 is late by its long computing, and by as much in each bucket that follows."""
    found = [one(n, 0.03, between if n % 7 else 8.0, at=1.5 * n) for n in range(49)]
    first, _ = window(found, ranks=((0, "GPU-0"), (1, "GPU-1"))).ranks
    assert first.waiting == pytest.approx(waited, rel=0.05), guard
    assert first.in_collectives - first.waiting == pytest.approx(0.25 / 1.5, rel=0.05)


def test_the_newest_meetings_of_the_rank_that_is_late_most_often_are_kept() -> None:
    """Where it was less late than in front, after a stretch of computing."""
    found = several(*[0.25, 0.0625] * 6, before=1.0)
    old = tuple(RankMeeting(0, 1.0, float(number)) for number in range(8))
    met = window_of(CommunicatorMemory(window=tuple(found), met=old), TWO, POLICY)[1]
    assert met == (*old[6:], *[RankMeeting(1, 1.0, 0.0625)] * 6)


LONG = 3.0
"""Seconds of the longest stretches of computing, three of each twenty that take one."""


def stretches(usual: float, long: float, least: float = 1.0) -> Found:
    """Twenty short stretches, after which rank 1 is late by `usual`, then three long ones."""
    short = [one(number, usual, least) for number in range(20)]
    return [*short, *[one(number, long, LONG * least) for number in range(20, 23)]]


@pytest.mark.parametrize(
    ("guard", "found", "beside"),
    [
        ("the others go ahead", AHEAD, True),
        ("they do not, and it is alike", several(*[0.5] * 20, before=1.0), False),
        ("it is later than a slow GPU can be, and not alike", several(*[0.5, 0.65] * 10, before=1.0), True),
        ("it is later, and nearly alike", several(*[0.5, 0.55] * 10, before=1.0), False),
        ("it is not alike, but no later than a slow GPU", several(*[0.2, 0.3] * 10, before=1.0), False),
        ("late a few times alone", several(*[0.0] * 12, *[1.5] * 8, before=1.0), False),
        ("after long stretches it is far less late", stretches(0.05, 0.0), True),
        ("after long stretches it is as late for these", stretches(0.05, 0.15), False),
        ("no stretch is far longer", [*several(*[0.01] * 5, *[0.0625] * 15, before=1.0)], False),
        ("another one is last", stretches(-0.02, -0.5), False),
        ("as often another one is", [*[one(n, 0.125, 1.0) for n in range(16)],
                                     *[one(n, -0.5, LONG) for n in range(16, 20)]], False),
        ("no computing was seen", several(*[0.5] * 20), False),
        ("there was no computing", several(*[0.5] * 20, before=0.0), False),
        ("nothing", [], False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_computing_goes_on_beside(
    guard: str, found: Found, *, beside: bool
) -> None:
    assert overlap(found, 1) is beside, guard


def step(first: float, *lates: float, pause: float = LONG) -> Found:
    """Four steps: a long stretch, after which rank 1 is late by `first`, and short ones."""
    late = [first, *lates] * 4
    return [one(n, more, before=1.0 if n % (1 + len(lates)) else pause) for n, more in enumerate(late)]


BUCKETS = [0.01 * n for n in range(6, 14)]


@pytest.mark.parametrize(
    ("guard", "found", "goes_on"),
    [
        ("it falls ever more behind", step(0.05, *BUCKETS), True),
        ("it stays as late as it was", step(0.05, *[0.05] * 8), False),
        ("so late that no slow GPU is", step(0.5, *[0.5] * 8, pause=12.0), True),
        ("so late, but in one of a step only", step(0.0, 4.0, *[0.0] * 7), False),
        ("it is late anew by its computing", step(LONG / 20, *[0.05] * 8), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_computing_surely_goes_on_beside(
    guard: str, found: Found, *, goes_on: bool
) -> None:
    assert overlap(found, 1, surely=True) is goes_on, guard


def test_of_waiting_beside_computing_the_growth_is_new() -> None:
    assert fresh(step(0.05, *BUCKETS)) == {1: pytest.approx((4 * 8 * 0.01) / (4 * sum(BUCKETS) + 3 * 0.05))}
    assert fresh(several(0.5, 0.5, before=1.0)) == {1: 0.0}
    assert fresh(several(0.5, 0.95, before=0.5)) == {1: pytest.approx(1.0)}, "the other one went ahead"
    assert fresh(several(0.5, 0.5)) == {}


def test_ranks_that_take_turns_in_being_last_lose_no_more_than_what_is_new() -> None:
    """Each is last in every second step, so that on the whole none of them is."""
    found = [
        replace(one(n, more if n // 9 % 2 else -more, LONG if n % 9 == 0 else 1.0), at=4.0 * n)
        for n, more in enumerate([0.05, *BUCKETS] * 4)
    ]
    ranks = window(found, ranks=((0, "GPU-0"), (1, "GPU-1"))).ranks
    waited = sum(BUCKETS) + 0.05
    assert all(one.waiting < 0.3 * waited / 9 / 4 / 2 for one in ranks)
    assert [sum(one.waits.values()) for one in ranks] == pytest.approx([one.waiting for one in ranks])


def appears(*lates: float) -> Found:
    """The others go ahead, then they do not and rank 1 is so late; of a third one nothing is known."""
    return [
        replace(made, sequence=3 * turn + place, at=3.0 * turn + place)
        for turn, late in enumerate(lates)
        for place, made in enumerate([one(0, 2.0, 1.0), one(0, late, 1.0), one(0)])
    ]


@pytest.mark.parametrize(
    ("guard", "found", "met", "alone", "lost"),
    [
        ("by meetings", several(*[0.05] * 20, before=1.0), 0.01, 0.04, 0.01),
        ("by meetings, at most what the others wait", several(*[0.05] * 20, before=1.0), 0.01, 0.005, 0.005),
        ("after long stretches", stretches(0.05, 0.03), None, 0.04, 0.01),
        ("after long stretches, at most what the others wait", stretches(0.05, 0.03), None, 0.005, 0.005),
        ("after long stretches it is as late for these", stretches(0.05, 0.15), None, 0.04, None),
        ("after long stretches it is later, for these", stretches(0.05, 0.3), None, 0.04, None),
        ("it was rather held up there", stretches(0.5, 0.9), None, 0.4, None),
        ("after long stretches another one is last", stretches(0.05, -0.03), None, 0.04, None),
        ("no stretch is far longer", several(*[0.01] * 5, *[0.0625] * 15, before=1.0), None, 0.04, None),
        ("the others had gone ahead and do not any more", appears(*[0.5] * 6), None, 0.4, 0.4 * 0.5 / 2.5),
        ("the others go ahead all the time", AHEAD, None, 0.4, None),
        ("and where another one is last then, nothing is new",
         appears(0.5, -0.5, 0.5, -0.5), None, 0.4, 0.4 * 1.0 / 9.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_how_much_of_its_lateness_is_new(
    guard: str, found: Found, met: float | None, alone: float, lost: float | None
) -> None:
    known = [] if met is None else [RankMeeting(1, 1.0, met)] * 4
    assert lost_by(found, 1, alone, known) == (None if lost is None else pytest.approx(lost)), guard


def test_at_least_what_a_rank_was_held_up_by_is_lost() -> None:
    found = steps({}, *[{1: 0.75}] * 4)
    share = 3.0 / covered(found)
    assert lost_by(found, 1, 0.4, []) == pytest.approx(share)
    assert lost_by(found, 1, 0.01, []) == pytest.approx(0.01)
    assert lost_by(found, 1, 0.4, [RankMeeting(1, 1.0, 0.0)] * 4) == pytest.approx(share)


def at(*collectives: tuple[float, float | None]) -> Found:
    """Collectives one after the other: by how much rank 1 is late after so many seconds of computing."""
    return [one(number, late, before) for number, (late, before) in enumerate(collectives)]


@pytest.mark.parametrize(
    ("guard", "found", "seconds"),
    [
        ("suddenly", at((0.0, 1.0), (0.5, 1.0)), {1: 0.5}),
        ("twice", at((0.0, 1.0), (0.5, 1.0), (0.0, 1.0), (0.5, 1.0)), {1: 1.0}),
        ("as before", at((0.5, 1.0), (0.5, 1.0)), {}),
        ("by as much as a slow GPU may need", at((0.0, 1.0), (0.2, 1.0)), {}),
        ("since the other one was last before", at((-0.2, 1.0), (0.2, 1.0)), {}),
        ("after one of which nothing is known", at((0.0, None), (0.5, 1.0)), {}),
        ("and nothing is known of it", at((0.0, 1.0), (0.5, None)), {}),
        ("after one for which the others had gone ahead", at((2.0, 1.0), (3.0, 1.0)), {}),
        ("after one that was queued", at((0.5, 1.0), (0.0, 0.05), (0.5, 1.0)), {}),
        ("after a short stretch", at((0.5, 1.0), (0.0, 0.13), (0.5, 1.0)), {1: 0.5}),
        ("two ranks", at((0.0, 1.0), (0.5, 1.0), (-0.75, 1.0)), {0: 0.75, 1: 0.5}),
        ("in the order of time", [*reversed(at((0.0, 1.0), (0.5, 1.0)))], {1: 0.5}),
        ("a rank alone", [one(number, 0.0, 1.0, seconds={0: 1.0}) for number in range(3)], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_by_what_a_rank_was_held_up(
    guard: str, found: Found, seconds: Mapping[int, float]
) -> None:
    assert held_up(found) == pytest.approx(seconds), guard


@pytest.mark.parametrize(
    ("guard", "found", "lates"),
    [
        ("less than half as late", at((0.5, 1.0), (0.2, 1.0)), [0.2]),
        ("half as late", at((0.5, 1.0), (0.25, 1.0)), []),
        ("after a stretch that is short", at((0.5, 1.0), (0.2, 0.4), (0.2, 1.0), (0.2, 1.0)), []),
        ("after a stretch of half the usual", at((0.5, 1.0), (0.2, 0.5), (0.2, 1.0), (0.2, 1.0)), [0.2]),
        ("of the one before nothing else is known", at((0.5, None), (0.2, 1.0)), [0.2]),
        ("nothing is known of it", at((0.5, 1.0), (0.2, None)), []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_where_all_ranks_have_met(
    guard: str, found: Found, lates: Sequence[float]
) -> None:
    assert [meeting.late for meeting in meetings(found, 1)] == pytest.approx(lates), guard


@pytest.mark.parametrize(
    ("guard", "found", "seconds"),
    [
        ("computing and the mean of the ranks", at((0.5, 1.0)), 1.5),
        ("no computing was seen", at((0.5, None)), 0.0),
        ("a rank alone", [one(0, 0.0, 1.0, seconds={0: 1.0})], 0.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_what_is_covered(guard: str, found: Found, seconds: float) -> None:
    assert covered(found) == pytest.approx(seconds), guard


def test_who_is_late_is_after_the_next_one_and_not_after_the_first() -> None:
    assert vote({0: 3.0, 1: 1.0, 2: 2.0}, POLICY) == 1
    (rank,) = (one for one in window([one(n, seconds={0: 3.0, 1: 1.0, 2: 2.0}) for n in range(8)],
                                     Shape(3, frozenset({0, 1, 2}))).ranks if one.rank == 1)  # fmt: skip
    assert rank.behind == pytest.approx(1.0 / STEP)


def test_a_wait_in_an_operation_seen_once_is_of_the_whole_window() -> None:
    """A checkpoint: all wait 1.5 s for rank 0 in one broadcast of five seconds."""
    often = [one(number, at=number * 0.5) for number in range(11)]
    once = replace(one(7, at=5.0), op="broadcast", seconds={0: 0.001, 1: 1.501})
    without, late = (window(found).ranks for found in (often, [*often, once]))
    assert [round(b.waiting - a.waiting, 3) for a, b in zip(without, late, strict=True)] == [0.0, 0.3]
