"""Rows of the history by their number: what a daemon folded before, and what others have added since.

Where nothing was added that costs one look at the newest row.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from wirewatch.probes.records import By, Record, crc_of, record_of

T = TypeVar("T")
OTHERS: tuple[By, ...] = ("command", "taken")
COUNTED: tuple[By, ...] = ("daemon", "taken")
"""Those that a daemon has folded."""
_ROWS = """
    SELECT id, at, boot_id, result, forced, started_by, engine, gpu_seconds, document, crc FROM probes
    WHERE id > :after AND forced = 0 AND instr(:by, started_by) > 0 AND (:any OR result = 'ok')
    ORDER BY id DESC LIMIT :count
"""
_EVENLY = """
    WITH counted AS (
        SELECT id, row_number() OVER (ORDER BY id) AS place, count(*) OVER () AS number FROM probes
        WHERE forced = 0 AND instr(:by, started_by) > 0 AND result = 'ok'
    )
    SELECT at, boot_id, result, forced, started_by, engine, gpu_seconds, document, crc FROM probes
    WHERE id IN (SELECT id FROM counted WHERE place % max(1, number / :count) = 0) ORDER BY id
"""
_ONE = """
    SELECT at, boot_id, result, forced, started_by, engine, gpu_seconds, document FROM probes
    WHERE id = ? AND at = ? AND started_by = 'command'
"""
_BY = 4
"""Position of `started_by` in that."""


@dataclass(frozen=True, slots=True)
class Place:
    """A row by its number and its time: a history that is begun anew begins its numbers again."""

    number: int
    at: float


START = Place(0, 0.0)
"""Before all rows."""


@dataclass(frozen=True, slots=True)
class News:
    """Rows that are wanted, oldest first, and the row after which there will be more."""

    rows: tuple[tuple[Place, Record], ...]
    newest: Place


def before(connection: sqlite3.Connection, count: int) -> News:
    """What was folded by the daemons of before: the last `count` complete ones, and what came after them.

    Raises:
        Damaged: a row is not what was added.
        sqlite3.Error: it could not be read.
    """
    return _at_once(connection, lambda: News(_told(_telling(connection, count)), _decided(connection)))


def spread(connection: sqlite3.Connection, count: int) -> tuple[Record, ...]:
    """About `count` complete probes that daemons folded, evenly over the whole history, oldest first.

    Raises:
        Damaged: a row is not what was added.
        sqlite3.Error: it could not be read.
    """
    wanted = {"by": " ".join(COUNTED), "count": max(1, count)}
    with closing(connection.execute(_EVENLY, wanted)) as rows:
        return tuple(record_of(row) for row in rows.fetchall())


def since(connection: sqlite3.Connection, seen: Place | None, count: int) -> News:
    """The last `count` that other processes added after `seen`.

    Where that is None or is not there, in a history begun anew or put back as it was long ago: after what a
    daemon has folded.

    Raises:
        Damaged: a row is not what was added.
        sqlite3.Error: it could not be read.
    """
    return _at_once(connection, lambda: _since(connection, seen, count))


def mark(connection: sqlite3.Connection, places: Sequence[Place]) -> None:
    """Note that a daemon has taken these rows over.

    Raises:
        sqlite3.Error: none was noted.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        for place in places:
            row = connection.execute(_ONE, (place.number, place.at)).fetchone()
            if row is not None:
                crc = crc_of((*row[:_BY], "taken", *row[_BY + 1 :]))
                connection.execute(
                    "UPDATE probes SET started_by = 'taken', crc = ? WHERE id = ?", (crc, place.number)
                )
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _at_once(connection: sqlite3.Connection, work: Callable[[], T]) -> T:
    """All questions of one state of the file, whoever writes meanwhile."""
    connection.execute("BEGIN")
    try:
        return work()
    finally:
        connection.execute("ROLLBACK")


def _since(connection: sqlite3.Connection, seen: Place | None, count: int) -> News:
    newest = _place(connection, "SELECT id, at FROM probes ORDER BY id DESC LIMIT 1")
    if newest in {seen, START}:
        return News((), newest)
    known = seen is not None and not _is_lost(connection, seen)
    after = seen if seen is not None and known else _decided(connection)
    return News(_told(_rows(connection, after.number, OTHERS, count, whatever=True)), newest)


def _is_lost(connection: sqlite3.Connection, seen: Place) -> bool:
    """Whether this is another file than the one where that row was; the oldest rows are dropped in time."""
    found = _place(connection, "SELECT id, at FROM probes WHERE id = ?", seen.number)
    if found != START:
        return found != seen
    return _place(connection, "SELECT id, at FROM probes ORDER BY id LIMIT 1").number <= seen.number


def _decided(connection: sqlite3.Connection) -> Place:
    """The newest row that a daemon has folded; it has folded or left out all before."""
    return _place(
        connection,
        "SELECT id, at FROM probes WHERE started_by IN ('daemon', 'taken') ORDER BY id DESC LIMIT 1",
    )


def _place(connection: sqlite3.Connection, question: str, *values: int) -> Place:
    row = connection.execute(question, values).fetchone()
    return START if row is None else Place(*row)


def _telling(connection: sqlite3.Connection, count: int) -> list[tuple[Any, ...]]:
    """The last `count` complete probes, and as many of those after the last of them."""
    complete = _rows(connection, 0, COUNTED, count, whatever=False)
    newer = _rows(connection, complete[0][0] if complete else 0, COUNTED, count, whatever=True)
    return [*newer, *complete]


def _rows(
    connection: sqlite3.Connection, after: int, by: Sequence[By], count: int, *, whatever: bool
) -> list[tuple[Any, ...]]:
    """Of those that were not forced, the last `count` to be added, newest first."""
    wanted = {"after": after, "by": " ".join(by), "any": whatever, "count": count}
    with closing(connection.execute(_ROWS, wanted)) as rows:
        return rows.fetchall()


def _told(rows: Sequence[tuple[Any, ...]]) -> tuple[tuple[Place, Record], ...]:
    """Of rows that begin with the newest."""
    return tuple((Place(row[0], row[1]), record_of(row[1:])) for row in reversed(rows))
