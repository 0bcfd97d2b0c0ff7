"""lockstep: the GPU of a running job that never waits is named; healthy jobs of every shape name nobody."""

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass

from tests.hardware.daemon import DEFAULTS, Daemon
from tests.hardware.interference import Step, parse
from tests.hardware.job import Job
from tests.hardware.kit import Report

WATCHING = f"{DEFAULTS}[collectors.lockstep]\nenabled = true\n"
TRIALS, NAMED = 20, 19
"""Trials, and how many of them must name the right GPU in time."""
WITHIN = 60.0
PERCENT = 10
SLOW_IN = ("data_parallel", "tensor_parallel", "sharded", "memory_bound")
"""Shapes in which all GPUs do the same."""
HEALTHY = (
    "data_parallel", "tensor_parallel", "sharded", "memory_bound", "pipeline", "experts", "checkpoints",
    "stalls", "bursts",
)  # fmt: skip
EACH = 120.0
"""Seconds of a healthy job."""
READY = 120.0
SEEN_WITHIN = 120.0
"""Seconds until the first windows of a job, which are its reference, must be there."""
REFERENCES = 4
CLEARED_WITHIN = 60.0
PAIRS, WINDOW = 3, 20.0
LOOK = 0.5


@dataclass
class Trial:
    """`after`: seconds until somebody was named, None for never; `cleared`: until nobody was any more."""

    shape: str
    gpu: int
    named: list[str]
    after: float | None
    cleared: float | None

    @property
    def right(self) -> bool:
        return self.named == [str(self.gpu)]


def run(report: Report, options: argparse.Namespace) -> None:
    count = options.trials or TRIALS
    trials: list[Trial] = []
    with Daemon(WATCHING) as daemon:
        watch = Watch(report, daemon)
        for shape in SLOW_IN[: max(1, min(len(SLOW_IN), count))]:
            share = len(range(SLOW_IN.index(shape), count, len(SLOW_IN)))
            report.attempt(f"slow GPUs in {shape}", lambda s=shape, n=share: watch.slow(s, n, trials))  # type: ignore[misc]
        right = sum(trial.right for trial in trials)
        limit = count if count < TRIALS else NAMED
        report.check(
            f"the right GPU and no other within {WITHIN:g} s", ok=len(trials) == count and right >= limit,
            told=f"{right} of {len(trials)}",
        )  # fmt: skip
        if options.each:
            for shape in HEALTHY:
                report.attempt(f"healthy {shape}", lambda s=shape: watch.healthy(s, options.each))  # type: ignore[misc]
        report.note(log=daemon.log())
    if options.each:
        report.attempt("step times", lambda: _steps(report))


class Watch:
    """A daemon that watches jobs."""

    def __init__(self, report: Report, daemon: Daemon) -> None:
        self._report, self._daemon = report, daemon

    def hinted(self) -> list[str]:
        """Indexes of the GPUs that are named now."""
        return [told["gpu"] for told, value in self._daemon.scrape().find("straggler_hint") if value == 1]

    def _windows(self, count: int) -> None:
        """Wait until so many windows of the running job were seen."""
        end, seen = time.monotonic() + SEEN_WITHIN, set[float]()
        while len(seen) < count and time.monotonic() < end:
            scrape = self._daemon.scrape()
            if scrape.find("gpu_sm_busy_ratio"):
                seen.add(scrape.polled("lockstep"))
            time.sleep(LOOK)

    def slow(self, shape: str, count: int, trials: list[Trial]) -> None:
        with Job("shapes", shape) as job:
            gpus = len(job.wait("READY", READY).split())
            self._windows(REFERENCES)
            for number in range(count):
                trial = self._trial(job, shape, (len(trials) + number // gpus) % gpus)
                trials.append(trial)
                self._report.data.setdefault("trials", []).append(asdict(trial))
                self._report.save()
                self._report.progress(json.dumps(asdict(trial)))

    def _trial(self, job: Job, shape: str, gpu: int) -> Trial:
        job.send(f"slow {gpu} {PERCENT} same")
        began = time.monotonic()
        named: list[str] = []
        while not named and time.monotonic() - began < WITHIN:
            time.sleep(LOOK)
            named = self.hinted()
        after = time.monotonic() - began if named else None
        job.send("healthy")
        began = time.monotonic()
        while self.hinted() and time.monotonic() - began < CLEARED_WITHIN:
            time.sleep(LOOK)
        cleared = None if self.hinted() else time.monotonic() - began
        job.must_run()
        return Trial(shape, gpu, named, after, cleared)

    def healthy(self, shape: str, seconds: float) -> None:
        named: list[str] = []
        with Job("shapes", shape) as job:
            job.wait("READY", READY)
            end, windows = time.monotonic() + seconds, set[float]()
            while time.monotonic() < end:
                time.sleep(LOOK)
                named += self.hinted()
                scrape = self._daemon.scrape()
                if scrape.find("gpu_sm_busy_ratio"):
                    windows.add(scrape.polled("lockstep"))
            job.must_run()
        told = f"{len(windows)} windows in {seconds:g} s, named {sorted(set(named))}"
        self._report.check(f"healthy {shape}: nobody is named", ok=not named and len(windows) > 0, told=told)


def _steps(report: Report) -> None:
    """Medians of a job's step in turns with and without a watching daemon."""
    moments: list[tuple[bool, float, float]] = []
    with Job("shapes", SLOW_IN[0]) as job:
        job.wait("READY", READY)
        time.sleep(WINDOW / 2)
        for pair in range(PAIRS):
            turns = (False, True) if pair % 2 == 0 else (True, False)
            moments += [(watched, *_stretch(watched=watched)) for watched in turns]
        job.must_run()
        steps = parse(job.lines())
    medians = [(watched, median_between(steps, begin, end)) for watched, begin, end in moments]
    on = [value for watched, value in medians if watched]
    off = [value for watched, value in medians if not watched]
    report.table("step, ms", ["watched", "median"], [[str(w), value] for w, value in medians])
    spread, slower = max(off) - min(off), statistics.median(on) - statistics.median(off)
    told = f"{slower:+.3f} ms, of {statistics.median(off):.3f} ms with a spread of {spread:.3f} ms"
    report.check("a watched job's step is within the run-to-run spread", ok=slower <= spread, told=told)


def _stretch(*, watched: bool) -> tuple[float, float]:
    if not watched:
        begin = time.monotonic()
        time.sleep(WINDOW)
        return begin, time.monotonic()
    # It samples from the moment at which the job has been there for `settle` seconds.
    with Daemon(f"{WATCHING}[policy.lockstep]\nsettle = 1.0\n"):
        begin = time.monotonic()
        time.sleep(WINDOW)
        return begin, time.monotonic()


def median_between(steps: list[Step], begin: float, end: float) -> float:
    return statistics.median(took for ended, took in steps if ended - took / 1e3 >= begin and ended <= end)
