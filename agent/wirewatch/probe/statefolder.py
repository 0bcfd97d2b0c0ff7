"""The state folder: where it is, and its two locks.

A lock is flock(2) on a file that is never deleted: the kernel drops it with its holder, however that dies,
and an operator's flock(1) can take it too.
"""

import fcntl
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from wirewatch.core.types import Absent, Unusable, Why
from wirewatch.hw.files import absent_errno

SYSTEM = "/var/lib/wirewatch"
_AGENT_MODE = 0o600
"""For root alone: a user who may open a lock may hold it, and none shall keep the agent from starting."""
_PROBE_MODE = 0o644
"""For every user: one who has a job here may ask for silence."""
_NAME_BYTES = 200
_LOCKS = Path("/proc/locks")


class StateError(Unusable):
    """A state folder that cannot be used; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """A state folder that is there and can be written."""

    directory: Path

    @property
    def history(self) -> Path:
        """The probes of this node."""
        return self.directory / "probes.sqlite"

    @property
    def latches(self) -> Path:
        """The ledger of faults."""
        return self.directory / "latches.json"

    @property
    def baseline(self) -> Path:
        """The accepted topology."""
        return self.directory / "baseline.json"

    @property
    def machine(self) -> Path:
        """What the machine is known to have."""
        return self.directory / "machine.json"

    @property
    def memories(self) -> tuple[Path, ...]:
        """All that is remembered of one machine, with the files that SQLite keeps beside the history."""
        history = self.history
        beside = (history.with_name(f"{history.name}{end}") for end in ("-wal", "-shm"))
        return (self.machine, self.latches, self.baseline, history, *beside)

    @property
    def agent_lock(self) -> Path:
        """Held by the one agent of this folder."""
        return self.directory / "agent.lock"

    @property
    def probe_lock(self) -> Path:
        """Held by a process while it probes, or by a user who wants silence."""
        return self.directory / "probe.lock"


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The lock is another's; `who` is what it calls itself, or its program's name."""

    pid: int | Absent
    who: str

    def __str__(self) -> str:
        return self.who if isinstance(self.pid, Absent) else f"pid {self.pid} ({self.who})"


class Lock:
    """A lock, held until `release`, the end of a `with`, or the end of this process."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let go; a second time does nothing."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        _write(handle, b"")
        # Closing alone would leave the lock with a child that was forked and runs no program of its own.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def state_directory(
    configured: str = "", environment: Mapping[str, str] = os.environ, uid: int | None = None
) -> Path:
    """Where state lives: as configured, else the service manager's folder, the system's, or the user's.

    Raises:
        StateError: a user without a home.
    """
    given = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    if configured or given:
        return Path(configured or given).absolute()
    if (os.geteuid() if uid is None else uid) == 0:
        return Path(SYSTEM)
    user, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME", "")
    if not user.startswith("/"):  # the XDG specification: a relative path is to be ignored
        if not home.startswith("/"):
            raise StateError("no place for state: give a directory, or set STATE_DIRECTORY or HOME")
        user = f"{home}/.local/state"
    return Path(user) / "wirewatch"


def open_state(directory: Path) -> StateFolder:
    """The state folder, made if it is not there.

    Raises:
        StateError: it cannot be made, or no file can be made in it.
    """
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        # What the permissions say is not all: the file system may be read-only, or full.
        with tempfile.TemporaryFile(dir=directory):
            pass
    except FileExistsError as error:
        raise StateError(f"cannot keep state in {directory}: not a folder") from error
    except OSError as error:
        raise StateError(f"cannot keep state in {directory}: {error.strerror or error}") from error
    return StateFolder(directory)


def lock_agent(state: StateFolder) -> Lock:
    """The lock of the one agent that a state folder may have.

    Raises:
        StateError: another agent has it, or the file cannot be opened or locked.
    """
    try:
        lock = acquire(state.agent_lock, "wirewatch serve", _AGENT_MODE)
    except OSError as error:
        raise StateError(f"cannot lock {state.agent_lock}: {error.strerror or error}") from error
    if isinstance(lock, LockHolder):
        raise StateError(f"another agent keeps its state in {state.directory}: {lock}")
    return lock


def lock_probe(state: StateFolder, who: str = "wirewatch") -> Lock | LockHolder | Absent:
    """The lock that a process holds while it probes; `who` is shown to those that find it held.

    Never waits. Absent: the file cannot be opened or locked, so it is not known whether it is held.
    """
    try:
        return acquire(state.probe_lock, who, _PROBE_MODE)
    except OSError as error:
        return refused(error, state.probe_lock)


def refused(error: OSError, path: Path) -> Absent:
    """Why a file could not be written; what is wrong with a whole disk (full, read-only) is DENIED."""
    absent = absent_errno(error.errno or 0, str(path))
    return replace(absent, why=Why.DENIED) if absent.why is Why.MALFORMED else absent


def acquire(path: Path, who: str, mode: int) -> Lock | LockHolder:
    """Lock a file without waiting; it is made with `mode` and names its holder.

    Raises:
        OSError: it cannot be opened or locked.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                _write(handle, f"{os.getpid()} {who}\n".encode("utf-8", "replace"))
                return Lock(handle)
        except BlockingIOError:
            held = _holder(handle)
            os.close(handle)
            return held
        except OSError:
            os.close(handle)
            raise
        # Deleted between opening and locking: the next one to come would lock another file.
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _write(handle: int, text: bytes) -> None:
    """Who holds it, as far as the disk has room: the lock itself does not need it."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, text, 0)
    except OSError:
        return


def _holder(handle: int) -> LockHolder:
    """The kernel knows best, but not across containers; a killed holder leaves its name in the file."""
    pid, who = _named(handle)
    kernel = _kernel_holder(os.fstat(handle))
    if kernel is None:
        return LockHolder(pid, f"{who}, by its file") if isinstance(pid, int) else LockHolder(pid, who)
    return LockHolder(kernel, who if pid == kernel else _program(kernel))


def _named(handle: int) -> tuple[int | Absent, str]:
    text = os.pread(handle, _NAME_BYTES, 0).decode("utf-8", "replace")
    number, _, who = text.partition("\n")[0].partition(" ")
    if not (number.isascii() and number.isdigit()):
        return Absent(Why.MISSING, "no pid in the lock file"), "another program"
    return int(number), "".join(c for c in who if c.isprintable()) or "another program"


def _kernel_holder(file: os.stat_result) -> int | None:
    """Who locked a file, from lines such as `1: FLOCK  ADVISORY  WRITE 4242 fe:00:1234 0 EOF`.

    Source: proc_locks(5). Not there: holders outside our pid namespace, and files that show another device
    than their file system's.
    """
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    try:
        lines = _LOCKS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        match line.split():
            case [_, "FLOCK", _, _, pid, at, _, _] if at == place and pid.isdigit() and pid != "0":
                return int(pid)
    return None


def _program(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "another program"
    return "".join(c for c in name if c.isprintable()) or "another program"
