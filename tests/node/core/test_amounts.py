"""Times and sizes: what people write is read, and what is written is read back."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.core.amounts import SIZE, TIME, seconds, size, size_text, time_text


@each(
    ("text", "number"),
    [
        ("10m", 600.0), ("2h", 7200.0), ("1d", 86400.0), ("3s", 3.0), ("1.5", 1.5), (".5h", 1800.0),
        (" 3S ", 3.0),
        ("10min", None), ("", None), ("s", None), ("-1s", None), ("1e3", None), ("inf", None), ("nan", None),
        ("1 m", None), ("10m5s", None), ("\u0661s", None),
    ],
)  # fmt: skip
def test_a_time(text: str, number: float | None) -> None:
    assert seconds(text) == number


@each(
    ("text", "number"),
    [
        ("64MiB", 64 << 20), ("64M", 64 << 20), ("64mib", 64 << 20), ("64MB", 64_000_000), ("8", 8),
        ("8B", 8),
        ("8 GiB", 8 << 30), ("1.5K", 1536), ("16TiB", 16 << 40), ("0", 0), ("iB", None), ("64MBit", None),
        ("-1", None), ("", None), ("1e3", None), ("1.", None), ("\u0661", None), ("8PiB", None),
    ],
)  # fmt: skip
def test_a_size(text: str, number: int | None) -> None:
    assert size(text) == number


@each(
    ("number", "text"),
    [
        (600.0, "10m"), (90.0, "90s"), (0.0, "0s"), (7.5, "7.5s"), (3e-06, "0.000003s"), (7776000.0, "90d"),
        (86400.0, "1d"), (3600, "1h"), (15, "15s"),
    ],
)  # fmt: skip
def test_a_time_in_words(number: float, text: str) -> None:
    assert time_text(number) == text


@each(
    ("number", "text"),
    [(64 << 20, "64MiB"), (3 << 30, "3GiB"), (0, "0B"), (1000, "1000B"), (1536, "1536B"), (1 << 41, "2TiB")],
)
def test_a_size_in_words(number: int, text: str) -> None:
    assert size_text(number) == text


@given(st.floats(0, 1e9) | st.integers(0, 10**9))
def test_a_time_is_read_back(number: float) -> None:
    assert seconds(time_text(number)) == number


@given(st.integers(0, 1 << 50))
def test_a_size_is_read_back(number: int) -> None:
    assert size(size_text(number)) == number


@given(st.text() | st.floats() | st.integers() | st.none() | st.lists(st.integers()))
def test_what_is_no_amount_is_left_as_it_is(value: object) -> None:
    for one in (TIME, SIZE):
        taken = one.taken(value)
        if not isinstance(value, str) or one.read(value) is None:
            assert taken is value
        else:
            assert math.isfinite(taken)
