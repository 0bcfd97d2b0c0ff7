"""A history that wirewatch 0.1 wrote: it opens, and its probes count as they did.

The file has six probes of two GPUs: one of the daemon; a slow one of a command, which the daemon took over;
a command's of one collective alone, which it left out; a forced one; one of the daemon that gave way to a
job; and a slow one of a command that no daemon has seen.
"""

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.node.probe.histories import stored
from tests.node.probe.idle import Idle
from tests.node.probe.sharednode import SharedNode
from wirewatch.core.types import Health
from wirewatch.probe.restore import recall

WRITTEN = Path(__file__).with_name("history-0.1.sqlite.gz")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "probes.sqlite"
    path.write_bytes(gzip.decompress(WRITTEN.read_bytes()))
    return path


def counts(node: SharedNode) -> list[int]:
    return [streak.count for streak in node.memory.streaks.values()]


def test_a_daemon_remembers_it_and_takes_over_what_is_new(file: Path) -> None:
    node = SharedNode(file.parent)
    assert [past.outcome for past in node.memory.past] == ["ok", "ok", "preempted"]
    assert counts(node) == [1]
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 1}, [2])
    assert node.healths() == {"probe.busbw": Health.FAILED}
    node.start()
    assert counts(node) == [2]
    assert [record.forced for record in node.records()] == [False, False, False, True, False, False]
    assert [path.name for path in file.parent.glob("*corrupt*")] == []


def test_a_look_without_a_daemon_reads_it_and_leaves_it_as_it_is(file: Path) -> None:
    was = file.read_bytes()
    node = Idle(2)
    component = recall(file, node.hardware, node.made, node.rules_used, node.expect)
    assert {finding.rule: finding.health for finding in component.findings} == {"probe.busbw": Health.FAILED}
    assert file.read_bytes() == was


def test_what_a_killed_daemon_left_in_its_log_is_there(file: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    with closing(sqlite3.connect(file, isolation_level=None)) as old:
        old.execute("DELETE FROM probes WHERE forced")
        for name in ("probes.sqlite", "probes.sqlite-wal"):
            shutil.copy(tmp_path / name, left)
    SharedNode(left)
    assert [record.id for record in stored(left / "probes.sqlite")] == [1, 2, 3, 5, 6]
    assert [path.name for path in left.iterdir()] == ["probes.sqlite"]


def test_what_the_conversion_frees_is_given_back(file: Path) -> None:
    SharedNode(file.parent)
    with closing(sqlite3.connect(file)) as new:
        assert new.execute("PRAGMA freelist_count").fetchone() == (0,)
