"""Each guard of running jobs alone: records, rings, series and lateness in which only that guard refuses."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.node.jobs.ringjobs import (
    AROUND,
    LATE,
    MIB,
    TENSOR_PARALLEL,
    TRAINING,
    DrawnJob,
    DrawnNode,
    JobShape,
    uuid,
)
from wirewatch.core.jobs import (
    RefusedRing,
    RingReading,
    RingsReading,
    RingState,
    TimedCollective,
)
from wirewatch.core.types import Absent, Expect, Ok, Why
from wirewatch.jobs.running import COLLECTOR, judge
from wirewatch.jobs.running.grouping import ring_groups
from wirewatch.jobs.running.join import LONGEST, records_of
from wirewatch.jobs.running.lateness import NEW, lost_by
from wirewatch.jobs.running.metrics import samples
from wirewatch.jobs.running.model import (
    MOST_COMMUNICATORS,
    MOST_REFUSED,
    JobsMemory,
    JobsPolicy,
    JobsReading,
    JobSurroundings,
    JoinedCollective,
    RankMeeting,
    RingProgress,
)
from wirewatch.jobs.running.progress import progress, totals
from wirewatch.jobs.times import GpuTime, JobRemarkKind, JobsFacts, RunningJob

NO_GPU = Absent(Why.MISSING, "no GPU is named")
RING = DrawnJob(TRAINING).ranks[0].ring
CALL = TimedCollective(1, "all_reduce", 7, MIB, "float32", "RING", "SIMPLE", 24, 1e-3, 5.0, 5.001, 100.0)


@pytest.mark.parametrize(
    ("guard", "call", "usable"),
    [
        ("a record as it should be", CALL, True),
        ("no time at all", replace(CALL, seconds=0.0), False),
        ("less than no time", replace(CALL, seconds=-1e-3), False),
        ("the longest time", replace(CALL, seconds=LONGEST - 1), True),
        ("longer than any collective", replace(CALL, seconds=LONGEST), False),
        ("no number", replace(CALL, seconds=math.nan), False),
        ("the first of its operation", replace(CALL, sequence=0), True),
        ("before the first", replace(CALL, sequence=-1), False),
        ("enqueued at no time", replace(CALL, enqueued=math.inf), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_that_cannot_be_is_not_joined(guard: str, call: TimedCollective, usable: bool) -> None:  # noqa: FBT001
    (found,) = records_of([RingReading(RING, (call,))])
    assert (found.calls == (call,)) is usable, guard


def ring(number: int, state: RingState = RingState.LIVE, created: float = 0.0) -> RingReading:
    return RingReading(replace(RING, name=f"{number}", communicator=number, state=state, created=created), ())


@pytest.mark.parametrize(
    ("guard", "rings", "order"),
    [
        ("live ones first, though older", [ring(1, RingState.DEAD, 9.0), ring(2)], [2, 1]),
        ("of those that are alike the newer", [ring(1), ring(2, created=9.0)], [2, 1]),
        ("of those of one moment by number", [ring(2), ring(1)], [1, 2]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_communicators_are_followed_in_an_order(
    guard: str, rings: Sequence[RingReading], order: list[int]
) -> None:
    groups, left_out = ring_groups(rings)
    assert [one.key[1] for one in groups] == order, guard
    assert left_out == 0


def test_a_live_communicator_is_followed_beside_as_many_dead_ones_as_there_may_be() -> None:
    dead = [ring(number, RingState.DEAD, 9.0) for number in range(MOST_COMMUNICATORS)]
    groups, left_out = ring_groups([*dead, ring(MOST_COMMUNICATORS + 1)])
    assert groups[0].live
    assert (len(groups), left_out) == (MOST_COMMUNICATORS, 1)
    assert MOST_COMMUNICATORS == 256


def test_a_ring_that_is_not_listed_is_remembered_for_three_polls() -> None:
    known = progress({}, [ring(1)])
    for _ in range(3):
        known = progress(known, [])
        assert list(known) == ["1"]
    assert progress(known, []) == {}


@pytest.mark.parametrize(
    ("guard", "gpu", "counted"),
    [
        ("a GPU of this machine", uuid(0), {(uuid(0), "all_reduce"): 5}),
        ("a GPU of no machine", "GPU-made-up", {}),
        ("no GPU", NO_GPU, {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_ring_makes_no_series_for_a_gpu_that_is_not_here(
    guard: str, gpu: str | Absent, counted: dict[tuple[str, str], int]
) -> None:
    one = replace(ring(1), ring=replace(RING, name="1", gpu=gpu))
    now = {"1": RingProgress(calls={"all_reduce": 5})}
    assert totals({}, {}, now, [one], frozenset({uuid(0)}), "calls") == counted, guard


def collective(number: int, late: float, before: float = 1.0) -> JoinedCollective:
    """Ranks compute for so long, then rank 1 comes so much later than rank 0, and the wire takes 0.1 s."""
    seconds = {0: 0.1 + late, 1: 0.1}
    return JoinedCollective("all_reduce", number, MIB, "RING", "SIMPLE", 24, 2.0 * number, seconds, before)


ALIKE = [collective(number, 0.05) for number in range(20)]
USUAL = 0.05
NEVER = [collective(number, 0.0) for number in range(20)]


@pytest.mark.parametrize(
    ("guard", "found", "met", "lost"),
    [
        ("where all have met it is far less late", ALIKE, 0.3 * USUAL, 0.3 * USUAL),
        ("where all have met it is not less late by far", ALIKE, 0.5 * USUAL, None),
        ("where all have met another rank is last", ALIKE, -0.1 * USUAL, None),
        ("it is never late", NEVER, None, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_what_a_late_rank_costs(
    guard: str, found: Sequence[JoinedCollective], met: float | None, lost: float | None
) -> None:
    meetings = [] if met is None else [RankMeeting(1, 1.0, met)] * 4
    assert lost_by(found, 1, 0.04, meetings) == (None if lost is None else pytest.approx(lost)), guard
    assert 0.3 < NEW < 0.5


def polled(reading: JobsReading) -> JobsFacts:
    memory, _ = judge(COLLECTOR.start, Ok(reading, 1000.0, 10.0), JobsPolicy(), Expect())
    assert memory.facts is not None
    return memory.facts


def test_the_first_files_that_are_no_rings_are_offered() -> None:
    refused = tuple(RefusedRing(f"{n}", NO_GPU) for n in range(MOST_REFUSED + 1))
    facts = polled(JobsReading(RingsReading((), refused), around=AROUND))
    assert facts.refused == refused[:-1]
    assert len(facts.refused) == 16
    assert facts.folder is None
    assert polled(JobsReading(NO_GPU)).refused == ()
    assert polled(JobsReading(NO_GPU)).folder == NO_GPU


LAYERS = replace(
    TENSOR_PARALLEL, calls=(("all_reduce", 64 * MIB),) * 8, gpus=(0,), ranks=4, nodes=4, busbw=40e9,
    communicator=1,
)  # fmt: skip
INSIDE = replace(TRAINING, work=0.4, communicator=2, pid=LAYERS.pid)
OFTEN = replace(TRAINING, work=0.004, calls=(("all_reduce", 8192),), communicator=2, pid=LAYERS.pid)


@pytest.mark.parametrize(
    ("guard", "shapes", "around", "remarked"),
    [
        ("used more often than what stays", (LAYERS, INSIDE), AROUND, True),
        ("used less often than what stays", (LAYERS, OFTEN), AROUND, False),
        ("one rank alone is no group that stays", (LAYERS, INSIDE, replace(OFTEN, gpus=(0,), communicator=3)),
         AROUND, True),
        ("inside it would be hardly faster", (replace(LAYERS, busbw=300e9), INSIDE), AROUND, False),
        ("it takes little of the time", (replace(LAYERS, work=8.0), INSIDE), AROUND, False),
        ("more ranks than GPUs of the job are here", (replace(LAYERS, ranks=8), INSIDE), AROUND, False),
        ("the wires are not known", (LAYERS, INSIDE), JobSurroundings(), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_a_group_that_leaves_the_node_is_named(
    guard: str,
    shapes: tuple[JobShape, ...],
    around: JobSurroundings,
    remarked: bool,  # noqa: FBT001
) -> None:
    (job,) = DrawnNode(*shapes, around=around).poll(6).jobs
    assert (JobRemarkKind.DOMAIN in {one.kind for one in job.remarks}) is remarked, guard


def test_another_late_rank_is_late_since_it_was_found() -> None:
    """By a policy of one window, a rank can be late right after another one."""
    node = DrawnNode(LATE, policy=JobsPolicy(window=20.0, confirm=1, windows=1), every=20.0)
    before = [late for _ in range(3) if (late := node.poll().jobs[0].late)]
    node.jobs[0].shape = replace(LATE, slow={1: 1.1})
    after = [late for _ in range(2) if (late := node.poll().jobs[0].late)]
    assert [late.rank for late in (*before[-2:], *after)] == [2, 2, 1, 1]
    assert before[-1].since == before[-2].since < after[0].since == after[1].since


@pytest.mark.parametrize("communicators", [1, 2, 6])
def test_a_gpu_s_shares_are_those_of_its_communicators_together_and_at_most_all_the_time(
    communicators: int,
) -> None:
    """Processes that share their GPUs' time between so many communicators."""
    shapes = [replace(LATE, work=0.008, communicator=n) for n in range(communicators)]
    (job,) = DrawnNode(*shapes).poll(6).jobs
    times = [comm.newest.ranks[0] for comm in job.communicators if comm.newest]
    assert len(times) == communicators
    gpu = job.gpus[0]
    assert gpu.in_collectives == pytest.approx(min(1.0, sum(one.in_collectives for one in times)), rel=0.01)
    assert gpu.waiting == pytest.approx(min(1.0, sum(one.waiting for one in times)), rel=0.01)
    assert gpu.late == max(one.late for one in times)
    assert (gpu.in_collectives == 1.0) is (communicators == 6)


def test_of_wires_of_which_nothing_is_known_the_slower_has_the_series() -> None:
    slower = replace(TRAINING, gpus=(4, 5, 6, 7), busbw=100e9, communicator=0xBEEF, pid=9000)
    around = replace(AROUND, link_rate=Absent(Why.MISSING, "no link is up"))
    for shapes in ((TRAINING, slower), (slower, TRAINING)):
        node = DrawnNode(*(replace(one, nodes=2, ranks=8) for one in shapes), around=around)
        node.poll(6)
        found = {one.metric.name: one.value for one in samples(node.read(), node.memory)}
        assert "job_busbw_ratio" not in found

        assert found["job_busbw_bytes_per_second"] == pytest.approx(100e9, rel=0.05)


def shares(*jobs: tuple[float, float]) -> dict[str, float]:
    """The series of one GPU in so many jobs, each waiting and late for such shares of its time."""
    runs = tuple(
        RunningJob(f"pid:{n}", (), 1000, 0.0, live=True, communicators=(),
                   gpus=(GpuTime(uuid(0), "0", 0.9, waiting, late, measured=True),))
        for n, (waiting, late) in enumerate(jobs)
    )  # fmt: skip
    memory = JobsMemory(facts=JobsFacts(0.0, 0.0, runs))
    reading = JobsReading(RingsReading(()), around=AROUND)
    return {one.metric.name: one.value for one in samples(reading, memory)}


@pytest.mark.parametrize(
    ("jobs", "waiting", "late"),
    [(((0.3, 0.2),), 0.3, 0.2), (((0.3, 0.2), (0.4, 0.1)), 0.7, 0.2), (((0.7, 0.1), (0.8, 0.6)), 1.0, 0.6)],
    ids=["one", "two", "more than all the time"],
)
def test_a_gpu_waits_for_what_its_jobs_wait_together(
    jobs: tuple[tuple[float, float], ...], waiting: float, late: float
) -> None:
    found = shares(*jobs)
    assert found["job_wait_ratio"] == pytest.approx(waiting)
    assert found["job_late_ratio"] == late
