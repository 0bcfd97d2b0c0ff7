"""What must hold of every job: lateness is never the wire, lost records accuse nobody, nobody's ring spoils
another's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.jobs.ringjobs import (
    AROUND,
    BUCKETS,
    DDP,
    FSDP,
    LATE,
    LL,
    MIB,
    P2P_OFF,
    TENSOR_PARALLEL,
    TRAINING,
    TREE,
    DrawnNode,
    JobShape,
    lates,
    slow,
    uuid,
)
from wirewatch.core.jobs import Ring, RingCounts, RingReading, RingState, TimedCollective
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.running.metrics import samples
from wirewatch.jobs.running.model import (
    MOST_COMMUNICATORS,
    MOST_JOINED,
    CommunicatorMemory,
    JobsMemory,
    JobsOptions,
    JobsPolicy,
    JoinedCollective,
)
from wirewatch.jobs.running.windows import Shape, roll
from wirewatch.jobs.times import JobsFacts

LARGE = (("all_reduce", 256 * MIB),)
WIRES = st.sampled_from([TRAINING, P2P_OFF, TREE, LL])
SEEDS = st.integers(0, 10**6)
POLICY = JobsPolicy()
LOGS = replace(BUCKETS, gpus=(0, 1, 2, 3), behind={0: 0.12e-3})
NAMED_WITHIN = 30.0
"""Seconds in which a rank that comes late is to be named."""


def accused(node: DrawnNode, facts: JobsFacts) -> set[tuple[str, str, str]]:
    """Who and what is named, and by which finding."""
    hints = {(hint.kind, hint.job, hint.gpu) for hint in facts.hints}
    return hints | {("finding", one.rule, "") for one in node.found}


@settings(max_examples=examples(25))
@given(
    count=st.integers(2, 8), late=st.integers(0, 7), more=st.floats(1.08, 2.0), work=st.floats(0.02, 0.1),
    seed=SEEDS,
)  # fmt: skip
def test_a_late_rank_is_named_and_never_called_the_wire(
    count: int, late: int, more: float, work: float, seed: int
) -> None:
    late %= count
    shape = replace(
        TRAINING, gpus=tuple(range(count)), work=work, calls=LARGE * 2, slow={late: more}, wire_noise=0.001
    )
    node = DrawnNode(shape, seed=seed)
    facts = node.poll(7)
    assert lates(facts) == [str(late)]
    assert slow(facts) == []
    assert node.found == ()


@settings(max_examples=examples(15))
@given(shape=WIRES, order=st.permutations(range(4)), seed=SEEDS)
def test_how_ranks_are_numbered_and_listed_changes_nothing(
    shape: JobShape, order: list[int], seed: int
) -> None:
    """Of the same job with its ranks in another order, the same GPU is late by as many votes."""
    base = replace(shape, slow={2: 1.1} if shape is TRAINING else {})
    plain = DrawnNode(base, seed=seed)

    def renumbered(one: RingReading) -> RingReading:
        return replace(one, ring=replace(one.ring, rank=order[one.ring.rank]))

    other = DrawnNode(base, seed=seed, change=renumbered)
    one, two = plain.poll(6), other.poll(6)
    assert lates(one) == lates(two)
    assert [row.wire_seconds for row in one.rows()] == [row.wire_seconds for row in two.rows()]
    assert [gpu.waiting for gpu in one.jobs[0].gpus] == [gpu.waiting for gpu in two.jobs[0].gpus]
    assert {hint.kind for hint in one.hints} == {hint.kind for hint in two.hints}


@settings(max_examples=examples(25))
@given(
    shape=st.sampled_from([TRAINING, LATE, P2P_OFF, TREE, DDP, FSDP, LOGS]), lost=st.floats(0.05, 0.95),
    unseen=st.sets(st.integers(0, 3)), seed=SEEDS,
)  # fmt: skip
def test_losing_records_or_whole_rings_accuses_no_rank(
    shape: JobShape, lost: float, unseen: set[int], seed: int
) -> None:
    draw = Random(seed)  # noqa: S311 - which records are lost

    def losing(one: RingReading) -> RingReading | None:
        if one.ring.rank in unseen:
            return None
        return replace(one, calls=tuple(call for call in one.calls if draw.random() > lost))

    whole, partial = DrawnNode(shape, seed=seed), DrawnNode(shape, seed=seed, change=losing)
    allowed: set[tuple[str, str, str]] = set()
    for _ in range(8):
        allowed |= accused(whole, whole.poll())
        assert accused(partial, partial.poll()) <= allowed


@settings(max_examples=examples(12))
@given(shape=st.sampled_from([DDP, FSDP, TENSOR_PARALLEL]), overlap=st.floats(0.1, 0.6), seed=SEEDS)
def test_healthy_overlap_names_no_rank(shape: JobShape, overlap: float, seed: int) -> None:
    node = DrawnNode(replace(shape, overlap=overlap, gpus=(0, 1)), seed=seed)
    for facts in node.watch(30):
        assert accused(node, facts) == set()


@settings(max_examples=examples(12))
@given(count=st.integers(2, 4), behind=st.floats(0.0, 0.2e-3), overlap=st.floats(0.1, 0.6), seed=SEEDS)
def test_who_writes_the_log_before_each_step_is_not_late(
    count: int, behind: float, overlap: float, seed: int
) -> None:
    shape = replace(BUCKETS, gpus=tuple(range(count)), behind={0: behind}, overlap=overlap)
    node = DrawnNode(shape, seed=seed, every=2.0)
    for facts in node.watch(30):
        assert accused(node, facts) == set()


NUMBERS = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 8))
SECONDS = st.one_of(
    st.floats(0, 1), st.sampled_from([0.0, -1.0, float("nan"), float("inf"), 1e-12, 1e300, 4.3])
)
OPS = st.sampled_from(["all_reduce", "all_gather", "alltoall", "sendrecv", "gather", "?", ""])
NAMES = st.sampled_from(["RING", "TREE", "NVLS", "", "nonsense"])
FINITE = st.floats(-1e12, 1e12)
CALLS = st.lists(
    st.builds(
        TimedCollective, number=NUMBERS, op=OPS, sequence=NUMBERS, size_bytes=st.none() | NUMBERS,
        dtype=NAMES, algorithm=NAMES, protocol=st.sampled_from(["LL", "SIMPLE", "", "x"]), channels=NUMBERS,
        seconds=SECONDS, started=SECONDS, stopped=SECONDS, enqueued=SECONDS,
    ), max_size=8,
).map(tuple)  # fmt: skip
COUNTS = st.builds(
    RingCounts, written=NUMBERS, dropped=NUMBERS, enqueued=NUMBERS, sends=NUMBERS, captured=NUMBERS,
    calls=st.dictionaries(OPS, NUMBERS), bytes=st.dictionaries(OPS, NUMBERS),
    unsized=st.dictionaries(OPS, NUMBERS),
)  # fmt: skip
RINGS = st.builds(
    Ring, name=st.sampled_from([f"x{n}" for n in range(6)]),
    communicator=st.sampled_from([TRAINING.communicator, 1]), ranks=NUMBERS, rank=NUMBERS, nodes=NUMBERS,
    gpu=st.sampled_from([uuid(0), uuid(2), "GPU-of-nobody", "", Absent(Why.MISSING)]), pid=NUMBERS,
    host_pid=st.sampled_from([77, 78, Absent(Why.MISSING)]), uid=st.just(2000), created=FINITE,
    state=st.sampled_from(list(RingState)), counts=COUNTS, comm_name=NAMES,
    nccl=st.sampled_from(["2.28.9", "2.27.3", ""]), tap=NAMES, on=SECONDS, period=SECONDS,
)  # fmt: skip
HOSTILE = st.lists(st.builds(RingReading, ring=RINGS, calls=CALLS, missed=NUMBERS), max_size=4, unique_by=(
    lambda one: one.ring.name
)).map(tuple)  # fmt: skip


def sizes(memory: JobsMemory) -> Mapping[str, int]:
    known = memory.communicators.values()
    return {
        "pending": max((len(one.pending) for one in known), default=0),
        "joined": max((len(one.window) for one in known), default=0),
        "communicators": len(memory.communicators),
    }


NO_RANKS = RingReading(
    Ring(
        "x0", 1, 0, 0, 1, uuid(0), 1, 77, 2000, 0.0, RingState.LIVE,
        RingCounts(calls={"all_reduce": 1}, bytes={"all_reduce": 1}),
    )
)  # fmt: skip


@settings(max_examples=examples(40))
@example([(NO_RANKS,)])
@given(polls=st.lists(HOSTILE, min_size=1, max_size=6))
def test_no_ring_of_another_user_spoils_a_job_or_raises(polls: list[tuple[RingReading, ...]]) -> None:
    """The honest job is judged as if it were alone, to the last digit."""
    alone, beside = DrawnNode(LATE, seed=4), DrawnNode(LATE, seed=4)
    for extra in polls:
        beside.extra = extra
        one, both = alone.poll(), beside.poll()
        honest = next(job for job in both.jobs if job.uid == LATE.uid)
        assert honest == one.jobs[0]
        list(samples(beside.read(), beside.memory))
        assert sizes(beside.memory)["communicators"] <= MOST_COMMUNICATORS
    known = {one.labels[0] for one in samples(beside.read(), beside.memory) if one.metric.labels[0] == "gpu"}
    assert known <= {str(n) for n in range(8)}


def test_memory_is_bounded_whatever_rings_hold() -> None:
    """Thousands of records that no other rank has, of eight ranks, for many polls."""

    def flood(communicator: int, poll: int) -> tuple[RingReading, ...]:
        ring = DrawnNode(TRAINING).jobs[0].ranks[0].ring
        calls = tuple(
            TimedCollective(
                number=poll * 500 + n, op="all_reduce", sequence=poll * 8000 + n, size_bytes=MIB << n % 40,
                dtype="", algorithm="", protocol="", channels=1, seconds=1e-3, started=0, stopped=0,
                enqueued=float(n),
            )
            for n in range(500)
        )  # fmt: skip
        return tuple(
            RingReading(
                replace(
                    ring, name=f"{communicator}-{rank}", communicator=communicator, ranks=8, rank=rank,
                    host_pid=rank, gpu=uuid(rank),
                ), tuple(replace(one, sequence=one.sequence + 500 * rank) for one in calls),
            )
            for rank in range(8)
        )  # fmt: skip

    node = DrawnNode(around=AROUND)
    for poll in range(8):
        node.extra = tuple(one for n in range(4) for one in flood(n, poll))
        node.poll()
        assert sizes(node.memory)["pending"] <= MOST_JOINED
        assert sizes(node.memory)["joined"] <= MOST_JOINED
    node.extra = ()
    node.poll(6)
    assert node.memory.communicators == {}
    assert node.memory.rings == {}


def test_more_communicators_than_are_followed_are_counted() -> None:
    ring = DrawnNode(TRAINING).jobs[0].ranks[0].ring
    node = DrawnNode(around=AROUND)
    node.extra = tuple(
        RingReading(replace(ring, name=f"r{n}", communicator=n, created=float(n)))
        for n in range(MOST_COMMUNICATORS + 7)
    )
    facts = node.poll()
    assert facts.left_out == 7
    assert len(node.memory.communicators) == MOST_COMMUNICATORS


@settings(max_examples=examples(15))
@given(more=st.floats(1.0, 1.04), seed=SEEDS)
@example(1.04, 0)
def test_a_slow_wire_is_named_beside_a_rank_that_is_always_a_little_late(more: float, seed: int) -> None:
    shape = replace(P2P_OFF, gpus=(0, 1), slow={1: more})
    facts = DrawnNode(shape, seed=seed).poll(7)
    assert slow(facts)
    assert not lates(facts)


@settings(max_examples=examples(15))
@given(busbw=st.floats(200e9, 600e9), count=st.sampled_from([4, 8]), seed=SEEDS)
@example(526e9, 4, 0)
def test_tree_is_a_slow_wire_however_short_the_last_rank_sees_it(busbw: float, count: int, seed: int) -> None:
    """On 4 H200 the last rank showed 526 GB/s, which no wire there has: the others' data had gone ahead."""
    facts = DrawnNode(replace(TREE, gpus=tuple(range(count)), busbw=busbw), seed=seed).poll(7)
    assert slow(facts)
    rows = [row for job in facts.jobs for one in job.communicators for row in one.windows[-1].collectives]
    for row in rows:
        assert isinstance(row.expected, float)
        assert isinstance(row.best, float)
        assert row.best <= row.expected * (count - 1) / count


def closed_windows(step: float, phase: float, late_polls: Sequence[float]) -> list[tuple[float, float]]:
    """When each window closed, and its first collective, of a job of which the tap times a tenth of the time.

    A collective each `step` seconds, timed for 0.2 s of every 2 s from `phase` on; each poll comes so late.
    """
    memory, shape = CommunicatorMemory(), Shape(2, frozenset({0, 1}))
    taken, closed = 0.0, []
    for number, late in enumerate(late_polls):
        mono = number * JobsOptions().interval + late
        numbers = range(int(taken / step) + 1, int(mono / step) + 1)
        new = [timed(n, n * step) for n in numbers if (n * step - phase) % 2.0 < 0.2]
        before, taken = memory.windows, mono
        memory = roll(replace(memory, window=(*memory.window, *new)), shape, mono, POLICY)
        if memory.windows is not before:
            closed.append((mono, memory.windows[-1].started))
    return closed


def timed(number: int, at: float) -> JoinedCollective:
    return JoinedCollective("all_reduce", number, MIB, "RING", "SIMPLE", 24, at, {0: 1e-3, 1: 1e-2})


@settings(max_examples=examples(40))
@given(
    st.floats(0.02, 0.06),
    st.floats(0.0, 2.0),
    st.lists(st.floats(0.0, 0.1), min_size=60, max_size=60),
    st.floats(0.0, 60.0),
)
@example(0.047, 0.0, [0.001 * (60 - number) for number in range(60)], 12.0)
def test_a_late_rank_has_its_windows_within_half_a_minute_whenever_polls_come(
    step: float, phase: float, late_polls: list[float], since: float
) -> None:
    """Polls as far apart as a window is long came a moment early, and windows lasted twice as long."""
    closed = closed_windows(step, phase, late_polls)
    assert closed[POLICY.confirm - 1][0] <= NAMED_WITHIN
    after = [at for at, started in closed if started >= since]
    assert after[POLICY.confirm - 1] - since <= NAMED_WITHIN
