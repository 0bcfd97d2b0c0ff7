from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from wirewatch_fleet.pairs.plan import inside, matching, meetings


def drawing(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a matching


@settings(max_examples=examples(60), deadline=None)
@given(size=st.integers(0, 41), seed=st.integers(0, 1000))
def test_a_matching_is_perfect_and_of_an_odd_number_one_rests(size: int, seed: int) -> None:
    names = [f"n{n}" for n in range(size)]
    pairs, resting = matching(names, lambda _a, _b: False, drawing(seed), {})
    assert sorted([name for pair in pairs for name in pair] + list(resting)) == sorted(names)
    assert len(resting) == size % 2


@settings(max_examples=examples(30), deadline=None)
@given(size=st.integers(12, 60), seed=st.integers(0, 1000))
def test_no_two_meet_again_while_there_are_others(size: int, seed: int) -> None:
    names, chance = [f"n{n}" for n in range(size)], drawing(seed)
    met: list[tuple[str, str]] = []
    for _ in range(4):
        pairs, _ = matching(names, meetings(met), chance, {})
        met += pairs
    assert len(set(map(frozenset, met))) == len(met)


def test_who_has_rested_does_not_rest_again() -> None:
    rested: dict[str, int] = {}
    for seed in range(5):
        _, (name,) = matching(["a", "b", "c", "d", "e"], lambda _a, _b: False, drawing(seed), rested)
        rested[name] = rested.get(name, 0) + 1
    assert set(rested.values()) == {1}


def test_across_leafs_where_it_can_be_and_within_them_where_it_shall() -> None:
    names = [f"n{n}" for n in range(64)]
    leafs = {name: f"leaf{n // 16}" for n, name in enumerate(names)}
    pairs, _ = matching(names, lambda a, b: leafs[a] == leafs[b], drawing(1), {})
    assert all(leafs[a] != leafs[b] for a, b in pairs)
    pairs, _ = inside(names, leafs, lambda _a, _b: False, drawing(1), {})
    assert all(leafs[a] == leafs[b] for a, b in pairs)


def test_pairs_of_different_seeds_differ() -> None:
    names = [f"n{n}" for n in range(16)]
    found = {matching(names, lambda _a, _b: False, drawing(seed), {}) for seed in range(4)}
    assert len(found) == 4


def test_a_wrong_pair_is_undone_whatever_the_draw() -> None:
    """Two leafs of four: each member has a partner across, and none is lost again once it is found."""
    names = [f"{leaf}{n}" for leaf in "ab" for n in range(4)]
    for seed in range(200):
        pairs, _ = matching(names, lambda a, b: a[0] == b[0], drawing(seed), {})
        assert all(a[0] != b[0] for a, b in pairs)


def test_where_no_swap_helps_the_pairs_stay_as_they_were_drawn() -> None:
    """It is given up after some tries for each pair."""
    names, asked = [f"n{n}" for n in range(40)], list[Sequence[str]]()

    def wrong(a: str, b: str) -> bool:
        asked.append((a, b))
        return True

    drawn = matching(names, lambda _a, _b: False, drawing(1), {})
    assert matching(names, wrong, drawing(1), {}) == drawn
    assert len(asked) == 20 * (1 + 3 * 40)


@pytest.mark.parametrize(("name", "rests"), [("a", 0), ("b", 1), ("c", 2)])
def test_the_one_that_has_rested_least_rests(name: str, rests: int) -> None:
    rested = dict.fromkeys("abc", 3) | {name: rests}
    assert matching(["a", "b", "c"], lambda _a, _b: False, drawing(2), rested)[1] == (name,)


def test_odd_leafs_leave_one_each_and_those_run_together() -> None:
    leafs = {name: name[0] for name in ("a1", "a2", "a3", "b1", "b2", "b3")}
    pairs, resting = inside(sorted(leafs), leafs, lambda _a, _b: False, drawing(1), {})
    assert not resting
    assert sum(leafs[a] != leafs[b] for a, b in pairs) == 1
