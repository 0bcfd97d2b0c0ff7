"""What is judged of NCCL Inspector's files, from lines to the answer, and what is not."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.jobs.inspector.writing import OLD, RINGS, InspectedNode
from tests.node.jobs.ringjobs import (
    BUCKETS,
    DDP,
    FSDP,
    LATE,
    P2P_OFF,
    TENSOR_PARALLEL,
    TRAINING,
    JobShape,
    lates,
    slow,
)
from wirewatch.jobs.times import CommunicatorTimes, JobsFacts, TimesDoubt

TWO = replace(TRAINING, gpus=(0, 1))


def communicator(facts: JobsFacts) -> CommunicatorTimes:
    ((one,),) = [job.communicators for job in facts.jobs]
    return one


@pytest.mark.parametrize("nccl", [OLD, RINGS])
@pytest.mark.parametrize("shape", [TWO, TRAINING], ids=["two", "four"])
class TestBothFormats:
    def test_a_healthy_job_is_judged_and_nobody_is_named(
        self, tmp_path: Path, nccl: str, shape: JobShape
    ) -> None:
        facts = InspectedNode(tmp_path, shape, nccl=nccl).poll(20)
        one = communicator(facts)
        assert (one.doubt, one.fresh, one.source) == (None, True, f"NCCL Inspector, {nccl}, GPU clock")
        (row,) = one.windows[-1].collectives
        assert row.best_ratio is not None
        assert row.best_ratio > 0.9
        assert (lates(facts), slow(facts)) == ([], [])

    def test_a_late_rank_is_named_where_lines_come_at_once(
        self, tmp_path: Path, nccl: str, shape: JobShape
    ) -> None:
        late = replace(shape, slow={1: 1.25})
        facts = InspectedNode(tmp_path, late, nccl=nccl).poll(20)
        assert slow(facts) == []
        if nccl == RINGS:
            assert lates(facts) == []  # its lines do not say what was computed between
            return
        assert lates(facts) == ["1"]
        found = facts.jobs[0].late
        assert found is not None
        assert found.at_most
        assert "lose at most" in found.text
        assert 0.15 < found.cost < 0.25

    def test_a_slow_wire_is_named_and_nobody_is_late(
        self, tmp_path: Path, nccl: str, shape: JobShape
    ) -> None:
        facts = InspectedNode(tmp_path, replace(shape, busbw=25.1e9), nccl=nccl).poll(20)
        assert slow(facts) == [facts.jobs[0].name]
        assert lates(facts) == []


@pytest.mark.parametrize("interval", [0.0005, 0.5, 10.0])
def test_how_often_lines_are_written_changes_no_share(tmp_path: Path, interval: float) -> None:
    """A rank that is a quarter slower costs 0.2 of the time, however many lines come at once."""
    node = InspectedNode(tmp_path, replace(TRAINING, slow={2: 1.25}), interval=interval)
    one = communicator(node.poll(40))
    (busy,) = {round(rank.in_collectives, 1) for rank in one.windows[-1].ranks if rank.rank != 2}
    assert busy == 0.2


def test_a_late_rank_that_might_only_be_ahead_of_its_computing_is_not_named(tmp_path: Path) -> None:
    """At 6 % the tap names it; without starts, healthy ranks of other jobs cost as much."""
    assert lates(InspectedNode(tmp_path, replace(TRAINING, slow={2: 1.07}), nccl=OLD).poll(30)) == []


@pytest.mark.parametrize("nccl", [OLD, RINGS])
@pytest.mark.parametrize(
    "shape",
    [DDP, FSDP, TENSOR_PARALLEL, replace(BUCKETS, behind={0: 100e-6})],
    ids=["ddp", "fsdp", "tp", "behind"],
)
def test_healthy_training_beside_its_collectives_names_nobody(
    tmp_path: Path, shape: JobShape, nccl: str
) -> None:
    facts = InspectedNode(tmp_path, shape, nccl=nccl).poll(20)
    assert communicator(facts).windows
    assert lates(facts) == []


def test_one_record_an_interval_is_not_judged_and_why_is_said(tmp_path: Path) -> None:
    node = InspectedNode(tmp_path, LATE, nccl=OLD, interval=0.5)
    facts = node.poll(30)
    assert communicator(facts).doubt is TimesDoubt.SPARSE
    assert (lates(facts), slow(facts)) == ([], [])


@pytest.mark.parametrize("clock", ["kernel_cpu", "collective_cpu", "unknown"])
def test_times_of_the_cpu_are_not_judged(tmp_path: Path, clock: str) -> None:
    facts = InspectedNode(tmp_path, replace(LATE, busbw=25.1e9), coll_timing_source=clock).poll(20)
    one = communicator(facts)
    assert (one.doubt, one.joined) == (TimesDoubt.CPU_CLOCK, 0)
    assert one.source.endswith("CPU clock")
    assert (lates(facts), slow(facts)) == ([], [])


def test_what_inspector_does_not_name_ends_the_times(tmp_path: Path) -> None:
    facts = InspectedNode(tmp_path, LATE, coll="Invalid").poll(10)
    assert communicator(facts).doubt is TimesDoubt.SHIFTED


def test_without_its_gpus_nothing_is_expected_and_a_late_rank_is_named_by_its_rank(tmp_path: Path) -> None:
    node = InspectedNode(tmp_path, replace(P2P_OFF, slow={2: 3.0}), nccl=OLD)
    node.around = replace(node.around, gpus={})
    facts = node.poll(20)
    assert slow(facts) == []
    late = facts.jobs[0].late
    assert late is not None
    assert (late.rank, late.index) == (2, "")
    assert "a GPU not known" in late.text


def test_ranks_of_which_one_writes_nothing_are_not_judged(tmp_path: Path) -> None:
    facts = InspectedNode(tmp_path, replace(LATE, ranks=5)).poll(10)
    assert communicator(facts).doubt is TimesDoubt.UNSEEN
