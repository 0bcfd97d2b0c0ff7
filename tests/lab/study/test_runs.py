"""Numbers as nccl-tests prints them, and what follows from a row of them."""

import math

import pytest

from tests.rows import each
from wirewatch_lab.study.runs import (
    BenchmarkRow,
    BenchmarkRun,
    Printed,
    RankGpu,
    RowTiming,
    bus_bandwidth,
    contradiction,
    differs,
    operation_seconds,
    printed,
    settle,
    timing,
)

NAN, INF, GB = math.nan, math.inf, 1e9
MIB = 1 << 20


def figures(
    seconds: float = 1e-3,
    algbw: float = 1.0 * GB,
    busbw: float = 1.75 * GB,
    half: float = 0.0,
    time_half: float = 0.0,
) -> RowTiming:
    return RowTiming(seconds, time_half, algbw, half, busbw, half, 0)


def row(
    size: int = 1_000_000, elements: int = 250_000, dtype: str = "float", redop: str = "sum",
    root: str = "-1", out: RowTiming | None = None, inside: RowTiming | None = None,
) -> BenchmarkRow:  # fmt: skip
    return BenchmarkRow(size, elements, dtype, redop, root, figures() if out is None else out, inside)


def run(
    *rows: BenchmarkRow, op: str = "", ranks: int | None = None, devices: tuple[RankGpu, ...] = ()
) -> BenchmarkRun:
    made = BenchmarkRun(1, op, ranks=ranks, devices=devices)
    for one in rows:
        made.rows.add(one)
    return made


def device(rank: int, group: int = 0) -> RankGpu:
    return RankGpu(rank, group, 100 + rank, "node0", rank, f"0000:{rank:02x}:00", "NVIDIA H200")


@each(
    ("text", "number"),
    [
        ("1.25", Printed(1.25, 0.005)), (".5", Printed(0.5, 0.05)), ("-3e2", Printed(-300.0, 50.0)),
        ("+7", Printed(7.0, 0.5)), ("1.2e+07", Printed(1.2e7, 0.5e6)), ("1e300", Printed(1e300, 0.5e300)),
        ("1e301", None), ("1e-301", None), ("e5", None), ("", None), ("+", None), ("1,5", None),
        ("-inf", Printed(-INF, 0.0)),
        ("Infinity", Printed(INF, 0.0)), ("infinite", None), ("\u0662", None),
    ],
)  # fmt: skip
def test_a_number_has_half_a_unit_of_its_last_digit(text: str, number: Printed | None) -> None:
    found = printed(text)
    assert found == number if number is None or found is None else found == pytest.approx(number, rel=1e-9)


@each(
    ("texts", "wrong"),
    [
        (("1", "2", "3", "0"), 0.0), (("1", "2", "3", "4"), 4.0), (("1", "2", "3", "N/A"), None),
        (("1", "2", "3", "n/a"), None), (("1", "2", "3", None), None), (("1", "2", "3", "nan"), INF),
    ],
)  # fmt: skip
def test_what_was_wrong_is_a_number_or_was_not_checked(
    texts: tuple[str, str, str, str | None], wrong: float | None
) -> None:
    assert timing(*texts, 1e-6) == RowTiming(1e-6, 0.5e-6, 2 * GB, 0.5 * GB, 3 * GB, 0.5 * GB, wrong)


@pytest.mark.parametrize("place", range(4))
def test_figures_of_which_one_is_no_number_are_none(place: int) -> None:
    texts = ["1", "2", "3", "0"]
    texts[place] = "x"
    assert timing(texts[0], texts[1], texts[2], texts[3], 1e-6) is None


def test_the_processors_time_is_no_time_of_an_operation() -> None:
    found = timing("7.5", "2", "3", "0", None)
    assert found is not None
    assert math.isnan(found.seconds)
    assert found.algbw == 2 * GB


@each(
    ("one", "seconds"),
    [
        (figures(2e-3), 2e-3), (figures(0.0), None), (figures(-1.0), None), (figures(INF), None),
        (figures(NAN), 1e-3), (figures(NAN, half=0.0009 * GB), 1e-3), (figures(NAN, half=0.0011 * GB), None),
        (figures(NAN, 0.0), None),
        (figures(NAN, -GB), None), (figures(NAN, INF), None), (figures(NAN, NAN), None),
    ],
)  # fmt: skip
def test_seconds_follow_from_the_bandwidth_where_that_is_exact(one: RowTiming, seconds: float | None) -> None:
    """To a thousandth; and only where the time itself is the processors'."""
    assert operation_seconds(row(), one) == seconds


@each(
    ("made", "one", "rate"),
    [
        (run(op="all_reduce", ranks=8), figures(), 1.75 * GB),
        (run(op="all_reduce", ranks=8), figures(busbw=9 * GB), 1.75 * GB),
        (run(op="all_reduce"), figures(busbw=9 * GB), 9 * GB),
        (run(ranks=8), figures(busbw=9 * GB), 9 * GB),
        (run(op="hypercube", ranks=8), figures(busbw=9 * GB), 9 * GB),
        (run(op="all_reduce", ranks=8), figures(INF, busbw=9 * GB), 9 * GB),
        (run(ranks=8), figures(busbw=INF), None),
        (run(ranks=8), figures(busbw=NAN), None),
    ],
)
def test_busbw_follows_from_the_time_or_is_as_printed(
    made: BenchmarkRun, one: RowTiming, rate: float | None
) -> None:
    assert bus_bandwidth(made, row(), one) == (None if rate is None else pytest.approx(rate))


@each(
    ("op", "one", "other"),
    [
        ("all_reduce", figures(), False),
        ("all_reduce", figures(busbw=1.76 * GB), True),
        ("all_reduce", figures(busbw=1.75 * GB * (1 + 1e-6)), False),
        ("all_reduce", figures(busbw=1.75 * GB * (1 - 1e-6)), False),
        ("all_reduce", figures(busbw=1.75 * GB * (1 + 3e-6)), True),
        ("all_reduce", figures(busbw=1.75 * GB * (1 - 3e-6)), True),
        ("all_reduce", figures(busbw=1.74 * GB), True),
        ("all_reduce", figures(busbw=1.76 * GB, half=0.01 * GB), False),
        ("all_reduce", figures(busbw=1.74 * GB, half=0.01 * GB), False),
        ("all_reduce", figures(busbw=1.76 * GB, time_half=1e-5), False),
        ("all_reduce", figures(busbw=1.74 * GB, time_half=1e-5), False),
        ("all_reduce", figures(busbw=99 * GB, time_half=1e-3), False),
        ("all_reduce", figures(busbw=0.5 * GB, time_half=1e-3), True),
        ("all_reduce", figures(NAN), False),
        ("all_reduce", figures(NAN, busbw=1.76 * GB), True),
        ("all_reduce", figures(NAN, busbw=1.74 * GB), True),
        ("all_reduce", figures(NAN, busbw=1.76 * GB, half=0.005 * GB), False),
        ("all_reduce", figures(0.0, busbw=9 * GB), False),
        ("all_reduce", figures(INF, busbw=9 * GB), False),
        ("all_reduce", figures(busbw=INF), False),
        ("all_reduce", figures(algbw=INF, busbw=9 * GB), False),
        ("hypercube", figures(busbw=9 * GB), False),
    ],
)
def test_a_busbw_differs_where_no_rounding_explains_it(op: str, one: RowTiming, other: bool) -> None:  # noqa: FBT001
    """Of 1 MB in 1 ms over 8 ranks it is 1.75 GB/s."""
    assert differs(op, 8, row(), one) is other


@each(
    ("made", "ranks", "op", "why"),
    [
        (row(), 8, "all_reduce", ""),
        (row(8_000_000, out=figures(8e-3)), 8, "all_gather", ""),
        (row(8_000_000, out=figures(8e-3)), 4, "all_gather", "its size does not follow from its count"),
        (row(8_000_000, out=figures(8e-3)), None, "all_gather", ""),
        (row(1_000_002, out=figures(NAN)), 8, "all_reduce", "its size does not follow from its count"),
        (row(0, 0, out=figures(NAN, 0.0, 0.0)), 8, "all_reduce", ""),
        (row(8, 0, out=figures(NAN, 0.0, 0.0)), 8, "all_reduce", "its size does not follow from its count"),
        (
            row(0, 4, out=figures(NAN, 0.0, 0.0)),
            None,
            "all_gather",
            "its size does not follow from its count",
        ),
        (row(redop="xor"), 8, "all_reduce", "its type or reduction is not known"),
        (row(dtype="half2"), 8, "all_reduce", "its type or reduction is not known"),
        (row(root="3"), 8, "reduce", ""),
        (row(root=""), 8, "all_reduce", ""),
        (row(root=""), 8, "reduce", "reduce has no such root"),
        (row(root="3"), 8, "", ""),
        (row(out=figures(2e-3)), 8, "", "its bandwidth does not follow from its size and time"),
        (row(out=figures(0.5e-3)), 8, "", "its bandwidth does not follow from its size and time"),
        (row(inside=figures(2e-3)), 8, "", "its bandwidth does not follow from its size and time"),
        (row(out=figures(2e-3, half=0.5 * GB)), 8, "", ""),
        (row(out=figures(2e-3, time_half=1e-3)), 8, "", ""),
        (row(out=figures(NAN, 9 * GB)), 8, "", ""),
        (row(out=figures(INF, 9 * GB)), 8, "", ""),
        (row(out=figures(2e-3)), 8, "hypercube", ""),
    ],
)
def test_why_figures_cannot_all_be_true(made: BenchmarkRow, ranks: int | None, op: str, why: str) -> None:
    assert contradiction(made, ranks, op) == why


@each(
    ("made", "op", "ranks"),
    [
        (row(), "all_reduce", 8),
        (row(redop="", out=figures(busbw=0.875 * GB)), "", None),
        (row(redop="none", root="0", out=figures(busbw=1.0 * GB)), "broadcast", None),
        (row(root="0", out=figures(busbw=1.0 * GB)), "reduce", None),
        (row(8_000_000, root="-1", out=figures(8e-3, busbw=0.875 * GB)), "reduce_scatter", 8),
        (row(8_000_000, redop="none", root="0", out=figures(8e-3, busbw=0.875 * GB)), "", None),
        (row(8_000_000, redop="none", out=figures(8e-3, busbw=0.5 * GB)), "", None),
        (row(0, 0, out=figures(NAN, 0.0, 0.0)), "", None),
        (row(8_000_000, out=figures(8e-3, busbw=1.75 * GB)), "", None),
    ],
)  # fmt: skip
def test_columns_and_factor_say_which_operation_it_was(
    made: BenchmarkRow, op: str, ranks: int | None
) -> None:
    """Or leave it open: all_gather and alltoall, gather and scatter print the same."""
    found = run(made)
    settle(found, "")
    assert (found.op, found.ranks) == (op, ranks)


@pytest.mark.parametrize(
    ("redop", "given", "op"), [("none", "", "sendrecv"), ("sum", "", ""), ("sum", "sendrecv", "sendrecv")]
)
def test_sends_have_a_reduction_in_newer_tables_which_says_nothing(redop: str, given: str, op: str) -> None:
    found = run(row(redop=redop, out=figures(busbw=1.0 * GB)))
    settle(found, given)
    assert found.op == op


@pytest.mark.parametrize("wrong", [None, 0.0, 3.0, INF])
def test_rows_are_kept_as_they_are(wrong: float | None) -> None:
    one = figures()._replace(wrong=wrong)
    made = [row(out=one), row(out=one, inside=one, redop="max", root="3"), row()._replace(out_of_place=None)]
    assert list(run(*made).rows) == made


def test_rows_of_different_parts_are_of_no_number_of_ranks() -> None:
    eight, four = (row(n * MIB, MIB // 4, out=figures(n * MIB / GB, busbw=0.875 * GB)) for n in (8, 4))
    found = run(eight, four, op="all_gather")
    settle(found, "")
    assert found.ranks is None


@pytest.mark.parametrize(
    ("given", "op", "op_from", "remarks"),
    [
        ("", "", "", []),
        ("alltoall", "alltoall", "--op", []),
        ("broadcast", "", "", ["it cannot be broadcast: its columns are those of all_gather or alltoall"]),
    ],
)
def test_an_operation_that_is_given_decides_where_columns_leave_it_open(
    given: str, op: str, op_from: str, remarks: list[str]
) -> None:
    found = run(row(8_000_000, redop="none", out=figures(8e-3, busbw=0.875 * GB)))
    settle(found, given)
    assert (found.op, found.op_from, found.remarks) == (op, op_from, remarks)


def test_a_header_with_another_number_of_ranks_is_corrected_only_where_all_rows_agree() -> None:
    devices = tuple(map(device, range(4)))
    one, other = row(), row(out=figures(busbw=1.5 * GB))
    found = run(one, one, op="all_reduce", devices=devices)
    settle(found, "")
    assert (found.ranks, found.differing, len(found.remarks)) == (8, 0, 1)
    found = run(one, other, op="all_reduce", devices=devices)
    settle(found, "")
    assert (found.ranks, found.ranks_from, found.differing, found.remarks) == (4, "its header", 1, [])


@each(
    ("devices", "listed"),
    [
        ((), None), ((device(0),), 1), ((device(1),), None), ((device(0), device(2)), None),
        ((device(0), device(1)), 2), ((device(0), device(1), device(0, 1)), 2), ((device(1), device(0)), 2),
    ],
)  # fmt: skip
def test_ranks_are_listed_where_none_is_missing(devices: tuple[RankGpu, ...], listed: int | None) -> None:
    assert run(devices=devices).listed == listed


@pytest.mark.parametrize(
    ("parameters", "launch"),
    [({}, "eager"), ({"graph": "0"}, "eager"), ({"graph": ""}, "eager"), ({"graph": "1"}, "graph")],
)
def test_operations_are_launched_one_by_one_or_as_a_graph(parameters: dict[str, str], launch: str) -> None:
    assert BenchmarkRun(1, parameters=parameters).launch == launch
