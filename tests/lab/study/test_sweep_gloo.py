"""`wirewatch sweep` over processors: the command, real torch, and Ctrl-C on its way."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.lab.study.sweeps import measured
from tests.node.cli.schemas import complaints
from tests.node.worker.workerprocess import torch_python
from tests.patience import HANGS
from wirewatch_lab.study.records import NAME, keys, read_records

pytestmark = pytest.mark.system

WANTED = ("--engine", "gloo", "--gpus", "2,3", "--size", "8:64K:8", "--repeats", "2")
INTERRUPTED = 70


def sweep(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    (folder / "state").mkdir(exist_ok=True)
    return subprocess.Popen(
        [torch_python(), "-m", "wirewatch", "sweep", *arguments], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "STATE_DIRECTORY": str(folder / "state")},
    )  # fmt: skip


def test_ctrl_c_ends_a_sweep_and_it_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    process = sweep(tmp_path, "--out", str(folder), *WANTED, "--algorithm", "auto,Tree")
    end = time.monotonic() + HANGS
    while not (folder / NAME).exists() or len(measured(folder)) < 3:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == INTERRUPTED
    assert "wirewatch: ended by SIGINT\n" in said
    assert f"go on with: wirewatch sweep --resume {folder}" in said
    before = measured(folder)
    again = sweep(tmp_path, "--resume", str(folder))
    out, said = again.communicate(timeout=HANGS)
    assert again.returncode == 0, said
    assert "Tree: engine gloo has nothing of NCCL" in out
    assert measured(folder)[: len(before)] == before
    assert sorted(measured(folder)) == sorted(keys(read_records(folder).header))
    text = (folder / "sweep.json").read_text("utf-8")
    assert complaints("wirewatch.sweep.1", text) == []
    made = json.loads(text)
    assert made["complete"]
    assert {point["wrong"] for curve in made["curves"] for point in curve["points"]} == {0}
    assert {(curve["op"], curve["ranks"]) for curve in made["curves"]} == {
        (op, ranks) for op in ("all_reduce", "all_gather", "reduce_scatter") for ranks in (2, 3)
    }
