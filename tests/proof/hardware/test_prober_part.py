"""The sums of the kit's part `prober`, and what it tells of processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof.hardware import processes
from proof.hardware.kit import Report
from proof.hardware.prober import ROUNDS, Busbw, judge_busbw
from tests.node.hw.children import until

SMALL, LARGE = ("all_reduce", 64 << 20), ("all_reduce", 256 << 20)
DIRECT: Busbw = {SMALL: [100e9, 99e9, 101e9, 100e9, 100e9], LARGE: [300e9] * ROUNDS}


def fails(folder: Path, direct: Busbw, through: Busbw) -> bool:
    report = Report("prober", folder)
    judge_busbw(report, direct, through)
    return not report.ok


def test_the_same_figures_pass(tmp_path: Path) -> None:
    assert not fails(tmp_path, DIRECT, DIRECT)
    assert not fails(tmp_path, DIRECT, {SMALL: [98.1e9] * ROUNDS, LARGE: [302e9] * ROUNDS})


@pytest.mark.parametrize(
    "through",
    [
        {SMALL: [97.9e9] * ROUNDS, LARGE: [300e9] * ROUNDS},
        {SMALL: [100e9] * ROUNDS, LARGE: [304e9] * ROUNDS},
        {SMALL: [100e9] * ROUNDS},
        {SMALL: [100e9] * ROUNDS, LARGE: [300e9] * (ROUNDS - 1)},
        {},
    ],
)
def test_others_and_fewer_fail(tmp_path: Path, through: Busbw) -> None:
    assert fails(tmp_path, DIRECT, through)


def test_nothing_on_either_side_proves_nothing(tmp_path: Path) -> None:
    assert fails(tmp_path, {}, {})


def test_who_a_process_is() -> None:
    mine = processes.standing(os.getpid())
    assert (mine.parent, mine.user) == (os.getppid(), os.geteuid())
    assert os.getegid() in mine.groups
    assert mine.resident > 1 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_process_of_another_user_has_no_privileges() -> None:
    command = ["/bin/sleep", "60"]
    with subprocess.Popen(command, user=65534, group=65534, extra_groups=()) as other:
        until(lambda: Path(f"/proc/{other.pid}/comm").read_text("ascii") == "sleep\n")
        theirs = processes.standing(other.pid)
        other.kill()
    assert (theirs.user, set(theirs.groups), theirs.capabilities) == (65534, {65534}, 0)


def test_of_a_process_that_has_ended_there_is_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        until(lambda: not processes.alive(ended.pid))
        assert processes.standing(ended.pid).resident == 0
    with pytest.raises(OSError, match="No such"):
        processes.standing(ended.pid)
