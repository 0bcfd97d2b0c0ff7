"""Which round comes next: of whom, with whom, and when there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fleet.pairs.drawn import BOTH, DrawnFault, DrawnFleet
from tests.fleet.pairs.rounds import measured
from tests.rows import each
from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch.core.types import Health
from wirewatch_fleet.pairs.model import (
    DEFAULT_LIMITS,
    MeasuredRound,
    NamedPart,
    PairFleet,
    PairMember,
    RoundPurpose,
    SlowPlace,
    WayLoss,
)
from wirewatch_fleet.pairs.naming import Assessment, MemberPace, TypicalRate
from wirewatch_fleet.pairs.plan import ConfirmingRound, Pair, PairsVerdict, PlannedRound, health, next_step


def planned(fleet: PairFleet, rounds: list[MeasuredRound], idle: set[str] | None = None) -> PlannedRound:
    step = next_step(fleet, rounds, idle)
    assert isinstance(step, PlannedRound)
    return step


def test_first_across_leafs_then_inside_then_across() -> None:
    fleet = DrawnFleet(32, rails=1, leaf=8)
    rounds: list[MeasuredRound] = []
    for purpose in (RoundPurpose.ACROSS, RoundPurpose.INSIDE, RoundPurpose.ACROSS):
        step = planned(fleet.fleet, rounds)
        assert step.round.purpose is purpose
        assert len(step.round.pairs) == 16
        rounds.append(fleet.run(step.round))


def test_without_leafs_at_random() -> None:
    assert planned(DrawnFleet(9, leaf=0).fleet, []).round.purpose is RoundPurpose.RANDOM


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 1000), size=st.integers(3, 33), lost=st.sampled_from([0.0, 0.3, 0.6]))
def test_every_round_is_of_idle_members_once_each_and_the_end_comes(
    seed: int, size: int, lost: float
) -> None:
    fleet = DrawnFleet(size, rails=2, leaf=8, seed=seed, lost=lost, faults=(
        DrawnFault(SlowPlace(PartKind.NODE, "n0001"), BOTH, 0.3),
    ))  # fmt: skip
    rounds: list[MeasuredRound] = []
    idle = set(fleet.names) - {"n0002"}
    while isinstance(step := next_step(fleet.fleet, rounds, idle, seed=seed), PlannedRound):
        names = [name for pair in step.round.pairs for name in pair]
        assert len(set(names)) == len(names)
        assert set(names) | set(step.round.resting) <= idle
        assert step == next_step(fleet.fleet, rounds, idle, seed=seed)
        rounds.append(fleet.run(step.round))
    assert len(rounds) <= 8


def test_later_rounds_are_of_suspects_with_partners_that_are_well() -> None:
    fleet = DrawnFleet(40, rails=2, leaf=10, faults=(
        DrawnFault(SlowPlace(PartKind.NODE, "n0003"), BOTH, 0.06),
        DrawnFault(SlowPlace(PartKind.NODE, "n0004"), BOTH, 0.06),
    ), lost=0.1)  # fmt: skip
    rounds: list[MeasuredRound] = []
    while isinstance(step := next_step(fleet.fleet, rounds), PlannedRound):
        if step.assessment is not None:
            suspects = {one.place.name for one in step.assessment.suspects if one.place.kind is PartKind.NODE}
            for a, b in step.round.pairs:
                assert not {a, b} <= suspects
            assert len(step.round.pairs) < 20
        rounds.append(fleet.run(step.round))
    assert isinstance(step, PairsVerdict)


def test_no_idle_node_ends_it_at_once() -> None:
    step = next_step(DrawnFleet(8).fleet, [], set())
    assert isinstance(step, PairsVerdict)
    assert len(step.assessment.thin) == 8


def test_a_clique_is_one_member() -> None:
    cliques = tuple(
        PairMember(f"rack{n}", "", tuple(f"rack{n}-{tray}" for tray in range(18))) for n in range(4)
    )
    assert {name for pair in planned(PairFleet(cliques), []).round.pairs for name in pair} == {
        "rack0", "rack1", "rack2", "rack3",
    }  # fmt: skip


def leafed(*groups: str) -> PairFleet:
    """Members by the first letter of their names; of "?" no leaf is known."""
    return PairFleet(tuple(
        PairMember(f"{one[0]}{n}", one[0].strip("?")) for one in groups for n in range(int(one[1:]))
    ))  # fmt: skip


@each(
    ("fleet", "idle", "purpose"),
    [
        (leafed("a4", "b4"), "ab", RoundPurpose.ACROSS),
        (leafed("a4", "b4"), "a", RoundPurpose.RANDOM),
        (leafed("a8"), "a", RoundPurpose.RANDOM),
        (leafed("a4", "?4"), "a?", RoundPurpose.RANDOM),
        (leafed("?8"), "?", RoundPurpose.RANDOM),
    ],
    ids=["two leafs", "one is idle", "one", "another is not known", "none is known"],
)
def test_a_round_is_across_leafs_where_idle_members_are_of_two(
    fleet: PairFleet, idle: str, purpose: RoundPurpose
) -> None:
    names = {one.name for one in fleet.members if one.name[0] in idle}
    assert planned(fleet, [], names).round.purpose is purpose


def test_no_two_meet_twice_across_leafs_while_there_are_others() -> None:
    fleet = leafed("a2", "b2")
    for seed in range(20):
        rounds: list[MeasuredRound] = []
        for _ in range(3):
            step = next_step(fleet, rounds, None, seed=seed)
            assert isinstance(step, PlannedRound)
            rounds.append(measured(step.round.number, step.round.pairs, lambda _a, _b, _n: 0.0))
        pairs = [frozenset(pair) for one in rounds for pair in one.round.pairs]
        assert len(set(pairs)) == 6


def test_a_round_has_the_number_after_the_last() -> None:
    fleet = DrawnFleet(8, rails=1, leaf=0)
    first = measured(7, [("n0000", "n0001")], lambda _a, _b, _n: 0.0)
    assert (
        planned(fleet.fleet, [first, replace(first, round=replace(first.round, number=3))]).round.number == 8
    )


NAMES = [f"n{n:02}" for n in range(12)]
NOBODY = Assessment((), (), tuple(MemberPace(name, 3, 3, 0.0, 0.0) for name in NAMES), (), (), (), 0.0, 0.0)
"""Nothing is named, and nothing open."""


def part(place: SlowPlace, ways: Mapping[Way, float]) -> NamedPart:
    losses = tuple(WayLoss(way, loss, loss, loss, 3, 3, 3, 9.0) for way, loss in ways.items())
    return NamedPart(place, Measure.SEND, losses)


def slow(name: str, loss: float = 0.2, way: Way = Way.SENDS, rail: str = "") -> NamedPart:
    return part(SlowPlace(PartKind.NODE, name, rail=rail), {way: loss})


def leaf(name: str, loss: float = 0.2, way: Way = Way.SENDS, *, across: bool = False) -> NamedPart:
    return part(SlowPlace(PartKind.LEAF, name, across=across), {way: loss})


def confirming(
    known: Assessment, leafs: Mapping[str, str] = {}, there: Sequence[str] = NAMES,
    before: Sequence[Pair] = (), seed: int = 1,
) -> tuple[Pair, ...]:  # fmt: skip
    return ConfirmingRound(known, leafs, frozenset(there), before, Random(seed)).pairs()  # noqa: S311


def partners(known: Assessment, name: str, leafs: Mapping[str, str] = {}) -> set[str]:
    """Whom a suspect may get, by many seeds."""
    made = [pair for seed in range(60) for pair in confirming(known, leafs, seed=seed) if name in pair]
    return {one for pair in made for one in pair} - {name}


def test_where_nothing_is_open_no_round_is_needed() -> None:
    assert confirming(NOBODY) == ()


OTHERS = set(NAMES) - {"n00"}


@each(
    ("known", "may"),
    [
        ({}, OTHERS),
        ({"suspects": (slow("n00"), slow("n01"))}, OTHERS - {"n01"}),
        ({"named": (slow("n01"),)}, OTHERS - {"n01"}),
        ({"named": (part(SlowPlace(PartKind.PAIR, "n01", "n02"), {Way.SENDS: 0.3}),)}, OTHERS),
        ({"thin": ("n01",)}, OTHERS - {"n01"}),
        ({"silent": ("n01",)}, OTHERS - {"n01"}),
        ({"members": NOBODY.members[:4]}, {"n01", "n02", "n03"}),
    ],
    ids=["all", "a suspect", "slow", "slow as a pair", "little known", "silent", "no member"],
)
def test_a_suspect_runs_with_a_member_that_nothing_speaks_against(
    known: Mapping[str, tuple[object, ...]], may: set[str]
) -> None:
    changed: dict[str, object] = {"suspects": (slow("n00"),), **known}
    assert partners(replace(NOBODY, **changed), "n00") == may  # type: ignore[arg-type]


def test_only_who_is_there_runs() -> None:
    known = replace(NOBODY, suspects=(slow("n00"), slow("n01")), thin=("n02", "n03", "n04"))
    there = [name for name in NAMES if name not in {"n00", "n02", "n11"}]
    for seed in range(20):
        pairs = confirming(known, there=there, seed=seed)
        names = [name for pair in pairs for name in pair]
        assert set(names) <= set(there)
        assert {"n01", "n03", "n04"} <= set(names)
        assert len(names) == len(set(names)) == 6


def test_members_of_a_suspected_leaf_are_no_partners() -> None:
    leafs = {name: "x" if name < "n06" else "y" for name in NAMES}
    known = replace(NOBODY, suspects=(leaf("x"),))
    pairs = confirming(known, leafs)
    assert {frozenset(leafs[one] for one in pair) for pair in pairs} == {frozenset("xy")}
    assert len(pairs) == 6


def test_of_a_leaf_eight_members_are_asked_about_by_chance_of_those_that_are_there() -> None:
    names = [f"a{n:02}" for n in range(30)] + [f"b{n:02}" for n in range(30)]
    leafs = {name: name[0] for name in names}
    known = replace(
        NOBODY, suspects=(leaf("a"),), members=tuple(MemberPace(name, 3, 3, 0.0, 0.0) for name in names)
    )
    asked = [
        {name for pair in confirming(known, leafs, names[12:], seed=seed) for name in pair if name[0] == "a"}
        for seed in range(3)
    ]
    assert [len(one) for one in asked] == [8, 8, 8]
    assert len(set(map(frozenset, asked))) == 3


@pytest.mark.parametrize(("there", "pairs"), [(NAMES, 6), (NAMES[:6], 3), (NAMES[:1], 0)])
def test_of_a_rail_some_members_run_with_others_and_none_with_itself(
    there: Sequence[str], pairs: int
) -> None:
    """Eight are asked about at most; whom they have met before comes last."""
    rail = part(SlowPlace(PartKind.RAIL, "1", rail="1"), {Way.TOGETHER: 0.1})
    met = [(a, b) for a in NAMES for b in NAMES if a < b]
    made = confirming(replace(NOBODY, suspects=(rail,)), there=there, before=met)
    assert len(made) == pairs
    assert all(a != b for a, b in made)


def test_a_suspected_pair_runs_again() -> None:
    both = part(SlowPlace(PartKind.PAIR, "n03", "n04"), {Way.SENDS: 0.1})
    other = part(SlowPlace(PartKind.PAIR, "n04", "n05"), {Way.SENDS: 0.1})
    assert confirming(replace(NOBODY, suspects=(both, other))) == (("n03", "n04"),)


def test_a_partner_that_was_not_met_comes_first() -> None:
    known = replace(NOBODY, suspects=(slow("n00"),))
    met = [("n00", name) for name in NAMES[1:] if name != "n07"]
    assert {confirming(known, before=met, seed=seed) for seed in range(9)} == {(("n00", "n07"),)}


@pytest.mark.parametrize(
    ("named", "suspect", "may"),
    [
        ((leaf("x"),), slow("n06", 0.2), set("xy")),
        ((leaf("x", way=Way.RECEIVES),), slow("n06", 0.2), {"y"}),
        ((leaf("x", way=Way.RECEIVES),), slow("n06", 0.3), {"y"}),
        ((leaf("y"), leaf("x", way=Way.RECEIVES)), slow("n06", 0.2), set()),
        ((leaf("y"),), slow("n06", 0.2), set()),
        ((leaf("y"),), slow("n06", 0.3), set("xy")),
        ((leaf("y"),), slow("n06", 0.2, Way.RECEIVES), {"x"}),
        ((leaf("y", across=True),), slow("n06", 0.2), {"y"}),
        ((slow("n06", 0.3, Way.RECEIVES),), slow("n06", 0.2), set("xy")),
        ((slow("n06", 0.3, rail="1"),), slow("n06", 0.2, rail="1"), set("xy")),
    ],
    ids=["beside", "towards it", "no slower", "both", "around it", "slower than its leaf", "the other way",
         "the way out", "its own other way", "its own rail"],
)  # fmt: skip
def test_a_partner_is_one_towards_whom_nothing_that_is_named_hides_what_is_asked(
    named: tuple[NamedPart, ...], suspect: NamedPart, may: set[str]
) -> None:
    """n06 is in leaf y with six others, and x has as many; a partner with nothing in the way comes first."""
    leafs = {name: "x" if name < "n06" else "y" for name in NAMES}
    known = replace(NOBODY, named=named, suspects=(suspect,))
    good = [one for one in NOBODY.members if one.name != "n06"]
    found = partners(replace(known, members=tuple(good)), "n06", leafs)
    assert {leafs[one] for one in found} == may


def test_of_two_directions_a_run_tells_what_is_hidden_in_one_alone() -> None:
    leafs = {name: "x" if name < "n06" else "y" for name in NAMES}
    both = part(SlowPlace(PartKind.NODE, "n06"), {Way.SENDS: 0.2, Way.RECEIVES: 0.2})
    one_way = replace(NOBODY, named=(leaf("y", 0.3),), suspects=(both,))
    assert partners(one_way, "n06", leafs)
    both_ways = replace(one_way, named=(leaf("y", 0.3), leaf("y", 0.3, Way.RECEIVES)))
    assert not partners(both_ways, "n06", leafs)


def test_a_partner_of_its_leaf_is_found_among_many() -> None:
    """The way out of its leaf is slow, and nearly all members are elsewhere."""
    names = [f"n{n:03}" for n in range(400)]
    leafs = {name: "y" if name < "n003" else "x" for name in names}
    known = replace(
        NOBODY, named=(leaf("y", across=True),), suspects=(slow("n000"),),
        members=tuple(MemberPace(name, 3, 3, 0.0, 0.0) for name in names),
    )  # fmt: skip
    found = {pair for seed in range(9) for pair in confirming(known, leafs, names, seed=seed)}
    assert {other for _, other in found} <= {"n001", "n002"}


def test_no_more_than_some_partners_are_looked_at() -> None:
    """Of 24 that were drawn all have been met, so a member that was not is not found behind them."""
    names = [f"n{n:03}" for n in range(400)]
    known = replace(
        NOBODY, suspects=(slow("n000"),), members=tuple(MemberPace(one, 3, 3, 0.0, 0.0) for one in names)
    )
    new = set(names[1:21])
    met = [("n000", name) for name in names[21:]]
    found = [confirming(known, {}, names, met, seed)[0][1] in new for seed in range(60)]
    assert 0.5 < sum(found) / len(found) < 0.85


@pytest.mark.parametrize("seed", range(4))
def test_members_without_a_good_partner_run_with_each_other_inside_their_leaf_first(seed: int) -> None:
    leafs = {name: "x" if name < "n06" else "y" for name in NAMES}
    pairs = confirming(replace(NOBODY, thin=tuple(NAMES)), leafs, seed=seed)
    assert {name for pair in pairs for name in pair} == set(NAMES)
    assert all(leafs[a] == leafs[b] for a, b in pairs)


@each("seed", range(8))
def test_who_has_a_good_partner_is_in_nobodys_way(seed: int) -> None:
    """One of three gets the only good one; the other two run with each other."""
    known = replace(NOBODY, thin=("n01", "n02", "n03"), members=NOBODY.members[:4])
    pairs = confirming(known, there=NAMES[:4], seed=seed)
    assert {name for pair in pairs for name in pair} == set(NAMES[:4])


TYPICAL = (TypicalRate(Measure.SEND, None, 1e9),)


@each(
    ("known", "said"),
    [
        ({}, Health.OK),
        ({"typical": ()}, Health.UNKNOWN),
        ({"suspects": (slow("a"),)}, Health.UNKNOWN),
        ({"thin": ("a",)}, Health.UNKNOWN),
        ({"silent": ("a",)}, Health.UNKNOWN),
        ({"named": (slow("a", 0.29),)}, Health.DEGRADED),
        ({"named": (slow("a", 0.29),), "thin": ("a",)}, Health.UNKNOWN),
        ({"named": (slow("a", 0.3), slow("b", 0.1)), "thin": ("a",)}, Health.FAILED),
    ],
)
def test_what_is_open_is_not_known_unless_something_has_failed(
    known: Mapping[str, tuple[object, ...]], said: Health
) -> None:
    made = replace(NOBODY, **{"typical": TYPICAL, **known})  # type: ignore[arg-type]
    assert health(made, DEFAULT_LIMITS) is said
