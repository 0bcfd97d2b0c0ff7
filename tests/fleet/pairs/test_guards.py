"""The guards of a survey, each asked by itself: a state is given, and one of them alone refuses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.rows import each
from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch.core.statistics import grouped
from wirewatch_fleet.pairs.crowd import End
from wirewatch_fleet.pairs.model import DEFAULT_LIMITS, SlowPlace
from wirewatch_fleet.pairs.observations import Observation
from wirewatch_fleet.pairs.spread import HealthySpread, JudgedPart
from wirewatch_fleet.pairs.survey import Found, Survey, set_paces

SENDS, RECEIVES, TOGETHER = Way.SENDS, Way.RECEIVES, Way.TOGETHER
CALM = HealthySpread(0.003, 0.004, [0.0] * 1000)
WELL = JudgedPart(0.0, 0.002, 4, 0, frozenset("bcde"), frozenset(), 0.0, named=False, suspected=False)
SLOW = JudgedPart(0.2, 0.002, 4, 4, frozenset("bcde"), frozenset("bcde"), 100.0, named=True, suspected=True)
Rails = Mapping[str, float]


def seen(
    sender: str, receiver: str, loss: float | Rails = 0.0, number: int = 1, *, across: bool | None = None,
    masked: float = 0.0,
) -> Observation:  # fmt: skip
    """A run with this loss, of all rails or of each; `masked` is explained by something wider."""
    losses = {"": loss} if isinstance(loss, float) else dict(loss)
    one = Observation(Measure.SEND, number, sender, receiver, across, dict.fromkeys(losses, 0.0))
    one.losses, one.masked = losses, masked
    one.see_loss()
    return one


def survey(
    every: Sequence[Observation], leafs: Mapping[str, str] = {},
    nodes: Mapping[End, JudgedPart] = {}, named: Sequence[Found] = (),
) -> Survey:  # fmt: skip
    made = Survey(every, leafs, DEFAULT_LIMITS)
    made.ends = grouped((end, one) for one in every for end in one.ends)
    made.spread = CALM
    made.nodes = dict.fromkeys(made.ends, WELL) | dict(nodes)
    made.named = list(named)
    return made


def node(name: str, way: Way = SENDS, rail: str = "") -> Found:
    return Found(SlowPlace(PartKind.NODE, name, rail=rail), way, SLOW)


def pace(every: Sequence[Observation]) -> tuple[float, float]:
    """Of the two ends of the first, as shares of what they would be if few runs could not be wrong."""
    set_paces(every, CALM)
    return every[0].paces


@each(
    ("others", "masked", "own"),
    [
        ([], 0.0, 0.0),
        ([0.01], 0.0, 0.01 * 9 / (9 + 16)),
        ([0.01, 0.0], 0.0, 0.005 * 18 / (18 + 16)),
        ([0.01], 0.5, 0.01 * 9 / (9 + 16)),
        ([0.3], 0.0, 0.0125 * 9 / (9 + 16)),
        ([-0.3], 0.0, -0.0125 * 9 / (9 + 16)),
    ],
    ids=["no other", "one", "two", "this one is explained", "cut", "cut below"],
)
def test_a_members_own_pace_is_by_all_its_other_runs(
    others: Sequence[float], masked: float, own: float
) -> None:
    """Drawn towards 0 as far as so few can be wrong; what other partners do to them is cut."""
    every = [
        seen("a", "b", 0.007, masked=masked),
        *(seen("a", f"x{n}", loss) for n, loss in enumerate(others)),
    ]
    assert pace(every) == pytest.approx((own, 0.0))


def test_a_run_that_is_explained_says_nothing_of_a_pace() -> None:
    every = [seen("a", "b"), seen("a", "c", 0.01), seen("a", "d", 0.01, masked=0.2), seen("e", "b", 0.004)]
    assert pace(every) == pytest.approx((0.01 * 9 / 25, 0.004 * 9 / 25))


def test_a_healthy_fleet_has_anything_named_once_in_two_thousand() -> None:
    """By any of three measures, and of eight kinds of parts in each."""
    assert survey([]).bar(5).error * 3 * 8 == pytest.approx(0.0005)


RUN = seen("a", "b", {"0": 0.1, "1": 0.2})


def test_rails_are_judged_beside_each_other_where_there_are_several() -> None:
    several = [RUN, seen("a", "c", {"1": 0.1})]
    found = {place.name: len(some) for place, _, some in survey(several).rail_parts()}
    assert found == {"0": 1, "1": 2}
    for one in ({"0": 0.1}, 0.1):
        assert not [*survey([seen("a", "b", one)]).rail_parts()]


LEAFS = {f"{leaf}{n}": leaf for leaf in "xyz" for n in range(8)}


def test_leafs_are_judged_by_what_leaves_or_enters_them_whole_and_by_rail() -> None:
    every = [
        seen("x0", "y0", {"0": 0.1, "1": 0.1}, across=True), seen("x1", "x2", {"0": 0.1}, across=False),
    ]  # fmt: skip
    found = {(place.name, place.rail, way) for place, way, _ in survey(every, LEAFS).leaf_parts()}
    assert found == {
        (leaf, rail, way) for leaf, way in (("x", SENDS), ("y", RECEIVES)) for rail in ("", "0", "1")
    }
    one_rail = survey([seen("x0", "y0", {"0": 0.1}, across=True)], LEAFS)
    assert {place.rail for place, _, _ in one_rail.leaf_parts()} == {""}


def rounds_of(
    place: SlowPlace, count: int, others: str = "yz", leafs: Mapping[str, str] = LEAFS
) -> list[tuple[float, float]]:
    """Judge leaf x after so many runs, the first of them quicker than the others."""
    every = [
        seen(f"x{n}", f"{others[n % len(others)]}{n}", {"0": 0.1 * (n > 0), "1": 0.3}, across=True,
             masked=0.05)
        for n in range(count)
    ]  # fmt: skip
    every += [seen("x7", "y7", {"1": 0.0}, across=True)] if place.rail else []
    return [(one.loss, one.explained) for one in survey(every, leafs).rounds_of(place, every)]


LEAF = SlowPlace(PartKind.LEAF, "x", across=True)


@each(
    ("place", "count", "others", "points"),
    [
        (LEAF, 4, "yz", [(0.1, 0.05)]),
        (LEAF, 3, "yz", []),
        (LEAF, 4, "y", []),
        (replace(LEAF, rail="0"), 4, "yz", [(0.1, 0.05)]),
        (replace(LEAF, rail="0"), 3, "yz", []),
        (SlowPlace(PartKind.RAIL, "1", rail="1"), 4, "y", [(0.3, 0.05)]),
    ],
    ids=["four", "three", "with one other leaf", "a rail of it", "too few of that rail", "a rail of all"],
)
def test_a_round_says_something_of_a_group_by_enough_runs_with_several_others(
    place: SlowPlace, count: int, others: str, points: list[tuple[float, float]]
) -> None:
    assert rounds_of(place, count, others) == points


@pytest.mark.parametrize(("leafs", "points"), [("xy", 1), ("xyz", 0)])
def test_of_two_leafs_there_are_no_several_others(leafs: str, points: int) -> None:
    known = {name: leaf for name, leaf in LEAFS.items() if leaf in leafs}
    assert len(rounds_of(LEAF, 4, "y", known)) == points


def test_runs_inside_a_leaf_are_those_of_both_ends_in_it() -> None:
    inside = [
        seen("x0", "x1", {"0": 0.1, "1": 0.1}, across=False),
        seen("x1", "x2", {"1": 0.1}, across=False),
    ]
    every = [*inside, seen("x0", "y0", {"0": 0.1}, across=True), seen("y1", "y2", {"0": 0.1}, across=False)]
    made = survey(every, LEAFS)
    assert made.within(SlowPlace(PartKind.LEAF, "x")) == inside
    assert made.within(SlowPlace(PartKind.LEAF, "x", rail="0")) == inside[:1]


@each(
    ("loss", "inside", "as_slow"),
    [
        (0.2, [0.17] * 4, True),
        (0.2, [0.169] * 4, False),
        (0.2, [0.2] * 3, False),
        (0.2, [0.2] * 3 + [0.0], True),
        (0.2, [0.2] * 2 + [0.0] * 2, False),
        (0.2, [0.2] * 6 + [0.0], True),
        (0.04, [0.021] * 4, True),
        (0.04, [0.019] * 4, False),
        (0.6, [0.545] * 4, True),
        (0.6, [0.535] * 4, False),
    ],
)
def test_a_leaf_is_as_slow_inside_by_nearly_all_of_its_runs_there(
    loss: float, inside: Sequence[float], *, as_slow: bool
) -> None:
    """By a tenth of its loss, by the least loss, and not by less than half of it."""
    made = survey([])
    runs = [seen("x0", "x1", one) for one in inside]
    assert made.as_slow_inside(LEAF, loss, runs) is as_slow
    hidden = [seen("x0", "x1", 0.0, masked=loss + max(0.031, 0.101 * loss)) for _ in range(9)]
    assert made.as_slow_inside(LEAF, loss, [*runs, *hidden]) is as_slow


@each(
    ("judged", "partners", "confirmed"),
    [
        (SLOW, {}, True),
        (replace(SLOW, slow_with=frozenset("b")), {}, False),
        (replace(SLOW, slow_with=frozenset("bc")), {}, True),
        (SLOW, dict.fromkeys("bcd", SLOW), True),
        (SLOW, dict.fromkeys("bcde", replace(WELL, suspected=True)), False),
        (SLOW, dict.fromkeys("bcde", replace(WELL, rounds=2, slow=2)), False),
        (SLOW, dict.fromkeys("bcde", replace(WELL, rounds=2, slow=1)), True),
    ],
    ids=["all are well", "one partner", "two", "one is well", "all suspected", "all slow", "well once"],
)
def test_a_node_is_confirmed_by_two_partners_of_whom_one_is_well(
    judged: JudgedPart, partners: Mapping[str, JudgedPart], *, confirmed: bool
) -> None:
    every = [seen("a", name) for name in "bcde"]
    ways = {(name, RECEIVES): part for name, part in partners.items()}
    made = survey(every, nodes=ways | {("b", SENDS): SLOW})
    assert made.confirmed(("a", SENDS), judged) is confirmed


def test_of_a_collective_the_partner_is_well_in_it_too() -> None:
    every = [Observation(Measure.ALL_REDUCE, 1, "a", name, across=None, logs={}) for name in "bc"]
    made = survey(every, nodes={("b", TOGETHER): SLOW, ("c", TOGETHER): SLOW})
    with_two = replace(SLOW, slow_with=frozenset("bc"))
    assert not made.confirmed(("a", TOGETHER), with_two)
    made.nodes["c", TOGETHER] = WELL
    assert made.confirmed(("a", TOGETHER), with_two)


@each(
    ("losses", "rail", "named", "on_all"),
    [
        ([0.2] * 4, 0.2, [], True),
        ([0.2] * 4, 0.2, [node("a")], False),
        ([0.2] * 4, 0.2, [node("a", RECEIVES), node("b")], True),
        ([0.2, 0.2, 0.0, 0.0], 0.2, [], False),
        ([0.2, 0.2, 0.2, 0.0], 0.2, [], True),
        ([0.11] * 4, 0.2, [], True),
        ([0.09] * 4, 0.2, [], False),
        ([0.031] * 4, 0.04, [], True),
        ([0.03] * 4, 0.04, [], False),
    ],
    ids=["as slow", "named", "others named", "in half", "in most", "more than half as slow", "less than half",
         "by the least", "by less"],
)  # fmt: skip
def test_a_node_about_as_slow_as_its_rail_is_asked_about_as_a_whole(
    losses: Sequence[float], rail: float, named: Sequence[Found], *, on_all: bool
) -> None:
    every = [seen("a", name, {"0": loss, "1": loss}) for name, loss in zip("bcde", losses, strict=True)]
    made = survey(every, named=named)
    assert made.on_all_rails(("a", SENDS), replace(SLOW, loss=rail)) is on_all
    assert [one.place.name for one in made.suspects] == (["a"] if on_all else [])
    assert any(one.masked > 0 for one in every) is on_all


def test_a_node_is_suspected_once_in_each_direction() -> None:
    every = [seen("a", "b", {"0": 0.2, "1": 0.2})]
    made = survey(every)
    for end, rail in ((("a", SENDS), ""), (("a", SENDS), ""), (("b", RECEIVES), ""), (("a", SENDS), "0")):
        made.suspect_node(end, SLOW, rail)
    assert [(one.place.name, one.place.rail, one.way) for one in made.suspects] == [
        ("a", "", SENDS), ("b", "", RECEIVES), ("a", "0", SENDS),
    ]  # fmt: skip
    assert (every[0].masked, every[0].rails_masked) == (0.2, {"0": 0.2})


def test_a_rail_is_looked_at_where_a_run_is_slow_and_not_explained() -> None:
    every = [
        seen("a", "b", {"0": 0.2, "1": 0.02}), seen("c", "d", {"0": 0.2}, masked=0.2),
        seen("e", "f", {"0": 0.2}, masked=0.1),
    ]  # fmt: skip
    found = list(survey(every).slow_rails(0.03))
    assert found == [
        (("a", SENDS), "0"), (("b", RECEIVES), "0"), (("e", SENDS), "0"), (("f", RECEIVES), "0"),
    ]  # fmt: skip


@each(
    ("partners", "judged", "named", "apart"),
    [
        ("bcd", WELL, [], True),
        ("bc", WELL, [], False),
        ("bbc", WELL, [], False),
        ("bcd", replace(WELL, suspected=True), [], False),
        ("bcd", replace(WELL, suspected=True), [node("a")], True),
        ("b", WELL, [node("a")], True),
        ("b", WELL, [node("a", rail="1")], False),
        ("b", WELL, [node("a", RECEIVES), node("b")], False),
    ],
)
def test_an_end_of_a_pair_is_known_apart_from_it_by_two_other_partners(
    partners: str, judged: JudgedPart, named: Sequence[Found], *, apart: bool
) -> None:
    made = survey([seen("a", name) for name in partners], nodes={("a", SENDS): judged}, named=named)
    assert made.known_apart(("a", SENDS)) is apart
    back = survey(
        [seen(name, "a") for name in partners], nodes={("a", RECEIVES): judged},
        named=[replace_way(one) for one in named],
    )  # fmt: skip
    assert back.known_apart(("a", RECEIVES)) is apart


def replace_way(one: Found) -> Found:
    return one._replace(way={SENDS: RECEIVES, RECEIVES: SENDS}[one.way])


@each(
    ("others", "masked", "named", "slow"),
    [
        ([], 0.0, [], False),
        ([0.2], 0.0, [], True),
        ([0.2, 0.0], 0.0, [], False),
        ([0.2, 0.2, 0.0], 0.0, [], True),
        ([0.1], 0.0, [], False),
        ([0.2], 0.3, [], False),
        ([0.2], 0.0, [node("a")], False),
        ([0.2], 0.0, [node("b"), node("a", RECEIVES)], True),
    ],
    ids=[
        "no other",
        "slow",
        "half",
        "most",
        "as much as half the pair",
        "explained",
        "named",
        "others named",
    ],
)
def test_an_end_that_loses_as_much_with_others_says_that_it_is_not_the_pair(
    others: Sequence[float], masked: float, named: Sequence[Found], *, slow: bool
) -> None:
    every = [seen("a", "b", 0.2), *(seen("a", f"x{n}", loss, masked=masked) for n, loss in enumerate(others))]
    made = survey(every, named=named)
    assert made.slow_with_others(("a", SENDS), SlowPlace(PartKind.PAIR, "a", "b"), 0.1) is slow


def pairs(
    losses: Sequence[float], judged: Mapping[End, JudgedPart] = {}, others: float = 0.0,
    named: Sequence[Found] = (), rail: str = "",
) -> Survey:  # fmt: skip
    """A pair in some rounds, both of whose members ran with three others."""
    some: list[Observation] = [
        seen("a", "b", {rail: loss, "1": 0.0} if rail else loss, number) for number, loss in enumerate(losses)
    ]
    rest = [seen("a", f"x{n}", others) for n in range(3)] + [seen(f"y{n}", "b", 0.0) for n in range(3)]
    if rail:
        rest = [seen(one.sender, one.receiver, {rail: one.loss, "1": 0.0}) for one in rest]
    made = survey([*some, *rest], nodes=judged, named=named)
    place = SlowPlace(PartKind.PAIR, "a", "b", rail)
    made.judge_pair(place, some, CALM, made.bar(4))
    return made


SUSPECTED = replace(WELL, suspected=True)


@each(
    ("made", "named", "suspected"),
    [
        (pairs([0.2, 0.2, 0.2]), ["a"], []),
        (pairs([0.2]), [], ["a"]),
        (pairs([0.0, 0.0]), [], []),
        (pairs([0.2, 0.2, 0.2], {("a", SENDS): SUSPECTED}), [], []),
        (pairs([0.2, 0.2, 0.2], {("b", RECEIVES): SUSPECTED}), [], []),
        (pairs([0.2, 0.2, 0.2], others=0.15), [], ["a"]),
        (pairs([0.2, 0.2, 0.2], rail="0"), ["a"], []),
    ],
    ids=[
        "slow",
        "once",
        "well",
        "its sender is open",
        "its receiver is open",
        "slow with others",
        "on a rail",
    ],
)
def test_a_pair_is_named_where_both_ends_are_known_to_be_well(
    made: Survey, named: list[str], suspected: list[str]
) -> None:
    assert [one.place.name for one in made.named] == named
    assert [one.place.name for one in made.suspects] == suspected
    kinds = {one.place.kind for one in (*made.named, *made.suspects)}
    assert kinds <= {PartKind.PAIR, PartKind.NODE}
    masked = [one.masked or one.rails_masked for one in made.every[:1]]
    assert bool(masked[0]) is bool(named or suspected)
