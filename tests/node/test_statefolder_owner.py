"""Root in the state folder of another user: it has that user's rights, and what it makes is the user's."""

import ctypes
import fcntl
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.disks import OTHER, needs_root, open_folder
from tests.node.probe.histories import record, stored
from tests.patience import HANGS
from tests.support import StillClock
from wirewatch import statefolder as module
from wirewatch.core.types import Absent, Why
from wirewatch.daemon.persistence import content, put_aside, write
from wirewatch.probe.history import History
from wirewatch.statefolder import (
    Lock,
    LockHolder,
    StateError,
    StateFolder,
    as_owner,
    lock_agent,
    lock_probe,
    open_state,
    open_state_for_command,
    state_owner,
)

pytestmark = needs_root
LOCK = """
import sys
from pathlib import Path
from wirewatch.statefolder import *
BECOME
try:
    lock_agent(StateFolder(Path(sys.argv[1])))
    print(type(lock_probe(StateFolder(Path(sys.argv[1])))).__name__)
except StateError as error:
    print(error)
"""
PR_CAPBSET_DROP, CAP_SETUID = 24, 7
SECRET = b"a secret of root's"


@pytest.fixture
def state() -> Iterator[StateFolder]:
    """A folder of another user, as the unit's daemon has it."""
    with open_folder(OTHER) as folder:
        yield StateFolder(folder)


@pytest.fixture
def secret() -> Iterator[Path]:
    """A file of root's, which no other user may write or read."""
    with open_folder() as folder:
        path = folder / "secret"
        path.write_bytes(SECRET)
        path.chmod(0o600)
        yield path


def as_other(code: str, *words: object) -> str:
    """What a program prints; it becomes the other user after its imports: Python may be root's alone."""
    become = f"import os; os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER})"
    command = [sys.executable, "-c", code.replace("BECOME", become), *map(str, words)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def owners(folder: Path) -> set[int]:
    return {one.lstat().st_uid for one in (folder, *folder.rglob("*"))}


def test_what_root_makes_there_is_the_owners(state: StateFolder) -> None:
    assert open_state(state.directory) == state
    lock = lock_probe(state)
    assert isinstance(lock, Lock)
    lock.release()
    with lock_agent(state):
        assert History.open(state.history, StillClock()).add(record(1)) is None
        assert write(state.latches, b"{") == ""
        assert put_aside(state.latches, 7.0).kept is not None
        assert write(state.latches, b"{}") == ""
    assert owners(state.directory) == {OTHER}
    assert as_other(LOCK, state.directory) == "Lock"


def test_a_folder_below_one_of_another_users_is_made_as_that_user(state: StateFolder) -> None:
    below = state.directory / "a" / "b"
    assert open_state(below) == StateFolder(below)
    assert owners(state.directory) == {OTHER}


@pytest.mark.parametrize("make", [open_state_for_command, open_state])
def test_a_command_of_roots_makes_no_folder_and_the_daemon_does(
    tmp_path: Path, make: Callable[[Path], StateFolder]
) -> None:
    if make is open_state:
        assert make(tmp_path / "state").directory.is_dir()
        return
    with pytest.raises(StateError, match=r"^cannot keep state in [^\n]+: No such file or directory$"):
        make(tmp_path / "state")
    assert not (tmp_path / "state").exists()


NAMES = (
    *(
        "probe.lock",
        "agent.lock",
        "latches.json",
        "latches.json.new",
        "probes.sqlite",
        "probes.sqlite-journal",
    ),
    *("probes.sqlite-wal", "probes.sqlite.new", "machine.json", "baseline.json"),
)


def work(state: StateFolder) -> tuple[Lock | LockHolder | Absent, str]:
    """Everything that root may come to do there; what came of the probe's lock, and what was read."""
    lock = lock_probe(state)
    if isinstance(lock, Lock):
        lock.release()
    with suppress(StateError):
        lock_agent(state).release()
    history = History.open(state.history, StillClock())
    history.add(record(1))
    read = [str(content(path, 1000)) for path in (state.latches, state.machine, state.baseline)]
    for path in (state.latches, state.baseline):
        write(path, b"{}")
    put_aside(state.machine, 7.0)
    return lock, " ".join(read)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_what_leads_to_a_file_of_roots_neither_harms_nor_shows_it(
    state: StateFolder, secret: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    plant(state.directory / name, secret)
    lock, read = work(state)
    assert "secret" not in read
    if name == "probe.lock" and (state.directory / name).is_symlink():
        assert str(lock) == f"denied: {state.probe_lock}: a symbolic link, which is not followed"
    (state.directory / name).unlink(missing_ok=True)
    assert secret.read_bytes() == SECRET
    assert (secret.stat().st_uid, stat.S_IMODE(secret.stat().st_mode)) == (0, 0o600)


@pytest.mark.parametrize("plant", [Path.mkdir, os.mkfifo], ids=["a folder", "a pipe"])
def test_what_is_no_file_is_reported_and_not_waited_for(
    state: StateFolder, plant: Callable[[Path], object]
) -> None:
    for name in NAMES:
        plant(state.directory / name)
    done: list[tuple[Lock | LockHolder | Absent, str]] = []
    thread = threading.Thread(target=lambda: done.append(work(state)), daemon=True)
    thread.start()
    thread.join(HANGS)
    assert not thread.is_alive()
    lock, read = done[0]
    assert isinstance(lock, Absent)
    assert lock.why is Why.DENIED
    assert read.count("not a file") + read.count("Is a directory") == 3


# --- what a root of before has left


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_lock_that_root_left_is_the_owners_again(state: StateFolder, mode: int) -> None:
    for lock in (state.probe_lock, state.agent_lock):
        lock.write_text("4242 wirewatch\n", "utf-8")
        lock.chmod(mode)
    assert as_other(LOCK, state.directory) == "Lock"
    assert owners(state.directory) == {OTHER}


def test_in_a_folder_of_roots_the_other_is_told_why_there_is_no_lock() -> None:
    with open_folder() as folder:
        assert as_other(LOCK, folder) == f"cannot lock {folder}/agent.lock: Permission denied"


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_lock_that_root_holds_is_not_replaced(state: StateFolder, mode: int) -> None:
    with state.probe_lock.open("wb") as held:
        state.probe_lock.chmod(mode)
        fcntl.flock(held, fcntl.LOCK_EX)
        assert as_other(LOCK, state.directory) == ("LockHolder" if mode == 0o644 else "Absent")
        assert os.path.samestat(os.fstat(held.fileno()), state.probe_lock.stat())


ADD = """
import sys
from pathlib import Path
from tests.node.probe.histories import record
from tests.support import StillClock
from wirewatch.probe.history import History
BECOME
print(History.open(Path(sys.argv[1]), StillClock()).add(record(2)))
"""


@pytest.mark.parametrize(("mode", "kept"), [(0o644, 2), (0o600, 1)])
def test_a_history_that_root_left_is_the_owners_again(state: StateFolder, mode: int, kept: int) -> None:
    """One that the owner may read is copied, another one begins a new history."""
    first = state.history.with_name("first.sqlite")
    History.open(first, StillClock()).add(record(1))
    first.rename(state.history)
    os.chown(state.history, 0, 0)
    state.history.chmod(mode)
    assert as_other(ADD, state.history) == "None"
    assert len(stored(state.history)) == kept
    assert state.history.stat().st_uid == OTHER
    aside = [one for one in state.directory.iterdir() if one != state.history]
    assert [one.name.partition("-")[0] for one in aside] == ["probes.sqlite.corrupt"] * (2 - kept)


# --- whose rights


def test_only_this_thread_has_the_owners_rights_and_only_for_the_block(
    state: StateFolder, secret: Path
) -> None:
    inside, looked = threading.Event(), threading.Event()
    seen: list[bytes] = []

    def look() -> None:
        inside.wait(HANGS)
        seen.append(secret.read_bytes())
        looked.set()

    thread = threading.Thread(target=look)
    thread.start()
    with as_owner(state.directory):
        inside.set()
        assert looked.wait(HANGS)
        with pytest.raises(PermissionError):
            secret.read_bytes()
        with as_owner(state.directory), pytest.raises(PermissionError):
            secret.read_bytes()
        with pytest.raises(PermissionError):
            secret.read_bytes()
        assert os.geteuid() == 0
    thread.join()
    assert (seen, secret.read_bytes()) == ([SECRET], SECRET)


def test_an_error_in_the_block_ends_it(state: StateFolder, secret: Path) -> None:
    with pytest.raises(KeyError), as_owner(state.directory):
        raise KeyError
    assert secret.read_bytes() == SECRET


def test_whose_a_folder_is(tmp_path: Path) -> None:
    with open_folder(OTHER) as theirs:
        (theirs / "mine").mkdir()
        below = OTHER, OTHER
        assert [state_owner(one) for one in (theirs, theirs / "mine", theirs / "no" / "ne")] == [below] * 3
    ours = tmp_path / "ours"
    assert state_owner(ours) is None
    ours.mkdir(0o755)
    (ours / "agent.lock").touch()
    os.chown(ours / "agent.lock", 4711, 4711)
    assert state_owner(ours) is None
    os.chown(ours, 0, 4242)
    ours.chmod(0o775)
    assert state_owner(ours) == (4711, 4242)
    (ours / "agent.lock").rename(ours / "other")
    (ours / "agent.lock").symlink_to("other")
    assert state_owner(ours) is None


def test_a_link_to_the_folder_is_the_admins_and_the_owner_counts_behind_it(
    state: StateFolder, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(state.directory)
    assert state_owner(tmp_path / "link") == (OTHER, OTHER)


NAMESPACE = """
import ctypes, sys
from pathlib import Path
from wirewatch.statefolder import *
BECOME
libc = ctypes.CDLL(None)
PR_SET_DUMPABLE, CLONE_NEWUSER = 4, 0x10000000
assert libc.prctl(PR_SET_DUMPABLE, 1) == 0
if libc.unshare(CLONE_NEWUSER):
    sys.exit("no user namespace can be made here")
Path("/proc/self/uid_map").write_text(f"0 {sys.argv[2]} 1")
folder = Path(sys.argv[1])
print(os.geteuid(), Path("/").stat().st_uid, folder.stat().st_uid, state_owner(folder))
with lock_agent(open_state(folder / "made")):
    print((folder / "made").stat().st_uid)
"""


def test_root_of_a_user_namespace_works_in_folders_of_its_own(state: StateFolder) -> None:
    """The root outside, whose "/" is, is nobody there."""
    assert as_other(NAMESPACE, state.directory, OTHER).split() == ["0", "65534", "0", "None", "0"]


WITHOUT = """
import sys
from pathlib import Path
from wirewatch.daemon.persistence import content, write
from wirewatch.statefolder import *
state = StateFolder(Path(sys.argv[1]))
try:
    open_state(state.directory)
except StateError as error:
    print(error)
print(lock_probe(state))
print(write(state.latches, b"{}"))
print(content(state.machine, 10))
"""


def test_a_root_that_may_not_act_as_the_owner_reads_and_writes_nothing(state: StateFolder) -> None:
    def drop() -> None:
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SETUID) == 0

    state.machine.write_bytes(b"kept")
    command = [sys.executable, "-c", WITHOUT, str(state.directory)]
    done = subprocess.run(command, preexec_fn=drop, stdout=subprocess.PIPE, text=True, check=True)
    why = "this process may not work as that user"
    assert done.stdout.splitlines() == [
        f"cannot keep state in {state.directory} as uid {OTHER}: {why}",
        f"denied: {state.probe_lock}: {why}",
        f"{state.latches}: {why}",
        "b'kept'",
    ]
    assert list(state.directory.iterdir()) == [state.machine]


def test_a_user_that_a_namespace_does_not_have_counts_as_the_owner_of_the_folder_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_unmapped", lambda: 7)
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    os.chown(inner.parent, 7, 8)
    assert module.state_owner(inner) is None
    os.chown(inner, 7, 8)
    assert module.state_owner(inner) == (7, 8)
    os.chown(inner, 0, 0)
    os.chown(inner.parent, 9, 8)
    assert module.state_owner(inner) == (9, 8)


@pytest.mark.parametrize(
    ("mode", "user", "links", "owner"),
    [
        (0o775, 7, 1, True), (0o757, 7, 1, True), (0o755, 7, 1, False), (0o775, 0, 1, False),
        (0o775, 7, 2, False), (0o775, 7, 0, False),
    ],
)  # fmt: skip
def test_a_folder_of_roots_that_is_open_is_the_agents_whose_lock_is_there(
    tmp_path: Path, *, mode: int, user: int, links: int, owner: bool
) -> None:
    """A lock with two names, or none that is a file, says nothing."""
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    lock = StateFolder(folder).agent_lock
    if links:
        lock.touch()
    else:
        lock.mkdir()
    if links > 1:
        os.link(lock, folder / "other")
    os.chown(lock, user, 8)
    assert state_owner(folder) == ((7, folder.stat().st_gid) if owner else None)
