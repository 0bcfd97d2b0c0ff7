"""Rows in one test: each is tried, and the failure has every wrong one."""

import inspect

import pytest

from tests.rows import each


def test_every_wrong_row_is_named_and_no_right_one() -> None:
    @each("low, high", [(1, 2), (4, 3), (5, 6), (8, 7)], ids=["one", "two", "three", "four"])
    def rising(low: int, high: int) -> None:
        if low == 8:
            pytest.fail("eight")
        assert low < high

    with pytest.raises(AssertionError) as told:
        rising()
    text = str(told.value)
    assert "2 of 4 rows are wrong" in text
    assert ("two: AssertionError" in text, "four: Failed: eight" in text) == (True, True)
    assert ("one:" in text, "three:" in text) == (False, False)


def test_a_row_without_a_name_is_shown_and_fixtures_are_left() -> None:
    seen: list[tuple[int, str]] = []

    @each("number", [1, 2])
    def whole(number: int, folder: str) -> None:
        """Its own words."""
        seen.append((number, folder))
        assert number == 1

    assert list(inspect.signature(whole).parameters) == ["folder"]
    assert (whole.__name__, whole.__doc__) == ("whole", "Its own words.")
    with pytest.raises(AssertionError, match=r"(?s)1 of 2 rows are wrong.*\[2\]: AssertionError"):
        whole(folder="here")
    assert seen == [(1, "here"), (2, "here")]


def test_no_rows_and_other_names_are_refused() -> None:
    with pytest.raises(AssertionError, match="there are no rows"):
        each("number", [])
    with pytest.raises(AssertionError, match="test_no_rows_and_other_names_are_refused does not take"):
        each("other", [1])(test_no_rows_and_other_names_are_refused)
    with pytest.raises(AssertionError, match="is of parametrize"):
        each("row", [1, pytest.param(2)])
