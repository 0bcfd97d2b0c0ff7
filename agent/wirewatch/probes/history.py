"""The history of probes: what each one gave, on disk, the last so many of them.

Whatever the disk does, nothing here raises: what could not be kept or read is an `Absent` that says why.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from wirewatch.core.ports import Clock
from wirewatch.core.types import Absent, Why
from wirewatch.probes.historyfile import (
    GARBLED,
    Busy,
    Opened,
    SetAside,
    code_of,
    is_damage,
    open_file,
    put_aside,
)
from wirewatch.probes.news import News, Place, before, mark, since, spread
from wirewatch.probes.records import MAX_BYTES, MAX_RECORDS, By, Damaged, Record, Row, Wanted, insert, select
from wirewatch.probes.state import refused

__all__ = ["By", "History", "Limits", "Record", "SetAside"]

T = TypeVar("T")
BUSY = 5.0
"""Seconds to wait for other processes; each of them writes for milliseconds."""
_WHY = {
    sqlite3.SQLITE_BUSY: Why.TIMEOUT,
    sqlite3.SQLITE_LOCKED: Why.TIMEOUT,
    sqlite3.SQLITE_READONLY: Why.DENIED,
    sqlite3.SQLITE_PERM: Why.DENIED,
    sqlite3.SQLITE_CANTOPEN: Why.DENIED,
    sqlite3.SQLITE_FULL: Why.DENIED,
    sqlite3.SQLITE_IOERR: Why.LOST,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Records that are kept, bytes of their documents together, seconds to wait for other processes."""

    max_records: int = MAX_RECORDS
    max_bytes: int = MAX_BYTES
    busy: float = BUSY


class History:
    """The history in one file; for any thread, and for several processes at once."""

    def __init__(self, path: Path, clock: Clock, limits: Limits) -> None:
        self._path, self._clock, self._limits = path, clock, limits
        self._turn = threading.Lock()
        self._opened: Opened | None = None
        self._set_aside: SetAside | None = None
        self._closed = False

    @classmethod
    def open(cls, path: Path, clock: Clock, limits: Limits = Limits()) -> Self:
        """The history at `path`; where it cannot be opened now, each later call tries again."""
        history = cls(path, clock, limits)
        history._do(lambda _: None)
        return history

    @property
    def set_aside(self) -> SetAside | None:
        """The last file that this object found unusable and put out of the way; a new one was begun."""
        return self._set_aside

    def add(self, record: Record) -> Absent | None:
        """Keep a record, and drop the oldest beyond the limits; Absent where it was not kept."""
        try:
            row = Row.of(record)
        except (ValueError, OverflowError) as error:
            return Absent(Why.MALFORMED, f"not a record that can be kept: {error}")
        limits = self._limits
        if row.size > limits.max_bytes:
            return Absent(Why.MALFORMED, f"a document of {row.size} bytes, of {limits.max_bytes} for all")
        return self._do(lambda connection: insert(connection, row, limits.max_records, limits.max_bytes))

    def recent(self, count: int) -> tuple[Record, ...] | Absent:
        """The last `count` records to be added, newest first."""
        return self._do(lambda connection: select(connection, count, Wanted()))

    def last(
        self, *, result: str | None = None, by: By | None = None, forced: bool | None = None
    ) -> Record | Absent:
        """The newest record of those with this result, starter and force; MISSING where there is none."""
        found = self._do(lambda connection: select(connection, 1, Wanted(result, by, forced)))
        if isinstance(found, Absent):
            return found
        return found[0] if found else Absent(Why.MISSING, "no such probe in the history")

    def before(self, count: int) -> News | Absent:
        """The last `count` complete probes that a daemon folded, and those of its after them; none forced."""
        return self._do(lambda connection: before(connection, count))

    def spread(self, count: int) -> tuple[Record, ...] | Absent:
        """About `count` complete probes that daemons folded, evenly over the whole history, oldest first."""
        return self._do(lambda connection: spread(connection, count))

    def since(self, seen: Place | None, count: int) -> News | Absent:
        """The last `count` that others added after `seen`, None for after what a daemon folded."""
        return self._do(lambda connection: since(connection, seen, count))

    def mark(self, places: Sequence[Place]) -> Absent | None:
        """Note that a daemon has taken these over; Absent where that was not noted."""
        return self._do(lambda connection: mark(connection, places))

    def close(self) -> None:
        """Close the file; all later calls are Absent."""
        with self._turn:
            self._closed = True
            self._drop()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T | Absent:
        with self._turn:
            if self._closed:
                return Absent(Why.MISSING, f"{self._path}: closed")
            try:
                return self._try(work)
            except (Damaged, Busy, sqlite3.Error, OSError) as error:
                absent = _absent(error, self._path)
                # The next call opens it anew and so checks it; but what waited in vain can still be read.
                if absent.why is not Why.TIMEOUT:
                    self._drop()
                return absent

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it, once more on a new file where the old one turns out damaged."""
        opened = self._open()
        try:
            return _on(opened, work)
        except Damaged as damaged:
            self._opened = None
            self._note(put_aside(opened, str(damaged), self._limits.busy, self._clock.now()))
        return _on(self._open(), work)

    def _open(self) -> Opened:
        if self._opened is not None and not self._opened.is_there():
            self._drop()
        if self._opened is None:
            self._opened = open_file(self._path, self._limits.busy, self._clock.now())
            self._note(self._opened.set_aside)
        return self._opened

    def _note(self, aside: SetAside | None) -> None:
        self._set_aside = aside or self._set_aside

    def _drop(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None


def _on(opened: Opened, work: Callable[[sqlite3.Connection], T]) -> T:
    """What `work` returns.

    Raises:
        Damaged: SQLite found the file to be so.
        sqlite3.Error: anything else.
    """
    try:
        return work(opened.connection)
    except sqlite3.Error as error:
        if is_damage(error):
            raise Damaged(str(error)) from error
        raise
    except UnicodeDecodeError as error:
        raise Damaged(GARBLED) from error


def _absent(error: Exception, path: Path) -> Absent:
    match error:
        case OSError():
            return refused(error, path)
        case sqlite3.Error():
            code = code_of(error)
            return Absent(_WHY.get(code, Why.MALFORMED), f"{path}: {error}", code)
        case Busy():
            return Absent(Why.TIMEOUT, f"{path}: {error}")
    return Absent(Why.MALFORMED, f"{path}: {error}")
