"""Runs alone confirm a suspect or clear it; rounds of all, whose routes may be shared, name nobody."""

from dataclasses import replace
from pathlib import Path

import pytest

from proof.fleet.routes.cases import played
from proof.fleet.routes.network import Fabric, RoutedFleet, Routes, SlowNode, fair_shares
from tests.fleet.pairs.rounds import Loss, around, measured
from tests.rows import each
from wirewatch.core.pairs import PartKind, Way
from wirewatch.core.types import Health
from wirewatch_fleet.pairs.alone import stand
from wirewatch_fleet.pairs.document import pairs_document, read_rounds
from wirewatch_fleet.pairs.model import (
    DEFAULT_LIMITS,
    MeasuredRound,
    PairFleet,
    PairLimits,
    PairMember,
    PairRound,
    RoundPurpose,
)
from wirewatch_fleet.pairs.naming import Assessment, assess
from wirewatch_fleet.pairs.plan import PairsVerdict, next_step

NAMES = [f"n{n:02}" for n in range(16)]
FLEET = PairFleet(tuple(PairMember(name) for name in NAMES))
LEAFED = PairFleet(tuple(PairMember(name, f"leaf{n // 4}") for n, name in enumerate(NAMES)))
SMALL = Fabric(32, Routes.HASHED, uplinks=8, leaf=8, rails=2)
LIMITS = PairLimits(queue_pairs=4)


@each(
    ("pairs", "leafs", "alone"),
    [
        ([("a", "b")], {}, 1),
        ([("a", "b")], {"a": "x", "b": "x"}, 1),
        ([("a", "b"), ("c", "d")], {}, 0),
        ([("a", "b"), ("c", "d")], {"a": "x", "b": "x", "c": "y", "d": "z"}, 2),
        ([("a", "b"), ("c", "d")], {"a": "x", "b": "y", "c": "y", "d": "y"}, 0),
        ([("a", "b"), ("c", "d"), ("e", "f")], dict(zip("abcdef", "xxyzzw", strict=True)), 1),
        ([("a", "b"), ("c", "d")], {"a": "x", "b": "x", "c": "y"}, 0),
    ],
)
def test_a_pair_is_alone_when_no_other_can_share_its_routes(
    pairs: list[tuple[str, str]], leafs: dict[str, str], alone: int
) -> None:
    assert len(PairRound(1, RoundPurpose.CONFIRM, tuple(pairs)).alone(leafs)) == alone


@each(
    ("slow", "runs", "standing"),
    [
        (0, 0, "open"), (0, 1, "cleared"), (1, 1, "open"), (2, 2, "open"), (2, 3, "cleared"),
        (3, 3, "confirmed"), (3, 4, "confirmed"),
    ],
)  # fmt: skip
def test_one_whole_run_alone_weighs_more_than_two_slow_ones(slow: int, runs: int, standing: str) -> None:
    assert stand(slow, runs, DEFAULT_LIMITS).value == standing


def after(lost: Loss, *alone: tuple[str, str], fleet: PairFleet = FLEET) -> Assessment:
    """What is known after four rounds of all, and these pairs alone, one in a round."""
    rounds = [measured(n, around(NAMES, n), lost) for n in range(1, 5)]
    rounds += [measured(n, [pair], lost, RoundPurpose.ALONE) for n, pair in enumerate(alone, start=5)]
    return assess(fleet, rounds, DEFAULT_LIMITS)


def together(a: str, _b: str, number: int) -> float:
    """A node that loses half of what it sends, but only while all pairs talk."""
    return 0.5 if a == "n03" and number <= 4 else 0.0


def always(a: str, _b: str, _number: int) -> float:
    return 0.5 if a == "n03" else 0.0


THREE = (("n03", "n05"), ("n03", "n06"), ("n03", "n07"))


def named(known: Assessment) -> list[tuple[str, set[Way]]]:
    return [(one.place.name, {way.way for way in one.losses}) for one in known.named]


def test_a_node_is_named_only_once_it_was_slow_alone() -> None:
    """However slow it was in rounds of all: there others may have slowed it."""
    for runs in range(3):
        known = after(always, *THREE[:runs])
        assert (known.named, [one.place.name for one in known.unconfirmed]) == ((), ["n03"]), runs
    assert named(after(always, *THREE)) == [("n03", {Way.SENDS})]
    (loss,) = after(always, *THREE).named[0].losses
    assert (loss.alone_slow, loss.alone) == (3, 3)


def test_three_runs_alone_with_one_partner_show_a_pair_and_no_node() -> None:
    known = after(always, *[("n03", "n05")] * 3)
    assert known.named == ()
    assert [one.place.name for one in known.open] == ["n03"]


def test_a_node_that_is_whole_alone_is_neither_named_nor_open() -> None:
    known = after(together, *THREE[:1])
    assert (known.named, known.open) == ((), ())


def test_a_run_alone_with_a_partner_as_slow_says_nothing_of_the_node() -> None:
    def two(a: str, b: str, _number: int) -> float:
        return 0.5 if a == "n03" or b == "n05" else 0.0

    known = after(two, ("n03", "n05"), ("n03", "n06"), ("n03", "n07"), ("n08", "n05"), ("n09", "n05"))
    assert known.named == ()
    assert {one.place.name for one in known.unconfirmed} == {"n03", "n05"}


def test_a_pair_is_named_only_beside_others_of_its_leafs_that_are_whole_alone() -> None:
    """Else it is the way between the leafs that is slow, for all of them."""
    rounds = [measured(n, around(NAMES, n), lambda *_: 0.0) for n in range(1, 5)]
    pair = ("n01", "n09")
    for others, found in ((0.0, [pair]), (0.4, [])):

        def lost(a: str, b: str, _number: int, others: float = others) -> float:
            return 0.4 if (a, b) == pair else others if {a, b} <= {"n02", "n03", "n10", "n11"} else 0.0

        alone = [pair, ("n02", "n10"), pair, ("n03", "n11"), pair, pair]
        more = [measured(n, [one], lost, RoundPurpose.ALONE) for n, one in enumerate(alone, start=5)]
        known = assess(LEAFED, [*rounds, *more], DEFAULT_LIMITS)
        assert [(one.place.name, one.place.peer) for one in known.named] == found
        assert not [one for one in known.open if one.place.name == "n01"]


def verdict(fabric: Fabric, seed: str, *faults: SlowNode) -> tuple[PairsVerdict, list[MeasuredRound]]:
    return played(RoutedFleet(fabric, seed, faults), LIMITS)


@pytest.mark.parametrize(
    "fabric",
    [SMALL, replace(SMALL, routes=Routes.FIXED), replace(SMALL, known=False), replace(SMALL, uplinks=4)],
    ids=["anew", "fixed", "leafs not known", "2:1"],
)
def test_routes_that_collide_are_no_nodes_fault(fabric: Fabric) -> None:
    for seed in range(3):
        found, rounds = verdict(fabric, f"healthy {seed}")
        known = found.assessment
        assert not [one for one in known.named if one.place.kind in {PartKind.NODE, PartKind.PAIR}]
        assert found.health in {Health.DEGRADED, Health.UNKNOWN}, "collisions are not silence"
        lost = known.collisions[0]
        assert 0.05 < lost.loss < 0.7
        assert lost.alone >= 2
        assert lost.rate == pytest.approx(48e9, rel=0.1), "beside pairs that ran alone"
        assert [one.round.purpose for one in rounds].count(RoundPurpose.QUEUES) == 1
        assert lost.queue_pairs == 4
        for one in rounds:
            if one.round.purpose is RoundPurpose.ALONE:
                leafs = RoutedFleet(fabric, "").fleet.leafs()
                assert one.round.alone(leafs) == {*one.round.pairs}


@pytest.mark.parametrize(
    ("fabric", "fault"),
    [
        (SMALL, SlowNode(5, 0.6)),
        (SMALL, SlowNode(5, 0.65, 1)),
        (replace(SMALL, routes=Routes.FIXED), SlowNode(5, 0.6)),
        (replace(SMALL, routes=Routes.ADAPTIVE), SlowNode(5, 0.85, 1)),
        (replace(SMALL, routes=Routes.ADAPTIVE, known=False), SlowNode(5, 0.6)),
    ],
    ids=["node", "rail", "fixed", "adaptive", "adaptive, leafs not known"],
)
def test_a_slow_node_is_named_on_fabrics_whose_links_are_shared(fabric: Fabric, fault: SlowNode) -> None:
    found, _ = verdict(fabric, "faulty 1", fault)
    rail = "" if fault.rail is None else f"{fault.rail}"
    places = [one.place for one in found.assessment.named]
    assert [(one.name, one.rail) for one in places] == [("n0005", rail)]


def test_traffic_of_others_in_a_fifth_of_the_runs_names_nobody_and_is_seen_in_runs_alone() -> None:
    fabric = replace(SMALL, routes=Routes.ADAPTIVE, traffic=0.2)
    seen = 0
    for seed in range(3):
        found, _ = verdict(fabric, f"traffic {seed}")
        assert found.assessment.named == ()
        seen += sum(one.alone_slow for one in found.assessment.collisions)
    assert seen, "what no pair of ours does is there alone too"


@pytest.mark.parametrize("number", [15, 32, 46])
def test_pairs_that_traffic_slows_alone_too_are_not_named(number: int) -> None:
    """Each slow pair was held against the others with the suspected ones left out: that is, against none."""
    fabric = Fabric(32, Routes.FIXED, uplinks=8, leaf=8, loaded=1)
    found, _ = verdict(fabric, f"2027/loaded-32/{number}")
    assert found.assessment.named == ()
    assert any(one.traffic for one in found.assessment.collisions)


def test_a_leaf_of_two_whose_run_alone_is_whole_is_not_named() -> None:
    """Measured: eight nodes, whose flows the kernel hashed onto two uplinks between their leafs."""
    made = read_rounds(Path(__file__).with_name("hashed-uplinks.json"))
    found = pairs_document(made)
    assert found.named == []
    assert {one.across for one in found.collisions} == {True}
    before = pairs_document(replace(made, rounds=made.rounds[:-1]))
    assert [one.kind for one in before.named] == [PartKind.LEAF]


def test_where_nothing_is_shared_a_healthy_fleet_takes_no_more_rounds() -> None:
    found, rounds = verdict(replace(SMALL, routes=Routes.ADAPTIVE, traffic=0.0), "calm")
    assert (found.health, found.assessment.collisions) == (Health.OK, ())
    assert {one.round.purpose for one in rounds} <= {
        RoundPurpose.ACROSS, RoundPurpose.INSIDE, RoundPurpose.CONFIRM
    }  # fmt: skip


def test_rounds_alone_end_after_so_many_and_the_rest_stays_open() -> None:
    """Not even three of all ways to be sure are spent on more than was agreed."""
    fleet = RoutedFleet(replace(SMALL, known=False), "short", [SlowNode(n, 0.6) for n in range(4)])
    found, rounds = played(fleet, replace(LIMITS, quiet=2))
    assert [one.round.purpose for one in rounds].count(RoundPurpose.ALONE) == 2
    assert found.health in {Health.UNKNOWN, Health.FAILED}
    step = next_step(fleet.fleet, rounds, None, replace(LIMITS, quiet=2))
    assert isinstance(step, PairsVerdict)


def test_flows_share_links_fairly() -> None:
    """Two on one link have half; what one leaves of another link, the third has."""
    links = [[0, -1], [0, 1], [1, -1], [2, -1]]
    assert fair_shares(links, [1.0, 2.0, 0.7]) == pytest.approx([0.5, 0.5, 1.5, 0.7])
