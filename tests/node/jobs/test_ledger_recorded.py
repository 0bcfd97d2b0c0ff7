"""The ledger of recorded jobs on two H100: healthy, a late rank, P2P off, and a rank that is stopped."""

from collections.abc import Mapping
from functools import cache

import pytest

from tests.support import Node
from wirewatch.hw.recording import load_recording
from wirewatch.jobs.ledger import JobLedger, LedgerFacts, Spent
from wirewatch.jobs.surroundings import with_surroundings
from wirewatch.verdict.node import judge_state

RECORDING = load_recording("h100x2-jobs")
EVERY = 3.0
WATCHED = ("gpu", "hangs", "jobs", "ledger", "lockstep", "nvlink", "topology")
P2P, HEALTHY, LATE, STOPPED = (
    "a job with NCCL_P2P_DISABLE=1", "a healthy data-parallel job", "the same job, rank 1 10 % slower",
    "the same job, rank 1 stopped by a signal",
)  # fmt: skip


@cache
def played() -> Mapping[str, tuple[JobLedger, ...]]:
    """The ledger at the end of each phase, and how many seconds after its begin each named GPU 1."""
    node = Node(RECORDING, only=WATCHED)
    for name in ("jobs", "ledger"):
        own = node.collectors[name]
        node.collectors[name] = with_surroundings(own, lambda: judge_state(node.state), None, {})
    moments = RECORDING.manifest["moments"]
    found: dict[str, list[JobLedger]] = {}
    while node.clock.seconds <= RECORDING.times[-1]:
        node.poll(every=0.0)
        note = [one["note"] for one in moments if one["seconds"] <= node.clock.seconds][-1]
        facts = node.state.facts(LedgerFacts)
        assert facts is not None
        found.setdefault(note, []).extend(facts.jobs)
        node.clock.seconds += EVERY
    return {note: tuple(some) for note, some in found.items()}


def share(note: str, gpu: int, kind: Spent) -> float:
    return played()[note][-1].short[gpu].shares.get(kind, 0.0)


def test_there_is_no_ledger_while_nothing_computes() -> None:
    assert played()["no job"] == ()


def test_a_healthy_job_computes_and_hardly_waits() -> None:
    for gpu in (0, 1):
        assert share(HEALTHY, gpu, Spent.COMPUTING) > 0.9
        assert share(HEALTHY, gpu, Spent.NOT_ATTRIBUTED) < 0.05
    assert played()[HEALTHY][-1].behind == ()


def test_a_late_rank_costs_the_other_and_not_itself() -> None:
    assert share(LATE, 0, Spent.NOT_ATTRIBUTED) + share(LATE, 0, Spent.LOCAL_RANK) > 0.08
    assert share(LATE, 1, Spent.NOT_ATTRIBUTED) + share(LATE, 1, Spent.LOCAL_RANK) < 0.03


def test_a_slow_wire_is_time_on_the_wire() -> None:
    for gpu in (0, 1):
        assert share(P2P, gpu, Spent.WIRE) + share(P2P, gpu, Spent.BEYOND) > 0.2


def test_of_a_stopped_rank_the_wait_is_its_from_the_first_look_on() -> None:
    before, first, last = played()[LATE][-1], played()[STOPPED][0], played()[STOPPED][-1]
    waiting, stopped = first.short
    # It was late before it stopped, now more and now less.
    late = before.short[0].waits_for[stopped.gpu] * before.short[0].seconds
    assert waiting.waits_for.keys() == {stopped.gpu}
    assert EVERY < waiting.waits_for[stopped.gpu] * waiting.seconds < EVERY + late
    waiting, stopped = last.short
    assert waiting.shares[Spent.LOCAL_RANK] == pytest.approx(1.0, abs=0.01)
    assert stopped.shares == {Spent.IDLE: pytest.approx(1.0)}
    assert stopped.idle == "stopped"
    (behind,) = last.behind
    assert (behind.rank, behind.index, behind.pid, behind.calls) == (1, "1", 943, 1)
    assert behind.does == "stopped"
    assert behind.seconds > 30


def test_it_is_named_as_behind_after_four_seconds() -> None:
    named = [bool(one.behind) for one in played()[STOPPED]]
    assert named.index(True) == 1, "the second look at the stop is 5 s behind its last call"
    assert all(named[1:])
