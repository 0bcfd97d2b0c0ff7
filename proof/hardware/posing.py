"""posing: what the tap and RAS show of a real NCCL where one GPU is all there is.

Two ranks on it pose as nodes, so that their data takes sockets and their kernels share the GPU in turns: no
bus bandwidth, no cost of a step. But NCCL, its events, its graphs and its RAS are real. Some two minutes.
"""

import argparse
import json
import os
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from proof.hardware.daemon import DEFAULTS, Daemon
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report
from proof.hardware.tap import ALWAYS, READY, TMPFS, Taps
from wirewatch.core.jobs import RasReport, RingReading, RingState
from wirewatch.core.probe import MIB
from wirewatch.core.types import Absent
from wirewatch.jobs.ras.client import SocketRas

RANKS, EACH, SIZES = 2, 30, (1 * MIB, 4 * MIB)
WITHIN, DAEMON_WITHIN = 240.0, 60.0
ABOVE = 5e-6
"""Seconds by which the tap's time of a kernel may be above that of the events around it."""
AROUND = 100e-6
"""Seconds that starting a kernel and recording two events take at most, at the median."""
ASKED = 20.0
SETTLED = 6.0
HELD = 12.0
"""Seconds in which moments of sampling come."""
Key = tuple[int, str, int]
"""Rank, op and bytes."""


def run(report: Report, _options: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="wirewatch-posing-", dir=TMPFS) as folder,
        closing(Taps(Path(folder))) as taps,
    ):
        report.attempt("timed always", partial(_timed, report, taps))
        report.attempt("sampled", partial(_sampled, report, taps))
        report.attempt("calls", partial(_calls, report, taps))


def _job(settings: Mapping[str, str]) -> Job:
    return Job("posing", str(RANKS), str(EACH), *map(str, SIZES), settings=settings)


def _timed(report: Report, taps: Taps) -> None:
    with _job(taps.settings(ALWAYS)) as job:
        pids = [int(word) for word in job.wait("READY", READY).split()]
        job.wait("STEADY", WITHIN)
        readings = taps.poll()
        lines = job.lines()
        report.attempt("RAS", partial(_ras, report, job, pids))
    _described(report, readings)
    compare(report, events_of(lines), taken_of(readings))
    graph = json.loads(next(line for line in lines if line.startswith("GRAPH ")).removeprefix("GRAPH "))
    graphs(report, readings, graph)


def graphs(report: Report, readings: Sequence[RingReading], graph: Mapping[str, int]) -> None:
    """Captured calls are counted, on one communicator of each rank, and nothing is timed there since."""
    captured = sorted((one.ring.rank, one.ring.counts.captured) for one in readings)
    wanted = sorted((rank, count) for rank in range(RANKS) for count in (0, graph["captured"]))
    report.check(
        "captured collectives are counted as such", ok=captured == wanted, told=f"{captured}, of {graph}"
    )
    of_graph = [one for one in readings if one.ring.counts.captured]
    launched = [one.ring.counts.calls.get("all_reduce", 0) for one in of_graph]
    late = [call for one in of_graph for call in one.calls if call.size_bytes == graph["size"]]
    report.check(
        "a communicator that has captured a graph is not timed any more",
        ok=bool(of_graph) and min(launched, default=0) >= graph["after"] and not late,
        told=f"{len(late)} timed; {launched} all-reduces of both communicators were launched",
    )


def _described(report: Report, readings: Sequence[RingReading]) -> None:
    rings = [one.ring for one in readings]
    report.note(rings=[{**asdict(one), "state": one.state.value, "gpu": str(one.gpu)} for one in rings])
    whole = [
        one.gpu and not isinstance(one.gpu, Absent) and one.nccl and one.interface and one.nodes == RANKS
        for one in rings
    ]
    told = "; ".join(f"rank {o.rank} of {o.ranks}, {o.gpu}, NCCL {o.nccl}, v{o.interface}" for o in rings)
    ranks = sorted(one.rank for one in rings)
    report.check(
        "each rank has a whole ring for each of its two communicators",
        ok=ranks == sorted([*range(RANKS)] * 2) and all(whole), told=told,
    )  # fmt: skip
    lost = [(one.ring.rank, one.ring.counts.dropped, one.missed, one.implausible) for one in readings]
    report.check(
        "nothing is dropped, missed or implausible", ok=not any(any(one[1:]) for one in lost), told=str(lost)
    )


def events_of(lines: Sequence[str]) -> dict[Key, list[float]]:
    """Seconds by CUDA events, in order."""
    found: dict[Key, list[float]] = {}
    for line in lines:
        if line.startswith("EAGER "):
            one = json.loads(line.removeprefix("EAGER "))
            found[one["rank"], one["op"], one["size"]] = one["seconds"]
    return found


def taken_of(readings: Sequence[RingReading]) -> dict[Key, list[float]]:
    """Seconds by the tap, in NCCL's order."""
    found: dict[Key, list[tuple[int, float]]] = defaultdict(list)
    for reading in readings:
        for call in reading.calls:
            if call.size_bytes is not None:
                key = (reading.ring.rank, call.op, call.size_bytes)
                found[key].append((call.sequence, call.seconds))
    return {key: [seconds for _, seconds in sorted(calls)] for key, calls in found.items()}


def compare(report: Report, events: Mapping[Key, list[float]], taken: Mapping[Key, list[float]]) -> None:
    """Collective by collective: events around a kernel take as long as it and a little more."""
    rows, above, around = [], [], []
    for key, theirs in sorted(events.items()):
        ours = taken.get(key, [])
        # The first collective of a communicator switches the timing on, and is not timed.
        if not len(theirs) - 1 <= len(ours) <= len(theirs):
            report.check(f"{key}: all are timed", ok=False, told=f"{len(ours)} of {len(theirs)}")
            continue
        more = [a - b for a, b in zip(theirs[-len(ours) :], ours, strict=True)]
        above.append(-min(more))
        around.append(median(more))
        rows.append(
            [*key, len(ours), 1e6 * median(theirs), 1e6 * median(ours), 1e6 * median(more), 1e6 * min(more)]
        )
    header = ("rank", "op", "bytes", "n", "events us", "tap us", "median more us", "least more us")
    report.table("each collective beside CUDA events", header, rows)
    report.check(
        f"a kernel's time is within that of the events around it, but for {1e6 * ABOVE:.0f} us",
        ok=bool(above) and len(above) == len(events) and max(above) <= ABOVE,
        told=f"{1e6 * max(above, default=0):.1f} us above at most",
    )
    report.check(
        f"the events have {1e6 * AROUND:.0f} us more at most, at the median",
        ok=bool(around) and max(around) <= AROUND, told=f"{1e6 * max(around, default=0):.1f} us",
    )  # fmt: skip


def _sampled(report: Report, taps: Taps) -> None:
    """With the defaults, a tenth of the time; and what the daemon makes of it."""
    with Daemon(f'{DEFAULTS}[jobs]\nrings = "{taps.rings}"\n') as daemon, _job(taps.settings()) as job:
        job.wait("STEADY", WITHIN)
        time.sleep(HELD)
        taps.poll()
        time.sleep(SETTLED)
        readings = [one for one in taps.poll() if one.ring.state is RingState.LIVE]
        document = _document(daemon)
        job.must_run()
    rows = [
        [
            r.ring.rank, r.ring.counts.captured, r.ring.counts.enqueued, r.ring.counts.written,
            r.ring.counts.dropped, len(r.calls),
        ]
        for r in readings
    ]  # fmt: skip
    header = ["rank", "captured", "enqueued", "written", "dropped", f"timed in {SETTLED:g} s"]
    report.table("sampled", header, rows)
    fresh = [one for one in readings if not one.ring.counts.captured]
    timed = [len(one.calls) for one in fresh]
    shared = set.intersection(*({call.sequence for call in one.calls} for one in fresh)) if fresh else set()
    report.check(
        "ranks time nearly the same collectives of the communicator without a graph",
        ok=len(fresh) == RANKS and len(shared) >= max(1, 0.8 * max(timed, default=1)),
        told=f"{len(shared)} of {timed}",
    )
    stale = [len(one.calls) for one in readings if one.ring.counts.captured]
    report.check("the communicator with a graph is not timed", ok=stale == [0] * RANKS, told=f"{stale} timed")
    report.note(jobs=document)
    wires = [row for row in _windows(document) if row["op"] == "all_reduce" and row["busbw"]]
    report.check(
        "the daemon shows the job and its all-reduces", ok=bool(wires),
        told=f"{[one['answer']['sentence'] for one in document['jobs']]} {wires[:1]}",
    )  # fmt: skip


def _document(daemon: Daemon) -> dict[str, Any]:
    """What the daemon says of jobs, once it has a window, or at last."""
    end = time.monotonic() + DAEMON_WITHIN
    while True:
        document: dict[str, Any] = json.loads(daemon.get("/api/v1/jobs").body)
        if _windows(document) or time.monotonic() > end:
            return document
        time.sleep(1)


def _windows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Operations of the newest windows."""
    jobs = [one["evidence"]["job"] for one in document["jobs"]]
    return [
        row
        for job in jobs if job
        for comm in job["communicators"]
        for window in comm["windows"]
        for row in window["collectives"]
    ]  # fmt: skip


def _calls(report: Report, taps: Taps) -> None:
    """What a call takes the host, in turns without the tap, with the defaults and with every call timed."""
    found: dict[str, list[float]] = defaultdict(list)
    ways = {
        "none": {"NCCL_PROFILER_PLUGIN": "none"},
        "default": taps.settings(),
        "always": taps.settings(ALWAYS),
    }
    for _ in range(2):
        for name, settings in ways.items():
            with _job(settings) as job:
                found[name].append(json.loads(job.wait("CALLS", WITHIN))["median"])
            taps.poll()
    rows = [
        [name, 1e6 * median(each), str([round(1e6 * one, 2) for one in each])] for name, each in found.items()
    ]
    report.table("a call on the host", ["tap", "median us", "each us"], rows)


def _ras(report: Report, job: Job, pids: Sequence[int]) -> None:
    """RAS of a job that runs, of the same with each of its ranks stopped, and of it again."""
    ras = SocketRas()
    found = {"running": _asked(ras)}
    time.sleep(2)
    found["later"] = _asked(ras)
    for rank, pid in enumerate(pids):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(SETTLED)
        found[f"rank {rank} stopped"] = _asked(ras)
        os.kill(pid, signal.SIGCONT)
        time.sleep(SETTLED)
    found["going on"] = _asked(ras)
    job.must_run()
    report.note(ras={what: [asdict(one) for one in reports] for what, reports in found.items()})
    for what, reports in found.items():
        report.progress(f"{what}: {[summary(one) for one in reports]}")
    first, second = (counts(found[what]) for what in ("running", "later"))
    report.check(
        "RAS counts what is launched",
        ok=bool(first) and all(second[k] > n for k, n in first.items()),
        told=f"{first} {second}",
    )
    for rank, pid in enumerate(pids):
        missing = [
            [r.pid for r in c.ranks if r.missing]
            for one in found[f"rank {rank} stopped"]
            for c in one.communicators
        ]
        told = f"{missing}, stopped {pid}, silent {[one.silent for one in found[f'rank {rank} stopped']]}"
        report.check(
            f"RAS has not heard of rank {rank} that is stopped",
            ok=missing == [[pid]] * len(missing) != [],
            told=told,
        )


def _asked(ras: SocketRas) -> Sequence[RasReport]:
    reports = ras.ask(ASKED)
    if isinstance(reports, Absent):
        raise KitError(f"RAS: {reports}")
    return reports


def counts(reports: Sequence[RasReport]) -> Mapping[int, int]:
    """Launched all-reduces by process, on all its communicators."""
    found: Counter[int] = Counter()
    for report in reports:
        for comm in report.communicators:
            found.update({rank.pid: rank.counts.get("all_reduce", 0) for rank in comm.ranks})
    return found


def summary(report: RasReport) -> dict[str, Any]:
    ranks = [rank for comm in report.communicators for rank in comm.ranks]
    return {
        "nccl": report.nccl, "seconds": round(report.seconds, 2), "repaired": report.repaired,
        "silent": report.silent, "ranks": [(r.rank, r.pid, r.missing, dict(r.counts)) for r in ranks],
    }  # fmt: skip
