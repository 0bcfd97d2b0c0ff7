"""The folder of a probe, for NCCL's log and the worker's output, and folders that dead processes left.

Its process holds a lock on it. A folder without a lock has lost its process, whatever ended that.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR, S_IWGRP, S_IWOTH

SYSTEM = "/run/wirewatch"
_PREFIX = "wirewatch-probe-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def work_folder(environment: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Yield a new folder for one probe, removed afterwards; OSError where it cannot be made."""
    folder, lock = _locked(next(iter(_places(environment)), None))
    try:
        with folder as name:
            yield Path(name)
    finally:
        os.close(lock)


def remove_left_folders(environment: Mapping[str, str] = os.environ) -> None:
    """Remove this user's folders of dead processes; no folder that is locked, or behind a link."""
    for place in _places(environment):
        with suppress(OSError):
            for name in os.listdir(place):  # noqa: PTH208 - names are all that is needed
                if name.startswith(_PREFIX):
                    _remove_left(place / name)


def _places(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return places for folders of probes, the best first: the runtime folder, then that of temporary files.

    A folder that others may write, or another user's, could be exchanged for a link. Only the folder of
    temporary files is safe for that. So root keeps out of the runtime folder of a service without privileges.
    In Kubernetes the prober keeps out of the folder that it shares with the agent.
    """
    given = environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    named = (given, "" if os.geteuid() else SYSTEM, environment.get("XDG_RUNTIME_DIR", ""))
    ours = (Path(name) for name in named if name.startswith("/") and _is_ours_alone(Path(name)))
    with suppress(FileNotFoundError):
        return (*ours, Path(tempfile.gettempdir()))
    return (*ours,)


def _is_ours_alone(folder: Path) -> bool:
    with suppress(OSError):
        found = folder.stat()
        alone = found.st_uid == os.geteuid() and not found.st_mode & (S_IWGRP | S_IWOTH)
        return alone and S_ISDIR(found.st_mode) and os.access(folder, os.W_OK)
    return False


def _locked(place: Path | None) -> tuple["tempfile.TemporaryDirectory[str]", int]:
    """A new folder and what holds its lock."""
    while True:
        # A worker that does not die may still write there.
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True)
        with suppress(FileNotFoundError):
            lock = os.open(folder.name, _FOLDER)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if Path(folder.name).exists():
                return folder, lock
            # Another process took it for one that was left, before it was locked.
            os.close(lock)
        folder.cleanup()


def _remove_left(folder: Path) -> None:
    try:
        lock = os.open(folder, _FOLDER)
    except OSError:
        return
    try:
        with suppress(OSError):
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
    finally:
        os.close(lock)
