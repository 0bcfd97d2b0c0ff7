"""The golden texts of the lab are those of the code."""

import pytest

from tests.lab.goldens import made

QUESTIONS = [(name, question) for name, questions in made.QUESTIONS.items() for question in questions]


@pytest.mark.parametrize(("name", "question"), QUESTIONS, ids=[question for _, question in QUESTIONS])
def test_an_answer_is_the_golden_text(name: str, question: str) -> None:
    """Word for word; after a change that was meant: `make generated`, and read the difference."""
    golden = (made.HERE / f"{name}.txt").read_text("utf-8")
    begin = golden.index(f"$ wirewatch {question}\n")
    end = golden.find("\n$ wirewatch ", begin) + 1 or len(golden)
    assert made.answer(question) == golden[begin:end]


def test_no_golden_is_left_of_what_is_asked_no_more() -> None:
    assert made.stray() == ()
