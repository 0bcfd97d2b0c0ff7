"""The sums of the kit's part `release`, and whom it takes for ours."""

import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from proof.hardware.holders import Ours, open_devices, others
from proof.hardware.kit import KitError, Report
from proof.hardware.release import Round, judge
from tests.node.hw.children import until

GOOD = Round(
    "round 1", {7: ["/dev/nvidia0"]}, 200, closed=1.9, scrapes=[0.01], back=29.0,
    told={"status": 0, "released": True, "stuck": [], "seconds_taken": 0.1},
)  # fmt: skip


def judged(folder: Path, *rounds: Round) -> Report:
    report = Report("release", folder)
    report.note(rounds=[asdict(one) for one in rounds])
    judge(report)
    return report


def test_a_good_release_passes(tmp_path: Path) -> None:
    assert judged(tmp_path, GOOD, GOOD).ok


@pytest.mark.parametrize(
    "change",
    [
        {"closed": None}, {"closed": 2.1}, {"back": None, "missing": ["gpu_power_watts"]}, {"back": 30.1},
        {"reopened": ["{8: ['/dev/nvidiactl']}"]}, {"scrapes": [0.2]}, {"told": {}},
        {"told": {**GOOD.told, "status": 70}}, {"told": {**GOOD.told, "stuck": [7]}},
        {"told": {**GOOD.told, "released": False}},
    ],
)  # fmt: skip
def test_one_that_is_not_is_a_limit_that_fails(tmp_path: Path, change: dict[str, Any]) -> None:
    report = judged(tmp_path, GOOD, replace(GOOD, **change))
    assert len([check for check in report.checks if not check["ok"]]) == 1


def test_without_a_release_nothing_is_proven(tmp_path: Path) -> None:
    assert not judged(tmp_path).ok


ORPHAN = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'input()']).pid, flush=True)"


def test_ours_are_all_that_have_the_state_folder_of_the_daemon_also_without_a_parent(tmp_path: Path) -> None:
    around = {**os.environ, "STATE_DIRECTORY": str(tmp_path)}
    command = [sys.executable, "-c", f"{ORPHAN}; input()"]
    with subprocess.Popen(command, env=around, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        orphan = int(daemon.stdout.readline())
        ours = Ours.of(daemon.pid)
        # For a moment of its start a process has no environment.
        until(lambda: ours.processes() == {daemon.pid, orphan})
        daemon.kill()
        daemon.wait()
        try:
            assert ours.processes() == {orphan}
            assert ours.holders() == {}
        finally:
            os.kill(orphan, signal.SIGKILL)
        until(lambda: ours.processes() == set())
    with pytest.raises(KitError):
        Ours.of(daemon.pid)


def test_who_has_no_gpu_open_is_no_holder() -> None:
    assert open_devices(os.getpid()) == set()
    assert str(os.getpid()) not in {name.split()[0] for name in others(())}
