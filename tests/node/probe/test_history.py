"""The history of probes: real files, real processes, real kills."""

import gzip
import logging
import random
import signal
import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.probe.histories import NOW, Standing, numbers, opened, read, record, set_aside, stored, writer
from tests.node.probe.test_history_of_0_1 import WRITTEN
from tests.patience import HANGS
from wirewatch.core.types import Absent, Why
from wirewatch.probe.history import START, History, HistoryCursor, HistoryLimits

SHORT = HistoryLimits(busy=0.05)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "probes.sqlite"


@pytest.fixture
def history(path: Path) -> History:
    return opened(path)


def why(told: object) -> Why:
    assert isinstance(told, Absent)
    return told.why


def finish(process: "subprocess.Popen[str]") -> list[str]:
    """What a writer printed; it must have ended by itself and well."""
    out, _ = process.communicate(timeout=HANGS)
    assert process.returncode == 0
    return out.split("\n")[1:-1]


def test_what_was_added_is_read_also_by_who_comes_later(history: History, path: Path) -> None:
    added = [record(n) for n in range(7)]
    assert [history.add(one) for one in added] == [None] * 7
    assert read(history) == added[::-1]
    assert read(history, 2) == [added[6], added[5]]
    assert read(opened(path)) == added[::-1]
    assert stored(path) == added
    assert read(history, 0) == []
    assert [file.name for file in path.parent.iterdir()] == ["probes.sqlite"]


def test_complete_ones_and_what_came_after_them_are_folded_but_for_forced_ones(history: History) -> None:
    kinds = ("failed", "ok", "failed", "ok", "failed", "busy")
    for number, kind in enumerate(kinds):
        history.add(record(number, result=kind))
    history.add(record(6, forced=True))
    history.add(replace(record(7), started_by="command", folded=False))
    assert numbers(history) == [1, 3, 4, 5]
    assert [int(one.at) - NOW for one in read(history, 1)] == [5, 3]
    newer = history.folded(9, added=True)
    assert isinstance(newer, tuple)
    assert [int(one.at) - NOW for one in newer] == [1, 3, 4, 5, 7]


def test_a_look_that_only_reads_reads_all_of_it(history: History, path: Path) -> None:
    """Also what a history of 0.1 does not have: the boot's seconds, and who folded it."""
    added = replace(record(1), mono=5.0)
    history.add(added)
    history.add(replace(record(2), folded=False))
    looking = History(path, Standing(), HistoryLimits(), read_only=True)
    assert looking.folded(9, added=True) == (added,)
    assert looking.folded(9, added=True) == history.folded(9, added=True)


def test_what_commands_added_is_read_once_and_folded_once(history: History) -> None:
    def added(after: HistoryCursor | None) -> tuple[list[int], HistoryCursor]:
        found = history.added(after, 10)
        assert not isinstance(found, Absent)
        return [int(one.at) - NOW for one in found[0]], found[1]

    assert added(None) == ([], START)
    for number in range(3):
        history.add(replace(record(number), started_by="command", folded=False))
    history.add(replace(record(3, forced=True), started_by="command", folded=False))
    first, cursor = added(None)
    assert first == [0, 1, 2]
    assert added(cursor) == ([], cursor)
    history.add(replace(record(4), started_by="command", folded=False))
    assert added(cursor)[0] == [4]
    assert added(HistoryCursor(2, 0.0))[0] == [0, 1, 2, 4], "a row of another file"
    records = history.folded(10, added=True)
    assert isinstance(records, tuple)
    assert history.fold(records[:2]) is None
    assert added(None)[0] == [2, 4]
    assert added(START)[0] == [0, 1, 2, 4], "all of them, by who has seen none"
    assert added(HistoryCursor(99, 1.0))[0] == [2, 4], "a row that is not there any more"


def test_the_order_is_that_of_adding_also_when_the_clock_was_set_back(history: History) -> None:
    for number in (5, 9, 2):
        history.add(record(number))
    assert numbers(history) == [5, 9, 2]


def test_any_text_comes_back_as_it_was(history: History) -> None:
    texts = {"boot_id": "", "engine": "\U0001f9f5'; DROP TABLE probes"}
    odd = replace(record(1), **texts, at=0.1 + 0.2, document="\x00\n\xff")  # type: ignore[arg-type]
    assert history.add(odd) is None
    assert read(history) == [odd]


@pytest.mark.parametrize("change", [{"document": "\ud800"}, {"engine": "\udcff"}, {"at": float("nan")}])
def test_what_cannot_be_kept_is_reported_and_harms_nothing(
    history: History, change: dict[str, object]
) -> None:
    history.add(record(1))
    assert why(history.add(replace(record(2), **change))) is Why.MALFORMED  # type: ignore[arg-type]
    history.add(record(3))
    assert numbers(history) == [1, 3]


def test_one_thread_opens_another_writes_a_third_reads(history: History) -> None:
    told: list[object] = []

    def both() -> None:
        told.append(history.add(record(1)))
        told.append(history.folded(1))

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


def test_only_the_newest_records_are_kept(path: Path) -> None:
    history = opened(path, HistoryLimits(max_records=20))
    for number in range(50):
        history.add(record(number))
    assert numbers(history) == list(range(30, 50))


def test_the_file_never_has_more_than_so_many_bytes(path: Path) -> None:
    sizes = [(100, 900, 4000, 90_000)[n * n % 7 % 4] for n in range(200)]
    limit = 400_000
    history = opened(path, HistoryLimits(max_bytes=limit))
    for number, size in enumerate(sizes):
        assert history.add(record(number, size)) is None
        assert path.stat().st_size < limit + 2 * max(sizes)
    kept = numbers(history)
    assert kept == list(range(kept[0], 200))
    assert limit / 2 < sum(sizes[kept[0] :]) < limit


def test_one_that_is_larger_than_all_is_kept_alone(path: Path) -> None:
    history = opened(path, HistoryLimits(max_bytes=100_000))
    history.add(record(1))
    assert history.add(record(2, 200_000)) is None
    assert numbers(history) == [2]


def test_a_process_killed_while_writing_loses_at_most_what_it_had_not_reported(path: Path) -> None:
    chance = random.Random(11)  # noqa: S311 - the same kills each time
    first = 0
    for _ in range(8):
        with writer(path, first, 10_000, 20_000) as process:
            assert process.stdout is not None
            told = [process.stdout.readline() for _ in range(chance.randint(2, 12))]
            time.sleep(chance.random() * 0.004)
            process.send_signal(signal.SIGKILL)
            told += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        sure = int(told[-1]) + 1
        history = opened(path)
        assert not set_aside(path)
        kept = numbers(history)
        assert kept == list(range(len(kept)))
        assert sure <= len(kept) <= sure + 1
        assert read(history, 1) == [record(kept[-1], 20_000)]
        first = len(kept)


def test_a_process_killed_while_opening_leaves_a_file_that_opens(tmp_path: Path) -> None:
    chance = random.Random(12)  # noqa: S311 - the same kills each time
    for turn in range(8):
        path = tmp_path / f"{turn}.sqlite"
        with writer(path, 0, 10_000, 20_000) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.random() * 0.006)
            process.send_signal(signal.SIGKILL)
        history = opened(path)
        assert not set_aside(path)
        assert history.add(record(77_777)) is None
        assert numbers(history)[-1] == 77_777


def test_two_processes_write_at_once_and_nothing_is_lost(path: Path, history: History) -> None:
    writers = [writer(path, first, 40, 3000) for first in (0, 1000)]
    for number in range(2000, 2020):
        assert history.add(record(number, 3000)) is None
    assert [finish(process) for process in writers] == [
        [str(n) for n in range(first, first + 40)] for first in (0, 1000)
    ]
    kept = numbers(history)
    for first, count in ((0, 40), (1000, 40), (2000, 20)):
        assert [n for n in kept if first <= n < first + 1000] == list(range(first, first + count))
    assert not set_aside(path)


def test_a_full_disk_loses_nothing_that_was_there_and_room_is_used_again(path: Path) -> None:
    """A file may not grow beyond 300 kB, then it may."""
    told = finish(writer(path, 0, 60, 20_000, 300_000))
    kept = [int(line) for line in told if line.isdigit()]
    refused = [line for line in told if not line.isdigit()]
    assert len(refused) > 10
    assert all("lost: " in line or "denied: " in line for line in refused), refused
    assert kept[-1] == 60
    history = opened(path)
    assert not set_aside(path)
    assert numbers(history) == kept


def test_a_history_locked_by_another_is_a_timeout_and_goes_on_later(path: Path) -> None:
    history = opened(path, SHORT)
    history.add(record(1))
    other = sqlite3.connect(path, isolation_level=None)
    with closing(other):
        other.execute("BEGIN IMMEDIATE")
        assert why(history.add(record(2))) is Why.TIMEOUT
        assert numbers(history) == [1]
        other.execute("ROLLBACK")
        assert history.add(record(3)) is None
        other.execute("BEGIN EXCLUSIVE")
        assert why(opened(path, SHORT).folded(1)) is Why.TIMEOUT
        other.execute("ROLLBACK")
    assert numbers(history) == [1, 3]
    assert not set_aside(path)


class Counting(History):
    """A history that counts how often it opens its file."""

    opened = 0

    def _connected(self, path: Path, mode: str) -> sqlite3.Connection:
        self.opened += 1
        return super()._connected(path, mode)


def test_a_history_that_is_locked_is_said_once_and_once_more_when_it_is_not(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = opened(path, SHORT)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                assert [why(history.add(record(n))) for n in range(2)] == [Why.TIMEOUT] * 2
            assert [history.add(record(n)) for n in range(2)] == [None] * 2
    assert [one.partition(":")[0] for one in caplog.messages] == [
        "probes are not kept",
        f"{path} is written again",
    ] * 2


@pytest.mark.parametrize("end", ["", "-journal"])
def test_a_link_is_not_followed(path: Path, tmp_path: Path, end: str) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    other = folder / "probes.sqlite"
    opened(other).add(record(1))
    was = other.read_bytes()
    Path(f"{path}{end}").symlink_to(other)
    history = opened(path)
    assert why(history.add(record(2))) is Why.DENIED
    assert why(history.folded(1)) is Why.DENIED
    assert other.read_bytes() == was


def test_a_sample_is_of_the_whole_history(history: History) -> None:
    for number in range(9):
        history.add(record(number))
    for count, numbered in ((3, [2, 5, 8]), (1, [8]), (0, [8]), (99, list(range(9)))):
        found = history.sample(count)
        assert isinstance(found, tuple)
        assert [int(one.at) - NOW for one in found] == numbered


def test_a_locked_history_is_waited_for_once(path: Path) -> None:
    history = Counting.open(path, Standing(), SHORT)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        before = history.opened
        assert why(history.add(record(1))) is Why.TIMEOUT
    assert history.opened == before + 1


def test_a_daemon_of_0_1_that_still_runs_keeps_its_file(path: Path) -> None:
    path.write_bytes(gzip.decompress(WRITTEN.read_bytes()))
    with closing(sqlite3.connect(path)) as old:
        assert old.execute("SELECT count(*) FROM probes").fetchone() == (6,)
        history = opened(path, SHORT)
        assert why(history.add(record(1))) is Why.TIMEOUT
        assert old.execute("SELECT count(crc), user_version FROM probes, pragma_user_version").fetchone() == (
            6,
            1,
        )
    assert history.add(record(1)) is None
    assert len(stored(path)) == 7


def test_a_path_below_a_file_is_reported_and_nothing_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    history = opened(tmp_path / "file" / "probes.sqlite")
    assert isinstance(history.add(record(1)), Absent)
    assert isinstance(history.folded(1), Absent)


def test_a_file_that_is_a_folder_is_reported_and_left_alone(path: Path) -> None:
    path.mkdir()
    history = opened(path)
    assert why(history.add(record(1))) is Why.DENIED
    assert path.is_dir()


def test_a_folder_that_comes_later_is_used_then(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    history = opened(folder / "probes.sqlite")
    assert why(history.add(record(1))) is Why.DENIED
    folder.mkdir()
    assert history.add(record(2)) is None
    assert numbers(history) == [2]
