"""Files that are no history, or no longer: put aside whole, told, and a new one begun."""

import fcntl
import logging
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.disks import OTHER, fill, make_room, needs_root, open_folder, remount, small_disk
from tests.node.probe.histories import NOW, Standing, numbers, opened, read, record, set_aside, writer
from tests.patience import HANGS
from wirewatch.core.types import Absent, Why
from wirewatch.probe.history import MOST_ASIDE, History, HistoryLimits

COUNT, SIZE = 12, 9000
"""Documents of more than a page: they have overflow pages."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "probes.sqlite"


def _made(path: Path) -> bytes:
    """A history of COUNT records."""
    history = opened(path)
    for number in range(COUNT):
        history.add(record(number, SIZE))
    return path.read_bytes()


with tempfile.TemporaryDirectory() as _folder:
    WHOLE = _made(Path(_folder, "probes.sqlite"))


def execute(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return change


@contextmanager
def somebody() -> Iterator[None]:
    """As a user whom permissions stop."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def begins_anew(history: History) -> None:
    assert numbers(history) == []
    assert history.add(record(99)) is None
    assert numbers(history) == [99]


UNUSABLE = [
    (lambda path: path.write_text("no database\n" * 100, "utf-8"), "not a database"),
    (lambda path: path.write_bytes(bytes(8192)), "not a database"),
    (lambda path: path.write_bytes(WHOLE[:5000]), "malformed"),
    (lambda path: path.write_bytes(WHOLE[:50]), "malformed"),
    (lambda path: path.write_bytes(damaged(WHOLE, [(39, b"\x05")], 0)), "reelist"),
    (execute("CREATE TABLE songs (title)"), "not a history of probes"),
    (execute("CREATE TABLE probes (id)", "PRAGMA user_version = 1"), "not a history of probes"),
    (execute("CREATE TABLE probes (id)", "PRAGMA user_version = 2"), "not a history of probes"),
    (
        execute("PRAGMA user_version = 3"),
        ": written by a newer wirewatch, of schema version 3, this",
    ),
    (execute("PRAGMA user_version = -1"), ": of schema version -1"),
]


@pytest.mark.parametrize(("make", "reason"), UNUSABLE)
def test_a_file_that_cannot_be_used_is_set_aside_and_a_new_one_begun(
    path: Path, make: Callable[[Path], object], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(path)
    was = path.read_bytes()
    begins_anew(opened(path))
    (record,) = caplog.records
    (aside,) = set_aside(path)
    assert aside == path.with_name(f"probes.sqlite.corrupt-{NOW}")
    assert aside.read_bytes() == was
    assert reason in record.message
    assert str(aside) in record.message
    assert "\n" not in record.message
    assert numbers(opened(path)) == [99]
    assert set_aside(path) == [aside]


def test_a_history_of_a_newer_version_can_be_read_by_it_later(path: Path) -> None:
    path.write_bytes(WHOLE)
    execute("ALTER TABLE probes ADD COLUMN mood", "PRAGMA user_version = 7", "PRAGMA journal_mode = WAL")(
        path
    )
    opened(path)
    (aside,) = set_aside(path)
    with closing(sqlite3.connect(aside)) as connection:
        assert connection.execute("SELECT count(mood IS NULL) FROM probes").fetchone() == (COUNT,)


def test_files_set_aside_never_replace_each_other_and_become_no_flood(path: Path) -> None:
    assert MOST_ASIDE == 16
    texts = [f"garbage {n}".encode() for n in range(MOST_ASIDE)]
    for text in texts:
        path.write_bytes(text)
        begins_anew(opened(path))
    names = [path.with_name(f"probes.sqlite.corrupt-{NOW + n}") for n in range(MOST_ASIDE)]
    assert [name.read_bytes() for name in names] == texts
    path.write_bytes(b"one more")
    history = opened(path)
    failed = history.add(record(1))
    assert isinstance(failed, Absent)
    assert failed.why is Why.MALFORMED
    assert "remove them" in failed.detail
    assert path.read_bytes() == b"one more"
    names[0].unlink()
    begins_anew(history)


def test_damage_that_comes_while_the_file_is_used_is_found_and_set_aside(path: Path) -> None:
    history = opened(path)
    for number in range(300):
        history.add(record(number, 20_000))
    assert read(history, 1) == [record(299, 20_000)]
    garbage = bytearray(path.read_bytes())
    middle = len(garbage) // 2
    garbage[middle : middle + 40_000] = bytes(range(250)) * 160
    path.write_bytes(garbage)
    assert read(history) == []
    (aside,) = set_aside(path)
    assert aside.read_bytes() == garbage
    begins_anew(history)


def test_a_file_that_is_moved_away_is_begun_again_and_the_old_one_kept(path: Path) -> None:
    history, old = opened(path), path.with_name("moved")
    history.add(record(1))
    path.rename(old)
    begins_anew(history)
    assert numbers(opened(old)) == [1]
    assert not set_aside(path)


def test_a_table_that_is_taken_away_is_made_again(path: Path) -> None:
    history = opened(path)
    history.add(record(1))
    execute("DROP TABLE probes")(path)
    assert history.add(record(2)) is None
    assert numbers(history) == [2]
    assert len(set_aside(path)) == 1


def test_a_history_of_0_1_that_cannot_be_converted_stays_as_it_is(path: Path) -> None:
    columns = "id INTEGER PRIMARY KEY, at, boot_id, result, forced, started_by, engine, gpu_seconds, document"
    row = "1, 1.0, 'boot', 'ok', 0, 'daemon', NULL, 1.0, '{}'"
    execute(f"CREATE TABLE probes ({columns})", f"INSERT INTO probes VALUES ({row})")(path)  # noqa: S608
    execute("PRAGMA user_version = 1")(path)
    history = opened(path)
    for _ in range(2):
        failed = history.add(record(1))
        assert isinstance(failed, Absent)
        assert "NOT NULL" in failed.detail
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("probes",)]
    assert set_aside(path) == []


def test_a_row_that_is_none_of_ours_is_damage(path: Path) -> None:
    history = opened(path)
    for number in (1, 2):
        history.add(record(number))
    execute("UPDATE probes SET at = 'never' WHERE id = 1")(path)
    assert read(history) == []
    assert len(set_aside(path)) == 1


def test_what_may_only_be_read_is_left_alone() -> None:
    with somebody(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "probes.sqlite")
        path.write_bytes(WHOLE)
        path.chmod(0o400)
        history = opened(path)
        failed = history.add(record(99))
        assert isinstance(failed, Absent)
        assert failed.why is Why.DENIED
        assert numbers(history) == list(range(COUNT))
        assert not set_aside(path)


def test_processes_that_find_the_same_damage_set_aside_one_file(path: Path) -> None:
    path.write_bytes(WHOLE[:20_000])
    writers = [writer(path, first, 30, SIZE) for first in (0, 1000, 2000)]
    assert [len(process.communicate(timeout=HANGS)[0].splitlines()) for process in writers] == [31] * 3
    assert len(set_aside(path)) == 1
    assert sorted(numbers(opened(path))) == [first + n for first in (0, 1000, 2000) for n in range(30)]


class Unopened(History):
    """A history whose file does not open the first time."""

    tried = False

    def _connected(self, path: Path, mode: str) -> sqlite3.Connection:
        if not self.tried:
            self.tried = True
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return super()._connected(path, mode)


class Meanwhile(Standing):
    """A clock that is asked while a file is set aside; another process finds the same damage then."""

    def __init__(self, other: History) -> None:
        self._other = other
        self.answers: list[Absent | None] = []

    def now(self) -> float:
        self.answers.append(self._other.add(record(1)))
        return super().now()


def test_who_finds_the_damage_while_it_is_set_aside_leaves_the_file_alone(path: Path) -> None:
    clock = Meanwhile(opened(path, HistoryLimits(busy=0.05)))
    history = History.open(path, clock, HistoryLimits())
    path.write_bytes(WHOLE[:20_000])
    assert history.add(record(0)) is None
    (refused,) = clock.answers
    assert isinstance(refused, Absent)
    assert len(set_aside(path)) == 1
    assert numbers(opened(path)) == [0]


def test_who_waits_for_another_that_replaces_the_file_sleeps(path: Path) -> None:
    history = opened(path, HistoryLimits(busy=0.1))
    path.write_bytes(WHOLE[:20_000])
    holder = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    began = time.thread_time()
    assert isinstance(history.add(record(0)), Absent)
    assert time.thread_time() - began < 0.05
    os.close(holder)
    assert history.add(record(0)) is None


def test_a_file_that_is_not_there_and_does_not_open_is_no_damage(path: Path) -> None:
    failed = Unopened(path, Standing(), HistoryLimits()).add(record(99))
    assert isinstance(failed, Absent)
    assert failed.why is Why.DENIED
    assert "unable to open" in failed.detail


def test_who_only_reads_replaces_nothing(path: Path) -> None:
    path.write_bytes(WHOLE[:20_000])
    failed = History(path, Standing(), HistoryLimits(), read_only=True).folded(100)
    assert isinstance(failed, Absent)
    assert failed.why is Why.MALFORMED
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == WHOLE[:20_000]


class ReadOnly(History):
    """A history of which SQLite says once that it may not be written."""

    tried = False

    def _connected(self, path: Path, mode: str) -> sqlite3.Connection:
        if not self.tried:
            self.tried = True
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY
            raise error
        return super()._connected(path, mode)


@needs_root
@pytest.mark.parametrize(
    ("file", "mode", "end"),
    [(0, 0o644, "taken over"), (0, 0o666, "set aside"), (OTHER, 0o444, "left alone")],
    ids=["another user's, which we may read", "one that we may write", "our own, which we may not write"],
)
def test_a_file_that_may_not_be_written_is_replaced_where_another_user_left_it(
    file: int, mode: int, end: str
) -> None:
    """Where we may write it, its own header forbids that: it is damaged, whoever has made it."""
    with open_folder() as where:
        path = where / "probes.sqlite"
        path.write_bytes(WHOLE)
        os.chown(path, file, file)
        path.chmod(mode)
        where.chmod(0o777)
        os.chown(where, OTHER, OTHER)
        if end == "taken over":
            # As a process leaves it that is killed in the middle.
            path.with_name(f"{path.name}.new").write_text("a part of a copy", "utf-8")
        with somebody():
            history = ReadOnly(path, Standing(), HistoryLimits())
            failed = history.add(record(99))
            kept = numbers(history)
        assert (failed is None) is (end != "left alone")
        assert bool(set_aside(path)) is (end == "set aside")
        assert kept == {
            "taken over": [*range(COUNT), 99], "set aside": [99], "left alone": list(range(COUNT)),
        }[end]  # fmt: skip
        assert path.stat().st_uid == (OTHER if end == "taken over" else path.stat().st_uid)
        assert not path.with_name(f"{path.name}.new").exists()


@needs_root
@pytest.mark.parametrize(
    ("folder", "file", "mode", "anew"),
    [
        (OTHER, 0, 0o600, True), (OTHER, OTHER, 0o000, False), (4711, 4711, 0o000, False),
        (OTHER, 0, 0o644, False),
    ],
    ids=["another user's", "our own", "of the folder's owner", "one that we may read"],
)  # fmt: skip
def test_a_file_that_does_not_open_is_set_aside_where_it_is_another_users_and_we_may_not_read_it(
    folder: int, file: int, mode: int, *, anew: bool
) -> None:
    """SQLite says the same of a file that we may not read as of one that it cannot open now."""
    with open_folder() as where:
        path = where / "probes.sqlite"
        path.write_bytes(WHOLE)
        os.chown(path, file, file)
        path.chmod(mode)
        where.chmod(0o777)
        os.chown(where, folder, folder)
        with somebody():
            Unopened(path, Standing(), HistoryLimits()).add(record(99))
        assert bool(set_aside(path)) is anew


_SPOT = st.tuples(st.integers(0, len(WHOLE) - 1) | st.integers(0, 200), st.binary(min_size=1, max_size=40))
_SPOTS = st.lists(_SPOT, min_size=1, max_size=4)


def damaged(whole: bytes, spots: list[tuple[int, bytes]], end: int) -> bytes:
    file = bytearray(whole)
    for at, data in spots:
        file[at : at + len(data)] = data
    return bytes(file[:end] if end else file)


@given(_SPOTS, st.just(0) | st.integers(1, len(WHOLE)))
@example([(0, b"S")], 1)
@example([(4091, b"\x80")], 0)
@example([(18, b"\x03")], 0)
@example([(18, b"\x02\x02")], 0)
@example([(46, b"\x00\x05")], 0)
@example([(24, b"\xff" * 72)], 0)
@example([(100, bytes(300))], 0)
@example([(16, bytes(4080))], 0)
def test_a_file_with_garbage_in_it_stops_nothing_and_is_never_lost(
    spots: list[tuple[int, bytes]], end: int
) -> None:
    file = damaged(WHOLE, spots, end)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "probes.sqlite")
        path.write_bytes(file)
        history = opened(path)
        kept = read(history)
        if set_aside(path):
            assert kept == []
            assert set_aside(path)[0].read_bytes() == file
        assert history.add(record(99)) is None
        assert record(99) in read(history)


# --- a disk that fills up, and one that turns read-only


def test_a_disk_without_room_is_said_once_and_written_again_when_there_is_some(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with small_disk("128k") as disk, caplog.at_level(logging.INFO):
        history = opened(disk / "probes.sqlite")
        assert history.add(record(1)) is None
        fill(disk)
        for number in (2, 3):
            failed = history.add(record(number, size=20_000))
            assert isinstance(failed, Absent)
            assert failed.why is Why.DENIED
        assert numbers(history) == [1]
        make_room(disk)
        assert history.add(record(4)) is None
        remount(disk, "ro")
        assert isinstance(history.add(record(5)), Absent)
        assert numbers(opened(disk / "probes.sqlite")) == [1, 4]
        remount(disk, "rw")
        assert history.add(record(6)) is None
        assert numbers(history) == [1, 4, 6]
    assert [one.partition(":")[0] for one in caplog.messages] == [
        "probes are not kept",
        f"{disk}/probes.sqlite is written again",
    ] * 2


def test_a_history_that_began_on_a_full_disk_is_kept_once_there_is_room() -> None:
    with small_disk() as disk:
        fill(disk)
        history = opened(disk / "probes.sqlite")
        assert isinstance(history.add(record(1)), Absent)
        make_room(disk)
        assert history.add(record(2)) is None
        assert numbers(history) == [2]
        assert set_aside(disk / "probes.sqlite") == []
