"""The state folder: where it is, with whose rights root works in it, and its two locks.

A lock is flock(2) on a file that stays: the kernel drops it with its holder, however that dies. An operator's
flock(1) can take it too.
"""

import ctypes
import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG, S_IWGRP, S_IWOTH
from types import TracebackType
from typing import Self

from wirewatch.core.types import Absent, Unusable, Why
from wirewatch.hw.files import absent_errno

SYSTEM = "/var/lib/wirewatch"
_AGENT_MODE = 0o600
"""For root alone: a user who may open a lock may hold it, and no user may keep the agent from starting."""
_PROBE_MODE = 0o644
"""For every user: a user with a job here may ask for silence."""
_NAME_BYTES = 200
_PAGE = 4096
_OVERFLOW = 65534
"""/proc/sys/fs/overflowuid, by default: a user that a user namespace does not have."""
_AS_IT_IS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
"""Open the path as it is: follow no link, and do not wait for a pipe."""
_LOCKS = Path("/proc/locks")
_SAME = 0xFFFFFFFF
"""No id: setfsuid(2) changes nothing, and returns the id in force."""


class StateError(Unusable):
    """A state folder that cannot be used; the text is one line for the user."""


class ReadOnlyState(StateError):
    """A state folder that cannot be written now; its contents may still be read."""


class StateInUse(StateError):
    """A state folder that another agent uses."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """A state folder that exists.

    It has the history of probes, the ledger of faults (`latches`) and the accepted topology (`baseline`). It
    also has the known parts of the machine, and the results of pairs of nodes about this node.
    """

    directory: Path

    @property
    def history(self) -> Path:
        return self.directory / "probes.sqlite"

    @property
    def nics(self) -> Path:
        """The history of probes of NICs."""
        return self.directory / "nics.sqlite"

    @property
    def latches(self) -> Path:
        return self.directory / "latches.json"

    @property
    def baseline(self) -> Path:
        return self.directory / "baseline.json"

    @property
    def machine(self) -> Path:
        return self.directory / "machine.json"

    @property
    def pairs(self) -> Path:
        return self.directory / "pairs.json"

    @property
    def memories(self) -> tuple[Path, ...]:
        """Return all memories of one machine, with the files that SQLite keeps beside the history."""
        histories = (self.history, self.nics)
        beside = (one.with_name(f"{one.name}{end}") for one in histories for end in ("-wal", "-shm"))
        return (self.machine, self.latches, self.baseline, self.pairs, *histories, *beside)

    @property
    def agent_lock(self) -> Path:
        """Held by the only agent of this folder."""
        return self.directory / "agent.lock"

    @property
    def probe_lock(self) -> Path:
        """Held by a process while it probes, or by a user who wants silence."""
        return self.directory / "probe.lock"


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Another process has the lock; `who` is its own name for itself, or its program's name."""

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
        """Release the lock; a second call does nothing."""
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
    """Return the state folder: as configured, else the service manager's folder, the system's, or the user's.

    Raises StateError for a user without a home.
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


def state_owner(folder: Path) -> tuple[int, int] | None:
    """Return the user and group as whom root works in a state folder, there or not; None for root itself.

    It is the folder's owner. For a folder of root's below another user's folder it is that user, who could
    put a link in its place. Where a folder of root's is open to a group, it is the user whose agent has made
    its lock there.
    """
    unmapped = _unmapped()
    for place in (folder, *reversed(folder.parents)):
        with suppress(FileNotFoundError, NotADirectoryError):
            found = place.stat()
            if found.st_uid and (found.st_uid != unmapped or place == folder):
                return found.st_uid, found.st_gid
    with suppress(FileNotFoundError, NotADirectoryError):
        found, lock = folder.stat(), StateFolder(folder).agent_lock.lstat()
        sound = S_ISREG(lock.st_mode) and lock.st_nlink == 1
        if found.st_mode & (S_IWGRP | S_IWOTH) and sound and lock.st_uid:
            return lock.st_uid, found.st_gid
    return None


def _unmapped() -> int | None:
    """Return the id that a user namespace shows for users outside it, such as the root outside."""
    with suppress(OSError):
        if Path("/proc/self/uid_map").read_text("utf-8").split() != ["0", "0", str(0xFFFFFFFF)]:
            return _OVERFLOW
    return None


@contextmanager
def filesystem_ids(uid: int, gid: int) -> Iterator[None]:
    """Give this thread the access to files of a user and group without other groups, until the block ends.

    It uses setfsuid(2): other threads keep their access, and the user may not send this process a signal, as
    after seteuid(2). A thread of root's also loses the capabilities that override permissions. No thread and
    no process may be started in the block: it would keep the ids. The first time, the whole process gives up
    its supplementary groups for good. Raises PermissionError where it may not act as that user; the block is
    not run.
    """
    set_uid, set_gid = _calls()
    if os.getgroups():
        os.setgroups([])
    before = set_uid(_SAME), set_gid(_SAME)
    try:
        set_gid(gid)
        set_uid(uid)
        if (set_uid(_SAME), set_gid(_SAME)) != (uid, gid):
            raise PermissionError
        yield
    finally:
        set_uid(before[0])
        set_gid(before[1])


@cache
def _calls() -> tuple[Callable[[int], int], Callable[[int], int]]:
    library = ctypes.CDLL(None)
    for call in (library.setfsuid, library.setfsgid):
        call.argtypes, call.restype = [ctypes.c_uint], ctypes.c_uint
    return library.setfsuid, library.setfsgid


@contextmanager
def as_owner(folder: Path, *, reading: bool = False) -> Iterator[None]:
    """Work in a state folder; a thread of root's has the rights of `state_owner` alone meanwhile.

    The kernel then refuses root all acts that the owner may not do, behind links too, and new files are the
    owner's. No thread and no process may be started in the block: it would keep these rights. With `reading`,
    root goes on as root where it may not act as the owner. Raises OSError: it may not, or the folder is
    unknown or not the folder that this agent has locked.
    """
    if held := _HELD.get(folder):
        held.refuse_another()
    with _rights(folder, reading=reading):
        yield


@contextmanager
def _rights(folder: Path, *, reading: bool = False) -> Iterator[None]:
    owner = None if os.geteuid() else state_owner(folder)
    if owner is None:
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(filesystem_ids(*owner))
        except PermissionError as error:
            if not reading:
                raise PermissionError(errno.EPERM, "this process may not work as that user") from error
        yield


def open_state_for_command(directory: Path) -> StateFolder:
    """Return the state folder for a command beside the daemon; raises StateError as `open_state`.

    As root it makes no missing folder: the daemon, or its installation, decides who owns the folder.
    """
    return open_state(directory, make=os.geteuid() != 0)


def open_state(directory: Path, *, make: bool = True) -> StateFolder:
    """Return the state folder, which can be written; with `make` it is made if it is not there.

    Raises ReadOnlyState where it is there and no file can be made in it, StateError where it is not there.
    """
    try:
        with as_owner(directory):
            if make:
                directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            os.listdir(directory)  # noqa: PTH208 - whether it is there, and a folder
            _try_to_write(directory)
    except FileExistsError as error:
        raise StateError(f"cannot keep state in {directory}: not a folder") from error
    except OSError as error:
        raise StateError(_unkept(directory, error)) from error
    return StateFolder(directory)


def _try_to_write(directory: Path) -> None:
    """Try to write: permissions alone do not decide, since the file system may be read-only, or full."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(_PAGE))
            file.flush()
    except OSError as error:
        raise ReadOnlyState(_unkept(directory, error)) from error


def _unkept(directory: Path, error: OSError) -> str:
    whose = ""
    with suppress(OSError):
        owner = None if os.geteuid() else state_owner(directory)
        whose = f" as uid {owner[0]}" if owner else ""
    return f"cannot keep state in {directory}{whose}: {error.strerror or error}"


def lock_agent(state: StateFolder) -> Lock:
    """Return the lock of a state folder's one agent.

    Raises StateInUse where another agent has it, StateError where the file cannot be opened or locked.
    """
    try:
        lock = acquire(state.agent_lock, "wirewatch serve", _AGENT_MODE)
    except OSError as error:
        raise StateError(f"cannot lock {state.agent_lock}: {error.strerror or error}") from error
    if isinstance(lock, LockHolder):
        raise StateInUse(f"another agent keeps its state in {state.directory}: {lock}")
    return lock


class HeldFolder:
    """The state folder that this process's agent has locked, for any thread.

    While it is held, `as_owner` refuses another folder in its place.
    """

    def __init__(self, state: StateFolder) -> None:
        self._state, self._lock = state, lock_agent(state)
        self._found, self._linked = state.directory.stat(), state.directory.is_symlink()
        self._wrong: dict[str, str] = {}
        _HELD[state.directory] = self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del _HELD[self._state.directory]
        self._lock.release()

    @property
    def wrong(self) -> str:
        """Return why a file is not written now, in words; empty where all are."""
        return "; ".join(dict.fromkeys(self._wrong.copy().values()))

    def note(self, name: str, wrong: str) -> None:
        """Remember why a file of the folder was not written; "" for a written file."""
        if wrong:
            self._wrong[name] = wrong
        else:
            self._wrong.pop(name, None)

    def refuse_another(self) -> None:
        """Raise OSError where another file or folder lies at the folder's place."""
        with suppress(FileNotFoundError, NotADirectoryError):
            if not os.path.samestat(self._found, self._state.directory.stat()):
                raise PermissionError(errno.EPERM, "another folder has taken its place")

    def check(self) -> bool:
        """Note whether the folder can be written, and make it again if it is gone.

        Return whether it is a new folder: then write all memories again.
        """
        directory, new = self._state.directory, False
        try:
            new = self._renewed(directory)
            with as_owner(directory):
                _try_to_write(directory)
        except StateError as error:
            self.note("", str(error))
        except OSError as error:
            self.note("", _unkept(directory, error))
        else:
            self.note("", "")
        return new

    def _renewed(self, directory: Path) -> bool:
        try:
            found = directory.stat()
            if os.path.samestat(self._found, found):
                self._found = found
                return False
        except FileNotFoundError:
            _make_like(directory, self._found)
        self._take(directory)
        return True

    def _take(self, directory: Path) -> None:
        """Go on in a folder like the old folder that no other agent has; raises StateError for others."""
        with _rights(directory):
            found = directory.stat()
            odds = {
                "not a folder": not S_ISDIR(found.st_mode),
                "it is another user's now": found.st_uid != self._found.st_uid,
                "it is a link now": directory.is_symlink() and not self._linked,
                "another folder has taken its place, with files of an agent: a restart would read them": any(
                    map(os.path.lexists, self._state.memories)
                ),
            }
            for odd in (text for text, holds in odds.items() if holds):
                raise StateError(f"cannot keep state in {directory}: {odd}")
            lock = _locked(self._state.agent_lock, "wirewatch serve", _AGENT_MODE)
        if isinstance(lock, LockHolder):
            raise StateInUse(f"another agent keeps its state in {directory}: {lock}")
        self._lock.release()
        self._lock, self._found = lock, found


_HELD: dict[Path, HeldFolder] = {}


def note_written(path: Path, wrong: str) -> None:
    """Note, if a held folder's file, why it was not written; "" if it was."""
    if held := _HELD.get(path.parent):
        held.note(path.name, wrong)


def _make_like(directory: Path, old: os.stat_result) -> None:
    """Make a folder again with its old mode; where root alone made it, also with its owner."""
    ours = os.geteuid() == 0 and state_owner(directory) is None
    with _rights(directory):
        directory.mkdir(mode=0o755, parents=True)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if ours:
                os.fchown(handle, old.st_uid, old.st_gid)
            os.fchmod(handle, S_IMODE(old.st_mode))
        finally:
            os.close(handle)


def lock_probe(state: StateFolder, who: str = "wirewatch") -> Lock | LockHolder | Absent:
    """Return the lock that a process holds while it probes; others see `who` while it is held.

    Never waits. Absent: the file cannot be opened or locked, so it is not known whether it is held.
    """
    try:
        return acquire(state.probe_lock, who, _PROBE_MODE)
    except OSError as error:
        return refused(error, state.probe_lock)


def refused(error: OSError, path: Path) -> Absent:
    """Return why a file could not be written; faults of a whole disk (full, read-only) are DENIED."""
    absent = absent_errno(error.errno, str(path))
    why = Why.DENIED if absent.why is Why.MALFORMED else absent.why
    return replace(absent, why=why, detail=f"{error.filename or path}: {error.strerror or error}")


def acquire(path: Path, who: str, mode: int) -> Lock | LockHolder:
    """Lock a file without waiting; it is made with `mode` and names its holder.

    A file of another user that no process holds is replaced by a file of ours, where we may. Raises OSError:
    it cannot be opened or locked, or is no file with a single name.
    """
    with as_owner(path.parent):
        return _locked(path, who, mode)


def _locked(path: Path, who: str, mode: int) -> Lock | LockHolder:
    while True:
        handle, writable = _opened(path, mode)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # While we hold it no other process can: one that comes meanwhile finds the new file or none.
            if _is_at(handle, path) and (writable or not _removed(path)):
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


def _opened(path: Path, mode: int) -> tuple[int, bool]:
    """Return a lock file, made if needed, and whether we can write it; a read-only file can be locked too."""
    try:
        handle, writable = os.open(path, os.O_RDWR | os.O_CREAT | _AS_IT_IS, mode), True
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "a symbolic link, which is not followed") from error
        if isinstance(error, PermissionError) and _is_left(path) and _removed(path):
            return _opened(path, mode)
        try:
            handle, writable = os.open(path, os.O_RDONLY | _AS_IT_IS), False
        except OSError:
            raise error from None
    found = os.fstat(handle)
    if not S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(handle)
        raise PermissionError(errno.EPERM, "not a file with one name")
    return handle, writable


def _is_left(path: Path) -> bool:
    """Return whether we may not even read the file, and no process that the kernel lists holds it."""
    try:
        os.close(os.open(path, os.O_RDONLY | _AS_IT_IS))
    except PermissionError:
        number = str(path.lstat().st_ino)
        with suppress(OSError):
            return all(number not in line.replace(":", " ").split() for line in _locks())
    except OSError:
        return False
    return False


def _removed(path: Path) -> bool:
    with suppress(OSError):
        path.unlink()
        return True
    return False


def _is_at(handle: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.lstat())
    return False


def _write(handle: int, text: bytes) -> None:
    """Write the holder's name, as far as the disk has room: the lock itself does not need it."""
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, text, 0)


def _holder(handle: int) -> LockHolder:
    """Return the holder: the kernel knows best, but not across containers; a killed holder leaves a name."""
    pid, who = _named(handle)
    kernel = _kernel_holder(os.fstat(handle))
    if kernel is None:
        return LockHolder(pid, f"{who}, by its file") if isinstance(pid, int) else LockHolder(pid, who)
    return LockHolder(kernel, who if pid == kernel else _program(kernel))


def _named(handle: int) -> tuple[int | Absent, str]:
    text = os.pread(handle, _NAME_BYTES, 0).decode("utf-8", "replace")
    number, _, who = text.partition("\n")[0].partition(" ")
    if not (number.isascii() and number.isdigit()):
        return Absent(Why.MISSING, "no pid in the lock file"), _shown("")
    return int(number), _shown(who)


def _kernel_holder(file: os.stat_result) -> int | None:
    """Return who locked a file, from lines such as `1: FLOCK ADVISORY WRITE 4242 fe:00:1234 0 EOF`.

    Source: proc_locks(5). It lacks holders outside our pid namespace, and files that show another device than
    their file system's.
    """
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with suppress(OSError):
        for line in _locks():
            match line.split():
                case [_, "FLOCK", _, _, pid, at, _, _] if at == place and pid.isdigit() and pid != "0":
                    return int(pid)
    return None


def _locks() -> list[str]:
    return _LOCKS.read_text("utf-8", "replace").splitlines()


def _program(pid: int) -> str:
    with suppress(OSError):
        return _shown(Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip())
    return _shown("")


def _shown(name: str) -> str:
    return "".join(c for c in name if c.isprintable()) or "another program"
