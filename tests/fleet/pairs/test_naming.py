"""Faults in drawn fleets: each named as it is, in a few rounds; and nobody in a healthy one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fleet.pairs.drawn import BOTH, DrawnFault, DrawnFleet, FabricNoise
from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch.core.types import Health
from wirewatch.fleet.pairs.model import DEFAULT_LIMITS, MeasuredRound, PairRun, SlowPart, SlowPlace
from wirewatch.fleet.pairs.naming import assess
from wirewatch.fleet.pairs.plan import PairsVerdict, PlannedRound, next_step

CALM = FabricNoise(transient=0.001, rail_transient=0.0002)
"""So small a fleet cannot tell much other traffic from faults; docs/pairs-simulation.md has large ones."""
SENDS = frozenset({Way.SENDS})
RECEIVES = frozenset({Way.RECEIVES})


def node(name: str, rail: str = "") -> SlowPlace:
    return SlowPlace(PartKind.NODE, name, rail=rail)


def verdict(fleet: DrawnFleet) -> PairsVerdict:
    return fleet.verdict()[0]


def named(found: PairsVerdict) -> dict[SlowPlace, set[Way]]:
    return {part.place: {one.way for one in part.losses} for part in found.assessment.named}


def first_pair(fleet: DrawnFleet, number: int = 0) -> tuple[str, str]:
    step = next_step(fleet.fleet, [], seed=0)
    assert isinstance(step, PlannedRound)
    return step.round.pairs[number]


@pytest.mark.parametrize(
    ("place", "ways"),
    [
        (node("n0003"), BOTH),
        (node("n0003"), SENDS),
        (node("n0003"), RECEIVES),
        (node("n0003", rail="1"), BOTH),
        (node("n0003", rail="1"), RECEIVES),
        (SlowPlace(PartKind.LEAF, "leaf1"), BOTH),
        (SlowPlace(PartKind.LEAF, "leaf1", across=True), BOTH),
        (SlowPlace(PartKind.LEAF, "leaf1", across=True), SENDS),
        (SlowPlace(PartKind.LEAF, "leaf1", rail="2", across=True), BOTH),
        (SlowPlace(PartKind.RAIL, "1", rail="1"), frozenset({Way.TOGETHER})),
    ],
)  # fmt: skip
def test_one_fault_is_named_as_it_is(place: SlowPlace, ways: frozenset[Way]) -> None:
    found = verdict(DrawnFleet(32, rails=3, leaf=8, noise=CALM, faults=(DrawnFault(place, ways, 0.2),)))
    assert named(found) == {place: ways}
    assert found.health is Health.DEGRADED
    for one in found.assessment.named[0].losses:
        assert one.low - 0.01 < 0.2 < one.high + 0.01
    assert found.rounds <= 8


def test_a_pair_is_named_where_both_ends_are_well() -> None:
    a, b = first_pair(DrawnFleet(32, rails=3, leaf=8, noise=CALM))
    place = SlowPlace(PartKind.PAIR, a, b)
    found = verdict(DrawnFleet(32, rails=3, leaf=8, noise=CALM, faults=(DrawnFault(place, SENDS, 0.2),)))
    assert list(named(found)) == [place]


def test_faults_that_overlap_are_each_named() -> None:
    faults = (
        DrawnFault(SlowPlace(PartKind.LEAF, "leaf1", across=True), BOTH, 0.2),
        DrawnFault(node("n0009"), BOTH, 0.1),
        DrawnFault(node("n0010"), SENDS, 0.5),
        DrawnFault(SlowPlace(PartKind.RAIL, "2", rail="2"), frozenset({Way.TOGETHER}), 0.15),
    )
    found = verdict(DrawnFleet(32, rails=3, leaf=8, noise=CALM, faults=faults))
    places = named(found)
    assert {one.place for one in faults} <= set(places)
    assert places[node("n0010")] == {Way.SENDS}
    assert found.health is Health.FAILED


def test_without_rails_and_leafs_a_direction_is_named_all_the_same() -> None:
    fleet = DrawnFleet(20, rails=1, leaf=0, noise=CALM, faults=(DrawnFault(node("n0007"), RECEIVES, 0.3),))
    assert named(verdict(fleet)) == {node("n0007"): {Way.RECEIVES}}


def test_four_nodes_are_enough() -> None:
    fleet = DrawnFleet(
        4, rails=1, leaf=0, noise=FabricNoise(transient=0), faults=(DrawnFault(node("n0002"), BOTH, 0.4),)
    )
    assert named(verdict(fleet)) == {node("n0002"): BOTH}


def test_where_only_collectives_are_measured_a_node_is_named_without_a_direction() -> None:
    fleet = DrawnFleet(40, rails=1, leaf=0, noise=CALM, faults=(DrawnFault(node("n0007"), BOTH, 0.3),))
    _, rounds = fleet.verdict()
    alone = [
        MeasuredRound(one.round, [replace(run, sends=None, receives=None) for run in one.runs])
        for one in rounds
    ]
    known = assess(fleet.fleet, alone, DEFAULT_LIMITS)
    assert [(part.place, part.measure) for part in known.named] == [(node("n0007"), Measure.ALL_REDUCE)]
    assert {one.way for one in known.named[0].losses} == {Way.TOGETHER}


def test_slow_in_collectives_alone_is_told_apart() -> None:
    """Sends are as fast as they should be: only the all_reduce, which both ends compute, is not."""
    fleet = DrawnFleet(32, rails=3, leaf=8, noise=CALM)
    rounds: list[MeasuredRound] = []
    while isinstance(step := next_step(fleet.fleet, rounds), PlannedRound):
        ran = fleet.run(step.round)
        rounds.append(MeasuredRound(ran.round, [_slower_together(run, "n0005") for run in ran.runs]))
    places = [(part.place, part.measure) for part in step.assessment.named]
    assert places == [(node("n0005"), Measure.ALL_REDUCE)]


def _slower_together(run: PairRun, name: str) -> PairRun:
    if name not in {run.first, run.second} or run.all_reduce is None:
        return run
    return replace(run, all_reduce=run.all_reduce * 0.6)


@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(2, 40), leaf=st.sampled_from([0, 8]))
def test_no_node_is_named_in_a_healthy_fleet(seed: int, size: int, leaf: int) -> None:
    found = verdict(DrawnFleet(size, rails=2, leaf=leaf, seed=seed))
    assert not found.assessment.named
    assert found.rounds <= 8


def test_half_of_the_answers_are_enough_for_what_is_clear() -> None:
    fleet = DrawnFleet(
        32, rails=3, leaf=8, lost=0.5, noise=CALM, faults=(DrawnFault(node("n0003"), BOTH, 0.4),)
    )
    places = named(verdict(fleet))
    assert set(places) <= {node("n0003")}
    assert places


def test_who_never_answers_is_silent_and_not_slow() -> None:
    found = verdict(DrawnFleet(32, rails=2, leaf=8, noise=CALM, gone={"n0004": 1}))
    assert found.assessment.silent == ("n0004",)
    assert not found.assessment.named
    assert found.health is Health.UNKNOWN


def test_who_goes_missing_later_is_no_fault_of_its_partners() -> None:
    found = verdict(DrawnFleet(32, rails=2, leaf=8, noise=CALM, gone={"n0004": 2}))
    assert not found.assessment.named
    assert "n0004" in found.assessment.thin


def test_two_members_cannot_be_told_apart() -> None:
    found = verdict(
        DrawnFleet(2, rails=1, leaf=0, noise=CALM, faults=(DrawnFault(node("n0001"), SENDS, 0.5),))
    )
    assert not found.assessment.named


def test_a_loss_under_the_least_is_no_fault() -> None:
    found = verdict(
        DrawnFleet(32, rails=3, leaf=8, noise=CALM, faults=(DrawnFault(node("n0003"), BOTH, 0.01),))
    )
    assert not found.assessment.named


@settings(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 1000))
def test_nothing_hangs_on_the_order_of_runs_or_members(seed: int) -> None:
    fleet = DrawnFleet(
        32, rails=2, leaf=8, seed=seed, noise=CALM, faults=(DrawnFault(node("n0003"), SENDS, 0.3),)
    )
    _, rounds = fleet.verdict()
    turned = [MeasuredRound(one.round, list(reversed(one.runs))) for one in reversed(rounds)]
    one, other = (assess(fleet.fleet, some, DEFAULT_LIMITS) for some in (rounds, turned))
    assert list(map(_rounded, one.named)) == list(map(_rounded, other.named))


def _rounded(part: SlowPart) -> tuple[SlowPlace, list[tuple[Way, float]]]:
    return part.place, sorted((one.way, round(one.loss, 6)) for one in part.losses)
