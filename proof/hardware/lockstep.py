"""lockstep: the GPU of a running job that never waits is named; healthy jobs of every shape name none.

`--shapes uneven`: beside these, a GPU with more work is said to have that; 90 s of several GPUs.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

from proof.hardware.daemon import DEFAULTS, NO_PROBE, Daemon
from proof.hardware.interference import Step, parse
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report

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
PHASE = 4.0
"""Seconds by which every second trial begins later: a GPU does not become slow just as a window begins."""
HOPELESS = 3
"""Wrong trials in a row, after which more would show nothing new."""
LOGGER = "wirewatch.jobs.lockstep"
BEGUN = "straggler hint, no verdict: "
UNEVEN = "uneven"
"""Asked for by name alone: it is no shape of its own, and nobody is slow in it."""
CLOSELY = (
    f'[listen]\nsocket = ""\n{NO_PROBE}[collectors.nvlink]\nenabled = false\n'
    "[collectors.lockstep]\nenabled = true\ninterval = 3.0\ndeadline = 3.0\n[policy.lockstep]\nsettle = 2.0\n"
)
"""Windows of 3 s: nothing else reads the counters of NVLink here, so none has to be kept apart from."""
MOST = 80.0
"""Seconds after which no further GPU is given more work."""
ABOUT = (0.05, 0.20)
"""What 10 % more products may be of the time of all work of a step: some of it is none of these."""


@dataclass
class Trial:
    """`after`: seconds until a GPU was named, None for never; `cleared`: until none was any more.

    `told`: the daemon's own words.
    """

    shape: str
    gpu: int
    named: list[str]
    after: float | None
    cleared: float | None
    told: str = ""

    @property
    def right(self) -> bool:
        return self.named == [str(self.gpu)]


def run(report: Report, options: argparse.Namespace) -> None:
    count = TRIALS if options.trials is None else options.trials
    shapes = options.shapes or HEALTHY
    if UNEVEN in shapes:
        report.attempt("uneven work", lambda: _uneven(report))
        shapes = [shape for shape in shapes if shape != UNEVEN]
        if not shapes:
            return
    trials: list[Trial] = []
    with Daemon(WATCHING, verbose=True) as daemon:
        watch = Watch(report, daemon, trials)
        for shape, share in shares(shapes, count).items():
            if (share or options.each) and not hopeless(trials):
                report.attempt(shape, partial(watch.job, shape, options.each, share))
                report.note(log=daemon.lines(LOGGER))
    if count:
        judge(report, trials, count)
    if options.each and SLOW_IN[0] in shapes:
        report.attempt("step times", lambda: _steps(report))


def shares(shapes: Sequence[str], count: int) -> dict[str, int]:
    """How many of so many trials each job has; none where its GPUs do not do the same."""
    slow = [shape for shape in shapes if shape in SLOW_IN]
    given = {shape: len(range(number, count, len(slow))) for number, shape in enumerate(slow)}
    return {shape: given.get(shape, 0) for shape in shapes}


def hopeless(trials: Sequence[Trial]) -> bool:
    return len(trials) >= HOPELESS and not any(trial.right for trial in trials[-HOPELESS:])


def judge(report: Report, trials: Sequence[Trial], count: int) -> None:
    right = sum(trial.right for trial in trials)
    limit = count if count < TRIALS else NAMED
    report.check(
        f"the right GPU and no other within {WITHIN:g} s", ok=len(trials) == count and right >= limit,
        told=f"{right} of {len(trials)}",
    )  # fmt: skip


class Watch:
    """A daemon that watches jobs."""

    def __init__(self, report: Report, daemon: Daemon, trials: list[Trial]) -> None:
        self._report, self._daemon, self._trials = report, daemon, trials
        self._windows = set[float]()

    def job(self, shape: str, seconds: float, count: int) -> None:
        """A job that is healthy for so long, and then so many times has a slow GPU."""
        self._windows = set()
        with Job("shapes", shape) as job:
            gpus = len(job.wait("READY", READY).split())
            if seconds:
                self._healthy(job, shape, seconds)
            for number in range(count):
                self._learnt()
                time.sleep(PHASE * (number % 2))
                self._add(self._trial(job, shape, (len(self._trials) + number // gpus) % gpus))
                if hopeless(self._trials):
                    raise KitError(f"{HOPELESS} wrong trials in a row")

    def _add(self, trial: Trial) -> None:
        self._trials.append(trial)
        self._report.data.setdefault("trials", []).append(asdict(trial))
        self._report.save()
        self._report.progress(json.dumps(asdict(trial)))

    def _hinted(self) -> list[str]:
        """Indexes of the GPUs that are named now."""
        scrape = self._daemon.scrape()
        if scrape.find("gpu_sm_busy_ratio"):
            self._windows.add(scrape.polled("lockstep"))
        return [told["gpu"] for told, value in scrape.find("straggler_hint") if value == 1]

    def _learnt(self) -> None:
        """Wait until there were enough windows of the running job to be its reference."""
        end = time.monotonic() + SEEN_WITHIN
        while len(self._windows) < REFERENCES and time.monotonic() < end:
            self._hinted()
            time.sleep(LOOK)

    def _trial(self, job: Job, shape: str, gpu: int) -> Trial:
        job.send(f"slow {gpu} {PERCENT} same")
        began = time.monotonic()
        named: list[str] = []
        while not named and time.monotonic() - began < WITHIN:
            time.sleep(LOOK)
            named = self._hinted()
        after = time.monotonic() - began if named else None
        told = self._daemon.lines(BEGUN)[-1:] if named else self._daemon.lines(LOGGER)[-1:]
        job.send("healthy")
        began = time.monotonic()
        while self._hinted() and time.monotonic() - began < CLEARED_WITHIN:
            time.sleep(LOOK)
        cleared = None if self._hinted() else time.monotonic() - began
        job.must_run()
        return Trial(shape, gpu, named, after, cleared, " ".join(told).rpartition(f"{LOGGER}: ")[2])

    def _healthy(self, job: Job, shape: str, seconds: float) -> None:
        named: list[str] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(LOOK)
            named += self._hinted()
        job.must_run()
        told = f"{len(self._windows)} windows in {seconds:g} s, named {sorted(set(named))}"
        ok = not named and len(self._windows) > 0
        self._report.check(f"healthy {shape}: nobody is named", ok=ok, told=told)


@dataclass
class UnevenTrial:
    """A GPU that was given 10 % more work: who was noted and how much, after how many seconds.

    `hints`: GPUs that were called slow meanwhile. `slower`: by which share of a step the job's became
    longer. `cleared`: seconds until nobody was noted any more; None for never.
    """

    gpu: int
    noted: dict[str, float]
    after: float | None
    hints: list[str]
    slower: float | None
    cleared: float | None
    told: str = ""


def judge_uneven(report: Report, trials: Sequence[UnevenTrial]) -> None:
    """Every trial notes its GPU and no other, with about as much as it was given, and calls none slow."""
    report.check("a GPU was given more work", ok=bool(trials), told=f"{len(trials)} times")
    for one in trials:
        low, high = ABOUT
        ok = list(one.noted) == [str(one.gpu)] and low <= one.noted[str(one.gpu)] <= high
        told = f"{one.noted} after {one.after} s; step {one.slower} longer; {one.told}"
        report.check(f"GPU {one.gpu}: its work is noted, and how much more it is", ok=ok, told=told)
        report.check(f"GPU {one.gpu}: nobody is called slow", ok=not one.hints, told=str(one.hints))
        report.check(
            f"GPU {one.gpu}: the note ends with it", ok=one.cleared is not None, told=str(one.cleared)
        )


def _uneven(report: Report) -> None:
    began = time.monotonic()
    trials: list[UnevenTrial] = []
    with Daemon(CLOSELY, verbose=True) as daemon, Job("shapes", SLOW_IN[0]) as job:
        gpus = len(job.wait("READY", READY).split())
        windows = set[float]()
        end = time.monotonic() + SEEN_WITHIN
        while len(windows) < REFERENCES and time.monotonic() < end:
            scrape = daemon.scrape()
            windows |= {scrape.polled("lockstep")} if scrape.find("gpu_sm_busy_ratio") else set()
            time.sleep(LOOK)
        report.check("an even job is noted by nobody", ok=bool(windows) and not _noted(daemon))
        for gpu in reversed(range(gpus)):
            if not trials or time.monotonic() - began < MOST - 2 * (trials[-1].after or MOST):
                trials.append(_uneven_trial(daemon, job, gpu))
                report.progress(json.dumps(asdict(trials[-1])))
        report.note(uneven=[asdict(trial) for trial in trials], log=daemon.lines(LOGGER))
    judge_uneven(report, trials)


def _noted(daemon: Daemon) -> dict[str, float]:
    """By how much the work of each GPU that is noted now is more."""
    found = daemon.scrape().find("job_uneven_work_ratio")
    return {told["gpu"]: value for told, value in found if value > 0}


def _uneven_trial(daemon: Daemon, job: Job, gpu: int) -> UnevenTrial:
    before = [took for _, took in parse(job.lines())[-50:]]
    job.send(f"slow {gpu} {PERCENT} more")
    began = time.monotonic()
    noted: dict[str, float] = {}
    hints: list[str] = []
    while not noted and time.monotonic() - began < WITHIN:
        time.sleep(LOOK)
        hints += [told["gpu"] for told, value in daemon.scrape().find("straggler_hint") if value == 1]
        noted = _noted(daemon)
    after = time.monotonic() - began if noted else None
    told = " ".join(daemon.lines("uneven work, no verdict: ")[-1:])
    now = [took for _, took in parse(job.lines())[-50:]]
    job.send("healthy")
    began = time.monotonic()
    while (left := _noted(daemon)) and time.monotonic() - began < CLEARED_WITHIN:
        time.sleep(LOOK)
    job.must_run()
    slower = 1 - statistics.median(before) / statistics.median(now) if before and now else None
    cleared = None if left else time.monotonic() - began
    return UnevenTrial(gpu, noted, after, hints, slower, cleared, told.rpartition(f"{LOGGER}: ")[2])


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
