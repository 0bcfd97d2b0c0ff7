"""Questions and their text, and how a GPU is named."""

import pytest
from hypothesis import given

from tests.node.core.questions import parse_question
from tests.node.core.strategies import QUESTIONS
from tests.rows import each
from wirewatch.core.ports import ALL_LINKS, Gpu, Question


@given(QUESTIONS)
def test_the_text_of_a_question_gives_the_question_back(question: Question) -> None:
    assert parse_question(str(question)) == question


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (Question("UUID"), "UUID()"),
        (Question("Temperature", (0,)), "Temperature(0)"),
        (Question("Field", (138, ALL_LINKS)), "Field(138,all)"),
    ],
)
def test_the_text_of_a_question_is_what_recordings_and_overlays_hold(question: Question, text: str) -> None:
    assert str(question) == text


@each("text", ["", "UUID", "UUID(", "UUID()x", "gpu0/UUID()", "two words()"])
def test_what_is_no_question_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a question"):
        parse_question(text)


def test_a_gpu_goes_by_its_uuid_and_by_its_index_only_until_it_has_given_one() -> None:
    assert Gpu(3, "GPU-a").key == Gpu(5, "GPU-a").key == "GPU-a"
    assert Gpu(3, "").key == "index:3"
