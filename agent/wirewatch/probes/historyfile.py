"""The file of the history: opened and checked, begun anew, or set aside when it cannot be used.

Opening and setting aside are done by one process at a time: SQLite finds its log by name, and would take the
log of a new file for that of the old one. Facts: sqlite.org, howtocorrupt.html section 4 and wal.html.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirewatch.probes.records import COLUMNS, CREATE, Damaged
from wirewatch.probes.state import Lock, take

VERSION = 1
MOST_ASIDE = 16
"""Files set aside; with as many there, a file that cannot be used stays where it is, and nothing is kept."""
GARBLED = "its own names are no text"
"""What SQLite had to say quoted the file, and Python could not read it."""
_COMPANIONS = ("-wal", "-shm", "-journal")
_LOG_BYTES = 4 << 20
_HEADER_BYTES = 100
_POLL = 0.01
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


class Busy(Exception):
    """Others have been opening the file for all of the time that there was."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that was put out of the way, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection to a checked file, and which file that is."""

    path: Path
    connection: sqlite3.Connection
    identity: tuple[int, int]
    set_aside: SetAside | None = None

    def is_there(self) -> bool:
        """Whether the file is still the one at its path: somebody may have moved or set it aside."""
        try:
            return _identity(self.path) == self.identity
        except OSError:
            return False

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.connection.close()


def is_damage(error: sqlite3.Error) -> bool:
    return code_of(error) in _DAMAGE


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code, 1 where Python raised the error itself."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def open_file(path: Path, timeout: float, at: float) -> Opened:
    """The history at `path`: made if not there, set aside (named by `at`, Unix seconds) if it cannot be used.

    `timeout` in seconds, for other processes.

    Raises:
        Damaged: too many are set aside already, or the new file cannot be used either.
        Busy, OSError, sqlite3.Error: nothing is wrong with the file; later it may go.
    """
    with _alone(path, timeout), ExitStack() as unusable:
        try:
            return _opened(path, timeout, unusable)
        except Damaged as damaged:
            aside = _put_aside(path, str(damaged), at)
        unusable.close()
        # No third try: on a disk that garbles all, the next file would be no better.
        return _opened(path, timeout, unusable, aside)


def put_aside(opened: Opened, reason: str, timeout: float, at: float) -> SetAside | None:
    """Set aside a file that turned out damaged in use, and close it; None where another process has done so.

    Raises:
        Damaged: too many are set aside already.
        Busy, OSError: it could not be moved.
    """
    try:
        with _alone(opened.path, timeout):
            return _put_aside(opened.path, reason, at) if opened.is_there() else None
    finally:
        opened.close()


@contextmanager
def _alone(path: Path, timeout: float) -> Iterator[None]:
    end = time.monotonic() + timeout
    while not isinstance(lock := take(Path(f"{path}.lock"), "opening", 0o600), Lock):
        if time.monotonic() >= end:
            raise Busy(f"being opened by {lock} for {timeout:g} s")
        time.sleep(_POLL)
    with lock:
        yield


def _opened(path: Path, timeout: float, unusable: ExitStack, aside: SetAside | None = None) -> Opened:
    """A connection that has proved good; one that has not is left for `unusable` to close.

    Closed before it is moved, a damaged file would have its log written into it, and the log deleted.
    """
    size = _size(path)
    if size == 0 and _size(Path(f"{path}-wal")) > 0:
        raise Damaged("empty or gone, its log left behind")  # which SQLite would delete
    if 0 < size < _HEADER_BYTES:
        raise Damaged(f"of {size} bytes, too short for a database")  # one byte is an empty file to SQLite
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    unusable.callback(connection.close)
    # Text that is none must be read to be seen: its CRC will be wrong.
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        _prepare(connection)
    except sqlite3.Error as error:
        if _is_files_fault(error, path):
            raise Damaged(str(error)) from error
        raise
    except UnicodeDecodeError as error:
        raise Damaged(GARBLED) from error
    opened = Opened(path, connection, _identity(path), aside)
    unusable.pop_all()
    return opened


def _is_files_fault(error: sqlite3.Error, path: Path) -> bool:
    """On opening, a plain error is too, since the questions are right, and a header that forbids writing."""
    code = code_of(error)
    if code == sqlite3.SQLITE_READONLY:
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code == sqlite3.SQLITE_ERROR or is_damage(error)


def _prepare(connection: sqlite3.Connection) -> None:
    version = _one(connection, "PRAGMA user_version")
    if version not in {0, VERSION}:
        raise Damaged(f"of schema version {version}, this wirewatch knows {VERSION}")
    verdict = _one(connection, "PRAGMA quick_check(1)")
    if verdict != "ok":
        raise Damaged(" ".join(str(verdict).split()))
    if version == 0 and _one(connection, "SELECT count(*) FROM sqlite_master") == 0:
        # Now or never: a file that has a page takes it only with a VACUUM.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _use_log(connection)
        for step in ("BEGIN IMMEDIATE", CREATE, f"PRAGMA user_version = {VERSION}", "COMMIT"):
            connection.execute(step)
        return
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info('probes')")]
    if version == 0 or columns != list(COLUMNS):
        raise Damaged("not a history of probes")
    _use_log(connection)
    # Only a write tells that it can be written; taken back, it leaves the file as it was.
    for step in ("BEGIN IMMEDIATE", f"PRAGMA user_version = {VERSION}", "ROLLBACK"):
        connection.execute(step)


def _use_log(connection: sqlite3.Connection) -> None:
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", f"journal_size_limit = {_LOG_BYTES}"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _one(connection: sqlite3.Connection, question: str) -> Any:
    (value,) = connection.execute(question).fetchone()
    return value


def _put_aside(path: Path, reason: str, at: float) -> SetAside:
    """The log goes first: were we killed between, SQLite would delete a log that stands alone."""
    if len(_aside(path)) >= MOST_ASIDE:
        raise Damaged(
            f"{reason}; {MOST_ASIDE} such files are set aside already: look at them and remove them"
        )
    number = int(at)
    while any(Path(f"{_name(path, number)}{end}").exists() for end in ("", *_COMPANIONS)):
        number += 1
    for end in (*_COMPANIONS, ""):
        with suppress(FileNotFoundError):
            Path(f"{path}{end}").rename(f"{_name(path, number)}{end}")
    return SetAside(_name(path, number), reason)


def _name(path: Path, number: int) -> Path:
    return Path(f"{path}.corrupt-{number}")


def _aside(path: Path) -> set[str]:
    names = (one.name for one in path.parent.iterdir() if one.name.startswith(f"{path.name}.corrupt-"))
    return {name.removesuffix("-wal").removesuffix("-shm").removesuffix("-journal") for name in names}


def _size(path: Path) -> int:
    """Bytes; 0 where there is no file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _identity(path: Path) -> tuple[int, int]:
    file = path.stat()
    return file.st_dev, file.st_ino
