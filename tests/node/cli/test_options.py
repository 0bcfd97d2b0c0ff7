"""Values on the command line: what people write, and one form for every refusal."""

from contextlib import suppress

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.cli.test_help import LEAVES, USAGE
from tests.rows import each
from wirewatch.cli import run
from wirewatch.cli.options import Date, Duration, FiniteNumber, WholeNumber
from wirewatch.core.amounts import TIMES


def seconds(text: str) -> float:
    return Duration().convert(text, None, None)


@each(
    ("text", "wanted"),
    [
        ("3s", 3.0), ("10m", 600.0), ("2h", 7200.0), ("1d", 86400.0), ("1.5", 1.5), ("0", 0.0),
        (".5h", 1800.0), ("90", 90.0), ("1.m", 60.0), (" 10M ", 600.0), ("0.25d", 21600.0),
    ],
)  # fmt: skip
def test_what_people_write(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


@each(
    "text",
    [
        "", " ", "s", "m3", "-1", "-1s", "+1", "nan", "inf", "infinity", "1e3", "1e400", "9" * 400, "1 0s",
        "3 s", "1w", "1ms", "3s4", "1h30m", "0x10", "1_000", "٣", "1,5", ".", "None",
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        seconds(text)
    assert refused.value.message == f"{text[:40]!r} is not a duration, such as 3s, 10m, 2h, 1d or 1.5"


@each("text", ["nan", "inf", "-inf", "NaN", "1e999"])
def test_a_number_in_a_range_is_finite(text: str) -> None:
    assert FiniteNumber(0).convert("0.5", None, None) == 0.5
    with pytest.raises(click.BadParameter):
        FiniteNumber(0).convert(text, None, None)


@each(
    ("kind", "text", "allowed"),
    [
        (WholeNumber(1, 50), "0", "a whole number from 1 to 50"),
        (WholeNumber(1, 50), "1.5", "a whole number from 1 to 50"),
        (WholeNumber(min=1), "-3", "a whole number of 1 or more"),
        (FiniteNumber(0, 0.9), "one", "a number from 0 to 0.9"),
        (FiniteNumber(0, 0.9), "nan", "a number from 0 to 0.9"),
        (FiniteNumber(0, min_open=True), "0", "a number above 0"),
        (FiniteNumber(0, 1, min_open=True), "1.5", "a number above 0 and at most 1"),
        (FiniteNumber(max=3), "4", "a number of at most 3"),
        (FiniteNumber(), "inf", "a number"),
        (Duration(0.5), "0.1", "a duration of 0.5s or more, such as 3s, 10m, 2h, 1d or 1.5"),
        (Duration(above_zero=True), "0", "a duration above 0, such as 3s, 10m, 2h, 1d or 1.5"),
        (Duration(most=86400.0), "2d", "a duration of at most 1d, such as 3s, 10m, 2h, 1d or 1.5"),
        (Date(), "soon", "a date, such as 2027-01-31 or 2027-01-31T18:00"),
    ],
)
def test_a_refusal_says_what_is_allowed(kind: click.ParamType[object], text: str, allowed: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(text, None, None)
    assert refused.value.message == f"{text!r} is not {allowed}"


def is_checked(option: click.Parameter) -> bool:
    """Whether some values are refused: FREE take any name or none, a path may not exist yet."""
    free = (click.types.StringParamType, click.Path)
    checks = option.callback is not None or not isinstance(option.type, free)
    return isinstance(option, click.Option) and not option.is_flag and checks and option.name not in FREE


FREE = {"replay", "overlays", "ep", "cp"}
CHECKED = [
    pytest.param(words, option.opts[0], id=" ".join((*words, option.opts[0])))
    for words, command in LEAVES.items()
    for option in command.params
    if is_checked(option)
]
ODD = "no such/value"


@pytest.mark.parametrize(("words", "option"), CHECKED)
def test_every_option_refuses_in_the_same_form(
    words: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, f"{option}={ODD}"]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"wirewatch: {option}: {ODD!r} is n")
    assert not any(word in line for word in ("valid", "<", "%"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("completion", "csh"), "SHELL: 'csh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_a_refusal_names_the_option(
    arguments: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == USAGE
    assert capsys.readouterr().err == f"wirewatch: {line}\n"


@given(st.integers(0, 10**9), st.sampled_from(sorted(TIMES)))
def test_whole_numbers_of_a_unit(number: int, unit: str) -> None:
    assert seconds(f"{number}{unit}") == number * TIMES[unit]


@given(st.text(max_size=12))
def test_any_text_is_seconds_or_refused(text: str) -> None:
    with suppress(click.BadParameter):
        assert 0 <= seconds(text) < float("inf")
