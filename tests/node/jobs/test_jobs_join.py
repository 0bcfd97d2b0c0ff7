"""Each guard of joining alone: which records are one collective, and which rings one communicator and job."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.node.jobs.ringjobs import AROUND, MIB, TRAINING, DrawnJob, gaps_of, joined_of, uuid
from tests.rows import each
from wirewatch.core.jobs import RingCounts, RingReading, RingsReading, RingState, TimedCollective
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.running.grouping import (
    RingGroup,
    job_groups,
    job_rank,
    possible,
    ring_groups,
    settings_of_rank,
    untimed,
)
from wirewatch.jobs.running.join import RankRecords, records_of
from wirewatch.jobs.running.model import CommunicatorMemory, JobsReading, RingProcess
from wirewatch.jobs.times import TimesDoubt

BOTH = frozenset({0, 1})
CALL = TimedCollective(1, "all_reduce", 7, MIB, "float32", "RING", "SIMPLE", 24, 1e-3, 5.0, 5.001, 100.0)
RING = DrawnJob(TRAINING).ranks[0].ring
NOT_SEEN = Absent(Why.MISSING, "not seen")


def records(rank: int, *sequences: int, **but: object) -> RankRecords:
    calls = (replace(CALL, sequence=number, **but) for number in sequences)  # type: ignore[arg-type]
    return RankRecords(rank, tuple(calls))


def joined(*polls: tuple[RankRecords, ...], memory: CommunicatorMemory | None = None) -> CommunicatorMemory:
    memory = memory or CommunicatorMemory()
    for number, poll in enumerate(polls, 1):
        memory = joined_of(memory, poll, BOTH, number)
    return memory


def test_a_late_record_of_a_collective_that_still_waits_is_joined() -> None:
    """Though later ones of its operation were joined meanwhile."""
    memory = joined((records(0, 1, 2), records(1, 2)), (records(0), records(1, 1)))
    assert [one.sequence for one in memory.window] == [2, 1]
    assert memory.partial == 0


def test_a_record_of_what_was_joined_before_does_not_wait_for_others() -> None:
    memory = joined((records(0, 3, 2), records(1, 2, 3)), (records(0), records(1, 2)))
    assert memory.ended == {"all_reduce": 3}
    assert memory.pending == {}


def test_of_many_that_wait_the_newest_stay() -> None:
    old = joined_of(CommunicatorMemory(), (records(0, *range(9000, 9100)), records(1)), BOTH, 1)
    memory = joined_of(old, (records(0, *range(2047)), records(1)), BOTH, 2)
    assert len(memory.pending) == 2048
    assert sum(number >= 9000 for _, number in memory.pending) == 1
    assert ("all_reduce", 9099) in memory.pending
    assert memory.partial == 99


@pytest.mark.parametrize(("count", "kept", "stride"), [(2048, 2048, 1), (2049, 1025, 2)])
def test_a_window_holds_so_many_and_then_every_second_one(count: int, kept: int, stride: int) -> None:
    memory = joined((records(0, *range(count)), records(1, *range(count))))
    assert (len(memory.window), memory.stride, memory.seen) == (kept, stride, count)
    assert [one.sequence for one in memory.window[:3]] == [0, stride, 2 * stride]
    more = joined_of(memory, (records(0, 9001, 9002, 9003), records(1, 9001, 9002, 9003)), BOTH, 2)
    assert (len(more.window), more.stride) == (1026, 2)


@each(
    ("lengths", "kept"),
    [
        ((512, 512), (512, 512)),
        ((513, 100), (257, 64)),
        ((100, 513), (64, 257)),
        ((1024, 1), (512, 1)),
        ((1025, 1), (257, 1)),
        ((0, 0), (0, 0)),
    ],
)
def test_all_ranks_are_thinned_by_the_one_that_has_most(lengths: Sequence[int], kept: Sequence[int]) -> None:
    rings = (RingReading(RING, records(0, *range(count)).calls) for count in lengths)
    assert [len(one.calls) for one in records_of(rings)] == list(kept)
    assert records_of(()) == ()


def test_a_collective_longer_than_an_hour_is_none() -> None:
    ring = RingReading(RING, (replace(CALL, seconds=3599.0), replace(CALL, seconds=3600.0)))
    assert [one.seconds for one in records_of((ring,))[0].calls] == [3599.0]


def test_a_collective_is_described_as_most_of_its_ranks_do_and_began_with_the_first() -> None:
    ranks = frozenset({0, 1, 2})
    ways = ({"algorithm": "TREE", "enqueued": 103.0}, {"enqueued": 102.0}, {"enqueued": 104.0})
    found = tuple(records(rank, 7, **but) for rank, but in enumerate(ways))  # type: ignore[arg-type]
    (one,) = joined_of(CommunicatorMemory(), found, ranks, 1).window
    assert (one.algorithm, one.protocol, one.channels, one.bytes, one.at) == (
        "RING",
        "SIMPLE",
        24,
        MIB,
        102.0,
    )


def test_collectives_follow_each_other_as_all_ranks_began_them() -> None:
    """A rank whose clock holds nonsense does not turn the order around."""
    starts = {4: (10.0, 0.0, 10.0), 5: (20.0, -1.0, 20.0), 6: (30.0, 5.0, 30.0)}
    calls = {
        ("all_reduce", number): {
            rank: replace(CALL, sequence=number, started=at, stopped=at + 1) for rank, at in enumerate(all_)
        }
        for number, all_ in starts.items()
    }
    assert list(gaps_of(calls, frozenset({0, 1, 2}))) == [("all_reduce", 5), ("all_reduce", 6)]


def ring(rank: int, **but: object) -> RingReading:
    """A ring of a communicator of two ranks on one node."""
    made = replace(
        RING, name=f"r{rank}", ranks=2, rank=rank, gpu=uuid(rank), pid=10 + rank, host_pid=20 + rank
    )
    return RingReading(replace(made, **but))  # type: ignore[arg-type]


def group(*rings: RingReading) -> RingGroup:
    ((found,), left_out) = ring_groups(rings)
    assert left_out == 0
    return found


@pytest.mark.parametrize(
    ("guard", "rings", "doubt"),
    [
        ("two ranks, both here", (ring(0), ring(1)), None),
        ("one rank twice", (ring(0), ring(1), ring(1, name="x", gpu=uuid(5))), TimesDoubt.TWICE),
        ("one rank again, and its first process is gone",
         (ring(0), ring(1, name="x", state=RingState.DEAD), ring(1)), None),
        ("both are gone", (ring(0, state=RingState.DEAD), ring(1, state=RingState.FINALIZED)), None),
        ("of other sizes", (ring(0), ring(1, ranks=3)), TimesDoubt.UNLIKE),
        ("of other nodes", (ring(0), ring(1, nodes=2)), TimesDoubt.UNLIKE),
        ("on the same GPU", (ring(0), ring(1, gpu=uuid(0))), TimesDoubt.SAME_GPU),
        ("on GPUs that are not known", (ring(0, gpu=NOT_SEEN), ring(1, gpu=NOT_SEEN)), None),
        ("one of two ranks", (ring(0),), TimesDoubt.UNSEEN),
        ("two of four ranks of two nodes", (ring(0, ranks=4, nodes=2), ring(1, ranks=4, nodes=2)), None),
        ("two of five ranks of two nodes", (ring(0, ranks=5, nodes=2), ring(1, ranks=5, nodes=2)),
         TimesDoubt.UNSEEN),
        ("one of two ranks of two nodes", (ring(0, nodes=2),), TimesDoubt.ALONE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_why_a_communicator_is_not_judged(
    guard: str, rings: Sequence[RingReading], doubt: TimesDoubt | None
) -> None:
    for listed in (rings, tuple(reversed(rings))):
        found = group(*listed)
        assert found.doubt is doubt, guard
        ranks = [one.ring.rank for one in found.rings]
        assert ranks == sorted(ranks)
        assert found.live is (found.rings[0].ring.state is RingState.LIVE)
        assert (found.ranks, found.nodes) == min((one.ring.ranks, one.ring.nodes) for one in found.rings)


def test_of_communicators_that_are_alike_one_with_the_newest_ring_is_followed_first() -> None:
    older = (ring(0, communicator=1, created=5.0), ring(1, communicator=1, created=5.0))
    newer = (ring(0, communicator=2, created=0.0), ring(1, communicator=2, created=9.0))
    assert [one.key[1] for one in ring_groups((*older, *newer))[0]] == [2, 1]


@pytest.mark.parametrize(
    ("guard", "rings", "doubt"),
    [
        ("no tap times", (ring(0, on=0.0), ring(1, on=0.0)), TimesDoubt.OFF),
        ("one tap times", (ring(0, on=0.0), ring(1, on=0.2)), TimesDoubt.FEW),
        ("one tap says why it does not", (ring(0, untimed=0), ring(1, untimed=5)), TimesDoubt.BROADCAST),
        ("a tap says something that is not known", (ring(0, untimed=99),), TimesDoubt.FEW),
        ("many calls, none in a moment of timing", (ring(0, counts=RingCounts(enqueued=1000)),),
         TimesDoubt.UNKNOWN_NCCL),
        ("not so many calls", (ring(0, counts=RingCounts(enqueued=999)),), TimesDoubt.FEW),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_why_nothing_is_timed_yet(
    guard: str, rings: Sequence[RingReading], doubt: TimesDoubt
) -> None:
    assert untimed(group(*rings)) is doubt, guard


def names(*rings: RingReading, owners: Mapping[str, str] | None = None) -> list[tuple[str, int]]:
    """The names of the jobs that these rings make, with the number of their communicators."""
    settings = NOT_SEEN
    processes = {name: RingProcess(owner, settings) for name, owner in (owners or {}).items()}
    return [(job.name, len(job.keys)) for job in job_groups(ring_groups(rings)[0], processes)]


def other(rank: int, **but: object) -> RingReading:
    """A ring of another communicator."""
    return ring(rank, **{"name": f"s{rank}", "communicator": 0xBEEF, "pid": 50, "host_pid": 60, **but})


@pytest.mark.parametrize(
    ("guard", "rings", "owners", "jobs"),
    [
        ("by the lowest process", (ring(1), ring(0)), {}, [("pid:20", 1)]),
        ("by the lowest process of its own, where none is seen",
         (ring(0, host_pid=NOT_SEEN), ring(1, host_pid=NOT_SEEN)), {}, [("pid:10", 1)]),
        ("two communicators of other processes", (ring(0), other(0)), {}, [("pid:20", 1), ("pid:60", 1)]),
        ("of one process", (ring(0), other(0, host_pid=20)), {}, [("pid:20", 2)]),
        ("of processes that are not seen", (ring(0, host_pid=NOT_SEEN), other(0, host_pid=NOT_SEEN)), {},
         [("pid:10", 1), ("pid:50", 1)]),
        ("of one process by its own number, user and GPU",
         (ring(0, host_pid=NOT_SEEN), other(0, host_pid=NOT_SEEN, pid=10)), {}, [("pid:10", 2)]),
        ("of one number on another GPU",
         (ring(0, host_pid=NOT_SEEN), other(1, host_pid=NOT_SEEN, pid=10)), {}, [("pid:10", 1)] * 2),
        ("of one owner", (ring(0), other(0)), {"r0": "slurm:7", "s0": "slurm:7"}, [("slurm:7", 2)]),
        ("of one owner and another user", (ring(0), other(0, uid=7)), {"r0": "slurm:7", "s0": "slurm:7"},
         [("slurm:7", 1), ("slurm:7", 1)]),
        ("of no owner", (ring(0), other(0)), {"r0": "", "s0": ""}, [("pid:20", 1), ("pid:60", 1)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_which_communicators_are_one_job(
    guard: str, rings: Sequence[RingReading], owners: Mapping[str, str], jobs: list[tuple[str, int]]
) -> None:
    assert names(*rings, owners=owners) == jobs, guard


@each(
    ("on", "period", "stride", "untimed", "share"),
    [
        (0.2, 2.0, 0, 0, 0.1), (2.0, 2.0, 1, 0, 1.0), (2.0, 2.0, 8, 0, 0.125), (2.1, 2.0, 1, 0, 0.0),
        (0.0, 2.0, 1, 0, 0.0), (0.0, 0.0, 0, 0, 0.0), (-1.0, 2.0, 1, 0, 0.0), (0.2, 2.0, 1, 2, 0.0),
    ],
)  # fmt: skip
def test_the_share_of_collectives_that_a_tap_times_is_known_where_it_can_be(
    on: float, period: float, stride: int, untimed: int, share: float
) -> None:
    reading = JobsReading(RingsReading(), {"r0": RingProcess("", {"NCCL_ALGO": "Tree"})}, around=AROUND)
    rank = job_rank(ring(0, on=on, period=period, stride=stride, untimed=untimed).ring, reading)
    assert rank.sampling == pytest.approx(share)
    assert (rank.index, rank.pid, rank.own_pid) == ("0", 20, 10)
    assert settings_of_rank(rank, replace(reading, conf={"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"})) == {
        "NCCL_ALGO": "Tree", "NCCL_DEBUG": "INFO",
    }  # fmt: skip
    unknown = job_rank(ring(0, gpu="GPU-of-nobody", name="x").ring, reading)
    assert unknown.index == ""
    assert settings_of_rank(unknown, replace(reading, conf={"NCCL_ALGO": "Ring"})) == {"NCCL_ALGO": "Ring"}


@each(
    ("rank", "ranks", "can_be"),
    [(0, 1, True), (-1, 2, False), (2, 2, False), (0, 1 << 20, True), (0, (1 << 20) + 1, False)],
)
def test_a_ring_of_a_rank_that_cannot_be_is_in_no_communicator(
    rank: int, ranks: int, *, can_be: bool
) -> None:
    found = possible(JobsReading(RingsReading((ring(rank, ranks=ranks),))))
    assert bool(found) is can_be
