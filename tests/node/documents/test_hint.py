"""Hints of running jobs in the document of the state: each with its figures, and only while they hold."""

from dataclasses import replace

import pytest

from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import Absent, Failed, Health, Ok, Why
from wirewatch.documents.judged import hints_of, state
from wirewatch.documents.state import STATE, ReportedHint
from wirewatch.jobs.bursts import BurstFacts, BurstHint
from wirewatch.jobs.lockstep import Hint, HintTime, LockstepFacts, UnevenWork
from wirewatch.jobs.times import JobHint, JobsFacts
from wirewatch.verdict.node import judge_state

NOW = 1_795_223_090.0
FEW = Absent(Why.MISSING, "too few windows before")
SLOW = Hint("1", "GPU-1", NOW - 60, HintTime(NOW, 60.0), "GPU 1 never waits", 0.93, 0.85, 0.09, FEW, 3)
UNEVEN = UnevenWork(
    "3", "GPU-3", NOW - 30, HintTime(NOW, 60.0), "GPU 3 has 11% more work", 0.11, 0.1, 0.07, {}, FEW, 3
)
FELL = BurstHint("0", "GPU-0", NOW - 90, NOW, 60.0, 2e11, 3e11, "GPU 0: NVLink carries 200 GB/s")
WIRE = JobHint("wire", "slurm:7", "", NOW - 10, NOW, 60.0, "all_reduce at 25 GB/s")
LATE = JobHint("late", "slurm:7", "GPU-2", NOW - 5, NOW, 60.0, "rank 2 is late")


def node(**facts: object) -> NodeState:
    ok = Ok(None, NOW, 60.0)
    return NodeState({name: Component(name, None, ok, facts=one) for name, one in facts.items()})


def whole() -> NodeState:
    return node(
        lockstep=LockstepFacts(SLOW, SLOW, uneven=UNEVEN),
        bursts=BurstFacts((), (FELL,), FELL),
        jobs=JobsFacts(NOW, 60.0, hints=(WIRE, LATE)),
        other=None,
    )


def test_every_hint_that_holds_is_reported_with_its_figures_oldest_first() -> None:
    assert hints_of(whole()) == [
        ReportedHint("slower_collectives", {"gpu": "0", "uuid": "GPU-0"}, NOW - 90, FELL.text),
        ReportedHint("slow_gpu", {"gpu": "1", "uuid": "GPU-1"}, NOW - 60, SLOW.text),
        ReportedHint("uneven_work", {"gpu": "3", "uuid": "GPU-3"}, NOW - 30, UNEVEN.text),
        ReportedHint("slow_wire", {}, NOW - 10, "slurm:7: all_reduce at 25 GB/s"),
        ReportedHint("late_gpu", {"uuid": "GPU-2"}, NOW - 5, "slurm:7: rank 2 is late"),
    ]


def test_the_document_has_them_and_the_verdict_does_not() -> None:
    document = state(judge_state(whole()), NOW, "live")
    assert document.hints == hints_of(whole())
    assert STATE.validate_json(STATE.dump_json(document)) == document
    assert judge_state(whole()).verdict.health is not Health.DEGRADED
    assert judge_state(whole()).verdict.standings == ()


def test_a_hint_that_is_over_is_none() -> None:
    over = node(lockstep=LockstepFacts(None, SLOW), bursts=BurstFacts((), (), FELL), jobs=JobsFacts(NOW, 1.0))
    assert hints_of(over) == []


@pytest.mark.parametrize("name", ["lockstep", "bursts", "jobs"])
def test_a_collector_that_cannot_read_now_hints_at_nothing(name: str) -> None:
    known = whole()
    failed = Failed(Absent(Why.LOST, "gone"), NOW, 60.0)
    for blind in (
        replace(known.components[name], outcome=failed),
        replace(known.components[name], overdue_since=NOW),
    ):
        left = {one.kind for one in hints_of(known.with_component(blind))}
        of_it = {one.kind for one in hints_of(NodeState({name: known.components[name]}))}
        assert of_it
        assert left == {one.kind for one in hints_of(known)} - of_it
