"""Guards of naming, each where it alone refuses: rounds whose rates are given."""

from dataclasses import replace

import pytest

from tests.fleet.pairs.rounds import BY_ROUNDS, Loss, around, measured
from wirewatch.core.pairs import PartKind, Way
from wirewatch_fleet.pairs.model import (
    MeasuredRound,
    PairFleet,
    PairMember,
    PairRun,
    RoundPurpose,
    SlowPlace,
)
from wirewatch_fleet.pairs.naming import Assessment, assess
from wirewatch_fleet.pairs.plan import PlannedRound, next_step

NAMES = [f"n{n:02}" for n in range(24)]
FLEET = PairFleet(tuple(PairMember(name) for name in NAMES))


def found(lost: Loss, rounds: int = 8, fleet: PairFleet = FLEET) -> Assessment:
    """What so many rounds say, in which all members meet others."""
    names = [one.name for one in fleet.members]
    return assess(fleet, [measured(n, around(names, n), lost) for n in range(1, 1 + rounds)], BY_ROUNDS)


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


def test_of_a_named_node_the_other_direction_is_one_of_few_to_look_at() -> None:
    """Three rounds measured it, and another run is slow by chance: among all nodes that is too little."""
    chance = (1, *around(NAMES, 1)[4])

    def told(sends: float) -> set[Way]:
        def lost(a: str, b: str, number: int) -> float:
            return 0.3 if (number, a, b) == chance else {a: sends, b: 0.1}.get("n03", 0.0)

        every = [measured(number, around(NAMES, number), lost) for number in range(1, 6)]
        every[3:] = [MeasuredRound(one.round, [_one_way(run) for run in one.runs]) for one in every[3:]]
        known = assess(FLEET, every, BY_ROUNDS)
        return {one.way for part in known.named for one in part.losses if part.place.name == "n03"}

    assert told(0.2) == {Way.SENDS, Way.RECEIVES}
    assert told(0.0) == set()


def _one_way(run: PairRun) -> PairRun:
    """The same without what n03 received."""
    if run.first == "n03":
        return replace(run, receives=None)
    return replace(run, sends=None) if run.second == "n03" else run


@pytest.mark.parametrize("with_others", [False, True])
def test_senders_that_met_the_same_receivers_alone_are_not_named(*, with_others: bool) -> None:
    """Four senders met four receivers, each slow with all: nobody says which side it is.

    One run of each that is well, with somebody else, says it no more.
    """
    senders, receivers, others = NAMES[:4], NAMES[4:8], NAMES[8:]
    every = []

    def lost(a: str, b: str, _number: int) -> float:
        return 0.2 if a in senders and b in receivers else 0.0

    for number in range(1, 9):
        turned = receivers[number % 4 :] + receivers[: number % 4]
        pairs = [*zip(senders, turned, strict=True), *around(others, number)]
        every.append(measured(number, pairs, lost))
    if with_others:
        pairs = [*zip([*senders, *receivers], others[:8], strict=True), *around(others[8:], 1)]
        every.append(measured(9, pairs, lost))
    known = assess(FLEET, every, BY_ROUNDS)
    assert not known.named
    assert {one.place.name for one in known.suspects} & {*senders, *receivers}


def test_a_node_that_met_one_partner_alone_is_not_named() -> None:
    """The partner is well with others, but the pair may be what is slow."""
    a, b, *others = NAMES[:-1]
    every = []
    for number in range(1, 9):
        pairs = [(a, b), *around(others[:-1], number)] if number % 2 else around([b, *others], number)
        every.append(measured(number, pairs, lambda one, two, _n: 0.3 if (one, two) == (a, b) else 0.0))
    known = assess(FLEET, every, BY_ROUNDS)
    assert (a, "") not in nodes(known)
    assert a in {one.place.name for one in known.suspects}


LEAFS = PairFleet(tuple(PairMember(f"{leaf}{n}", leaf) for leaf in "abc" for n in range(8)))


def leaf_rounds(with_b: int, lost: Loss) -> Assessment:
    """In each of eight rounds leaf a meets so many of b, and c for the rest; who is left runs inside c."""
    every = []
    for number in range(1, 9):
        a, b, c = ([f"{leaf}{(n + number) % 8}" for n in range(8)] for leaf in "abc")
        b = b[::-1]
        rest = 8 - with_b
        pairs = [
            *zip(a, b[:with_b] + c[:rest], strict=True),
            *zip(b[with_b:], c[rest : 2 * rest], strict=True),
        ]
        inside = c[2 * rest :]
        pairs += [*zip(inside[::2], inside[1::2], strict=True)]
        every.append(measured(number, pairs, lost, RoundPurpose.ACROSS))
    return assess(LEAFS, every, BY_ROUNDS)


@pytest.mark.parametrize(("with_b", "named"), [(8, False), (7, False), (6, True), (4, True)])
def test_a_leaf_is_named_by_runs_with_several_others(*, with_b: int, named: bool) -> None:
    """Of more than three in four with one other leaf nobody can say which of the two is slow."""
    known = leaf_rounds(with_b, lambda a, b, _n: 0.2 if a[0] == "a" and b[0] != "a" else 0.0)
    places = {one.place for one in known.named}
    assert (SlowPlace(PartKind.LEAF, "a", across=True) in places) is named
    assert SlowPlace(PartKind.LEAF, "b", across=True) not in places


@pytest.mark.parametrize(("unanswered", "silent"), [(1, False), (2, False), (3, True), (4, True)])
def test_a_member_is_silent_after_three_runs_without_an_answer(*, unanswered: int, silent: bool) -> None:
    rounds = [
        _without(measured(n, around(NAMES, n), sends()), "n03" if n <= unanswered else "")
        for n in range(1, 1 + max(unanswered, 1))
    ]
    known = assess(FLEET, rounds, BY_ROUNDS)
    assert known.silent == (("n03",) if silent else ())
    assert ("n03" in known.thin) is not silent


def test_one_answer_ends_all_silence() -> None:
    rounds = [_without(measured(n, around(NAMES, n), sends()), "n03" if n != 3 else "") for n in range(1, 6)]
    known = assess(FLEET, rounds, BY_ROUNDS)
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
