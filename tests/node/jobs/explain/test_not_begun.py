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
    assert answer.sentence.endswith("its waiting ledger has not seen it at work yet.")


def test_a_rank_that_the_tap_has_named_is_named_before_the_ledger_has_begun() -> None:
    seen = replace(evidence(job(late=late()), gpus()), ledger=NOT_BEGUN)
    assert (decide(seen).wall, decide(seen).certainty) == (Wall.LATE_RANK, Certainty.LOW)


def test_time_on_a_wire_of_which_nothing_is_known_to_expect_is_not_called_expected() -> None:
    wire = replace(spent(0, wire=0.64), unjudged=0.64)
    known = replace(spent(0, wire=0.64), unjudged=0.0)
    said, sure = (decide(evidence(job(), gpus()[:1], book=ledger(one))) for one in (wire, known))
    assert (said.wall, sure.wall) == (Wall.COMPUTING, Wall.NOTHING)
    assert "64 % on the wire, nothing known to expect" in said.sentence
    assert "64 % on the wire, as expected" in sure.sentence


def test_a_guard_alone_keeps_a_short_or_blind_ledger_from_saying_that_all_is_well() -> None:
    well = [spent(0), spent(1)]
    idle = [spent(number, seconds=10.0, idle=0.6) for number in range(2)]
    unread = [spent(0, seconds=10.0), spent(1, seconds=10.0, not_attributed=0.6)]
    books = {
        "": ledger(*well, short=[spent(n, seconds=10.0) for n in range(2)]),
        "only 9 s of its time": ledger(*(spent(n, seconds=9.0) for n in range(2)), short=()),
        "nothing has run on its GPUs lately": ledger(*well, short=idle),
        "what GPU 1 spent its time on": ledger(*well, short=unread),
    }
    for said, book in books.items():
        answer = decide(evidence(job(), gpus()[:2], book=book))
        assert (answer.wall is Wall.NOT_KNOWN) == bool(said), answer.sentence
        assert said in answer.sentence
