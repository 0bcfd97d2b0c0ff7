"""The worker's process: what it is given, what is heard of it, and its end."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.groups import dies, living
from tests.node.probe import workers
from tests.node.probe.rig import PLAN, ROOT, open_files
from tests.patience import HANGS
from wirewatch.core.probe import Plan
from wirewatch.probe import launcher as launcher_module
from wirewatch.probe.launcher import StartError, Worker, environment

JSON: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
OURS = {
    "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_RAS_ENABLE", "NCCL_PROFILER_PLUGIN",
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
}  # fmt: skip
NAMES = st.text(st.characters(codec="ascii", categories=("Lu", "Nd")), min_size=1)


@contextmanager
def started(name: str, folder: Path, plan: Plan = PLAN, **inherited: str) -> Iterator[Worker]:
    worker = Worker(plan, folder, {**os.environ, **inherited, workers.WHICH: name}, workers.COMMAND)
    try:
        yield worker
    finally:
        worker.end()


def heard(worker: Worker, seconds: float = HANGS) -> str | None:
    end = time.monotonic() + seconds
    while not worker.ended and time.monotonic() < end:
        mark = worker.read_mark(0.05)
        if mark is not None:
            return mark
    return None


def until_the_end(worker: Worker, seconds: float = HANGS) -> None:
    end = time.monotonic() + seconds
    while not worker.ended:
        assert time.monotonic() < end, "it does not end"
        if worker.read_mark(0.05) is not None:
            worker.go()


def test_it_is_given_the_plan_two_pipes_a_session_and_what_the_agent_has(tmp_path: Path) -> None:
    plan = replace(PLAN, log="/somewhere/nccl.log")
    given = {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "TRACE", "NCCL_DEBUG_FILE": "mine.log", "OUR_OWN": "kept"}
    with started("environment", tmp_path, plan, **given) as worker:
        told = JSON.validate_json(heard(worker) or "")
    theirs = told["environment"]
    assert theirs["NCCL_ALGO"] == "Ring"
    assert theirs["OUR_OWN"] == "kept"
    assert (theirs["NCCL_DEBUG"], theirs["NCCL_RAS_ENABLE"]) == ("INFO", "0")
    assert theirs["NCCL_DEBUG_FILE"] == "/somewhere/nccl.log"
    assert {"INIT", "GRAPH", "TUNING", "P2P", "NVLS"} <= set(theirs["NCCL_DEBUG_SUBSYS"].split(","))
    assert told["session"] is True
    assert set(told["descriptors"]) == set(told["given"])
    assert told["plan"] == TypeAdapter(Plan).dump_python(plan, mode="json")


@pytest.mark.parametrize("inherited", [{}, {"NCCL_PROFILER_PLUGIN": "/opt/wirewatch/libwirewatch-tap.so"}])
def test_it_carries_no_profiler(tmp_path: Path, inherited: dict[str, str]) -> None:
    """Unset is no way out: NCCL then takes a libnccl-profiler.so that it finds, and what nccl.conf names."""
    with started("environment", tmp_path, PLAN, **inherited) as worker:
        told = JSON.validate_json(heard(worker) or "")
    assert told["environment"]["NCCL_PROFILER_PLUGIN"] == "none"


@given(inherited=st.dictionaries(NAMES, st.text()), log=st.text())
def test_only_what_is_ours_is_changed_of_the_environment(inherited: dict[str, str], log: str) -> None:
    made = environment(inherited, replace(PLAN, log=log))
    assert {name: value for name, value in made.items() if name not in OURS} == {
        name: value for name, value in inherited.items() if name not in OURS
    }
    assert made["NCCL_DEBUG_FILE"] == log
    assert set(made) >= OURS


def test_marks_come_one_by_one_and_the_worker_waits_at_each(tmp_path: Path) -> None:
    with started("good", tmp_path) as worker:
        assert heard(worker) == "all_reduce.0"
        assert worker.read_mark(0.2) is None
        worker.go()
        assert heard(worker) == "all_gather.0"
        worker.go()
        until_the_end(worker)
        assert (worker.nonsense, worker.document[:1], worker.document[-1:]) == ("", b"{", b"}")


def test_marks_that_came_at_once_are_reported_one_by_one_before_the_end(tmp_path: Path) -> None:
    with started("rushed", tmp_path) as worker:
        names = []
        while not worker.ended:
            mark = worker.read_mark(0.05)
            names += [mark] if mark is not None else []
        assert names == ["all_reduce.0", "all_gather.0", "copies", "micros", "end"]
        assert worker.document


def test_a_dead_worker_may_still_be_told_to_go_on(tmp_path: Path) -> None:
    with started("silent", tmp_path) as worker:
        worker.kill()
        assert dies(worker.pid)
        for _ in range(3):
            worker.go()
        until_the_end(worker)
        assert worker.gone()
        worker.kill()


def test_one_that_never_listens_delays_nothing(tmp_path: Path) -> None:
    """Neither with a plan that no pipe holds, nor with more marks than one."""
    big = replace(PLAN, gpus=tuple(f"GPU-{n:032}" for n in range(3_000)))
    began = time.monotonic()
    with started("deaf", tmp_path, big) as worker:
        for _ in range(10):
            worker.go()
            assert worker.read_mark(0.01) is None
        assert not worker.ended
    assert time.monotonic() - began < HANGS


def test_one_that_begins_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be silent for long before its document, not in it."""
    monkeypatch.setattr(launcher_module, "QUIET", 0.01)
    with started("slow_reader", tmp_path) as worker:
        assert heard(worker) == "2"


def test_once_it_was_waited_for_its_number_may_be_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started("good", tmp_path) as worker:
        until_the_end(worker)
    monkeypatch.setattr(os, "waitid", lambda *_: None)
    assert worker.exited()


def test_a_plan_that_no_pipe_holds_arrives_whole(tmp_path: Path) -> None:
    big = replace(PLAN, gpus=tuple(f"GPU-{n:032}" for n in range(3_000)))
    with started("slow_reader", tmp_path, big) as worker:
        assert heard(worker) == "3000"


def test_the_end_takes_all_that_the_worker_started(tmp_path: Path) -> None:
    with started("parent", tmp_path) as worker:
        assert heard(worker) == "all_reduce.0"
        assert len(living(worker.pid)) == 2
    assert dies(worker.pid)


def test_one_that_is_not_done_is_ended_at_once_and_one_that_is_may_end_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_module, "KILL_SECONDS", HANGS)
    began = time.monotonic()
    with started("silent", tmp_path) as worker:
        pass
    assert worker.hung
    assert time.monotonic() - began < HANGS / 2
    with started("good", tmp_path) as worker:
        until_the_end(worker)
    assert not worker.hung
    monkeypatch.setattr(launcher_module, "QUIET", 0.05)
    began = time.monotonic()
    with started("lingering", tmp_path) as worker:
        until_the_end(worker)
    assert time.monotonic() - began < HANGS / 2


def test_a_stray_of_another_session_delays_no_end(tmp_path: Path) -> None:
    """It has the pipes still open, and no signal to the worker's group reaches it."""
    with started("straying", tmp_path) as worker:
        stray = int(heard(worker) or "0")
        began = time.monotonic()
        worker.kill()
    assert time.monotonic() - began < workers.STRAY
    os.kill(stray, signal.SIGKILL)


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        ("exit3", "libnccl.so.2: cannot open [31mshared object file"),
        ("crash", "Fatal error: wires crossed"),
        ("talkative", "the last of many words"),
        ("empty", ""),
    ],
)
def test_its_last_words_are_the_last_line_that_it_printed(tmp_path: Path, worker: str, words: str) -> None:
    with started(worker, tmp_path) as running:
        until_the_end(running)
    assert running.last_line() == words


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    with started("empty", tmp_path) as worker:
        until_the_end(worker)
        (tmp_path / "worker.log").write_bytes(b"x" * 1_000_000)
        assert worker.last_line() == "x" * 300
        (tmp_path / "worker.log").unlink()
        assert worker.last_line() == ""


def test_without_its_folder_it_cannot_be_started(tmp_path: Path) -> None:
    files = open_files()
    with pytest.raises(StartError, match="No such file or directory"), started("good", tmp_path / "none"):
        pass
    assert open_files() == files


@pytest.mark.parametrize("spare", [0, 2, 4, 5])
def test_without_descriptors_it_cannot_be_started_and_none_is_lost(tmp_path: Path, spare: int) -> None:
    """A start takes ten or so: both pipes, the log, and those of the input and of the start itself."""
    files = open_files()
    fds = [os.dup(0) for _ in range(spare)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(os.dup(0), *fds) if fds else os.dup(0)
    os.close(last)
    for fd in fds:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
    try:
        with pytest.raises(StartError, match="Too many open files"), started("good", tmp_path):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_files() == files


def test_many_open_files_of_the_agent_do_not_matter(tmp_path: Path) -> None:
    """Descriptors above 1023 are more than select(2) knows of."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("no more than 1200 descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    fds = [os.dup(0) for _ in range(1030)]
    try:
        with started("good", tmp_path) as worker:
            until_the_end(worker)
            assert worker.document
    finally:
        for fd in fds:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_signal_to_the_agent_s_group_is_not_the_worker_s(tmp_path: Path) -> None:
    with started("silent", tmp_path) as worker:
        assert os.getpgid(worker.pid) == worker.pid != os.getpgid(0)
        assert os.getsid(worker.pid) == worker.pid
        os.kill(worker.pid, signal.SIGKILL)


HANGING, SILENT = "tests.node.probe.hangingworker", "silent"
"""The real worker, that hangs while it loads its engine; and one that follows nobody."""


@contextmanager
def launcher(tmp_path: Path, worker: str, *how: str) -> "Iterator[subprocess.Popen[bytes]]":
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.node.probe.rig", worker, str(tmp_path / "pid"), *how],
        cwd=ROOT, stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def worker_pid(tmp_path: Path) -> int:
    """The worker's process id, once it runs."""
    end = time.monotonic() + HANGS
    file = tmp_path / "pid"
    while not file.exists() or not file.read_text("utf-8"):
        assert time.monotonic() < end, "no worker was started"
        time.sleep(0.01)
    return int(file.read_text("utf-8"))


@pytest.mark.parametrize("how", [(), ("thread",)], ids=["command", "daemon"])
def test_it_dies_with_a_launcher_that_is_killed(tmp_path: Path, how: tuple[str, ...]) -> None:
    with launcher(tmp_path, HANGING, *how) as process:
        pid = worker_pid(tmp_path)
        process.kill()
        assert dies(pid)


def test_it_dies_with_a_daemon_that_is_told_to_stop(tmp_path: Path) -> None:
    with launcher(tmp_path, HANGING, "thread") as process:
        pid = worker_pid(tmp_path)
        process.terminate()
        assert process.wait(HANGS) == 0
        assert dies(pid)
        assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("worker", [HANGING, SILENT])
def test_an_interrupted_command_ends_it_and_leaves_nothing(tmp_path: Path, worker: str) -> None:
    with launcher(tmp_path, worker) as process:
        pid = worker_pid(tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(HANGS) == -signal.SIGINT
        assert dies(pid, 0.0)
        assert list((tmp_path / "temporary").iterdir()) == []


HEIR = """
import ctypes, os, sys, tempfile
from pathlib import Path
from tests.node.probe.rig import Rig
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
        [sys.executable, "-c", HEIR, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=HANGS,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        f"{name} no child is left" for name in ("parent", "fallen_parent", "good")
    ]
