"""jobrecording: one recording of real jobs, and what the daemon says of them meanwhile.

A node at rest, a job whose wire is slow (P2P off), a healthy one, the same with a late rank, healthy again,
and with one rank stopped. `wirewatch record --ras` runs throughout; each moment is noted with the phase that
it belongs to. Some three minutes of two GPUs, as an archive in the results.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path

from proof.hardware.daemon import Daemon
from proof.hardware.hangs import CONFIG, HUNG
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, end_of
from proof.hardware.record import leaks, pack, product, secrets
from proof.hardware.runningjobs import ACCUSED, LOOK, look
from proof.hardware.smi import uuids
from proof.hardware.tap import READY, TMPFS, WIRES, Taps
from wirewatch.hw.recording import MANIFEST
from wirewatch.jobs.explain.evidence import Wall

EVERY = 3.0
"""Seconds between two moments."""
LATE, STOPPED = 1, 1
"""Ranks that are slowed and stopped."""
SHAPE = "data_parallel"
Watched = Callable[["Phase", float], None]
"""Waits so many seconds in a phase, and keeps what the daemon names meanwhile."""
ENDS_WITHIN = 30.0


@dataclass
class Phase:
    """What the node did from a Unix time on; `seen`: walls and rules that the daemon named in it.

    `expected` of them must be named before the phase ends, empty for none at all; None: it is not judged.
    """

    name: str
    note: str
    expected: str | None
    began: float = 0.0
    seen: dict[str, float] = field(default_factory=dict)
    sentence: str = ""

    @property
    def right(self) -> bool:
        return set(self.seen) == {self.expected} if self.expected else not self.seen


def run(report: Report, options: argparse.Namespace) -> None:
    names, gpus = secrets(), len(uuids())
    folder = report.out / f"{product()}x{gpus}-jobs"
    phases: list[Phase] = []
    with tempfile.TemporaryDirectory(prefix="wirewatch-record-", dir=TMPFS) as place:
        taps = Taps(Path(place), follow=False)
        config = f'{CONFIG}[jobs]\nrings = "{taps.rings}"\n'
        file = Path(place) / "wirewatch.toml"
        file.write_text(config, "utf-8")
        with Daemon(config) as daemon, recording(folder, file) as end:
            watched = partial(_watched, report, daemon, phases)
            watched(Phase("idle", "no job", ""), 6.0)
            for shape in options.shapes or ():
                report.attempt(f"a late rank of {shape}", partial(_late, taps, watched, shape))
            if not options.shapes:
                report.attempt("the slow wire", partial(_slow_wire, taps, watched))
                report.attempt("the late and the stopped rank", partial(_ranks, taps, watched, end))
    annotate(folder, phases)
    _judge(report, folder, phases, names)


def _slow_wire(taps: Taps, watched: Watched) -> None:
    with Job("shapes", SHAPE, settings=taps.settings(WIRES["P2P off"])) as job:
        watched(Phase("starting", "a job starts", None), 0.0)
        job.wait("READY", READY)
        watched(Phase("slow wire", "a job with NCCL_P2P_DISABLE=1", Wall.SLOW_WIRE.value), 30.0)
        job.must_run()


def _late(taps: Taps, watched: Watched, shape: str) -> None:
    with Job("shapes", shape, settings=taps.settings()) as job:
        watched(Phase("starting", f"a job starts: {shape}", None), 0.0)
        job.wait("READY", READY)
        watched(Phase(f"healthy {shape}", "healthy", ""), 15.0)
        job.send(f"slow {LATE} 10 same")
        watched(Phase(f"late {shape}", f"rank {LATE} 10 % slower", Wall.LATE_RANK.value), 36.0)
        job.must_run()


def _ranks(taps: Taps, watched: Watched, end: Callable[[], None]) -> None:
    """`end` ends the recording, which must not show the stopped rank go on."""
    with Job("shapes", SHAPE, settings=taps.settings()) as job:
        watched(Phase("starting", "the job has ended, another starts", None), 0.0)
        pids = [int(word) for word in job.wait("READY", READY).split()]
        watched(Phase("healthy", "a healthy data-parallel job", ""), 24.0)
        job.send(f"slow {LATE} 10 same")
        watched(Phase("late rank", f"the same job, rank {LATE} 10 % slower", Wall.LATE_RANK.value), 30.0)
        job.send("healthy")
        watched(Phase("recovered", "the same job, healthy again", ""), 12.0)
        os.kill(pids[STOPPED], signal.SIGSTOP)
        try:
            rule = HUNG["stop"][0]
            watched(Phase("stopped rank", f"the same job, rank {STOPPED} stopped by a signal", rule), 36.0)
            end()
        finally:
            os.kill(pids[STOPPED], signal.SIGCONT)


def _watched(report: Report, daemon: Daemon, phases: list[Phase], phase: Phase, seconds: float) -> None:
    """Look at the daemon for so long and keep what it names, with the seconds until then.

    What it still names of the phase before does not count until it is gone.
    """
    phase.began, began = time.time(), time.monotonic()
    phases.append(phase)
    lingering = set(_named(daemon))
    while (passed := time.monotonic() - began) < seconds:
        named = _named(daemon)
        lingering &= named.keys()
        for name in named.keys() - lingering - phase.seen.keys():
            phase.seen[name] = round(passed, 1)
            phase.sentence = phase.sentence or named[name]
        time.sleep(LOOK)
    report.note(phases=[asdict(one) for one in phases])
    report.progress(json.dumps(asdict(phase)))


def _named(daemon: Daemon) -> dict[str, str]:
    """Walls of jobs that accuse something, and findings about jobs that hang, with a sentence each."""
    found = {
        one["wall"]: one["sentence"] for one in look(daemon) if one["wall"] in ACCUSED - {Wall.HANG.value}
    }
    hangs = json.loads(daemon.get("/api/v1/findings").body)["findings"]
    return found | {one["rule"]: one["evidence"] for one in hangs if one["rule"].startswith("hangs.")}


@contextmanager
def recording(folder: Path, config: Path) -> Iterator[Callable[[], None]]:
    """`wirewatch record` until the end of the block, or until the function that it gets is called.

    Raises:
        KitError: it ended before.
    """
    if folder.exists():
        shutil.rmtree(folder)
    command = [sys.executable, "-m", "wirewatch", "record", str(folder), "--config", str(config), "--ras"]
    command += ["--moments", "1000", "--every", str(EVERY)]
    log = folder.with_suffix(".log")
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield partial(_interrupt, process, log)
        finally:
            process.kill()


def _interrupt(process: subprocess.Popen[bytes], log: Path) -> None:
    """End a recording as Ctrl-C does; raises KitError when it has ended by itself or does not end."""
    if process.poll() is not None:
        raise KitError(f"record ended by itself: {end_of(log)}")
    process.send_signal(signal.SIGINT)
    try:
        process.wait(ENDS_WITHIN)
    except subprocess.TimeoutExpired as late:
        raise KitError(f"record does not end: {end_of(log)}") from late


def annotate(folder: Path, phases: Sequence[Phase]) -> None:
    """Note each moment with the phase in which it was taken."""
    place = folder / MANIFEST
    manifest = json.loads(place.read_text("utf-8"))
    for moment in manifest["moments"]:
        moment["note"] = note_at(moment["at"], phases)
    place.write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")


def note_at(at: float, phases: Sequence[Phase]) -> str:
    """The note of the phase that began last before a Unix time; empty before the first."""
    begun = list(takewhile(lambda one: one.began <= at, phases))
    return begun[-1].note if begun else ""


def _judge(report: Report, folder: Path, phases: Sequence[Phase], names: Mapping[str, str]) -> None:
    for phase in (one for one in phases if one.expected is not None):
        report.check(
            f"{phase.name}: the daemon names {phase.expected or 'nothing'}",
            ok=phase.right, told=f"{phase.seen} {phase.sentence}",
        )  # fmt: skip
    left = leaks(folder, dict(names))
    report.check("no name of this machine is in the recording", ok=not left, told="; ".join(left[:5]))
    pack(folder)
