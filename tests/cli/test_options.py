"""Durations on the command line."""

from contextlib import suppress

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewatch.cli.options import UNITS, Duration, FiniteRange


def seconds(text: str) -> float:
    return Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("3s", 3.0), ("10m", 600.0), ("2h", 7200.0), ("1d", 86400.0), ("1.5", 1.5), ("0", 0.0),
        (".5h", 1800.0), ("90", 90.0), ("1.m", 60.0), (" 10M ", 600.0), ("0.25d", 21600.0),
    ],
)  # fmt: skip
def test_what_people_write(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "s", "m3", "-1", "-1s", "+1", "nan", "inf", "infinity", "1e3", "1e400", "9" * 400, "1 0s",
        "3 s", "1w", "1ms", "3s4", "1h30m", "0x10", "1_000", "٣", "1,5", ".", "None",
    ],
)  # fmt: skip
def test_what_nobody_can_mean_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        seconds(text)
    assert refused.value.message == f"{text!r} is not a duration, such as 3s, 10m, 2h, 1d or 1.5"


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "NaN", "1e999"])
def test_a_number_in_a_range_is_finite(text: str) -> None:
    assert FiniteRange(0).convert("0.5", None, None) == 0.5
    with pytest.raises(click.BadParameter):
        FiniteRange(0).convert(text, None, None)


@given(st.integers(0, 10**9), st.sampled_from(sorted(UNITS)))
def test_whole_numbers_of_a_unit(number: int, unit: str) -> None:
    assert seconds(f"{number}{unit}") == number * UNITS[unit]


@given(st.text(max_size=12))
def test_any_text_is_seconds_or_refused(text: str) -> None:
    with suppress(click.BadParameter):
        assert 0 <= seconds(text) < float("inf")
