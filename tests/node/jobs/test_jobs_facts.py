"""Each guard of what is said of running jobs alone: the worst of several, remarks, witnesses, series."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.node.jobs.ringjobs import (
    AROUND,
    LATE,
    MIB,
    P2P_OFF,
    TENSOR_PARALLEL,
    TRAINING,
    DrawnNode,
    JobShape,
    uuid,
)
from tests.rows import each
from wirewatch.core.jobs import RingCounts, RingReading, RingsReading, RingState
from wirewatch.core.types import Absent, Ok, Subject, Why
from wirewatch.jobs.running import COLLECTOR, NvlinkSent, Witness
from wirewatch.jobs.running.facts import facts_of
from wirewatch.jobs.running.judge import JudgedRings, findings, judge_rings
from wirewatch.jobs.running.metrics import samples
from wirewatch.jobs.running.model import (
    CommunicatorMemory,
    JobsMemory,
    JobsPolicy,
    JobsReading,
    JobSurroundings,
)
from wirewatch.jobs.times import (
    CommunicatorTimes,
    CommunicatorWindow,
    GpuTime,
    JobRank,
    JobRemarkKind,
    JobsFacts,
    LateRank,
    OperationTimes,
    RankTime,
    RunningJob,
    SlowWire,
    TimesDoubt,
)

POLICY = JobsPolicy()
NO_GPU = Absent(Why.MISSING, "no GPU is named")
LINK = Witness("nvlink.link_down", Subject(gpu="1", uuid=uuid(1)), "link 7 is down")


def late(cost: float, since: float = 5.0) -> LateRank:
    return LateRank(1, uuid(1), "1", 4001, 3, 4, 30, 40, cost, since, f"late for {cost}")


def wire(ratio: float, *witnesses: str, since: float = 5.0) -> SlowWire:
    return SlowWire("all_reduce", MIB, 1e9, 2e9, ratio, 3, 4, since, witnesses, (), f"slow by {ratio}")


def poll(*shapes: JobShape, **but: Any) -> tuple[JudgedRings, JobsReading]:
    """One poll of such jobs, before anything is timed."""
    node = DrawnNode(*shapes, **but)
    node.mono += 5.0
    reading = node.read()
    return judge_rings(JobsMemory(), Ok(reading, 1000.0, node.mono), POLICY), reading


def facts(
    judged: JudgedRings, reading: JobsReading, *believed: dict[str, Any], last: Any = None
) -> JobsFacts:
    """The facts where this is believed of the communicators, one after the other."""
    keys = sorted(judged.communicators)
    known = {
        key: replace(judged.communicators[key], fresh=bool(one["memory"].windows), doubt=None, **one)
        for key, one in zip(keys, believed, strict=True)
    }
    memory = replace(judged.memory, last_hint=last)
    return facts_of(replace(judged, communicators=known, memory=memory), Ok(reading, 1000.0, 9.0), POLICY)


WINDOW = CommunicatorMemory(
    windows=(CommunicatorWindow(0.0, 5.0, (), tuple(RankTime(n, 0.1, 0.0, 0.0, 0.0) for n in range(4))),)
)
BOTH = (replace(TRAINING, communicator=1), replace(TRAINING, communicator=2))


def test_the_worst_of_a_job_s_communicators_is_the_job_s() -> None:
    judged, reading = poll(*BOTH)
    (job,) = facts(
        judged, reading,
        {"memory": WINDOW, "late": late(0.1), "wires": (wire(0.5, "link"), wire(0.3, "link"), wire(0.1))},
        {"memory": WINDOW, "late": late(0.2), "wires": (wire(0.4, "link"), wire(0.6))},
    ).jobs  # fmt: skip
    assert job.late == late(0.2)
    assert job.wire == wire(0.3, "link")
    assert [one.wire for one in job.communicators] == [wire(0.3, "link"), wire(0.4, "link")]


@pytest.mark.parametrize(
    ("guard", "believed", "hints"),
    [
        ("a late rank and a wire that nothing else agrees on", {"late": late(0.1), "wires": (wire(0.3),)},
         [("late", uuid(1)), ("wire", "")]),
        ("a wire that something agrees on is a finding", {"wires": (wire(0.3, "link"),)}, []),
        ("nothing", {}, []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_what_is_a_hint(
    guard: str, believed: dict[str, Any], hints: list[tuple[str, str]]
) -> None:
    judged, reading = poll(TRAINING)
    found = facts(judged, reading, {"memory": WINDOW, **believed})
    assert [(hint.kind, hint.gpu) for hint in found.hints] == hints, guard
    assert found.last_hint == (found.hints[0] if hints else None)


def test_the_newest_hint_is_the_one_that_began_last_and_stays() -> None:
    judged, reading = poll(TRAINING)
    found = facts(
        judged, reading, {"memory": WINDOW, "late": late(0.1, 5.0), "wires": (wire(0.3, since=9.0),)}
    )
    assert found.last_hint is not None
    assert found.last_hint.kind == "wire"
    assert facts(judged, reading, {"memory": WINDOW}, last=found.last_hint).last_hint == found.last_hint


def test_a_job_is_as_old_as_its_oldest_ring_and_lives_while_one_of_its_communicators_does() -> None:
    def ended(one: RingReading) -> RingReading:
        state = RingState.FINALIZED if one.ring.communicator == 2 else RingState.LIVE
        return replace(one, ring=replace(one.ring, state=state, created=100.0 + one.ring.rank))

    judged, reading = poll(*BOTH, change=ended)
    (job,) = facts(judged, reading, {"memory": WINDOW}, {"memory": WINDOW}).jobs
    assert (job.since, job.live) == (100.0, True)


def test_a_gpu_is_late_as_in_the_communicator_in_which_it_is_most_often() -> None:
    judged, reading = poll(*BOTH)
    ranks = tuple(RankTime(n, 0.2, 0.1, 0.6, 0.0) for n in range(4))
    often = CommunicatorMemory(windows=(CommunicatorWindow(0.0, 5.0, (), ranks),))
    (job,) = facts(judged, reading, {"memory": WINDOW}, {"memory": often}).jobs
    gpu = job.gpus[0]
    assert (gpu.late, gpu.waiting) == (0.6, 0.1)
    assert gpu.in_collectives == pytest.approx(0.3)


def test_a_rank_without_a_gpu_makes_no_gpu_of_its_job() -> None:
    def nameless(one: RingReading) -> RingReading:
        return replace(one, ring=replace(one.ring, gpu=NO_GPU)) if one.ring.rank == 1 else one

    judged, reading = poll(TRAINING, change=nameless)
    (job,) = facts(judged, reading, {"memory": WINDOW}).jobs
    assert [one.gpu for one in job.gpus] == [uuid(0), uuid(2), uuid(3)]
    assert all(one.measured for one in job.gpus)


def test_calls_and_bytes_of_a_communicator_are_those_of_the_rank_that_made_most() -> None:
    def counted(one: RingReading) -> RingReading:
        number = one.ring.rank
        counts = RingCounts(calls={"all_reduce": number}, bytes={"all_reduce": 10 * number}, sends=number,
                            captured=2 * number, unsized={"?": number}, dropped=number)  # fmt: skip
        return replace(one, ring=replace(one.ring, counts=counts), missed=number)

    judged, reading = poll(TRAINING, change=counted)
    (job,) = facts(judged, reading, {"memory": WINDOW}).jobs
    (comm,) = job.communicators
    assert (comm.calls, comm.bytes, comm.unsized) == ({"all_reduce": 3}, {"all_reduce": 30}, {"?": 3})
    assert (comm.missed, comm.dropped) == (6, 6)
    assert [gpu.calls for gpu in job.gpus] == [{"all_reduce": number} for number in range(4)]
    again = judge_rings(judged.memory, Ok(reading, 1000.0, 1010.0), POLICY)
    (comm,) = facts(again, reading, {"memory": WINDOW}).jobs[0].communicators
    assert (comm.missed, comm.sends, comm.captured) == (12, 3, 6)


def test_of_many_versions_some_are_named() -> None:
    def version(one: RingReading) -> RingReading:
        return replace(one, ring=replace(one.ring, tap=f"0.{one.ring.rank}"))

    judged, reading = poll(replace(TRAINING, gpus=tuple(range(6))), change=version)
    (remark,) = facts(judged, reading, {"memory": CommunicatorMemory()}).jobs[0].remarks
    assert remark.kind is JobRemarkKind.TAPS
    assert "0.0, 0.1, 0.2, 0.3" in remark.text
    assert "0.4" not in remark.text


def row(op: str = "all_reduce", **but: Any) -> OperationTimes:
    made = OperationTimes(
        op=op, size_bytes=64 * MIB, ranks=4, joined=10, calls=500, bytes=64 * MIB, wire_seconds=2.5e-3,
        low=2.5e-3, high=2.5e-3, algorithm="RING", protocol="SIMPLE", channels=24,
        busbw=40e9, best=40e9,
    )  # fmt: skip
    return replace(made, **but)


def leaving(
    *rows: OperationTimes, shares: Sequence[float] = (0.3, 0.3), seconds: float = 5.0
) -> CommunicatorMemory:
    ranks = tuple(RankTime(n, share, 0.0, 0.0, 0.0) for n, share in enumerate(shares))
    return CommunicatorMemory(windows=(CommunicatorWindow(0.0, seconds, rows or (row(),), ranks),))


def within(calls: int, seconds: float = 5.0) -> CommunicatorMemory:
    """A group that stays inside the node, with so many calls in its window."""
    return leaving(row(calls=calls), shares=(0.1,) * 4, seconds=seconds)


ACROSS = replace(TENSOR_PARALLEL, gpus=(0, 1), ranks=4, nodes=2, communicator=1)
INSIDE = replace(TRAINING, communicator=2, pid=ACROSS.pid)
LESS = replace(INSIDE, communicator=3)


@pytest.mark.parametrize(
    ("guard", "shapes", "memories", "remarked"),
    [
        ("a group that leaves is used more than one that stays", (ACROSS, INSIDE),
         (leaving(), within(100)), True),
        ("a group that stays is used as much", (ACROSS, INSIDE), (leaving(), within(500)), False),
        ("one of those that stay is used as much", (ACROSS, INSIDE, LESS),
         (leaving(), within(500), within(100)), False),
        ("one of those that stay has no window", (ACROSS, INSIDE), (leaving(), CommunicatorMemory()), True),
        ("one of those that stay has a window of no time", (ACROSS, INSIDE),
         (leaving(), within(500, seconds=0.0)), True),
        ("the group that leaves has no window", (ACROSS, INSIDE), (CommunicatorMemory(), within(100)), False),
        ("it takes little of the time of each rank", (ACROSS, INSIDE),
         (leaving(shares=(0.04, 0.04)), within(100)), False),
        ("it takes enough of one rank's", (ACROSS, INSIDE),
         (leaving(shares=(0.04, 0.06)), within(100)), True),
        ("a group of this node of which one rank is not seen is none that leaves",
         (replace(ACROSS, nodes=1, gpus=(0,)), INSIDE), (leaving(), within(100)), False),
        ("it would not fit", (replace(ACROSS, ranks=5), INSIDE), (leaving(), within(100)), False),
        ("most of it would not be saved", (ACROSS, INSIDE),
         (leaving(row(wire_seconds=0.6e-3)), within(100)), False),
        ("most of it would be", (ACROSS, INSIDE), (leaving(row(wire_seconds=0.8e-3)), within(100)), True),
        ("what is known of saves most", (ACROSS, INSIDE), (leaving(row(), row("?")), within(100)), False),
        ("what is known of takes nearly all", (ACROSS, INSIDE),
         (leaving(row(), row("?", joined=1)), within(100)), True),
        ("inside it would take longer", (ACROSS, INSIDE),
         (leaving(row(), row(wire_seconds=0.1e-3, joined=100)), within(100)), True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_a_group_is_on_the_wrong_side_of_the_node(
    guard: str, shapes: Sequence[JobShape], memories: Sequence[CommunicatorMemory], *, remarked: bool
) -> None:
    judged, reading = poll(*shapes)
    (job,) = facts(judged, reading, *({"memory": one} for one in memories)).jobs
    assert (JobRemarkKind.DOMAIN in {one.kind for one in job.remarks}) is remarked, guard


def test_the_operation_that_takes_most_of_its_time_is_named_with_what_would_be_saved() -> None:
    judged, reading = poll(ACROSS, INSIDE)
    memory = leaving(row("all_gather", joined=1), row(), row("broadcast", wire_seconds=1e-3))
    (job,) = facts(judged, reading, {"memory": memory}, {"memory": within(100)}).jobs
    (remark,) = job.remarks
    assert "all_reduce of 64 MiB takes 2.5 ms, 30% of the time in all" in remark.text
    assert remark.cost == pytest.approx(0.192, abs=0.005)


@pytest.mark.parametrize(
    ("guard", "around", "others", "settings", "named"),
    [
        ("a link of one of its GPUs", {"witnesses": (LINK,)}, 0, {}, "nvlink.link_down of GPU 1"),
        ("a finding about the node", {"witnesses": (replace(LINK, subject=Subject()),)}, 0, {},
         "nvlink.link_down of node"),
        ("a link of another GPU", {"witnesses": (replace(LINK, subject=Subject("6", uuid(6))),)}, 0, {}, ""),
        ("a setting", {}, 0, {"NCCL_P2P_DISABLE": "1"}, "the job's own NCCL_P2P_DISABLE=1"),
        ("a setting by which less is expected", {}, 0, {"NCCL_NVLS_ENABLE": "0"}, ""),
        ("one other job", {}, 1, {}, "pid:9000, whose wire is slow too"),
        ("two other jobs", {}, 2, {}, "pid:9000 and 1 more, whose wire is slow too"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_what_agrees_that_a_wire_is_slow(
    guard: str, around: dict[str, Any], others: int, settings: dict[str, str], named: str
) -> None:
    base = replace(P2P_OFF, gpus=(0, 1), settings=settings)
    more = [
        replace(base, gpus=(2 + 2 * n, 3 + 2 * n), communicator=5 + n, pid=9000 + 100 * n)
        for n in range(others)
    ]
    node = DrawnNode(base, *more, around=replace(AROUND, **around))
    found = node.poll(5)
    wires = [job.wire for job in found.jobs if job.wire is not None]
    assert len(wires) == 1 + others
    assert [one.partition(": ")[0] for one in wires[0].witnesses] == ([named] if named else []), guard
    assert [hint.kind for hint in found.hints] == ([] if named else ["wire"])
    assert bool(node.found) is bool(named)
    assert ("more job" in (node.found[0].evidence if named else "")) is (others > 0)


@pytest.mark.parametrize(("times", "named"), [(1, False), (2, True)])
def test_nvlink_must_have_stood_still_twice_to_agree(times: int, *, named: bool) -> None:
    node = DrawnNode(P2P_OFF)
    node.poll(4)
    for _ in range(times + 1):
        node.around = replace(AROUND, nvlink=NvlinkSent(node.mono, {uuid(1): 0, uuid(2): 0, uuid(7): 0}))
        found = node.poll()
    said = "NVLink of GPU 1 carried 0% of what its collectives send: they go another way"
    wire = found.jobs[0].wire
    assert wire is not None
    assert wire.witnesses == ((said,) if named else ())
    assert set(node.memory.due) <= {uuid(n) for n in range(8)}


def test_the_slowest_of_a_job_s_wires_is_its_finding() -> None:
    calls = (("all_reduce", 256 * MIB), ("all_gather", 256 * MIB))
    node = DrawnNode(replace(P2P_OFF, calls=calls), around=replace(AROUND, witnesses=(LINK,)))
    facts = node.poll(5)
    ratios = {wire.op: wire.ratio for one in judged_wires(node) for wire in one}
    worst = min(ratios, key=lambda op: ratios[op])
    assert set(ratios) == {"all_reduce", "all_gather"}
    assert node.found[0].evidence.startswith(f"pid:4000: {worst} of 256 MiB")
    assert facts.jobs[0].wire is not None
    assert facts.jobs[0].wire.op == worst


def judged_wires(node: DrawnNode) -> list[tuple[SlowWire, ...]]:
    judged = judge_rings(node.memory, Ok(node.read(), 0.0, node.mono), POLICY)
    assert findings(judged) == node.found
    return [one.wires for one in judged.communicators.values()]


def test_a_slow_wire_is_slow_since_it_was_found_until_it_is_not() -> None:
    node = DrawnNode(P2P_OFF)
    first = node.poll(4).jobs[0].wire
    later = node.poll(2).jobs[0].wire
    assert first is not None
    assert later is not None
    assert later.since == first.since
    node.jobs[0].shape = TRAINING
    assert node.poll(6).jobs[0].wire is None
    node.jobs[0].shape = P2P_OFF
    again = node.poll(6).jobs[0].wire
    assert again is not None
    assert again.since > later.since


def test_rings_that_contradict_each_other_are_not_joined() -> None:
    node = DrawnNode(TRAINING)
    node.poll(2)
    joined = node.memory.communicators[f"user:{TRAINING.uid}", TRAINING.communicator].joined
    node.change = lambda one: replace(one, ring=replace(one.ring, nodes=1 + one.ring.rank % 2))
    (comm,) = node.poll(2).jobs[0].communicators
    assert (comm.doubt, comm.joined, comm.fresh) == (TimesDoubt.UNLIKE, joined, False)


def test_the_log_says_once_when_a_hint_begins_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "wirewatch.jobs.running")
    node = DrawnNode(LATE)
    hint = node.poll(6).hints[0]
    (said,) = caplog.messages
    assert said.startswith("hint of job pid:4000, no verdict: rank 2 (GPU 2) is late")
    node.jobs.clear()
    node.poll()
    assert caplog.messages[1:] == [f"hint of job pid:4000 is over: {hint.text}"]


def test_a_folder_without_rings_is_nothing_to_watch() -> None:
    assert not COLLECTOR.applicable(JobsReading(RingsReading()))
    assert not COLLECTOR.applicable(JobsReading(NO_GPU))
    (ring,) = (DrawnNode(TRAINING).jobs[0].ranks[0].ring,)
    assert COLLECTOR.applicable(JobsReading(RingsReading((RingReading(ring),))))


def series(memory: JobsMemory, reading: JobsReading | None = None) -> dict[tuple[str, ...], float]:
    found = samples(reading or JobsReading(RingsReading(), around=AROUND), memory)
    return {(one.metric.name, *one.labels): one.value for one in found}


def job(*gpus: GpuTime, live: bool = True, rows: Sequence[OperationTimes] = (), **but: Any) -> RunningJob:
    window = CommunicatorWindow(0.0, 5.0, tuple(rows), ())
    comm = CommunicatorTimes("1", "", 4, 1, (), (window,), fresh=True)
    return RunningJob("slurm:7", (), 1000, 0.0, live, (replace(comm, **but),), gpus)


MEASURED = GpuTime(uuid(0), "0", 0.9, 0.3, 0.2, measured=True)
WAIT, LATES, INFO = (
    (f"{name}", "0", uuid(0)) for name in ("job_wait_ratio", "job_late_ratio", "gpu_allocation_info")
)


@pytest.mark.parametrize(
    ("guard", "one", "found"),
    [
        ("a GPU that is measured", job(MEASURED), {WAIT: 0.3, LATES: 0.2, (*INFO, "slurm:7"): 1}),
        ("a GPU that is not measured", job(replace(MEASURED, measured=False)), {(*INFO, "slurm:7"): 1}),
        ("a GPU of no machine", job(replace(MEASURED, gpu="GPU-made-up")), {}),
        ("a job that is over", job(replace(MEASURED, measured=False), live=False), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_which_gpu_has_series(
    guard: str, one: RunningJob, found: dict[tuple[str, ...], float]
) -> None:
    memory = JobsMemory(facts=JobsFacts(0.0, 0.0, (one,)))
    reading = JobsReading(RingsReading(), around=AROUND, names=True)
    assert series(memory, reading) == found, guard
    assert not [name for name in series(memory) if name[0] == INFO[0]]


def test_nothing_is_counted_before_the_first_reading_without_a_folder_and_of_a_gpu_that_is_gone() -> None:
    counted = JobsMemory(calls={(uuid(0), "all_reduce"): 5}, facts=JobsFacts(0.0, 0.0))
    assert series(counted) == {("job_collectives_total", "0", uuid(0), "all_reduce"): 5}
    assert series(replace(counted, facts=None)) == {}
    assert series(counted, JobsReading(NO_GPU, around=AROUND)) == {}
    assert series(counted, JobsReading(RingsReading(), around=JobSurroundings())) == {}


AT = ("all_reduce", str(64 * MIB), "4")


@pytest.mark.parametrize(
    ("guard", "rows", "found"),
    [
        ("what is expected, and the ratio", [row(expected=80e9, trusted=True)],
         {"busbw": 40e9, "expected_busbw": 80e9, "ratio": 0.5}),
        ("a ratio that is not sure has no series", [row(expected=80e9)],
         {"busbw": 40e9, "expected_busbw": 80e9}),
        ("nothing is expected", [row(trusted=True)], {"busbw": 40e9}),
        ("without bus bandwidth there is no series", [row(busbw=NO_GPU, expected=80e9)], {}),
        ("the lowest ratio", [row(expected=80e9), row(expected=90e9), row(expected=70e9)],
         {"busbw": 40e9, "expected_busbw": 90e9}),
        ("one with a ratio before one without", [row(wire_seconds=9.0, busbw=1e9), row(expected=80e9)],
         {"busbw": 40e9, "expected_busbw": 80e9}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_which_series_a_wire_has(
    guard: str, rows: Sequence[OperationTimes], found: dict[str, float]
) -> None:
    names = {
        "busbw": "job_busbw_bytes_per_second", "expected_busbw": "job_expected_busbw_bytes_per_second",
        "ratio": "job_busbw_ratio",
    }  # fmt: skip
    for some in (rows, [*reversed(rows)]):
        memory = JobsMemory(facts=JobsFacts(0.0, 0.0, (job(rows=some),)))
        assert series(memory) == {(names[name], *AT): value for name, value in found.items()}, guard


def test_sixteen_operations_and_sizes_that_took_most_time_have_series() -> None:
    rows = [row(size_bytes=1 << n, calls=n) for n in range(20, 40)]
    found = series(JobsMemory(facts=JobsFacts(0.0, 0.0, (job(rows=rows),))))
    assert sorted(int(name[2]) for name in found) == [1 << n for n in range(24, 40)]


@pytest.mark.parametrize(
    ("guard", "but", "count"),
    [
        ("a fresh window", {}, 1),
        ("a window of the past", {"fresh": False}, 0),
        ("a window that is in doubt", {"doubt": TimesDoubt.UNSEEN}, 0),
        ("the newest of several", {"windows": (CommunicatorWindow(0.0, 5.0, (row(), row()), ()),
                                               CommunicatorWindow(5.0, 5.0, (row(),), ()))}, 1),
        ("no window", {"windows": ()}, 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_which_rows_are_of_now(guard: str, but: dict[str, Any], count: int) -> None:
    found = JobsFacts(0.0, 0.0, (job(rows=[row()], **but),))
    assert len(list(found.rows())) == count, guard


@pytest.mark.parametrize(
    ("guard", "got", "expected", "ratio"),
    [
        ("both are known", 40e9, 80e9, 0.5),
        ("it got nothing that is known", NO_GPU, 80e9, None),
        ("nothing is expected", 40e9, NO_GPU, None),
        ("no bandwidth is expected", 40e9, 0.0, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_there_is_a_ratio(
    guard: str, got: float | Absent, expected: float | Absent, ratio: float | None
) -> None:
    assert row(busbw=got, expected=expected).ratio == ratio, guard
    assert row(best=got, expected=expected).best_ratio == ratio


def test_a_job_s_processes_are_those_that_are_known() -> None:
    pids: tuple[int | Absent, ...] = (9, 7, NO_GPU)
    ranks = (JobRank(n, uuid(n), str(n), pid, 1, "", RingState.LIVE, {}) for n, pid in enumerate(pids))
    assert job(here=tuple(ranks)).pids == (7, 9)
    assert (job(windows=()).communicators[0].newest, job().communicators[0].newest is None) == (None, False)
    sizes = {0: False, 1: True, MIB - 1: True, MIB: False}
    assert {size: row(size_bytes=size).small for size in sizes} == sizes


@each(
    ("name", "value", "wrong"),
    [
        ("window", 0.0, "must be above 0"), ("votes", 1.01, "must be above 0 and at most 1"),
        ("votes", 1.0, ""), ("chance", 0.0, "must be above 0 and at most 1"), ("confirm", 1, ""),
        ("confirm", 0, "must be above 0"), ("fewest", 1, ""), ("fewest", 9, "must not be above joined"),
        ("longest", 4.9, "must not be below window"),
        ("windows", 2, "must not be below confirm, nor above 8"),
        ("windows", 8, ""), ("windows", 9, "must not be below confirm, nor above 8"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_meant_is_wrong(name: str, value: Any, wrong: str) -> None:
    said = replace(POLICY, **{name: value}).wrong()
    assert (wrong in said) if wrong else (said == "")
