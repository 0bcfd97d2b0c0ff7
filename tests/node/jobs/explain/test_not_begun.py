"""A job that the waiting ledger has not seen yet is not judged by what the GPUs did in the last second."""

from dataclasses import replace

from tests.node.jobs.explain.drawn import evidence, gpus, job, late
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
