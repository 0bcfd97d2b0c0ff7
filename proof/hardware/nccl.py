"""nccl: the NCCL that is installed here, beside nccl-tests and CUDA events: probe, log, RAS, and the tap.

Some five minutes of several GPUs. `--kinds` for pieces of it: bandwidth, installed, tap, cost. `installed` is
the tap as users run it; `tap` and `cost` time what the tap's list of versions refuses.
"""

import argparse
import json
import re
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, chosen
from proof.hardware.nccltests import ITERATIONS, WARMUP, NcclTests
from proof.hardware.primitives import OUT_OF_PLACE, Asked, every
from proof.hardware.probing import probing
from proof.hardware.tap import ALWAYS, PAIRS, READY, TMPFS, Taps, cost
from wirewatch.busbw.formulas import busbw
from wirewatch.core.jobs import RingReading
from wirewatch.core.probe import MIB, PRIMITIVES
from wirewatch.jobs.ras.client import ADDRESSES

KINDS = ("bandwidth", "installed", "tap", "cost")
SIZES = (16 * MIB, 64 * MIB, 256 * MIB)
WITHIN: Mapping[int, float] = {256 * MIB: 0.03}
FACTOR, LAUNCH = 0.15, 40e-6
"""How far a time of the tap may be from that of CUDA events, which have the launch of the kernel in them."""
PHASES = ("plain", "broadcasts", "uneven", "sends", "other", "graph")
UNMEASURED = {"WIREWATCH_TAP_UNMEASURED": "1"}
HALF = {**UNMEASURED, **ALWAYS, "WIREWATCH_TAP_ON_MS": "1000", "WIREWATCH_TAP_PERIOD_MS": "2000"}
ENDS = 60.0
"""Seconds after its last phase in which a job must have ended."""
JOBS = ("data_parallel", "sharded", "small", "decode")
"""Of proof.hardware.jobs.costs, which needs torch."""
LOG_LINES = 4000
DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV,TUNING,NET"}


def run(report: Report, options: argparse.Namespace) -> None:
    with (
        probing(report) as here,
        tempfile.TemporaryDirectory(prefix="wirewatch-nccl-", dir=TMPFS) as folder,
        closing(Taps(Path(folder))) as taps,
    ):
        report.note(gpus=len(here.gpus), nccl_tests=[])
        asked = Asked(here, time.monotonic() + 300)
        pieces = {
            "bandwidth": lambda: _bandwidth(report, asked, options.nccl_tests),
            "installed": lambda: _mixed(report, taps, Path(folder), PHASES, {}),
            "tap": lambda: _every_mixture(report, taps, Path(folder)),
            "cost": lambda: _cost(report, taps, options.trials or PAIRS),
        }
        for kind in chosen(options.kinds, KINDS):
            report.attempt(kind, pieces[kind])


def _bandwidth(report: Report, asked: Asked, folder: Path | None) -> None:
    """Nine primitives at three sizes, by nccl-tests and by the probe."""
    theirs: dict[tuple[str, int], float] = {}
    for op in PRIMITIVES:
        report.attempt(f"nccl-tests, {op}", partial(_oracle, asked, folder, op, theirs))
    ours = {
        (one.op, one.size_bytes): one
        for size in SIZES
        for one in asked.ask(f"{size // MIB} MiB", "nccl", every(PRIMITIVES, size))
    }
    rows, off = [], defaultdict[int, list[float]](list)
    for key, rate in sorted(theirs.items()):
        found = ours.get(key)
        if found is None:
            rows.append([*key, rate / 1e9, "not measured", "", ""])
            continue
        rate_here = busbw(found.op, len(asked.here.gpus), found.size_bytes, found.seconds)
        more = rate_here / rate - 1
        off[key[1]].append(abs(more))
        rows.append([*key, rate / 1e9, rate_here / 1e9, f"{100 * more:+.1f} %", found.wrong])
    report.table("bus bandwidth, GB/s", ["op", "bytes", "nccl-tests", "probe", "more", "wrong"], rows)
    for size, limit in WITHIN.items():
        most = 100 * max(off[size], default=0)
        told = f"{len(off[size])} of {len(PRIMITIVES)} primitives, at most {most:.1f} % off"
        ok = len(off[size]) == len(PRIMITIVES) and max(off[size]) <= limit
        report.check(f"probe at {size // MIB} MiB within {100 * limit:g} % of nccl-tests", ok=ok, told=told)


def _oracle(asked: Asked, folder: Path | None, op: str, into: dict[tuple[str, int], float]) -> None:
    program = NcclTests(folder, len(asked.here.gpus), (op,))
    around = ["-f", "4", "-w", str(WARMUP), "-n", str(ITERATIONS)]
    table = program.run(op, "-b", str(SIZES[0]), "-e", str(SIZES[-1]), *around)
    asked.here.report.data["nccl_tests"] += program.ran
    for size in SIZES:
        row = table.row(size)
        into[op, size] = (row.out_of_place if op in OUT_OF_PLACE else row.in_place).busbw


def _every_mixture(report: Report, taps: Taps, folder: Path) -> None:
    """A job for each kind of calls: what one does to the times stays until the communicator ends."""
    for phase in PHASES:
        report.attempt(f"tap, {phase}", partial(_mixed, report, taps, folder, (phase,), HALF))


def _mixed(
    report: Report, taps: Taps, folder: Path, phases: Sequence[str], settings: Mapping[str, str]
) -> None:
    """A job of many kinds of calls under the tap: each time of the tap beside that of CUDA events."""
    what = phases[0] if settings else "installed"
    log = folder / f"log-{what}"
    debug = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV,TUNING,NET",
        "NCCL_DEBUG_FILE": f"{log}.%p",
    }
    with Job("mixed", *phases, settings=taps.settings({**settings, **debug})) as job:
        first = int(job.wait("READY", READY))
        report.note(**{f"ras_{what}": [_ras(address) for address in ADDRESSES]})
        ended = _ended(job, len(phases))
        calls = {
            one["phase"]: one["calls"]
            for line in job.lines() if line.startswith("CALLS ")
            for one in [json.loads(line.removeprefix("CALLS "))]
        }  # fmt: skip
    report.check(f"{what}: the job ends", ok=ended is not None, told=f"{ended} s after its last phase")
    readings = taps.poll()
    report.note(**{f"rings_{what}": [_told(one) for one in readings]})
    timed = [call for one in readings if one.ring.rank == 0 for call in one.calls]
    _beside_events(report, what, calls, timed)
    text = Path(f"{log}.{first}").read_text("utf-8", "replace")
    report.note(**{f"log_{what}": text.splitlines()[:LOG_LINES]})


def _told(reading: RingReading) -> dict[str, Any]:
    """Return what a ring says, without its times and the UUID of its GPU."""
    about = {**asdict(reading.ring), "gpu": "", "missed": reading.missed}
    plain = (int, float, dict)
    return {name: value if isinstance(value, plain) else str(value) for name, value in about.items()}


def _ended(job: Job, phases: int) -> float | None:
    """Seconds from the last phase to the end; None where it did not end in time."""
    while sum(line.startswith("CALLS ") for line in job.lines()) < phases:
        job.must_run()
        time.sleep(0.05)
    began = time.monotonic()
    with suppress(KitError):
        job.wait("DONE", ENDS)
        return round(time.monotonic() - began, 2)
    return None


def _beside_events(
    report: Report, what: str, calls: Mapping[str, Sequence[Sequence[float]]], timed: Sequence[Any]
) -> None:
    rows, wrong, sample = [], 0, []
    for phase, made in calls.items():
        right, off = 0, []
        for size, before, after, seconds in made:
            found = [one for one in timed if before <= one.enqueued <= after and one.size_bytes == size]
            for one in found:
                off.append(one.seconds - seconds)
                right += abs(one.seconds - seconds) <= FACTOR * seconds + LAUNCH
                sample.append(
                    [phase, size, before, after, seconds, one.enqueued, one.started, one.stopped, one.seconds]
                )
        wrong += len(off) - right
        rows.append([phase, len(made), len(off), right, len(off) - right, 1e6 * median(off) if off else None])
    report.table(
        f"{what}: the tap beside CUDA events",
        ["phase", "calls", "timed", "right", "wrong", "median us off"],
        rows,
    )
    report.note(**{f"times_{what}": sample})
    report.check(
        f"{what}: times of the tap are right, or there are none",
        ok=bool(rows) and not wrong,
        told=f"{wrong} wrong",
    )


def _cost(report: Report, taps: Taps, pairs: int) -> None:
    """Compare jobs without the tap, with one that counts, and with one that times every call."""
    counted = {"WIREWATCH_TAP_ON_MS": "0"}
    report.note(cost_counted=cost(report, taps, pairs, counted, "step, ms: counted"))
    for shape in JOBS:
        report.attempt(f"cost of {shape}, timed", partial(_cost_timed, report, taps, pairs, shape))


def _cost_timed(report: Report, taps: Taps, pairs: int, shape: str) -> None:
    found = cost(report, taps, pairs, {**UNMEASURED, **ALWAYS}, f"step, ms: {shape}, timed", (shape,))
    rings = [_told(one) for one in taps.poll()]
    report.note(**{f"cost_{shape}_timed": found, f"cost_{shape}_rings": rings})


def _ras(address: str) -> dict[str, str]:
    """Return the answer of one address as it is."""
    host, port = re.sub(r"[\[\]]", "", address.rsplit(":", 1)[0]), int(address.rsplit(":", 1)[1])
    text = b""
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.sendall(b"CLIENT PROTOCOL 2\nSET FORMAT json\nSTATUS\n")
            while more := connection.recv(1 << 16):
                text += more
    except OSError as error:
        return {"address": address, "error": str(error)}
    return {"address": address, "answer": text.decode("utf-8", "replace")}
