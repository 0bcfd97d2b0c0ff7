"""Squeezed time keeps its order."""

from hypothesis import given
from hypothesis import strategies as st

from proof.rehearsal.squeeze import squeezed

SECONDS = st.floats(min_value=0.001, max_value=1e9)


def test_up_to_a_quarter_of_an_hour_it_is_a_fifteenth() -> None:
    assert [squeezed(s) for s in (0, 15, 60, 900)] == [0, 1, 4, 60]


def test_an_hour_a_day_and_a_week_come_one_after_another_within_minutes() -> None:
    told = [round(squeezed(s)) for s in (900, 3600, 86400, 7 * 86400, 14 * 86400)]
    assert told == [60, 87, 149, 187, 201]


@given(SECONDS, SECONDS)
def test_what_is_longer_in_service_is_longer_here(one: float, other: float) -> None:
    short, long = sorted((one, other))
    assert squeezed(short) <= squeezed(long)
    # Of two numbers that differ by a millionth and more, the longer stays the longer.
    if long > short * (1 + 1e-6):
        assert squeezed(short) < squeezed(long)
