"""The golden texts of the lab are those of the code."""

import pytest

from tests.lab.goldens import made
from wirewatch_lab.cli.advise import COMMANDS

GOLDEN = {question: text for path in made.HERE.glob("*.txt") for question, text in made.answers(path).items()}


@pytest.mark.parametrize("question", sorted(GOLDEN))
def test_an_answer_is_the_golden_text(question: str) -> None:
    """Word for word; after a change that was meant: `make generated`, and read the difference."""
    assert made.answer(question) == GOLDEN[question]


def test_every_command_of_the_lab_that_measures_nothing_has_golden_texts() -> None:
    commands = {" ".join(question.split()[:2]) for question in GOLDEN}
    assert {f"advise {name}" for name in COMMANDS} | {"sweep --compare"} <= commands
    assert any(question.startswith("parse ") for question in GOLDEN)
