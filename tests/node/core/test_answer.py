"""The answer line: one shape, never longer than a gate takes."""

from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.core.answer import CUT, KEPT, LIMIT, answer_line

TEXT = st.text(max_size=400)


@each(
    ("line", "told"),
    [
        (answer_line("OK"), "OK"),
        (answer_line("OK", host="gpu-17"), "OK; on gpu-17"),
        (answer_line("FAILED", "gpu.lost GPU 2"), "FAILED gpu.lost GPU 2"),
        (
            answer_line("FAILED", "gpu.lost GPU 2", "gone. ", "look", more=("a", "b"), host="n"),
            "FAILED gpu.lost GPU 2: gone. look; a; b; on n",
        ),
        (answer_line("FAILED", "x", "", "look"), "FAILED x: look"),
        (answer_line("OK", kept=("repaired by ann: x",), more=("m",)), "OK; repaired by ann: x; m"),
        (answer_line("OK", "a\nb\x1b", "c  d"), "OK a b: c d"),
    ],
)
def test_its_parts_stand_in_one_order(line: str, told: str) -> None:
    assert line == told


def test_orders_and_the_host_are_not_cut_for_a_long_cause() -> None:
    line = answer_line("FAILED", "xid.79 GPU 2", "x" * 900, "then", kept=("order",), more=("more",), host="n")
    assert len(line.encode()) <= LIMIT
    assert f"{CUT}; order{CUT}; on n" in line
    assert line.endswith("; on n")


@given(TEXT, TEXT, TEXT, TEXT, st.lists(TEXT, max_size=3), st.lists(TEXT, max_size=3), TEXT)
def test_it_is_one_short_line_that_begins_with_the_verdict(
    part: str, cause: str, then: str, word: str, kept: list[str], more: list[str], host: str
) -> None:  # fmt: skip
    line = answer_line("UNKNOWN", part, f"{cause}{word}", then, kept=kept, more=more, host=host)
    assert line.startswith("UNKNOWN")
    assert len(line.encode()) <= LIMIT
    assert line.isprintable()
    assert KEPT < LIMIT / 2
