"""hangs: jobs that hang are told by kind and culprit, and those that only look so by nothing.

Eight scenarios with real jobs on several GPUs, some 270 s for one trial of each; `--trials` for more, and
`--shapes` for some of them. Thresholds are shortened: 10 s until RAS is asked, 4 s until the second look.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol

from proof.hardware.daemon import NO_PROBE, Daemon
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report

CONFIG = (
    f'[listen]\nsocket = ""\n{NO_PROBE}[collectors.hangs]\ninterval = 2.0\n'
    "[policy.hangs]\nafter = 10.0\nagain = 4.0\nseldom = 60.0\nunasked = 60.0\n"
)
READY = 150.0
WORK = 5.0
"""Seconds of healthy work before anything happens: two polls at least, between which bytes move."""
WITHIN = 50.0
"""Seconds in which a hang must be told: 10 until it is suspected, two looks, and what RAS takes."""
LOOK = 0.5
BEGINS = 30.0
"""Seconds from an order to its beginning."""
HUNG: Mapping[str, tuple[str, str]] = {
    "stop": ("hangs.stopped", "culprit"),
    "skip": ("hangs.asymmetric", "culprit"),
    "stuck": ("hangs.symmetric", "nobody"),
}
"""What is to be found, and whether somebody is to be named."""
HEALTHY: Mapping[str, float] = {"loader": 18.0, "checkpoint": 30.0, "decode": 18.0, "idle": 18.0, "end": 16.0}
"""Seconds each, in one job after another; a checkpoint longer, since RAS is asked about it."""
SCENARIOS = (*HUNG, *HEALTHY)
WRONG_OF = 24
"""Of so many trials one may be wrong, of fewer none."""
LOGGER = "wirewatch.jobs.hangs"


@dataclass
class HangTrial:
    """What was done, what was found and of which GPU, after so many seconds; `seen`: rules that came besides.

    `looks`: how often RAS was asked meanwhile.
    """

    scenario: str
    gpu: str
    found: str = ""
    named: str = ""
    after: float | None = None
    seen: list[str] = field(default_factory=list)
    looks: float = 0.0
    evidence: str = ""
    log: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """The kind and the culprit, or nothing at all."""
        if self.scenario in HEALTHY:
            return not self.found and not self.seen
        rule, who = HUNG[self.scenario]
        named = self.gpu if who == "culprit" else ""
        return self.found == rule and self.named == named and not self.seen


class Watching(Protocol):
    """What a daemon shows."""

    def findings(self) -> list[dict[str, Any]]: ...

    def looks(self) -> float: ...


class Watcher:
    """A running daemon's findings of hangs, and how often it has asked jobs."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def findings(self) -> list[dict[str, Any]]:
        return hangs_in(json.loads(self._daemon.get("/api/v1/findings").body))

    def looks(self) -> float:
        return self._daemon.scrape().value("job_ras_looks_total") or 0.0


def hangs_in(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The findings of the collector, of the document at /api/v1/findings.

    Raises:
        KitError: it is no such document.
    """
    found = document.get("findings")
    if not isinstance(found, list):
        raise KitError(f"not findings: {str(document)[:200]}")
    return [one for one in found if str(one.get("rule", "")).startswith("hangs.")]


def run(report: Report, options: argparse.Namespace) -> None:
    chosen = [one for one in SCENARIOS if options.shapes is None or one in options.shapes]
    if not chosen:
        raise KitError(f"--shapes: none of {', '.join(SCENARIOS)}")
    count = options.trials or 1
    trials: list[HangTrial] = []
    with Daemon(CONFIG, verbose=True) as daemon:
        kit = Kit(report, daemon, trials)
        for number in range(count):
            for scenario in (one for one in chosen if one in HUNG):
                report.attempt(f"{scenario} {number}", partial(kit.hang, scenario, number))
            if rest := [one for one in chosen if one in HEALTHY]:
                report.attempt(f"healthy {number}", partial(kit.healthy, rest))
        report.note(log=daemon.lines(LOGGER))
    judge(report, trials, chosen, count)


def judge(report: Report, trials: Sequence[HangTrial], scenarios: Sequence[str], count: int) -> None:
    """Every scenario as often as it was to be tried; of 24 one may be wrong, of fewer none."""
    report.table(
        "hangs", ["scenario", "GPU", "found", "named", "after s", "asked", "right"],
        [[t.scenario, t.gpu, t.found, t.named, t.after, t.looks, str(t.right)] for t in trials],
    )  # fmt: skip
    for scenario in scenarios:
        tried = sum(trial.scenario == scenario for trial in trials)
        report.check(f"{scenario}: tried", ok=tried == count, told=f"{tried} of {count}")
    right = sum(trial.right for trial in trials)
    wrong = [f"{t.scenario}: {t.found or 'nothing'} {t.seen}" for t in trials if not t.right]
    allowed = len(trials) // WRONG_OF
    report.check(
        "the right kind and culprit, or nothing", ok=len(trials) - right <= allowed and bool(trials),
        told=f"{right} of {len(trials)} {'; '.join(wrong)}",
    )  # fmt: skip


class Kit:
    """Trials with one daemon."""

    def __init__(self, report: Report, daemon: Daemon, trials: list[HangTrial]) -> None:
        self._report, self._daemon, self._trials = report, daemon, trials
        self._watcher = Watcher(daemon)

    def hang(self, scenario: str, number: int) -> None:
        """A job that hangs, and how long it takes until that is told."""
        with self._job() as (job, gpus):
            culprit = (number + gpus - 1) % gpus
            trial = HangTrial(scenario, str(culprit) if HUNG[scenario][1] == "culprit" else "")
            job.send(f"{scenario} {culprit}")
            job.wait("DOES", BEGINS)
            watch(self._watcher, trial, WITHIN)
            self._add(trial)

    def healthy(self, scenarios: Sequence[str]) -> None:
        """One job in which everything happens that only looks like a hang."""
        with self._job() as (job, _):
            for scenario in scenarios:
                time.sleep(WORK)
                trial = HangTrial(scenario, "")
                job.send(f"{scenario} {HEALTHY[scenario]}")
                wait_said(job, f"DOES {scenario}", BEGINS)
                watch(self._watcher, trial, HEALTHY[scenario])
                wait_said(job, f"DID {scenario}", BEGINS)
                self._add(trial)

    @contextmanager
    def _job(self) -> Iterator[tuple[Job, int]]:
        """A job that works, once nothing is found of the one before."""
        settled(self._watcher)
        with Job("hang") as job:
            gpus = len(job.wait("READY", READY).split())
            if gpus < 2:
                raise KitError("a job that hangs takes two GPUs")
            time.sleep(WORK)
            yield job, gpus

    def _add(self, trial: HangTrial) -> None:
        trial.log = self._daemon.lines(LOGGER)[-2:]
        self._trials.append(trial)
        self._report.data.setdefault("trials", []).append({**asdict(trial), "right": trial.right})
        self._report.save()
        self._report.progress(json.dumps(asdict(trial)))


def watch(watcher: Watching, trial: HangTrial, seconds: float) -> None:
    """Look until something is found that is looked for, or until the time is over."""
    began, asked = time.monotonic(), watcher.looks()
    wanted = HUNG.get(trial.scenario, ("", ""))[0]
    while time.monotonic() - began < seconds:
        for one in watcher.findings():
            if one["rule"] == wanted:
                trial.found, trial.evidence = one["rule"], one["evidence"]
                trial.named, trial.after = one["subject"].get("gpu", ""), time.monotonic() - began
            elif one["rule"] not in trial.seen:
                trial.seen.append(one["rule"])
                trial.evidence = trial.evidence or one["evidence"]
        if trial.found:
            break
        time.sleep(LOOK)
    trial.looks = watcher.looks() - asked


def settled(watcher: Watching, within: float = 20.0) -> None:
    """Wait until nothing is found any more.

    Raises:
        KitError: something still is.
    """
    end = time.monotonic() + within
    while found := watcher.findings():
        if time.monotonic() > end:
            raise KitError(f"still found when the job is gone: {found}")
        time.sleep(LOOK)


def wait_said(job: Job, line: str, within: float) -> None:
    """Wait until a job has printed this very line.

    Raises:
        KitError: it did not in time, or ended.
    """
    end = time.monotonic() + within
    while line not in [each.strip() for each in job.lines()]:
        job.must_run()
        if time.monotonic() > end:
            raise KitError(f"the job did not say {line!r} within {within:g} s: {job.errors()}")
        time.sleep(0.05)
