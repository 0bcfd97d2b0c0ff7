"""The history of probes and their results, in one SQLite file that keeps the newest.

No fault of a disk, another process or a strange file raises: a call returns an `Absent` with the reason. Each
call opens the file again, so that it never writes to a file that was moved or replaced meanwhile.
"""

import errno
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from stat import S_ISREG
from typing import Any, Literal, Self, TypeVar

from wirewatch.core.ports import Clock
from wirewatch.core.types import Absent, Why
from wirewatch.statefolder import as_owner, note_written, refused

log = logging.getLogger(__name__)

T = TypeVar("T")
VERSION = 2
"""The version of the table. wirewatch 0.1 had 1, which is converted."""
MOST_ASIDE = 16
"""With this number of files set aside, an unusable file stays where it is, and nothing is kept."""
_CREATE = """
    CREATE TABLE {} (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, boot_id TEXT NOT NULL, result TEXT NOT NULL,
        forced INTEGER NOT NULL, started_by TEXT NOT NULL, engine TEXT NOT NULL, gpu_seconds REAL NOT NULL,
        folded INTEGER NOT NULL, document TEXT NOT NULL, mono REAL
    )
"""
# Daemons of 0.1 noted in `started_by` which probes of commands they had folded.
_OF_0_1 = """
    SELECT id, at, boot_id, result, forced, replace(started_by, 'taken', 'command') AS started_by, engine,
        gpu_seconds, started_by <> 'command' AS folded, document, NULL AS mono FROM main.probes
"""
_CONVERT = (
    _CREATE.format("converted"),
    f"INSERT INTO converted {_OF_0_1} ORDER BY id",
    "DROP TABLE probes",
    "ALTER TABLE converted RENAME TO probes",
)
_INSERT = """
    INSERT INTO probes (at, boot_id, result, forced, started_by, engine, gpu_seconds, folded, document, mono)
    VALUES (:at, :boot_id, :result, :forced, :started_by, :engine, :gpu_seconds, :folded, :document, :mono)
"""
_COMPLETE = """
    SELECT * FROM probes WHERE folded AND NOT forced AND result = 'ok' ORDER BY id DESC LIMIT ?
"""
_LATER = "SELECT * FROM probes WHERE folded AND NOT forced AND id > ? ORDER BY id DESC LIMIT ?"
_ADDED = """
    SELECT * FROM probes WHERE started_by = 'command' AND NOT forced AND id > ? ORDER BY id DESC LIMIT ?
"""
_EVENLY = """
    WITH counted AS (
        SELECT id, row_number() OVER (ORDER BY id) AS place, count(*) OVER () AS number FROM probes
        WHERE folded AND NOT forced AND result = 'ok'
    )
    SELECT * FROM probes WHERE id IN (SELECT id FROM counted WHERE place % max(1, number / ?) = 0)
    ORDER BY id DESC
"""
_FILES = ("-journal", "-wal", "-shm", "")
"""Endings of the names of a history's files: SQLite's own files first, then the history."""
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_REFUSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL)
_WHY = {
    sqlite3.SQLITE_BUSY: Why.TIMEOUT,
    sqlite3.SQLITE_LOCKED: Why.TIMEOUT,
    sqlite3.SQLITE_IOERR: Why.LOST,
    **dict.fromkeys(_REFUSED, Why.DENIED),
}


@dataclass(frozen=True, slots=True)
class HistoryCursor:
    """The last row that was read; its time shows whether a row with that number is of another file."""

    id: int
    at: float


START = HistoryCursor(0, 0.0)
"""Before all rows."""


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """One probe: when it ended (Unix seconds) and in which boot, GPU-seconds held, its result as JSON.

    `result` is "ok", "failed", "busy" and so on; a `forced` probe did not ask the gate. `folded`: a daemon
    has folded it into its verdict. `id` is its place in the order of adding, given by the history. `mono`:
    when it ended in monotonic seconds of that boot; None for a probe of wirewatch 0.1.
    """

    at: float
    boot_id: str
    result: str
    forced: bool
    started_by: Literal["daemon", "command"]
    engine: str
    gpu_seconds: float
    document: str
    folded: bool = False
    id: int = field(default=0, compare=False)
    mono: float | None = None

    @property
    def cursor(self) -> HistoryCursor:
        """After this row."""
        return HistoryCursor(self.id, self.at)


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """Records that are kept, bytes of the file, seconds to wait for other processes."""

    max_records: int = 2000
    max_bytes: int = 64 << 20
    busy: float = 5.0


class UnusableHistory(Exception):
    """The file is no history that this version can use; the text says why."""


class History:
    """The history in one file; for any thread, and for several processes at once."""

    def __init__(self, path: Path, clock: Clock, limits: HistoryLimits, *, read_only: bool = False) -> None:
        self._path, self._clock, self._limits, self._read_only = path, clock, limits, read_only
        self._wrong: Absent | None = None

    @classmethod
    def open(cls, path: Path, clock: Clock, limits: HistoryLimits = HistoryLimits()) -> Self:
        """The history at `path`, checked; where it cannot be opened now, each later call tries again."""
        history = cls(path, clock, limits)
        history._do(_check)
        return history

    def add(self, record: ProbeRecord) -> Absent | None:
        """Keep a record, and drop the oldest beyond the limits; Absent where it was not kept.

        The log says when keeping begins to fail, and when it works again.
        """
        wrong = self._do(lambda connection: _insert(connection, record, self._limits), "BEGIN IMMEDIATE")
        if wrong is not None and wrong != self._wrong:
            log.warning("probes are not kept: %s", wrong)
        if wrong is None and self._wrong is not None:
            log.info("%s is written again", self._path)
        self._wrong = wrong
        note_written(self._path, "" if wrong is None else f"{self._path}: {wrong.detail}")
        return wrong

    def folded(self, count: int, *, added: bool = False) -> tuple[ProbeRecord, ...] | Absent:
        """Return the last `count` complete, unforced, folded probes, and later folds, oldest first.

        With `added` also probes that commands have added since.
        """
        return self._do(lambda connection: _folded(connection, count, added=added))

    def sample(self, count: int) -> tuple[ProbeRecord, ...] | Absent:
        """Return about `count` complete folded probes, evenly over the whole history, oldest first."""
        return self._do(lambda connection: _select(connection, _EVENLY, max(1, count)))

    def added(
        self, after: HistoryCursor | None, count: int
    ) -> tuple[tuple[ProbeRecord, ...], HistoryCursor] | Absent:
        """Return the last `count` probes that commands added after a row, oldest first, and the newest row.

        `after` may be None, or a row that is not there because another file took the place of the old file.
        Both stand for the newest folded row: daemons have folded or left out all before it.
        """
        return self._do(lambda connection: _added(connection, after, count))

    def fold(self, records: Sequence[ProbeRecord]) -> Absent | None:
        """Note that a daemon has folded these; Absent where the note was not kept."""
        return self._do(lambda connection: _fold(connection, records), "BEGIN IMMEDIATE")

    def _do(self, work: Callable[[sqlite3.Connection], T], begin: str = "BEGIN") -> T | Absent:
        """Return the result of `work` in one transaction; once more where the file was damaged or moved."""
        try:
            with as_owner(self._path.parent, reading=self._read_only):
                return self._do_as_owner(work, begin)
        except (sqlite3.Error, UnicodeError, UnusableHistory, OSError) as error:
            return _absent(error, self._path)

    def _do_as_owner(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        file = _inode(self._path)
        try:
            return self._try(work, begin)
        except (sqlite3.Error, UnicodeDecodeError, UnusableHistory) as error:
            if self._read_only or not self._path.parent.is_dir():
                raise
            # Who finds the same damage waits, and then finds the file that came instead.
            with _alone(self._path.parent, self._limits.busy):
                if _inode(self._path) == file:
                    self._replace(error)
        return self._try(work, begin)

    def _try(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        for path in (Path(f"{self._path}{end}") for end in _FILES):
            # SQLite would follow a link, and wait for the other end of a pipe.
            with suppress(FileNotFoundError):
                if not S_ISREG(path.lstat().st_mode):
                    raise PermissionError(errno.EPERM, "not a file", str(path))
        with closing(self._connected(self._path, "ro" if self._read_only else "rwc")) as connection:
            _prepare(connection, read_only=self._read_only)
            connection.execute(begin)
            result = work(connection)
            connection.execute("COMMIT")
            return result

    def _connected(self, path: Path, mode: str) -> sqlite3.Connection:
        name = f"{path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(name, uri=True, timeout=self._limits.busy, isolation_level=None)

    def _replace(self, error: Exception) -> None:
        """Begin anew in the place of an unusable file; raises the error of a usable file."""
        if (
            _code(error) == sqlite3.SQLITE_READONLY
            and not _may(self._path, os.W_OK)
            and _is_strange(self._path)
        ):
            self._take_over()
        elif _is_damage(error, self._path):
            self._set_aside(error)
        else:
            raise error

    def _take_over(self) -> None:
        """Replace another user's file, which this process may read and not write, by a copy of our own."""
        new = self._path.with_name(f"{self._path.name}.new")
        new.unlink(missing_ok=True)
        try:
            theirs, ours = self._connected(self._path, "ro"), self._connected(new, "rwc")
            with closing(theirs), closing(ours):
                theirs.backup(ours)
            new.replace(self._path)
        finally:
            new.unlink(missing_ok=True)
        for end in _FILES[:-1]:
            # What was not yet written back is in the copy.
            Path(f"{self._path}{end}").unlink(missing_ok=True)
        log.warning("%s: it was another user's, a copy has taken its place", self._path)

    def _set_aside(self, error: Exception) -> None:
        reason, name = " ".join(str(error).split()), self._path.name
        if len([*self._path.parent.glob(f"{name}.corrupt-*[0-9]")]) >= MOST_ASIDE:
            many = f"{MOST_ASIDE} such files are set aside: look at them and remove them"
            raise UnusableHistory(f"{reason}; {many}")
        number = int(self._clock.now())
        while (aside := self._path.with_name(f"{name}.corrupt-{number}")).exists():
            number += 1
        for end in _FILES:
            with suppress(FileNotFoundError):
                Path(f"{self._path}{end}").rename(f"{aside}{end}")
        log.warning("%s: %s; set aside as %s, a new history begins", self._path, reason, aside)


def _prepare(connection: sqlite3.Connection, *, read_only: bool) -> None:
    """Make the table, or convert it from another version.

    Raises UnusableHistory for any other file, sqlite3.Error where it cannot be used now.
    """
    connection.row_factory = sqlite3.Row
    # Bytes that are not text show when they are read as JSON.
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        version = _version(connection)
        if version == 1 and read_only:
            connection.execute(f"CREATE TEMP VIEW probes AS {_OF_0_1}")
        elif version != VERSION:
            _convert(connection, version)
        columns = {row["name"] for row in connection.execute("PRAGMA table_info(probes)")}
    except sqlite3.OperationalError as error:
        if _code(error) == sqlite3.SQLITE_ERROR:
            raise UnusableHistory(f"not a history of probes: {error}") from error
        raise
    if columns != {field.name for field in fields(ProbeRecord)}:
        raise UnusableHistory("not a history of probes")


def _convert(connection: sqlite3.Connection, version: int) -> None:
    """Make a history of an empty file or a file of 0.1, unless another process has just done so."""
    if version == 1:
        # Its log goes; while a daemon of 0.1 still runs, this fails and the file stays that daemon's.
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    connection.execute("BEGIN IMMEDIATE")
    version = _version(connection)
    if version == 0 and _one(connection, "SELECT count(*) FROM sqlite_master"):
        raise UnusableHistory("not a history of probes")
    if version not in {0, 1, VERSION}:
        newer = "written by a newer wirewatch, " if version > VERSION else ""
        raise UnusableHistory(f"{newer}of schema version {version}, this wirewatch knows {VERSION}")
    for step in {0: (_CREATE.format("probes"),), 1: _CONVERT}.get(version, ()):
        connection.execute(step)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    # A script commits first.
    connection.executescript("PRAGMA incremental_vacuum")


def _check(connection: sqlite3.Connection) -> None:
    if (verdict := _one(connection, "PRAGMA quick_check(1)")) != "ok":
        raise UnusableHistory(str(verdict))


def _insert(connection: sqlite3.Connection, record: ProbeRecord, limits: HistoryLimits) -> None:
    connection.execute(_INSERT, asdict(record))
    newest = _one(connection, "SELECT last_insert_rowid()")
    connection.execute("DELETE FROM probes WHERE id <= ?", (newest - limits.max_records,))
    oldest = "DELETE FROM probes WHERE id = (SELECT min(id) FROM probes WHERE id < ?)"
    sizes = [f"PRAGMA {name}" for name in ("page_count", "freelist_count", "page_size")]
    pages, free, size = (_one(connection, question) for question in sizes)
    while (pages - free) * size > limits.max_bytes and connection.execute(oldest, (newest,)).rowcount:
        pages, free, size = (_one(connection, question) for question in sizes)


def _folded(connection: sqlite3.Connection, count: int, *, added: bool) -> tuple[ProbeRecord, ...]:
    complete = _select(connection, _COMPLETE, count)
    later = _select(connection, _LATER, complete[-1].id if complete else 0, count)
    unfolded = _select(connection, _ADDED, _newest_folded(connection), count) if added else ()
    return (*complete, *later, *unfolded)


def _added(
    connection: sqlite3.Connection, after: HistoryCursor | None, count: int
) -> tuple[tuple[ProbeRecord, ...], HistoryCursor]:
    row = connection.execute("SELECT id, at FROM probes ORDER BY id DESC LIMIT 1").fetchone()
    newest = START if row is None else HistoryCursor(*row)
    start = after.id if after and _has(connection, after) else _newest_folded(connection)
    return _select(connection, _ADDED, start, count), newest


def _has(connection: sqlite3.Connection, cursor: HistoryCursor) -> bool:
    row = connection.execute("SELECT at FROM probes WHERE id = ?", (cursor.id,)).fetchone()
    return cursor == START or (row is not None and row["at"] == cursor.at)


def _newest_folded(connection: sqlite3.Connection) -> int:
    return int(_one(connection, "SELECT ifnull(max(id), 0) FROM probes WHERE folded"))


def _fold(connection: sqlite3.Connection, records: Sequence[ProbeRecord]) -> None:
    rows = [(record.id, record.at) for record in records]
    connection.executemany("UPDATE probes SET folded = 1 WHERE id = ? AND at = ?", rows)


def _select(connection: sqlite3.Connection, query: str, *values: int) -> tuple[ProbeRecord, ...]:
    """The records of a query that begins with the newest, oldest first."""
    rows = [dict(row) for row in connection.execute(query, values).fetchall()[::-1]]
    if not all(isinstance(row["at"], float) for row in rows):
        raise UnusableHistory("a record is not what was added")
    return tuple(ProbeRecord(**row | {k: bool(row[k]) for k in ("forced", "folded")}) for row in rows)


def _one(connection: sqlite3.Connection, question: str) -> Any:
    return connection.execute(question).fetchone()[0]


def _version(connection: sqlite3.Connection) -> int:
    return int(_one(connection, "PRAGMA user_version"))


@contextmanager
def _alone(folder: Path, seconds: float) -> Iterator[None]:
    """Hold a lock on a folder; OSError where another process holds it for so many seconds."""
    handle, end = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), time.monotonic() + seconds
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise OSError(
                        errno.EAGAIN, "another process replaces a file in it", str(folder)
                    ) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _inode(path: Path) -> int | None:
    with suppress(FileNotFoundError):
        return path.lstat().st_ino
    return None


def _is_damage(error: Exception, path: Path) -> bool:
    if not isinstance(error, sqlite3.Error):
        return True
    if _code(error) == sqlite3.SQLITE_READONLY:
        return _may(path, os.W_OK)  # its header forbids it
    if _code(error) == sqlite3.SQLITE_CANTOPEN:
        return os.path.lexists(path) and not _may(path, os.R_OK) and _is_strange(path)
    return _code(error) in _DAMAGE


def _is_strange(path: Path) -> bool:
    """Return whether a file is of another user than its folder, where this process may write."""
    return _may(path.parent, os.W_OK) and path.lstat().st_uid != path.parent.stat().st_uid


def _may(path: Path, how: int) -> bool:
    return os.access(path, how, effective_ids=True)


def _code(error: Exception) -> int:
    """SQLite's primary result code, 1 where another raised the error."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def _absent(error: Exception, path: Path) -> Absent:
    if isinstance(error, OSError):
        return refused(error, path)
    code = _code(error)
    return Absent(_WHY.get(code, Why.MALFORMED), f"{path}: {error}", code)
