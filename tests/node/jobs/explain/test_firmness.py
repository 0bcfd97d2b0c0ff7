"""No answer is firmer than its evidence: found cases, and general rules over drawn evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.jobs.explain.drawn import (
    NOW,
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
    watched,
)
from tests.node.jobs.ledgerlooks import Looks, idle, pid, sight, spinning, works
from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.evidence import (
    NOT_WATCHED,
    Certainty,
    EvidenceSource,
    HungJob,
    JobEvidence,
    JobGpu,
    LateGpu,
    MoreWork,
    Wall,
)
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.explain.wires import wire_in_use
from wirewatch.jobs.hangs import StandingJob
from wirewatch.jobs.ledger.model import GpuSight, LedgerSurroundings
from wirewatch.jobs.ledger.spent import GpuLedger, JobLedger, Spent
from wirewatch.jobs.times import RunningJob, TimesDoubt

HIGH, MEDIUM, LOW = Certainty.HIGH, Certainty.MEDIUM, Certainty.LOW
NAN = float("nan")
NO_TAP = Absent(Why.MISSING, "its processes do not carry the tap")
UNREAD = Absent(Why.UNSUPPORTED, "not read")
QUIET = job(waiting=0.0)


# Processes of one owner


def of_one_owner(*sights: GpuSight, sending: bool) -> JobEvidence:
    """Processes of one container without the tap, after five minutes."""
    owners = {pid(n): "container:abc" for n in range(len(sights))}
    (book,) = Looks(LedgerSurroundings(owners=owners), sending=sending).times(160, *sights)
    found = [replace(gpu(n), pids=(pid(n),)) for n in range(len(sights))]
    return evidence(NO_TAP, found, [EvidenceSource.TAP, EvidenceSource.THREADS], book=book)


LIGHT = sight(1.0, 180.0, pid(0))
"""A GPU with light kernels: it looks like one that waits."""


@pytest.mark.parametrize("sights", [(LIGHT, works(1)), (spinning(0), spinning(1), spinning(2), idle(3))])
def test_of_processes_of_one_owner_nobody_is_named_unless_they_communicate(
    sights: Sequence[GpuSight],
) -> None:
    alone, together = (decide(of_one_owner(*sights, sending=sent)) for sent in (False, True))
    assert (alone.wall, alone.certainty, alone.gpu) == (Wall.NOT_KNOWN, LOW, "")
    assert alone.sentence.endswith("nor that they are of one job.")
    assert "whether its processes are one job is not known" in " ".join(alone.doubts)
    # How GPUs look is no measurement.
    assert (together.gpu, together.certainty) == (gpu_uuid(len(sights) - 1), LOW)


# Each rule with the case that broke it


def memory_of(*numbers: int) -> list[JobGpu]:
    """GPUs of a job that memory bounds, of which these are read."""
    whole = gpus("memory_bound")
    return [
        one if n in numbers else replace(one, dram=UNREAD, math=UNREAD, sm=UNREAD)
        for n, one in enumerate(whole)
    ]


def nowhere(**shares: float) -> JobLedger:
    """A healthy ledger whose last 10 s have these shares."""
    return ledger(*(spent(n) for n in range(RANKS)), short=[spent(n, None, **shares) for n in range(RANKS)])  # type: ignore[arg-type]


def without_math(*rows: Any) -> JobEvidence:
    (comm,) = QUIET.communicators
    windows = (replace(comm.windows[0], collectives=rows),)
    running = replace(QUIET, communicators=(replace(comm, windows=windows),))
    return evidence(running, [replace(one, math=0.3) for one in gpus()], book=healthy(wire=0.4))


def threads(*shares: float | Absent) -> JobEvidence:
    return evidence(
        QUIET, [replace(gpu(n), thread=one) for n, one in enumerate(shares)], book=healthy(idle=0.3)
    )


def clocks(*reasons: tuple[str, ...] | Absent) -> JobEvidence:
    found = [replace(gpu(n), throttled=one) for n, one in enumerate(reasons)]
    return evidence(job(late=late()), found)


HOT: tuple[str, ...] = ("hw_thermal_slowdown",)
GIVES = "which gives what it should"
CASES: Mapping[str, tuple[JobEvidence, Wall, Certainty, str]] = {
    "the wire gives what is expected": (without_math(row()), Wall.COLLECTIVES, MEDIUM, GIVES),
    "just enough": (without_math(row(306e9)), Wall.COLLECTIVES, MEDIUM, GIVES),
    "less than enough": (without_math(row(305e9)), Wall.COLLECTIVES, LOW, "nothing shows that it gives"),
    "nothing is expected": (without_math(row(expected=UNREAD)), Wall.COLLECTIVES, LOW, "nothing shows"),
    "one of two gives less": (without_math(row(), row(100e9)), Wall.COLLECTIVES, LOW, "nothing shows"),
    "no operation is timed": (without_math(), Wall.COLLECTIVES, LOW, "a speed that is not known"),
    "memory of all GPUs": (evidence(job(share=0.1), memory_of(*range(RANKS))), Wall.MEMORY, HIGH, ""),
    "memory of one GPU of four": (evidence(job(share=0.1), memory_of(0)), Wall.COMPUTING, LOW, "No cause"),
    "memory while the job may stand still": (
        evidence(job(share=0.1), memory_of(*range(RANKS)), book=nowhere(idle=0.6)),
        Wall.NOT_KNOWN, LOW, "nothing has run on its GPUs lately",
    ),
    "memory while nobody watches for a stand": (
        evidence(job(share=0.1), memory_of(*range(RANKS)), [EvidenceSource.HANGS]), Wall.MEMORY, MEDIUM, "",
    ),
    "memory of what may be two jobs": (
        evidence(job(share=0.1), memory_of(*range(RANKS)), book=replace(healthy(), one_job=False)),
        Wall.MEMORY, MEDIUM, "",
    ),
    "the tap contradicts the ledger": (
        evidence(job(late=late(2, 0.06)), book=healthy()), Wall.COMPUTING, LOW, "is sure: 98 % computing",
    ),
    "threads of all GPUs, which have run nothing lately": (
        replace(threads(0.1, 0.1, 0.1, 0.1), ledger=healthy(idle=0.6)), Wall.HOST, MEDIUM, "sleep",
    ),
    "threads of all GPUs": (threads(0.1, 0.1, 0.1, 0.1), Wall.HOST, HIGH, "sleep"),
    "a thread of one GPU of four": (threads(0.1, UNREAD, UNREAD, UNREAD), Wall.HOST, LOW, "is not known"),
    "clocks of the others are its own": (clocks((), (), HOT, ()), Wall.LATE_RANK, HIGH, "throttled"),
    "clocks of one other are read": (clocks(UNREAD, (), HOT, UNREAD), Wall.LATE_RANK, HIGH, "throttled"),
    "clocks of no other are read": (clocks(UNREAD, UNREAD, HOT, UNREAD), Wall.LATE_RANK, MEDIUM, "12 %"),
    "no rank is in its newest window": (
        evidence(replace(QUIET, communicators=tuple(
            replace(one, windows=(replace(one.windows[0], ranks=()),)) for one in QUIET.communicators
        )), book=healthy()), Wall.COMPUTING, MEDIUM, "No cause",
    ),
    "a wait for a GPU of another job": (
        evidence(QUIET, book=ledger(*(spent(n, {7: 0.3}) for n in range(RANKS)))),
        Wall.NOT_ATTRIBUTED, MEDIUM, "the GPUs wait for each other 30 %",
    ),
    "a late rank on a GPU of another job": (
        evidence(job(late=late(7)), book=healthy()), Wall.NOTHING, HIGH, "Nothing of this node",
    ),
    "there is no GPU": (
        replace(evidence(QUIET, book=healthy()), gpus=()), Wall.NOT_KNOWN, LOW, "is not accounted for",
    ),
}  # fmt: skip


@each("case", CASES)
def test_an_answer_is_as_firm_as_its_evidence(case: str) -> None:
    seen, wall, certainty, said = CASES[case]
    answer = decide(seen)
    assert (answer.wall, answer.certainty) == (wall, certainty)
    assert said in answer.sentence


@pytest.mark.parametrize("odd", [NAN, -0.5, 1.7, float("inf")])
def test_a_number_that_cannot_be_is_not_known(odd: float) -> None:
    broken = replace(
        spent(0), shares={**spent(0).shares, Spent.LOCAL_RANK: odd}, waits_for={gpu_uuid(1): odd}
    )
    answer = decide(evidence(QUIET, book=ledger(broken, *(spent(n) for n in range(1, RANKS)))))
    assert (answer.wall, answer.certainty) == (Wall.NOT_KNOWN, LOW)
    assert "the time of GPU 0 is not accounted for" in answer.sentence
    tapped = job(late=late(2, odd), wire=slow(340e9 * odd))
    busy = [replace(one, dram=odd, math=odd, thread=odd, utilisation=odd) for one in gpus()]
    answer = decide(evidence(tapped, busy, book=healthy(), more=MoreWork(gpu_uuid(1), "1", odd, odd, "more")))
    assert answer.wall is Wall.COMPUTING
    assert "nan" not in " ".join((answer.sentence, *answer.because, *answer.doubts))


def test_a_job_without_a_communicator_has_no_wire_that_is_known() -> None:
    assert isinstance(wire_in_use(evidence(replace(job(), communicators=()))), Absent)


# General rules

ODD = (NAN, -0.5, 1.7)
SHARE = st.sampled_from((0.0, 0.005, 0.029, 0.031, 0.049, 0.06, 0.12, 0.3, 0.7))
KNOWN: st.SearchStrategy[Any] = st.sampled_from((0.0, 0.1, 0.3, 0.6, 0.99, UNREAD, *ODD))
THROTTLED: st.SearchStrategy[Any] = st.sampled_from(((), (), HOT, UNREAD))
KINDS: list[Spent] = [kind for kind in Spent if kind is not Spent.COMPUTING]
WAITS = (Spent.LOCAL_RANK, Spent.OTHER_NODE, Spent.NOT_ATTRIBUTED)
HIDDEN = frozenset({Wall.HANG, Wall.STANDING, Wall.STARTING})
"""Walls beside which nothing else is said."""
NAMING = frozenset({Wall.LATE_RANK, Wall.UNEVEN_WORK, Wall.HOST})
STANDING = StandingJob({gpu_uuid(0): frozenset({1})}, NOW - 14, "no byte moves")
HANG = HungJob("rank 2 is stopped", 1.0, ("power 125 W",), "continue it")


@st.composite
def windows(draw: st.DrawFn) -> list[GpuLedger]:
    """One window of the GPUs: mostly whole, with shares that add up to 1."""
    found = []
    for number in range(RANKS):
        shares: dict[Spent, float] = {kind: draw(SHARE) for kind in KINDS}
        most = max(1.0, sum(shares.values()))
        shares = {kind: share / most for kind, share in shares.items()}
        shares[Spent.COMPUTING] = 1 - sum(shares.values())
        whom = draw(st.sampled_from([n for n in range(-1, RANKS + 1) if n != number]))
        waits = {gpu_uuid(whom): shares[Spent.LOCAL_RANK]} if whom >= 0 else {}
        part = draw(st.sampled_from((0.0, 0.0, 1.0)))
        if draw(st.integers(0, 19)) == 0:
            shares[draw(st.sampled_from(KINDS))] = draw(st.sampled_from(ODD))
        seconds = draw(st.sampled_from((5.0, 10.0, 100.0, 300.0)))
        made = GpuLedger(gpu_uuid(number), str(number), seconds, shares, waits)
        if draw(st.integers(0, 19)):
            unjudged, waits_too = part * shares[Spent.WIRE], part * shares[Spent.NOT_ATTRIBUTED]
            found.append(replace(made, unjudged=unjudged, waiting=waits_too))
    return found


JOBS: Sequence[RunningJob] = (
    QUIET, job(), job(late=late()), job(late=replace(late(1, 0.2), at_most=True)), job(wire=slow(170e9)),
    job(late=late(7)), job(fresh=False), job(doubt=TimesDoubt.UNSEEN),
    job(elsewhere="all wait alike for another node", nodes=2), job(late=late(2, NAN), waiting=-0.1),
)  # fmt: skip


@st.composite
def evidences(draw: st.DrawFn) -> JobEvidence:
    found = [
        replace(gpu(n), dram=draw(KNOWN), math=draw(KNOWN), thread=draw(KNOWN), throttled=draw(THROTTLED))
        for n in range(RANKS)
    ]
    if draw(st.booleans()):
        found = [replace(gpu(n), throttled=draw(THROTTLED)) for n in range(RANKS)]
    book = ledger(*draw(windows()), short=draw(windows()), one_job=draw(st.booleans()))
    if draw(st.booleans()):
        book = healthy(wire=draw(st.sampled_from((0.02, 0.3))), local_rank=draw(SHARE) / 3)
    starting = draw(st.integers(0, 9)) == 0
    seen = evidence(draw(st.sampled_from(JOBS)), found, book=replace(book, starting=starting))
    on = st.sampled_from((None, *(gpu_uuid(n) for n in range(RANKS))))
    hint, more = draw(on), draw(on)
    return replace(
        seen, late=LateGpu(hint, hint[-1], "its SMs never wait") if hint else None,
        more=MoreWork(more, more[-1], draw(KNOWN), draw(KNOWN), "more") if more else None,
        standing=STANDING if draw(st.integers(0, 9)) == 0 else None,
        hang=replace(HANG, suspected=draw(st.booleans())) if draw(st.integers(0, 9)) == 0 else None,
    )  # fmt: skip


def without(seen: JobEvidence, source: EvidenceSource) -> JobEvidence:
    """Return the evidence as it is without a source."""
    gone: Mapping[EvidenceSource, Mapping[str, Any]] = {
        EvidenceSource.LEDGER: {"ledger": NOT_WATCHED}, EvidenceSource.TAP: {"job": NO_TAP},
        EvidenceSource.ACTIVITY: {"late": None, "more": None},
        EvidenceSource.HANGS: {"hang": None, "standing": None}, EvidenceSource.SETTINGS: {"settings": ()},
    }  # fmt: skip
    return watched(replace(seen, **gone.get(source, {})), source)


def sound(one: GpuLedger) -> bool:
    parts = (*one.shares.values(), *one.waits_for.values())
    return all(-1e-9 <= part <= 1 for part in parts) and abs(sum(one.shares.values()) - 1) < 0.02


@settings(max_examples=examples(3000))
@given(evidences(), st.sets(st.sampled_from(list(EvidenceSource)), max_size=2))
def test_high_and_nothing_take_every_gpu_measured_and_names_are_of_the_job(
    seen: JobEvidence, missing: set[EvidenceSource]
) -> None:
    for source in missing:
        seen = without(seen, source)
    answer = decide(seen)
    text = " ".join((answer.sentence, *answer.because, *answer.doubts, *answer.advice))
    assert "nan" not in text
    if answer.wall not in HIDDEN:
        assert answer.gpu in {"", *(one.uuid for one in seen.gpus)}
    book = seen.ledger
    every = () if isinstance(book, Absent) else (*book.short, *book.long)
    here = {one.uuid for one in seen.gpus}
    if answer.certainty is HIGH and answer.wall is not Wall.HANG:
        assert not isinstance(book, Absent)
        judged = book.long if min((one.seconds for one in book.long), default=0) >= 60 else book.short
        assert here <= {one.gpu for one in judged if sound(one) and one.seconds >= 10}
        assert seen.standing is None
        assert seen.watches(EvidenceSource.HANGS)
        assert book.one_job
        idle = [one.shares[Spent.IDLE] for one in book.short if sound(one)]
        assert not idle or sum(idle) / len(idle) < 0.5
    if answer.wall is Wall.NOTHING or "nobody waits" in answer.sentence:
        assert seen.watches(EvidenceSource.TAP)
        assert {one.gpu for one in every} >= here
        for one in every:
            assert sound(one)
            assert one.seconds >= 5
            assert sum(one.shares[kind] for kind in WAITS) < 0.03
    if isinstance(book, Absent):
        assert answer.certainty is LOW or answer.wall in HIDDEN


@settings(max_examples=examples(3000))
@given(evidences(), st.sampled_from(list(EvidenceSource)))
def test_less_evidence_makes_no_answer_firmer(seen: JobEvidence, source: EvidenceSource) -> None:
    order = [LOW, MEDIUM, HIGH]
    whole, less = decide(seen), decide(without(seen, source))
    said = (whole.sentence, *whole.because, *whole.doubts)
    # What stood beside a costlier wall may come first without that.
    assert order.index(less.certainty) <= order.index(whole.certainty) or less.sentence in said
    assert less.wall is not Wall.NOTHING or whole.wall is Wall.NOTHING
    if less.wall in NAMING and less.gpu and whole.wall not in HIDDEN:
        assert whole.gpu == less.gpu or any(f"GPU {less.gpu[-1]}" in one for one in said)
