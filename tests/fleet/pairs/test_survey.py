"""Guards of naming, each where it alone refuses: rounds whose rates are given."""

import pytest

from tests.fleet.pairs.rounds import Loss, around, measured
from wirewatch.core.pairs import Way
from wirewatch_fleet.pairs.model import (
    DEFAULT_LIMITS,
    MeasuredRound,
    PairFleet,
    PairMember,
    PairRun,
)
from wirewatch_fleet.pairs.naming import Assessment, assess
from wirewatch_fleet.pairs.plan import PlannedRound, next_step

NAMES = [f"n{n:02}" for n in range(24)]
FLEET = PairFleet(tuple(PairMember(name) for name in NAMES))


def found(lost: Loss, rounds: int = 8, fleet: PairFleet = FLEET) -> Assessment:
    """What so many rounds say, in which all members meet others."""
    names = [one.name for one in fleet.members]
    return assess(fleet, [measured(n, around(names, n), lost) for n in range(1, 1 + rounds)], DEFAULT_LIMITS)


def nodes(known: Assessment) -> dict[tuple[str, str], set[Way]]:
    return {(part.place.name, part.place.peer): {one.way for one in part.losses} for part in known.named}


def sends(*slow: str) -> Loss:
    return lambda a, _b, _n: 0.2 if a in slow else 0.0


def test_a_node_is_named_by_partners_who_are_well_with_others() -> None:
    assert nodes(found(sends("n03"))) == {("n03", ""): {Way.SENDS}}


def test_the_second_direction_of_a_node_is_named_beside_the_first() -> None:
    """Each by its own runs: what is received is no more than what others send."""
    known = found(lambda a, b, _n: 0.2 if a == "n03" else 0.1 if b == "n03" else 0.0)
    (part,) = known.named
    assert {one.way: round(one.loss, 2) for one in part.losses} == {Way.SENDS: 0.2, Way.RECEIVES: 0.1}
    alone = found(lambda a, b, _n: 0.2 if a == "n03" else 0.001 if b == "n03" else 0.0)
    assert nodes(alone) == {("n03", ""): {Way.SENDS}}


@pytest.mark.parametrize(("unanswered", "silent"), [(1, False), (2, False), (3, True), (4, True)])
def test_a_member_is_silent_after_three_runs_without_an_answer(*, unanswered: int, silent: bool) -> None:
    rounds = [
        _without(measured(n, around(NAMES, n), sends()), "n03" if n <= unanswered else "")
        for n in range(1, 1 + max(unanswered, 1))
    ]
    known = assess(FLEET, rounds, DEFAULT_LIMITS)
    assert known.silent == (("n03",) if silent else ())
    assert ("n03" in known.thin) is not silent


def test_one_answer_ends_all_silence() -> None:
    rounds = [_without(measured(n, around(NAMES, n), sends()), "n03" if n != 3 else "") for n in range(1, 6)]
    known = assess(FLEET, rounds, DEFAULT_LIMITS)
    assert known.silent == ()
    assert "n03" in known.thin


def test_who_did_not_answer_is_asked_again() -> None:
    """In the next round of all, and in one for what is open until it is silent."""
    rounds: list[MeasuredRound] = []
    asked = []
    while isinstance(step := next_step(FLEET, rounds), PlannedRound):
        asked.append(any("n03" in pair for pair in step.round.pairs))
        made = measured(step.round.number, step.round.pairs, sends())
        made = MeasuredRound(step.round, made.runs)
        rounds.append(_without(made, "n03" if len(rounds) in {0, 1} else ""))
    assert asked[:5] == [True] * 5


def _without(made: MeasuredRound, name: str) -> MeasuredRound:
    """The same round, in which the pair of one member gave no answer."""
    runs = [
        PairRun(run.first, run.second, failed="no answer") if name in {run.first, run.second} else run
        for run in made.runs
    ]
    return MeasuredRound(made.round, runs)
