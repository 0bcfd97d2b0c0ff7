"""NCCL_ALGO and NCCL_PROTO: what a list leaves to each collective, and what NCCL refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.nccl.lists import (
    ALGO,
    ALGORITHMS,
    FUNCTIONS,
    PROTO,
    PROTOCOLS,
    ListError,
    allowed,
    ignored,
    lacks,
    left_without,
)


@each(
    ("value", "function", "left"),
    [
        ("Ring", "AllReduce", {"Ring"}), ("ring,TREE", "Broadcast", {"Ring", "Tree"}),
        ("^Tree", "AllReduce", set(ALGORITHMS) - {"Tree"}), ("allreduce:tree", "AllReduce", {"Tree"}),
        ("allreduce:tree", "AllGather", set(ALGORITHMS)),
        ("ring;allreduce:^nvls", "AllReduce", set(ALGORITHMS) - {"NVLS"}),
        ("ring;allreduce:^nvls", "Reduce", {"Ring"}), ("", "AllReduce", set(ALGORITHMS)),
        (",", "AllReduce", set()),
        ("^", "AllReduce", set(ALGORITHMS)), ("ring,,tree;", "AllReduce", {"Ring", "Tree"}),
    ],
)  # fmt: skip
def test_a_list_leaves_each_collective_its_algorithms(value: str, function: str, left: set[str]) -> None:
    assert allowed(ALGO, value)[function] == left


@each(
    ("name", "value", "word"),
    [
        (ALGO, "auto", "auto"), (PROTO, "auto", "auto"), (ALGO, "Ring, Tree", " Tree"),
        (PROTO, "LL256", "LL256"),
        (ALGO, "alltoall:ring", "alltoall"), (ALGO, '"Ring"', '"Ring"'), (ALGO, "ring;tree", "tree"),
        (ALGO, ":", ":"), (ALGO, ";ring", "ring"),
    ],
)  # fmt: skip
def test_a_word_that_is_none_is_refused(name: str, value: str, word: str) -> None:
    with pytest.raises(ListError) as caught:
        allowed(name, value)
    assert repr(word) in str(caught.value)


@each(
    ("name", "value", "without"),
    [
        (ALGO, "Tree", ("Broadcast", "Reduce", "AllGather", "ReduceScatter")),
        (ALGO, "NVLS", ("Broadcast", "Reduce")),
        (ALGO, "Ring", ()), (ALGO, "allreduce:tree", ()), (ALGO, "^ring", ("Broadcast", "Reduce")),
        (PROTO, "LL", ()), (PROTO, ",", FUNCTIONS), (ALGO, "allreduce:pat", ("AllReduce",)),
    ],
)  # fmt: skip
def test_a_collective_without_an_algorithm_of_its_own_is_named(
    name: str, value: str, without: tuple[str, ...]
) -> None:
    assert left_without(name, value) == without


def test_an_older_nccl_passes_over_what_it_does_not_know() -> None:
    assert ignored(ALGO, "auto") == ("auto",)
    assert ignored(ALGO, "allreduce:ring,tree") == ("allreduce:ring",)
    assert ignored(PROTO, "^ll,SIMPLE") == ()
    assert ignored(ALGO, "ring,,tree") == ()


def test_what_a_collective_does_not_have_is_not_missed() -> None:
    assert not lacks(ALGO, "broadcast:ring", "Ring", "NVLS")
    assert lacks(ALGO, "allgather:ring", "Ring", "NVLS")
    assert lacks(ALGO, "auto", "Ring")
    assert lacks(PROTO, "LL", "Simple")
    assert not lacks(PROTO, "^LL", "Simple")


@given(st.sampled_from([(ALGO, ALGORITHMS), (PROTO, PROTOCOLS)]), st.data())
def test_a_list_and_its_inverse_share_nothing_and_miss_nothing(
    kind: tuple[str, tuple[str, ...]], data: st.DataObject
) -> None:
    name, choices = kind
    listed = ",".join(data.draw(st.lists(st.sampled_from(choices), min_size=1)))
    one, other = allowed(name, listed), allowed(name, f"^{listed}")
    for function in FUNCTIONS:
        assert one[function] | other[function] == set(choices)
        assert not one[function] & other[function]


@given(st.sampled_from([ALGO, PROTO]), st.text(st.sampled_from("^:;,ringTREl1 28")))
def test_any_list_is_read_or_refused(name: str, value: str) -> None:
    try:
        assert set(allowed(name, value)) == set(FUNCTIONS)
    except ListError:
        assert lacks(name, value, "Ring")
