"""From times to bus bandwidths, and what they are compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.probe.drawn import OFF, TWO_H200, broken, drawn, gloo, on_pcie, on_switch, two_islands
from tests.rows import each
from wirewatch.busbw.expected import Expectation
from wirewatch.busbw.references import LEAST_BYTES, Confidence
from wirewatch.core.account import Account, Multicast
from wirewatch.core.probe import MIB, Conditions, LinkBytes, Moved, Part, PathBytes, Probed
from wirewatch.core.types import Absent, Finding, Health, Subject
from wirewatch.nccl.log import logged_size
from wirewatch.probe.measurement import (
    NOT_GPUS,
    QUIET,
    WIRES,
    CollectiveRates,
    Measured,
    asymptotes,
    comms_of,
    crossings,
    detours,
    gpu_names,
    health_of,
    learn_collectives,
    measure,
    new_errors,
    not_as_asked,
    unevenness,
    without_expectation,
    worst_wire,
)

LARGE = 256 * MIB


def one(probed: Probed, op: str = "all_reduce", size: int = LARGE, group: int = 0) -> Measured:
    (found,) = [m for m in measure(probed) if (m.op, m.size_bytes, m.group) == (op, size, group)]
    return found


def test_two_h200_reach_what_nccl_tests_printed() -> None:
    """Times of one probe on two H200s; nccl-tests' busbw of 2 ranks is its algbw for all_reduce."""
    told = drawn(on_switch(2))
    assert one(told).seconds == TWO_H200["all_reduce"][1]
    assert one(told).busbw == pytest.approx(298.6e9, rel=1e-3)
    assert one(told, "all_gather").busbw == pytest.approx(245.0e9, rel=1e-3)
    for m in measure(told):
        if not m.latency:
            assert m.ratio is not None
            assert 0.85 < m.ratio < 1.15
            assert m.peak_ratio == pytest.approx(m.busbw / (18 * 26.562e9))


def test_the_best_run_is_not_worse_than_the_mean_and_the_worst_not_better() -> None:
    m = one(drawn(on_switch(4), fast=1.25))
    assert [m.best / m.busbw, m.lowest / m.busbw] == pytest.approx([1.25, 0.8])


def test_a_time_of_nothing_is_no_bandwidth() -> None:
    told = drawn(on_switch(2))
    assert told.document is not None
    timed = tuple(replace(t, seconds=0.0, low=0.0, high=0.0) for t in told.document.collectives)
    stopped = replace(told, document=replace(told.document, collectives=timed))
    assert {(m.busbw, m.best, m.lowest) for m in measure(stopped)} == {(0.0, 0.0, 0.0)}
    assert asymptotes(measure(stopped)) == {}


def test_small_messages_measure_latency_and_are_compared_with_nothing() -> None:
    small = [m for m in measure(drawn(on_switch(8))) if m.latency]
    assert {m.size_bytes for m in small} == {8, 1024, 8192, 65536}
    assert all(m.ratio is None and m.peak_ratio is None for m in small)


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_the_ratio_is_the_speed(count: int, speed: float) -> None:
    told = drawn(on_switch(count), speed=speed)
    ratios = [m.ratio for m in measure(told) if not m.latency]
    assert ratios == pytest.approx([speed] * 9, rel=0.1)


def test_nvls_may_exceed_the_wire() -> None:
    told = one(drawn(on_switch(8, settings={}), speed=1.2), size=512 * MIB)
    assert told.algorithm == "nvls"
    assert told.ratio == pytest.approx(1.2)
    assert told.peak_ratio is not None
    assert told.peak_ratio > 1
    assert one(drawn(on_switch(8, settings=OFF))).algorithm == "ring"


def test_without_a_reference_there_is_no_ratio() -> None:
    told = [m for m in measure(drawn(on_switch(8, "NVIDIA R100"))) if not m.latency]
    assert len(told) == 9
    assert all(isinstance(m.expected, Absent) and m.ratio is None and m.busbw > 0 for m in told)


def test_the_wire_may_be_known_where_the_share_of_it_is_not() -> None:
    m = one(drawn(two_islands(pins={f"all_gather@{LARGE}": 30e9}, roots=2)), "all_gather")
    assert isinstance(m.expected, Expectation)
    assert m.expected.busbw == 30e9
    assert m.peak_ratio == pytest.approx(m.busbw / 63.015e9, rel=1e-3)


def test_gloo_is_compared_with_nothing() -> None:
    told = measure(gloo())
    assert len(told) == 21
    assert all(isinstance(m.expected, Absent) and "processors" in m.expected.detail for m in told)
    assert {m.gpus for m in told} == {"all"}


@each("outcome", ["failed", "timeout", "preempted", "garbage", "stuck"])
def test_a_probe_that_was_broken_off_measured_nothing(outcome: str) -> None:
    told = drawn(on_switch(2))
    assert measure(replace(told, outcome=outcome)) == ()  # type: ignore[arg-type]
    assert measure(broken(told, "failed")) == ()


# --- what NCCL told of it


@each(
    ("version", "op", "told"),
    [
        ("2.28.9", "all_reduce", LARGE), ("2.28.9", "all_gather", LARGE // 8),
        ("2.24.3", "reduce_scatter", LARGE // 8), ("2.23.4", "all_gather", LARGE),
        ("2.19.3", "reduce_scatter", LARGE),
    ],
)  # fmt: skip
def test_nccl_logs_the_part_of_one_rank_since_2_24(version: str, op: str, told: int) -> None:
    assert logged_size(op, LARGE, 8, version) == told


def test_a_gathers_algorithm_is_found_under_the_size_that_nccl_logs() -> None:
    """The drawn log tells sizes as 2.24 and later do: read as an older one's it is of other messages."""
    new = drawn(on_switch(8), algorithm="tree")
    assert [one(new, op).algorithm for op in new.plan.ops] == ["tree", "ring", "ring"]
    assert one(new, "all_gather").protocol == "simple"
    # 256 MiB over 8 ranks are told as 32 MiB, which no message of the plan has.
    old = drawn(on_switch(8), algorithm="tree", version="2.23.4")
    assert [one(old, op).algorithm for op in old.plan.ops] == ["tree", "", ""]


def test_calls_without_a_name_are_found_by_their_size_and_no_log_says_nothing() -> None:
    told = drawn(on_switch(2))
    assert isinstance(told.account, Account)
    nameless = replace(told.account, calls=tuple(replace(call, op="") for call in told.account.calls))
    assert one(replace(told, account=nameless)).algorithm == "ring"
    without = one(replace(told, account=None))
    assert (without.algorithm, without.protocol) == ("", "")
    assert without.ratio == one(told).ratio


# --- groups


def test_groups_are_named_by_the_indexes_of_their_gpus() -> None:
    told = drawn(two_islands())
    assert [gpu_names(told, group) for group in range(3)] == ["all", "0-3", "4-7"]
    mixed = replace(told, plan=replace(told.plan, groups=((0, 2, 4, 5), (7, 1), (3,))))
    assert [gpu_names(mixed, group) for group in range(3)] == ["0,2,4-5", "1,7", "3"]
    renumbered = replace(told, gpus=tuple(replace(gpu, index=gpu.index + 8) for gpu in told.gpus))
    assert gpu_names(renumbered, 1) == "8-11"
    processors = gloo()
    some = replace(processors, plan=replace(processors.plan, groups=((0, 1), (3,))))
    assert [gpu_names(some, group) for group in range(2)] == ["0-1", "3"]


def test_islands_and_the_whole_are_measured_apart() -> None:
    told = drawn(two_islands(), speeds={0: 1.0, 1: 0.9, 2: 0.6})
    assert [one(told, group=group).ranks for group in range(3)] == [8, 4, 4]
    ratios = [one(told, group=group).ratio for group in range(3)]
    # Of rings over PCIe only single figures are known: for people, not for verdicts.
    assert ratios == [None, pytest.approx(0.9), pytest.approx(0.6)]
    assert one(told).busbw < one(told, group=1).busbw / 5


def test_an_expectation_of_low_confidence_is_shown_and_not_compared_with() -> None:
    told = one(drawn(on_pcie(2), speed=0.5))
    assert not isinstance(told.expected, Absent)
    assert told.expected.confidence is Confidence.LOW
    assert (told.ratio, told.trusted) == (None, None)
    assert isinstance(one(drawn(on_pcie(2)), "all_gather").expected, Absent)


def test_the_asymptote_is_above_what_the_largest_message_reaches() -> None:
    measured = measure(drawn(on_switch(2)))
    found = asymptotes(measured)
    assert set(found) == {(0, "all_reduce"), (0, "all_gather"), (0, "reduce_scatter")}
    assert found[0, "all_reduce"] == pytest.approx(321e9, rel=0.02)
    for (_, op), value in found.items():
        assert value > max(m.busbw for m in measured if m.op == op)


def test_one_size_has_no_asymptote() -> None:
    told = drawn(on_switch(2))
    single = tuple(m for m in measure(told) if m.size_bytes == LARGE)
    assert asymptotes(single) == {}


H200_COUNTED: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "all_reduce.0": ((8008879104, 8008879104), (8008879104, 8008879104)),
    "all_gather.0": ((4004447232, 4004445184), (4004445184, 4004447232)),
    "reduce_scatter.0": ((4004446208, 4004447232), (4004447232, 4004446208)),
    "copies": ((805307392, 805306368), (805306368, 805307392)),
}
"""Bytes sent and received that NVLink counted on two H200s in a probe of the default plan."""
H200_LINKS = (
    934820864, 934808576, 939502592, 939491328, 929545216, 929534976, 938829824, 938867712, 928770048,
    928757760, 935833600, 935855104, 930102272, 930112512, 935671808, 935620608, 938490880, 938464256,
)  # fmt: skip
"""Bytes that the links of one of them sent, over the whole probe."""


def crossed(probed: Probed) -> tuple[PathBytes, ...]:
    return crossings(probed, measure(probed))


def shares(probed: Probed) -> dict[tuple[str, int], float | None]:
    return {(c.part, c.gpu): c.share for c in crossed(probed)}


def as_counted() -> Probed:
    parts = tuple(
        Part(name, 0.1, tuple(Moved(gpu, *both, {}) for gpu, both in enumerate(counted)))
        for name, counted in H200_COUNTED.items()
    )
    return replace(drawn(on_switch(2)), parts=parts)


def test_what_two_h200_counted_is_what_a_ring_sends() -> None:
    found = crossed(as_counted())
    assert {(c.part, c.gpu) for c in found} == {(part, gpu) for part in H200_COUNTED for gpu in (0, 1)}
    for c in found:
        assert c.share == pytest.approx(1.0, abs=1e-4)
        assert c.received == pytest.approx(c.due, rel=1e-4)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_healthy_probe_has_a_share_of_one_in_every_part(count: int) -> None:
    found = shares(drawn(on_switch(count)))
    assert len(found) == 4 * count
    assert list(found.values()) == pytest.approx([1.0] * len(found), abs=1e-6)


def test_through_host_memory_nvlink_carries_nothing() -> None:
    found = shares(drawn(on_switch(4), transport="SHM/direct/direct"))
    assert set(found.values()) == {0.0}


def test_what_one_gpu_sent_another_way_is_seen_on_that_gpu() -> None:
    found = shares(drawn(on_switch(4), share={2: 0.5}))
    assert {gpu for (_, gpu), share in found.items() if share and share < 0.9} == {2}


def test_bytes_that_are_not_known_have_no_share() -> None:
    found = shares(drawn(on_switch(2), share={1: None}))
    assert {share for (_, gpu), share in found.items() if gpu == 1} == {None}
    assert found["all_reduce.0", 0] == pytest.approx(1.0)
    probed = drawn(on_switch(2))
    untold = replace(probed, parts=tuple(replace(part, moved=part.moved[:1]) for part in probed.parts))
    assert shares(untold)["copies", 1] is None


@pytest.mark.parametrize("algorithm", ["tree", "nvls", "collnet", "symmetric"])
def test_for_algorithms_whose_bytes_are_not_known_nothing_is_due(algorithm: str) -> None:
    parts = {c.part for c in crossed(drawn(on_switch(8), algorithm=algorithm))}
    assert parts == {"all_gather.0", "reduce_scatter.0", "copies"}


def test_small_messages_by_a_tree_do_not_take_the_proof_away_unless_there_are_no_others() -> None:
    probed = drawn(on_switch(8))
    assert isinstance(probed.account, Account)
    calls = tuple(
        replace(call, algorithm="tree") if call.protocol == "ll" else call for call in probed.account.calls
    )
    told = replace(probed, account=replace(probed.account, calls=calls))
    assert shares(told)["all_reduce.0", 0] == pytest.approx(1.0, abs=0.01)
    small = crossings(told, [m for m in measure(told) if m.latency])
    assert {c.part for c in small} == {"copies"}


def test_ll_sends_twice_as_much() -> None:
    found = crossed(drawn(on_switch(2), protocol="ll"))
    simple = crossed(drawn(on_switch(2)))
    assert found[0].due == pytest.approx(2 * simple[0].due, rel=0.01)


def test_without_nvlink_or_an_account_nothing_is_due() -> None:
    assert crossed(drawn(on_pcie(4))) == ()
    assert crossed(gloo()) == ()
    untold = replace(drawn(on_switch(2)), account=None)
    assert {c.part for c in crossed(untold)} == {"copies"}
    assert crossed(replace(drawn(on_switch(2)), outcome="timeout")) == crossed(untold)


def test_on_islands_only_their_own_parts_are_proved() -> None:
    found = shares(drawn(two_islands()))
    assert {part for part, _ in found} == {
        f"{op}.{g}" for op in ("all_reduce", "all_gather", "reduce_scatter") for g in (1, 2)
    }
    assert {gpu for part, gpu in found if part.endswith(".2")} == {4, 5, 6, 7}
    assert list(found.values()) == pytest.approx([1.0] * 24, abs=1e-6)


def test_copies_that_go_through_the_host_are_not_due_on_nvlink() -> None:
    probed = drawn(on_switch(2))
    assert probed.document is not None
    copies = tuple(replace(copy, direct=copy.source == 0) for copy in probed.document.copies)
    found = crossed(replace(probed, document=replace(probed.document, copies=copies)))
    assert "copies" not in {c.part for c in found}


@pytest.mark.parametrize(
    ("conditions", "groups", "gpus", "parts"),
    [
        (on_switch(4), slice(None), {0, 1, 2, 3}, True),
        # Only the part is missing.
        (on_switch(4), slice(None), set(), False),
        # Only the kind of wire is wrong.
        (on_pcie(4), slice(None), set(), True),
        # Only the number of groups: copies from island to island take another way.
        (two_islands(), slice(1, None), set(), True),
    ],
)  # fmt: skip
def test_copies_are_due_on_nvlink_where_it_joins_all_gpus_of_the_plan(
    conditions: tuple[Conditions, ...], groups: slice, gpus: set[int], *, parts: bool
) -> None:
    probed = drawn(conditions)
    plan = replace(probed.plan, groups=probed.plan.groups[groups])
    probed = replace(probed, plan=plan, conditions=conditions[groups])
    probed = probed if parts else replace(probed, parts=())
    assert {c.gpu for c in crossings(probed, ())} == gpus


# --- which of them are compared


@each(
    ("change", "named", "learned"),
    [
        ({}, ("all_reduce",), 1),
        ({"latency": True}, (), 0),
        ({"size_bytes": LEAST_BYTES - 4}, (), 0),
        ({"size_bytes": LEAST_BYTES}, ("all_reduce",), 1),
        ({"expected": NOT_GPUS}, (), 1),
        ({"expected": one(drawn(on_switch(2))).expected}, (), 1),
    ],
    ids=["large", "for latency", "too small", "just large enough", "of processors", "expected"],
)  # fmt: skip
def test_large_messages_are_compared_with_what_is_expected_or_with_the_past(
    change: dict[str, Any], named: tuple[str, ...], learned: int
) -> None:
    probed = drawn(on_switch(8, "NVIDIA R100"))
    measured = [replace(one(probed), **change)]
    assert without_expectation(measured) == named
    assert len(learn_collectives(CollectiveRates(), probed, measured).values) == learned


# --- links


def links(*sent: int | None, received: tuple[int | None, ...] | None = None) -> LinkBytes:
    return LinkBytes(0, tuple(range(len(sent))), sent, sent if received is None else received)


def test_the_links_of_an_h200_carry_the_same_within_a_hundredth() -> None:
    found = unevenness(links(*H200_LINKS))
    assert found is not None
    assert found[1] < 0.01


def test_the_link_that_differs_most_is_reported_in_either_direction() -> None:
    assert unevenness(links(100, 100, 100, 20)) == (3, 0.75)
    assert unevenness(links(100, 100, received=(150, 50))) == (0, 0.5)
    skipping = LinkBytes(0, (0, 4, 9), (90, 90, 180), (0, 0, 0))
    assert unevenness(skipping) == (9, 0.5)


def test_a_link_that_carried_nothing_is_uneven_and_one_unknown_is_not() -> None:
    assert unevenness(links(100, 0, 100)) == (1, 1.0)
    assert unevenness(links(100, None, 100)) == (0, 0.0)


@each("sent", [(), (5,), (None, None), (0, 0), (None, 7)])
def test_fewer_than_two_links_with_bytes_are_not_compared(sent: tuple[int | None, ...]) -> None:
    assert unevenness(links(*sent)) is None


@given(st.lists(st.none() | st.integers(0, 10**12), max_size=20))
def test_any_bytes_are_even_or_name_one_of_the_links(sent: list[int | None]) -> None:
    found = unevenness(links(*sent))
    if found is not None:
        assert 0 <= found[0] < len(sent)
        assert 0.0 <= found[1] <= len(sent)


# --- errors and detours


def test_new_errors_are_summed_over_the_parts_and_corrected_ones_are_left_out() -> None:
    assert new_errors(drawn(on_switch(4))) == {}
    assert new_errors(drawn(on_switch(4), errors={3: {"crc": 2, "replay": 1}})) == {
        3: {"crc": 6, "replay": 3}
    }
    assert new_errors(drawn(on_switch(4), errors={1: dict.fromkeys(QUIET, 9)})) == {}


@each(
    ("transport", "wire"),
    [
        ("SHM/direct/direct", "host memory"), ("NET/Socket/0", "TCP sockets"),
        ("NET/IB/0/GDRDMA", "InfiniBand"), ("NET/IB/0", "InfiniBand without GPUDirect"),
        ("NET/AWS Libfabric/1", "a network"), ("CARRIER/PIGEON", "a way that is not known"),
    ],
)  # fmt: skip
def test_a_connection_that_is_none_from_gpu_to_gpu_names_its_wire(transport: str, wire: str) -> None:
    found = detours(drawn(on_switch(2), transport=transport))
    assert {(f.source_rank, f.destination_rank) for f in found} == {(0, 1), (1, 0)}
    assert worst_wire(found) == wire
    assert set(WIRES.values()) >= {wire}


def test_ways_from_gpu_to_gpu_are_none() -> None:
    for way in ("P2P/direct pointer", "P2P/CUMEM", "P2P/IPC/read", "NVLS"):
        assert detours(drawn(on_switch(4), transport=way)) == ()
    assert detours(replace(drawn(on_switch(2)), account=None)) == ()


def test_between_islands_and_on_pcie_host_memory_is_no_detour() -> None:
    assert detours(drawn(on_pcie(4), transport="SHM/direct/direct")) == ()
    assert detours(drawn(two_islands(), whole="SHM/direct/direct")) == ()
    assert len(detours(drawn(two_islands(), transport="SHM/direct/direct", whole="P2P/CUMEM"))) == 4


def test_communicators_are_told_apart_by_their_ranks() -> None:
    probed = drawn(two_islands())
    assert [len(comms_of(probed, (group,))) for group in range(3)] == [1, 2, 2]
    assert len(comms_of(probed, range(3))) == 3
    assert comms_of(replace(probed, account=None), (0,)) == ()


# --- what a probe shows


def unoffered(probed: Probed, *, timed: bool) -> Probed:
    """The same by an engine that lacks two collectives of the plan; `timed`: others were measured."""
    assert probed.document is not None
    document = replace(probed.document, not_offered=("gather", "scatter"))
    return replace(probed, document=document if timed else replace(document, collectives=()))


@each(
    ("probed", "findings", "health", "why"),
    [
        (None, (), Health.UNKNOWN, ""),
        (drawn(on_switch(2)), (), Health.OK, ""),
        (broken(drawn(on_switch(2)), "timeout"), (), Health.UNKNOWN, ""),
        (unoffered(drawn(on_switch(2)), timed=True), (), Health.OK, ""),
        (
            unoffered(drawn(on_switch(2)), timed=False), (), Health.UNKNOWN,
            "the engine nccl does not offer gather, scatter",
        ),
        (drawn(on_switch(2)), (Health.DEGRADED,), Health.DEGRADED, ""),
        (broken(drawn(on_switch(2)), "timeout"), (Health.DEGRADED,), Health.UNKNOWN, ""),
        (broken(drawn(on_switch(2)), "timeout"), (Health.FAILED,), Health.FAILED, ""),
    ],
)  # fmt: skip
def test_what_did_not_end_or_was_not_offered_is_unknown_at_least(
    probed: Probed | None, findings: tuple[Health, ...], health: Health, why: str
) -> None:
    held = [Finding("probe.busbw", one, Subject(), "as drawn", "as drawn") for one in findings]
    assert health_of(probed, held) is health
    if probed is not None:
        assert not_as_asked(probed) == why


def with_multicast(probed: Probed, offered: Sequence[bool]) -> Probed:
    """The same, with what NCCL's log says of each device."""
    assert probed.account is not None
    nvls = tuple(Multicast(n, one, 16) for n, one in enumerate(offered))
    return replace(probed, account=replace(probed.account, nvls=nvls))


def test_whether_nvls_is_expected_is_known_by_the_driver_and_else_by_nccl_s_log() -> None:
    def expected(probed: Probed) -> str:
        found = one(probed).expected
        assert isinstance(found, Expectation)
        return f"{found.algorithm} {any('taken as given' in step for step in found.derivation)}"

    probed = drawn(on_switch(8, settings={}))
    known = replace(probed, conditions=tuple(replace(c, multicast=True) for c in probed.conditions))
    assert expected(with_multicast(probed, [True] * 8)) == "NVLS False"
    assert expected(with_multicast(probed, [True, *[False] * 7])) == "Ring False"
    assert expected(with_multicast(probed, ())) == "NVLS True", "neither says so"
    assert expected(replace(probed, account=None)) == "NVLS True"
    assert expected(with_multicast(known, [False] * 8)) == "NVLS False"


@pytest.mark.parametrize(
    ("dtype", "op", "trusted"),
    [
        ("float32", "all_reduce", True),
        ("bfloat16", "all_reduce", False),
        ("bfloat16", "reduce_scatter", False),
        ("bfloat16", "all_gather", True),
    ],
)
def test_sums_are_judged_with_the_elements_of_the_references(dtype: str, op: str, *, trusted: bool) -> None:
    for product in ("NVIDIA H200", "NVIDIA R100"):
        probed = drawn(on_switch(8, product))
        found = one(replace(probed, plan=replace(probed.plan, dtype=dtype)), op)
        assert (found.trusted is not None) is (trusted and product == "NVIDIA H200")
    said = [step for step in one(drawn(on_switch(8))).expected.derivation if "is added up" in step]  # type: ignore[union-attr]
    assert said == []


@pytest.mark.parametrize(("times", "known"), [(6, True), (10, False)])
def test_a_fiftieth_of_what_is_due_may_be_guessed(times: int, *, known: bool) -> None:
    """64 MiB by a tree, of which it is not known what a GPU sends, beside 100 times 256 MiB by a ring."""
    probed = drawn(on_switch(8))
    assert probed.document is not None
    large, small = 256 * MIB, 64 * MIB
    runs = {large: 100, small: times}
    timed = tuple(
        replace(t, runs=runs[t.size_bytes])
        for t in probed.document.collectives
        if t.op == "all_reduce" and t.size_bytes in runs
    )
    probed = replace(probed, document=replace(probed.document, collectives=timed))
    measured = [
        replace(m, latency=m.size_bytes == small, algorithm="tree" if m.size_bytes == small else "ring")
        for m in measure(probed)
    ]
    parts = {c.part: c.due for c in crossings(probed, measured)}
    assert ("all_reduce.0" in parts) is known
    if known:
        assert parts["all_reduce.0"] == pytest.approx(2 * 7 / 8 * large * 100 + 2 * small * times)


def test_without_parts_and_for_chains_nothing_is_due() -> None:
    probed = drawn(on_switch(4))
    assert crossed(replace(probed, parts=())) == ()
    chained = replace(probed, plan=replace(probed.plan, ops=("broadcast",)))
    assert chained.document is not None
    timed = tuple(replace(t, op="broadcast") for t in chained.document.collectives if t.op == "all_reduce")
    chained = replace(chained, document=replace(chained.document, collectives=timed))
    measured = [replace(m, algorithm="ring", protocol="simple") for m in measure(chained)]
    parts = tuple(replace(part, name="broadcast.0") for part in chained.parts[:1])
    assert crossings(replace(chained, parts=parts), measured) == ()


def test_processors_are_not_learned() -> None:
    probed = gloo()
    assert learn_collectives(CollectiveRates(), probed, measure(probed)).values == {}
