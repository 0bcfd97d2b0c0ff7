"""What pairs of nodes told: which findings it makes, what clears it, and when it is too old."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.rows import each
from tests.support import Node
from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch.core.types import Expect, Health, Ok, Subject
from wirewatch.verdict.pairs import (
    MOST_PARTS,
    HeldResult,
    PairsLoss,
    PairsMemory,
    PairsOptions,
    PairsPart,
    PairsPolicy,
    PairsResult,
    after,
    judge,
    pairs_component,
    samples,
    unfit,
    without,
)

AT, HOUR = 1764e6, 3600.0
POLICY = PairsPolicy()
RAILS = ((Measure.RAILS, True), (Measure.RAILS, False), (Measure.SEND, True), (Measure.ALL_REDUCE, True))


def loss(share: float = 0.2, way: Way = Way.SENDS) -> PairsLoss:
    return PairsLoss(way, share, share - 0.01, share + 0.01, 3, 4, 3)


def part(kind: PartKind = PartKind.NODE, *losses: PairsLoss, peer: str = "", rail: str = "") -> PairsPart:
    name = {PartKind.LEAF: "leaf7"}.get(kind, "n1")
    some = losses or (loss(),)
    return PairsPart(kind, name, peer, rail, across=False, measure=Measure.RAILS, losses=some, at=AT)


def told(*parts: PairsPart, at: float = AT, judged: bool = True, **more: object) -> PairsResult:
    known = PairsResult(at, "n1", 1, judged, parts, RAILS, ("n2", "n3"))
    return replace(known, **more)  # type: ignore[arg-type]


def found(
    result: PairsResult, now: float = AT + 60, policy: PairsPolicy = POLICY
) -> dict[tuple[str, Subject], Health]:
    _, findings = judge(PairsMemory(), Ok(HeldResult(result), now, 0.0), policy, Expect())
    return {(one.rule, one.subject): one.health for one in findings}


NODE, ROUTE = ("pairs.slow", Subject()), ("pairs.route", Subject())


@pytest.mark.parametrize(
    ("share", "health"), [(0.05, Health.DEGRADED), (0.299, Health.DEGRADED), (0.3, Health.FAILED)]
)
def test_the_loss_decides_how_bad_it_is(share: float, health: Health) -> None:
    assert found(told(part(PartKind.NODE, loss(0.04), loss(share, Way.RECEIVES)))) == {NODE: health}


@pytest.mark.parametrize("kind", [PartKind.PAIR, PartKind.LEAF])
def test_what_is_not_this_node_s_fault_is_degraded_whatever_it_lost(kind: PartKind) -> None:
    assert found(told(part(kind, loss(0.9), peer="n2"))) == {ROUTE: Health.DEGRADED}


def test_in_a_clique_it_is_not_known_which_node_is_slow() -> None:
    assert found(told(part(PartKind.NODE, loss(0.9)), nodes=18)) == {NODE: Health.DEGRADED}


def test_each_rail_is_a_part_of_its_own_and_several_of_one_part_are_one_finding() -> None:
    result = told(
        part(rail="mlx5_3"),
        part(PartKind.PAIR, peer="n2"),
        part(PartKind.PAIR, peer="n3"),
        part(PartKind.LEAF),
    )
    assert found(result) == {
        ("pairs.slow", Subject(device="mlx5_3")): Health.DEGRADED, ROUTE: Health.DEGRADED,
    }  # fmt: skip
    _, findings = judge(PairsMemory(), Ok(HeldResult(result), AT, 0.0), POLICY, Expect())
    route = next(one for one in findings if one.rule == "pairs.route")
    assert (
        "n1 to n2: 20.0% slower (19.0% to 21.0%) in 3 of 4 runs with 3 partners, by sends on"
        in route.evidence
    )
    assert "n1 to n3: " in route.evidence
    assert "leaf leaf7: sends 20.0% slower" in route.evidence
    assert "2025-11-24 16:00:00Z" in route.evidence


def test_a_rail_by_its_number_is_called_a_rail() -> None:
    assert found(told(part(rail="3"))) == {("pairs.slow", Subject(device="rail3")): Health.DEGRADED}


def test_a_finding_is_an_event_of_when_it_was_measured() -> None:
    _, (one,) = judge(PairsMemory(), Ok(HeldResult(told(part())), AT + HOUR, 0.0), POLICY, Expect())
    assert (one.last, one.stamp) == (AT, AT)


def test_of_several_parts_the_worst_loss_and_the_newest_measurement_count() -> None:
    parts = (part(PartKind.NODE, loss(0.2)), replace(part(PartKind.NODE, loss(0.5)), at=AT - HOUR))
    for some in (parts, parts[::-1]):
        _, (one,) = judge(PairsMemory(), Ok(HeldResult(told(*some)), AT, 0.0), POLICY, Expect())
        assert (one.health, one.last, one.stamp) == (Health.FAILED, AT, AT)


def test_a_result_is_believed_for_a_day() -> None:
    result = told(part(PartKind.NODE, loss(0.5)))
    assert found(result, AT + 24 * HOUR - 1) == {NODE: Health.FAILED}
    assert found(result, AT + 24 * HOUR) == {}
    assert found(result, AT + 2 * HOUR, PairsPolicy(lasts=HOUR)) == {}
    assert found(result, AT - HOUR) == {NODE: Health.FAILED}


def test_a_newer_result_that_names_nothing_clears_what_it_measured() -> None:
    known = told(part(), part(PartKind.LEAF))
    assert after(known, told(at=AT + HOUR)).parts == ()


def test_a_result_clears_nothing_that_it_did_not_measure() -> None:
    known = told(part(rail="mlx5_3"))
    new = told(at=AT + HOUR, measured=((Measure.ALL_REDUCE, True),))
    assert after(known, new).parts == known.parts


def test_a_result_in_which_the_node_is_not_judged_only_adds() -> None:
    known, new = told(part(rail="mlx5_3")), told(part(), at=AT + HOUR, judged=False)
    made = after(known, new)
    assert {(one.rail, one.at) for one in made.parts} == {("mlx5_3", AT), ("", AT + HOUR)}


@pytest.mark.parametrize(("partners", "stays"), [(("n2", "n9"), False), (("n8", "n9"), True), ((), True)])
def test_a_pair_is_cleared_by_a_run_of_that_pair_alone(partners: tuple[str, ...], stays: bool) -> None:  # noqa: FBT001
    known = told(part(PartKind.PAIR, peer="n2"))
    assert bool(after(known, told(at=AT + HOUR, partners=partners)).parts) is stays


def test_uplinks_are_cleared_by_runs_across_leafs_alone() -> None:
    known = told(replace(part(PartKind.LEAF), across=True))
    inside = told(at=AT + HOUR, measured=((Measure.RAILS, False),))
    assert after(known, inside).parts == known.parts
    assert after(known, told(at=AT + HOUR)).parts == ()
    assert after(known, replace(inside, measured=((Measure.RAILS, None),))).parts == ()
    assert after(told(part(PartKind.LEAF)), inside).parts == ()


def test_what_is_named_again_is_of_the_newer_result() -> None:
    made = after(told(part()), told(part(PartKind.NODE, loss(0.4)), at=AT + HOUR))
    (one,) = made.parts
    assert (one.at, one.losses[0].loss) == (AT + HOUR, 0.4)
    unjudged = told(part(PartKind.NODE, loss(0.4)), at=AT + HOUR, judged=False)
    assert after(told(part()), unjudged).parts == made.parts


@pytest.mark.parametrize(("nodes", "words"), [(1, ""), (2, ", a clique of 2 nodes that ran as one")])
def test_a_clique_is_said_to_be_one(nodes: int, words: str) -> None:
    _, (one,) = judge(PairsMemory(), Ok(HeldResult(told(part(), nodes=nodes)), AT, 0.0), POLICY, Expect())
    assert one.evidence.startswith(f"as n1{words}: sends 20.0% slower")


def test_repaired_is_what_has_that_rule_and_place() -> None:
    known = told(part(), part(rail="mlx5_3"), part(PartKind.PAIR, peer="n2"))
    assert without(known, NODE).parts == known.parts[1:]
    assert without(known, ROUTE).parts == known.parts[:2]


def test_a_lost_file_is_not_healthy() -> None:
    _, (one,) = judge(PairsMemory(), Ok(HeldResult(None, "pairs.json: torn"), AT, 0.0), POLICY, Expect())
    assert (one.rule, one.health) == ("pairs.kept", Health.UNKNOWN)


def test_series_are_bounded_by_kinds_and_ways_and_name_no_other_node() -> None:
    many = (
        part(PartKind.PAIR, *(loss(0.1 + n / 100, way) for way in Way), peer=f"n{n}")
        for n in range(MOST_PARTS)
    )
    result = told(*many)
    memory, _ = judge(PairsMemory(), Ok(HeldResult(result), AT, 0.0), POLICY, Expect())
    made = list(samples(HeldResult(result), memory))
    assert {one.labels for one in made} == {("pair", "sends"), ("pair", "receives"), ("pair", "together"), ()}
    assert max(one.value for one in made if one.labels) == pytest.approx(0.41)
    assert made[-1].value == AT


def test_a_node_without_a_result_takes_no_part() -> None:
    node = Node("demo-dgx-h200")
    node.collectors["pairs"] = pairs_component(PairsOptions(), POLICY)
    node.poll("pairs")
    component = node.state.components["pairs"]
    assert (component.health, component.applicable) == (None, False)
    assert node.series("pairs_result_timestamp_seconds") == []


@each(
    ("policy", "wrong"),
    [
        (PairsPolicy(failed=0.0), "must be above 0 and at most 1: 'failed'"),
        (PairsPolicy(failed=float("nan")), "must be above 0 and at most 1: 'failed'"),
        (PairsPolicy(lasts=0.0), "must be above 0: 'lasts'"),
        (PairsPolicy(lasts=float("inf")), "must be above 0: 'lasts'"),
        (PairsPolicy(), ""),
    ],
)
def test_what_cannot_be_meant(policy: PairsPolicy, wrong: str) -> None:
    assert policy.wrong() == wrong


def test_names_that_would_command_a_terminal_and_rails_of_the_fleet_are_refused() -> None:
    assert unfit(told(part())) == ""
    assert unfit(told(replace(part(), peer="\x1b[2J"))) == "a name that cannot be printed"
    assert unfit(told(member="a\nb")) == "a name that cannot be printed"
    rail = replace(part(), kind=PartKind.RAIL)
    assert unfit(told(part(), rail)) == "a rail of the whole fleet concerns no node"


RESULTS = st.from_type(PairsResult)


@given(known=st.none() | RESULTS, new=RESULTS, now=st.floats(0, 3e11))
def test_any_result_of_the_right_types_is_folded_and_judged(
    known: PairsResult | None, new: PairsResult, now: float
) -> None:
    held = after(known, new)
    assert len(held.parts) <= MOST_PARTS
    again = TypeAdapter(PairsResult).validate_json(
        json.dumps(TypeAdapter(PairsResult).dump_python(held, mode="json"))
    )
    assert again == held
    memory, findings = judge(PairsMemory(), Ok(HeldResult(held), now, 0.0), POLICY, Expect())
    assert all(one.health > Health.OK for one in findings)
    assert len(list(samples(HeldResult(held), memory))) <= 4 * len(Way) + 1
