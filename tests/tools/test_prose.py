"""What a reader must read twice is found, and plain sentences are not."""

from tests.rows import each
from tools.prose import odd, riddles


@each(
    "text",
    [
        "What is only numbered anew is no change.",
        "A part that got another number is no change.",
        "All is tested, but for the\nlast step.",
        "Whose ring it is says the file's owner.",
        "A port that is not up is told as down.",
        "What it refused is listed there.",
    ],
)
def test_a_riddle_is_found(text: str) -> None:
    assert list(riddles(f"Some words before it.\n\n{text}\n"))


@each(
    "text",
    [
        "A part that only got a new number has not changed.",
        "There is no probe here.",
        "It is no longer than that, and is no more.",
        "`what is told as anew`",
        "What does it cost?",
    ],
)
def test_a_plain_sentence_is_left_alone(text: str) -> None:
    assert not list(riddles(text))


def test_no_page_has_a_riddle() -> None:
    assert not list(odd())
