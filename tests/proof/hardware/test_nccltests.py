"""The oracle's tables: read by their header, never guessed at."""

import stat
from pathlib import Path

import pytest

from proof.hardware.kit import KitError
from proof.hardware.nccltests import NcclTests, environment, library, parse, smallest
from tests.recorded import PUBLISHED
from tests.rows import each
from wirewatch.core.probe import OPS

NAMES = "time   algbw   busbw  #wrong"
HEAD = f"""\
# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
#
#                                                          out-of-place                  in-place
#    size       count    type   redop    root     {NAMES}     {NAMES}
#     (B)  (elements)                             (us)  (GB/s)  (GB/s)         (us)  (GB/s)  (GB/s)
"""
LARGE = "268435456  67108864  float  sum  -1  901.25  297.85  297.85  0  894.42  300.12  300.12  2\n"
SMALL = "8  2  float  sum  -1  7.40  0.00  0.00  N/A  7.13  0.00  0.00  N/A\n"
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 150.1 \n#\n"


def test_both_sides_of_each_row() -> None:
    small, large = parse(HEAD + SMALL + LARGE + FOOT)
    assert (small.size_bytes, large.size_bytes) == (8, 268435456)
    assert small.in_place.seconds == pytest.approx(7.13e-6)
    assert small.in_place.wrong is None
    assert large.out_of_place.busbw == pytest.approx(297.85e9)
    assert large.in_place.busbw == pytest.approx(300.12e9)
    assert (large.out_of_place.wrong, large.in_place.wrong) == (0, 2)


def test_columns_are_found_by_name() -> None:
    """Older versions have no root, and call the last column `error`: whether that is a count is not known."""
    head = HEAD.replace("redop    root ", "redop ").replace("#wrong", "error")
    (row,) = parse(head + LARGE.replace("  -1", "").replace("  2\n", "  2e-07\n"))
    assert row.in_place.busbw == pytest.approx(300.12e9)
    assert row.in_place.wrong is None


@each(
    "text",
    [
        "",
        HEAD,
        HEAD + LARGE.replace("  float", ""),
        HEAD + LARGE.replace("-1  901.25", "-1node:1:1 [0] NCCL INFO AllReduce: 268435456 Bytes"),
        HEAD.replace("in-place", "") + LARGE,
        HEAD.replace("(us)", "(ms)") + LARGE,
        HEAD + LARGE.replace("894.42", "********"),
    ],
    ids=["nothing", "no row", "short row", "torn by NCCL's log", "one side", "other units", "no number"],
)
def test_what_is_no_table_is_not_read(text: str) -> None:
    with pytest.raises(KitError):
        parse(text)


@pytest.mark.parametrize(
    "name", ["nccltests.2.18.3.h100x4.allreduce.txt", "nccltests.v2.10era.superbench.broadcast.txt"]
)
def test_published_tables(name: str) -> None:
    rows = parse((PUBLISHED / name).read_text("utf-8"))
    sizes = [row.size_bytes for row in rows]
    assert len(rows) > 10
    assert sizes == sorted(sizes)
    assert all(row.in_place.seconds > 0 for row in rows)


def test_the_version_of_nccl() -> None:
    assert library(HEAD) == "2.28.9"
    assert library("# nccl-library=23003") == "2.30.3"
    assert library("# nothing") == ""


def test_gathered_pieces_are_not_empty() -> None:
    assert [smallest(op, 2) for op in OPS] == [8, 32, 32]


def test_a_missing_folder_is_reported() -> None:
    with pytest.raises(KitError, match=r"give --nccl-tests DIR, .*all_reduce_perf, all_gather_perf"):
        NcclTests(None, 2)


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    with pytest.raises(KitError, match="no program all_reduce_perf"):
        NcclTests(tmp_path, 2)


def _programs(folder: Path, script: str) -> NcclTests:
    for op in OPS:
        program = folder / f"{op}_perf"
        program.write_text(f"#!/bin/sh\n{script}\n", "ascii")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return NcclTests(folder, 2)


def test_a_program_is_run_and_read(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(HEAD + LARGE + FOOT, "ascii")
    oracle = _programs(tmp_path, f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/table')
    table = oracle.sizes("all_reduce", 1 << 28, 1 << 30)
    asked = (tmp_path / "asked").read_text("ascii").split()
    assert asked == ["-b", "268435456", "-e", "1073741824", "-f", "4", "-w", "5", "-n", "20", "-g", "2"]
    assert (table.nccl, table.row(1 << 28).in_place.wrong) == ("2.28.9", 2)
    assert [ran["nccl"] for ran in oracle.ran] == ["2.28.9"]
    with pytest.raises(KitError, match="no row of 1073741824 bytes"):
        table.row(1 << 30)


def test_small_messages_run_as_graphs_where_wanted(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(HEAD + SMALL + FOOT, "ascii")
    oracle = _programs(tmp_path, f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/table')
    assert oracle.small("all_reduce", graphs=5).in_place.seconds == pytest.approx(7.13e-6)
    assert (tmp_path / "asked").read_text("ascii").split() == ["-b", "8", "-e", "8", "-G", "5", "-g", "2"]


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(KitError, match=r"status 3: .*no devices"):
        _programs(tmp_path, "echo no devices >&2; exit 3").run("all_gather")


def test_its_log_is_off() -> None:
    told = environment({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/f", "NCCL_NVLS_ENABLE": "0"})
    assert {name for name in told if name.startswith("NCCL")} == {"NCCL_NVLS_ENABLE"}
