from random import Random

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


def test_odd_leafs_leave_one_each_and_those_run_together() -> None:
    leafs = {name: name[0] for name in ("a1", "a2", "a3", "b1", "b2", "b3")}
    pairs, resting = inside(sorted(leafs), leafs, lambda _a, _b: False, drawing(1), {})
    assert not resting
    assert sum(leafs[a] != leafs[b] for a, b in pairs) == 1
