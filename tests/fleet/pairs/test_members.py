"""What of a result concerns one node: named, known to be well, or neither."""

from dataclasses import replace
from functools import cache

from tests.fleet.pairs.drawn import BOTH, DrawnFault, DrawnFleet, FabricNoise
from wirewatch.core.pairs import FAILED_LOSS, PartKind, Way
from wirewatch.verdict.pairs import PairsPolicy, PairsResult
from wirewatch_fleet.pairs.document import (
    PairsDocument,
    concerned,
    member_of,
    pairs_document,
    result_for,
    rounds_document,
)
from wirewatch_fleet.pairs.model import DEFAULT_LIMITS, SlowPlace

CALM = FabricNoise(transient=0.001, rail_transient=0.0002)
NODE = DrawnFault(SlowPlace(PartKind.NODE, "n0003"), frozenset({Way.SENDS}), 0.2)
LEAF = DrawnFault(SlowPlace(PartKind.LEAF, "leaf1"), BOTH, 0.2)
RAIL = DrawnFault(SlowPlace(PartKind.RAIL, "1", rail="1"), frozenset({Way.TOGETHER}), 0.2)


@cache
def result(*faults: DrawnFault, rounds: int = 8) -> PairsDocument:
    fleet = DrawnFleet(32, rails=2, leaf=8, noise=CALM, faults=faults)
    _, every = fleet.verdict()
    return pairs_document(rounds_document(1764e6, fleet.fleet, every[:rounds]))


def said(found: PairsDocument, name: str) -> PairsResult | str:
    member = member_of(found, [name])
    assert member is not None
    return result_for(found, member)


def test_a_named_node_gets_what_is_slow_and_its_neighbour_that_it_is_well() -> None:
    found = result(NODE)
    mine, other = said(found, "n0003"), said(found, "n0004")
    assert isinstance(mine, PairsResult)
    assert isinstance(other, PairsResult)
    assert {(one.kind, way.way) for one in mine.parts for way in one.losses} == {(PartKind.NODE, Way.SENDS)}
    assert abs(mine.parts[0].losses[0].loss - 0.2) < 0.03
    assert (other.parts, other.judged, mine.judged) == ((), True, True)
    assert concerned(found) == ["n0003"]


def test_a_leaf_concerns_all_of_its_nodes() -> None:
    found = result(LEAF)
    assert concerned(found) == [f"n{n:04}" for n in range(8, 16)]
    mine = said(found, "n0008")
    assert isinstance(mine, PairsResult)
    assert {one.kind for one in mine.parts} == {PartKind.LEAF}


def test_a_rail_of_the_whole_fleet_concerns_no_node() -> None:
    found = result(RAIL)
    assert {one.kind for one in found.named} >= {PartKind.RAIL}
    assert concerned(found) == []


def test_silence_about_a_node_that_was_not_measured_enough_says_nothing() -> None:
    found = result()
    member = found.members[0]
    assert (
        result_for(replace(found, thin=[member.name]), member)
        == f"{member.name} has too few runs to be judged"
    )
    assert result_for(found, replace(member, answered=0, runs=3)) == f"{member.name} gave no answer in 3 runs"
    suspect = result(NODE).named[0]
    open_ = replace(found, suspects=[replace(suspect, members=[member.name])])
    assert (
        result_for(open_, member)
        == f"{member.name} is open: slow so far, but not beyond chance, or not measured alone"
    )


def test_a_named_member_is_reported_though_something_else_of_it_is_open() -> None:
    found = result(NODE)
    mine = said(replace(found, suspects=[replace(found.named[0], kind=PartKind.PAIR)]), "n0003")
    assert isinstance(mine, PairsResult)
    assert (len(mine.parts), mine.judged) == (len(found.named), False)


def test_a_node_of_a_clique_finds_itself_in_it() -> None:
    found = result(NODE)
    members = [
        replace(one, nodes=["tray0", "tray1"]) if one.name == "n0003" else one for one in found.members
    ]
    found = replace(found, members=members)
    mine = said(found, "tray1")
    assert isinstance(mine, PairsResult)
    assert (mine.member, mine.nodes) == ("n0003", 2)
    assert concerned(found) == ["tray0", "tray1"]


def test_the_first_name_that_took_part_is_the_node_s() -> None:
    found = result()
    member = member_of(found, ["", "elsewhere", "n0002", "n0001"])
    assert member is not None
    assert member.name == "n0002"
    assert member_of(found, ["elsewhere"]) is None


def test_the_limits_are_those_by_which_a_node_judges_what_it_hears() -> None:
    assert PairsPolicy().failed == DEFAULT_LIMITS.failed == FAILED_LOSS
