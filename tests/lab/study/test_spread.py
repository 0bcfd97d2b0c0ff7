"""Student's distribution, Welch's test and Holm's rule against values of tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch_lab.study.spread import (
    LOUDER,
    RESOLUTION,
    alone,
    cautious,
    critical,
    holm,
    levels,
    together,
    two_sided,
    welch,
)

TABLE = {
    (1, 0.05): 12.706, (2, 0.05): 4.303, (4, 0.001): 8.610, (7, 0.05): 2.365, (8, 0.01): 3.355,
    (8, 0.001): 5.041, (30, 0.001): 3.646, (240, 0.01): 2.596,
}  # fmt: skip


@each(("freedom", "chance"), TABLE)
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
    made = welch(alone((1.0, 2.0, 3.0)), alone((4.0, 6.0, 8.0)))
    assert (made.mean, made.freedom) == (4.0, 2)
    assert made.error**2 == pytest.approx(5 / 3)
    assert made.chance == pytest.approx(0.09, abs=0.01)
    assert welch(alone((1.0, 1.0)), alone((1.0, 1.0))).error == pytest.approx(RESOLUTION)


LEVELS = st.lists(st.floats(-9, 9), min_size=5, max_size=5)


@given(st.lists(LEVELS, min_size=1, max_size=6))
def test_a_variance_that_learns_lies_between_its_own_and_the_mean(sets: list[list[float]]) -> None:
    own, made = [alone(one) for one in sets], together(sets)
    mean = sum(one.variance for one in own) / len(own)
    for before, after in zip(own, made, strict=True):
        low, high = sorted((before.variance, mean))
        assert low * (1 - 1e-9) <= after.variance <= high * (1 + 1e-9)
        assert before.freedom <= after.freedom <= before.freedom * len(sets) * (1 + 1e-9)
        assert after.values == before.values


def test_curves_that_are_one_learn_nothing_from_each_other() -> None:
    levels_ = [1.0, 1.1, 0.9, 1.2, 1.05]
    alike, apart = [levels_, levels_], [levels_, [1.2, 0.9, 1.1, 1.0, 1.05]]
    assert together(alike) == [alone(levels_)] * 2
    assert together(apart)[0].freedom > alone(levels_).freedom


def test_curves_with_another_spread_are_left_alone() -> None:
    wide, narrow = [0.0, 9.0, -9.0, 5.0, -5.0], [0.0, 0.01, -0.01, 0.02, 0.0]
    assert together([wide, *[narrow] * 5]) == [alone(wide), *[alone(narrow)] * 5]


def test_holm_stops_at_the_first_that_fails() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], [1.0] * 4, 0.05) == [True, False, False, True]
    assert holm([0.02, 0.02], [4.0, 1.0], 0.05) == [True, True]
    assert holm([0.02, 0.02], [1.0, 1.0], 0.03) == [False, False]
    assert holm([], [], 0.05) == []


def test_a_level_is_one_a_repeat_and_only_of_repeats_that_all_sizes_have() -> None:
    assert levels([(1.0, 2.0, 3.0), (3.0, 4.0)]) == (2.0, 3.0)


@given(st.lists(LEVELS, min_size=1, max_size=6))
def test_no_variance_is_made_smaller_by_caution(sets: list[list[float]]) -> None:
    own, made = [alone(one) for one in sets], cautious(sets)
    mean = sum(one.variance for one in own) / len(own)
    for before, after in zip(own, made, strict=True):
        assert before.variance <= after.variance <= max(before.variance, mean) * (1 + 1e-9)
        assert before.freedom <= after.freedom * (1 + 1e-9) <= before.freedom * len(sets) * (1 + 1e-6)
        assert after.values == before.values
        if before.variance > LOUDER * mean:
            assert after == before


def test_of_three_sets_two_are_left_to_be_alike() -> None:
    """Each is an outlier beside the smaller ones, and one alone is like no other."""
    sets = [(1.0, 1.0 + width, 1.0 - width) for width in (1e-6, 1e-3, 1.0)]
    made = cautious(sets)
    assert made[2] == alone(sets[2])
    assert made[0].variance == pytest.approx((made[0].variance + made[0].variance) / 2)
    assert made[0].variance > alone(sets[0]).variance


def test_like_sets_lend_each_other_freedom_and_a_wild_one_does_not_spoil_it() -> None:
    quiet = [(1.0, 1.1, 0.9), (1.1, 0.9, 1.0), (0.9, 1.0, 1.1)]
    assert [one.freedom for one in cautious(quiet)] == pytest.approx([6.0] * 3)
    wild = (-9.0, 0.0, 9.0)
    assert cautious([*quiet, wild]) == [*cautious(quiet), alone(wild)]
    assert cautious(quiet[:2]) == [alone(one) for one in quiet[:2]]
