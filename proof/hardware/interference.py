"""interference: does a job's step take longer while the node is watched?"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proof.hardware.daemon import DEFAULTS, Daemon
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, quantile

SETTLE = 15.0
"""Seconds of work before the first window: clocks and temperatures have to find their level."""
AFTER_STOP = 1.0
SLOWDOWN = 0.005

Step = tuple[float, float]
"""When it ended (monotonic seconds) and how long it took (milliseconds)."""

OFTEN = ("gpu", "nvlink")
"""Collectors that poll within a window at default intervals; they cost most."""


@dataclass
class Window:
    """A stretch of the job with the agent on or off; the agent was started `start` seconds before `begin`."""

    pair: int
    agent: bool
    begin: float = 0.0
    end: float = 0.0
    start: float = 0.0
    polls: int = 0


def run(report: Report, options: argparse.Namespace) -> None:
    windows: list[Window] = []
    with Job("steps") as job:
        report.note(gpus=int(job.wait("READY", 240)))
        time.sleep(min(SETTLE, options.window))
        try:
            _all_windows(job, windows, options.pairs, options.window)
        except KitError as error:
            report.check("all windows could be measured", ok=False, told=str(error))
        job.stop()
        steps = parse(job.lines())
    pairs = len(windows) // 2
    if pairs:
        _judge(report, windows[: 2 * pairs], steps, pairs)


def _all_windows(job: Job, windows: list[Window], pairs: int, seconds: float) -> None:
    """Fill `windows` as they are measured, so that those before a failure still count."""
    for pair in range(pairs):
        # Every other pair begins with the agent on, so that a slow drift favours neither.
        for agent in (False, True) if pair % 2 == 0 else (True, False):
            window = Window(pair, agent)
            _measure(window, seconds)
            job.must_run()
            windows.append(window)


def parse(lines: Sequence[str]) -> list[Step]:
    """The steps that a job has printed."""
    told = (line.split(" ") for line in lines)
    return [(float(words[1]), float(words[2])) for words in told if words[0] == "STEP" and len(words) == 3]


def _measure(window: Window, seconds: float) -> None:
    if not window.agent:
        window.begin = time.monotonic()
        time.sleep(seconds)
        window.end = time.monotonic()
        return
    with Daemon(DEFAULTS) as daemon:
        window.start = daemon.ready_after
        window.begin = time.monotonic()
        began = time.time()
        time.sleep(seconds)
        window.end = time.monotonic()
        # Asked after the window, so that it holds the daemon's own work and nothing of ours.
        scrape = daemon.scrape()
        window.polls = sum(scrape.polled(name) > began for name in OFTEN)
    time.sleep(AFTER_STOP)


def _within(steps: Sequence[Step], begin: float, end: float) -> list[float]:
    """Milliseconds of the steps that lie wholly inside."""
    return [took for ended, took in steps if ended - took / 1e3 >= begin and ended <= end]


def _judge(report: Report, windows: Sequence[Window], steps: Sequence[Step], pairs: int) -> None:
    results: list[dict[str, Any]] = []
    for window in windows:
        took = _within(steps, window.begin, window.end)
        if len(took) < 10:
            raise KitError(f"only {len(took)} steps in a window of {window.end - window.begin:.0f} s")
        starting = _within(steps, window.begin - window.start, window.begin) if window.agent else []
        results.append(
            {
                "pair": window.pair,
                "agent": "on" if window.agent else "off",
                "steps": len(took),
                "median": statistics.median(took),
                "mean": statistics.fmean(took),
                "p99": quantile(took, 0.99),
                "max": max(took),
                "polls": window.polls,
                "while the agent starts": statistics.median(starting) if starting else None,
                "milliseconds": took,
            }
        )
    shown = [key for key in results[0] if key != "milliseconds"]
    report.table("step times, ms", shown, [[r[key] for key in shown] for r in results])
    report.note(windows=results)
    polled = all(w.polls == len(OFTEN) for w in windows if w.agent)
    report.check("every collector polled in each window with the agent on", ok=polled)
    _limits(report, results, pairs)


def _limits(report: Report, results: Sequence[dict[str, Any]], pairs: int) -> None:
    def ratio(pair: int, what: str) -> float:
        found = {r["agent"]: float(r[what]) for r in results if r["pair"] == pair}
        return found["on"] / found["off"] - 1

    rows = [[pair, *(100 * ratio(pair, what) for what in ("median", "mean", "p99"))] for pair in range(pairs)]
    report.table("slower with the agent on, %", ["pair", "median", "mean", "p99"], rows)
    typical = statistics.median(ratio(pair, "median") for pair in range(pairs))
    report.note(slowdown=typical)
    told = f"{100 * typical:+.3f} % over {pairs} pairs"
    report.check(f"median step slower by <= {100 * SLOWDOWN:g} %", ok=typical <= SLOWDOWN, told=told)
