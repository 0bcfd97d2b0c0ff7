"""What two ends of a pair say, as one run."""

from dataclasses import replace

import pytest

from tests.fleet.rounds.playedengine import answers
from tests.rows import each
from wirewatch_fleet.pairs.model import PairEnd
from wirewatch_fleet.rounds.answer import PeerAnswer, answers_in, encode_answer, failed_run, run_of

GOOD = PeerAnswer(
    "wirewatch.fleet-peer/1", 1e9, "a", "a", "b", sends=4e9, receives=3e9, all_reduce=2e9,
    rails={"0": (2e9, None)}, end=PairEnd("NET/IB", gpudirect=True, errors={"mlx5_0:1 symbol_error": 2}),
)  # fmt: skip
REFUSED = PeerAnswer("wirewatch.fleet-peer/1", 1e9, "b", "a", "b", cause="refused", why="busy: process 12")
LOST = replace(GOOD, cause="failed", why="gloo says: closed by peer", sends=None, receives=None)


def said(*given: PeerAnswer) -> str:
    return "".join(f"{encode_answer(one)}\n" for one in given)


def test_rates_of_the_pair_with_what_each_end_saw() -> None:
    run = run_of("a", "b", said(replace(GOOD, name="b", end=PairEnd("NET/IB")), GOOD))
    assert (run.sends, run.receives, run.all_reduce, run.rails) == (4e9, 3e9, 2e9, {"0": (2e9, None)})
    assert run.ends == {"a": GOOD.end, "b": PairEnd("NET/IB")}
    assert run.answered


def test_one_end_that_measured_all_is_enough() -> None:
    assert run_of("a", "b", said(GOOD)).sends == 4e9


def test_the_end_that_refused_explains_why_the_other_waited_in_vain() -> None:
    assert run_of("a", "b", said(LOST, REFUSED)).failed == "b: refused: busy: process 12"


def test_what_was_disturbed_is_not_measured_whatever_the_other_end_says() -> None:
    taken = replace(REFUSED, cause="preempted", why="a process came")
    run = run_of("a", "b", said(GOOD, taken))
    assert (run.answered, run.failed) == (False, "b: preempted: a process came")


def test_answers_of_other_pairs_and_other_lines_are_none() -> None:
    text = f"srun: {answers('c', 'd')}\nslurmstepd: error: CANCELLED DUE TO PREEMPTION\n"
    assert len(list(answers_in(text))) == 2
    run = run_of("a", "b", text)
    assert run.failed == "neither node answered: slurmstepd: error: CANCELLED DUE TO PREEMPTION"


def test_a_line_with_a_label_before_it_and_a_cut_one() -> None:
    whole = encode_answer(GOOD)
    assert [one.name for one in answers_in(f"0: {whole}\n1: {whole[:-20]}\n")] == ["a"]


def test_an_answer_without_any_rate_is_none() -> None:
    assert run_of("a", "b", said(PeerAnswer("wirewatch.fleet-peer/1", 1e9, "a", "a", "b"))).failed


def test_a_long_reason_is_cut() -> None:
    assert len(run_of("a", "b", said(replace(REFUSED, why="x" * 1000))).failed) == 300


def test_of_two_ends_with_the_same_reason_the_first_speaks() -> None:
    text = said(replace(LOST, name="b"), LOST)
    assert run_of("a", "b", text).failed == "a: failed: gloo says: closed by peer"


@pytest.mark.parametrize(
    ("why", "failed"), [("", "no answer"), ("\n", "no answer"), ("x\ty", "xy"), ("z" * 301, "z" * 300)]
)
def test_a_failed_run_always_says_why(why: str, failed: str) -> None:
    assert failed_run("a", "b", why).failed == failed


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_without_a_word_of_either_it_says_so(text: str) -> None:
    assert run_of("a", "b", text).failed == "no answer of either"


@each("line", ['{"schema": 1}', "wirewatch.fleet-peer/1", '"wirewatch.fleet-peer/1"', "{" * 100_000, "5", ""])
def test_what_is_no_answer_is_passed_over(line: str) -> None:
    (one,) = answers_in(f"{line}\n{encode_answer(GOOD)}\n")
    assert one == GOOD
