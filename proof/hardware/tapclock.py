"""tapclock: bus bandwidth of collectives in jobs by the tap's own clock, by operation, size and surrounding.

Some two minutes of four GPUs, on two of them and on all; jobs are judged by this table. Compiles with cc.
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from proof.hardware.job import Job
from proof.hardware.kit import Report, quantile
from proof.hardware.probing import probing
from proof.hardware.tap import ALWAYS, READY, TMPFS, Taps
from wirewatch.busbw.formulas import busbw
from wirewatch.core.jobs import RingReading

EACH = 0.15
WITHIN = 240.0
LEAST = 8
"""Collectives without which a case has not been measured."""
LOW = 0.1
HEADER = ("ranks", "op", "MiB", "how", "n", "median us", "p10 us", "GB/s", "best GB/s", "way")


@dataclass
class TimedSpan:
    """One collective: seconds by rank, when it was enqueued, and NCCL's choice."""

    ranks: int
    at: float
    way: str
    seconds: dict[int, float] = field(default_factory=dict)


def spans(readings: Sequence[RingReading]) -> Mapping[tuple[str, int], list[TimedSpan]]:
    """Collectives that every rank timed, by operation and bytes."""
    held: dict[tuple[int, str, int, int], TimedSpan] = {}
    for reading in readings:
        ring = reading.ring
        for call in reading.calls:
            if call.size_bytes is None:
                continue
            way = f"{call.algorithm} {call.protocol} {call.channels}"
            key = (ring.communicator, call.op, call.size_bytes, call.sequence)
            one = held.setdefault(key, TimedSpan(ring.ranks, call.enqueued, way))
            one.seconds[ring.rank] = call.seconds
    found: dict[tuple[str, int], list[TimedSpan]] = defaultdict(list)
    for (_, op, size, _), one in held.items():
        if len(one.seconds) == one.ranks:
            found[op, size].append(one)
    return found


def rows(cases: Sequence[Mapping[str, Any]], readings: Sequence[RingReading]) -> Iterator[list[object]]:
    """Yield a row for each case; a case with too few collectives has no times."""
    found = spans(readings)
    for case in cases:
        op, size, ranks = case["op"], case["size"], case["ranks"]
        mine = [
            one
            for one in found.get((op, size), ())
            if one.ranks == ranks and case["began"] <= one.at <= case["ended"]
        ]
        wires = [min(one.seconds.values()) for one in mine]
        head = [ranks, op, size >> 20, case["how"], len(wires)]
        if len(wires) < LEAST:
            yield [*head, None, None, None, None, ""]
            continue
        middle, low = median(wires), quantile(wires, LOW)
        rates = [busbw(op, ranks, size, seconds) / 1e9 for seconds in (middle, low)]
        yield [*head, 1e6 * middle, 1e6 * low, *rates, mine[0].way]


def run(report: Report, _options: argparse.Namespace) -> None:
    with (
        probing(report) as here,
        tempfile.TemporaryDirectory(prefix="wirewatch-tapclock-", dir=TMPFS) as folder,
        closing(Taps(Path(folder))) as taps,
    ):
        with Job("spans", str(EACH), settings=taps.settings(ALWAYS)) as job:
            job.wait("READY", READY)
            end = time.monotonic() + WITHIN
            while job.running() and time.monotonic() < end:
                time.sleep(0.5)
            cases = [
                json.loads(line.removeprefix("CASE ")) for line in job.lines() if line.startswith("CASE ")
            ]
            whole = any(line.startswith("DONE") for line in job.lines())
            report.note(errors=job.errors())
        made = list(rows(cases, taps.poll()))
        report.table(f"{len(here.gpus)} GPUs, by the tap", HEADER, made)
        timed = sum(row[5] is not None for row in made)
        report.check(
            "every case was timed", ok=whole and 0 < timed == len(made), told=f"{timed} of {len(made)}"
        )
