"""The shares of each GPU add up to 1 whatever is known of its job, and none is firmer than its evidence."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.jobs.ledgerlooks import (
    BEGIN,
    DENIED,
    UNREAD,
    Looks,
    around,
    comm,
    gpu,
    job,
    pid,
    process,
    rank,
    sight,
    tapped,
    time_of,
)
from wirewatch.core.types import Absent
from wirewatch.jobs.ledger.model import (
    GpuActivity,
    GpuSight,
    LedgerSurroundings,
    ProcessSight,
    TimedJob,
)
from wirewatch.jobs.ledger.spent import Spent
from wirewatch.jobs.ledger.split import JobNow, split
from wirewatch.jobs.times import ELSEWHERE, GpuTime

COUNT = 3
SHARE = st.one_of(st.sampled_from([0.0, 0.25, 0.99, 1.0]), st.floats(0.0, 1.0))
ODD = st.one_of(SHARE, SHARE, st.floats(-1.0, 3.0), st.just(math.nan))
"""Other collectors may hand on what cannot be."""
CAUSES = st.sampled_from([gpu(0), gpu(1), gpu(2), gpu(7), ELSEWHERE])
NUMBERS = st.integers(0, COUNT - 1)
SEEN: st.SearchStrategy[ProcessSight | Absent] = st.one_of(st.just(DENIED), st.just(process()))


@st.composite
def sights(draw: st.DrawFn, number: int) -> GpuSight | Absent:
    if draw(st.integers(0, 9)) == 0:
        return UNREAD
    unknown = st.just(DENIED)
    power = draw(st.one_of(unknown, st.sampled_from([90.0, 125.0, 690.0, math.nan])))
    return sight(draw(st.one_of(unknown, ODD)), power, pid(number))


@st.composite
def times(draw: st.DrawFn, number: int) -> GpuTime:
    return time_of(
        number, draw(ODD), draw(ODD), measured=draw(st.booleans()),
        waits=draw(st.dictionaries(CAUSES, ODD, max_size=3)), beyond=draw(st.one_of(ODD, st.just(DENIED))),
    )  # fmt: skip


@st.composite
def surroundings(draw: st.DrawFn) -> LedgerSurroundings:
    numbers = draw(st.lists(NUMBERS, unique=True, max_size=COUNT))
    comms = [
        comm(*(rank(n, draw(st.integers(5, 7)), BEGIN - draw(st.floats(0, 9))) for n in some), name=str(at))
        for at, some in enumerate(draw(st.lists(st.lists(NUMBERS, unique=True, min_size=1), max_size=3)))
    ]
    end = BEGIN - draw(st.floats(0, 40))
    timed = tapped(
        *(draw(times(n)) for n in numbers), comms=comms, numbers=range(COUNT), span=(end - 6.0, end)
    )  # fmt: skip
    activity = {gpu(n): GpuActivity(7.5, draw(SHARE), draw(ODD)) for n in draw(st.sets(NUMBERS))}
    jobs: tuple[TimedJob, ...] = (timed,) if draw(st.booleans()) else ()
    return around(
        *jobs, counted=BEGIN - draw(st.floats(0, 9)), activity=activity, seen=BEGIN - draw(st.floats(0, 40)),
        owners={pid(n): "slurm:7" for n in draw(st.sets(NUMBERS))},
    )  # fmt: skip


@st.composite
def jobs(draw: st.DrawFn) -> JobNow:
    every = [draw(sights(n)) for n in range(COUNT)]
    spinning = draw(st.dictionaries(NUMBERS.map(gpu), st.floats(BEGIN - 50, BEGIN), max_size=COUNT))
    shared = frozenset(map(gpu, draw(st.sets(NUMBERS, max_size=1))))
    groups = [tuple(gpu(n) for n in range(COUNT)), (gpu(0), gpu(1)), ()]
    bound = (draw(st.sampled_from(groups)),)
    return job(*every, known=draw(surroundings()), spinning=spinning, shared=shared, bound=bound)


@settings(max_examples=examples(300))
@given(jobs())
def test_shares_add_up_to_one_and_parts_to_their_whole(now: JobNow) -> None:
    for one in now.gpus:
        found = split(one, now)
        assert sum(found.shares.values()) == pytest.approx(1.0)
        assert all(-1e-9 <= part <= 1 + 1e-9 for part in found.shares.values())
        assert sum(found.waits.values()) == pytest.approx(found.shares.get(Spent.LOCAL_RANK, 0.0))
        assert all(part >= 0 for part in found.waits.values())
        assert one not in found.waits, "no GPU waits for itself"
        assert {*found.waits} <= {*now.gpus}, "and for none of another job"
        assert 0 <= found.unjudged <= found.shares.get(Spent.WIRE, 0.0) + 1e-9
        assert 0 <= found.waiting <= found.shares.get(Spent.NOT_ATTRIBUTED, 0.0) + 1e-9


@settings(max_examples=examples(300))
@given(jobs())
def test_nothing_is_computing_without_times_or_activity_and_nobody_elsewhere_without_times(
    now: JobNow,
) -> None:
    bare = replace(now, timed=None, around=replace(now.around, activity={}))
    for one in now.gpus:
        found = split(one, bare).shares
        for kind in (Spent.COMPUTING, Spent.WIRE, Spent.BEYOND, Spent.OTHER_NODE):
            assert found.get(kind, 0.0) == 0.0
        without = split(one, replace(now, timed=None)).shares
        assert without.get(Spent.OTHER_NODE, 0.0) == without.get(Spent.WIRE, 0.0) == 0.0


@settings(max_examples=examples(300))
@given(jobs())
def test_gpus_that_are_not_known_to_communicate_wait_for_nobody_by_their_looks(now: JobNow) -> None:
    for one in now.gpus:
        whole = split(one, now)
        apart = split(one, replace(now, bound=()))
        alone = split(one, replace(now, bound=(), timed=None))
        assert alone.waits == {}
        assert alone.waiting == 0.0
        if now.timed is None:
            assert apart.shares.get(Spent.COMPUTING, 0.0) >= whole.shares.get(Spent.COMPUTING, 0.0)
        odd = replace(now, sights=dict.fromkeys(now.sights, UNREAD))
        assert split(one, odd).shares == {Spent.NOT_ATTRIBUTED: 1.0}


@settings(max_examples=examples(100))
@given(st.data())
def test_windows_of_any_history_add_up_and_cover_no_more_than_they_are_long(data: st.DataObject) -> None:
    looks = Looks()
    for _ in range(data.draw(st.integers(1, 12))):
        looks.around = data.draw(surroundings())
        after = data.draw(st.sampled_from([2.0, 2.0, 2.1, 7.0]))
        seen = {pid(n): data.draw(SEEN) for n in range(COUNT)}
        every = [data.draw(sights(n)) for n in range(COUNT)]
        for ledger in looks.look(*every, after=after, processes=seen):
            for one in (*ledger.short, *ledger.long):
                assert sum(one.shares.values()) == pytest.approx(1.0)
                assert sum(one.waits_for.values()) == pytest.approx(one.shares.get(Spent.LOCAL_RANK, 0.0))
            assert all(one.seconds <= 12.6 for one in ledger.short)
    for counted in looks.memory.totals.values():
        assert 0 <= sum(counted) <= looks.mono - BEGIN + 1e-6
