"""Files that are no history, or no longer: put aside whole, told, and a new one begun."""

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.probes.histories import NOW, ROOT, numbers, opened, read, record, writer
from wirewatch.core.types import Absent, Why
from wirewatch.probes.history import History, SetAside
from wirewatch.probes.historyfile import MOST_ASIDE, open_file, put_aside

WATCH = """
import sys
from pathlib import Path
from tests.probes.histories import opened
from wirewatch.probes.state import Held, take
path = Path(sys.argv[1])
def locked():
    told = take(Path(f"{path}.lock"), "a test", 0o600)
    return isinstance(told, Held) or told.release() is not None
def told(event, values):
    # Whoever measures coverage has files of its own.
    if event in ("os.rename", "sqlite3.connect") and path.name in str(values):
        print(event, locked())
sys.addaudithook(told)
opened(path).close()
print("done", locked())
"""
COUNT, SIZE = 12, 9000
"""Documents of more than a page: they have overflow pages."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "probes.sqlite"


def _made(folder: Path) -> tuple[bytes, bytes, bytes]:
    """A closed history of COUNT records; the same not yet closed, and its log."""
    path = folder / "probes.sqlite"
    with closing(opened(path)) as history:
        for number in range(COUNT):
            history.add(record(number, SIZE))
        live, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    return path.read_bytes(), live, log


with tempfile.TemporaryDirectory() as _folder:
    WHOLE, LIVE, LOG = _made(Path(_folder))
ALL = list(range(COUNT))


def aside(history: History) -> SetAside:
    assert history.set_aside is not None
    return history.set_aside


def execute(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return change


def begins_anew(history: History) -> None:
    assert numbers(history) == []
    assert history.add(record(99)) is None
    assert numbers(history) == [99]


UNUSABLE = [
    (lambda path: path.write_text("no database\n" * 100, "utf-8"), "not a database"),
    (lambda path: path.write_bytes(bytes(8192)), "not a database"),
    (lambda path: path.write_bytes(WHOLE[:5000]), "malformed"),
    (lambda path: path.write_bytes(WHOLE[:50]), "too short"),
    (lambda path: path.write_bytes(damaged(WHOLE, [(39, b"\x05")], 0)), "reelist"),
    (execute("CREATE TABLE songs (title)"), "not a history of probes"),
    (execute("CREATE TABLE probes (id)", "PRAGMA user_version = 1"), "not a history of probes"),
    (execute("PRAGMA user_version = 2"), "schema version 2, this wirewatch knows 1"),
    (execute("PRAGMA user_version = -1"), "schema version -1"),
]


@pytest.mark.parametrize(("make", "reason"), UNUSABLE)
def test_a_file_that_cannot_be_used_is_set_aside_and_a_new_one_begun(
    path: Path, make: Callable[[Path], object], reason: str
) -> None:
    make(path)
    was = path.read_bytes()
    with closing(opened(path)) as history:
        told = aside(history)
        assert told.path == path.with_name(f"probes.sqlite.corrupt-{NOW}")
        assert reason in told.reason
        assert "\n" not in str(told)
        assert str(told.path) in str(told)
        assert told.path.read_bytes() == was
        begins_anew(history)
    with closing(opened(path)) as history:
        assert history.set_aside is None
        assert numbers(history) == [99]


def test_a_history_of_a_newer_version_can_be_read_by_it_later(path: Path) -> None:
    path.write_bytes(WHOLE)
    execute("ALTER TABLE probes ADD COLUMN mood", "PRAGMA user_version = 7")(path)
    with closing(opened(path)) as history:
        kept = aside(history).path
    with closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("SELECT count(mood IS NULL) FROM probes").fetchone() == (COUNT,)


def test_a_log_is_set_aside_with_its_file_and_can_be_read_with_it(path: Path) -> None:
    """As after a crash, and then an older version: the last records are in the log alone."""
    path.write_bytes(LIVE)
    log = Path(f"{path}-wal")
    log.write_bytes(LOG)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA user_version = 2")
    file, was = path.read_bytes(), log.read_bytes()
    with closing(connection), closing(opened(path)) as history:
        kept = aside(history).path
        assert kept.read_bytes() == file
        assert Path(f"{kept}-wal").read_bytes() == was
        begins_anew(history)
    with closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("SELECT count(*) FROM probes").fetchone() == (COUNT,)


@pytest.mark.parametrize("there", [True, False])
def test_a_log_without_its_file_is_set_aside_and_not_deleted(path: Path, there: bool) -> None:  # noqa: FBT001
    Path(f"{path}-wal").write_bytes(LOG)
    if there:
        path.write_bytes(b"")
    with closing(opened(path)) as history:
        kept = aside(history)
        assert "log left behind" in kept.reason
        assert Path(f"{kept.path}-wal").read_bytes() == LOG
        begins_anew(history)


def test_files_set_aside_never_replace_each_other_and_become_no_flood(path: Path) -> None:
    texts = [f"garbage {n}".encode() for n in range(MOST_ASIDE)]
    for text in texts:
        path.write_bytes(text)
        with closing(opened(path)) as history:
            begins_anew(history)
    names = [path.with_name(f"probes.sqlite.corrupt-{NOW + n}") for n in range(MOST_ASIDE)]
    assert [name.read_bytes() for name in names] == texts
    path.write_bytes(b"one more")
    with closing(opened(path)) as history:
        told = history.add(record(1))
        assert isinstance(told, Absent)
        assert told.why is Why.MALFORMED
        assert "remove them" in told.detail
        assert path.read_bytes() == b"one more"
        names[0].unlink()
        begins_anew(history)


def test_damage_that_comes_while_the_file_is_open_is_found_and_set_aside(path: Path) -> None:
    with closing(opened(path)) as history:
        for number in range(300):
            history.add(record(number, 20_000))
    with closing(opened(path)) as history:
        assert read(history, 1) == [record(299, 20_000)]
        garbage = bytearray(path.read_bytes())
        middle = len(garbage) // 2
        garbage[middle : middle + 40_000] = bytes(range(250)) * 160
        with path.open("r+b") as file:
            file.write(garbage)
        assert read(history) == []
        assert aside(history).path.read_bytes() == garbage
        begins_anew(history)


def test_a_file_that_is_moved_away_is_begun_anew_and_the_old_one_kept(path: Path) -> None:
    with closing(opened(path)) as history:
        history.add(record(1))
        for end in ("-wal", "-shm", ""):
            Path(f"{path}{end}").rename(path.with_name(f"moved{end}"))
        begins_anew(history)
        with closing(opened(path.with_name("moved"))) as old:
            assert numbers(old) == [1]
    assert history.set_aside is None


def test_a_table_that_is_taken_away_is_told_and_the_next_probe_is_kept(path: Path) -> None:
    with closing(opened(path)) as history:
        history.add(record(1))
        execute("DROP TABLE probes")(path)
        told = history.add(record(2))
        assert isinstance(told, Absent)
        assert told.why is Why.MALFORMED
        assert "no such table" in told.detail
        assert history.add(record(3)) is None
        assert numbers(history) == [3]
        assert aside(history).reason == "not a history of probes"


def test_a_file_that_another_process_has_set_aside_is_not_set_aside_again(path: Path) -> None:
    first, second = open_file(path, 1.0, NOW), open_file(path, 1.0, NOW)
    told = put_aside(first, "damaged", 1.0, NOW)
    assert told is not None
    new = open_file(path, 1.0, NOW)
    assert put_aside(second, "damaged", 1.0, NOW) is None
    assert new.is_there()
    new.close()


def test_opening_and_setting_aside_are_done_under_a_lock(path: Path) -> None:
    """The audit events come at connecting and at renaming; in a process of its own, for hooks stay."""
    path.write_bytes(b"garbage")
    command = [sys.executable, "-c", WATCH, str(path)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(told.stdout.splitlines()) == {"os.rename True", "sqlite3.connect True", "done False"}


def test_two_processes_that_find_the_same_damage_set_aside_one_file(path: Path) -> None:
    path.write_bytes(WHOLE[:20_000])
    writers = [writer(path, first, 30, SIZE) for first in (0, 1000, 2000)]
    assert [len(process.communicate(timeout=30)[0].splitlines()) for process in writers] == [31] * 3
    assert [one.name for one in path.parent.glob("*corrupt*") if not one.name.endswith(("-wal", "-shm"))] == [
        next(path.parent.glob("*corrupt-*")).name.removesuffix("-wal").removesuffix("-shm")
    ]
    with closing(opened(path)) as history:
        assert sorted(numbers(history)) == [first + n for first in (0, 1000, 2000) for n in range(30)]


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
@example([(18, b"\x01\x01")], 0)
@example([(24, b"\xff" * 72)], 0)
@example([(100, bytes(300))], 0)
@example([(16, bytes(4080))], 0)
def test_a_file_with_garbage_in_it_is_whole_or_set_aside_as_it_is(
    spots: list[tuple[int, bytes]], end: int
) -> None:
    file = damaged(WHOLE, spots, end)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "probes.sqlite")
        path.write_bytes(file)
        with closing(opened(path)) as history:
            kept = read(history)
            if history.set_aside is None:
                assert kept == [record(n, SIZE) for n in reversed(ALL)]
            else:
                assert kept == []
                assert history.set_aside.path.read_bytes() == file
            assert history.add(record(99)) is None
            assert read(history, 1) == [record(99)]


@given(st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.binary(min_size=1, max_size=40)), max_size=3),
       st.just(0) | st.integers(1, len(LOG)))  # fmt: skip
def test_a_log_with_garbage_in_it_gives_what_was_added_before(
    spots: list[tuple[int, bytes]], end: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "probes.sqlite")
        path.write_bytes(LIVE)
        Path(f"{path}-wal").write_bytes(damaged(LOG, spots, end))
        with closing(opened(path)) as history:
            kept = numbers(history)
            assert kept == ALL[: len(kept)]
            assert history.add(record(99)) is None
            assert numbers(history)[-1:] == [99]
