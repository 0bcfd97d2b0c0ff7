"""Limits of memory and of descriptors, and a clock that is wrong by ten years."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proof.siege.attack import MIB, Book, Siege
from proof.siege.attacks.requests import strange
from proof.siege.clients import Kept, crowd, room, sources
from proof.siege.daemon import Besieged, SiegeError, Start

BOOK = Book()
FILES = (64, 128, 256)
MEMORY = 256 * MIB
"""The chart's limit for the agent."""
HOLD = 8.0
TIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
YEAR = 365.25 * 86400
SETTLED, OLDEST = 4.0, 10.0
"""Seconds after a jump, and the age of a poll by the node's own clock, at most."""
AGES = "wirewatch_collector_last_success_timestamp_seconds"
CGROUPS = Path("/sys/fs/cgroup")
INTO = 'echo $$ >"$0"; exec "$@"'
"""A shell that goes into the group before it becomes the daemon."""


@BOOK.attack("Limits of 64, 128 and 256 open files, and 300 connections", short=True)
def descriptors(siege: Siege) -> None:
    for files in FILES[:1] if siege.short else FILES:
        start = Start(files=f"{files}")
        with room(300), siege.daemon(start) as daemon:
            siege.figure(f"open of {files}", daemon.size().descriptors)
            with siege.watched(daemon), crowd(daemon.address, 300, sources(50)) as clients:
                clients.hold(HOLD / 2 if siege.short else HOLD)


@contextmanager
def cgroup(limit: int) -> Iterator[Path]:
    """A memory cgroup of version 1 or 2 for one daemon."""
    old = CGROUPS / "memory"
    place = (old if old.is_dir() else CGROUPS) / f"siege-{os.getpid()}"
    place.mkdir()
    try:
        (place / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")).write_text(f"{limit}", "ascii")
        yield place
    finally:
        for _ in range(50):
            with suppress(OSError):
                place.rmdir()
                break
            time.sleep(0.1)


def most_used(place: Path) -> float:
    """Bytes, the most that there were."""
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        with suppress(OSError):
            return float((place / name).read_text("ascii"))
    return math.nan


@BOOK.attack(
    "A limit of 256 MiB of memory, the chart's: 680 Accept headers, 3,000 connections and floods at once"
)
def memory(siege: Siege) -> None:
    with cgroup(MEMORY) as place, room(3000), siege.ground() as ground:
        start = Start(under=("sh", "-c", INTO, str(place / "cgroup.procs")))
        with Besieged(ground, start) as daemon, siege.watched(daemon):
            with crowd(daemon.address, 3000, sources(250)) as clients:
                clients.hold(HOLD)
            client = Kept(daemon.address, "127.0.0.5", {})
            for text in strange(680):
                client._headers = {"Accept": text}  # noqa: SLF001
                with suppress(OSError):
                    client.get("/metrics")
            client.close()
            siege.figure("most memory, page cache included", most_used(place) / MIB, "MiB")


def _ages(daemon: Besieged, now: float) -> list[float]:
    """Seconds since each collector's last success, by the daemon's clock."""
    text = daemon.get("/metrics")[1].decode()
    stamps = [float(line.split()[-1]) for line in text.splitlines() if line.startswith(AGES)]
    return [now - stamp for stamp in stamps if stamp]


@BOOK.attack(
    "The node's clock jumps ten years ahead, ten back and home, under the daemon; then it starts ten "
    "years early on the state it wrote ten years late",
    short=True,
)
def clock(siege: Siege) -> None:
    if not TIME.exists():
        raise SiegeError("needs Debian's libfaketime")
    with siege.ground() as ground:
        file = ground.folder / "clock"
        file.write_text("+0\n", "ascii")
        fake = {
            "LD_PRELOAD": str(TIME), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip
        start = Start(environment=fake)
        with Besieged(ground, start) as daemon, siege.watched(daemon):
            for years in (10, -10, 0):
                _jump(siege, daemon, file, years)
        for years in (10, -10):
            file.write_text(f"{years * YEAR:+.0f}\n", "ascii")
            with Besieged(ground, start) as daemon:
                siege.must(not (wrong := daemon.right()), f"started {years} years off: {wrong}")
                siege.must("Traceback" not in daemon.log, "a traceback")
                daemon.stop()


def _jump(siege: Siege, daemon: Besieged, file: Path, years: int) -> None:
    file.write_text(f"{years * YEAR:+.0f}\n", "ascii")
    time.sleep(SETTLED)
    ages = [age for age in _ages(daemon, time.time() + years * YEAR) if abs(age) < 40]
    every = _ages(daemon, time.time() + years * YEAR)
    slow = [age for age in every if not -1 <= age <= OLDEST]
    siege.figure(f"oldest age at {years:+d} years", max(ages, default=math.inf), "s")
    health = daemon.health()
    age = (health.get("probe") or {}).get("age_seconds")
    siege.must(age is None or 0 <= age < 1e6, f"age of the probe at {years:+d} years: {age} s")
    siege.figure(f"collectors that have not polled since, at {years:+d} years", len(slow))
