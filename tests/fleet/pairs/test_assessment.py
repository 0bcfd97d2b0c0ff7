"""The way of a run and the knowledge of each member: each condition where it alone decides."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.fleet.pairs.drawn import DrawnFault, DrawnFleet, FabricNoise
from tests.fleet.pairs.rounds import BY_ROUNDS, Loss, around, measured, wobble
from tests.rows import each
from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch_fleet.pairs.model import (
    MeasuredRound,
    NamedPart,
    PairFleet,
    PairMember,
    PairRun,
    SlowPlace,
    WayLoss,
)
from wirewatch_fleet.pairs.naming import Assessment, assess, covers, explained
from wirewatch_fleet.pairs.observations import Observation, across

LEAFS = {"a": "x", "b": "x", "c": "y", "d": "y"}
SENDS, RECEIVES, TOGETHER = Way.SENDS, Way.RECEIVES, Way.TOGETHER
NODE, PAIR, LEAF, RAIL = PartKind.NODE, PartKind.PAIR, PartKind.LEAF, PartKind.RAIL


@each(
    ("place", "way", "on"),
    [
        (SlowPlace(RAIL, "1", rail="1"), TOGETHER, "ab ac ba ca"),
        (SlowPlace(PAIR, "a", "b"), SENDS, "ab"),
        (SlowPlace(PAIR, "a", "b"), TOGETHER, "ab ba"),
        (SlowPlace(PAIR, "b", "c"), SENDS, ""),
        (SlowPlace(NODE, "a"), SENDS, "ab ac"),
        (SlowPlace(NODE, "a"), RECEIVES, "ba ca"),
        (SlowPlace(NODE, "a"), TOGETHER, "ab ac ba ca"),
        (SlowPlace(NODE, "x"), SENDS, ""),
        (SlowPlace(LEAF, "x"), SENDS, "ab ac ba"),
        (SlowPlace(LEAF, "x", across=True), SENDS, "ac"),
        (SlowPlace(LEAF, "x", across=True), RECEIVES, "ca"),
        (SlowPlace(LEAF, "y"), RECEIVES, "ac"),
        (SlowPlace(LEAF, "a"), SENDS, ""),
    ],
)
def test_a_part_lies_on_the_way_of_these_runs(place: SlowPlace, way: Way, on: str) -> None:
    runs = {
        f"{one}{other}": Observation(Measure.SEND, 1, one, other, across(LEAFS, one, other), {})
        for one, other in ("ab", "ac", "ba", "ca", "cd")
    }
    found = {name for name, one in runs.items() if covers(place, way, one, LEAFS)}
    assert found - {"cd"} == set(on.split())
    assert ("cd" in found) is (place.kind is RAIL or (place.name, place.across) == ("y", False))


@pytest.mark.parametrize(
    ("place", "way", "on"),
    [
        (SlowPlace(PAIR, "b", "a"), SENDS, True),
        (SlowPlace(PAIR, "b", "c"), SENDS, False),
        (SlowPlace(NODE, "b"), SENDS, True),
        (SlowPlace(NODE, "c"), SENDS, False),
    ],
)
def test_a_collective_is_slow_by_either_direction(place: SlowPlace, way: Way, *, on: bool) -> None:
    one = Observation(Measure.ALL_REDUCE, 1, "a", "b", across=None, logs={})
    assert covers(place, way, one, {}) is on


def part(place: SlowPlace, losses: Mapping[Way, float]) -> NamedPart:
    made = tuple(WayLoss(way, loss, loss, loss, 3, 3, 3, 9.0) for way, loss in losses.items())
    return NamedPart(place, Measure.SEND, made)


NAMED = [
    part(SlowPlace(NODE, "a"), {SENDS: 0.1, RECEIVES: 0.3}),
    part(SlowPlace(LEAF, "x", across=True), {SENDS: 0.2}),
    part(SlowPlace(NODE, "c", rail="1"), {RECEIVES: 0.4}),
]


@each(
    ("sender", "receiver", "rail", "loss"),
    [
        ("a", "b", "", 0.1),
        ("a", "c", "", 0.2),
        ("b", "a", "", 0.3),
        ("c", "a", "", 0.3),
        ("a", "c", "1", 0.4),
        ("a", "c", "2", 0.2),
        ("b", "e", "", 0.0),
        ("e", "b", "", 0.0),
        ("c", "d", "", 0.0),
    ],
)
def test_the_greatest_loss_on_the_way_explains(sender: str, receiver: str, rail: str, loss: float) -> None:
    """Of e no leaf is known, so that a run with it may be inside of one."""
    assert explained(NAMED, sender, receiver, LEAFS, rail) == loss


NAMES = [f"n{n:02}" for n in range(24)]
FLEET = PairFleet(tuple(PairMember(name) for name in NAMES))


def well(_a: str, _b: str, _n: int) -> float:
    return 0.0


def rounds(count: int, lost: Loss = well, names: list[str] = NAMES) -> list[MeasuredRound]:
    return [measured(number, around(names, number), lost) for number in range(1, 1 + count)]


def known(every: list[MeasuredRound], fleet: PairFleet = FLEET) -> Assessment:
    return assess(fleet, every, BY_ROUNDS)


def changed(every: list[MeasuredRound], name: str, *fields: str, first: int = 1) -> list[MeasuredRound]:
    """The same, in which what one member sends ("sends") or receives was not measured."""

    def one(run: PairRun) -> PairRun:
        if name not in {run.first, run.second}:
            return run
        ours = {"sends": "sends", "receives": "receives"}
        other = {"sends": "receives", "receives": "sends"}
        names = ours if run.first == name else other
        return replace(run, **{names[field]: None for field in fields})  # type: ignore[arg-type]

    return [
        MeasuredRound(each.round, [one(run) for run in each.runs]) if each.round.number >= first else each
        for each in every
    ]


def test_where_nothing_was_measured_nothing_is_known() -> None:
    found = known([])
    assert (found.spread, found.seen_from, found.typical, found.silent) == (None, None, (), ())
    assert found.thin == tuple(NAMES)
    assert {(one.runs, one.answered, one.sends, one.receives) for one in found.members} == {
        (0, 0, None, None)
    }


def test_healthy_members_differ_by_little_and_their_own_losses_are_small() -> None:
    found = known(rounds(3))
    assert (found.named, found.suspects, found.thin) == ((), (), ())
    assert found.spread is not None
    assert 0.001 < found.spread < 0.01
    assert found.seen_from == pytest.approx(0.03, abs=0.01)
    for one in found.members:
        assert one.sends is not None
        assert one.receives is not None
        assert abs(one.sends) < 0.01 > abs(one.receives)


def test_each_member_has_its_own_losses_by_direction() -> None:
    found = known(rounds(8, lambda a, b, _n: 0.2 if a == "n03" else 0.1 if b == "n03" else 0.0))
    one = next(one for one in found.members if one.name == "n03")
    assert (one.runs, one.answered) == (8, 8)
    assert one.sends == pytest.approx(0.2, abs=0.01)
    assert one.receives == pytest.approx(0.1, abs=0.01)


def together(every: list[MeasuredRound], slow: str = "") -> list[MeasuredRound]:
    """The same pairs, of whom only a collective was measured."""
    return [
        MeasuredRound(each.round, [
            PairRun(run.first, run.second, all_reduce=1e9 * wobble(run.first, run.second, each.round.number)
                    * (0.7 if slow in {run.first, run.second} else 1.0))
            for run in each.runs
        ])
        for each in every
    ]  # fmt: skip


def test_of_a_collective_both_directions_are_the_same() -> None:
    found = known(together(rounds(8), "n03"))
    one = next(one for one in found.members if one.name == "n03")
    assert one.sends == one.receives == pytest.approx(0.3, abs=0.01)
    assert found.thin == ()
    assert [(part.place.name, {loss.way for loss in part.losses}) for part in found.named] == [
        ("n03", {TOGETHER})
    ]


@each(
    ("every", "thin"),
    [
        (rounds(3), False),
        (rounds(2), True),
        (changed(rounds(3), "n03", "sends", first=3), True),
        (changed(rounds(3), "n03", "receives", first=3), True),
        (changed(rounds(3), "n03", "receives"), True),
        ([*rounds(2), *[replace(rounds(1)[0], round=replace(rounds(1)[0].round, number=3))]], True),
    ],
    ids=["three rounds", "two", "two that it sent", "two that it received", "none that it received",
         "a partner twice"],
)  # fmt: skip
def test_a_member_is_known_by_three_partners_in_each_direction(
    every: list[MeasuredRound], *, thin: bool
) -> None:
    assert ("n03" in known(every).thin) is thin


@pytest.mark.parametrize(("size", "count", "thin"), [(2, 2, True), (2, 3, False), (3, 2, True)])
def test_of_a_small_fleet_three_rounds_are_enough_with_all_there_are(
    *, size: int, count: int, thin: bool
) -> None:
    names = NAMES[:size]
    pairs = [(names[n % size], names[(n + 1) % size]) for n in range(count)]
    every = [measured(number, [pair], well) for number, pair in enumerate(pairs, 1)]
    found = known(every, PairFleet(tuple(PairMember(name) for name in names)))
    assert (found.thin == tuple(names)) is thin


def test_runs_with_strangers_are_left_out() -> None:
    every = [measured(1, [*around(NAMES, 1), ("n00", "stranger")], well)]
    (one, *_) = known(every).members
    assert (one.runs, one.answered) == (2, 1)


def test_members_of_a_leaf_that_is_slow_inside_too_are_no_more_asked_about() -> None:
    """No run says anything of them alone; those of other leafs need their three partners."""
    both = frozenset({SENDS, RECEIVES})
    noise = FabricNoise(transient=0.001, rail_transient=0.0002)
    faults = (DrawnFault(SlowPlace(LEAF, "leaf1"), both, 0.2),)
    fleet = DrawnFleet(32, rails=2, leaf=8, noise=noise, faults=faults)
    _, every = fleet.verdict()
    few = [
        MeasuredRound(one.round, [run for run in one.runs if "n0016" not in {run.first, run.second}])
        for one in every[1:]
    ]
    found = assess(fleet.fleet, [every[0], *few], BY_ROUNDS)
    assert {one.place for one in found.named} == {SlowPlace(LEAF, "leaf1")}
    assert "n0016" in found.thin
    assert not set(found.thin) & {f"n{n:04}" for n in range(8, 16)}


def test_what_one_measure_names_is_not_named_by_the_next_again() -> None:
    """Either of two slow nodes explains its own runs."""

    def lost(a: str, _b: str, _n: int) -> float:
        return 0.2 if a in {"n03", "n08"} else 0.0

    every = [
        MeasuredRound(each.round, [
            replace(run, rails=dict.fromkeys("01", (run.sends, run.receives))) for run in each.runs
        ])
        for each in rounds(8, lost)
    ]  # fmt: skip
    named = [(part.place.name, part.measure) for part in known(every).named]
    assert sorted(named) == [("n03", Measure.RAILS), ("n08", Measure.RAILS)]


def test_a_loss_lies_two_deviations_to_both_sides_and_is_no_gain() -> None:
    (part,) = known(rounds(8, lambda a, _b, _n: 0.2 if a == "n03" else 0.0)).named
    (loss,) = part.losses
    assert loss.low == pytest.approx(loss.loss - (loss.high - loss.loss), abs=0.001)
    assert (loss.runs, loss.slow, loss.partners) == (8, 8, 8)
    assert 0.002 < loss.high - loss.loss < 0.004
    noisy = known(rounds(3, lambda a, b, n: 0.15 * (wobble(a, b, n) - 0.995) * 100))
    assert all(loss.low >= 0.0 for part in noisy.suspects for loss in part.losses)
