"""nccl-tests' formulas, against the numbers that it printed itself."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.node.busbw.tables import A100, H100_FOUR, H100_TWO, H200, MIB, rows
from tests.rows import each
from wirewatch.busbw.formulas import FACTORS, OVERHEADS, Line, Sent, asymptote, busbw, factor, fit, wire_bytes
from wirewatch.core.types import Absent, Why

OPS = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"]
RANKS = st.integers(2, 72)
SIZES = st.integers(1, 2**36)


@each("op", OPS)
def test_bus_bandwidth_is_what_nccl_tests_printed_for_eight_h200(op: str) -> None:
    table = rows(H200.format(op))
    assert len(table) == 9
    for size, row in table.items():
        assert size / row.seconds == pytest.approx(row.algbw, rel=2e-3, abs=6e6)
        assert busbw(op, 8, size, row.seconds) == pytest.approx(row.busbw, rel=2e-3, abs=6e6)


@pytest.mark.parametrize(("name", "ranks", "count"), [(H100_FOUR, 4, 31), (H100_TWO, 2, 6), (A100, 8, 33)])
def test_bus_bandwidth_is_what_nccl_tests_printed_in_other_versions(
    name: str, ranks: int, count: int
) -> None:
    table = rows(name)
    assert len(table) == count
    for size, row in table.items():
        assert busbw("all_reduce", ranks, size, row.seconds) == pytest.approx(row.busbw, rel=2e-3, abs=6e6)


@each(
    ("op", "ranks", "share"),
    [
        ("all_reduce", 2, 1.0), ("all_reduce", 4, 1.5), ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875), ("reduce_scatter", 2, 0.5), ("alltoall", 4, 0.75),
        ("gather", 8, 0.875), ("scatter", 8, 0.875),
        ("broadcast", 8, 1.0), ("reduce", 8, 1.0), ("sendrecv", 8, 1.0),
    ],
)  # fmt: skip
def test_the_factor_of_each_collective(op: str, ranks: int, share: float) -> None:
    assert factor(op, ranks) == share


def test_one_rank_has_no_bus() -> None:
    assert factor("all_reduce", 1) == factor("all_gather", 1) == 0


@pytest.mark.parametrize(("op", "ranks"), [("allreduce", 8), ("", 8), ("all_reduce", 0), ("all_reduce", -1)])
def test_what_is_no_collective_of_nccl_tests_raises(op: str, ranks: int) -> None:
    with pytest.raises(ValueError, match="no bus bandwidth"):
        factor(op, ranks)


@given(
    st.floats(-50e-6, 500e-6),
    st.floats(1e9, 2e12),
    st.lists(st.integers(24, 34), min_size=2, max_size=8, unique=True),
)
def test_a_line_is_found_again(intercept: float, rate: float, exponents: list[int]) -> None:
    line = Line(intercept, rate)
    points = [(2**e, line.seconds(2**e)) for e in exponents]
    assume(min(seconds for _, seconds in points) > 1e-6)
    found = fit(points)
    assert isinstance(found, Line)
    assert found.bytes_per_second == pytest.approx(rate, rel=1e-6)
    assert found.intercept == pytest.approx(intercept, rel=1e-4, abs=1e-9 + 1e-6 * max(t for _, t in points))


@given(st.permutations([(2**26, 363.88e-6), (2**28, 1353.46e-6), (2**30, 5234.09e-6)]))
def test_the_order_of_the_points_does_not_matter(points: list[tuple[int, float]]) -> None:
    found = fit(points)
    assert isinstance(found, Line)
    assert found.bytes_per_second == pytest.approx(205.53e9, rel=1e-3)


def test_of_messages_on_no_line_all_count_alike_or_the_largest_decide() -> None:
    points = [(1, 1.0), (10, 2.0), (100, 20.0)]
    alike, largest = fit(points), fit(points, alike=False)
    assert isinstance(alike, Line)
    assert isinstance(largest, Line)
    assert largest.seconds(100) == pytest.approx(20.0, rel=1e-3)
    assert alike.seconds(100) < 17.0


def test_two_sizes_predict_eight_h200_at_four_times_the_larger_one() -> None:
    table = rows(H200.format("all_reduce"))
    points = [(size, table[size].seconds) for size in (64 * MIB, 256 * MIB)]
    told = asymptote("all_reduce", 8, points)
    assert isinstance(told, float)
    assert told == pytest.approx(table[1024 * MIB].busbw, rel=0.02)
    assert told == pytest.approx(table[4096 * MIB].busbw, rel=0.04)


@each(
    ("points", "why"),
    [
        ([], Why.MISSING),
        ([(MIB, 1e-3)], Why.MISSING),
        ([(MIB, 1e-3), (MIB, 2e-3)], Why.MISSING),
        ([(MIB, 2e-3), (2 * MIB, 1e-3)], Why.MALFORMED),
        ([(MIB, 1e-3), (2 * MIB, 1e-3)], Why.MALFORMED),
        ([(MIB, 0.0), (2 * MIB, 1e-3)], Why.MALFORMED),
        ([(MIB, -1e-3), (2 * MIB, 1e-3)], Why.MALFORMED),
    ],
)
def test_what_is_no_line_is_absent(points: list[tuple[int, float]], why: Why) -> None:
    for told in (fit(points), asymptote("all_reduce", 8, points)):
        assert isinstance(told, Absent)
        assert told.why is why


@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]), RANKS, SIZES)
def test_by_ring_a_gpu_sends_what_bus_bandwidth_counts(op: str, ranks: int, size: int) -> None:
    assert wire_bytes(op, "RING", ranks, size) == Sent(factor(op, ranks) * size, alike=True)


@given(RANKS, SIZES)
def test_by_tree_gpus_differ_and_send_as_much_on_average(ranks: int, size: int) -> None:
    told = wire_bytes("all_reduce", "Tree", ranks, size)
    assert told == Sent(2 * (ranks - 1) / ranks * size, alike=False)


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_a_ring_runs_some_collectives_as_a_chain_whose_ends_differ(op: str) -> None:
    assert wire_bytes(op, "ring", 8, 800) == Sent(700.0, alike=False)


def test_protocols_carry_flags_beside_the_payload() -> None:
    plain, ll, ll128 = (wire_bytes("all_reduce", "RING", 8, 2**20, p) for p in ("SIMPLE", "ll", "LL128"))
    assert isinstance(plain, Sent)
    assert ll == Sent(2 * plain.bytes, alike=True)
    assert isinstance(ll128, Sent)
    assert ll128.bytes == pytest.approx(plain.bytes * 128 / 120)


@given(st.sampled_from(sorted(FACTORS)), st.sampled_from(sorted(OVERHEADS)), RANKS, SIZES)
def test_what_goes_through_the_switch_s_adders_is_not_known(
    op: str, proto: str, ranks: int, size: int
) -> None:
    assert isinstance(wire_bytes(op, "NVLS", ranks, size, proto), Absent)


@each(
    ("op", "algorithm", "protocol"),
    [
        ("all_gather", "TREE", "SIMPLE"), ("alltoall", "RING", "SIMPLE"), ("sendrecv", "RING", "SIMPLE"),
        ("all_reduce", "COLLNET_DIRECT", "SIMPLE"), ("all_reduce", "", "SIMPLE"),
        ("all_reduce", "RING", "LL256"),
    ],
)  # fmt: skip
def test_what_no_ring_or_tree_does_is_not_known(op: str, algorithm: str, protocol: str) -> None:
    told = wire_bytes(op, algorithm, 8, 2**20, protocol)
    assert isinstance(told, Absent)
    assert told.why is Why.UNSUPPORTED
