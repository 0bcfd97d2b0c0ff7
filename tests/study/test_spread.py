"""Student's distribution, Welch's test and Holm's rule against values of tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewatch.study.spread import RESOLUTION, critical, holm, levels, two_sided, welch

TABLE = {
    (1, 0.05): 12.706, (2, 0.05): 4.303, (4, 0.001): 8.610, (7, 0.05): 2.365, (8, 0.01): 3.355,
    (8, 0.001): 5.041, (30, 0.001): 3.646, (240, 0.01): 2.596,
}  # fmt: skip


@pytest.mark.parametrize(("freedom", "chance"), TABLE)
def test_students_distribution_is_that_of_the_tables(freedom: int, chance: float) -> None:
    assert critical(chance, freedom) == pytest.approx(TABLE[freedom, chance], abs=6e-4)


def test_its_tail_is_right_far_out() -> None:
    assert two_sided(9.6, 8) == pytest.approx(1.1503e-5, rel=1e-4)
    assert two_sided(4.5, 80) == pytest.approx(2.2787e-5, rel=1e-4)


@given(st.floats(0, 1e6), st.integers(1, 400))
def test_a_chance_is_one_and_has_no_sign(t: float, freedom: int) -> None:
    chance = two_sided(t, freedom)
    assert 0 <= chance <= 1
    assert chance == two_sided(-t, freedom)
    assert two_sided(t + 1, freedom) <= chance + 1e-12


def test_welch_by_hand() -> None:
    made = welch((1.0, 2.0, 3.0), (4.0, 6.0, 8.0))
    assert (made.mean, made.error**2, made.freedom) == (4.0, pytest.approx(5 / 3), 2)
    assert made.chance == pytest.approx(0.09, abs=0.01)
    assert welch((1.0, 1.0), (1.0, 1.0)).error == pytest.approx(RESOLUTION)


def test_holm_stops_at_the_first_that_fails() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], [1.0] * 4, 0.05) == [True, False, False, True]
    assert holm([0.02, 0.02], [4.0, 1.0], 0.05) == [True, True]
    assert holm([0.02, 0.02], [1.0, 1.0], 0.03) == [False, False]
    assert holm([], [], 0.05) == []


def test_a_level_is_one_a_repeat_and_only_of_repeats_that_all_sizes_have() -> None:
    assert levels([(1.0, 2.0, 3.0), (3.0, 4.0)]) == (2.0, 3.0)
