"""Where a probe's worker comes from, what keeps it from starting, and what does not."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.probes.rig import PLAN, Rig, open_files
from tests.support import StillClock
from wirewatch.probe import launcher
from wirewatch.probe.runner import Around, Prober
from wirewatch.probe.statefolder import open_state

TRACE = """
import ctypes, os, sys, time
from pathlib import Path
file = Path(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print("up", flush=True)
while not file.exists():
    time.sleep(0.005)
seized = libc.ptrace(0x4206, int(file.read_text()), None, None) == 0
print("held" if seized else os.strerror(ctypes.get_errno()), flush=True)
time.sleep(60)
"""
"""PTRACE_SEIZE: a process that is traced stays, killed or not, until the tracer lets go of it (ptrace(2))."""
ABACUS = replace(PLAN, engine="abacus")


@contextmanager
def tracer(pid_file: Path) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-c", TRACE, str(pid_file)], stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("worker", "tells"), [("traced", True), ("traced_silent", False)])
def test_a_worker_that_does_not_die_keeps_another_from_starting_until_it_is_gone(
    rig: Rig, worker: str, *, tells: bool
) -> None:
    with tracer(rig.pid_file) as holder:
        assert holder.stdout is not None
        files = open_files()
        probed = rig.run(worker, 0.6)
        held = holder.stdout.readline().strip()
        if held != "held":
            pytest.skip(f"no process may trace another here: {held}")
        pid = rig.pid()
        assert (probed.outcome, probed.why) == ("stuck", f"process {pid} was killed and does not die")
        assert (probed.document is not None) is tells
        assert open_files() == files
        again = rig.run("good")
        assert (again.outcome, again.why) == ("stuck", f"process {pid} of an earlier probe does not die")
        assert (again.seconds, again.held_seconds, rig.pid()) == (0.0, 0.0, pid)
    end = time.monotonic() + 5
    while (probed := rig.run("good")).outcome == "stuck" and time.monotonic() < end:
        time.sleep(0.01)
    assert (probed.outcome, rig.pid() == pid) == ("ok", False)


def test_without_a_place_for_temporary_files_the_probe_fails_in_words(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    probed = rig.run("good")
    assert (probed.outcome, probed.why) == (
        "failed",
        "no place for the worker's log: No such file or directory",
    )


def test_a_worker_that_cannot_be_started_is_a_probe_that_failed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python3")
    files = open_files()
    probed = rig.run("good")
    assert (probed.outcome, probed.why) == (
        "failed",
        "the worker cannot be started: No such file or directory",
    )
    assert open_files() == files


def test_the_real_worker_says_that_it_has_no_such_engine(tmp_path: Path) -> None:
    probed = Rig(tmp_path, launcher.WORKER).run(plan=ABACUS)
    assert (probed.outcome, probed.why) == ("no_engine", "there is no engine 'abacus'")
    assert probed.document is not None
    assert probed.document.cost.cpu_seconds > 0


def test_what_lies_in_the_working_folder_is_not_taken_for_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a package of our name, nor one of the standard library's."""
    place = tmp_path / "elsewhere" / "wirewatch" / "worker"
    place.mkdir(parents=True)
    for file in (place.parent / "__init__.py", place / "__init__.py", place / "__main__.py"):
        file.write_text("raise SystemExit('not ours')", "utf-8")
    (tmp_path / "elsewhere" / "json.py").write_text("raise SystemExit('not ours')", "utf-8")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Rig(tmp_path, launcher.WORKER).run(plan=ABACUS).why == "there is no engine 'abacus'"


def test_modules_by_a_relative_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "theirs.py").write_text("raise SystemExit('found')", "utf-8")
    monkeypatch.chdir(tmp_path)
    there = Rig(tmp_path, ("-P", "-m", "theirs"))
    there.inherited["PYTHONPATH"] = "modules"
    assert there.run().why == "the worker ended with status 1 and told nothing: found"


def test_settings_of_nccl_are_those_that_the_worker_inherits(rig: Rig) -> None:
    rig.inherited.clear()
    rig.inherited |= {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "WARN", "NCCLX": "1", "LD_LIBRARY_PATH": "/opt"}
    assert rig.prober.settings() == {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "WARN"}


def test_one_of_several_probers_has_the_lock_and_the_others_are_told_whose_it_is(
    rig: Rig, tmp_path: Path
) -> None:
    state = open_state(tmp_path / "state")
    around = Around(rig.nvml, rig.files, StillClock())
    one, other = Prober(around, state), Prober(around, state)
    with one.lock() as nobody, other.lock() as somebody:
        assert nobody is None
        assert somebody is not None
        assert str(state.probe_lock) in somebody
        assert str(os.getpid()) in somebody
    with other.lock() as nobody:
        assert nobody is None
    shutil.rmtree(state.directory)
    with one.lock() as unknown:
        assert unknown is not None
        assert "No such file or directory" in unknown
    with rig.prober.lock() as stateless:
        assert stateless is None
