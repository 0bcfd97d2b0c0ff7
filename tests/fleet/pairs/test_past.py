from wirewatch.core.pairs import Measure
from wirewatch_fleet.pairs.model import DEFAULT_LIMITS
from wirewatch_fleet.pairs.naming import TypicalRate, alike


def typical(rate: float, across: bool | None = None) -> list[TypicalRate]:  # noqa: FBT001
    return [TypicalRate(Measure.SEND, across, rate)]


def test_slower_than_the_past_differs() -> None:
    (found,) = alike(typical(40e9), [typical(50e9), typical(50.2e9), typical(49.9e9)], DEFAULT_LIMITS)
    assert (round(found.loss, 3), found.past, found.results) == (0.2, 50e9, 3)


def test_a_past_that_differs_by_as_much_says_nothing() -> None:
    assert not alike(typical(40e9), [typical(50e9), typical(42e9), typical(58e9)], DEFAULT_LIMITS)


def test_one_earlier_result_takes_twice_the_least_loss() -> None:
    assert not alike(typical(47.6e9), [typical(50e9)], DEFAULT_LIMITS)
    assert alike(typical(46e9), [typical(50e9)], DEFAULT_LIMITS)


def test_only_runs_of_one_kind_are_compared() -> None:
    assert not alike(typical(40e9, across=True), [typical(50e9, across=False)] * 3, DEFAULT_LIMITS)


def test_faster_is_no_fault() -> None:
    assert not alike(typical(60e9), [typical(50e9)] * 3, DEFAULT_LIMITS)
