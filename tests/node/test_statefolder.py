"""The state folder and its locks, with real processes that hold them and die."""

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import HANGS
from tests.rows import each
from wirewatch import statefolder as module
from wirewatch.core.types import Absent, Why
from wirewatch.statefolder import (
    Lock,
    LockHolder,
    StateError,
    StateFolder,
    StateInUse,
    lock_agent,
    lock_probe,
    open_state,
    state_directory,
)

SOON = HANGS
HOLD = """
import subprocess, sys, time
from pathlib import Path
from wirewatch.statefolder import *
state = open_state(Path(sys.argv[1]))
lock = lock_agent(state) if sys.argv[2] == "agent" else lock_probe(state, "a test")
"""
WAIT = "print('held', flush=True); time.sleep(60)"


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return open_state(tmp_path / "state")


@contextmanager
def running(command: list[str]) -> "Iterator[subprocess.Popen[str]]":
    """A process that has said that it holds the lock; it and what it started are killed afterwards."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        try:
            assert line(process) == "held"
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def holder(state: StateFolder, which: str, then: str = WAIT) -> list[str]:
    return [sys.executable, "-c", HOLD + then, str(state.directory), which]


def locked(told: Lock | LockHolder | Absent) -> Lock:
    assert isinstance(told, Lock), str(told)
    return told


def held(told: Lock | LockHolder | Absent) -> LockHolder:
    assert isinstance(told, LockHolder)
    return told


def soon(take: Callable[[], Lock | LockHolder | Absent]) -> Lock:
    """The kernel drops the locks of a killed process shortly after."""
    end = time.monotonic() + SOON
    while not isinstance(told := take(), Lock):
        assert time.monotonic() < end, str(told)
        time.sleep(0.01)
    return told


@each(
    ("configured", "environment", "uid", "expected"),
    [
        ("/srv/wires", {"STATE_DIRECTORY": "/var/lib/given"}, 0, "/srv/wires"),
        ("", {"STATE_DIRECTORY": "/var/lib/given"}, 0, "/var/lib/given"),
        ("", {"STATE_DIRECTORY": "/var/lib/given:/var/lib/other", "HOME": "/home/u"}, 1000, "/var/lib/given"),
        ("", {"STATE_DIRECTORY": "", "HOME": "/root"}, 0, "/var/lib/wirewatch"),
        ("", {"XDG_STATE_HOME": "/root/.state"}, 0, "/var/lib/wirewatch"),
        ("", {"XDG_STATE_HOME": "/home/u/state", "HOME": "/home/u"}, 1000, "/home/u/state/wirewatch"),
        ("", {"XDG_STATE_HOME": "state", "HOME": "/home/u"}, 1000, "/home/u/.local/state/wirewatch"),
        ("", {"HOME": "/home/u"}, 1000, "/home/u/.local/state/wirewatch"),
    ],
)
def test_where_state_lives(configured: str, environment: dict[str, str], uid: int, expected: str) -> None:
    assert state_directory(configured, environment, uid) == Path(expected)


def test_a_relative_directory_stays_the_same_wherever_the_agent_goes() -> None:
    assert state_directory("wires", {}, 0) == Path.cwd() / "wires"


def test_the_environment_and_the_user_are_this_process_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/srv/mine")
    assert state_directory() == Path("/srv/mine")
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.setenv("XDG_STATE_HOME", "/srv/user")
    assert state_directory() == Path("/var/lib/wirewatch" if os.geteuid() == 0 else "/srv/user/wirewatch")


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "here", "XDG_STATE_HOME": "there"}])
def test_a_user_without_a_home_is_told_what_to_give(environment: dict[str, str]) -> None:
    with pytest.raises(StateError, match=r"STATE_DIRECTORY or HOME$"):
        state_directory("", environment, 1000)


def test_a_state_folder_is_made_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    before = os.umask(0)
    try:
        made = open_state(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    (folder / "probes.sqlite").write_bytes(b"kept")
    assert open_state(folder) == made
    assert made.history.read_bytes() == b"kept"
    assert [one.name for one in folder.iterdir()] == ["probes.sqlite"]


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/self", "/proc/nothing/here"])
def test_a_folder_that_cannot_be_used_is_one_line_that_names_it(tmp_path: Path, place: str) -> None:
    """Nobody makes a file in /proc, root neither."""
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(StateError, match=r"^cannot keep state in [^\n]+: [^\n]+$") as told:
        open_state(tmp_path / place)
    assert place in str(told.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_without_the_permission_to_write_cannot_be_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(StateError, match="Permission denied"):
        open_state(tmp_path)


def test_one_agent_a_folder_and_the_second_is_told_who_is_first(state: StateFolder) -> None:
    with running(holder(state, "agent")) as process:
        with pytest.raises(StateError, match=rf"^another agent .*: pid {process.pid} \(wirewatch serve\)$"):
            lock_agent(state)
        assert state.agent_lock.read_text("utf-8") == f"{process.pid} wirewatch serve\n"
    end = time.monotonic() + SOON
    while True:
        try:
            lock_agent(state).release()
            break
        except StateError:
            assert time.monotonic() < end


def test_agents_of_two_folders_do_not_know_each_other(tmp_path: Path) -> None:
    one, other = open_state(tmp_path / "a"), open_state(tmp_path / "b")
    with lock_agent(one), lock_agent(other):
        for state in (one, other):
            with pytest.raises(StateInUse):
                lock_agent(state)


def test_an_agent_and_a_probe_do_not_wait_for_each_other(state: StateFolder) -> None:
    with lock_agent(state), locked(lock_probe(state)):
        pass


def test_the_agents_lock_is_its_own_and_the_probes_is_for_all(state: StateFolder) -> None:
    before = os.umask(0o022)
    try:
        with lock_agent(state), locked(lock_probe(state)):
            assert stat.S_IMODE(state.agent_lock.stat().st_mode) == 0o600
            assert stat.S_IMODE(state.probe_lock.stat().st_mode) == 0o644
    finally:
        os.umask(before)


@pytest.mark.parametrize("break_it", [lambda path: path.mkdir(), lambda path: path.parent.rmdir()])
def test_a_lock_that_cannot_be_opened_is_reported(
    state: StateFolder, break_it: Callable[[Path], object]
) -> None:
    break_it(state.agent_lock)
    with pytest.raises(StateError, match=r"^cannot lock [^\n]+agent.lock: [^\n]+$"):
        lock_agent(state)


def test_whether_a_probe_runs_is_not_known_where_the_lock_cannot_be_opened(state: StateFolder) -> None:
    state.probe_lock.mkdir()
    told = lock_probe(state)
    assert isinstance(told, Absent)
    assert told.why is Why.DENIED
    state.probe_lock.rmdir()
    state.directory.rmdir()
    told = lock_probe(state)
    assert isinstance(told, Absent)
    assert told.why is Why.MISSING


def test_a_probe_lock_is_held_once_and_free_after_its_block(state: StateFolder) -> None:
    with locked(lock_probe(state, "first")) as lock:
        told = held(lock_probe(state, "second"))
        assert told == LockHolder(os.getpid(), "first")
        assert str(told) == f"pid {os.getpid()} (first)"
        assert state.probe_lock.read_text("utf-8") == f"{os.getpid()} first\n"
    assert state.probe_lock.read_bytes() == b""
    with locked(lock_probe(state)):
        lock.release()
        assert isinstance(lock_probe(state), LockHolder)


def test_a_lock_is_free_after_a_block_that_raised(state: StateFolder) -> None:
    def fail() -> None:
        with locked(lock_probe(state)):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    locked(lock_probe(state)).release()


def test_a_killed_process_holds_no_lock(state: StateFolder) -> None:
    with running(holder(state, "probe")) as process:
        assert held(lock_probe(state)) == LockHolder(process.pid, "a test")
        process.kill()
        process.wait()
        assert state.probe_lock.read_text("utf-8") == f"{process.pid} a test\n"
        soon(lambda: lock_probe(state)).release()


def test_what_a_holder_started_does_not_hold_its_lock(state: StateFolder) -> None:
    start = "child = subprocess.Popen(['sleep', '60'], close_fds=False)\nprint('held')\nprint(child.pid)\n"
    with running(holder(state, "probe", start + WAIT)) as process:
        child = int(line(process))
        assert isinstance(lock_probe(state), LockHolder)
        process.kill()
        process.wait()
        soon(lambda: lock_probe(state)).release()
        os.kill(child, 0)


def test_a_released_lock_is_free_also_where_a_fork_still_has_the_file_open(state: StateFolder) -> None:
    fork = "import os\nif os.fork() == 0:\n    time.sleep(60)\nlock.release()\n"
    with running(holder(state, "probe", fork + WAIT)) as process:
        soon(lambda: lock_probe(state)).release()
        os.kill(process.pid, 0)


def test_a_lock_file_deleted_before_it_was_locked_is_not_the_lock(state: StateFolder) -> None:
    """The audit event comes between opening and locking."""
    race = """
def delete(event, _):
    if event == "fcntl.flock" and not gone:
        gone.append(event)
        state.probe_lock.unlink()
lock.release()
gone = []
sys.addaudithook(delete)
lock = lock_probe(state, "a test")
"""
    with running(holder(state, "probe", race + WAIT)) as process:
        assert held(lock_probe(state)).who.startswith("a test")
        assert state.probe_lock.read_text("utf-8") == f"{process.pid} a test\n"


def operator(state: StateFolder, *options: str) -> list[str]:
    """An operator's lock; a missing program is no failure of ours."""
    program = shutil.which("flock")
    if program is None:
        pytest.skip("no flock program")
    return [program, *options, str(state.probe_lock), "sh", "-c", "echo held; sleep 60"]


def kernel_tells(state: StateFolder) -> None:
    """Skip where the kernel's list of locks names files in another way than stat does."""
    with locked(lock_probe(state)), state.probe_lock.open("rb") as file:
        if module._kernel_holder(os.fstat(file.fileno())) != os.getpid():  # noqa: SLF001 - as it sees it
            pytest.skip("the kernel does not tell who locked a file here")


@pytest.mark.parametrize("options", [[], ["-s"]])
def test_an_operators_lock_is_held_and_named_by_its_program(state: StateFolder, options: list[str]) -> None:
    with running(operator(state, *options)) as process:
        kernel_tells(StateFolder(state.directory.parent))
        assert held(lock_probe(state)) == LockHolder(process.pid, "flock")
        process.kill()
        process.wait()
        assert isinstance(lock_probe(state), LockHolder), "what it runs goes on"


def test_an_operator_waits_for_our_lock(state: StateFolder) -> None:
    command = operator(state, "-n")
    with locked(lock_probe(state)):
        assert subprocess.run(command, timeout=SOON, check=False).returncode == 1


def test_a_killed_holder_is_not_taken_for_the_one_after_it(state: StateFolder) -> None:
    kernel_tells(state)
    with running(holder(state, "probe")):
        pass
    with state.probe_lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = held(lock_probe(state))
    assert told.pid == os.getpid()
    assert "a test" not in told.who


def test_where_the_kernel_does_not_name_the_holder_the_file_does(
    state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As between two containers of a pod."""
    monkeypatch.setattr(module, "_LOCKS", tmp_path / "locks")
    with running(holder(state, "probe")) as process:
        assert held(lock_probe(state)) == LockHolder(process.pid, "a test, by its file")
        other = "1: POSIX  ADVISORY  WRITE 1 00:01:1 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 2 00:01:2 0 EOF\n"
        (tmp_path / "locks").write_text(other, "utf-8")
        assert held(lock_probe(state)).pid == process.pid
        state.probe_lock.write_bytes(b"")
        told = held(lock_probe(state))
        assert isinstance(told.pid, Absent)
        assert str(told) == "another program"


@given(st.binary(max_size=300) | st.builds(b"%d %s".__mod__, st.tuples(st.integers(0), st.binary())))
def test_whatever_is_written_in_a_lock_file_the_holder_is_one_line(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = open_state(Path(folder))
        state.probe_lock.write_bytes(text)
        with state.probe_lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            told = str(held(lock_probe(state)))
            named = module._named(file.fileno())  # noqa: SLF001 - what it makes of the text
        assert told.isprintable()
        assert named[1].isprintable()
        assert named[1]
        assert state.probe_lock.read_bytes() == text


@pytest.mark.parametrize(
    ("line", "pid"),
    [
        ("1: FLOCK  ADVISORY  WRITE 4242 PLACE 0 EOF", 4242),
        ("1: POSIX  ADVISORY  WRITE 4242 PLACE 0 EOF", None),
        ("1: -> FLOCK  ADVISORY  WRITE 4242 PLACE 0 EOF", None),
        ("1: FLOCK  ADVISORY  WRITE 0 PLACE 0 EOF", None),
        ("1: FLOCK  ADVISORY  WRITE -1 PLACE 0 EOF", None),
        ("1: FLOCK  ADVISORY  WRITE 4242 fe:00:1 0 EOF", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_holder_by_the_kernels_list(
    state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, pid: int | None
) -> None:
    state.probe_lock.touch()
    found = state.probe_lock.stat()
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    monkeypatch.setattr(module, "_LOCKS", tmp_path / "locks")
    assert vars(module)["_kernel_holder"](found) is None
    (tmp_path / "locks").write_text(f"{line.replace('PLACE', place)}\n", "utf-8")
    assert vars(module)["_kernel_holder"](found) == pid


@pytest.mark.parametrize(
    ("text", "pid", "who"),
    [
        (b"17 a test\nmore", 17, "a test"), (b"17", 17, "another program"), (b"x y", None, "another program"),
        ("\u0661 y".encode(), None, "another program"), (b"17 \x1b", 17, "another program"),
        (b"17 " + b"x" * 300, 17, "x" * 197),
    ],
)  # fmt: skip
def test_the_holder_by_its_file(state: StateFolder, text: bytes, pid: int | None, who: str) -> None:
    state.probe_lock.write_bytes(text)
    with state.probe_lock.open("rb") as file:
        number, name = vars(module)["_named"](file.fileno())
    assert (None if isinstance(number, Absent) else number, name) == (pid, who)


@pytest.mark.parametrize(
    ("error", "why", "detail"),
    [
        (OSError(28, "No space left on device"), Why.DENIED, "/a/b: No space left on device"),
        (OSError(30, "Read-only file system", "/c"), Why.DENIED, "/c: Read-only file system"),
        (OSError(2, "No such file"), Why.MISSING, "/a/b: No such file"),
        (OSError("odd"), Why.DENIED, "/a/b: odd"),
    ],
)  # fmt: skip
def test_why_a_file_could_not_be_written(error: OSError, why: Why, detail: str) -> None:
    told = module.refused(error, Path("/a/b"))
    assert (told.why, told.detail) == (why, detail)


def test_a_lock_is_let_go_once_and_is_free_then(state: StateFolder) -> None:
    lock = locked(lock_probe(state, "me"))
    assert state.probe_lock.read_text("utf-8") == f"{os.getpid()} me\n"
    lock.release()
    lock.release()
    assert state.probe_lock.read_bytes() == b""
    locked(lock_probe(state)).release()


def test_all_that_is_remembered_of_a_machine_is_named() -> None:
    names = [one.name for one in StateFolder(Path("/s")).memories]
    assert names == [
        "machine.json", "latches.json", "baseline.json", "pairs.json", "probes.sqlite", "nics.sqlite",
        "probes.sqlite-wal", "probes.sqlite-shm", "nics.sqlite-wal", "nics.sqlite-shm",
    ]  # fmt: skip


def test_a_file_that_is_gone_or_another_is_not_the_one_that_is_open(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as file:
        is_at = vars(module)["_is_at"]
        assert is_at(file.fileno(), path)
        assert vars(module)["_removed"](path)
        assert not is_at(file.fileno(), path)
        assert not vars(module)["_removed"](path)
        path.touch()
        assert not is_at(file.fileno(), path)
        assert not vars(module)["_is_left"](path)
        assert not vars(module)["_is_left"](tmp_path / "none")


def test_a_lock_with_two_names_or_that_is_no_file_is_none(state: StateFolder) -> None:
    state.probe_lock.touch()
    other = state.directory / "other"
    os.link(state.probe_lock, other)
    told = lock_probe(state)
    assert isinstance(told, Absent)
    assert "not a file with one name" in told.detail
    other.unlink()
    locked(lock_probe(state)).release()
    state.probe_lock.unlink()
    os.mkfifo(state.probe_lock)
    assert isinstance(lock_probe(state), Absent)
