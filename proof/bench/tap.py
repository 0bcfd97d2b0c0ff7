"""What the tap costs, and a day of a job at compressed time: `python -m proof.bench.tap [--write]`.

Nanoseconds of what NCCL calls, by the median of some rounds; then so many hours of a job of two communicators
(storm.c), with a reader beside it: memory must not grow, no file be left behind, no record be torn.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wirewatch.core.jobs import RingsReading
from wirewatch.jobs.tap.rings import FileRings

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "proof" / "bench" / "tap.md"
BUILD = ROOT / "build" / "tap" / "PLAIN"
ROUNDS = 7
GROWTH_KIB = 64
"""Memory that a day may take: pages that are touched for the first time, of the C library's own."""
ASKED = {
    "untimed_ns": "a collective, not timed: call, call's stop, enqueue, enqueue's stop",
    "captured_ns": "a call that is captured into a CUDA graph",
    "unwatched_ns": "a call in a communicator that is not watched",
    "timed_ns": "a collective, timed: the same and 24 channels of three events each",
}


def storm(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BUILD / "storm", BUILD / "tap.so", *words], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "WIREWATCH_TAP_DIR": str(folder)},
    )  # fmt: skip


def numbers(text: str) -> Mapping[str, float]:
    return {name: float(value) for name, value in (line.split() for line in text.splitlines())}


def cost(folder: Path) -> Mapping[str, list[float]]:
    """Nanoseconds by what was measured, one of each round."""
    found: dict[str, list[float]] = {name: [] for name in ASKED}
    for _ in range(ROUNDS):
        with storm(folder, "cost") as process:
            said = numbers(process.communicate()[0])
        for name, values in found.items():
            values.append(said[name])
    return found


@dataclass
class Day:
    """What so many hours came to, and what the reader beside it saw."""

    hours: float
    said: Mapping[str, float]
    seconds: float
    polls: int = 0
    records: int = 0
    implausible: int = 0
    most_files: int = 0

    def faults(self) -> list[str]:
        grown = self.said["last_kib"] - self.said["first_kib"]
        found = [f"memory grew by {grown:.0f} KiB"] if grown > GROWTH_KIB else []
        found += [f"{self.implausible} implausible records"] if self.implausible else []
        found += [f"{self.most_files} files at once"] if self.most_files > 2 else []
        return found + (["nothing was read"] if not self.records else [])


def day(folder: Path, hours: float) -> Day:
    rings, after, began = FileRings(folder), dict[str, int](), time.monotonic()
    result = Day(hours, {}, 0.0)
    with storm(folder, "day", str(hours)) as process:
        while process.poll() is None:
            result.most_files = max(result.most_files, len(list(folder.iterdir())))
            reading = rings.poll(after)
            assert isinstance(reading, RingsReading)
            result.polls += 1
            for ring in reading.rings:
                after[ring.ring.name] = ring.last
                result.records += len(ring.calls)
                result.implausible += ring.implausible
            time.sleep(0.05)
        result.said = numbers(process.communicate()[0])
    rings.close()
    result.seconds = time.monotonic() - began
    return result


def page(costs: Mapping[str, list[float]], result: Day) -> str:
    rows = "\n".join(
        f"| {text} | {statistics.median(ns):,.0f} | {min(ns):,.0f} to {max(ns):,.0f} |"
        for name, text in ASKED.items()
        for ns in [costs[name]]
    )
    return f"""# The tap, measured

Written by `make tap-soak` on {os.cpu_count()} shared processors ({platform.machine()}).
[tap.md](../../docs/tap.md) has what it means.

## What NCCL's calls into it take

Nanoseconds, median of {ROUNDS} rounds and their range, without NCCL and without a GPU:

| what | ns | range |
| -- | -- | -- |
{rows}

The clock is read twice in each collective, through the vDSO. The timed part runs on NCCL's progress
thread, the rest on the thread that enqueues.

{_day(result)}"""


def _day(result: Day) -> str:
    said = result.said
    verdict = "; ".join(result.faults()) or "memory is flat, nothing is left behind, nothing is torn"
    kib = f"{said['first_kib']:,.0f} KiB, {said['last_kib']:,.0f} KiB"
    return f"""## {result.hours:g} hours of a job at compressed time

Two communicators, a step of 32 collectives in each every 20 ms, 50 a second timed; each ten
minutes a communicator ends and another begins, each hour a graph is captured, and of every
thousandth collective a channel never stops. A reader polls beside it.

| | |
| -- | -- |
| collectives | {said["collectives"]:,.0f} |
| of these timed | {said["timed"]:,.0f} |
| events | {said["events"]:,.0f} |
| real time | {result.seconds:.0f} s |
| resident memory after ten minutes, at the end | {kib} |
| most files at once | {result.most_files} |
| records read beside it, in {result.polls:,} polls | {result.records:,} |
| of these torn or implausible | {result.implausible} |
| verdict | {verdict} |
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    asked = parser.parse_args()
    subprocess.run(["make", "-s", "tap-tests"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(prefix="tap-", dir="/dev/shm") as name:
        folder = Path(name)
        costs = cost(folder)
        for left in folder.iterdir():
            left.unlink()
        result = day(folder, asked.hours)
    text = page(costs, result)
    print(text)
    if asked.write:
        PAGE.write_text(text, "utf-8")
    return 1 if result.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
