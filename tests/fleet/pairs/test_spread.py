"""A part slower than healthy ones differ: each condition where it alone refuses."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.rows import each
from wirewatch_fleet.pairs.model import DEFAULT_LIMITS
from wirewatch_fleet.pairs.spread import (
    HealthySpread,
    JudgedPart,
    NamingBar,
    RoundLoss,
    healthy_spread,
    judge,
)

CALM = HealthySpread(0.005, 0.005, [0.0] * 1000)
BAR = NamingBar(8, 0.0005, replace(DEFAULT_LIMITS, least=-math.expm1(-0.03)))
"""The least loss is 0.03."""


def runs(*losses: float, explained: float = 0.0, partners: str = "abcdefgh") -> list[RoundLoss]:
    return [
        RoundLoss(n, loss, explained, name)
        for n, (loss, name) in enumerate(zip(losses, partners, strict=False))
    ]


def judged(points: Sequence[RoundLoss], spread: HealthySpread = CALM, bar: NamingBar = BAR) -> JudgedPart:
    return judge(points, spread, bar)


def test_a_part_that_is_slow_with_all_partners_is_named() -> None:
    found = judged(runs(0.2, 0.21, 0.19, 0.2))
    assert (found.named, found.suspected, found.slow, found.rounds) == (True, True, 4, 4)
    assert (found.loss, found.partners, found.slow_with) == (0.2, frozenset("abcd"), frozenset("abcd"))
    assert found.deviations == pytest.approx(0.2 / found.error)


def test_without_any_run_nothing_is_said() -> None:
    assert judged([]) == JudgedPart(
        0.0, 0.0, 0, 0, frozenset(), frozenset(), 0.0, named=False, suspected=False
    )


@each(
    ("points", "spread", "bar", "named", "suspected"),
    [
        (runs(0.2, 0.2, 0.2, 0.0), CALM, BAR, True, True),
        (runs(0.2, 0.2, 0.0, 0.2, 0.2, 0.0), CALM, BAR, False, False),
        (runs(0.2, 0.2, 0.2), replace(CALM, losses=[0.0] * 600 + [0.3] * 400), BAR, False, True),
        (runs(0.2, 0.2, 0.2, 0.2), replace(CALM, between=0.055), BAR, False, True),
        (runs(0.2, 0.2, 0.2, 0.2), replace(CALM, between=0.1), BAR, False, False),
        (runs(0.2, 0.2, 0.2, 0.2), replace(CALM, between=0.05), replace(BAR, parts=10_000_000), False, False),
        (runs(0.029, 0.029, 0.029, 0.029), CALM, BAR, False, False),
        (runs(0.031, 0.031, 0.031, 0.031), CALM, BAR, True, True),
        (runs(0.2), CALM, BAR, False, True),
    ],
    ids=["three in four", "two in three", "so slow by chance", "as slow as some", "as slow as many",
         "one of many", "too little", "just enough", "once"],
)  # fmt: skip
def test_each_condition_alone_refuses(
    points: Sequence[RoundLoss], spread: HealthySpread, bar: NamingBar, *, named: bool, suspected: bool
) -> None:
    found = judged(points, spread, bar)
    assert (found.named, found.suspected) == (named, suspected)


def test_many_runs_with_one_partner_show_one_partner() -> None:
    """The lower of two middle losses counts."""
    found = judged(runs(0.3, 0.3, 0.3, 0.2, 0.0, 0.1, partners="aaaabc"))
    assert (found.loss, found.partners) == (0.1, frozenset("abc"))
    assert (found.slow_with, found.slow) == (frozenset("ac"), 5)
    assert judged(runs(0.2, 0.1, partners="aa")).loss == 0.1


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (0.1, 0),
        (0.134, 0),
        (0.136, 1),
    ],
)
def test_a_run_behind_something_wider_speaks_of_what_is_slower_than_that(loss: float, told: int) -> None:
    """By a twentieth of what is explained, and by the least loss."""
    assert judged(runs(loss, explained=0.1)).rounds == told


def test_what_differs_from_round_to_round_by_more_takes_more_to_be_slower_than_its_cover() -> None:
    noisy = replace(CALM, within=0.02)
    assert judged(runs(0.164, explained=0.1), noisy).rounds == 0
    assert judged(runs(0.166, explained=0.1), noisy).rounds == 1


@pytest.mark.parametrize(
    ("hidden", "rounds", "partners"),
    [(0.165, 4, "abcd"), (0.175, 3, "abc")],
)
def test_a_run_behind_something_wider_refutes_what_would_have_been_slower(
    hidden: float, rounds: int, partners: str
) -> None:
    """A slow part gives no faster run, whatever else is in the way."""
    point = RoundLoss(4, hidden, 0.3, "d")
    found = judged([*runs(0.2, 0.2, 0.2), point])
    assert (found.rounds, found.partners) == (rounds, frozenset(partners))
    assert found.slow == 3


def test_a_small_loss_is_refuted_by_a_run_under_the_least() -> None:
    hidden = RoundLoss(4, 0.029, 0.3, "d")
    assert judged([*runs(0.05, 0.05, 0.05), hidden]).partners == frozenset("abcd")


def test_slow_is_what_loses_most_of_what_the_part_does() -> None:
    """At least six tenths: a run in between says that the part is not so slow always."""
    found = judged(runs(0.2, 0.2, 0.2, 0.13, 0.11))
    assert (found.slow, found.slow_with) == (4, frozenset("abcd"))


@pytest.mark.parametrize(
    ("losses", "loss", "chance"),
    [
        ([], 0.1, 0.02),
        ([0.0] * 30, 0.1, 0.01),
        ([0.0] * 28 + [0.2] * 2, 0.1, 2.6 / 60),
        ([0.1] * 30, 0.1, 0.01),
    ],
)
def test_the_chance_of_a_slow_run_is_by_those_of_healthy_parts(
    losses: Sequence[float], loss: float, chance: float
) -> None:
    """Before any is seen, as if 2 % of 30 had been slow."""
    assert HealthySpread(0.0, 0.0, losses).chance(loss) == pytest.approx(chance)


@each(("rounds", "noise"), [(0, 1.0), (1, 1.0), (2, 0.5), (3, 1.57 / 3), (8, 1.57 / 8)])
def test_more_rounds_take_the_noise_out_but_not_what_differs_for_good(rounds: int, noise: float) -> None:
    made = HealthySpread(0.03, 0.04, ())
    assert made.deviation(rounds) == pytest.approx(math.sqrt(0.03**2 + noise * 0.04**2))


@pytest.mark.parametrize(
    ("parts", "error", "named", "suspected"),
    [(0, 0.02275, 2.0, 1.95996), (1, 0.02275, 2.0, 1.95996), (1, 0.9, 0.0, 1.95996),
     (4, 4 * 0.02275, 2.0, 2.24140)],
)  # fmt: skip
def test_the_more_parts_the_more_deviations(parts: int, error: float, named: float, suspected: float) -> None:
    bar = NamingBar(parts, error, DEFAULT_LIMITS)
    assert bar.deviations == pytest.approx(named, abs=1e-4)
    assert bar.suspected == pytest.approx(suspected, abs=1e-4)


@each(
    ("parts", "slow", "rounds", "enough"),
    [(0, 2, 2, True), (1, 2, 2, True), (6, 2, 2, False), (6, 3, 3, True), (1, 2, 4, False), (1, 1, 1, False)],
)
def test_so_many_slow_rounds_are_more_than_chance_gives(
    parts: int, slow: int, rounds: int, *, enough: bool
) -> None:
    """Where one run in fifty is slow, of any of so many parts, and once in 2000 fleets may be wrong."""
    assert NamingBar(parts, 0.0005, DEFAULT_LIMITS).rounds_enough(slow, rounds, 0.02) is enough


def spread_of(*series: Sequence[RoundLoss], **floor: float) -> HealthySpread:
    return healthy_spread(series, 0.03, **floor)


@each(
    ("points", "losses"),
    [
        (runs(0.0, 0.01), [0.0, 0.01]),
        (runs(0.2, 0.0, 0.0), [0.0, 0.0, 0.2]),
        (runs(0.2), [0.2]),
        (runs(0.2, 0.2), []),
        (runs(0.2, 0.2, 0.0, 0.0), []),
        (runs(0.2, 0.2, 0.0, 0.0, 0.0), [0.0, 0.0, 0.0, 0.2, 0.2]),
        (runs(0.0, 0.0, explained=0.1), []),
        (runs(0.03, 0.03), [0.03, 0.03]),
    ],
    ids=[
        "well",
        "once",
        "one run",
        "twice",
        "half",
        "fewer than half",
        "explained",
        "no more than the least",
    ],
)
def test_a_part_that_is_slow_again_and_again_is_not_taken_for_healthy(
    points: Sequence[RoundLoss], losses: Sequence[float]
) -> None:
    assert spread_of(points).losses == losses


@pytest.mark.parametrize(
    ("made", "between", "within"),
    [
        (spread_of(), math.sqrt(1e-6), 0.002),
        (spread_of(runs(*[0.0] * 8)), math.sqrt(3e-6), 0.001),
        (spread_of(runs(*[0.0] * 8), floor=0.01), math.sqrt(75e-6), 0.005),
    ],
    ids=["nothing seen", "still", "another floor"],
)
def test_no_fabric_is_steadier_than_the_floor(made: HealthySpread, between: float, within: float) -> None:
    assert made.between == pytest.approx(between)
    assert made.within == pytest.approx(within)


@pytest.mark.parametrize(
    ("series", "between", "within"),
    [
        ([runs(a, a) for a in (-0.02, -0.01, 0.0, 0.01, 0.02)], 0.01479, 0.001),
        ([runs(0.0, a) for a in (0.01, 0.01, 0.01, 0.01)], 0.001, 0.0074),
        ([runs(0.0, a) for a in (0.01, 0.01, 0.01)], 0.001, 0.0074),
    ],
    ids=["for good", "from round to round", "too few to tell"],
)
def test_what_differs_for_good_is_told_from_what_differs_from_round_to_round(
    series: Sequence[Sequence[RoundLoss]], between: float, within: float
) -> None:
    made = spread_of(*series)
    assert made.between == pytest.approx(between, abs=5e-5)
    assert made.within == pytest.approx(within, abs=5e-5)
