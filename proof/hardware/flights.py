"""flights: dumps of PyTorch's Flight Recorder that jobs of NCCL leave, and whom `wirewatch parse` names.

Some three minutes of two GPUs or more; the dumps stay in DIR/flights. `--engine gloo` tries it on processors.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from proof.hardware.jobs.flight import ODD, SETTLES, gpus
from proof.hardware.kit import Report
from wirewatch_lab.study.flightdumps import RankDump, read_dump
from wirewatch_lab.study.flightjudge import FlightDocument, FlightJudge

WITHIN = 90.0
CASES = {
    "healthy": (), "missing": ("missing", ODD), "operation": ("mismatch", ODD), "size": ("mismatch", ODD),
    "type": ("mismatch", ODD), "send": ("message", ODD), "timeout": ("missing", ODD),
}  # fmt: skip
"""The kind of fault and the rank that should be named, if any."""
NOT_BY_GLOO = frozenset({"size", "send", "timeout"})
"""Gloo ends a job of different sizes, and records neither messages nor time-outs."""


def run(report: Report, options: argparse.Namespace) -> None:
    engine = "gloo" if options.engine == "gloo" else "nccl"
    ranks = 4 if engine == "gloo" else gpus()
    for case in CASES:
        if engine == "gloo" and case in NOT_BY_GLOO:
            continue
        report.attempt(case, partial(_case, report, case, ranks, engine))


def _case(report: Report, case: str, ranks: int, engine: str) -> None:
    folder = report.out / "flights" / case
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "proof.hardware.jobs.flight", case, str(folder), str(ranks), engine]
    with (folder / "log").open("w") as log:
        job = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        deadline = time.monotonic() + WITHIN
        while job.poll() is None and len(_files(folder)) < ranks and time.monotonic() < deadline:
            time.sleep(0.5)
        # The last file is written.
        time.sleep(2 * SETTLES)
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    dumps = [_dump(path) for path in _files(folder)]
    document = FlightJudge(dumps).document(())
    report.note(**{case: document.why, f"{case} format": sorted({dump.format for dump in dumps})})
    named = [(one.kind, one.ranks) for one in document.faults[:1]]
    wanted = [(CASES[case][0], _named(case, engine))] if CASES[case] else []
    told = f"{document.health}: {document.why}" if dumps else (folder / "log").read_text()[-500:]
    report.check(
        f"{case}: named as it is", ok=bool(dumps) and named == wanted and _sure(document, engine), told=told
    )


def _named(case: str, engine: str) -> list[int]:
    """The ranks that should be named; gloo's dumps do not show that others are more than half of a group."""
    return [] if engine == "gloo" and CASES[case][0] == "mismatch" else [ODD]


def _sure(document: FlightDocument, engine: str) -> bool:
    """Tell whether a job without a fault is OK; gloo's dumps cannot show that."""
    return bool(document.faults) or document.health == ("unknown" if engine == "gloo" else "ok")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("comm_lib_trace_rank_*"))


def _dump(path: Path) -> RankDump:
    return read_dump(path.read_bytes(), int(path.name.rpartition("_")[2]), "", path.name)
