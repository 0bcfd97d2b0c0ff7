"""Faults in drawn fleets: each named as it is, in a few rounds; and nobody in a healthy one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fleet.pairs.drawn import BOTH, DrawnFault, DrawnFleet, FabricNoise
from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch.core.types import Health
from wirewatch_fleet.pairs.model import DEFAULT_LIMITS, MeasuredRound, NamedPart, PairRun, SlowPlace
from wirewatch_fleet.pairs.naming import assess
from wirewatch_fleet.pairs.plan import PairsVerdict, PlannedRound, next_step

CALM = FabricNoise(transient=0.001, rail_transient=0.0002)
"""So small a fleet cannot tell much other traffic from faults; proof/fleet/simulation has large ones."""
BUSY = FabricNoise(transient=0.02)
"""So much other traffic that three slow rounds of a node are not enough."""
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


def test_a_node_is_confirmed_in_the_direction_in_which_its_leaf_is_well() -> None:
    """What its leaf loses towards others says nothing of what the node receives."""
    faults = (
        DrawnFault(SlowPlace(PartKind.LEAF, "leaf1"), SENDS, 0.2),
        DrawnFault(node("n0014"), RECEIVES, 0.2),
    )
    found = verdict(DrawnFleet(96, rails=4, leaf=12, faults=faults, noise=BUSY))
    assert named(found) == {one.place: one.ways for one in faults}
    assert found.health is Health.DEGRADED


def test_what_is_slower_than_its_leaf_is_confirmed_behind_it() -> None:
    faults = (
        DrawnFault(SlowPlace(PartKind.LEAF, "leaf1"), BOTH, 0.15),
        DrawnFault(node("n0014", rail="2"), BOTH, 0.3),
        DrawnFault(node("n0017"), SENDS, 0.3),
    )
    found = verdict(DrawnFleet(96, rails=4, leaf=12, faults=faults, noise=BUSY))
    assert named(found) == {one.place: one.ways for one in faults}


@pytest.mark.parametrize(("across", "ways"), [(BOTH, BOTH), (SENDS, SENDS), (SENDS, RECEIVES)])
def test_a_leaf_slow_towards_others_and_less_so_inside_is_named_twice(
    across: frozenset[Way], ways: frozenset[Way]
) -> None:
    faults = (
        DrawnFault(SlowPlace(PartKind.LEAF, "leaf1", across=True), across, 0.34),
        DrawnFault(SlowPlace(PartKind.LEAF, "leaf1"), ways, 0.12),
    )
    found = verdict(DrawnFleet(96, rails=4, leaf=12, faults=faults))
    assert named(found) == {one.place: one.ways for one in faults}


def test_what_one_direction_of_a_leaf_hides_inside_is_not_laid_on_the_other() -> None:
    whole, across = SlowPlace(PartKind.LEAF, "leaf1"), SlowPlace(PartKind.LEAF, "leaf1", across=True)
    faults = (DrawnFault(whole, SENDS, 0.57), DrawnFault(across, BOTH, 0.16))
    found = verdict(DrawnFleet(96, rails=4, leaf=12, faults=faults))
    assert named(found) == {whole: SENDS, across: RECEIVES}


def test_the_second_direction_of_a_rail_is_one_of_few_to_ask_about() -> None:
    """Towards other leafs it is hidden, so few rounds speak of it; the first direction took all of them."""
    faults = (
        DrawnFault(SlowPlace(PartKind.LEAF, "leaf1", across=True), SENDS, 0.33),
        DrawnFault(node("n0014", rail="2"), BOTH, 0.15),
    )
    found = verdict(DrawnFleet(96, rails=4, leaf=12, faults=faults, noise=replace(BUSY, transient=0.025)))
    assert named(found) == {one.place: one.ways for one in faults}


def test_a_node_that_is_slow_on_all_rails_is_not_named_by_one_of_them() -> None:
    """One run that is quicker by chance, on all rails but one, does not clear the others."""
    fleet = DrawnFleet(96, rails=4, leaf=12, faults=(DrawnFault(node("n0014"), RECEIVES, 0.05),))
    rounds: list[MeasuredRound] = []
    while isinstance(step := next_step(fleet.fleet, rounds), PlannedRound):
        ran = fleet.run(step.round)
        quick = [_quicker(run, "n0014", but="1") for run in ran.runs] if step.round.number == 2 else ran.runs
        rounds.append(MeasuredRound(ran.round, quick))
    assert named(step) == {node("n0014"): {Way.RECEIVES}}


def test_a_rail_slower_than_its_node_is_named_whatever_other_traffic_there_was() -> None:
    faults = (
        DrawnFault(SlowPlace(PartKind.RAIL, "1", rail="1"), frozenset({Way.TOGETHER}), 0.3),
        DrawnFault(node("n0014"), BOTH, 0.13),
        DrawnFault(node("n0014", rail="3"), SENDS, 0.3),
    )
    fleet = DrawnFleet(96, rails=4, leaf=12, faults=faults)
    rounds: list[MeasuredRound] = []
    while isinstance(step := next_step(fleet.fleet, rounds), PlannedRound):
        ran = fleet.run(step.round)
        slowed = [_slowed(run, "n0014") for run in ran.runs] if step.round.number == 3 else ran.runs
        rounds.append(MeasuredRound(ran.round, slowed))
    assert named(step) == {one.place: one.ways for one in faults}


def _slowed(run: PairRun, name: str) -> PairRun:
    """Other traffic takes a third of all that a node sends."""
    return _scaled(run, (0.67 if run.first == name else 1.0, 0.67 if run.second == name else 1.0))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_node_is_not_named_by_its_pair_with_one_partner(seed: int) -> None:
    """One run that is quicker by chance does not clear it, while it is slow with two others."""
    fault = DrawnFault(node("n0014"), RECEIVES, 0.05)
    fleet = DrawnFleet(96, rails=4, leaf=12, faults=(fault,), seed=seed)
    rounds: list[MeasuredRound] = []
    while isinstance(step := next_step(fleet.fleet, rounds), PlannedRound):
        ran = fleet.run(step.round)
        quick = [_quicker(run, "n0014", but="") for run in ran.runs] if step.round.number == 2 else ran.runs
        rounds.append(MeasuredRound(ran.round, quick))
    assert named(step) == {node("n0014"): {Way.RECEIVES}}


def _quicker(run: PairRun, name: str, but: str) -> PairRun:
    """The same, 2 % quicker towards this node on all rails but one."""
    return _scaled(run, (1.02 if run.second == name else 1.0, 1.02 if run.first == name else 1.0), but)


def _scaled(run: PairRun, by: tuple[float, float], but: str = "") -> PairRun:
    """The same at so many times the rates, on all rails but one."""
    rails = {
        rail: (two[0] * by[0], two[1] * by[1]) if rail != but and two[0] and two[1] else two
        for rail, two in run.rails.items()
    }
    return replace(run, rails=rails)


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


def _rounded(part: NamedPart) -> tuple[SlowPlace, list[tuple[Way, float]]]:
    return part.place, sorted((one.way, round(one.loss, 6)) for one in part.losses)
