"""`wirewatch compare A B`: as a process, over sweeps and what nccl-tests printed."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.lab.study.drawn import SHORT, Noise, curve, study
from tests.lab.study.sweeps import Node, header
from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import USAGE, refused
from tests.processes import run_wirewatch
from wirewatch_lab.cli.compare import comparison_text
from wirewatch_lab.cli.texts import first_lines
from wirewatch_lab.study.compare import compare
from wirewatch_lab.study.curve import Study

MIB = 1 << 20
HEADER = (
    "# nThread 1 nGpus 4 minBytes 8 maxBytes 1048576 step: 131072(factor) warmup iters: 5 iters: 20\n"
    "# Collective test starting: all_reduce_perf\n"
    "# Using devices\n"
    + "".join(
        f"#  Rank  {n} Group  0 Pid 1 on node device  {n} [0000:4{n}:00] NVIDIA H200\n" for n in range(4)
    )
    + "#                                         out-of-place                in-place\n"
    "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)\n"
)
TOPOLOGY = (
    '<system version="1"><cpu numaid="0"><pci busid="0000:18:00.0" class="0x030200">'
    '<gpu dev="0" sm="90" rank="0"/></pci></cpu></system>'
)


def printed(us: float) -> str:
    """A run of nccl-tests of 8 B and 1 MiB, written by hand."""
    rows = []
    for size in (8, MIB):
        rate = size / us / 1e3
        half = f"{us:.2f} {rate:.2f} {1.5 * rate:.2f} 0"
        rows.append(f"{size} {size // 4} float sum -1 {half} {half}\n")
    return HEADER + "".join(rows) + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n"


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("".join(printed(us) for us in (30.0, 30.1, 29.9, 30.2, 29.8)), "utf-8")
    (tmp_path / "b").write_text("".join(printed(us) for us in (40.0, 40.1, 39.9, 40.2, 39.8)), "utf-8")
    (tmp_path / "once").write_text(printed(31.0), "utf-8")


def test_runs_of_nccl_tests_in_one_file_are_repeats() -> None:
    done = run_wirewatch("compare", "a", "b", "--fail-under", "97")
    assert (done.returncode, done.stderr) == (1, "")
    assert "2 curves in common: 2 of them changed by more than the spread." in done.stdout
    assert "DEGRADED: B must keep 97.0% of A's speed, and keeps 75.0% at " in done.stdout
    assert run_wirewatch("compare", "a", "b").returncode == 0
    same = run_wirewatch("compare", "a", "a", "--fail-under", "97")
    assert same.returncode == 0
    assert "2 curves in common: nothing changed by more than the spread." in same.stdout


def test_a_single_run_is_not_judged() -> None:
    done = run_wirewatch("compare", "a", "once", "--fail-under", "97")
    assert done.returncode == 3
    assert "no spread, not judged" in done.stdout
    assert "(-3.2%)" in done.stdout
    assert run_wirewatch("compare", "a", "once").returncode == 0


def test_single_runs_that_are_far_apart_are_judged(tmp_path: Path) -> None:
    """At 1 MiB alone, between latency and bandwidth, one run may be an outlier; three sizes are none."""
    (tmp_path / "far").write_text(printed(103.3), "utf-8")
    done = run_wirewatch("compare", "once", "far", "--fail-under", "97")
    assert done.returncode == 3
    for name, us in (("fast", 30.0), ("slow", 100.0)):
        (tmp_path / name).write_text(large(us), "utf-8")
    done = run_wirewatch("compare", "fast", "slow", "--fail-under", "97")
    assert done.returncode == 1
    assert "no spread, and 2 of them changed by more than healthy runs of one machine differ" in done.stdout
    assert "DEGRADED: B must keep 97.0% of A's speed, and keeps 30.0% at " in done.stdout
    assert run_wirewatch("compare", "fast", "slow").returncode == 0
    near = run_wirewatch("compare", "fast", "fast", "--fail-under", "97")
    assert (near.returncode, "no spread, not judged" in near.stdout) == (3, True)


def large(us: float) -> str:
    """A run of nccl-tests of 16 MiB alone."""
    rate = 16 * MIB / us / 1e3
    half = f"{us:.2f} {rate:.2f} {1.5 * rate:.2f} 0"
    row = f"{16 * MIB} {4 * MIB} float sum -1 {half} {half}\n"
    return HEADER + row + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n"


def test_as_json() -> None:
    done = run_wirewatch("compare", "a", "b", "--json")
    assert complaints("wirewatch.compare.1", done.stdout) == []
    assert json.loads(done.stdout)["changed"] > 0


def test_a_folder_its_document_and_a_copy_of_it_are_the_same(tmp_path: Path) -> None:
    Node(tmp_path / "sweep", stops=40).sweep(header())
    exported = run_wirewatch("sweep", "--export", "sweep")
    assert exported.returncode == 0, exported.stderr
    assert "sweep.csv, sweep.json, report.html" in exported.stdout
    done = run_wirewatch("compare", "sweep", "sweep/sweep.json", "--fail-under", "99.9")
    assert "changed" not in done.stdout.replace("nothing changed by more than the spread", "")
    assert done.returncode == 0, done.stdout


OLD = ("sweep", "--compare")
"""The name of before."""
WRONG = [
    (("compare", "a", "none"), "none: No such file or directory"),
    (("compare", "a", "."), "holds no sweep: sweep.jsonl: No such file"),
    (("compare", "a", "torn"), "torn is no sweep.json of a sweep"),
    (("compare", "text", "a"), "in 1 line"),
    (("compare", "topo", "a"), "no table of nccl-tests is in it"),
    (("compare", "zeros", "a"), "it is binary, not text"),
    (("compare", "a"), "Missing argument 'B'"),
    (("compare", "a", "b", "--size", "8"), "No such option '--size'"),
    (("compare", "a", "b", "--fail-under", "nan"), "--fail-under: 'nan' is not a number above 0"),
    ((*OLD, "a", "none"), "none: No such file or directory"),
    ((*OLD, "a"), "Option '--compare' requires 2 arguments"),
    ((*OLD, "a", "b", "--size", "8"), "--compare measures nothing: without --size"),
    ((*OLD, "a", "b", "--out", "x"), "--compare measures nothing: without --out"),
    ((*OLD, "a", "b", "--fail-under", "nan"), "--fail-under: 'nan' is not a number above 0"),
    (("sweep", "--out", "x", "--fail-under", "97"), "--fail-under, --json and --explain go with --compare"),
    (("sweep", "--out", "x", "--json"), "--fail-under, --json and --explain go with --compare"),
]


def test_the_name_of_before_answers_the_same() -> None:
    given = ("a", "b", "--fail-under", "97")
    now, before = run_wirewatch("compare", *given), run_wirewatch(*OLD, *given)
    assert (now.returncode, now.stdout, now.stderr) == (before.returncode, before.stdout, before.stderr)
    assert now.returncode == 1


@pytest.mark.parametrize(("words", "why"), WRONG)
def test_what_cannot_be_compared_is_one_line(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    (tmp_path / "torn").write_text('{"schema": "wirewatch.sweep/1", "at": ', "utf-8")
    (tmp_path / "text").write_text("nothing of that\n", "utf-8")
    (tmp_path / "topo").write_text(TOPOLOGY, "utf-8")
    (tmp_path / "zeros").write_bytes(bytes(100))
    assert why in refused(USAGE, *words)


def test_a_first_answer_has_the_verdict_and_15_lines_at_most() -> None:
    random = Random(5)  # noqa: S311 - noise
    one = study(random, Noise(), 2, SHORT)
    torn = replace(one, problems=tuple(f"row {n} is torn" for n in range(20)))
    text = comparison_text(compare(torn, one), 0.9)
    assert "of A's speed" in "".join(text.splitlines()[:6])
    cut = first_lines(text, explain=False).splitlines()
    assert (len(cut), cut[-1]) == (15, f"{len(text.splitlines()) - 14} more lines: --explain")


def test_what_is_in_one_alone_and_what_is_wrong_is_said() -> None:
    random = Random(3)  # noqa: S311 - noise
    a, b = study(random, Noise(), 2, SHORT), study(random, Noise(), 1, SHORT)
    points = b.curves[0].points
    wrong = replace(b.curves[0], points=(*points[1:-1], replace(points[-1], wrong=3)))
    b = replace(
        b, curves=(wrong, curve({8: 20.0}, op="reduce")), environment={"driver": "590"}, problems=("torn",)
    )
    text = comparison_text(compare(a, b))
    assert ["NCCL", "2.30.7", "not", "known"] in [line.split() for line in text.splitlines()]
    assert text.index("may be the reason:") < text.index("in common")
    assert "auto NCCL_MAX_NCHANNELS=1: only in A: 1 size, 8 B" in text
    assert "WRONG VALUES in B, not compared: 1 size, 8 GiB" in text
    assert "auto NCCL_MAX_NCHANNELS=2: not compared: only in A" in text
    assert "reduce, 4 ranks, float32, in place, auto: not compared: only in B" in text
    assert "problem in B: torn" in text
    assert "A and B have no curve in common." in comparison_text(compare(a, Study(0, "", {}, ())))


def test_a_size_that_stands_out_of_its_regime_is_named() -> None:
    random = Random(4)  # noqa: S311 - noise
    a = study(random, Noise(0.002), 1)
    b = study(random, Noise(0.002), 1, shift=lambda _, size: 0.4 if size == MIB else 0.03)
    named = [line for line in comparison_text(compare(a, b)).splitlines() if line.endswith(" *")]
    assert [line.split(": ")[1] for line in named] == ["1 MiB"]


def test_repeats_that_differ_too_much_are_no_lack_of_repeats(tmp_path: Path) -> None:
    (tmp_path / "wild").write_text("".join(printed(us) for us in (5.0, 40.0, 300.0)), "utf-8")
    done = run_wirewatch("compare", "wild", "wild", "--fail-under", "97")
    assert done.returncode == 3
    assert "the repeats differ too much to judge anything" in done.stdout
