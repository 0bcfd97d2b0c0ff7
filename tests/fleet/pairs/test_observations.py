"""Runs as losses: what is left out, what is typical of a class, and what something named explains."""

import math
from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.rows import each
from wirewatch.core.pairs import Measure, Way
from wirewatch_fleet.pairs.model import MeasuredRound, PairRound, PairRun, RoundPurpose
from wirewatch_fleet.pairs.observations import (
    Observation,
    all_but_a_quarter,
    observations,
    typical_rate,
    weigh,
)


def seen(*logs: float, number: int = 1, full: bool = True, across: bool | None = None) -> Observation:
    """A run with so many rails."""
    rails = {f"{n}": value for n, value in enumerate(logs)}
    return Observation(Measure.RAILS, number, "a", "b", across, rails, full)


def seen_often(times: int, log: float, number: int = 1, *, full: bool = True) -> list[Observation]:
    return [seen(log, number=number, full=full) for _ in range(times)]


def losses(every: Sequence[Observation]) -> dict[int, set[float]]:
    """By round."""
    found: dict[int, set[float]] = {}
    for one in every:
        found.setdefault(one.round, set()).update(round(loss, 6) for loss in one.losses.values())
    return found


RUN = PairRun("b", "a", 4.0, 2.0, 8.0, {"0": (4.0, 2.0), "1": (None, 1.0)})


@each(
    ("run", "measure", "found"),
    [
        (RUN, Measure.SEND, [("b", "a", {"": 4.0}), ("a", "b", {"": 2.0})]),
        (RUN, Measure.RAILS, [("b", "a", {"0": 4.0}), ("a", "b", {"0": 2.0, "1": 1.0})]),
        (RUN, Measure.ALL_REDUCE, [("a", "b", {"": 8.0})]),
        (PairRun("a", "b", 4.0), Measure.SEND, [("a", "b", {"": 4.0})]),
        (PairRun("a", "b", 4.0), Measure.ALL_REDUCE, []),
        (PairRun("a", "b", 4.0, failed="no answer"), Measure.SEND, []),
    ],
)
def test_what_a_run_measured_is_seen_in_each_direction(
    run: PairRun, measure: Measure, found: list[tuple[str, str, dict[str, float]]]
) -> None:
    """A collective has none: it is the same run whoever is called the first."""
    made = observations(
        [MeasuredRound(PairRound(3, RoundPurpose.CONFIRM, ()), [run])], measure, {"a": "x", "b": "y"}
    )
    rates = [(one.sender, one.receiver, {rail: math.exp(x) for rail, x in one.logs.items()}) for one in made]
    assert [(a, b, {rail: round(x, 6) for rail, x in some.items()}) for a, b, some in rates] == found
    assert {(one.round, one.full, one.across) for one in made} <= {(3, False, True)}
    together = measure is Measure.ALL_REDUCE
    for one in made:
        ways = (Way.TOGETHER, Way.TOGETHER) if together else (Way.SENDS, Way.RECEIVES)
        assert one.ends == ((one.sender, ways[0]), (one.receiver, ways[1]))


@each(
    ("leafs", "across"),
    [
        ({}, None), ({"a": "x"}, None), ({"b": "x"}, None), ({"a": "x", "b": "x"}, False),
        ({"a": "x", "b": "y"}, True),
    ],
)  # fmt: skip
def test_a_run_is_across_leafs_where_both_are_known(leafs: Mapping[str, str], across: bool | None) -> None:  # noqa: FBT001
    made = observations([MeasuredRound(PairRound(1, RoundPurpose.RANDOM, ()), [RUN])], Measure.SEND, leafs)
    assert {(one.across, one.full) for one in made} == {(across, True)}


def test_all_but_a_quarter_lose_at_least_so_much() -> None:
    assert all_but_a_quarter([8.0, 1.0, 2.0, 7.0, 3.0, 4.0, 6.0, 5.0]) == 3.0


@each(
    ("masked", "rails", "asked", "explained"),
    [
        (0.1, {}, "", 0.1),
        (0.1, {}, "0", 0.1),
        (0.1, {"0": 0.3}, "0", 0.3),
        (0.4, {"0": 0.3}, "0", 0.4),
        (0.1, {"0": 0.3}, "1", 0.1),
        (0.1, {"0": 0.3}, "", 0.1),
        (0.1, {"0": 0.3, "1": 0.2}, "", 0.2),
        (0.25, {"0": 0.3, "1": 0.2}, "", 0.25),
    ],
)
def test_of_all_rails_is_explained_what_explains_each_of_them(
    masked: float, rails: Mapping[str, float], asked: str, explained: float
) -> None:
    one = seen(0.0, 0.0)
    one.losses = {"0": 0.5, "1": 0.6}
    one.mask(masked)
    for rail, loss in rails.items():
        one.mask(loss, rail)
    assert one.explained(asked) == explained


def test_of_two_explanations_the_greater_holds_and_what_is_explained_is_no_more_lost() -> None:
    one = seen(0.0, 0.0)
    one.losses = {"0": 0.1, "1": 0.6}
    one.see_loss()
    assert one.loss == 0.1
    for loss in (0.1, 0.3, 0.2):
        one.mask(loss)
        one.mask(loss, "0")
        assert one.loss == 0.6
    assert (one.explained(), one.explained("0")) == (0.3, 0.3)
    one.mask(0.1, "1")
    assert one.loss == 0.1


def drifted(first: int, second: int, *, full: bool = True) -> dict[int, set[float]]:
    """Of two rounds, the second by a tenth slower."""
    every = [*seen_often(first, 0.1), *seen_often(second, 0.0, 2, full=full)]
    weigh(every)
    return losses(every)


@each(
    ("found", "own"),
    [
        (drifted(24, 24), True),
        (drifted(48, 24), True),
        (drifted(49, 24), False),
        (drifted(23, 23), False),
        (drifted(24, 24, full=False), False),
    ],
    ids=["alike", "half", "fewer than half", "few values", "of suspects"],
)
def test_a_round_has_a_typical_rate_of_its_own_where_most_took_part(
    found: dict[int, set[float]], *, own: bool
) -> None:
    """Else that of all full rounds counts."""
    assert found == ({1: {0.0}, 2: {0.0}} if own else {1: {0.0}, 2: {0.1}})


def test_runs_of_suspects_do_not_say_what_is_typical() -> None:
    every = [*seen_often(24, 0.1), *seen_often(24, 0.3, 2, full=False)]
    weigh(every)
    assert losses(every) == {1: {0.0}, 2: {-0.2}}


def test_without_any_round_of_all_members_those_of_suspects_say_what_is_typical() -> None:
    every = [*seen_often(3, 0.0, 4, full=False), *seen_often(9, 0.2, 5, full=False)]
    weigh(every)
    assert losses(every) == {4: {0.2}, 5: {0.0}}


def test_typical_is_the_upper_quartile_of_each_class_at_first() -> None:
    every = [seen(n / 100, across=across) for n in range(24) for across in (False, None)]
    every += [seen(5.0, across=True)]
    weigh(every)
    assert min(one.loss for one in every) == pytest.approx(-0.06)
    assert max(one.loss for one in every) == pytest.approx(0.17)
    assert every[-1].loss == 0.0


def beside_clean(clean: Callable[[Observation, str], bool], *, full: bool = True) -> float:
    """The loss of the slowest of 24, by what is clean."""
    every = [seen(n / 100, full=full) for n in range(24)]
    weigh(every, clean)
    return round(every[0].loss, 6)


@pytest.mark.parametrize(("clean", "loss"), [(24, 0.115), (8, 0.035), (7, 0.17)])
def test_typical_is_the_median_of_what_is_clean_where_that_is_enough(clean: int, loss: float) -> None:
    """Of fewer than eight values it would say little: then the upper quartile of all counts again."""
    for full in (True, False):
        assert beside_clean(lambda one, _rail: one.logs["0"] < clean / 100 - 0.001, full=full) == loss


def test_what_was_masked_is_judged_anew() -> None:
    every = seen_often(24, 0.0)
    weigh(every)
    every[0].mask(0.3, "0")
    weigh(every, lambda one, rail: one.explained(rail) <= 0)
    assert not every[0].rails_masked


def test_the_typical_rate_is_the_median_of_all_rounds() -> None:
    every = [one for number in (1, 2, 3) for one in seen_often(24, math.log(number), number)]
    every += [seen(math.log(9.0), across=True)]
    weigh(every)
    assert typical_rate(every) == {None: pytest.approx(2.0), True: pytest.approx(9.0)}
