"""Every output of nccl-tests that was recorded or published, beside a reading of its own."""

import json
import re
from pathlib import Path

import pytest

from tests.recorded import OWN, PUBLISHED
from wirewatch.busbw.formulas import FACTORS, busbw
from wirewatch_lab.study.nccljson import mixed_lines
from wirewatch_lab.study.nccltests import Reader
from wirewatch_lab.study.runs import BenchmarkRun, operation_seconds, shortfall

FILES = sorted(file for place in (PUBLISHED, OWN) for file in place.glob("nccl*tests*"))
FIGURE = r"([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(?:0e\+00|0|N/A)"
"""Microseconds, algbw, busbw, and what was wrong, which nothing is in these."""


def read(file: Path) -> BenchmarkRun:
    reader = Reader()
    with file.open("rb") as opened:
        for _ in mixed_lines(opened, reader):
            pass
    (run,) = reader.runs
    assert (reader.not_understood, reader.failures) == (0, [])
    return run


def expected_rows(text: str) -> list[tuple[int, float, float, float, float]]:
    """Size, then microseconds and busbw of both placements: the text without what NCCL logged."""
    host = re.search(r" on\s+(\S+)\s+device", text)
    assert host
    # A line of the log ends where it ends; what it tore begins again on a line without a log.
    plain = re.sub(rf"(?:{re.escape(host[1])}|hostname):\d+:\d+ \[\d+\] NCCL .*\n", "", text)
    pattern = re.compile(
        rf"^ *(\d+)\s+\d+\s+float\s+(?:sum|none)?\s*(?:-1|0)?\s+{FIGURE}\s+{FIGURE}\s*$", re.MULTILINE
    )
    found = pattern.findall(plain)
    return [(int(one[0]), float(one[1]), float(one[3]), float(one[4]), float(one[6])) for one in found]


def test_there_are_files_where_there_should_be() -> None:
    assert len(FILES) >= 12


@pytest.mark.parametrize("file", [f for f in FILES if f.suffix == ".txt"], ids=lambda file: file.name)
def test_published_tables(file: Path) -> None:
    text = file.read_text("utf-8")
    run, rows = read(file), expected_rows(text)
    found = [
        (
            row.size_bytes,
            *(round(figure, 9) for _, one in row.placed() for figure in (one.seconds, one.busbw)),
        )
        for row in run.rows
    ]
    assert found == [
        (size, *(round(x, 9) for x in (out / 1e6, bus * 1e9, inside / 1e6, other * 1e9)))
        for size, out, bus, inside, other in rows
    ]
    assert len(rows) in {6, 9, 30, 31, 34}
    assert run.ranks == len(re.findall(r"^#\s+Rank", text, re.MULTILINE))
    named = re.search(r"starting: (\w+)_perf", text)
    assert run.op == (named[1] if named else "broadcast" if "broadcast" in file.name else "all_reduce")
    average = re.search(r"Avg bus bandwidth\s*:\s*(\S+)", text)
    assert average
    assert run.average == pytest.approx(float(average[1]) * 1e9)
    assert (run.ended, run.differing, shortfall(run)) == (True, 0, "")


@pytest.mark.parametrize("file", [f for f in FILES if f.suffix == ".json"], ids=lambda file: file.name)
def test_published_documents(file: Path) -> None:
    document, run = json.loads(file.read_text("utf-8")), read(file)
    assert run.op in FACTORS
    for row, result in zip(run.rows, document["results"], strict=True):
        for name, one in (("out_of_place", row.out_of_place), ("in_place", row.in_place)):
            assert one is not None
            seconds = operation_seconds(row, one)
            assert seconds == pytest.approx(result[name]["time"] / 1e6)
            assert busbw(run.op, run.ranks or 0, row.size_bytes, seconds or 1) == pytest.approx(
                result[name]["bus_bw"] * 1e9, rel=1e-6
            )
