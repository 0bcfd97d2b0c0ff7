"""Drawn jobs with tensor, pipeline and data parallel ranks: who is waited for, by GPU, and who never is."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.node.jobs.paralleljobs import ParallelNode, ParallelShape
from tests.node.jobs.ringjobs import uuid
from wirewatch.core.types import Absent
from wirewatch.jobs.times import ELSEWHERE, JobRemarkKind, JobsFacts, RunningJob

POLLS = 14
"""Polls of two seconds: a fault that is there from the start is named within half a minute."""
SLOW_STEPS = ParallelShape(work=5e-3, layers=6, buckets=2)
TENSOR_AND_DATA = replace(SLOW_STEPS, tensor=2, data=2, here=4)
NODES = replace(SLOW_STEPS, tensor=4, data=3, here=4, network=10e9)
TIMINGS = pytest.mark.parametrize("timing", ["all", "moments", "blocks"])


def watched(shape: ParallelShape, polls: int = POLLS, seed: int = 0) -> list[JobsFacts]:
    return list(ParallelNode(shape, seed).watch(polls))


def named(seen: list[JobsFacts]) -> set[str]:
    """The GPUs that were named at any time."""
    lates = [job.late for facts in seen for job in facts.jobs if job.late is not None]
    return {index for late in lates for index in (late.index, *(one.index for one in late.others))}


def job_of(seen: list[JobsFacts]) -> RunningJob:
    (job,) = seen[-1].jobs
    return job


def waits(job: RunningJob) -> list[Mapping[str, float]]:
    """By GPU of whom it waits for more than 2 % of the time."""
    return [{whom: share for whom, share in one.waits.items() if share > 0.02} for one in job.gpus]


@TIMINGS
@pytest.mark.parametrize("late", [1, 2])
def test_a_late_gpu_of_tensor_and_data_parallel_ranks_is_named_and_not_its_partner(
    late: int, timing: str
) -> None:
    seen = watched(replace(TENSOR_AND_DATA, slow={late: 1.25}, timing=timing))
    assert named(seen) == {str(late)}
    job = job_of(seen)
    assert [[*one] for one in waits(job)] == [[] if n == late else [uuid(late)] for n in range(4)]
    for one in job.gpus:
        assert sum(one.waits.values()) <= one.waiting + 1e-9
        assert one.index == str(late) or one.waits[uuid(late)] == pytest.approx(one.waiting, rel=0.15)


def test_who_arrives_last_in_the_other_communicator_was_only_held_up() -> None:
    """Of the data parallel pairs one shows the late rank's partner last, and names nobody."""
    job = job_of(watched(replace(TENSOR_AND_DATA, slow={1: 1.25})))
    data = [comm for comm in job.communicators if comm.group == "DP"]
    partner = next(comm for comm in data if {one.index for one in comm.here} == {"0", "2"})
    own = next(comm for comm in data if {one.index for one in comm.here} == {"1", "3"})
    assert partner.late is None
    assert own.late is not None
    assert own.late.index == "1"
    (waiter,) = [rank for rank in partner.windows[-1].ranks if rank.waiting > 0.02]
    assert waiter.rank == 1
    assert waiter.waits[uuid(1)] > 0.9 * waiter.waiting


@TIMINGS
def test_nobody_is_late_in_healthy_tensor_and_data_parallel_ranks(timing: str) -> None:
    seen = watched(replace(TENSOR_AND_DATA, timing=timing))
    assert named(seen) == set()
    assert all(one == {} for one in waits(job_of(seen)))


@TIMINGS
@pytest.mark.parametrize("beside", [False, True])
def test_a_slow_rail_names_no_rank_and_is_waited_for_elsewhere(timing: str, *, beside: bool) -> None:
    """Tensor parallel ranks leave the slow data parallel group late, and were not late themselves."""
    seen = watched(replace(NODES, rail={3: 2.5}, timing=timing, beside=beside))
    assert named(seen) == set()
    job = job_of(seen)
    assert all([*one] in ([ELSEWHERE], []) for one in waits(job))
    assert job.gpus[3].waits[ELSEWHERE] > 0.02
    assert beside or all(one.waits[ELSEWHERE] > 0.6 * one.waiting > 0.02 for one in job.gpus)
    (rail,) = [one for one in job.remarks if one.kind is JobRemarkKind.RAIL]
    assert rail.text.startswith(
        "slow rail: the communicator of GPU 3 takes 2.5 times as long as its 3 siblings"
    )
    assert rail.cost is not None
    assert rail.cost > 0.05
    assert [comm.elsewhere == rail.text for comm in job.communicators].count(True) == 1
    assert not seen[-1].hints


def test_healthy_rails_are_alike() -> None:
    seen = watched(NODES)
    assert named(seen) == set()
    assert job_of(seen).remarks == ()
    assert all(comm.elsewhere == "" for comm in job_of(seen).communicators)


def test_a_late_gpu_of_another_node_is_elsewhere() -> None:
    seen = watched(replace(NODES, slow={5: 1.4}))
    assert named(seen) == set()
    assert job_of(seen).remarks == ()


@pytest.mark.parametrize("timing", ["all", "moments"])
@pytest.mark.parametrize("slow", [{}, {1: 1.5}], ids=["healthy", "a slow stage"])
def test_a_pipeline_with_tied_embeddings_names_nobody(timing: str, slow: Mapping[int, float]) -> None:
    """Its first stage ends last in each step; for whom it waited there no record says."""
    shape = replace(SLOW_STEPS, pipeline=4, here=4, tied=True, timing=timing, slow=slow)
    seen = watched(shape, 20)
    assert named(seen) == set()
    assert all(one.waits == {} for one in job_of(seen).gpus)
    assert max(one.waiting for one in job_of(seen).gpus) > 0.1, "which is not attributed"


def test_a_late_tensor_parallel_rank_of_a_pipeline_is_named() -> None:
    shape = replace(SLOW_STEPS, tensor=2, pipeline=2, here=4, batches=2, slow={3: 1.25})
    seen = watched(replace(shape, layers=12))
    assert named(seen) == {"3"}
    assert job_of(seen).late.who == "rank 1 (GPU 3) of its communicator"  # type: ignore[union-attr]


def test_a_rank_has_the_job_s_number_where_one_communicator_holds_all() -> None:
    late = job_of(watched(replace(TENSOR_AND_DATA, world=True, slow={2: 1.25}))).late
    assert late is not None
    assert (late.rank, late.who) == (2, "rank 2 (GPU 2)")
    alone = job_of(watched(replace(TENSOR_AND_DATA, slow={2: 1.25}))).late
    assert alone is not None
    assert (alone.rank, alone.who) == (0, "rank 0 (GPU 2) of the TP group")
    assert alone.text.startswith("rank 0 (GPU 2) of the TP group is late: last in ")


def test_a_rank_that_stops_now_and_then_is_waited_for_by_seconds_and_named() -> None:
    """It is last in one of 25 steps, for more than half of the time."""
    shape = replace(SLOW_STEPS, data=4, here=4, layers=30, work=1.5e-3, stall={2: (25, 4.0)}, buckets=4)
    seen = watched(shape, 40)
    assert named(seen) == {"2"}
    late = job_of(seen).late
    assert late is not None
    assert 0.4 < late.cost < 0.6
    for gpu in (0, 1, 3):
        assert job_of(seen).gpus[gpu].waits[uuid(2)] == pytest.approx(0.54, abs=0.06)
    assert uuid(2) not in job_of(seen).gpus[2].waits


TOGETHER = replace(SLOW_STEPS, data=8, layers=10, work=3e-3, buckets=1)


def test_two_ranks_that_are_late_alike_are_named_together() -> None:
    seen = watched(replace(TOGETHER, slow={2: 1.2, 5: 1.2}))
    assert named(seen) == {"2", "5"}
    late = job_of(seen).late
    assert late is not None
    assert late.text.startswith(
        "ranks 2 (GPU 2) and 5 (GPU 5) are late together in 4 of 4 windows; the others lose 1"
    )
    assert [one.gpu for one in late.others] == [uuid(5)]
    assert sorted(hint.gpu for hint in seen[-1].hints) == [uuid(2), uuid(5)]


def test_a_spread_of_ranks_names_nobody() -> None:
    assert named(watched(replace(TOGETHER, slow={n: 1 + 0.04 * n for n in range(8)}))) == set()


def test_time_on_the_wire_beyond_what_is_expected_is_a_share_of_all_time() -> None:
    shape = replace(SLOW_STEPS, data=4, here=4, buckets=4, data_bytes=256 << 20, wire=100e9)
    for one in job_of(watched(shape)).gpus:
        assert not isinstance(one.beyond, Absent)
        assert 0.6 * one.in_collectives < one.beyond < one.in_collectives
    (known, *_) = job_of(watched(replace(shape, wire=340e9))).gpus
    assert not isinstance(known.beyond, Absent)
    assert known.beyond < 0.1 * known.in_collectives
    over = job_of(watched(replace(SLOW_STEPS, data=4, here=2))).gpus[0]
    assert isinstance(over.beyond, Absent), "nothing is expected of a network"


@pytest.mark.parametrize(
    "shape",
    [
        replace(TENSOR_AND_DATA, slow={1: 1.25}),
        replace(SLOW_STEPS, pipeline=4, here=4, tied=True),
        replace(NODES, rail={3: 2.5}),
    ],
    ids=["tensor and data", "pipeline", "rail"],
)
def test_lines_of_inspector_name_nobody_of_several_communicators(shape: ParallelShape) -> None:
    """Nor is that a silence of Inspector's own: see the test below."""
    assert named(watched(replace(shape, timing="lines"), 20)) == set()


def test_lines_of_inspector_name_a_late_gpu_of_one_communicator() -> None:
    alone = watched(replace(SLOW_STEPS, tensor=4, here=4, slow={1: 1.25}, timing="lines"), 20)
    assert named(alone) == {"1"}


def test_collectives_that_are_not_timed_leave_waiting_without_a_cause() -> None:
    """The tensor parallel communicators of two ranks only count: the records do not show where those were."""
    seen = watched(replace(TENSOR_AND_DATA, slow={1: 1.25}, timing="data"))
    assert named(seen) == set()
    assert all(one.waits == {} for one in job_of(seen).gpus)
    assert max(one.waiting for one in job_of(seen).gpus) > 0.1
