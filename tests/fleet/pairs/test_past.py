"""All nodes slower alike than they were, beside earlier results."""

from tests.rows import each
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


def test_without_a_past_nothing_is_slower() -> None:
    assert not alike(typical(40e9), [], DEFAULT_LIMITS)


@each(
    ("rate", "past", "slower"),
    [
        (47.8e9, [50e9, 50e9, 50e9], True),
        (48.8e9, [50e9, 50e9, 50e9], False),
        (47.8e9, [50e9, 50e9], False),
        (46.8e9, [50e9, 50e9], True),
        (45e9, [50e9, 51e9, 49e9], False),
        (43e9, [50e9, 51e9, 49e9], True),
    ],
    ids=["by the least", "by less", "beside two", "beside two by more", "as much as they differ", "by more"],
)
def test_it_takes_the_least_loss_and_more_than_earlier_results_differ(
    rate: float, past: list[float], *, slower: bool
) -> None:
    """Four robust deviations of them: here 12 %."""
    assert bool(alike(typical(rate), [typical(one) for one in past], DEFAULT_LIMITS)) is slower
