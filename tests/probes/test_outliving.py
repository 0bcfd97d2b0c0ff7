"""No worker outlives the process that started it, however that one ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.groups import dies
from tests.probes.rig import ROOT

HANGING, SILENT = "tests.probes.hanging", "silent"
"""The real worker, that hangs while it loads its engine; and one that follows nobody."""


@contextmanager
def launcher(tmp_path: Path, worker: str, *how: str) -> "Iterator[subprocess.Popen[bytes]]":
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.probes.rig", worker, str(tmp_path / "pid"), *how],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path / "temporary")}, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def started(tmp_path: Path) -> int:
    """The worker's process id, once it runs."""
    end = time.monotonic() + 20
    file = tmp_path / "pid"
    while not file.exists() or not file.read_text("utf-8"):
        assert time.monotonic() < end, "no worker was started"
        time.sleep(0.01)
    return int(file.read_text("utf-8"))


@pytest.mark.parametrize("how", [(), ("thread",)], ids=["command", "daemon"])
def test_it_dies_with_a_launcher_that_is_killed(tmp_path: Path, how: tuple[str, ...]) -> None:
    with launcher(tmp_path, HANGING, *how) as process:
        pid = started(tmp_path)
        process.kill()
        assert dies(pid, 2.0)


def test_it_dies_with_a_daemon_that_is_told_to_stop(tmp_path: Path) -> None:
    with launcher(tmp_path, HANGING, "thread") as process:
        pid = started(tmp_path)
        process.terminate()
        assert process.wait(5) == 0
        assert dies(pid, 2.0)
        assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("worker", [HANGING, SILENT])
def test_an_interrupted_command_ends_it_and_leaves_nothing(tmp_path: Path, worker: str) -> None:
    with launcher(tmp_path, worker) as process:
        pid = started(tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == -signal.SIGINT
        assert dies(pid, 0.0)
        assert list((tmp_path / "temporary").iterdir()) == []
