"""Ten injected causes each give the right first line, healthy jobs none; less is less sure."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.node.jobs.explain.drawn import (
    PIDS,
    RANKS,
    SIZE,
    evidence,
    gpu,
    gpu_uuid,
    gpus,
    healthy,
    job,
    late,
    row,
    slow,
)
from tests.rows import each
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.jobs.explain.evidence import (
    NOT_WATCHED,
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
from wirewatch.jobs.explain.walls import decide, speed
from wirewatch.jobs.times import LateRank, OperationTimes, TimesDoubt

P2P = "NCCL_P2P_DISABLE=1: GPUs do not reach each other: through host memory, measured 26 GB/s"
TREE = "NCCL ran Tree, Simple where its defaults take Ring"
LL = "NCCL ran the protocol LL: LL sends 4 bytes of flags with each 4 of data"
UNEVEN = MoreWork("GPU-3", "3", 0.1, 0.09, "GPU 3: tensor 78 % against 69 %, SM busy 83 % against 71 %")
HANG = HungJob(
    "rank 2 (GPU 2, PID 4713) is stopped, and 3 ranks wait for it since 41 s",
    1.0,
    ("power 125 W",),
    "continue it",
)


def late_rank() -> JobEvidence:
    return evidence(job(late=late(), waiting=0.12, share=0.3))


def p2p_off() -> JobEvidence:
    wire = slow(25e9, P2P, witnesses=("NVLink counts 1 % of what the collectives send",))
    return evidence(job(row(25e9), wire=wire, share=0.45))


def tree() -> JobEvidence:
    return evidence(job(row(234e9, algorithm="TREE"), wire=slow(234e9, TREE), share=0.25))


def low_latency() -> JobEvidence:
    return evidence(job(row(150e9, protocol="LL"), wire=slow(150e9, LL), share=0.3))


def memory_bound() -> JobEvidence:
    return evidence(job(share=0.1), gpus("memory_bound"))


def launch_gaps() -> JobEvidence:
    return evidence(job(share=0.1), [replace(gpu(n, "bursts"), thread=0.99) for n in range(RANKS)])


def loader_stall() -> JobEvidence:
    return evidence(job(share=0.1), [replace(gpu(n, "bursts"), thread=0.6) for n in range(RANKS)])


def uneven_work() -> JobEvidence:
    return evidence(job(late=late(3, 0.15), waiting=0.15), more=UNEVEN)


def stopped_rank() -> JobEvidence:
    return evidence(job(late=late()), hang=HANG)


def throttled() -> JobEvidence:
    found = [replace(one, throttled=("hw_thermal_slowdown",)) if one.index == "2" else one for one in gpus()]
    return evidence(job(late=late(), waiting=0.12), found)


CAUSES: Mapping[Callable[[], JobEvidence], tuple[Wall, str]] = {
    late_rank: (
        Wall.LATE_RANK,
        "Collectives: 3 of 4 ranks wait for rank 2 on GPU 2, which costs 12 % of the time.",
    ),
    p2p_off: (
        Wall.SLOW_WIRE,
        (
            "Collectives: the wire is slow: all_reduce of 256 MiB gets 25.0 GB/s of 340 GB/s (7.4 "
            "%), because "
            "NCCL_P2P_DISABLE=1; this costs about 41 % of the time."
        ),
    ),
    tree: (
        Wall.SLOW_WIRE,
        (
            "Collectives: the wire is slow: all_reduce of 256 MiB gets 234 GB/s of 340 GB/s (69 "
            "%), because NCCL "
            "ran Tree, Simple where its defaults take Ring; this costs about 7.5 % of the time."
        ),
    ),
    low_latency: (
        Wall.SLOW_WIRE,
        (
            "Collectives: the wire is slow: all_reduce of 256 MiB gets 150 GB/s of 340 GB/s (44 "
            "%), because NCCL "
            "ran the protocol LL; this costs about 16 % of the time."
        ),
    ),
    memory_bound: (
        Wall.MEMORY,
        (
            "Memory: the GPUs' memory is busy 59 % of the time and their arithmetic 26 %: the job "
            "is bound by "
            "memory bandwidth, not by the wires."
        ),
    ),
    launch_gaps: (
        Wall.LAUNCH_GAPS,
        (
            "Launch gaps: nothing runs on the GPUs 34 % of the time, while the thread that "
            "launches kernels is "
            "busy 99 % of it: the kernels are too short for the host."
        ),
    ),
    loader_stall: (
        Wall.HOST,
        (
            "Host: nothing runs on the GPUs 34 % of the time, and their processes sleep: waiting for data, "
            "storage or another process."
        ),
    ),
    uneven_work: (
        Wall.UNEVEN_WORK,
        "Uneven work: rank 3 on GPU 3 has 10 % more work than the others; the others wait 9.0 % of the time.",
    ),
    stopped_rank: (
        Wall.HANG,
        "Hang: rank 2 (GPU 2, PID 4713) is stopped, and 3 ranks wait for it since 41 s.",
    ),
    throttled: (
        Wall.LATE_RANK,
        (
            "Collectives: 3 of 4 ranks wait for rank 2 on GPU 2, which costs 12 % of the time: that GPU is "
            "throttled (hw_thermal_slowdown)."
        ),
    ),
}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_the_first_line_names_the_cause(cause: Callable[[], JobEvidence]) -> None:
    wall, sentence = CAUSES[cause]
    answer = decide(cause())
    assert (answer.wall, answer.sentence) == (wall, sentence)
    assert all(answer.advice)
    assert answer.because


@pytest.mark.parametrize("shape", ["data_parallel", "tensor_parallel", "sharded", "checkpoints"])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_a_healthy_job_hits_no_wall(shape: str, share: float) -> None:
    """Also one whose collectives take most of the time beside computation (FSDP)."""
    answer = decide(evidence(job(row(), share=share), gpus(shape)))
    assert answer.wall is Wall.NOTHING
    assert answer.sentence.startswith("Nothing of this node holds it up: ")
    assert answer.sentence.endswith("; nobody waits; the collectives run at 330 GB/s of 340 GB/s expected.")
    assert (answer.certainty, answer.doubts) == (Certainty.HIGH, ())


@pytest.mark.parametrize("source", [EvidenceSource.TAP, EvidenceSource.ACTIVITY])
def test_a_job_that_is_half_watched_is_never_surely_healthy(source: EvidenceSource) -> None:
    answer = decide(evidence(job(), missing=[source]))
    assert (answer.wall, answer.certainty) == (Wall.COMPUTING, Certainty.LOW)
    assert ("nobody waits" in answer.sentence) is (source is not EvidenceSource.TAP)
    assert f"{source.value}: not watched: its collector is off" in answer.doubts


def test_a_job_without_a_ledger_is_never_healthy() -> None:
    answer = decide(evidence(job(), missing=[EvidenceSource.LEDGER]))
    assert (answer.wall, answer.certainty) == (Wall.NOT_KNOWN, Certainty.LOW)
    assert answer.sentence == (
        "Not known what holds it up: the collectives run at 330 GB/s of 340 GB/s expected, but the time is "
        "not accounted for: its waiting ledger is not watched."
    )
    assert answer.advice == ("waiting ledger: switch it on",)


def test_a_job_of_which_nothing_is_watched_is_not_known() -> None:
    answer = decide(evidence(job(), missing=list(EvidenceSource)))
    assert answer.sentence == (
        "Not known what holds it up: its collectives are not timed, and the time is not accounted for: its "
        "waiting ledger is not watched."
    )
    assert len(answer.doubts) == len(EvidenceSource)


@pytest.mark.parametrize(
    ("source", "sure"), [(EvidenceSource.HANGS, Certainty.LOW), (EvidenceSource.GPU, Certainty.MEDIUM)]
)
def test_no_wall_is_less_sure_where_something_else_is_not_watched(
    source: EvidenceSource, sure: Certainty
) -> None:
    answer = decide(evidence(job(), missing=[source]))
    assert (answer.wall, answer.certainty) == (Wall.COMPUTING, sure)
    assert answer.doubts == (f"{source.value}: not watched: its collector is off",)


def test_of_what_is_not_judged_nobody_says_that_nobody_waits() -> None:
    answer = decide(evidence(job(doubt=TimesDoubt.UNSEEN)))
    assert (answer.wall, answer.certainty) == (Wall.COMPUTING, Certainty.MEDIUM)
    assert "nobody waits" not in answer.sentence
    assert any(TimesDoubt.UNSEEN.value in doubt for doubt in answer.doubts)


@each("cause", CAUSES, ids=lambda cause: cause.__name__)
@each("source", EvidenceSource)
def test_a_missing_source_never_makes_it_surely_healthy(
    cause: Callable[[], JobEvidence], source: EvidenceSource
) -> None:
    """The wall may no more be seen then; but nobody is sure that there is none, nor surer of it."""
    whole, names = cause(), {one.source: one.watched for one in cause().sources}
    assert names[source]
    part = _without(cause, source)
    answer, before = decide(part), decide(whole)
    assert answer.wall is not Wall.NOTHING
    if answer.wall is before.wall:
        order = list(Certainty)
        assert order.index(answer.certainty) >= order.index(before.certainty)


def _without(cause: Callable[[], JobEvidence], source: EvidenceSource) -> JobEvidence:
    whole = cause()
    return evidence(
        whole.job if not isinstance(whole.job, Absent) else job(),
        whole.gpus,
        [source],
        whole.more,
        whole.hang,
        value_or(whole.ledger, None),
    )


def test_a_slow_wire_that_costs_more_than_a_late_rank_comes_first_and_both_are_said() -> None:
    answer = decide(evidence(job(row(25e9), late=late(cost=0.05), wire=slow(25e9, P2P), share=0.6)))
    assert answer.wall is Wall.SLOW_WIRE
    assert any("wait for rank 2" in one for one in answer.because)
    answer = decide(evidence(job(late=late(cost=0.3), wire=slow(234e9, TREE), share=0.3)))
    assert answer.wall is Wall.LATE_RANK
    assert any("the wire is slow" in one for one in answer.because)


def test_a_slow_wire_without_cause_or_witness_is_less_sure() -> None:
    answer = decide(evidence(job(wire=slow(170e9))))
    assert answer.certainty is Certainty.MEDIUM
    assert "no second witness agrees that it is the wire" in answer.doubts
    assert decide(p2p_off()).certainty is Certainty.HIGH


def test_a_late_rank_whose_gpu_waits_for_its_host_is_the_host_s() -> None:
    """Two measured H200: the loader of the second stalls."""
    found = [replace(gpu(n, "stalls"), index=str(n), uuid=gpu_uuid(n)) for n in range(2)]
    answer = decide(evidence(job(late=late(1, 0.2), waiting=0.2), found))
    assert answer.wall is Wall.HOST
    assert "wait for rank 1 on GPU 1, which costs 20 % of the time" in answer.sentence
    alone = decide(evidence(job(), found, [EvidenceSource.TAP, EvidenceSource.LEDGER]))
    assert alone.wall is Wall.NOT_KNOWN, "two GPUs that differ are no wait of any"


def test_clocks_that_all_gpus_hold_down_name_no_late_rank() -> None:
    found = [replace(one, throttled=("hw_power_brake",)) for one in gpus()]
    answer = decide(evidence(job(late=late()), found))
    assert answer.causes == ()


def test_the_late_rank_may_be_on_another_node() -> None:
    answer = decide(
        evidence(
            job(elsewhere="all ranks of this node wait alike: it is not on this node", nodes=2),
            book=healthy(other_node=0.2),
        )
    )
    assert answer.wall is Wall.LATE_RANK
    assert "not on this node" in answer.sentence


def test_pids_are_those_of_gpus_and_of_the_tap() -> None:
    assert evidence(job()).pids == tuple(PIDS + n for n in range(RANKS))


def test_a_setting_is_to_be_unset_by_its_name() -> None:
    (advice, _) = decide(p2p_off()).advice
    assert advice == "unset NCCL_P2P_DISABLE in the job, or say why it needs that"


def test_of_several_nodes_a_rank_elsewhere_may_be_later() -> None:
    here = decide(evidence(job(late=late(), waiting=0.12, share=0.3)))
    both = decide(evidence(job(late=late(), waiting=0.12, share=0.3, nodes=2)))
    assert both.sentence == here.sentence
    assert set(both.doubts) - set(here.doubts) == {
        "a rank of another node may be later still: run `wirewatch explain` on the job's other nodes"
    }


UNSEEN = LateRank(
    2, Absent(Why.MISSING, "no GPU is named"), "", PIDS + 2, 4, 4, 64, 65, 0.12, 0.0, "rank 2 is late"
)
"""A rank of which it is not known on which GPU it is."""


def hint(number: int) -> LateGpu:
    return LateGpu(gpu_uuid(number), str(number), "its SMs never wait")


@pytest.mark.parametrize(
    ("guard", "rank", "seen", "certainty"),
    [
        ("nothing else names it", late(2), None, Certainty.MEDIUM),
        ("its GPU never waits", late(2), hint(2), Certainty.HIGH),
        ("another GPU never waits", late(2), hint(3), Certainty.MEDIUM),
        ("a GPU never waits, and which is the rank's is not known", UNSEEN, hint(2), Certainty.MEDIUM),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_late_rank_is_surer_where_its_own_gpu_says_so_too(
    guard: str, rank: LateRank, seen: LateGpu | None, certainty: Certainty
) -> None:
    found = decide(replace(evidence(job(late=rank, waiting=0.12, share=0.3)), late=seen))
    assert (found.wall, found.certainty) == (Wall.LATE_RANK, certainty), guard


UNREAD, NAN = Absent(Why.UNSUPPORTED, "not on this GPU"), float("nan")


@pytest.mark.parametrize(
    ("guard", "unread"),
    [
        ("arithmetic", {"math": UNREAD}),
        ("memory", {"dram": UNREAD}),
        ("both", {"math": UNREAD, "dram": UNREAD}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_memory_is_no_wall_by_half_of_what_shows_it(guard: str, unread: Mapping[str, Absent]) -> None:
    whole = gpus("memory_bound")
    assert decide(evidence(job(share=0.1), whole)).wall is Wall.MEMORY
    half = [*whole[1:], replace(whole[0], **unread)]  # type: ignore[arg-type]
    assert decide(evidence(job(share=0.1), half)).wall is Wall.COMPUTING, guard


SMALL = row(busbw=NOT_WATCHED, best=NOT_WATCHED, expected=NOT_WATCHED, size_bytes=1024)
UNSIZED = replace(SMALL, size_bytes=0)


@pytest.mark.parametrize(
    ("guard", "rows", "text"),
    [
        ("got and expected", [row()], "330 GB/s of 340 GB/s expected"),
        ("the first of which both are known", [SMALL, row()], "330 GB/s of 340 GB/s expected"),
        ("got alone", [SMALL, row(expected=UNREAD)], "330 GB/s, nothing known to expect"),
        ("the best is not known", [row(best=UNREAD)], "330 GB/s, nothing known to expect"),
        ("none", [], "a speed that is not known"),
        ("a large one of which nothing is known", [SMALL, replace(SMALL, size_bytes=SIZE)],
         "a speed that is not known"),
        ("expected is no number", [row(expected=NAN)], "330 GB/s, nothing known to expect"),
        ("all small", [SMALL, SMALL], "small messages, whose time is latency"),
        (
            "one without a size", [SMALL, UNSIZED],
            "a speed that is not known, since NCCL does not name the type of their elements",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_how_fast_collectives_run_is_said_by_what_is_known(
    guard: str, rows: list[OperationTimes], text: str
) -> None:
    assert speed(rows) == text, guard


NO_AMOUNT, NO_WAITING = replace(UNEVEN, more=UNREAD), replace(UNEVEN, waiting=UNREAD)
INFERRED = "waiting is inferred from activity: the tap would measure it"


def uneven(more: MoreWork, rank: LateRank | None = None, of: list[JobGpu] | None = None) -> JobEvidence:
    return evidence(job(late=rank, waiting=0.15), of, [EvidenceSource.LEDGER], more=more)


@pytest.mark.parametrize(
    ("guard", "seen", "wall", "text"),
    [
        ("another GPU has more work", uneven(UNEVEN, late(2)), Wall.LATE_RANK, "rank 2 on GPU 2"),
        ("the GPU of the rank is not known", uneven(UNEVEN, UNSEEN), Wall.LATE_RANK, "for rank 2 on a GPU"),
        ("the rank's GPU has more work", uneven(UNEVEN, late(3)), Wall.UNEVEN_WORK, "GPU 3 has 10 % more"),
        ("nobody is late", uneven(UNEVEN), Wall.UNEVEN_WORK, "GPU 3 has 10 % more"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_uneven_work_explains_the_late_rank_of_that_gpu_alone(
    guard: str, seen: JobEvidence, wall: Wall, text: str
) -> None:
    answer = decide(seen)
    assert (answer.wall, text in answer.sentence) == (wall, True), guard


@pytest.mark.parametrize(
    ("guard", "seen", "cost", "end", "measured", "doubts"),
    [
        ("both are measured", uneven(UNEVEN, late(3, 0.15)), 0.09,
         "has 10 % more work than the others; the others wait 9.0 % of the time.", True, ()),
        ("the tap alone says what is lost", uneven(NO_WAITING, late(3, 0.15)), 0.15,
         "has 10 % more work than the others; the others wait 15 % of the time.", True, ()),
        ("activity alone says what is lost", uneven(UNEVEN), 0.09,
         "has 10 % more work than the others; the others wait 9.0 % of the time.", False,
         (INFERRED,)),
        ("nothing says what is lost", uneven(NO_WAITING), NOT_WATCHED, "has 10 % more work than the others.",
         False, (INFERRED,)),
        ("the amount is not known", uneven(NO_AMOUNT), 0.09,
         "GPU 3 has more work than the others; the others wait 9.0 % of the time.", False,
         (INFERRED,)),
        ("its GPU is throttled", uneven(UNEVEN, late(3), [*gpus()[:3], replace(gpu(3), throttled=("hot",))]),
         0.09, "the others wait 9.0 % of the time.", True, ("that GPU is throttled too",)),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)  # fmt: skip
def test_uneven_work_is_said_by_what_shows_it(
    guard: str, seen: JobEvidence, cost: float | Absent, end: str, *, measured: bool, doubts: tuple[str]
) -> None:
    answer = decide(seen)
    assert (answer.wall, answer.cost, answer.certainty) == (Wall.UNEVEN_WORK, cost, Certainty.LOW), guard
    assert answer.sentence.endswith(end)
    assert answer.doubts == (*doubts, "waiting ledger: not watched: its collector is off")
    assert len(answer.because) == 1 + measured


@pytest.mark.parametrize(
    ("guard", "rank", "clocks", "certainty"),
    [
        ("the tap measures it too", late(3, 0.15), (), Certainty.HIGH),
        ("activity alone shows it", None, (), Certainty.MEDIUM),
        ("whether it is throttled is not read", late(3, 0.15), UNREAD, Certainty.MEDIUM),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_uneven_work_is_as_sure_as_what_measures_it(
    guard: str, rank: LateRank | None, clocks: tuple[str, ...] | Absent, certainty: Certainty
) -> None:
    found = [*gpus()[:3], replace(gpu(3), throttled=clocks)]
    answer = decide(evidence(job(late=rank, waiting=0.15), found, more=UNEVEN))
    assert (answer.wall, answer.certainty) == (Wall.UNEVEN_WORK, certainty), guard
    assert ("the GPU itself is not slow: nothing to drain" in answer.advice) is (clocks == ())


HOT = ("hw_thermal_slowdown",)


def with_hot(*numbers: int, of: int = RANKS) -> list[JobGpu]:
    return [replace(gpu(n), throttled=HOT) if n in numbers else gpu(n) for n in range(of)]


def found_hot(rule: str = "gpu.throttle", number: int = 2) -> JobFinding:
    return JobFinding(rule, "degraded", f"GPU {number}", gpu_uuid(number), f"{rule} of {number}", "cool it")


FINDINGS = (found_hot(), found_hot("gpu.memory"), found_hot(number=1))


@pytest.mark.parametrize(
    ("guard", "found", "causes"),
    [
        ("no clock is held down", with_hot(), ()),
        ("its clocks alone", with_hot(2), HOT),
        ("its clocks and those of some others", with_hot(2, 3), HOT),
        ("the clocks of all alike", with_hot(0, 1, 2, 3), ()),
        ("the clocks of another", with_hot(1), ()),
        ("there is no other GPU", with_hot(2, of=3)[2:], HOT),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_clocks_explain_a_gpu_that_the_others_wait_for_where_they_are_its_own(
    guard: str, found: list[JobGpu], causes: tuple[str, ...]
) -> None:
    """The same without the tap and with it; without it nothing measures what is lost."""
    off = [EvidenceSource.TAP, EvidenceSource.LEDGER]
    bare = replace(evidence(job(), found, off), late=hint(2), findings=FINDINGS)
    alone, both = decide(bare), decide(replace(bare, job=job(late=late(), waiting=0.12)))
    assert (alone.certainty, both.certainty) == (Certainty.LOW, Certainty.LOW)
    end = ": that GPU is throttled (hw_thermal_slowdown)." if causes else "GPU 2, whose SMs never wait."
    assert alone.sentence.endswith(end), guard
    assert alone.causes == both.causes == causes
    assert alone.because == ("its SMs never wait", *(["gpu.throttle of 2"] if causes else []))
    assert ("gpu.throttle of 2" in both.because, "gpu.memory of 2" in both.because) == (bool(causes), False)


OWN, OTHER = "the job's own times agree", "NVLink counts 1 % of what the collectives send"
UNSET, CHOOSE = "unset NCCL_P2P_DISABLE in the job", "let NCCL choose: unset NCCL_ALGO"
LIST, PROBE = "look at the findings of this node", "run `wirewatch probe` when the GPUs are idle"


@pytest.mark.parametrize(
    ("guard", "explained", "witnesses", "certainty", "advice"),
    [
        ("nothing else says so", (), (), Certainty.MEDIUM, (PROBE,)),
        ("a witness of the node", (), (OTHER,), Certainty.HIGH, (LIST,)),
        ("a witness of the job itself", (), (OWN,), Certainty.HIGH, (PROBE,)),
        ("witnesses of both", (), (OWN, OTHER), Certainty.HIGH, (LIST,)),
        ("a setting", (P2P,), (), Certainty.HIGH, (UNSET,)),
        ("an algorithm", (TREE,), (), Certainty.HIGH, (CHOOSE,)),
        ("a setting and an algorithm", (P2P, TREE), (), Certainty.HIGH, (UNSET, CHOOSE)),
        ("all together", (P2P, TREE), (OTHER,), Certainty.HIGH, (UNSET, CHOOSE, LIST)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_slow_wire_is_as_sure_as_what_agrees_and_advice_follows_its_causes(
    guard: str, explained: tuple[str, ...], witnesses: tuple[str, ...], certainty: Certainty,
    advice: tuple[str, ...],
) -> None:  # fmt: skip
    answer = decide(evidence(job(wire=slow(170e9, *explained, witnesses=witnesses))))
    assert (answer.wall, answer.certainty) == (Wall.SLOW_WIRE, certainty), guard
    assert len(answer.advice) == len(advice)
    assert all(said.startswith(one) for said, one in zip(answer.advice, advice, strict=True))
    assert answer.doubts == (() if explained or witnesses else (NOBODY,))


NOBODY = "no second witness agrees that it is the wire"


@pytest.mark.parametrize(
    ("guard", "dram", "math", "wall"),
    [
        ("memory busier than arithmetic", 0.6, 0.3, Wall.MEMORY),
        ("memory half idle", 0.45, 0.2, Wall.NOTHING),
        ("arithmetic busier still", 0.6, 0.7, Wall.NOTHING),
    ],
)
def test_memory_is_the_wall_where_it_is_busy_and_arithmetic_less_so(
    guard: str, dram: float, math: float, wall: Wall
) -> None:
    found = [replace(one, dram=dram, math=math) for one in gpus()]
    answer = decide(evidence(job(share=0.1), found))
    assert (answer.wall, answer.certainty) == (wall, Certainty.HIGH), guard
    assert decide(evidence(job(share=0.1), found, [EvidenceSource.TAP])).certainty is Certainty.LOW


def test_idle_arithmetic_is_no_wall_where_collectives_are_not_timed() -> None:
    found = [replace(one, math=0.3) for one in gpus()]
    assert decide(evidence(job(share=0.42), found, [EvidenceSource.TAP])).wall is Wall.COMPUTING


def test_one_communicator_that_is_not_judged_is_said_and_may_hold_it_up() -> None:
    (one,) = job().communicators
    other = replace(one, id="0xdef", doubt=TimesDoubt.UNSEEN)
    answer = decide(evidence(replace(job(), communicators=(one, other))))
    assert answer.wall is Wall.COMPUTING
    assert answer.doubts == (f"communicator 0xdef is not judged: {TimesDoubt.UNSEEN.value}",)


def test_what_is_watched_is_not_advised_to_be_switched_on() -> None:
    off = [EvidenceSource.LEDGER, EvidenceSource.ACTIVITY, EvidenceSource.BURSTS]
    answer = decide(evidence(job(), missing=off))
    assert answer.advice == tuple(f"{one.value}: switch it on" for one in off)


def test_a_source_that_would_change_nothing_makes_no_doubt() -> None:
    seen = evidence(job(late=late(), waiting=0.12, share=0.3), missing=[EvidenceSource.BURSTS])
    assert decide(seen).doubts == decide(late_rank()).doubts
