from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fleet.pairs.drawn import BOTH, DrawnFault, DrawnFleet
from wirewatch.core.pairs import PartKind
from wirewatch_fleet.pairs.model import MeasuredRound, PairFleet, PairMember, RoundPurpose, SlowPlace
from wirewatch_fleet.pairs.plan import PairsVerdict, PlannedRound, next_step


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
