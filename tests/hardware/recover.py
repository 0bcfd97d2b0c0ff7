"""recover: the NVML process dies or hangs, and the daemon answers on, notices, and comes back."""

import argparse
import os
import signal
import time
from dataclasses import dataclass, field

from tests.hardware import processes
from tests.hardware.daemon import WIRES, Daemon, every
from tests.hardware.kit import KitError, Report

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


def run(report: Report, _options: argparse.Namespace) -> None:
    _case(report, "crash", signal.SIGSEGV, CRASH_WITHIN)
    _case(report, "hang", signal.SIGSTOP, HANG_WITHIN)


def _case(report: Report, name: str, number: signal.Signals, within: float) -> None:
    with Daemon(every(INTERVAL, link_detail=False)) as daemon:
        before = daemon.fresh(time.time())
        health = daemon.get("/health")
        child = daemon.child()
        if child is None:
            raise KitError(f"there is no NVML process; the daemon wrote: {daemon.log()}")
        report.check(f"{name}: /health is 200 before", ok=health.status == 200, told=health.body.decode())
        watch = _watch(daemon, child, number, set(before.gpu_series()), within)
        after = daemon.child()
        status, seconds = daemon.stop()
        left = [pid for pid in (child, after) if pid is not None and processes.alive(pid)]
        log = daemon.log()
    _judge(report, name, watch, within)
    report.check(
        f"{name}: SIGTERM ends the daemon within {STOP_WITHIN:g} s with status 0",
        ok=status == 0 and seconds <= STOP_WITHIN,
        told=f"status {status}, {seconds:.2f} s",
    )
    report.check(f"{name}: no NVML process is left behind", ok=not left, told=f"{left}" if left else "")
    if name == "hang":
        bad = [at for at, code in watch.health if code == 503]
        told = f"from {bad[0]:.1f} s to {bad[-1]:.1f} s" if bad else "never"
        report.check(f"{name}: /health is 503 in between", ok=bool(bad), told=told)
    report.note(**{name: {**vars(watch), "series": len(set(before.gpu_series())), "log": log}})


def _watch(
    daemon: Daemon, child: int, number: signal.Signals, series: set[tuple[str, ...]], within: float
) -> Watch:
    """Send the signal, then scrape until everything is back."""
    watch = Watch()
    sent, sent_mono = time.time(), time.monotonic()
    os.kill(child, number)
    while watch.recovered is None and time.monotonic() - sent_mono < within + 1:
        _look(daemon, child, sent, sent_mono, series, watch)
        time.sleep(0.05)
    return watch


def _look(
    daemon: Daemon, child: int, sent: float, sent_mono: float, series: set[tuple[str, ...]], watch: Watch
) -> None:
    try:
        health = daemon.get("/health")
        scrape = daemon.scrape()
    except (OSError, KitError) as error:
        watch.failed.append(f"{time.monotonic() - sent_mono:.2f} s: {error}")
        return
    now = time.monotonic() - sent_mono
    watch.scrapes.append(scrape.seconds)
    watch.health.append((round(now, 2), health.status))
    if watch.noticed is None and not processes.alive(child):
        watch.noticed = now
    watch.missing = [" ".join(s) for s in sorted(series - set(scrape.gpu_series()))]
    late = [name for name in WIRES if scrape.polled(name) <= sent]
    if watch.noticed is not None and not late and not watch.missing and health.status == 200:
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
        report.check(f"{name}: the hung process is killed within {NOTICE_WITHIN:g} s", ok=ok, told=told)
    told = "never" if watch.recovered is None else f"{watch.recovered:.1f} s"
    told += f"; missing: {len(watch.missing)}, first {watch.missing[:3]}" if watch.missing else ""
    ok = watch.recovered is not None and watch.recovered <= within
    report.check(
        f"{name}: collectors succeed and all series are back within {within:g} s", ok=ok, told=told
    )
