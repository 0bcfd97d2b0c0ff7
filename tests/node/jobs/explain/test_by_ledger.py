"""The first line by the ledger: its largest share that is not computing, and never firmer than that."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.node.jobs.explain.drawn import (
    NOW,
    PIDS,
    RANKS,
    evidence,
    gpu,
    gpu_uuid,
    gpus,
    healthy,
    job,
    late,
    ledger,
    row,
    slow,
    spent,
    waiting,
)
from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.evidence import (
    Certainty,
    EvidenceSource,
    HungJob,
    JobEvidence,
    JobFinding,
    JobGpu,
    LateGpu,
    MoreWork,
    Wall,
)
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.hangs import StandingJob
from wirewatch.jobs.ledger.spent import GpuLedger, JobLedger, RankBehind
from wirewatch.jobs.times import JobRemark, JobRemarkKind

HIGH, MEDIUM, LOW = Certainty.HIGH, Certainty.MEDIUM, Certainty.LOW
NO_TAP = [EvidenceSource.TAP]
QUIET = job(waiting=0.0)


def four(*gpus: GpuLedger) -> JobLedger:
    """These GPUs, and as many that compute that there are four."""
    return ledger(*gpus, *(spent(n, wire=0.02) for n in range(len(gpus), RANKS)))


def each_other(share: float) -> JobLedger:
    return ledger(*(spent(n, {(n + 1) % RANKS: share}) for n in range(RANKS)))


def both_late(first: float, second: float) -> JobLedger:
    return ledger(*(spent(n, {} if n in {1, 2} else {1: first, 2: second}) for n in range(RANKS)))


def threads(*shares: float) -> list[JobGpu]:
    return [replace(gpu(n), thread=share) for n, share in enumerate(shares)]


CASES: Mapping[str, tuple[JobEvidence, Wall, str, Certainty]] = {
    "stalls that timed windows miss": (
        evidence(job(), book=waiting(1, 0.55)), Wall.LATE_RANK,
        "Collectives: 3 of 4 GPUs wait for rank 1 on GPU 1, which costs 55 % of the time.", MEDIUM,
    ),
    "without the tap": (
        evidence(job(), missing=NO_TAP, book=waiting(1, 0.55)), Wall.LATE_RANK,
        "Collectives: 3 of 4 GPUs wait for GPU 1, which costs 55 % of the time.", LOW,
    ),
    "the tap names it too": (
        evidence(job(late=late(1, 0.5)), book=waiting(1, 0.55)), Wall.LATE_RANK,
        "Collectives: 3 of 4 ranks wait for rank 1 on GPU 1, which costs 55 % of the time.", MEDIUM,
    ),
    "the tap and the GPU's activity name it too": (
        replace(evidence(job(late=late(1, 0.5)), book=waiting(1, 0.55)), late=LateGpu("GPU-1", "1", "busy")),
        Wall.LATE_RANK,
        "Collectives: 3 of 4 ranks wait for rank 1 on GPU 1, which costs 55 % of the time.", HIGH,
    ),
    "the waiting one has nothing to run": (
        evidence(job(), book=ledger(*(
            spent(n, idle=0.5, does="sleeps") if n == 1 else spent(n, {1: 0.55}) for n in range(RANKS)
        ))), Wall.HOST,
        ("Host: 3 of 4 GPUs wait for rank 1 on GPU 1, which costs 55 % of the time: something runs on its "
        "GPU only 50 % of the time, on the others 100 %, so its process keeps it waiting (sleeps)."), MEDIUM,
    ),
    "it has more work": (
        evidence(job(), book=waiting(3, 0.1), more=MoreWork("GPU-3", "3", 0.1, 0.09, "tensor 78 %")),
        Wall.UNEVEN_WORK,
        "Uneven work: rank 3 on GPU 3 has 10 % more work than the others; the others wait 10 % of the time.",
        MEDIUM,
    ),
    "a healthy spread": (
        evidence(QUIET, book=waiting(1, 0.039)), Wall.COMPUTING,
        ("No cause of 5.0 % or more is known: 97 % computing, 2.9 % waiting for a rank of this node; the "
        "collectives run at 330 GB/s of 340 GB/s expected."), MEDIUM,
    ),
    "two are late": (
        evidence(job(), book=both_late(0.06, 0.07)), Wall.LATE_RANK,
        "Collectives: 2 of 4 GPUs wait for rank 2 on GPU 2, which costs 7.0 % of the time.", MEDIUM,
    ),
    "all wait for each other a little": (
        evidence(QUIET, book=each_other(0.06)), Wall.COMPUTING,
        ("No cause of 5.0 % or more is known: 94 % computing, 6.0 % waiting for a rank of this node; the "
        "collectives run at 330 GB/s of 340 GB/s expected."), MEDIUM,
    ),
    "all wait for each other": (
        evidence(job(), book=each_other(0.14)), Wall.NOT_ATTRIBUTED,
        "Collectives: the GPUs wait for each other 14 % of the time, and for no single one.", MEDIUM,
    ),
    "another node": (
        evidence(job(), book=healthy(other_node=0.2)), Wall.LATE_RANK,
        "Collectives: the GPUs wait for another node; the ledger shows 20 % of the time.", MEDIUM,
    ),
    "a wire that no operation shows": (
        evidence(job(), book=healthy(beyond=0.08, wire=0.1)), Wall.SLOW_WIRE,
        ("Collectives: the wire takes longer than is expected, which costs 8.0 % of the time; no operation "
        "is slow enough to be named."), LOW,
    ),
    "a slow wire as the ledger has it": (
        evidence(job(row(25e9), wire=slow(25e9, "NCCL_P2P_DISABLE=1: memory"), share=0.45),
                 book=healthy(beyond=0.38, wire=0.03)), Wall.SLOW_WIRE,
        ("Collectives: the wire is slow: all_reduce of 256 MiB gets 25.0 GB/s of 340 GB/s (7.4 %), because "
        "NCCL_P2P_DISABLE=1; this costs about 38 % of the time."), HIGH,
    ),
    "a slow wire, of which the ledger does not know what is expected": (
        evidence(job(row(25e9), wire=slow(25e9, "NCCL_P2P_DISABLE=1: memory"), share=0.45),
                 book=healthy(wire=0.4)), Wall.SLOW_WIRE,
        ("Collectives: the wire is slow: all_reduce of 256 MiB gets 25.0 GB/s of 340 GB/s (7.4 %), because "
        "NCCL_P2P_DISABLE=1; this costs about 40 % of the time."), HIGH,
    ),
    "a slow wire that the ledger shows less": (
        evidence(job(row(25e9), wire=slow(25e9, "NCCL_P2P_DISABLE=1: memory"), share=0.45),
                 book=healthy(beyond=0.1)), Wall.SLOW_WIRE,
        ("Collectives: the wire is slow: all_reduce of 256 MiB gets 25.0 GB/s of 340 GB/s (7.4 %), because "
        "NCCL_P2P_DISABLE=1; this costs about 41 % of the time; the ledger shows 10 % of the time."), LOW,
    ),
    "a wire beyond what is expected by less than work beside it costs": (
        evidence(QUIET, book=healthy(beyond=0.059, wire=0.1)), Wall.COMPUTING,
        ("No cause of 5.0 % or more is known: 84 % computing, 10 % on the wire, as expected, 5.9 % on the "
        "wire, beyond what is expected; nobody waits; the collectives run at 330 GB/s of 340 GB/s "
        "expected."), HIGH,
    ),
    "a wire beyond what is expected by just more than work beside it costs": (
        evidence(QUIET, book=healthy(beyond=0.061, wire=0.1)), Wall.SLOW_WIRE,
        ("Collectives: the wire takes longer than is expected, which costs 6.1 % of the time; no operation "
        "is slow enough to be named."), LOW,
    ),
    "a wire beyond what is expected, by little of the time": (
        evidence(QUIET, book=healthy(beyond=0.049, wire=0.01)), Wall.COMPUTING,
        ("No cause of 5.0 % or more is known: 94 % computing, 4.9 % on the wire, beyond what is expected, "
        "1.0 % on the wire, as expected; nobody waits; the collectives run at 330 GB/s of 340 GB/s "
        "expected."), HIGH,
    ),
    "waiting that is not attributed": (
        evidence(QUIET, book=healthy(unnamed=0.12)), Wall.NOT_ATTRIBUTED,
        "12 % of the time is waiting that could not be attributed.", MEDIUM,
    ),
    "waiting that is not attributed, without the tap": (
        evidence(QUIET, missing=NO_TAP, book=healthy(unnamed=0.12)), Wall.NOT_ATTRIBUTED,
        "12 % of the time is waiting that could not be attributed.", LOW,
    ),
    "work or waiting": (
        evidence(QUIET, book=healthy(not_attributed=0.12)), Wall.NOT_KNOWN,
        ("Not known: 12 % of the time could not be attributed: nothing shows whether its GPUs work or "
        "wait."), LOW,
    ),
    "work or waiting, of which a little is waiting": (
        evidence(QUIET, book=healthy(not_attributed=0.08, unnamed=0.049)), Wall.NOT_KNOWN,
        ("Not known: 13 % of the time could not be attributed: nothing shows whether its GPUs work or "
        "wait."), LOW,
    ),
    "work or waiting, of which more is waiting": (
        evidence(QUIET, book=healthy(not_attributed=0.5, unnamed=0.05)), Wall.NOT_ATTRIBUTED,
        "5.0 % of the time is waiting that could not be attributed.", MEDIUM,
    ),
    "small causes are just less than is little": (
        evidence(QUIET, book=healthy(not_attributed=0.009, beyond=0.01, other_node=0.01)), Wall.NOTHING,
        ("Nothing of this node holds it up: 97 % computing, 1.0 % waiting for another node, 1.0 % on the "
        "wire, beyond what is expected, 0.9 % not attributed; nobody waits; the collectives run at "
        "330 GB/s of 340 GB/s expected."), HIGH,
    ),
    "small causes are together as much as is not little": (
        evidence(QUIET, book=healthy(not_attributed=0.01, beyond=0.01, other_node=0.011)), Wall.COMPUTING,
        ("No cause of 5.0 % or more is known: 97 % computing, 1.1 % waiting for another node, 1.0 % on the "
        "wire, beyond what is expected, 1.0 % not attributed; nobody waits; the collectives run at 330 GB/s "
        "of 340 GB/s expected."), HIGH,
    ),
    "a little is not attributed": (
        evidence(QUIET, book=healthy(not_attributed=0.04, wire=0.02)), Wall.COMPUTING,
        ("No cause of 5.0 % or more is known: 94 % computing, 4.0 % not attributed, 2.0 % on the wire, as "
        "expected; the collectives run at 330 GB/s of 340 GB/s expected."), MEDIUM,
    ),
    "more is not attributed than for whom others wait": (
        evidence(job(late=late()), book=ledger(*(
            spent(n, {} if n == 2 else {2: 0.12}, unnamed=0.2) for n in range(RANKS)
        ))), Wall.NOT_ATTRIBUTED, "20 % of the time is waiting that could not be attributed.", MEDIUM,
    ),
    "nothing runs anywhere, and the processes sleep": (
        evidence(QUIET, threads(0.6, 0.6, 0.6, 0.7), book=healthy(idle=0.3)), Wall.HOST,
        ("Host: nothing runs on the GPUs 30 % of the time, and their processes sleep: waiting for data, "
        "storage or another process."), HIGH,
    ),
    "nothing runs anywhere, and one process launches": (
        evidence(QUIET, threads(0.6, 0.6, 0.6, 0.99), book=healthy(idle=0.3)), Wall.HOST,
        ("Host or launch gaps: nothing runs on the GPUs 30 % of the time; which of the two it is is not "
        "known."), LOW,
    ),
    "nothing runs anywhere, and all processes launch": (
        evidence(QUIET, threads(0.99, 0.99, 0.98, 0.99), book=healthy(idle=0.3)), Wall.LAUNCH_GAPS,
        ("Launch gaps: nothing runs on the GPUs 30 % of the time, while the thread that launches kernels is "
        "busy 98 % to 99 % of it: the kernels are too short for the host."), HIGH,
    ),
    "nothing runs on one": (
        evidence(QUIET, threads(0.1, 0.1, 0.1, 0.1), book=four(spent(0, idle=0.9))), Wall.HOST,
        ("Host: nothing runs on GPU 0 90 % of the time, and its process sleeps: waiting for data, storage or "
        "another process."), LOW,
    ),
    "an idle GPU of a healthy job": (
        evidence(QUIET, book=healthy(idle=0.11)), Wall.NOTHING,
        ("Nothing of this node holds it up: 89 % computing, 11 % nothing runs on it; nobody waits; the "
        "collectives run at 330 GB/s of 340 GB/s expected."), HIGH,
    ),
    "collectives that nothing hides": (
        evidence(QUIET, [replace(one, math=0.3) for one in gpus()], book=healthy(wire=0.4)), Wall.COLLECTIVES,
        ("Collectives: 40 % of the time is on the wire, which gives what it should (330 GB/s of 340 GB/s "
        "expected); there is too much to send, or it does not overlap with computing."), MEDIUM,
    ),
    "arithmetic of one GPU hides them": (
        evidence(QUIET, [replace(gpu(n), math=0.3 if n else 0.9) for n in range(RANKS)],
                 book=healthy(wire=0.4)), Wall.NOTHING,
        ("Nothing of this node holds it up: 60 % computing, 40 % on the wire, as expected; nobody waits; the "
        "collectives run at 330 GB/s of 340 GB/s expected."), HIGH,
    ),
    "the memory of one GPU is not busy": (
        evidence(QUIET, [gpu(n, "memory_bound") if n else gpu(n) for n in range(RANKS)], book=healthy()),
        Wall.NOTHING,
        ("Nothing of this node holds it up: 98 % computing, 2.0 % on the wire, as expected; nobody waits; "
        "the collectives run at 330 GB/s of 340 GB/s expected."), HIGH,
    ),
    "a GPU that the ledger does not have": (
        evidence(QUIET, book=ledger(*(spent(n) for n in range(3)))), Wall.NOT_KNOWN,
        ("Not known what holds it up: the collectives run at 330 GB/s of 340 GB/s expected, but the time of "
        "GPU 3 is not accounted for: its waiting ledger is not watched."), LOW,
    ),
}  # fmt: skip


@each("case", CASES)
def test_the_largest_share_is_the_first_line(case: str) -> None:
    seen, wall, sentence, certainty = CASES[case]
    answer = decide(seen)
    assert (answer.wall, answer.sentence, answer.certainty) == (wall, sentence, certainty)
    assert any("in the last 5 min: " in one for one in answer.because) or wall is Wall.NOT_KNOWN


def test_the_second_late_rank_is_named_beside_the_first() -> None:
    answer = decide(evidence(job(), book=both_late(0.06, 0.07)))
    assert any("for rank 1 on GPU 1, which costs 6.0 %" in one for one in answer.because)


@pytest.mark.parametrize(
    ("guard", "tap", "other", "kind"),
    [
        ("the tap names a rank that the ledger does not", late(2, 0.12), waiting(2, 0.04), Wall.COMPUTING),
        ("the tap names a rank that the ledger shows too", late(2, 0.06), waiting(2, 0.045), Wall.LATE_RANK),
        ("the ledger shows nothing of it", late(2, 0.06), healthy(), Wall.COMPUTING),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wall_that_the_ledger_does_not_show_is_a_doubt(
    guard: str, tap: object, other: JobLedger, kind: Wall
) -> None:
    answer = decide(evidence(job(late=tap), book=other))  # type: ignore[arg-type]
    assert answer.wall is kind, guard
    if kind is not Wall.LATE_RANK:
        assert answer.certainty is LOW
        assert "nobody waits" not in answer.sentence
        assert any("for rank 2 on GPU 2, which costs" in one for one in answer.doubts)


@pytest.mark.parametrize("seconds", [40.0, 100.0])
@pytest.mark.parametrize(
    ("guard", "long", "lately", "named"),
    [
        ("it alone", (0.14, 0.0), (0.14, 0.0), True),
        ("the others are hardly less idle", (0.14, 0.07), (0.14, 0.07), False),
        ("by chance it alone of late", (0.14, 0.07), (0.2, 0.0), False),
        ("it alone at the start", (0.2, 0.0), (0.14, 0.07), False),
    ],
)
def test_a_gpu_is_named_for_being_idle_where_the_others_are_not(
    guard: str, long: tuple[float, float], lately: tuple[float, float], seconds: float, *, named: bool
) -> None:
    """Garbage collection stops each rank now and then, and one of them more often than the others."""
    both = [
        [spent(n, idle=shares[n > 0], seconds=seconds) for n in range(RANKS)] for shares in (long, lately)
    ]
    answer = decide(evidence(QUIET, book=ledger(*both[0], short=both[1])))
    assert ("nothing runs on GPU 0 14 %" in answer.sentence) is named, guard
    assert ("GPU 0" in answer.sentence) is named, guard


@pytest.mark.parametrize(("other", "named"), [(0.0, True), (0.12, True), (0.14, False)])
def test_of_a_short_window_alone_a_gpu_is_named_where_it_has_hardly_waited_before(
    other: float, *, named: bool
) -> None:
    """Ranks of variable lengths wait for each other in turn: within ten seconds for one of them more."""
    lately = [spent(n, {0: 0.26} if n else {1: 0.1}) for n in range(RANKS)]
    before = [spent(n, {0: 0.26} if n else {1: other}, seconds=50.0) for n in range(RANKS)]
    answer = decide(evidence(QUIET, book=ledger(*before, short=lately)))
    assert (answer.wall is Wall.LATE_RANK) is named
    assert ("GPU 0" in answer.sentence) is named


def test_a_slow_rail_is_a_slow_wire_and_no_late_rank() -> None:
    running = job(elsewhere="slow rail: that of GPU 2", nodes=2)
    book = ledger(*(spent(n, other_node=0.1) for n in range(RANKS)))
    assert decide(evidence(running, book=book)).wall is Wall.LATE_RANK
    rail = JobRemark(JobRemarkKind.RAIL, "slow rail: that of GPU 2", 0.1)
    answer = decide(evidence(replace(running, remarks=(rail,)), book=book))
    assert answer.wall is Wall.SLOW_WIRE
    assert answer.sentence == "Collectives: slow rail: that of GPU 2; the ledger shows 10 % of the time."


def windows(long: float, short: float, seconds: float = 300.0) -> JobEvidence:
    def of(share: float) -> list[GpuLedger]:
        return [spent(n, {} if n == 1 else {1: share}, seconds=seconds) for n in range(RANKS)]

    return evidence(QUIET, book=ledger(*of(long), short=of(short)))


@pytest.mark.parametrize(
    ("guard", "seen", "cost"),
    [
        ("the same in both", windows(0.12, 0.12), "12 % of the time"),
        ("new, and lasts 30 s", windows(0.012, 0.12), "12 % of the last 10 s"),
        ("new, and lasts 19 s", windows(0.0076, 0.12), None),
        ("seldom, and now", windows(0.06, 0.5), "6.0 % of the time"),
        ("seldom, and not now", windows(0.06, 0.0), "6.0 % of the time"),
        ("more seldom, and not now", windows(0.04, 0.0), None),
        ("a healthy rank that is a little later now", windows(0.03, 0.055), None),
        ("the long window is too short", windows(0.12, 0.02, 59.0), None),
        ("the long window is too short for what is new", windows(0.01, 0.3, 59.0), "30 % of the time"),
        ("the long window is just long enough", windows(0.12, 0.02, 60.0), "12 % of the time"),
    ],
    ids=lambda value: value if isinstance(value, str) and "%" not in value else "",
)
def test_the_long_window_counts_until_something_new_lasts(
    guard: str, seen: JobEvidence, cost: str | None
) -> None:
    answer = decide(seen)
    named = {Wall.LATE_RANK} if cost else {Wall.NOTHING, Wall.COMPUTING}
    assert answer.wall in named, guard
    assert cost is None or f"which costs {cost}" in answer.sentence


@pytest.mark.parametrize(
    ("guard", "seconds", "short", "wall"),
    [
        ("it starts, and works now", 90.0, 0.0, Wall.NOTHING),
        ("it has started, and idles on", 90.0, 0.3, Wall.LAUNCH_GAPS),
        ("it idles now and then", 300.0, 0.0, Wall.LAUNCH_GAPS),
    ],
)
def test_the_start_of_a_job_in_a_window_that_is_not_full_is_no_idle_time(
    guard: str, seconds: float, short: float, wall: Wall
) -> None:
    long = [spent(n, idle=0.3, seconds=seconds) for n in range(RANKS)]
    book = ledger(*long, short=[spent(n, idle=short) for n in range(RANKS)])
    assert decide(evidence(QUIET, book=book)).wall is wall, guard


IDLE = "nothing runs on GPU 0"


def unseen(idle: float = 1.0, watts: float = 127.0) -> JobEvidence:
    """A hang that began before the agent: GPU 0 is idle at 130 W, GPU 1 spins."""
    rest = replace(gpu(0), utilisation=0.0, power=130.0)
    spins = replace(gpu(1), utilisation=1.0, power=watts)
    book = ledger(spent(0, idle=idle), spent(1, unnamed=1.0))
    return evidence(Absent(Why.MISSING, "no tap"), [rest, spins], NO_TAP, book=book)


@pytest.mark.parametrize(
    ("guard", "seen", "told"),
    [
        ("as an idle one", unseen(), f"{IDLE}; GPU 1 is 100 % busy at idle power, 127 W, and waits"),
        ("it works", unseen(watts=400.0), f"{IDLE}; GPU 1 is 100 % busy at 400 W, and waits"),
        ("none is idle", unseen(idle=0.1), "GPU 1 is 100 % busy at 127 W, and waits"),
    ],
)  # fmt: skip
def test_a_hang_that_began_before_the_agent_is_no_idle_job(guard: str, seen: JobEvidence, told: str) -> None:
    answer = decide(seen)
    assert answer.wall is Wall.NOT_ATTRIBUTED
    assert answer.sentence == f"50 % of the time is waiting that could not be attributed: {told}.", guard


BEHIND = RankBehind(3, "0xabc", gpu_uuid(3), "3", PIDS + 3, 2, 12.0, "one thread burns a core")
STANDING = StandingJob({gpu_uuid(n): frozenset({PIDS + n}) for n in range(RANKS)}, NOW - 14, "no byte moves")
HANG = HungJob("rank 2 is stopped", 1.0, ("power 125 W",), "continue it")
LAUNCHED = (
    "rank 3 on GPU 3 has not launched 2 collectives that others have (its process: one thread burns a core)"
)


@pytest.mark.parametrize(
    ("guard", "seen", "wall", "sentence"),
    [
        ("it stands still", replace(evidence(job()), standing=STANDING), Wall.STANDING,
         "Stands still since 14 s: no byte moves."),
        ("a rank is behind", evidence(job(), book=replace(healthy(), behind=(BEHIND,))), Wall.STANDING,
         f"Stands still since 12 s: {LAUNCHED}."),
        ("a rank was behind for a moment", evidence(job(), book=replace(
            healthy(), behind=(replace(BEHIND, seconds=9.0),))), Wall.NOTHING, "Nothing of this node"),
        ("it stands still, and a rank is behind", replace(
            evidence(job(), book=replace(healthy(), behind=(replace(BEHIND, seconds=9.0),))),
            standing=STANDING), Wall.STANDING, f"Stands still since 14 s: {LAUNCHED}."),
        ("its process works", replace(
            evidence(job(), book=replace(healthy(), behind=(BEHIND,))),
            standing=replace(STANDING, busy=True)), Wall.STANDING,
         "Stands still since 14 s: no byte moves."),
        ("it hangs", replace(evidence(job(), hang=HANG), standing=STANDING), Wall.HANG,
         "Hang: rank 2 is stopped."),
        ("it starts", evidence(job(), book=replace(waiting(1, 0.5), starting=True)), Wall.STARTING,
         "Starting: it was first seen less than a minute ago, or has not worked yet."),
        ("it starts, and the tap names a late rank", evidence(
            job(late=late(1)), book=replace(waiting(1, 0.5), starting=True)), Wall.LATE_RANK, "Collectives"),
        ("it starts, and the tap names a slow wire", evidence(
            job(row(25e9), wire=slow(25e9), share=0.45),
            book=replace(healthy(beyond=0.4), starting=True)), Wall.SLOW_WIRE, "Collectives: the wire is"),
        ("it starts, and the tap names another rank", evidence(
            job(late=late(2)), book=replace(waiting(1, 0.5), starting=True)), Wall.STARTING, "Starting"),
        ("it starts, and the ledger shows less", evidence(
            job(late=late(1, 0.5)), book=replace(waiting(1, 0.04), starting=True)), Wall.STARTING, "Start"),
        ("it starts, and a rank is behind", evidence(job(), book=replace(
            healthy(), starting=True, behind=(BEHIND,))), Wall.STANDING, "Stands still since 12 s"),
        ("it starts, and hangs", evidence(job(), hang=HANG, book=replace(healthy(), starting=True)),
         Wall.HANG, "Hang: rank 2 is stopped."),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)  # fmt: skip
def test_the_surest_comes_first(guard: str, seen: JobEvidence, wall: Wall, sentence: str) -> None:
    answer = decide(seen)
    assert answer.wall is wall, guard
    assert answer.sentence.startswith(sentence)


def test_a_suspected_hang_is_less_sure() -> None:
    assert decide(evidence(job(), hang=HANG)).certainty is HIGH
    assert decide(evidence(job(), hang=replace(HANG, suspected=True))).certainty is MEDIUM


def test_the_host_is_in_the_text_where_it_is_known() -> None:
    seen = replace(evidence(job(), book=waiting(1, 0.55)), host="node-7")
    assert "wait for rank 1 on GPU 1 of node-7, which costs 55 %" in decide(seen).sentence


@pytest.mark.parametrize(
    ("rule", "number", "explains"),
    [
        ("probe.host_link", 1, True), ("straggler.host_link", 1, True), ("straggler.memory", 1, False),
        ("probe.host_link", 2, False),
    ],
)  # fmt: skip
def test_a_slow_host_link_of_that_gpu_explains_its_loader(rule: str, number: int, *, explains: bool) -> None:
    seen, *_ = CASES["the waiting one has nothing to run"]
    found = JobFinding(
        rule, "degraded", f"GPU {number}", gpu_uuid(number), f"{rule} of {number}", "repair it"
    )
    answer = decide(replace(seen, findings=(found,)))
    assert answer.wall is Wall.HOST
    assert (found.evidence in answer.because) is explains
    assert answer.advice[0].startswith("its host link is slow") is explains
