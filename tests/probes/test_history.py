"""The history of probes: real files, real processes, real kills."""

import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.probes.histories import NOW, Standing, numbers, opened, read, record, writer
from wirewatch.core.types import Absent, Why
from wirewatch.probes.history import History, Limits
from wirewatch.probes.historyfile import open_file
from wirewatch.probes.records import Row, Wanted, insert, select
from wirewatch.probes.state import Lock, take

SHORT = Limits(busy=0.05)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "probes.sqlite"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with closing(opened(path)) as made:
        yield made


def why(told: object) -> Why:
    assert isinstance(told, Absent)
    return told.why


def folder_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.iterdir())


def finish(process: "subprocess.Popen[str]") -> list[str]:
    """What a writer printed; it must have ended by itself and well."""
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return out.split("\n")[1:-1]


def test_what_was_added_is_read_newest_first_also_by_who_comes_later(history: History, path: Path) -> None:
    added = [record(n, result=("ok", "failed")[n % 2], forced=n % 3 == 0) for n in range(7)]
    assert [history.add(one) for one in added] == [None] * 7
    assert read(history) == added[::-1]
    assert read(history, 2) == [added[6], added[5]]
    history.close()
    with closing(opened(path)) as later:
        assert read(later) == added[::-1]
        assert later.set_aside is None


def test_the_order_is_that_of_adding_also_when_the_clock_was_set_back(history: History) -> None:
    for number in (5, 9, 2):
        history.add(record(number))
    assert numbers(history) == [5, 9, 2]


@pytest.mark.parametrize("count", [0, -1])
def test_no_records_asked_are_none_given(history: History, count: int) -> None:
    history.add(record(1))
    assert read(history, count) == []


def test_the_last_of_some_kind(history: History) -> None:
    ok, failed, forced = record(1), record(2, result="failed"), record(3, forced=True)
    command = replace(record(4, result="busy"), by="command")
    for one in (ok, failed, forced, command):
        history.add(one)
    assert history.last() == command
    assert history.last(result="ok") == forced
    assert history.last(result="ok", forced=False) == ok
    assert history.last(by="daemon", forced=False) == failed
    assert history.last(by="daemon", forced=True) == forced
    assert why(history.last(result="never")) is Why.MISSING


def test_any_text_comes_back_as_it_was(history: History) -> None:
    texts = {"boot_id": "", "result": "ok\x00'; DROP TABLE probes", "engine": "\U0001f9f5"}
    odd = replace(record(1), **texts, at=0.1 + 0.2, document="\x00\n\xff")  # type: ignore[arg-type]
    assert history.add(odd) is None
    assert read(history) == [odd]


@pytest.mark.parametrize(
    "change",
    [{"document": "\ud800"}, {"engine": "\udcff"}, {"at": float("nan")}, {"gpu_seconds": float("inf")}],
)
def test_what_cannot_be_kept_is_told_and_harms_nothing(history: History, change: dict[str, object]) -> None:
    history.add(record(1))
    assert why(history.add(replace(record(2), **change))) is Why.MALFORMED  # type: ignore[arg-type]
    history.add(record(3))
    assert numbers(history) == [1, 3]


def test_a_document_larger_than_the_history_is_refused_and_drops_nothing(path: Path) -> None:
    with closing(opened(path, Limits(max_bytes=1000))) as history:
        history.add(record(1))
        assert why(history.add(record(2, 2000))) is Why.MALFORMED
        assert numbers(history) == [1]


def test_a_row_that_is_refused_leaves_no_transaction_behind(path: Path) -> None:
    file = open_file(path, 1.0, NOW)
    try:
        insert(file.connection, Row.of(record(1)), 10, 10_000)
        with pytest.raises(sqlite3.IntegrityError):
            insert(file.connection, Row((None,) * 8, 0), 10, 10_000)
        assert not file.connection.in_transaction
        assert select(file.connection, 10, Wanted()) == (record(1),)
    finally:
        file.close()


def test_one_thread_opens_another_writes_a_third_reads(history: History) -> None:
    told: list[object] = []

    def both() -> None:
        told.append(history.add(record(1)))
        told.append(history.recent(1))

    for _ in range(2):
        thread = threading.Thread(target=both)
        thread.start()
        thread.join()
    assert told == [None, (record(1),)] * 2
    assert numbers(history) == [1, 1]


def test_threads_may_write_at_once(history: History) -> None:
    threads = [
        threading.Thread(target=lambda n=n: [history.add(record(n * 100 + i)) for i in range(25)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers(history)) == [n * 100 + i for n in range(4) for i in range(25)]


def test_after_closing_everything_is_absent(history: History) -> None:
    history.close()
    history.close()
    assert why(history.add(record(1))) is Why.MISSING
    assert why(history.recent(1)) is Why.MISSING
    assert why(history.last()) is Why.MISSING


def test_only_the_newest_records_are_kept(path: Path) -> None:
    with closing(opened(path, Limits(max_records=20))) as history:
        for number in range(50):
            history.add(record(number))
        assert numbers(history) == list(range(30, 50))


def test_only_so_many_bytes_of_documents_are_kept(path: Path) -> None:
    sizes = [(100, 900, 4000, 9000)[n * n % 7 % 4] for n in range(80)]
    limit = 20_000
    with closing(opened(path, Limits(max_bytes=limit))) as history:
        for number, size in enumerate(sizes):
            history.add(record(number, size))
        kept = read(history)
    total = sum(len(one.document.encode()) for one in kept)
    dropped = record(79 - len(kept), sizes[79 - len(kept)])
    assert total <= limit < total + len(dropped.document.encode())


def test_ten_thousand_records_do_not_make_the_files_grow(path: Path) -> None:
    """The log may hold 1000 pages before it is used again, SQLite's default."""
    limit, log, largest = 1 << 20, 5 << 20, 0
    with closing(opened(path, Limits(max_bytes=limit))) as history:
        one = record(0, 20_000)
        for number in range(10_000):
            assert history.add(replace(one, at=float(number))) is None
            if number % 100 == 0:
                largest = max(largest, folder_bytes(path))
        assert [int(r.at) for r in read(history, 2)] == [9999, 9998]
    assert largest < 1.25 * limit + log
    assert folder_bytes(path) < 1.25 * limit


def test_a_file_shrinks_when_less_is_to_be_kept(path: Path) -> None:
    with closing(opened(path)) as history:
        for number in range(100):
            history.add(record(number, 20_000))
    before = path.stat().st_size
    with closing(opened(path, Limits(max_records=5))) as history:
        history.add(record(100, 20_000))
        assert numbers(history) == list(range(96, 101))
    assert before > 2_000_000
    assert path.stat().st_size < 500_000


def test_a_process_killed_while_writing_loses_at_most_what_it_had_not_told(path: Path) -> None:
    chance = random.Random(11)  # noqa: S311 - the same kills each time
    first = 0
    for _ in range(20):
        with writer(path, first, 10_000, 20_000) as process:
            assert process.stdout is not None
            told = [process.stdout.readline() for _ in range(chance.randint(2, 12))]
            time.sleep(chance.random() * 0.004)
            process.send_signal(signal.SIGKILL)
            told += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        sure = int(told[-1]) + 1
        with closing(opened(path)) as history:
            assert history.set_aside is None
            kept = numbers(history)
            assert kept == list(range(len(kept)))
            assert sure <= len(kept) <= sure + 1
            assert read(history, 1) == [record(kept[-1], 20_000)]
            first = len(kept)


def test_a_process_killed_while_opening_leaves_a_file_that_opens(tmp_path: Path) -> None:
    chance = random.Random(12)  # noqa: S311 - the same kills each time
    for turn in range(20):
        path = tmp_path / f"{turn}.sqlite"
        with writer(path, 0, 10_000, 20_000) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.random() * 0.006)
            process.send_signal(signal.SIGKILL)
        with closing(opened(path)) as history:
            assert history.set_aside is None
            assert history.add(record(77_777)) is None
            assert numbers(history)[-1] == 77_777


def test_two_processes_write_at_once_and_nothing_is_lost(path: Path, history: History) -> None:
    writers = [writer(path, first, 150, 3000) for first in (0, 1000)]
    for number in range(2000, 2050):
        assert history.add(record(number, 3000)) is None
    assert [finish(process) for process in writers] == [
        [str(n) for n in range(first, first + 150)] for first in (0, 1000)
    ]
    kept = numbers(history)
    for first, count in ((0, 150), (1000, 150), (2000, 50)):
        assert [n for n in kept if first <= n < first + 1000] == list(range(first, first + count))
    assert history.set_aside is None


def test_a_full_disk_loses_nothing_that_was_there_and_room_is_used_again(path: Path) -> None:
    """A file may not grow beyond 300 kB, then it may."""
    told = finish(writer(path, 0, 60, 20_000, 300_000))
    kept = [int(line) for line in told if line.isdigit()]
    refused = [line for line in told if not line.isdigit()]
    assert len(refused) > 10
    assert all("lost: " in line or "denied: " in line for line in refused), refused
    assert kept[-1] == 60
    with closing(opened(path)) as history:
        assert history.set_aside is None
        assert numbers(history) == kept


def test_a_history_locked_by_another_is_a_timeout_and_goes_on_later(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    with closing(other), closing(opened(path, SHORT)) as history:
        history.add(record(1))
        other.execute("BEGIN IMMEDIATE")
        assert why(history.add(record(2))) is Why.TIMEOUT
        assert numbers(history) == [1]
        other.execute("ROLLBACK")
        assert history.add(record(3)) is None
        assert numbers(history) == [1, 3]
        assert history.set_aside is None


def test_a_history_locked_when_it_is_opened_is_opened_later(path: Path) -> None:
    with closing(opened(path)) as history:
        history.add(record(1))
    other = sqlite3.connect(path, isolation_level=None)
    with closing(other):
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with closing(opened(path, SHORT)) as history:
            assert why(history.recent(1)) is Why.TIMEOUT
            other.close()
            assert numbers(history) == [1]
            assert history.set_aside is None


def test_another_that_opens_for_ever_is_a_timeout_and_is_named(path: Path) -> None:
    lock = take(Path(f"{path}.lock"), "somebody", 0o600)
    assert isinstance(lock, Lock)
    with lock, closing(opened(path, SHORT)) as history:
        told = history.add(record(1))
        assert why(told) is Why.TIMEOUT
        assert "somebody" in str(told)
        lock.release()
        assert history.add(record(1)) is None


def test_a_path_below_a_file_is_told_and_nothing_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with closing(opened(tmp_path / "file" / "probes.sqlite")) as history:
        assert isinstance(history.add(record(1)), Absent)
        assert isinstance(history.recent(1), Absent)
        assert isinstance(history.last(), Absent)
        assert history.set_aside is None


def test_a_file_that_is_a_folder_is_told_and_left_alone(path: Path) -> None:
    path.mkdir()
    with closing(opened(path)) as history:
        assert why(history.add(record(1))) is Why.DENIED
        assert path.is_dir()


def test_a_folder_that_comes_later_is_used_then(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    with closing(History.open(folder / "probes.sqlite", Standing())) as history:
        assert why(history.add(record(1))) is Why.MISSING
        folder.mkdir()
        assert history.add(record(2)) is None
        assert numbers(history) == [2]
