"""Running jobs as the collector judges them: who is waited for, which wire is slow, who is left in peace."""

from dataclasses import replace
from typing import Any

import pytest

from tests.node.jobs.ringjobs import (
    AROUND,
    BUCKETS,
    DDP,
    FSDP,
    LATE,
    LL,
    MIB,
    P2P_OFF,
    SMALL,
    TENSOR_PARALLEL,
    TRAINING,
    TREE,
    DrawnNode,
    JobShape,
    lates,
    slow,
    uuid,
)
from wirewatch.core.jobs import RingCounts, RingReading, RingState
from wirewatch.core.types import Absent, Expect, Health, Ok, Subject
from wirewatch.jobs.running import COLLECTOR, NvlinkSent, Witness, judge
from wirewatch.jobs.running.metrics import samples
from wirewatch.jobs.times import JobRemarkKind, JobsFacts, TimesDoubt

WITHIN = 30.0
"""Seconds in which a late rank and a slow wire must be named, from the first poll on."""
TWO = replace(TRAINING, gpus=(0, 1))
TWO_NODES = replace(TRAINING, ranks=8, nodes=2)


def polls(node: DrawnNode, seconds: float) -> JobsFacts:
    return node.poll(round(seconds / node.every))


def only(facts: JobsFacts) -> tuple[float, float]:
    """Got and expected of the only operation of the only communicator, in GB/s."""
    (row,) = facts.rows()
    assert isinstance(row.busbw, float)
    assert isinstance(row.expected, float)
    return row.busbw / 1e9, row.expected / 1e9


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shape", [LATE, replace(TWO, slow={1: 1.1})], ids=["four", "two"])
def test_a_rank_with_a_tenth_more_work_is_named_and_never_called_the_wire(shape: JobShape, seed: int) -> None:
    node = DrawnNode(shape, seed=seed)
    facts = polls(node, WITHIN)
    (job,) = facts.jobs
    assert job.late is not None
    assert job.late.rank in shape.slow
    assert job.late.gpu == uuid(shape.gpus[job.late.rank])
    assert job.late.cost == pytest.approx(0.085, abs=0.02)
    assert f"the others lose {job.late.cost:.0%} of the time to it" in job.late.text
    assert slow(facts) == []
    assert node.found == ()
    got, expected = only(facts)
    assert got == pytest.approx(340, rel=0.03)
    assert expected == pytest.approx(342, rel=0.01) or shape.here == 2


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("shape", "name"),
    [
        (P2P_OFF, "GB/s at best of 344.7 expected (7%"),
        (TREE, "NCCL ran Tree where its defaults take Ring"),
        (LL, "the protocol LL"),
    ],
    ids=["p2p off", "tree", "ll"],
)
def test_a_slow_wire_is_a_hint_by_its_name_and_no_rank_is_late(shape: JobShape, name: str, seed: int) -> None:
    node = DrawnNode(shape, seed=seed)
    facts = polls(node, WITHIN)
    assert lates(facts) == []
    assert slow(facts) == ["pid:4000"]
    (hint,) = facts.hints
    assert hint.kind == "wire"
    assert name in hint.text
    assert node.found == ()


@pytest.mark.parametrize(
    "shape",
    [TRAINING, TWO, DDP, FSDP, TENSOR_PARALLEL, SMALL],
    ids=["training", "two", "ddp", "fsdp", "tensor parallel", "small"],
)
def test_healthy_jobs_name_no_rank(shape: JobShape) -> None:
    node = DrawnNode(shape)
    for facts in node.watch(30):
        assert lates(facts) == []
        assert facts.hints == ()
        assert node.found == ()
    assert facts.jobs[0].communicators[0].windows


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gpus", [(0, 1), (0, 1, 2, 3)], ids=["two", "four"])
def test_who_begins_each_step_a_moment_later_is_waited_for_in_each_bucket_and_costs_that_once(
    gpus: tuple[int, ...], seed: int
) -> None:
    """A rank that writes the log; on two H100 it was named with 8 % (proof/hardware/2026-11-27-h100.md)."""
    node = DrawnNode(replace(BUCKETS, gpus=gpus, behind={0: 0.12e-3}), seed=seed, every=2.0)
    for facts in node.watch(60):
        assert lates(facts) == []
    window = facts.jobs[0].communicators[0].newest
    assert window is not None
    assert next(one.late for one in window.ranks if one.rank == 0) > 0.8


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("shape", "cost"),
    [(replace(BUCKETS, slow={1: 1.1}), 0.085), (replace(BUCKETS, behind={1: 5e-3}), 0.09)],
    ids=["slow", "its loader is late"],
)
def test_a_late_rank_beside_computing_is_named_with_about_what_it_costs_the_step(
    shape: JobShape, cost: float, seed: int
) -> None:
    facts = polls(DrawnNode(shape, seed=seed, every=2.0), WITHIN)
    assert lates(facts) == ["1"]
    late = facts.jobs[0].late
    assert late is not None
    assert 0.7 * cost < late.cost < 1.4 * cost


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("change", "name"),
    [({"busbw": 25.1e9}, "all_reduce of 32 MiB"), ({"busbw": 110e9, "protocol": "LL"}, "the protocol LL")],
    ids=["p2p off", "ll"],
)
def test_a_wire_far_too_slow_for_buckets_of_32_mib_is_named_though_what_is_due_is_not_sure(
    change: dict[str, Any], name: str, seed: int
) -> None:
    """DDP's buckets are 25 MB by default, and references of most products begin at 64 MiB."""
    facts = polls(DrawnNode(replace(BUCKETS, **change), seed=seed, every=2.0), WITHIN)
    assert lates(facts) == []
    assert slow(facts) == ["pid:4000"]
    wire = facts.jobs[0].wire
    assert wire is not None
    assert name in wire.text
    assert "what is expected there is not sure" in wire.text


def test_overlap_lowers_busbw_and_is_no_fault() -> None:
    facts = DrawnNode(replace(FSDP, overlap=0.9)).poll(6)
    ratios = [row.ratio for row in facts.rows()]
    assert min(ratio for ratio in ratios if ratio is not None) < 0.9
    assert facts.hints == ()


def test_the_rank_with_the_lowest_busbw_of_its_own_is_not_the_late_one() -> None:
    """By their own durations ranks 0, 1 and 3 have a fifth of the busbw of the late rank 2."""
    facts = DrawnNode(LATE).poll(6)
    window = facts.jobs[0].communicators[0].newest
    assert window is not None
    times = {one.rank: one for one in window.ranks}
    assert min(times, key=lambda rank: times[rank].in_collectives) == 2 == window.late
    assert times[2].waiting == 0


def test_with_a_witness_a_slow_wire_is_a_finding() -> None:
    link = Witness("nvlink.link_down", Subject(gpu="1", uuid=uuid(1)), "link 7 is down")
    node = DrawnNode(P2P_OFF, around=replace(AROUND, witnesses=(link,)))
    node.poll(6)
    (finding,) = node.found
    assert (finding.rule, finding.health) == ("jobs.slow_wire", Health.DEGRADED)
    assert "25.1 GB/s at best of 344.7 expected" in finding.evidence
    assert "nvlink.link_down of GPU 1: link 7 is down" in finding.evidence


def test_a_fault_of_a_gpu_that_is_not_in_the_job_is_no_witness() -> None:
    other = Witness("nvlink.link_down", Subject(gpu="6", uuid=uuid(6)), "link 7 is down")
    node = DrawnNode(P2P_OFF, around=replace(AROUND, witnesses=(other,)))
    node.poll(6)
    assert node.found == ()


def test_a_setting_of_the_job_is_a_witness_and_is_named() -> None:
    node = DrawnNode(replace(P2P_OFF, settings={"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}))
    facts = node.poll(6)
    (finding,) = node.found
    assert "the job's own NCCL_P2P_DISABLE=1" in finding.evidence
    assert "NCCL_IB_DISABLE" not in finding.evidence
    (remark,) = facts.jobs[0].remarks
    assert remark.kind is JobRemarkKind.SETTINGS
    assert "NCCL_P2P_DISABLE=1" in remark.text


def test_two_jobs_whose_wires_are_slow_are_each_others_witness() -> None:
    other = replace(P2P_OFF, gpus=(4, 5, 6, 7), communicator=0xBEEF, pid=9000)
    node = DrawnNode(P2P_OFF, other)
    node.poll(6)
    (finding,) = node.found
    assert "pid:9000, whose wire is slow too" in finding.evidence or "pid:4000, whose" in finding.evidence
    assert "(and 1 more job)" in finding.evidence


@pytest.mark.parametrize(("carried", "named"), [(0.02, True), (1.0, False)])
def test_nvlink_that_stands_still_while_collectives_send_is_a_witness(carried: float, named: bool) -> None:  # noqa: FBT001
    node = DrawnNode(P2P_OFF)
    for _ in range(12):
        sent = {uuid(rank): int(carried * 1.5 * node.jobs[0].sent["all_reduce"]) for rank in range(4)}
        node.around = replace(AROUND, nvlink=NvlinkSent(node.mono, sent))
        facts = node.poll()
    assert slow(facts) == ["pid:4000"]
    assert [one.rule for one in node.found] == (["jobs.slow_wire"] if named else [])
    if named:
        assert "NVLink of GPU 0 carried 2% of what its collectives send" in node.found[0].evidence


def test_a_late_rank_of_another_node_is_said_to_be_elsewhere() -> None:
    node = DrawnNode(TWO_NODES)
    assert node.poll(4).jobs[0].communicators[0].elsewhere == ""
    node.jobs[0].shape = replace(TWO_NODES, elsewhere=0.004)
    facts = node.poll(6)
    (comm,) = facts.jobs[0].communicators
    assert "all ranks of this node wait alike" in comm.elsewhere
    assert "is not on this node" in comm.elsewhere
    assert lates(facts) == slow(facts) == []


def test_over_several_nodes_a_late_rank_that_is_here_is_named() -> None:
    facts = DrawnNode(replace(TWO_NODES, slow={1: 1.1})).poll(6)
    assert lates(facts) == ["1"]
    late = facts.jobs[0].late
    assert late is not None
    assert "of 2 nodes only this one is seen; the others here lose" in late.text


def test_small_messages_are_latency_and_never_busbw() -> None:
    (row,) = DrawnNode(SMALL).poll(4).rows()
    assert isinstance(row.busbw, Absent)
    assert row.ratio is None
    assert row.size_bytes == 8192
    assert row.wire_seconds == pytest.approx(8e-6, rel=0.05)
    assert isinstance(row.floor, float)
    assert row.votes.keys() <= {0, 1, 2, 3}


def test_shares_of_the_time_are_those_of_the_job() -> None:
    """A step of 32.3 ms: 1.25 on the wire. The late rank's 10 % are 3.1 ms more, for which others wait."""
    healthy = DrawnNode(TRAINING).poll(6).jobs[0].gpus
    assert [gpu.in_collectives for gpu in healthy] == pytest.approx([0.04] * 4, abs=0.006)
    late = DrawnNode(LATE).poll(6).jobs[0].gpus
    assert [gpu.waiting for gpu in late] == pytest.approx([0.087, 0.087, 0.0, 0.087], abs=0.01)
    assert [gpu.late for gpu in late] == [0.0, 0.0, 1.0, 0.0]
    assert [gpu.index for gpu in late] == ["0", "1", "2", "3"]


def test_ranks_whose_taps_time_fewer_calls_are_joined_where_they_agree() -> None:
    node = DrawnNode(replace(LATE, coarser={1: 1, 3: 2}))
    facts = node.poll(12)
    (comm,) = facts.jobs[0].communicators
    assert comm.partial > comm.joined
    assert lates(facts) == ["2"]


def test_taps_that_never_time_together_say_nothing() -> None:
    def apart(one: RingReading) -> RingReading:
        return replace(one, calls=tuple(call for call in one.calls if call.sequence % 4 == one.ring.rank))

    node = DrawnNode(LATE, change=apart)
    facts = node.poll(20)
    (comm,) = facts.jobs[0].communicators
    assert comm.joined == 0
    assert comm.doubt is TimesDoubt.FEW
    assert lates(facts) == []


@pytest.mark.parametrize(
    ("on", "untimed", "counts", "doubt"),
    [
        (0.0, 0, RingCounts(enqueued=9), TimesDoubt.OFF),
        (0.2, 0, RingCounts(enqueued=9), TimesDoubt.FEW),
        (0.2, 0, RingCounts(enqueued=5000), TimesDoubt.UNKNOWN_NCCL),
        (0.2, 0, RingCounts(enqueued=5000, windows=1), TimesDoubt.FEW),
        (0.2, 0, RingCounts(enqueued=5000, captured=1), TimesDoubt.FEW),
        (0.2, 1, RingCounts(enqueued=9), TimesDoubt.OFF),
        (0.2, 2, RingCounts(enqueued=9), TimesDoubt.NOT_MEASURED),
        (0.2, 3, RingCounts(enqueued=9), TimesDoubt.UNKNOWN_NCCL),
        (0.2, 4, RingCounts(enqueued=9, captured=1), TimesDoubt.FEW),
        (0.2, 5, RingCounts(enqueued=9, windows=1), TimesDoubt.BROADCAST),
        (0.2, 6, RingCounts(enqueued=9, windows=1), TimesDoubt.OVERRIDDEN),
        (0.2, 7, RingCounts(enqueued=9), TimesDoubt.FEW),
    ],
)
def test_a_tap_that_only_counts_says_why(
    on: float, untimed: int, counts: RingCounts, doubt: TimesDoubt
) -> None:
    def counted(one: RingReading) -> RingReading:
        return replace(one, ring=replace(one.ring, on=on, untimed=untimed, counts=counts), calls=())

    facts = DrawnNode(TRAINING, change=counted).poll(6)
    (comm,) = facts.jobs[0].communicators
    assert comm.doubt is doubt
    assert facts.hints == ()


def test_a_rank_that_is_not_seen_leaves_the_others_unjudged() -> None:
    def without(one: RingReading) -> RingReading | None:
        return None if one.ring.rank == 2 else one

    node = DrawnNode(replace(LATE), change=without)
    facts = node.poll(6)
    (comm,) = facts.jobs[0].communicators
    assert comm.doubt is TimesDoubt.UNSEEN
    assert facts.hints == ()
    assert list(facts.rows()) == []


def test_a_job_that_ended_has_no_series_but_its_counters_stay() -> None:
    node = DrawnNode(LATE)
    node.poll(6)
    assert {one.metric.name for one in samples(node.read(), node.memory)} == {
        "job_busbw_bytes_per_second", "job_expected_busbw_bytes_per_second", "job_busbw_ratio",
        "job_wait_ratio", "job_late_ratio", "job_collectives_total", "job_bytes_total",
    }  # fmt: skip
    before = {
        one.labels: one.value for one in samples(node.read(), node.memory) if "total" in one.metric.name
    }
    node.jobs.clear()
    facts = node.poll(6)
    assert facts.jobs == ()
    assert facts.hints == ()
    assert facts.last_hint is not None
    after = {one.labels: one.value for one in samples(node.read(), node.memory)}
    assert {one.metric.name for one in samples(node.read(), node.memory)} == {
        "job_collectives_total", "job_bytes_total",
    }  # fmt: skip
    assert after == before


def test_a_job_that_times_nothing_any_more_is_not_judged_by_its_past() -> None:
    node = DrawnNode(LATE)
    assert lates(node.poll(6)) == ["2"]
    node.change = lambda one: replace(one, calls=())
    facts = node.poll(round((node.policy.stale + 10) / node.every))
    assert lates(facts) == []
    assert list(facts.rows()) == []


def test_the_worst_job_is_the_one_that_has_a_series() -> None:
    other = replace(TREE, gpus=(4, 5, 6, 7), communicator=0xBEEF, pid=9000)
    node = DrawnNode(TRAINING, other)
    node.poll(6)
    found = {
        one.metric.name: one.value for one in samples(node.read(), node.memory) if "size" in one.metric.labels
    }
    assert found["job_busbw_bytes_per_second"] == pytest.approx(234e9, rel=0.03)
    assert found["job_busbw_ratio"] == pytest.approx(0.68, abs=0.02)


def test_no_job_is_named_in_a_label_but_by_opt_in() -> None:
    node = DrawnNode(replace(LATE, owner="slurm:4711"))
    node.poll(6)
    reading = node.read()
    assert not any("4711" in label for one in samples(reading, node.memory) for label in one.labels)
    named = list(samples(replace(reading, names=True), node.memory))
    owners = [one.labels for one in named if one.metric.name == "gpu_allocation_info"]
    assert owners == [(str(n), uuid(n), "slurm:4711") for n in range(4)]


def test_series_stay_within_their_budget() -> None:
    sizes = tuple(("all_reduce", MIB << n) for n in range(12)) + tuple(
        ("alltoall", MIB << n) for n in range(12)
    )
    shape = replace(TRAINING, gpus=tuple(range(8)), calls=sizes)
    node = DrawnNode(shape)
    node.poll(4)
    count = len(list(samples(replace(node.read(), names=True), node.memory)))
    assert 16 * 2 < count <= COLLECTOR.series
    assert sum(one.metric.name.startswith("job_") for one in samples(node.read(), node.memory)) <= 8 * 60


def test_the_same_number_of_another_users_communicator_is_another_one() -> None:
    """A ring that claims a rank of somebody else's communicator is a communicator of its own."""
    node = DrawnNode(LATE)
    forged = node.jobs[0].ranks[2].ring
    node.extra = (RingReading(replace(forged, name="forged", uid=2000, host_pid=77)),)
    honest, other = node.poll(6).jobs
    assert (honest.uid, other.uid) == (1000, 2000)
    assert honest.late is not None
    assert honest.communicators[0].doubt is None
    assert other.communicators[0].doubt is TimesDoubt.UNSEEN


def test_versions_of_nccl_that_differ_are_said() -> None:
    def older(one: RingReading) -> RingReading:
        return replace(one, ring=replace(one.ring, nccl="2.27.3")) if one.ring.rank == 1 else one

    (remark,) = DrawnNode(TRAINING, change=older).poll(2).jobs[0].remarks
    assert remark.kind is JobRemarkKind.VERSIONS
    assert "2.27.3, 2.28.9" in remark.text


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("slurm:1", "slurm:2"), ["processes belong to slurm:1, slurm:2"]),
        (("container:aaaa", "container:bbbb"), []),
        (("slurm:1", "container:aaaa"), []),
    ],
)
def test_a_container_for_each_rank_is_nothing_to_remark(names: tuple[str, str], said: list[str]) -> None:
    node = DrawnNode(replace(TRAINING, gpus=(0, 1)))
    reading = node.read()
    owners = dict(zip(sorted(reading.processes), names, strict=True))
    processes = {name: replace(one, owner=owners[name]) for name, one in reading.processes.items()}
    memory, _ = judge(
        COLLECTOR.start, Ok(replace(reading, processes=processes), 1.0, 1.0), node.policy, Expect()
    )
    assert memory.facts is not None
    (job,) = memory.facts.jobs
    assert [one.text for one in job.remarks] == said


def test_a_group_of_every_layer_that_leaves_the_node_is_named_with_its_cost() -> None:
    """Tensor-parallel ranks one a node, data-parallel ranks inside: the two are the wrong way around."""
    layers = replace(
        TENSOR_PARALLEL, calls=(("all_reduce", 64 * MIB),) * 8, gpus=(0,), ranks=4, nodes=4, busbw=40e9,
        communicator=1,
    )  # fmt: skip
    inside = replace(TRAINING, work=0.4, communicator=2, pid=layers.pid)
    facts = DrawnNode(layers, inside).poll(6)
    (job,) = facts.jobs
    (remark,) = (one for one in job.remarks if one.kind is JobRemarkKind.DOMAIN)
    assert "4 ranks on 4 nodes, 1 of them here" in remark.text
    assert remark.cost is not None
    assert 0.1 < remark.cost < 0.6


def test_data_parallel_ranks_may_leave_the_node() -> None:
    across = replace(TRAINING, work=0.4, gpus=(0,), ranks=4, nodes=4, busbw=40e9, communicator=1)
    layers = replace(TENSOR_PARALLEL, communicator=2, pid=across.pid)
    (job,) = DrawnNode(across, layers).poll(6).jobs
    assert [one.kind for one in job.remarks] == []


def test_a_finalized_communicator_leaves_no_hint() -> None:
    node = DrawnNode(LATE)
    node.poll(6)
    node.change = lambda one: replace(one, ring=replace(one.ring, state=RingState.FINALIZED))
    facts = node.poll()
    assert not facts.jobs[0].live
    assert facts.hints == ()


def witnessed() -> DrawnNode:
    link = Witness("nvlink.link_down", Subject(gpu="1", uuid=uuid(1)), "link 7 is down")
    node = DrawnNode(P2P_OFF, around=replace(AROUND, witnesses=(link,)))
    node.poll(6)
    assert [one.rule for one in node.found] == ["jobs.slow_wire"]
    return node


def test_a_slow_wire_of_a_job_that_times_nothing_any_more_is_no_finding() -> None:
    node = witnessed()
    node.change = lambda one: replace(one, calls=())
    node.poll(round((node.policy.stale - 10) / node.every))
    assert node.found != ()
    facts = node.poll(round(20 / node.every))
    assert node.found == ()
    assert [comm.wire for job in facts.jobs for comm in job.communicators] == [None]


def test_a_slow_wire_of_a_job_that_was_killed_is_no_finding() -> None:
    """Its rings lie there until the agent removes them, for good where the folder is another user's."""
    node = witnessed()
    node.change = lambda one: replace(one, ring=replace(one.ring, state=RingState.DEAD), calls=())
    facts = node.poll()
    assert node.found == ()
    assert slow(facts) == []


def test_a_job_that_was_killed_is_no_witness_of_another() -> None:
    other = replace(P2P_OFF, gpus=(4, 5, 6, 7), communicator=0xBEEF, pid=9000)
    node = DrawnNode(P2P_OFF, other)
    node.poll(6)
    (_,) = node.found

    def killed(one: RingReading) -> RingReading:
        dead = replace(one, ring=replace(one.ring, state=RingState.DEAD), calls=())
        return dead if one.ring.pid >= other.pid else one

    node.change = killed
    facts = node.poll(2)
    assert slow(facts) == ["pid:4000"]
    assert node.found == ()


def test_elements_without_a_type_are_held_against_nothing() -> None:
    def unsized(one: RingReading) -> RingReading:
        return replace(one, calls=tuple(replace(call, size_bytes=None, dtype="") for call in one.calls))

    (row,) = DrawnNode(TRAINING, change=unsized).poll(6).rows()
    assert (row.size_bytes, row.small) == (0, False)
    for value in (row.busbw, row.best, row.expected):
        assert isinstance(value, Absent)
        assert value.detail == "NCCL does not name the type of its elements"
    assert isinstance(row.floor, Absent)


def test_a_late_rank_elsewhere_is_said_without_a_size_where_that_is_not_known() -> None:
    def unsized(one: RingReading) -> RingReading:
        return replace(one, calls=tuple(replace(call, size_bytes=None) for call in one.calls))

    node = DrawnNode(TWO_NODES, change=unsized)
    node.poll(4)
    node.jobs[0].shape = replace(TWO_NODES, elsewhere=0.004)
    assert "wait alike: all_reduce takes" in node.poll(6).jobs[0].communicators[0].elsewhere
