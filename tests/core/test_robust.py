"""Medians and spreads, against what they are by definition."""

from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewatch.core.statistics import high_median, low_median, spread

VALUES = st.lists(st.integers(-1000, 1000), min_size=1)


def test_of_an_even_number_there_is_a_lower_and_a_higher_middle() -> None:
    assert (low_median([4, 1, 3, 2]), high_median([4, 1, 3, 2])) == (2, 3)
    assert low_median([3, 1, 2]) == high_median([3, 1, 2]) == 2


@given(VALUES)
def test_half_of_all_values_are_on_either_side_of_a_median(values: list[int]) -> None:
    for middle in (low_median(values), high_median(values)):
        assert middle in values
        assert sum(value < middle for value in values) <= len(values) / 2
        assert sum(value > middle for value in values) <= len(values) / 2


def test_there_is_no_median_of_nothing_and_no_spread() -> None:
    with pytest.raises(ValueError, match="nothing"):
        low_median([])
    assert spread([], 1.0) == 0.0


def test_the_spread_of_normal_noise_is_its_standard_deviation() -> None:
    noise = NormalDist(5.0, 2.0).quantiles(2001)
    assert spread(noise, 5.0) == pytest.approx(2.0, rel=0.005)
    assert spread([*noise, 1e9, -1e9], 5.0) == pytest.approx(2.0, rel=0.01)
