"""A job that the waiting ledger has not seen yet is not judged by what the GPUs did in the last second."""

from dataclasses import replace

from tests.node.jobs.explain.drawn import evidence, gpus, job, late, ledger, spent
from wirewatch.jobs.explain.evidence import NOT_BEGUN, NOT_WATCHED, Certainty, Wall
from wirewatch.jobs.explain.walls import decide

IDLE = [replace(one, graphics=NOT_WATCHED, utilisation=0.0) for one in gpus()]


def test_an_idle_second_before_the_ledger_has_begun_is_not_called_host() -> None:
    seen = replace(evidence(job(windows=(), fresh=False), IDLE), ledger=NOT_BEGUN)
    answer = decide(seen)
    assert (answer.wall, answer.certainty) == (Wall.NOT_KNOWN, Certainty.LOW)
    assert decide(replace(seen, ledger=NOT_WATCHED)).wall is not Wall.NOT_KNOWN


def test_a_rank_that_the_tap_has_named_is_named_before_the_ledger_has_begun() -> None:
    seen = replace(evidence(job(late=late()), gpus()), ledger=NOT_BEGUN)
    assert decide(seen).wall is Wall.LATE_RANK


def test_time_on_a_wire_of_which_nothing_is_known_to_expect_is_not_called_expected() -> None:
    wire = replace(spent(0, wire=0.64), unjudged=0.64)
    known = replace(spent(0, wire=0.64), unjudged=0.0)
    said, sure = (decide(evidence(job(), gpus()[:1], book=ledger(one))) for one in (wire, known))
    assert (said.wall, sure.wall) == (Wall.COMPUTING, Wall.NOTHING)
    assert "64 % on the wire, nothing known to expect" in said.sentence
    assert "64 % on the wire, as expected" in sure.sentence
