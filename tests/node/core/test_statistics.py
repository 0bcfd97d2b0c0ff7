"""Counters over time, and medians and spreads."""

from itertools import accumulate, pairwise
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.core.statistics import (
    Streak,
    Window,
    delta,
    high_median,
    in_days,
    lasting,
    low_median,
    measured,
    spread,
)
from wirewatch.core.types import Absent, Why

COUNTS = st.integers(0, 2**64 - 1)


def test_what_happened_before_the_first_look_is_no_news() -> None:
    assert delta(None, 1_000_000) == 0


@given(COUNTS, COUNTS)
def test_a_counter_that_grew_has_grown_by_the_difference(before: int, more: int) -> None:
    assert delta(before, before + more) == more


@given(COUNTS, COUNTS)
def test_a_counter_that_shrank_was_reset_and_has_grown_by_what_it_shows(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert delta(high, low) == (low if low < high else 0)


@given(st.lists(COUNTS, min_size=2))
def test_growth_is_never_negative(values: list[int]) -> None:
    assert all(delta(a, b) >= 0 for a, b in pairwise(values))


def _growth(before: int, now: int) -> int:
    return now - before if now >= before else now


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 50)), min_size=1, max_size=40), st.integers(1, 60)
)
def test_a_window_holds_the_sum_of_the_growths_inside_it(polls: list[tuple[int, int]], length: int) -> None:
    times = list(accumulate(step for step, _ in polls))
    values = [value for _, value in polls]
    growths = list(zip(times[1:], map(_growth, values, values[1:]), strict=True))
    window = Window()
    for number, (time, value) in enumerate(zip(times, values, strict=True)):
        window = window.add(value, float(time), float(length))
        inside = [grown for at, grown in growths[:number] if at > time - length]
        assert window.total() == sum(inside)
        assert window.last == value


# Rates over the time that passed

READINGS = st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 1_000)), min_size=1, max_size=12)
"""Seconds since the reading before, and by how much the counter grew meanwhile."""
LIMITS = st.tuples(st.integers(1, 500), st.sampled_from([15, 60, 3600]))


def read_at(readings: list[tuple[int, int]], length: float) -> Window:
    """The window after a first reading at second 1000 and then these."""
    window, mono, value = Window().add(10, 1000.0, length), 1000.0, 10
    for gap, grown in readings:
        mono, value = mono + gap, value + grown
        window = window.add(value, mono, length)
    return window


@given(READINGS, LIMITS)
def test_no_limit_is_reached_that_no_time_up_to_now_has_reached(
    readings: list[tuple[int, int]], limit: tuple[int, int]
) -> None:
    events, seconds = limit
    stretches = [readings[start:] for start in range(len(readings))]
    reached = any(
        sum(n for _, n in some) * seconds >= events * sum(gap for gap, _ in some) for some in stretches
    )
    assert reached or read_at(readings, seconds).within(seconds) < events


@given(READINGS, LIMITS, st.lists(st.tuples(st.integers(1, 60), st.integers(0, 400)), min_size=1))
def test_a_burst_that_readings_show_within_the_time_of_the_limit_is_always_found(
    before: list[tuple[int, int]], limit: tuple[int, int], burst: list[tuple[int, int]]
) -> None:
    events, seconds = limit
    if sum(gap for gap, _ in burst) <= seconds and sum(n for _, n in burst) >= events:
        assert read_at([*before, *burst], seconds).within(seconds) >= events


@given(LIMITS, st.integers(1, 50), st.integers(1, 20))
def test_the_same_total_below_the_limit_reaches_it_in_one_gap_as_little_as_in_many_readings(
    limit: tuple[int, int], times: int, parts: int
) -> None:
    events, seconds = limit
    gap, grown = seconds * times, events * times - 1
    for readings in ([(gap * parts, grown * parts)], [(gap, grown)] * parts):
        assert read_at(readings, seconds).within(seconds) < events


def test_what_a_late_reading_shows_is_said_with_the_time_that_passed() -> None:
    window = read_at([(21_600, 600)], 60.0)
    assert window.within(60.0) == pytest.approx(600 / 360)
    assert window.words(60.0) == "600 in 6 h"
    assert read_at([(15, 3), (15, 9)], 60.0).words(60.0) == "12 in 60 s"


@each(
    ("seconds", "words"),
    [(0.4, "0.4 s"), (74.0, "74 s"), (5_400.0, "90 min"), (21_660.0, "6 h"), (259_200.0, "3 days")],
)
def test_a_length_of_time_is_said_in_the_largest_unit_that_gives_two(seconds: float, words: str) -> None:
    assert lasting(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(600.0, "within a day"), (86_400.0, "within a day"), (108_000.0, "in 30 h"), (259_200.0, "in 3 days")],
)
def test_a_day_is_called_one(seconds: float, words: str) -> None:
    assert in_days(seconds) == words


def test_a_window_keeps_nothing_of_a_counter_that_stands_still() -> None:
    window = Window()
    for second in range(10_000):
        window = window.add(7, float(second), 86_400.0)
    assert window == Window(7, mono=9_999.0)


def test_a_value_that_stood_still_while_its_twin_moved_enough_is_no_measurement() -> None:
    told = measured(100, 100, twin_growth=5_000, proof=5_000)
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED
    assert "5000" in told.detail


def test_a_value_that_stood_still_beside_a_twin_that_hardly_moved_is_believed() -> None:
    assert measured(100, 100, twin_growth=4_999, proof=5_000) == 100


@given(COUNTS, COUNTS, COUNTS)
def test_a_value_that_moved_is_believed_whatever_its_twin_did(now: int, before: int, twin: int) -> None:
    told = measured(now, before, twin, proof=1)
    assert told == now or (now == before and twin >= 1)


def test_the_first_value_is_believed() -> None:
    assert measured(0, None, twin_growth=10**12, proof=1) == 0


def test_a_value_that_could_not_be_read_stays_the_reason_why() -> None:
    lost = Absent(Why.LOST, "fallen off the bus")
    assert measured(lost, 100, twin_growth=10**12, proof=1) is lost


@given(st.lists(st.booleans()), st.integers(0, 20))
def test_a_streak_counts_the_last_sightings_in_a_row(earlier: list[bool], last: int) -> None:
    streak = Streak()
    for present in [*earlier, False, *[True] * last]:
        streak = streak.see(present=present)
    assert streak.count == last


def test_a_look_that_could_not_be_had_neither_confirms_nor_clears() -> None:
    seen = Streak().see(present=True).see(present=True)
    assert seen.see(present=True, sure=False) == seen
    assert seen.see(present=False, sure=False) == seen
    assert seen.see(present=False) == Streak()


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
