"""Of a recorded probe only what was asked for is played, and what it does not hold is said."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.probe.drawn import OFF, drawn, on_switch, probe_findings
from tests.node.probe.overnetwork import GDR, over_network
from wirewatch.core.probe import MIB, OPS, PRIMITIVES, Case, Plan, Probed, wrong_in_probed
from wirewatch.probe.measurement import crossings, measure
from wirewatch.probe.model import ProbePolicy
from wirewatch.probe.request import only_asked
from wirewatch.probe.setup import DAEMONS, Variation

SIZES = Plan("", (), ()).sizes()
RECORDED = drawn(on_switch(8, settings=OFF), share={3: 0.5})


def played(
    probed: Probed, ops: Sequence[str] = (), sizes: Sequence[int] = (), variation: Variation = DAEMONS
) -> tuple[set[tuple[str, int]], tuple[str, ...]]:
    found, missing = only_asked(probed, ops, sizes, variation)
    if found is None:
        return set(), missing
    assert found.document is not None
    assert wrong_in_probed(found) == ""
    return {(one.op, one.size_bytes) for one in found.document.collectives}, missing


@given(
    st.lists(st.sampled_from(PRIMITIVES), unique=True),
    st.lists(st.sampled_from([*SIZES, 4, 3 * MIB]), unique=True),
)  # fmt: skip
def test_what_is_played_is_what_was_asked_for_and_recorded(ops: list[str], sizes: list[int]) -> None:
    kept, missing = played(RECORDED, ops, sizes)
    assert kept == {
        (op, size) for op in OPS for size in SIZES if op in (ops or OPS) and size in (sizes or SIZES)
    }
    unknown = [f"op {op}" for op in ops if op not in OPS]
    assert list(missing[: len(unknown)]) == unknown
    assert len(missing) == len(unknown) + len(set(sizes) - set(SIZES))


def test_asked_for_nothing_it_is_the_recorded_probe_itself() -> None:
    assert only_asked(RECORDED, (), (), DAEMONS) == (RECORDED, ())
    assert only_asked(RECORDED, OPS, SIZES, Variation("float32", in_place=True)) == (RECORDED, ())
    ended = replace(RECORDED, document=None, outcome="failed")
    assert only_asked(ended, ("broadcast",), (), DAEMONS) == (ended, ())


def test_a_collective_that_was_not_recorded_at_a_size_is_said() -> None:
    assert RECORDED.document is not None
    kept = tuple(t for t in RECORDED.document.collectives if (t.op, t.size_bytes) != (OPS[1], 256 * MIB))
    holed = replace(RECORDED, document=replace(RECORDED.document, collectives=kept))
    found, missing = played(holed, OPS[:2], (256 * MIB,))
    assert (found, missing) == ({(OPS[0], 256 * MIB)}, (f"{OPS[1]} of 256 MiB",))


@pytest.mark.parametrize(
    ("variation", "words"),
    [
        (Variation(dtype="bfloat16"), "dtype bfloat16 (it is of float32)"),
        (Variation(in_place=False), "out of place"), (Variation(network=True), "transport net"),
        (Variation(iterations=7), "7 timed runs (it has 5, 8, 50)"),
    ],
)  # fmt: skip
def test_a_probe_of_another_kind_holds_nothing_of_it(variation: Variation, words: str) -> None:
    assert played(RECORDED, variation=variation) == (set(), (words,))


def test_what_was_recorded_of_a_study_is_played_where_that_is_asked_for() -> None:
    probed = over_network(GDR, level="SYS")
    for variation in (DAEMONS, Variation(network=True), Variation(network=True, gpudirect=True)):
        assert played(probed, variation=variation) == ({("all_reduce", 256 * MIB)}, ())
    assert played(probed, variation=Variation(gpudirect=False)) == (set(), ("GPUDirect on or off",))
    placed = replace(RECORDED, plan=replace(RECORDED.plan, dtype="int8", in_place=False))
    assert len(played(placed, variation=Variation("int8", in_place=False))[0]) == 21
    assert played(placed, variation=Variation(in_place=True))[1] == ("in place",)


def test_only_sizes_with_so_many_timed_runs_are_those_asked_for() -> None:
    kept, missing = played(RECORDED, variation=Variation(iterations=5))
    assert {size for _, size in kept} == {512 * MIB}
    assert missing == ("5 timed runs (it has 8, 50)",)


def test_cases_of_a_plan_are_played_too() -> None:
    assert RECORDED.document is not None
    timed = replace(RECORDED.document.collectives[0], op="sendrecv", size_bytes=2 * MIB, launch="graph")
    plan = replace(RECORDED.plan, cases=(Case(0, "sendrecv", 2 * MIB, "graph", 9),))
    document = replace(RECORDED.document, collectives=(*RECORDED.document.collectives, timed))
    probed = replace(RECORDED, plan=plan, document=document)
    assert played(probed, ("sendrecv",)) == ({("sendrecv", 2 * MIB)}, ())
    assert played(probed, ("sendrecv",), (), Variation(iterations=9))[1] == ()
    found, _ = only_asked(probed, OPS, (), DAEMONS)
    assert found is not None
    assert found.plan.cases == ()


def test_bytes_counted_over_all_sizes_are_not_held_against_some_of_them() -> None:
    """GPU 3 sent half of what was due: of a whole collective that shows, of one size nothing is known."""
    whole, _ = only_asked(RECORDED, OPS[:1], (), DAEMONS)
    part, _ = only_asked(RECORDED, OPS[:1], (256 * MIB,), DAEMONS)
    assert whole is not None
    assert part is not None
    assert {b.rule for b in probe_findings(whole, ProbePolicy())} == {"probe.path"}
    assert {c.part for c in crossings(whole, measure(whole))} == {"all_reduce.0", "copies"}
    assert {c.part for c in crossings(part, measure(part))} == {"copies"}
