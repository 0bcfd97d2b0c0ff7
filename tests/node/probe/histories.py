"""Records, a clock that stands still, and a process that writes records until it is killed.

As a program: PATH FIRST COUNT SIZE [FILE_LIMIT]; it prints "ready", then each number once its record is kept.
"""

import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

from wirewatch.core.types import Absent
from wirewatch.probe.history import History, HistoryLimits, ProbeRecord

ROOT = Path(__file__).parents[3]
NOW = 1_700_000_000
DEFAULT = HistoryLimits()
BOOT = "0b9c2c1e-0000-4000-8000-000000000001"


class Standing:
    """A clock that stands still."""

    def now(self) -> float:
        return float(NOW) + 0.9

    def mono(self) -> float:
        return 5.0


def record(number: int, size: int = 100, result: str = "ok", *, forced: bool = False) -> ProbeRecord:
    """A daemon's, numbered by `at`, with a document of about `size` bytes that differs from all others."""
    word = f"{number:06d} \N{EURO SIGN} "
    document = '{"n": "' + word * (size // len(word.encode())) + '"}'
    return ProbeRecord(
        NOW + number, BOOT, result, forced, "daemon", "nccl", number / 7, document, folded=True
    )


def opened(path: Path, limits: HistoryLimits = DEFAULT) -> History:
    return History.open(path, Standing(), limits)


def read(history: History, count: int = 100_000) -> list[ProbeRecord]:
    """Complete ones, newest first; it must be readable."""
    found = history.folded(count)
    assert not isinstance(found, Absent), str(found)
    return list(reversed(found))


def stored(path: Path) -> list[ProbeRecord]:
    """All that the file has, oldest first, read without the code under test."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as file:
        names = [field.name for field in fields(ProbeRecord)]
        rows = file.execute(f"SELECT {', '.join(names)} FROM probes ORDER BY id").fetchall()  # noqa: S608
    found = [ProbeRecord(*row) for row in rows]
    return [replace(one, forced=bool(one.forced), folded=bool(one.folded)) for one in found]


def set_aside(path: Path) -> list[Path]:
    """The files that were put out of the way."""
    return sorted(path.parent.glob(f"{path.name}.corrupt-*"))


def numbers(history: History) -> list[int]:
    """Of all records, oldest first."""
    return [int(one.at) - NOW for one in reversed(read(history))]


def writer(path: Path, first: int, count: int, size: int, *limit: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.node.probe.histories", str(path)]
    command += [str(number) for number in (first, count, size, *limit)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _write(path: Path, first: int, count: int, size: int, limit: int = 0) -> None:
    print("ready", flush=True)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    history = opened(path)
    for number in range(first, first + count):
        told = history.add(record(number, size))
        print(number if told is None else f"{number} {told}", flush=True)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(first + count if history.add(record(first + count)) is None else "still full", flush=True)


if __name__ == "__main__":
    _write(Path(sys.argv[1]), *(int(argument) for argument in sys.argv[2:]))
