"""Fair shares: who asks for little gets it, the others as much as each other, whoever asks first."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from wirewatch.jobs.shares import fair, max_min

NUMBERS = st.integers(0, 5000)
ASKED = st.dictionaries(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.integers(0, 40)), NUMBERS, max_size=60
)


def sums(shares: dict[tuple[object, ...], int], steps: int) -> Counter[tuple[object, ...]]:
    found = Counter[tuple[object, ...]]()
    for path, share in shares.items():
        found[path[:steps]] += share
    return found


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 20_000), ASKED)
def test_at_every_step_nobody_gets_more_than_one_that_wants_more(
    total: int, asked: dict[tuple[object, ...], int]
) -> None:
    shares = fair(total, asked)
    assert shares.keys() == asked.keys()
    assert sum(shares.values()) == min(total, sum(asked.values())), "nothing is left while anybody asks"
    for steps in (1, 2, 3):
        given_, wanted = sums(shares, steps), sums(asked, steps)
        for one in wanted:
            assert given_[one] <= wanted[one]
            beside = [two for two in wanted if two[:-1] == one[:-1]]
            if given_[one] < wanted[one]:
                assert all(given_[two] <= given_[one] + 1 for two in beside)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 20_000), ASKED, st.randoms(use_true_random=False))
def test_it_does_not_matter_who_asks_first(
    total: int, asked: dict[tuple[object, ...], int], random: Random
) -> None:
    order = list(asked.items())
    random.shuffle(order)
    assert fair(total, dict(order)) == fair(total, asked)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 20_000), ASKED)
def test_a_group_gains_nothing_by_more_users_or_rings(
    total: int, asked: dict[tuple[object, ...], int]
) -> None:
    whole = dict(sums(asked, 1))
    shares = sums(fair(total, asked), 1)
    assert {one: shares[one] for one in whole} == fair(total, whole)


def test_of_a_budget_that_does_not_divide_the_first_get_more() -> None:
    assert max_min(7, {"b": 9, "c": 9, "a": 9}) == {"a": 3, "b": 2, "c": 2}
    assert max_min(2, {"a": 1, "b": 1, "c": 1}) == {"a": 1, "b": 1, "c": 0}
    assert max_min(10, {"a": 1, "b": 20, "c": 4}) == {"a": 1, "b": 5, "c": 4}
    assert max_min(5, {}) == {}
