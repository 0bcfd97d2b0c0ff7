"""Ledgers of jobs from look to look: windows, jobs and their names, what begins anew, and the series."""

from dataclasses import replace
from typing import Any

import pytest

from tests.node.jobs.ledgerlooks import (
    BEGIN,
    DENIED,
    EVERY,
    UNREAD,
    Looks,
    around,
    gpu,
    idle,
    pid,
    process,
    shares,
    sight,
    spinning,
    tapped,
    time_of,
    works,
)
from wirewatch.core.collector import GpuReading
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Expect, Ok, Why
from wirewatch.jobs.ledger.fold import LONG, SHORT, computes, facts, judge
from wirewatch.jobs.ledger.metrics import METRICS, SERIES, WORDS, samples
from wirewatch.jobs.ledger.model import GpuSight, LedgerReading, LedgerSurroundings
from wirewatch.jobs.ledger.spent import JobLedger, Spent

OWNERS = {pid(0): "slurm:1", pid(1): "slurm:1", pid(2): "slurm:2", pid(3): "slurm:2"}


def by_name(jobs: tuple[JobLedger, ...]) -> dict[str, tuple[str, ...]]:
    return {one.name: tuple(each.index for each in one.short) for one in jobs}


# Windows


def test_the_first_look_covers_no_time() -> None:
    (job,) = Looks(LedgerSurroundings(owners=OWNERS)).look(idle(0), spinning(1))
    assert [one.seconds for one in (*job.short, *job.long)] == [0.0] * 4
    assert [shares(one) for one in job.short] == [{Spent.NOT_ATTRIBUTED: 1.0}] * 2


def test_each_look_speaks_for_the_time_since_the_one_before() -> None:
    looks = Looks(LedgerSurroundings(owners=OWNERS))
    looks.times(3, idle(0), spinning(1))
    (job,) = looks.times(2, works(0), works(1))
    first, second = job.short
    assert first.seconds == second.seconds == 4 * EVERY
    assert shares(first) == {Spent.IDLE: 0.5, Spent.NOT_ATTRIBUTED: 0.5}
    assert shares(second) == {Spent.LOCAL_RANK: 0.5, Spent.NOT_ATTRIBUTED: 0.5}
    assert second.waits_for == {gpu(0): 0.5}


def test_the_short_window_forgets_after_ten_seconds_and_the_long_one_after_five_minutes() -> None:
    looks = Looks(LedgerSurroundings(owners=OWNERS))
    looks.times(6, idle(0), idle(1))
    (job,) = looks.times(5, spinning(0), idle(1))
    assert job.short[0].seconds == SHORT
    assert shares(job.short[0]) == {Spent.LOCAL_RANK: 1.0}
    assert shares(job.long[0]) == {Spent.IDLE: 0.5, Spent.LOCAL_RANK: 0.5}
    (job,) = looks.times(150, spinning(0), idle(1))
    assert LONG <= job.long[0].seconds <= LONG + SHORT
    assert shares(job.long[0]) == {Spent.LOCAL_RANK: 1.0}
    assert len(looks.memory.gpus[gpu(0)].long) <= LONG / SHORT + 1


@pytest.mark.parametrize(("after", "covered"), [(6.0, 8.0), (6.1, 2.0)])
def test_time_of_which_no_look_tells_is_not_covered(after: float, covered: float) -> None:
    looks = Looks(LedgerSurroundings(owners=OWNERS))
    looks.times(2, idle(0), spinning(1))
    (job,) = looks.look(idle(0), spinning(1), after=after)
    assert job.short[0].seconds == pytest.approx(covered)


def test_a_gpu_that_cannot_be_read_costs_its_own_time_alone() -> None:
    looks = Looks(LedgerSurroundings(owners=OWNERS))
    looks.times(3, idle(0), spinning(1))
    for lost in (UNREAD, GpuSight(DENIED, DENIED, DENIED, DENIED)):
        (job,) = looks.look(lost, spinning(1))
    first, second = job.short
    assert (first.seconds, second.seconds) == (4.0, 8.0)
    # While GPU 0 is lost nobody says that it is waited for.
    assert shares(second) == {Spent.LOCAL_RANK: 0.5, Spent.NOT_ATTRIBUTED: 0.5}
    (job,) = looks.look(idle(0), spinning(1))
    assert job.short[0].seconds > 0, "it is the same job as before"


def test_a_gpu_that_is_not_listed_any_more_stays_unknown_in_its_job() -> None:
    """GPU 0 has fallen off the bus: of the two that are left nobody is blamed for that."""
    names = LedgerSurroundings(owners=dict.fromkeys(range(100, 103), "slurm:1"))
    looks = Looks(names)
    looks.times(2, spinning(0), spinning(1), idle(2))
    # As if the first had never been listed: the same look with the other two alone.
    looks.mono += EVERY
    (job,) = fold_rest(looks)
    assert shares(job.short[1]) == {Spent.LOCAL_RANK: 0.5, Spent.NOT_ATTRIBUTED: 0.5}


def fold_rest(looks: Looks) -> tuple[JobLedger, ...]:
    """One look at GPUs 1 and 2 alone."""
    gpus = (GpuReading(Gpu(1, gpu(1)), spinning(1)), GpuReading(Gpu(2, gpu(2)), idle(2)))
    seen = {pid(1): process(), pid(2): process()}
    reading = LedgerReading(gpus, seen, around=looks.around)
    looks.memory, _ = judge(looks.memory, Ok(reading, 0.0, looks.mono), looks.policy, Expect())
    return looks.memory.jobs


def test_a_look_that_was_not_due_changes_nothing() -> None:
    looks = Looks()
    looks.times(2, idle(0), spinning(1))
    before = looks.memory
    looks.look(looked=False)
    assert looks.memory is before


def test_when_nothing_computes_any_more_the_ledgers_are_over_and_the_counters_stay() -> None:
    looks = Looks(LedgerSurroundings(owners=OWNERS))
    looks.times(3, idle(0), spinning(1))
    assert looks.look(sight(UNREAD, UNREAD), sight(UNREAD, UNREAD)) == ()
    assert looks.memory.gpus == {}
    assert dict(zip(Spent, looks.memory.totals[gpu(0)], strict=True))[Spent.IDLE] == 4.0


# Jobs


def test_the_owner_makes_the_job_and_its_name() -> None:
    looks = Looks(LedgerSurroundings(owners=OWNERS))
    jobs = looks.times(2, idle(0), spinning(1), works(2), spinning(3))
    assert by_name(jobs) == {"slurm:1": ("0", "1"), "slurm:2": ("2", "3")}
    assert [one.pids for one in jobs] == [(100, 101), (102, 103)]
    assert [dict(one.short[1].waits_for) for one in jobs] == [{gpu(0): 1.0}, {gpu(2): 1.0}]


def test_of_two_jobs_on_a_node_neither_waits_for_the_other() -> None:
    """Each job has one GPU that spins: the idle GPU of the other one is none of its business."""
    owners = {pid(0): "slurm:1", pid(1): "slurm:2"}
    jobs = Looks(LedgerSurroundings(owners=owners)).times(2, idle(0), spinning(1))
    assert shares(jobs[1].short[0]) == {Spent.NOT_ATTRIBUTED: 1.0}


ONE = dict.fromkeys(OWNERS, "container:abc")
SENT, MIB = {gpu(0): 0, gpu(1): 0}, 1 << 20
MOVED = {gpu(0): MIB, gpu(1): MIB}


@pytest.mark.parametrize(
    ("guard", "parents", "counts", "around", "one"),
    [
        ("one parent, and both send", (50, 50), (SENT, MOVED), {}, True),
        ("one of them is the parent", (50, pid(0)), (SENT, MOVED), {}, True),
        ("two parents", (50, 51), (SENT, MOVED), {}, False),
        ("no parent is known", (0, 0), (SENT, MOVED), {}, False),
        ("nobody sends", (50, 50), (SENT, SENT), {}, False),
        ("one sends", (50, 50), (SENT, {**SENT, gpu(0): MIB}), {}, False),
        ("both send hardly", (50, 50), (SENT, {gpu(0): MIB - 1, gpu(1): MIB - 1}), {}, False),
        ("bytes are not counted", (50, 50), ({}, {}), {}, False),
        ("all was sent before the first count", (50, 50), (MOVED, MOVED), {}, False),
        ("counters were reset", (50, 50), (MOVED, SENT), {}, False),
        ("a hang that NCCL has confirmed", (0, 0), ({}, {}), {"hanging": ((gpu(0), gpu(1)),)}, True),
        ("a hang of others", (0, 0), ({}, {}), {"hanging": ((gpu(0), gpu(7)),)}, False),
        ("lockstep", (0, 0), ({}, {}), {"in_step": (gpu(0), gpu(1))}, True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_processes_of_one_owner_are_one_job_where_they_communicate(
    guard: str, parents: tuple[int, int], counts: tuple[dict[str, int], ...], around: dict[str, Any], *,
    one: bool,
) -> None:  # fmt: skip
    looks = Looks(LedgerSurroundings(owners=ONE, **around), sending=False)
    seen = {pid(n): process(parent=parent) for n, parent in enumerate(parents)}
    # What was counted before these processes came says nothing of them.
    for sent, at in (({gpu(0): -9 * MIB, gpu(1): -9 * MIB}, BEGIN - 5), *((c, BEGIN + 9) for c in counts)):
        looks.around = replace(looks.around, sent=sent, sent_at=at)
        (job,) = looks.times(2, idle(0), spinning(1), processes=seen)
    assert job.one_job is one, guard
    waited = shares(job.short[1]).get(Spent.LOCAL_RANK, 0.0) > 0
    assert waited is one
    assert job.name == "container:abc"


def test_a_process_on_two_gpus_is_one_job_and_so_are_ranks_of_one_communicator() -> None:
    (job,) = Looks(LedgerSurroundings(owners=ONE), sending=False).times(
        2, sight(0.0, 120.0, 100), sight(1.0, 125.0, 100)
    )
    assert (job.one_job, job.short[1].waits_for) == (True, {gpu(0): 1.0})
    for linked, one in ((((gpu(0), gpu(1)),), True), ((), False)):
        rings = replace(tapped(), linked=linked)
        (job,) = Looks(around(rings), sending=False).times(2, idle(0), spinning(1))
        assert job.one_job is one


def test_processes_whose_owner_is_not_known_are_jobs_of_their_own() -> None:
    jobs = Looks().times(2, idle(0), spinning(1))
    assert by_name(jobs) == {"pid:100": ("0",), "pid:101": ("1",)}


def test_processes_without_an_id_are_of_no_job_together() -> None:
    jobs = Looks().times(2, sight(0.0, 120.0, None), sight(1.0, 125.0, None))
    assert [(one.name, one.pids) for one in jobs] == [("unknown", ()), ("unknown", ())]
    assert shares(jobs[1].short[0]) == {Spent.NOT_ATTRIBUTED: 1.0}


def test_a_job_with_the_tap_has_its_name_and_its_gpus() -> None:
    times = time_of(0, 0.4, 0.1), time_of(1, 0.4)
    looks = Looks(around(tapped(*times)))
    jobs = looks.times(2, works(0), works(1), works(2))
    assert by_name(jobs) == {"slurm:7": ("0", "1"), "pid:102": ("2",)}
    assert shares(jobs[0].short[0]) == {Spent.COMPUTING: 0.6, Spent.WIRE: 0.3, Spent.NOT_ATTRIBUTED: 0.1}
    assert jobs[0].short[0].unjudged == pytest.approx(0.3)
    assert [one[0].waiting for one in (jobs[0].short, jobs[0].long)] == pytest.approx([0.1, 0.1])


def test_rings_of_a_job_that_holds_its_gpu_no_more_are_not_taken() -> None:
    looks = Looks(around(tapped(time_of(0, 0.4), numbers=[0])))
    (job,) = looks.times(2, sight(1.0, 690.0, 555))
    assert (job.name, shares(job.short[0])) == ("pid:555", {Spent.NOT_ATTRIBUTED: 1.0})


@pytest.mark.parametrize(
    ("owners", "shared"),
    [({pid(0): "slurm:1", 555: "slurm:2"}, True), ({pid(0): "slurm:1", 555: "slurm:1"}, False), ({}, True)],
)
def test_two_jobs_on_one_gpu_and_two_processes_of_one_job(owners: dict[int, str], *, shared: bool) -> None:
    looks = Looks(LedgerSurroundings(owners={**owners, pid(1): "slurm:1"}))
    looks.times(2, sight(1.0, 125.0, pid(0), 555), idle(1))
    both = next(one for job in looks.memory.jobs for one in job.short if one.index == "0")
    waited = {Spent.NOT_ATTRIBUTED: 1.0} if shared else {Spent.LOCAL_RANK: 1.0}
    assert shares(both) == waited


def test_two_jobs_with_the_tap_on_one_gpu_share_it() -> None:
    first = tapped(time_of(0, 0.4), numbers=[0])
    second = replace(first, name="slurm:8", pids=(555,))
    jobs = Looks(around(first, second)).times(2, sight(1.0, 690.0, pid(0), 555))
    assert [one.name for one in jobs] == ["slurm:7", "slurm:8"]
    assert [shares(one.short[0]) for one in jobs] == [{Spent.NOT_ATTRIBUTED: 1.0}] * 2


def test_other_processes_begin_a_ledger_anew_and_so_does_an_id_that_is_used_again() -> None:
    for pids, began in (((555,), 10.0), ((pid(0),), 900.0)):
        looks = Looks()
        looks.times(3, idle(0))
        new = {pids[0]: process(began=began)}
        (job,) = looks.look(sight(0.0, 120.0, *pids), processes=new)
        assert job.short[0].seconds == 0.0
        (job,) = looks.look(sight(0.0, 120.0, *pids), processes=new)
        assert job.short[0].seconds == EVERY


def test_a_process_that_comes_beside_another_ends_nothing() -> None:
    looks = Looks(LedgerSurroundings(owners={pid(0): "slurm:1", 555: "slurm:1"}))
    looks.times(3, idle(0))
    (job,) = looks.look(sight(0.0, 120.0, pid(0), 555))
    assert job.short[0].seconds == 3 * EVERY


def test_a_gpu_that_a_process_merely_holds_is_not_waited_for_until_something_ran_on_it() -> None:
    """A notebook with two GPUs runs light kernels on one of them."""
    looks = Looks(LedgerSurroundings(owners=OWNERS), worked=False)
    (job,) = looks.times(3, idle(0), spinning(1))
    assert shares(job.short[1]) == {Spent.NOT_ATTRIBUTED: 1.0}
    looks.look(sight(0.1, 200.0, pid(0)), spinning(1))
    (job,) = looks.look(idle(0), spinning(1))
    assert job.short[1].waits_for == {gpu(0): 0.5}


# The start of a job


def test_the_first_minute_of_its_processes_is_the_start_of_a_job() -> None:
    looks = Looks()
    new = {pid(0): process(began=BEGIN - 31.0)}
    (job,) = looks.look(works(0), processes=new)
    assert (job.since, job.starting) == (BEGIN - 31.0, True)
    (job,) = looks.times(15, works(0), processes=new)
    assert job.starting is False


def test_a_job_that_has_not_worked_yet_is_starting_however_old_it_is() -> None:
    looks = Looks(worked=False)
    (job,) = looks.times(2, idle(0))
    assert job.since == 10.0
    assert job.starting
    (job,) = looks.look(works(0))
    assert not job.starting
    (job,) = looks.look(idle(0))
    assert not job.starting, "it has worked"


def test_where_use_is_not_known_age_alone_says_whether_a_job_is_starting() -> None:
    (job,) = Looks(worked=False).times(2, sight(Absent(Why.UNSUPPORTED), 100.0, pid(0)))
    assert not job.starting


@pytest.mark.parametrize("began", [DENIED, BEGIN + 5000.0])
def test_a_process_whose_begin_is_not_known_or_of_another_clock_begins_when_it_is_seen(
    began: float | Absent,
) -> None:
    new = {pid(0): process(began=began)}
    (job,) = Looks().times(2, works(0), processes=new)
    assert (job.since, job.starting) == (BEGIN, True)


# What its processes do, and the facts and series


def test_the_idle_part_is_told_in_words_and_a_small_one_is_not() -> None:
    looks = Looks(LedgerSurroundings(owners=OWNERS))
    for cpu in (0.0, 1.96, 3.92):
        (job,) = looks.look(
            idle(0),
            sight(0.99, 400.0, pid(1)),
            processes={pid(0): process("R", cpu), pid(1): process("R", cpu)},
        )
    assert [one.idle for one in job.short] == ["burns 98 % of a core", ""]


def test_a_process_that_cannot_be_read_is_never_said_to_sleep() -> None:
    (job,) = Looks().times(3, idle(0), processes={pid(0): DENIED})
    assert job.short[0].idle == "not readable"


def test_facts_have_the_ledgers_with_their_time() -> None:
    looks = Looks()
    jobs = looks.times(2, idle(0))
    found = facts(LedgerReading(), looks.memory)
    assert (found.mono, found.jobs) == (BEGIN + EVERY, jobs)


def test_series_count_seconds_of_each_kind_from_zero_on_and_name_neither_job_nor_process() -> None:
    looks = Looks(LedgerSurroundings(owners=OWNERS))
    looks.look(idle(0), spinning(1))
    assert {one.value for one in samples(LedgerReading(), looks.memory)} == {0.0}
    looks.times(2, idle(0), spinning(1))
    found = {one.labels: one.value for one in samples(LedgerReading(), looks.memory)}
    assert len(found) == 2 * len(Spent)
    assert found["0", gpu(0), "idle"] == found["1", gpu(1), "waiting_local"] == 4.0
    assert sum(found.values()) == 8.0
    assert METRICS[0].labels == ("gpu", "uuid", "spent")
    assert (set(WORDS), len(set(WORDS.values())), SERIES) == (set(Spent), len(Spent), 8 * len(Spent))


def test_there_is_something_to_watch_while_something_computes() -> None:
    assert not computes(LedgerReading(looked=False))

    def reading(one: object) -> LedgerReading:
        return LedgerReading((GpuReading(Gpu(0, gpu(0)), one),))  # type: ignore[arg-type]

    assert computes(reading(idle(0)))
    assert not computes(reading(sight(0.0, 1.0)))
    assert not computes(reading(UNREAD))
