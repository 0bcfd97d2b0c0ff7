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
from proof.siege.daemon import EVERY_SECOND, Besieged, Start
from proof.siege.shifted import VARIABLE

BOOK = Book()
FILES = (64, 128, 256)
MEMORY = 256 * MIB
"""The chart's limit for the agent."""
HOLD = 8.0
YEAR, HOUR = 365.25 * 86400, 3600.0
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
    """Seconds since the last success of each collector that polls every second, by the daemon's clock."""
    text = daemon.get("/metrics")[1].decode()
    lines = [
        line for line in text.splitlines() if line.startswith(AGES) and line.split('"')[1] in EVERY_SECOND
    ]
    return [now - float(line.split()[-1]) for line in lines]


@BOOK.attack(
    "The node's clock jumps ten years ahead, ten back and home, under the daemon; then it starts ten "
    "years early on the state it wrote ten years late"
)
def clock(siege: Siege) -> None:
    with siege.ground() as ground:
        file = ground.folder / "clock"
        _set(file, 0)
        start = Start(environment={VARIABLE: str(file)}, program=("-P", "-m", "proof.siege.shifted"))
        with Besieged(ground, start) as daemon, siege.watched(daemon):
            for years in (10, -10, 0):
                _jump(siege, daemon, file, years)
        for years in (10, -10):
            _set(file, years)
            with Besieged(ground, start) as daemon:
                siege.must(not (wrong := daemon.right()), f"started {years} years off: {wrong}")
                code, _ = daemon.stop()
                siege.must(code == 0, f"ended with {code}, {years} years off")
                siege.must("Traceback" not in daemon.log, f"a traceback: {daemon.log[-400:]}")


def _set(file: Path, years: int) -> None:
    """In one write of one length, so that nobody reads half of it."""
    with file.open("r+" if file.exists() else "w", encoding="ascii") as out:
        out.write(f"{years * YEAR:+020.0f}\n")


def _jump(siege: Siege, daemon: Besieged, file: Path, years: int) -> None:
    """The ages that Prometheus works out by this node's clock stay those of polls a second apart."""
    _set(file, years)
    time.sleep(SETTLED)
    ages = _ages(daemon, time.time() + years * YEAR)
    siege.most(f"oldest age at {years:+d} years", max(ages), "s", OLDEST)
    siege.must(min(ages) > -1, f"an age of {min(ages)} s at {years:+d} years")
    age = (daemon.health().get("probe") or {}).get("age_seconds")
    siege.must(age is None or 0 <= age < HOUR, f"age of the probe at {years:+d} years: {age} s")
