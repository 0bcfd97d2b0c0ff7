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


HEIR = """
import ctypes, os, sys, tempfile
from pathlib import Path
from tests.probes.rig import Rig
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
folder = Path(sys.argv[1])
rig = Rig(folder)
for name in ("parent", "fallen_parent", "good"):
    rig.run(name)
    try:
        print(name, os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except ChildProcessError:
        print(name, "no child is left")
"""


def test_process_1_of_a_container_collects_no_remains_of_workers(tmp_path: Path) -> None:
    """Who inherits orphans stands for it: what a worker leaves behind is killed, and waited for."""
    done = subprocess.run(
        [sys.executable, "-c", HEIR, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        f"{name} no child is left" for name in ("parent", "fallen_parent", "good")
    ]
