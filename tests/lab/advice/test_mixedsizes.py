"""Groups of several sizes in domains, against every arrangement of few and what must hold of many."""

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from wirewatch_lab.advice.placement import solver
from wirewatch_lab.advice.placement.solver import Assignment, DomainSize, assign

FREE = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 7)), max_size=5)
SIZES = st.sets(st.integers(1, 8), min_size=1, max_size=3)


def domains(free: Sequence[tuple[int, int]], sizes: int) -> list[DomainSize]:
    """Domains of which three in eight may not take the first size."""
    return [DomainSize(gpus, tuple(place > 0 or bits > 2 for place in range(sizes))) for gpus, bits in free]


def possible(of: Sequence[DomainSize], sizes: Sequence[int], counts: Sequence[int]) -> bool:
    """Whether any arrangement has all groups, by trying each."""
    items = [place for place, n in enumerate(counts) for _ in range(n)]

    @cache
    def go(left: tuple[int, ...], at: int) -> bool:
        if at == len(items):
            return True
        place = items[at]
        return any(
            go((*left[:n], free - sizes[place], *left[n + 1 :]), at + 1)
            for n, free in enumerate(left)
            if free >= sizes[place] and of[n].allowed[place]
        )

    return go(tuple(one.free for one in of), 0)


@example([(10, 7), (8, 7)], {6, 4}, (1, 3, 0))
@example([(6, 7), (4, 7)], {6, 4}, (1, 1, 0))
@settings(max_examples=examples(400), deadline=None)
@given(FREE, SIZES, st.tuples(*[st.integers(0, 4)] * 3))
def test_it_is_as_good_as_trying_all(
    free: list[tuple[int, int]], some: set[int], counts: tuple[int, int, int]
) -> None:
    sizes = sorted(some, reverse=True)
    of, wanted = domains(free, len(sizes)), counts[: len(sizes)]
    found = assign(of, sizes, wanted)
    assert found.proven
    assert (found.groups is not None) == possible(of, sizes, wanted)
    if found.groups is not None:
        assert tuple(map(sum, zip(*found.groups, strict=True))) == wanted or not any(wanted)
        for one, given in zip(of, found.groups, strict=True):
            assert sum(n * size for n, size in zip(given, sizes, strict=True)) <= one.free
            assert all(ok or not n for ok, n in zip(one.allowed, given, strict=True))


def test_powers_of_two_are_exact_however_many() -> None:
    of = [DomainSize(free, (True, True, True)) for free in (8, 7, 6, 5, 4, 3, 2, 1) * 250]
    room = [sum(one.free // size for one in of) for size in (8, 4, 2)]
    assert room == [250, 1500, 4000]
    assert assign(of, (8, 4, 2), (250, 1000, 1000)).groups is not None
    assert assign(of, (8, 4, 2), (250, 1000, 1001)).groups is None
    assert assign(of, (8, 4, 2), (250, 1000, 1001)).proven


def test_a_search_that_is_not_ended_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    of = [DomainSize(free, (True, True)) for free in (11, 13) * 4]
    assert assign(of, (5, 3), (5, 23)) == Assignment(None)
    monkeypatch.setattr(solver, "MOST_STEPS", 10)
    assert assign(of, (5, 3), (5, 23)) == Assignment(None, proven=False)


def test_gpus_that_no_group_can_take_are_not_counted() -> None:
    """Of 11 GPUs sixes and fours take 10, so that a bound proves what a search of 60 domains would not."""
    of = [DomainSize(free, (True, True)) for free in (11, 13) * 30]
    assert assign(of, (6, 4), (72, 72)) == Assignment(None)
