"""sweep: a whole sweep of these GPUs, which a signal and a job end on its way, beside nccl-tests.

Two sweeps, by the command: what NCCL chooses up to 8 GiB, and Ring and Tree with each protocol up to 256 MiB,
both one by one and as CUDA graphs. Some seven minutes of two GPUs; --trials for other repeats than three.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proof.hardware.comparing import compare, farthest, percent
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, end_of
from proof.hardware.nccltests import NcclTests
from proof.hardware.preemption import SIGKILL_WITHIN, Comer, Ended, trial
from proof.hardware.probing import Probing, probing
from wirewatch.busbw.formulas import busbw
from wirewatch.core.probe import ALL_REDUCE, MIB
from wirewatch_lab.study.curve import AUTO, Study
from wirewatch_lab.study.export import read_study
from wirewatch_lab.study.records import NAME, keys, read_records

SECONDS = 420.0
"""Of all of it."""
REPEATS = 3
LEAST = 128 * MIB
"""Bytes from which on nccl-tests must show the same. It goes through its whole buffer of 8 GiB run by run,
where we send the same bytes again: what fits into a GPU's cache, 60 MB, is another measurement there."""
WITHIN = 0.02
LAUNCHES = ("--launch", "eager,graph")
CHOSEN = ("--size", "8:8G", *LAUNCHES)
FORCED = ("--algorithm", "Ring,Tree", "--protocol", "Simple,LL,LL128", "--size", "16:256M:4", *LAUNCHES)
STOPPED, GAVE_WAY = 70, 3
ORACLE = ("-b", "8", "-e", "8G", "-f", "2", "-w", "5", "-n", "20")


@dataclass
class Sweeping:
    """One sweep by the command, in a folder of the report's; `end`: when all is over, monotonic seconds."""

    here: Probing
    folder: Path
    state: str
    end: float
    statuses: list[int] = field(default_factory=list)

    def run(self, *arguments: str) -> int:
        """To its end."""
        with self.running(*arguments) as process:
            return self.wait(process)

    @contextmanager
    def running(self, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "wirewatch_lab", "sweep", *arguments], stdout=log, stderr=log,
                env={**os.environ, "STATE_DIRECTORY": self.state},
            )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def wait(self, process: "subprocess.Popen[bytes]") -> int:
        """Its exit status; raises KitError where the time of the part is over."""
        try:
            status = process.wait(max(1.0, self.end - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise KitError(f"{self.folder.name}: not done within {SECONDS:g} s; {self.measured()}") from error
        self.statuses.append(status)
        return status

    def until(self, process: "subprocess.Popen[bytes]", count: int) -> None:
        """Wait for so many measurements; raises KitError when it ends before."""
        while self.measured() < count:
            if process.poll() is not None or time.monotonic() > self.end:
                raise KitError(f"{self.folder.name}: {self.measured()} measurements; {end_of(self._log)}")
            time.sleep(0.02)

    def measured(self) -> int:
        return len(self.lines())

    def lines(self) -> list[tuple[int, int, int]]:
        """What the file holds, in its order."""
        place = self.folder / NAME
        text = place.read_text("utf-8") if place.exists() else ""
        rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()[1:]]
        return [(r["curve"], r["repeat"], r["size_bytes"]) for r in rows if r["line"] == "measured"]

    @property
    def _log(self) -> Path:
        return self.folder.with_suffix(".log")


def run(report: Report, options: argparse.Namespace) -> None:
    # It is ignored by what a script starts in its background, and by what that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end = time.monotonic() + SECONDS
    repeats = ("--repeats", str(options.trials or REPEATS), "--seed", "1")
    with probing(report) as here, tempfile.TemporaryDirectory(prefix="wirewatch-kit-") as state:
        oracle = NcclTests(options.nccl_tests, len(here.gpus))
        report.note(gpus=[gpu.uuid for gpu in here.gpus], nccl_tests=oracle.ran)
        theirs: dict[int, list[float]] = {}
        chosen, forced = (Sweeping(here, report.out / name, state, end) for name in ("chosen", "forced"))
        report.attempt("nccl-tests", lambda: _ask(oracle, theirs))
        report.attempt("a sweep that a signal ends", lambda: _interrupted(chosen, repeats))
        report.attempt("nccl-tests", lambda: _ask(oracle, theirs))
        report.attempt("a job that comes", lambda: _job(chosen))
        report.attempt("its end", lambda: _complete(chosen))
        report.attempt("nccl-tests", lambda: _ask(oracle, theirs))
        report.attempt("beside nccl-tests", lambda: _beside(report, chosen, theirs))
        report.attempt("algorithms and protocols", lambda: _forced(forced, repeats))


def _ask(oracle: NcclTests, into: dict[int, list[float]]) -> None:
    for row in oracle.run(ALL_REDUCE, *ORACLE).rows:
        into.setdefault(row.size_bytes, []).append(row.in_place.busbw)


def _interrupted(one: Sweeping, repeats: Sequence[str]) -> None:
    """SIGINT in the middle of a worker's work."""
    with one.running("--out", str(one.folder), *CHOSEN, *repeats) as process:
        one.until(process, 40)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        status = one.wait(process)
        took = time.monotonic() - began
    told = f"status {status} after {took:.2f} s, {one.measured()} measurements"
    one.here.report.check("Ctrl-C ends it", ok=status == STOPPED, told=told)


def _job(one: Sweeping) -> None:
    """A process that makes a context on a GPU while a worker measures."""
    report, here = one.here.report, one.here
    before = one.lines()
    with Job("observer") as observer, Job("foreign", "0") as job:
        observer.wait("READY", 60)
        pid = int(job.wait("READY", 60))
        with one.running("--resume", str(one.folder)) as process:
            one.until(process, len(before) + 40)
            observer.send(json.dumps({"trial": 0, "worker": here.pid(), "foreign": pid}))
            observer.wait("UP0", 20)
            job.send("go")
            up, ready, _ = map(float, job.wait("UP", 20).split(" "))
            status = one.wait(process)
        seen = json.loads(observer.wait("SEEN0", 60))
    ended = Ended("preempted", str(pid), document=False)
    made = trial(0, Comer(pid, 0, 0.0, up, ready), ended, seen, here.used())
    report.note(job=seen)
    told = f"status {status}, SIGKILL {1e3 * made.killed:.1f} ms after NVML showed the job"
    good = status == GAVE_WAY and made.killed <= SIGKILL_WITHIN
    report.check(f"a job has its GPU within {SIGKILL_WITHIN:g} s", ok=good, told=told)
    kept = one.lines()[: len(before)] == before
    report.check("what was measured before is as it was", ok=kept, told=f"{len(before)} measurements")


def _complete(one: Sweeping) -> None:
    status = one.run("--resume", str(one.folder))
    found = Counter(one.lines())
    due = set(keys(read_records(one.folder).header))
    told = f"status {status}: {len(found)} of {len(due)}, {sum(found.values()) - len(found)} twice"
    good = status == 0 and set(found) == due and max(found.values()) == 1
    one.here.report.check("resumed twice, it has all of it once", ok=good, told=told)
    _judge(one, read_study(one.folder))


def _forced(one: Sweeping, repeats: Sequence[str]) -> None:
    status = one.run("--out", str(one.folder), *FORCED, *repeats)
    study = read_study(one.folder)
    one.here.report.check("all algorithms and protocols are swept", ok=status == 0, told=f"status {status}")
    _judge(one, study)
    tree = [line for line in study.not_offered if "all_gather with Tree" in line]
    one.here.report.check(
        "Tree of all_gather is not offered", ok=bool(tree), told="; ".join(study.not_offered)
    )
    rows = [
        [c.configuration.algorithm, c.configuration.protocol, c.configuration.launch, *_ends(study, place)]
        for place, c in enumerate(study.curves) if c.op == ALL_REDUCE
    ]  # fmt: skip
    title = "all_reduce: us at the smallest size, GB/s at the largest"
    one.here.report.table(title, ["algorithm", "protocol", "launch", "us", "GB/s"], rows)


def _ends(study: Study, place: int) -> tuple[float, float]:
    """Microseconds of the smallest size, GB/s of the largest; medians over repeats."""
    curve = study.curves[place]
    largest = _busbw(study, place)[curve.points[-1].size_bytes]
    return 1e6 * _middle(curve.points[0].seconds), _middle(largest) / 1e9


def _judge(one: Sweeping, study: Study) -> None:
    """What must hold of every sweep here."""
    report, name = one.here.report, one.folder.name
    wrong = sum(point.wrong or 0 for curve in study.curves for point in curve.points)
    report.check(f"{name}: every value is right", ok=wrong == 0, told=f"{wrong} elements wrong")
    report.check(f"{name}: without problems", ok=not study.problems, told="; ".join(study.problems[:3]))
    unsure = [c for c in study.curves if c.configuration.algorithm != AUTO for p in c.points if not p.ran]
    report.check(f"{name}: NCCL's log has what ran", ok=not unsure, told=f"{len(unsure)} points without")
    report.note(**{f"{name}_environment": study.environment, f"{name}_not_offered": study.not_offered})
    files = sorted(path.name for path in one.folder.iterdir())
    report.check(
        f"{name}: results are written", ok={"sweep.csv", "sweep.json"} <= set(files), told=str(files)
    )


def _beside(report: Report, one: Sweeping, theirs: dict[int, list[float]]) -> None:
    """Our all_reduce, one by one and in place, beside nccl-tests' of before, between and after."""
    study = read_study(one.folder)
    (place,) = [
        n for n, c in enumerate(study.curves) if c.op == ALL_REDUCE and c.configuration.launch == "eager"
    ]
    compared = compare(theirs, _busbw(study, place))
    rows = [
        [size, found.theirs / 1e9, found.ours / 1e9, percent(found.off), f"{100 * found.spread:.2f} %"]
        for size, found in compared.items()
    ]
    report.table("all_reduce, GB/s", ["bytes", "nccl-tests", "sweep", "off", "spread"], rows)
    worst = farthest({size: found for size, found in compared.items() if size >= LEAST})
    name = f"within {100 * WITHIN:g} % of nccl-tests from {LEAST // MIB} MiB on"
    told = "nothing to compare" if worst is None else f"{worst[0]} B: {percent(worst[1])}"
    report.check(name, ok=worst is not None and abs(worst[1]) <= WITHIN, told=told)


def _busbw(study: Study, place: int) -> dict[int, list[float]]:
    curve = study.curves[place]
    return {
        point.size_bytes: [
            busbw(curve.op, curve.configuration.ranks, point.size_bytes, seconds) for seconds in point.seconds
        ]
        for point in curve.points
    }


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
