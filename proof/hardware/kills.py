"""kills: SIGKILL at random moments to the worker of a probe, to the NVML process and to the daemon itself.

After each kill the daemon, or the next one on the same state folder, answers, reads every GPU and lets a job
start; no process of ours outlives a killed daemon, and nothing is left in its temporary and runtime folder.
"""

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from proof.hardware.daemon import Daemon, every
from proof.hardware.holders import Ours
from proof.hardware.job import NO_MULTICAST
from proof.hardware.kit import KitError, Report, chosen, quantile
from proof.hardware.processes import alive, with_argument

TRIALS = 50
SEED = 20261122
INTERVAL = 1.0
PROBE = "[probe]\ninterval = 1.0\nprobe_interval = 2.0\njitter = 0.0\nsettle = 0.0\nbudget = 1.0\n"
WORKER = "wirewatch.worker"
BACK_WITHIN = 30.0
GONE_WITHIN = 5.0
PROBE_WITHIN = 60.0
WORST_MOMENT = 1.5
"""Seconds from the start of a worker or daemon until the latest kill."""


@dataclass
class Kills:
    """What came of the kills of one kind: seconds until all was back, what was left, what went wrong."""

    back: list[float] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def run(report: Report, options: argparse.Namespace) -> None:
    for name, value in NO_MULTICAST.items():
        os.environ.setdefault(name, value)
    count, moments = options.trials or TRIALS, random.Random(SEED)  # noqa: S311 - moments, not secrets
    report.note(seed=SEED, trials=count)
    with tempfile.TemporaryDirectory(prefix="wirewatch-kills-") as folder:
        os.environ |= {"TMPDIR": folder, "RUNTIME_DIRECTORY": folder}
        for kind in chosen(options.kinds, KINDS):
            work = partial(KINDS[kind], report, count, moments, Path(folder))
            report.attempt(f"kills of the {kind}", work)


def _nvml(report: Report, count: int, moments: random.Random, _folder: Path) -> None:
    kills = Kills()
    with Daemon(every(INTERVAL, link_detail=False)) as daemon:
        for _ in range(count):
            time.sleep(moments.uniform(0.0, WORST_MOMENT))
            child = daemon.child()
            if child is not None:
                os.kill(child, signal.SIGKILL)
            _until_back(daemon, kills)
        _ended(daemon, kills)
    _judge(report, "NVML process", kills, count)


def _workers(report: Report, count: int, moments: random.Random, _folder: Path) -> None:
    kills = Kills()
    with Daemon(every(INTERVAL, link_detail=False, probe=PROBE)) as daemon:
        ours, killed = Ours.of(daemon.pid), set[int]()
        for _ in range(count):
            worker = _next_worker(ours, killed)
            killed.add(worker)
            time.sleep(moments.uniform(0.0, WORST_MOMENT))
            if alive(worker):
                os.kill(worker, signal.SIGKILL)
            _until_back(daemon, kills)
        past = json.loads(daemon.get("/api/v1/probes").body)["past"]
        report.note(outcomes=[one["outcome"] for one in past])
        _ended(daemon, kills)
    _judge(report, "worker", kills, count)


def _daemons(report: Report, count: int, moments: random.Random, folder: Path) -> None:
    kills = Kills()
    with tempfile.TemporaryDirectory(prefix="wirewatch-state-") as state:
        config = f'{every(INTERVAL, link_detail=False, probe=PROBE)}[state]\ndirectory = "{state}"\n'
        for _ in range(count):
            with Daemon(config) as daemon:
                ours = Ours.of(daemon.pid)
                time.sleep(moments.uniform(0.0, WORST_MOMENT))
                _until_back(daemon, kills)
                os.kill(daemon.pid, signal.SIGKILL)
                _gone(ours.processes, kills)
        with Daemon(config) as daemon:
            _until_back(daemon, kills)
            _ended(daemon, kills)
    kills.left += [str(place) for place in folder.rglob("wirewatch-probe-*")]
    _judge(report, "daemon", kills, count + 1)


def _next_worker(ours: Ours, killed: set[int]) -> int:
    end = time.monotonic() + PROBE_WITHIN
    while time.monotonic() < end:
        found = set(with_argument(WORKER)) & ours.processes() - killed
        if found:
            return found.pop()
        time.sleep(0.01)
    raise KitError(f"no probe within {PROBE_WITHIN:g} s")


def _until_back(daemon: Daemon, kills: Kills) -> None:
    """Wait for polls that began after now, and for a verdict with which a job may start."""
    began, at = time.monotonic(), time.time()
    health = b""
    while time.monotonic() - began < BACK_WITHIN:
        try:
            daemon.fresh(at, within=BACK_WITHIN)
            answer = daemon.get("/health")
            health = answer.body
        except (OSError, KitError) as error:
            kills.wrong.append(str(error)[:200])
            return
        if answer.status == 200:
            kills.back.append(time.monotonic() - began)
            return
        time.sleep(0.1)
    kills.wrong.append(f"/health is not 200 after {BACK_WITHIN:g} s: {health[:300]!r}")


def _ended(daemon: Daemon, kills: Kills) -> None:
    ours = Ours.of(daemon.pid)
    status, seconds = daemon.stop()
    if status != 0 or seconds > GONE_WITHIN:
        kills.wrong.append(f"SIGTERM: status {status} after {seconds:.2f} s")
    _gone(ours.processes, kills)


def _gone(processes: Callable[[], set[int]], kills: Kills) -> None:
    end = time.monotonic() + GONE_WITHIN
    while (left := processes()) and time.monotonic() < end:
        time.sleep(0.02)
    kills.left += [f"process {pid}" for pid in left]


def _judge(report: Report, name: str, kills: Kills, count: int) -> None:
    report.note(**{name: vars(kills)})
    slow = f"median {quantile(kills.back, 0.5):.2f} s, slowest {max(kills.back, default=float('nan')):.2f} s"
    report.check(
        f"{count} kills of the {name}: every GPU is read and a job may start within {BACK_WITHIN:g} s",
        ok=len(kills.back) == count and not kills.wrong,
        told=f"{len(kills.back)} of {count}, {slow}; {'; '.join(kills.wrong[:2])}",
    )
    report.check(f"{name}: nothing is left behind", ok=not kills.left, told=", ".join(kills.left[:5]))


KINDS: Mapping[str, Callable[[Report, int, random.Random, Path], None]] = {
    "nvml": _nvml, "worker": _workers, "daemon": _daemons,
}  # fmt: skip
