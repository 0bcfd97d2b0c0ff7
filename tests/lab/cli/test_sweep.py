"""`wirewatch sweep` as a process: what it refuses, in one line, and what it leaves in its folder."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.study.sweeps import CURVES, Node, header
from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import USAGE, refused
from tests.processes import run_wirewatch
from wirewatch_lab.study.records import read_records

UNKNOWN = 3
SMALL = header(CURVES[:2], options=replace(header().options, repeats=2))
WRONG = [
    ((), "give --out DIR for a new sweep, or one of --resume DIR and --export DIR"),
    (("--out", "x", "--resume", "x"), "give --out DIR for a new sweep, or one of"),
    (("--replay", "h200x4-idle", "--out", "x"), "a sweep cannot be replayed"),
    (("--resume", "x", "--size", "8"), "a sweep goes on as it was begun: without --size"),
    (("--export", "x", "--repeats", "5"), "a sweep goes on as it was begun: without --repeats"),
    (("--resume", "x"), "x holds no sweep: sweep.jsonl: No such file or directory"),
    (("--export", "x"), "x holds no sweep: sweep.jsonl: No such file or directory"),
    (("--out", "x", "--op", "all_to_all"), "'all_to_all' is not one of "),
    (("--out", "x", "--size", "8:64K:1"), "'8:64K:1' is no range"),
    (("--out", "x", "--size", "8:64K:2:2"), "'8:64K:2:2' is no range"),
    (("--out", "x", "--size", "64K:8"), "'64K:8' ends below its beginning"),
    (("--out", "x", "--size", "8,lots"), "'lots' is not a size"),
    (("--out", "x", "--algorithm", "Ring,Star"), "'Star' is not one of auto, Ring, Tree, NVLS, NVLSTree"),
    (("--out", "x", "--protocol", ""), "'' is not one of auto, Simple, LL, LL128"),
    (("--out", "x", "--gpus", "2,1"), "'2,1' is not a list of numbers from 2 to 1024"),
    (("--out", "x", "--registered", "maybe"), "'maybe' is not one of on, off"),
    (("--out", "x", "--vary", "PATH=1"), "'PATH=1' is not NCCL_NAME=VALUE,VALUE,..."),
    (("--out", "x", "--vary", "NCCL_ALGO=Ring"), "NCCL_ALGO cannot be varied: --algorithm does that"),
    (("--out", "x", "--vary", "NCCL_DEBUG=INFO"), "NCCL_DEBUG cannot be varied: a probe sets it itself"),
    (("--out", "x", "--vary", "NCCL_A=1", "--vary", "NCCL_A=2"), "--vary: a setting is given twice"),
    (("--out", "x", "--repeats", "0"), "--repeats: '0' is not a whole number from 1 to 1000"),
]


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()


@pytest.mark.parametrize(("words", "why"), WRONG)
def test_what_cannot_be_meant_is_one_line(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    assert why in refused(USAGE, "sweep", *words)
    assert not (tmp_path / "x").exists()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    assert "is not empty; --resume goes on" in refused(USAGE, "sweep", "--out", str(tmp_path))


def test_where_there_is_nothing_to_measure_with_it_is_unknown_as_of_a_probe(tmp_path: Path) -> None:
    done = run_wirewatch("sweep", "--out", "new", "--engine", "nccl")
    probed = run_wirewatch("probe", "--engine", "nccl")
    assert (done.returncode, done.stdout, done.stderr) == (UNKNOWN, probed.stdout, probed.stderr)
    assert not (tmp_path / "new").exists()


def test_a_node_whose_probes_another_container_runs_says_so(tmp_path: Path) -> None:
    (tmp_path / "toml").write_text("[probe]\nprober = '/run/prober.sock'\n", "utf-8")
    assert "[probe] prober: another container" in refused(USAGE, "sweep", "--out", "x", "--config", "toml")


def test_what_there_is_of_a_sweep_can_be_exported(tmp_path: Path) -> None:
    node = Node(tmp_path / "half", stops=5)
    node.sweep(SMALL)
    done = run_wirewatch("sweep", "--export", "half")
    assert done.returncode == 0, done.stderr
    assert "not offered: PAT: no" in done.stdout
    assert "not all of it: --resume half goes on" in done.stdout
    text = (node.folder / "sweep.json").read_text("utf-8")
    assert complaints("wirewatch.sweep.1", text) == []
    assert (
        sum(len(point["seconds"]) for curve in json.loads(text)["curves"] for point in curve["points"]) == 5
    )


def test_a_sweep_that_is_complete_needs_no_gpu_to_be_resumed(tmp_path: Path) -> None:
    node = Node(tmp_path / "whole")
    node.sweep(SMALL)
    done = run_wirewatch("sweep", "--resume", "whole")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("6 points of 2 curves in whole: sweep.csv, sweep.json, report.html\n")
    assert read_records(node.folder).complete
