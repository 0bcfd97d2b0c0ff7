"""recover: the NVML process dies or hangs, and the daemon answers on, notices, and comes back."""

import argparse
import os
import signal
import time
from dataclasses import dataclass, field

from proof.hardware import processes
from proof.hardware.daemon import WIRES, Daemon, every
from proof.hardware.kit import KitError, Report
from proof.hardware.scrape import Scrape

INTERVAL = 2.0
ANSWER_WITHIN = 0.100
STOP_WITHIN = 5.0
CRASH_WITHIN = 20.0
NOTICE_WITHIN = INTERVAL + 5.0 + 1.0
"""Up to an interval until the process is asked again, the deadline of a job, and the time to kill it."""
HANG_WITHIN = 40.0


@dataclass
class Watch:
    """What was seen from the signal on; times in seconds since then, None for never."""

    scrapes: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    health: list[tuple[float, int]] = field(default_factory=list)
    noticed: float | None = None
    recovered: float | None = None
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Before:
    """How things were before the signal."""

    child: int
    health: int
    series: frozenset[tuple[str, ...]]


def run(report: Report, _options: argparse.Namespace) -> None:
    for name, number, within in (
        ("crash", signal.SIGSEGV, CRASH_WITHIN),
        ("hang", signal.SIGSTOP, HANG_WITHIN),
    ):
        try:
            _case(report, name, number, within)
        except KitError as error:
            report.check(f"{name}: could be tried", ok=False, told=str(error))
    _stop_while_hung(report)


def _case(report: Report, name: str, number: signal.Signals, within: float) -> None:
    with Daemon(every(INTERVAL, link_detail=False)) as daemon:
        before = _before(report, name, daemon)
        watch = _watch(daemon, before, number, within)
        after = daemon.child()
        status, seconds = daemon.stop()
        left = [pid for pid in (before.child, after) if pid is not None and processes.alive(pid)]
        log = daemon.log()
    report.note(**{name: {**vars(watch), "series": len(before.series), "log": log}})
    _judge(report, name, watch, within)
    report.check(
        f"{name}: SIGTERM ends the daemon within {STOP_WITHIN:g} s with status 0",
        ok=status == 0 and seconds <= STOP_WITHIN,
        told=f"status {status}, {seconds:.2f} s",
    )
    report.check(f"{name}: no NVML process is left behind", ok=not left, told=f"{left}" if left else "")


def _before(report: Report, name: str, daemon: Daemon) -> Before:
    scrape = daemon.fresh(time.time())
    health = daemon.get("/health")
    child = daemon.child()
    if child is None:
        raise KitError(f"there is no NVML process; the daemon wrote: {daemon.log()}")
    ok = health.status == 200
    report.check(f"{name}: /health is 200 before", ok=ok, told="" if ok else health.body.decode())
    return Before(child, health.status, frozenset(scrape.gpu_series()))


def _stop_while_hung(report: Report) -> None:
    """How long a stop takes at the worst moment: the daemon has just asked the hung process something."""
    with Daemon(every(INTERVAL, link_detail=False)) as daemon:
        scrape = daemon.fresh(time.time())
        child = daemon.child()
        if child is not None:
            os.kill(child, signal.SIGSTOP)
        time.sleep(max(0.0, scrape.polled("gpu") + INTERVAL + 0.1 - time.time()))
        status, seconds = daemon.stop(60.0)
    report.check(
        f"hang: SIGTERM while it hangs ends the daemon within {STOP_WITHIN:g} s with status 0",
        ok=status == 0 and seconds <= STOP_WITHIN,
        told=f"status {status}, {seconds:.2f} s",
    )


def _watch(daemon: Daemon, before: Before, number: signal.Signals, within: float) -> Watch:
    """Send the signal, then scrape until everything is back."""
    watch = Watch()
    sent, began = time.time(), time.monotonic()
    os.kill(before.child, number)
    while watch.recovered is None and time.monotonic() - began < within + 1:
        try:
            health = daemon.get("/health").status
            scrape = daemon.scrape()
            _look(watch, before, health, scrape, sent, time.monotonic() - began)
        except (OSError, KitError) as error:
            watch.failed.append(f"{time.monotonic() - began:.2f} s: {error}")
        time.sleep(0.05)
    return watch


def _look(watch: Watch, before: Before, health: int, scrape: Scrape, sent: float, now: float) -> None:
    watch.scrapes.append(scrape.seconds)
    watch.health.append((round(now, 2), health))
    if watch.noticed is None and not processes.alive(before.child):
        watch.noticed = now
    watch.missing = [" ".join(s) for s in sorted(before.series - set(scrape.gpu_series()))]
    polled = all(scrape.polled(name) > sent for name in WIRES)
    if watch.noticed is not None and polled and not watch.missing and health == before.health:
        watch.recovered = now


def _judge(report: Report, name: str, watch: Watch, within: float) -> None:
    slowest = max(watch.scrapes, default=float("inf"))
    report.check(
        f"{name}: every scrape answers within {1e3 * ANSWER_WITHIN:.0f} ms",
        ok=slowest <= ANSWER_WITHIN and not watch.failed,
        told=f"{len(watch.scrapes)} scrapes, slowest {1e3 * slowest:.1f} ms, {len(watch.failed)} failed",
    )
    if name == "hang":
        told = "never" if watch.noticed is None else f"{watch.noticed:.1f} s"
        ok = watch.noticed is not None and watch.noticed <= NOTICE_WITHIN
        bad = [at for at, code in watch.health if code == 503]
        span = f"from {bad[0]:.1f} s to {bad[-1]:.1f} s" if bad else "never"
        report.check(f"{name}: /health is 503 in between", ok=bool(bad), told=span)
        report.check(f"{name}: the hung process is killed within {NOTICE_WITHIN:g} s", ok=ok, told=told)
    told = "never" if watch.recovered is None else f"{watch.recovered:.1f} s"
    told += f"; missing: {len(watch.missing)}, first {watch.missing[:3]}" if watch.missing else ""
    ok = watch.recovered is not None and watch.recovered <= within
    report.check(f"{name}: collectors succeed and all series are back within {within:g} s", ok=ok, told=told)
