"""release: every GPU handle of ours is closed within 2 s of the command, and all is back afterwards."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proof.hardware import processes
from proof.hardware.daemon import DEFAULTS, Daemon, every
from proof.hardware.holders import Ours, others, replayed
from proof.hardware.job import NO_MULTICAST
from proof.hardware.kit import KitError, Report
from proof.hardware.probing import MODULE
from proof.hardware.scrape import Scrape
from wirewatch.core.types import Absent
from wirewatch.probe.setup import find_engine

ROUNDS = 5
RELEASED = 20.0
"""Seconds of a release; the first is left to its end, the others are ended before."""
EARLY = 3.0
CLOSED_WITHIN = 2.0
BACK_WITHIN = 30.0
ANSWER_WITHIN = 0.100
GIVE_UP = 10.0
LOOK = 0.005
PROBE_WITHIN = 90.0
CONTEXTS_UP = 0.5
"""Seconds after a worker has opened a GPU at which it is in the middle of its probe."""
OFTEN = ("gpu", "nvlink")
"""Collectors that poll more often than BACK_WITHIN."""
_PROBE = (
    "[probe]\ninterval = 1.0\nprobe_interval = 2.0\njitter = 0.0\nsettle = 0.0\nbudget = 1.0\n"
    "bandwidth = [[536870912, 960]]\n"
)
"""Probes one after the other that last for seconds."""


@dataclass
class Round:
    """Seconds since the command, None for never; `back` since the end of the release.

    `before`: who had GPUs open, and which; `health`: the HTTP status of /health then.
    """

    name: str
    before: dict[int, list[str]]
    health: int
    closed: float | None = None
    told: dict[str, Any] = field(default_factory=dict)
    reopened: list[str] = field(default_factory=list)
    scrapes: list[float] = field(default_factory=list)
    back: float | None = None
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Scene:
    """A running daemon with a socket."""

    report: Report
    daemon: Daemon
    ours: Ours
    socket: Path

    def command(self, *arguments: str) -> "subprocess.Popen[str]":
        line = [sys.executable, "-m", "wirewatch", "release", "--json", "--socket", str(self.socket)]
        return subprocess.Popen(
            [*line, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def series(self) -> set[tuple[str, ...]]:
        return set(self.daemon.scrape().gpu_series())


def run(report: Report, _options: argparse.Namespace) -> None:
    report.attempt("plain releases", lambda: _with_daemon(report, DEFAULTS, _plain))
    report.attempt("a release in the middle of a probe", lambda: _probing(report))
    judge(report)


def _with_daemon(report: Report, config: str, work: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="wirewatch-kit-") as folder:
        socket = Path(folder) / "wirewatch.sock"
        with Daemon(config.replace('socket = ""', f'socket = "{socket}"')) as daemon:
            scene = Scene(report, daemon, Ours.of(daemon.pid), socket)
            try:
                daemon.fresh(time.time())
                held = others({*scene.ours.processes(), os.getpid()})
                report.note(held_by_others=held)
                for name, files in held.items():
                    report.progress(f"process {name}, which is not ours, has {', '.join(files)} open")
                work(scene)
            finally:
                report.note(log=daemon.log())


def _plain(scene: Scene) -> None:
    for number in range(ROUNDS):
        name = f"round {number + 1}"
        scene.report.attempt(name, lambda name=name, number=number: _round(scene, name, last=number == 0))  # type: ignore[misc]


def _probing(report: Report) -> None:
    engine = find_engine("auto")
    if isinstance(engine, Absent) or replayed():
        report.progress(f"no release in the middle of a probe: {'a recording' if replayed() else engine}")
        return
    for name, value in NO_MULTICAST.items():
        os.environ.setdefault(name, value)
    _with_daemon(report, every(2.0, link_detail=False, probe=_PROBE), _in_a_probe)


def _in_a_probe(scene: Scene) -> None:
    scene.report.progress("waiting for a probe")
    # Before the probe, whose own series change from run to run.
    series = {one for one in scene.series() if not one[0].startswith("probe_")}
    worker = _worker(scene)
    time.sleep(CONTEXTS_UP)
    _round(scene, "in a probe", last=False, series=series)
    dead = not processes.alive(worker)
    scene.report.check("in a probe: its worker is dead", ok=dead, told=str(worker))
    end = time.monotonic() + GIVE_UP
    past: list[dict[str, Any]] = []
    while not any(one["outcome"] == "preempted" for one in past) and time.monotonic() < end:
        time.sleep(0.1)
        past = json.loads(scene.daemon.get("/api/v1/probes").body)["past"]
    ended = [one["outcome"] for one in past]
    scene.report.check("in a probe: it was preempted", ok="preempted" in ended, told=f"probes ended {ended}")


def _worker(scene: Scene) -> int:
    """The worker of a probe, once it has a GPU open."""
    end = time.monotonic() + PROBE_WITHIN
    while time.monotonic() < end:
        found = set(processes.with_argument(MODULE)) & set(scene.ours.holders())
        if found:
            return found.pop()
        time.sleep(LOOK)
    raise KitError(f"no probe within {PROBE_WITHIN:g} s; the daemon wrote: {scene.daemon.log()}")


def _round(scene: Scene, name: str, *, last: bool, series: set[tuple[str, ...]] | None = None) -> None:
    """One release; `last`: left until it ends by itself. Raises KitError when it cannot be begun."""
    scene.report.progress(name)
    before = scene.series() if series is None else series
    done = Round(name, scene.ours.holders(), scene.daemon.get("/health").status)
    if not done.before:
        raise KitError("no process of ours has a GPU open before it")
    try:
        _release(scene, done)
        _while_released(scene, done, RELEASED + GIVE_UP if last else EARLY)
        if not last:
            out, err = scene.command("--end").communicate(timeout=GIVE_UP)
            if not out:
                raise KitError(f"it cannot be ended: {err}")
        _come_back(scene, done, before)
    finally:
        scene.report.data.setdefault("rounds", []).append(asdict(done))
        scene.report.save()


def _release(scene: Scene, done: Round) -> None:
    began = time.monotonic()
    with scene.command("--for", f"{RELEASED:g}s") as command:
        while done.closed is None and time.monotonic() - began < GIVE_UP:
            if not scene.ours.holders():
                done.closed = time.monotonic() - began
            time.sleep(LOOK)
        out, err = command.communicate(timeout=GIVE_UP)
    try:
        done.told = {**json.loads(out), "status": command.returncode}
    except ValueError as error:
        raise KitError(f"the command ended with status {command.returncode}: {out}{err}") from error


def _while_released(scene: Scene, done: Round, seconds: float) -> None:
    """Look until so many seconds have passed, or the daemon says that it is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        scrape = scene.daemon.scrape()
        done.scrapes.append(scrape.seconds)
        held = scene.ours.holders()
        if json.loads(scene.daemon.get("/health").body)["released_until"] == 0:
            return
        if held and done.closed is not None:
            done.reopened.append(str(held))
        time.sleep(0.05)


def _come_back(scene: Scene, done: Round, before: set[tuple[str, ...]]) -> None:
    """Until nothing is missing that was read since; what is read less often is as it was before."""
    began, ended = time.monotonic(), time.time()
    while done.back is None and time.monotonic() - began < BACK_WITHIN + GIVE_UP:
        scrape: Scrape = scene.daemon.scrape()
        done.scrapes.append(scrape.seconds)
        done.missing = [" ".join(one) for one in sorted(before - set(scrape.gpu_series()))]
        fresh = all(scrape.polled(name) > ended for name in OFTEN)
        if fresh and not done.missing and scene.daemon.get("/health").status == done.health:
            done.back = time.monotonic() - began
        time.sleep(0.1)


def judge(report: Report) -> None:
    """All rounds against the limits."""
    rounds = report.data.get("rounds", [])
    rows = [
        [one["name"], len(one["before"]), one["closed"], one["told"].get("seconds_taken"), one["back"]]
        for one in rounds
    ]
    header = ["round", "processes before", "closed after, s", "as the daemon says, s", "back after, s"]
    report.table("releases", header, rows)
    for one in rounds:
        name, closed, back = one["name"], one["closed"], one["back"]
        report.check(
            f"{name}: no process of ours has a GPU open within {CLOSED_WITHIN:g} s of the command",
            ok=closed is not None and closed <= CLOSED_WITHIN,
            told="never" if closed is None else f"{closed:.2f} s",
        )
        told = one["told"]
        report.check(
            f"{name}: the command says so, exit status 0",
            ok=told.get("status") == 0 and told.get("released") is True and not told.get("stuck"),
            told=str({key: told.get(key) for key in ("status", "released", "stuck")}),
        )
        opened = one["reopened"]
        report.check(f"{name}: none is opened while it lasts", ok=not opened, told=str(opened[:2] or ""))
        report.check(
            f"{name}: all series and the health are back within {BACK_WITHIN:g} s of its end",
            ok=back is not None and back <= BACK_WITHIN,
            told="never; missing: {}".format(one["missing"][:3]) if back is None else f"{back:.1f} s",
        )
    slowest = max((seconds for one in rounds for seconds in one["scrapes"]), default=float("inf"))
    report.check(
        f"every scrape meanwhile answers within {1e3 * ANSWER_WITHIN:g} ms", ok=slowest <= ANSWER_WITHIN,
        told=f"slowest {1e3 * slowest:.1f} ms",
    )  # fmt: skip
