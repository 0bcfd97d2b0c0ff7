"""What each rank sends and receives, against nccl-tests' counts (src/*.cu), and that sums are exact."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewatch.core.probe import (
    ALL_GATHER,
    ALL_REDUCE,
    ALLTOALL,
    BROADCAST,
    DTYPES,
    GATHER,
    PRIMITIVES,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    SEND,
    SENDRECV,
    Case,
    Plan,
)
from wirewatch.worker.layout import Layout, Pieces, Sums, layout_of, modulus, room

DIVIDED = (ALL_GATHER, REDUCE_SCATTER, SCATTER, GATHER, ALLTOALL)
EXACT = {"bfloat16": 2**8, "float16": 2**11, "int8": 254, "uint8": 254, "float32": 2**24, "int32": 2**31 - 1}


def layout(op: str, size: int, ranks: int, dtype: str = "float32", *, in_place: bool = True) -> Layout:
    plan = Plan("x", ("",) * ranks, (tuple(range(ranks)),), dtype=dtype, in_place=in_place)
    return layout_of(plan, Case(0, op, size, "stream", 1))


@given(
    st.sampled_from(PRIMITIVES), st.integers(1, 1 << 40), st.integers(1, 72), st.sampled_from(sorted(DTYPES))
)
def test_a_message_has_as_many_elements_as_nccl_tests_give_it_and_never_none(
    op: str, size: int, ranks: int, dtype: str
) -> None:
    element = DTYPES[dtype]
    whole = size // element
    theirs = (whole // ranks) & ~(16 // element - 1) if op in DIVIDED else whole
    small = max(1, whole // ranks if op in DIVIDED else whole)
    assert layout(op, size, ranks, dtype).count == (theirs or small)


@given(st.sampled_from(sorted(DTYPES)), st.integers(1, 254))
def test_no_sum_leaves_what_its_type_holds_exactly(dtype: str, ranks: int) -> None:
    largest = modulus(dtype, ranks)
    assert 1 <= largest <= 254
    assert ranks * largest <= EXACT.get(dtype, 2**53)
    assert largest == 254 or (ranks * (largest + 1) > EXACT.get(dtype, 2**53))


@given(
    st.sampled_from(PRIMITIVES), st.integers(1, 4096), st.integers(1, 8), st.booleans(),
    st.sampled_from(sorted(DTYPES)),
)  # fmt: skip
def test_nothing_lies_outside_of_the_buffers_that_the_plan_asks_for(
    op: str,
    size: int,
    ranks: int,
    in_place: bool,  # noqa: FBT001 - drawn
    dtype: str,
) -> None:
    case = Case(0, op, size, "stream", 1)
    plan = Plan(
        "x", ("",) * ranks, (tuple(range(ranks)),), ops=(), dtype=dtype, in_place=in_place, cases=(case,),
        copy_bytes=0, micro=False,
    )  # fmt: skip
    made, needed, element = layout_of(plan, case), room(plan, 1 << 30), DTYPES[dtype]
    places = range(ranks)
    received = max(one.at + one.count for one in map(made.received, places)) * element
    sent = max(one.at + one.count for one in map(made.sent, places)) * element
    wanted = (max(sent, received), 0) if made.in_place else (received, sent)
    both = zip((needed.received, needed.sent), wanted, strict=True)
    assert all(have % 16 == 0 <= have - want < 16 for have, want in both)


def test_in_place_a_rank_s_own_share_is_in_its_place_and_what_it_awaits_is_poisoned() -> None:
    gathering = layout(ALL_GATHER, 256, 4)
    assert [(gathering.sent(n).at, gathering.received(n).at) for n in range(4)] == [
        (16 * n, 0) for n in range(4)
    ]
    scattering = layout(REDUCE_SCATTER, 256, 4)
    assert [(scattering.sent(n).at, scattering.received(n).at) for n in range(4)] == [
        (0, 16 * n) for n in range(4)
    ]
    poisoned = {op: [layout(op, 256, 3).poisoned(n) for n in range(3)] for op in PRIMITIVES}
    assert poisoned == {
        ALL_REDUCE: [False] * 3, REDUCE_SCATTER: [False] * 3, REDUCE: [False] * 3, ALL_GATHER: [True] * 3,
        BROADCAST: [False, True, True], SCATTER: [False, True, True], GATHER: [True, False, False],
        ALLTOALL: [True] * 3, SENDRECV: [True] * 3,
    }  # fmt: skip


def test_alltoall_and_sendrecv_are_never_in_place() -> None:
    assert [op for op in PRIMITIVES if not layout(op, 256, 2).in_place] == [ALLTOALL, SENDRECV]
    assert not any(layout(op, 256, 2, in_place=False).in_place for op in PRIMITIVES)


def test_what_a_rank_must_have_in_the_end() -> None:
    expected = {op: layout(op, 256, 4).expected(1) for op in PRIMITIVES}
    assert expected == {
        ALL_REDUCE: Sums(), REDUCE: Sums(), REDUCE_SCATTER: Sums(16), BROADCAST: Pieces(64),
        SCATTER: Pieces(16, first=16), ALL_GATHER: Pieces(16, stride=16), GATHER: Pieces(16, stride=16),
        ALLTOALL: Pieces(16, first=16), SENDRECV: Pieces(64, rank=0),
    }  # fmt: skip


def test_the_first_half_of_a_group_sends_to_the_second() -> None:
    made, places = layout(SEND, 256, 4, in_place=False), range(4)
    assert [made.sends(n) for n in places] == [True, True, False, False]
    assert (
        [made.receives(n) for n in places] == [made.poisoned(n) for n in places] == [False, False, True, True]
    )
    assert [made.expected(n) for n in (2, 3)] == [Pieces(64, rank=0), Pieces(64, rank=1)]
    assert [(made.first(n), made.sent(n).at, made.received(n).at) for n in places] == [(0, 0, 0)] * 4


@pytest.mark.parametrize(
    ("changes", "largest"),
    [
        ({"copy_bytes": 0}, "the matrix product"), ({"copy_bytes": 64}, "copies of 64 bytes"),
        ({"copy_bytes": 0, "micro": False, "cases": (Case(0, ALL_REDUCE, 64, "stream", 1),)},
         "all_reduce of 64 bytes"),
        ({"copy_bytes": 32, "micro": False, "cases": (Case(0, ALL_REDUCE, 64, "stream", 1),)},
         "copies of 32 bytes"),
    ],
)  # fmt: skip
def test_what_takes_the_most_room_is_named(changes: dict[str, Any], largest: str) -> None:
    plan = Plan("x", ("a", "b"), ((0, 1),), ops=(), latency_sizes=(), bandwidth=())
    assert room(replace(plan, **changes), 8).largest == largest


def test_what_needs_most_is_named() -> None:
    plan = Plan("x", ("a", "b"), ((0, 1),), ops=(BROADCAST,), bandwidth=((1 << 20, 1),), copy_bytes=1 << 19)
    assert room(plan, 0).largest == "copies of 524288 bytes"
    cases = (Case(0, SENDRECV, 1 << 20, "stream", 1),)
    needed = room(replace(plan, cases=cases), 0)
    assert (needed.received, needed.sent, needed.largest) == (1 << 20, 1 << 20, "sendrecv of 1048576 bytes")
    assert (
        needed.refusal()
        == "no room for buffers of 2097152 bytes; the largest is for sendrecv of 1048576 bytes"
    )
