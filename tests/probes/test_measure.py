"""From times to bus bandwidths, and what they are compared with."""

from dataclasses import replace

import pytest

from tests.probes.drawn import (
    OFF,
    TWO_H200,
    broken,
    drawn,
    gloo,
    on_pcie,
    on_switch,
    two_islands,
)
from wirewatch.busbw.expected import Expectation
from wirewatch.busbw.references import Confidence
from wirewatch.core.account import Account
from wirewatch.core.probe import MIB, Probed
from wirewatch.core.types import Absent
from wirewatch.nccl.log import size_told
from wirewatch.probe.measurement import Measured, asymptotes, gpu_names, measure

LARGE = 256 * MIB


def one(probed: Probed, op: str = "all_reduce", size: int = LARGE, group: int = 0) -> Measured:
    (found,) = [m for m in measure(probed) if (m.op, m.size_bytes, m.group) == (op, size, group)]
    return found


def test_two_h200_reach_what_nccl_tests_told() -> None:
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
    assert m.best_ratio == pytest.approx(1.25)


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
    assert all(m.ratio is None and m.peak_ratio is None and m.best_ratio is None for m in small)


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


@pytest.mark.parametrize("outcome", ["failed", "timeout", "preempted", "garbage", "stuck"])
def test_a_probe_that_was_broken_off_measured_nothing(outcome: str) -> None:
    told = drawn(on_switch(2))
    assert measure(replace(told, outcome=outcome)) == ()  # type: ignore[arg-type]
    assert measure(broken(told, "failed")) == ()


# --- what NCCL told of it


@pytest.mark.parametrize(
    ("version", "op", "told"),
    [
        ("2.28.9", "all_reduce", LARGE), ("2.28.9", "all_gather", LARGE // 8),
        ("2.24.3", "reduce_scatter", LARGE // 8), ("2.23.4", "all_gather", LARGE),
        ("2.19.3", "reduce_scatter", LARGE),
    ],
)  # fmt: skip
def test_nccl_tells_of_the_part_of_one_rank_since_2_24(version: str, op: str, told: int) -> None:
    assert size_told(op, LARGE, 8, version) == told


def test_a_gathers_algorithm_is_found_under_the_size_that_nccl_tells() -> None:
    """The drawn log tells sizes as 2.24 and later do: read as an older one's it is of other messages."""
    new = drawn(on_switch(8), algorithm="tree")
    assert [one(new, op).algorithm for op in new.plan.ops] == ["tree", "ring", "ring"]
    assert one(new, "all_gather").protocol == "simple"
    # 256 MiB over 8 ranks are told as 32 MiB, which no message of the plan has.
    old = drawn(on_switch(8), algorithm="tree", version="2.23.4")
    assert [one(old, op).algorithm for op in old.plan.ops] == ["tree", "", ""]


def test_calls_without_a_name_are_found_by_their_size_and_no_log_tells_nothing() -> None:
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
