"""The kit's part `hostlinks`: what is within the limit, and who must be named; the reference compiles."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from proof.hardware.hostlinks import (
    FAULTY,
    HEALTHY,
    REFERENCE,
    WITHIN,
    compare,
    compiled,
    folded,
    judge,
    loss,
    parsed,
)
from proof.hardware.kit import Report
from tests.node.probe.drawn import drawn, on_switch
from tests.node.probe.hosted import FROM, HIDDEN, TO, hosted
from wirewatch.core.probe import Probed
from wirewatch.probe.hostlinks import host_links
from wirewatch.probe.model import ProbeMemory

TWO = drawn(on_switch(2))
GOOD = hosted(TWO, path=HIDDEN, near=None)
UUIDS = [gpu.uuid for gpu in TWO.gpus]


def compared(folder: Path, theirs: Mapping[str, tuple[float, ...]]) -> bool:
    report = Report("hostlinks", folder)
    compare(report, UUIDS, [host_links(GOOD)] * 3, [theirs] * 3)
    (check,) = report.checks
    return bool(check["ok"])


def test_each_gpu_and_direction_is_held_against_the_reference(tmp_path: Path) -> None:
    same = dict.fromkeys(UUIDS, (TO, FROM, 1.0))
    assert compared(tmp_path, same), "both ways at once have no limit"
    for off in (1 + 1.1 * WITHIN, 1 - 1.1 * WITHIN):
        assert not compared(tmp_path, same | {UUIDS[1]: (TO * off, FROM, 1.0)})
        assert not compared(tmp_path, same | {UUIDS[0]: (TO, FROM * off, 1.0)})


def test_nothing_compared_is_no_pass(tmp_path: Path) -> None:
    report = Report("hostlinks", tmp_path)
    compare(report, [], [], [])
    assert not report.ok


def test_the_reference_prints_seconds_by_uuid() -> None:
    assert parsed("GPU-a 0.005 0.01 0.02\n") == {
        "GPU-a": (REFERENCE / 0.005, REFERENCE / 0.01, REFERENCE / 0.02)
    }


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
def test_the_reference_compiles_and_says_what_it_lacks(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: hostcopies BYTES RUNS UUID=CPUS...\n")


def judged(folder: Path, slow: Sequence[Probed]) -> bool:
    report = Report("hostlinks", folder)
    judge(report, "a fault", UUIDS[0], 0, folded(ProbeMemory(), [GOOD] * HEALTHY), slow)
    return report.ok


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"to 0": 0.5}, True),
        ({"to 0": 0.8, "from 0": 0.8}, True),
        ({"to 0": 0.95}, True),
        ({"to 1": 0.5}, False),
        ({"to 0": 0.5, "to 1": 0.5}, False),
    ],
    ids=["a third lost", "a fifth lost", "too little", "another", "both"],
)
def test_the_right_gpu_must_be_named_and_no_other(
    tmp_path: Path, left: Mapping[str, float], *, right: bool
) -> None:
    assert judged(tmp_path, [hosted(TWO, left, HIDDEN, None)] * FAULTY) is right


def test_a_loss_is_of_the_way_there_and_back() -> None:
    assert loss(GOOD, hosted(TWO, {"to 0": 0.5, "from 0": 0.5}, HIDDEN, None), 0) == pytest.approx(0.5)
