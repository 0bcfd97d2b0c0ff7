"""A record of a probe, and the table that holds them: a row each with its CRC, the oldest dropped first."""

import math
import sqlite3
import zlib
from dataclasses import dataclass
from typing import Any, Literal

By = Literal["daemon", "command", "taken"]
"""Who ran it; `taken` is a command's that a daemon has folded as if it were its own."""

MAX_RECORDS = 2000
MAX_BYTES = 64 << 20
"""Of documents; the file has a few per cent more, its log a few MiB."""
_SLACK = 64
"""Free pages that the file keeps for the next records, 4 KiB each."""
COLUMNS = {
    "id": "INTEGER PRIMARY KEY", "at": "REAL NOT NULL", "boot_id": "TEXT NOT NULL",
    "result": "TEXT NOT NULL", "forced": "INTEGER NOT NULL", "started_by": "TEXT NOT NULL",
    "engine": "TEXT NOT NULL", "gpu_seconds": "REAL NOT NULL", "bytes": "INTEGER NOT NULL",
    "crc": "INTEGER NOT NULL", "document": "TEXT NOT NULL",
}  # fmt: skip
"""`bytes` is the document's size, `crc` the CRC-32 of what was added; the document is last, being long."""
CREATE = f"CREATE TABLE probes ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})"
_INSERT = """
    INSERT INTO probes (at, boot_id, result, forced, started_by, engine, gpu_seconds, document, bytes, crc)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SELECT = """
    SELECT at, boot_id, result, forced, started_by, engine, gpu_seconds, document, crc FROM probes
    WHERE (:result IS NULL OR result = :result) AND (:by IS NULL OR started_by = :by)
    AND (:forced IS NULL OR forced = :forced) ORDER BY id DESC LIMIT :count
"""


class Damaged(Exception):
    """The file is no history that this version can use; the text says why."""


@dataclass(frozen=True, slots=True)
class Record:
    """One probe: when it ended (Unix seconds) and in which boot, GPU-seconds held, its result as JSON.

    `result` is "ok", "failed", "busy" and so on; a `forced` one did not ask the gate.
    """

    at: float
    boot_id: str
    result: str
    forced: bool
    by: By
    engine: str
    gpu_seconds: float
    document: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records; None is "any"."""

    result: str | None = None
    by: By | None = None
    forced: bool | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A record as SQLite stores it."""

    values: tuple[Any, ...]
    size: int

    @classmethod
    def of(cls, record: Record) -> "Row":
        """The row of a record.

        Raises:
            ValueError, OverflowError: a text is no Unicode, a number is not finite.
        """
        if not (math.isfinite(record.at) and math.isfinite(record.gpu_seconds)):
            raise ValueError("a number that is not finite")
        values = (
            float(record.at), record.boot_id, record.result, int(record.forced), record.by, record.engine,
            float(record.gpu_seconds), record.document,
        )  # fmt: skip
        sizes = [len(value.encode()) for value in values if isinstance(value, str)]
        return cls(values, sizes[-1])


def insert(connection: sqlite3.Connection, row: Row, max_records: int, max_bytes: int) -> None:
    """Add a row and drop the oldest beyond the limits, both or neither.

    Raises:
        sqlite3.Error: neither was done.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        added = connection.execute(_INSERT, (*row.values, row.size, crc_of(row.values)))
        _trim(connection, added.lastrowid or 0, max_records, max_bytes)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _trim(connection: sqlite3.Connection, newest: int, max_records: int, max_bytes: int) -> None:
    count, size = connection.execute("SELECT count(*), sum(bytes) FROM probes").fetchone()
    oldest = connection.execute("SELECT id, bytes FROM probes WHERE id < ? ORDER BY id", (newest,))
    last = None
    while (count > max_records or size > max_bytes) and (row := oldest.fetchone()):
        last, count, size = row[0], count - 1, size - row[1]
    oldest.close()
    if last is None:
        return
    connection.execute("DELETE FROM probes WHERE id <= ?", (last,))
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(free - _SLACK):
        connection.execute("PRAGMA incremental_vacuum(1)")  # Python takes one step of it, so one page each


def select(connection: sqlite3.Connection, count: int, wanted: Wanted) -> tuple[Record, ...]:
    """At most `count` records, the last to be added first.

    Raises:
        Damaged: a row is not what was added.
        sqlite3.Error: it could not be read.
    """
    values = {"result": wanted.result, "by": wanted.by, "forced": wanted.forced, "count": max(count, 0)}
    return tuple(record_of(row) for row in connection.execute(_SELECT, values))


def record_of(row: tuple[Any, ...]) -> Record:
    """The record of a row of all columns but `id` and `bytes`, in their order, `crc` last.

    Raises:
        Damaged: it is not what was added.
    """
    *values, crc = row
    if crc_of(tuple(values)) != crc:
        raise Damaged("a record is not what was added")
    at, boot_id, result, forced, by, engine, gpu_seconds, document = values
    return Record(at, boot_id, result, bool(forced), by, engine, gpu_seconds, document)


def crc_of(values: tuple[Any, ...]) -> int:
    """Over all columns but `id`, `bytes` and itself."""
    return zlib.crc32(ascii(values).encode("ascii"))
