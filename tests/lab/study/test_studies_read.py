"""Outputs of nccl-tests that pages, launchers and missing MPI have mangled: what is read of them."""

from dataclasses import replace

import pytest

from tests.lab.study import printed
from tests.lab.study.printed import Job
from tests.lab.study.test_nccltests import read
from tests.recorded import STUDIES
from wirewatch_lab.study.runs import BenchmarkRun


def only(lines: list[str]) -> BenchmarkRun:
    reader = read(lines)
    (run,) = reader.runs
    assert reader.not_understood == 0
    return run


def of_file(name: str) -> BenchmarkRun:
    return only((STUDIES / name).read_text("utf-8").splitlines())


def test_a_launchers_tag_inside_a_row_is_no_part_of_it() -> None:
    """The header was cut too: the busbw is that of 24 ranks."""
    run = of_file("nccl1453.txt")
    assert (len(run.rows), run.op, run.ranks) == (10, "all_reduce", 24)
    first = next(iter(run.rows))
    assert first.out_of_place is not None
    assert first.in_place is not None
    assert (first.out_of_place.seconds, first.in_place.seconds) == pytest.approx((1626.5e-6, 2302.3e-6))


def test_tags_are_taken_out_of_rows_alone() -> None:
    """A tag that a device's address contains stays there."""
    lines = [f"[0] {line}" for line in printed.lines(Job())]
    rows = [line.replace("     -1", "     -1[0]") for line in lines]
    for text in (lines, rows):
        run = only(text)
        assert [device.bus_id for device in run.devices][:2] == ["0000:00:00", "0000:01:00"]
        assert len(run.rows) == 2


def test_a_page_that_lost_the_marks_of_headings_is_read_whole() -> None:
    run = of_file("a3mega.txt")
    assert (len(run.devices), run.ranks, run.ranks_from) == (16, 16, "its header")
    assert run.parameters["maxBytes"] == "8589934592"
    assert (run.nodes, run.mixed) == (2, "")


def test_nodes_of_one_name_are_told_apart_by_their_gpus() -> None:
    run = only(printed.lines(Job(ranks=16, hosts=2)))
    assert run.nodes == 2
    alike = replace(run, devices=tuple(device._replace(host="pod") for device in run.devices))
    # The writer of these lines gives each rank another address.
    assert alike.nodes == 1
    same = replace(alike, devices=tuple(device._replace(bus_id="0x10") for device in alike.devices))
    assert same.nodes == 2


def test_separate_runs_of_a_test_without_mpi_are_told_apart_from_one() -> None:
    mixed = of_file("h100x8-nompi-mixed.txt")
    assert mixed.mixed == (
        "rank 0 is on node01 (process 1234) and on node02 (process 5678): separate runs, as of nccl-tests "
        "without MPI"
    )
    one = only(printed.lines(Job(ranks=16, hosts=2)))
    assert one.mixed == ""
    groups = replace(one, devices=tuple(d._replace(group=d.rank % 2, rank=d.rank // 2) for d in one.devices))
    assert groups.mixed == ""
