"""upgraded: a hung job whose evidence outlives the agent, and an agent that ends ten times under a job.

Both jobs carry the tap and write into a folder of their own, as a platform would make it. `hung`: a rank is
stopped, the agent names it, is killed, and an agent of another version names it again and reads the same
rings. `restarts`: the agent is killed and started again; what each one reads of each ring, and the job's
steps. Some four minutes of two GPUs; `--kinds` for one of them.
"""

import argparse
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from proof.hardware.daemon import NO_PROBE, Daemon
from proof.hardware.hangs import HUNG, READY, WORK, Watcher, hangs_in
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, chosen
from proof.hardware.tap import TMPFS, Taps
from wirewatch.core.types import Absent
from wirewatch.jobs.tap.rings import FileRings

OTHER = "0.2.0+other"
"""Version of the agent that comes after the first."""
RESTARTS = 10
FOUND_WITHIN, AGAIN_WITHIN = 60.0, 90.0
"""Seconds until the hang is named, by the first agent and by the one that comes after it."""
READS_WITHIN = 40.0
"""Seconds until an agent that has just started has joined collectives of the job."""
AWAY = 2.0
"""Seconds between two agents."""
LOOK = 0.5
LINE = (
    f'[listen]\nsocket = ""\n{NO_PROBE}[collectors.hangs]\ninterval = 2.0\n'
    "[policy.hangs]\nafter = 10.0\nagain = 4.0\nseldom = 60.0\nunasked = 60.0\n[jobs]\n"
)
Counts = dict[str, tuple[int, int]]
"""Collectives enqueued, and records, of each ring."""


def run(report: Report, options: argparse.Namespace) -> None:
    for name in chosen(options.kinds, PIECES):
        report.attempt(name, lambda name=name: PIECES[name](report))  # type: ignore[misc]


@contextmanager
def _scene() -> Iterator[tuple[Taps, str]]:
    """A folder of rings with one for the job, and the configuration of agents that share their state."""
    with tempfile.TemporaryDirectory(dir=TMPFS) as root:
        kind = Path(root) / "containers"
        kind.mkdir()
        state = Path(root) / "state"
        state.mkdir(0o700)
        yield Taps(kind, follow=False), f'{LINE}rings = "{root}"\n[state]\ndirectory = "{state}"\n'


@contextmanager
def other_version() -> Iterator[None]:
    """Agents that are started meanwhile run a copy of this one, of another version."""
    here, before = Path("agent").resolve(), os.environ.get("PYTHONPATH", "")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(here / "wirewatch", Path(folder) / "wirewatch")
        init = Path(folder) / "wirewatch" / "__init__.py"
        init.write_text(init.read_text("utf-8").replace('__version__ = "', f'__version__ = "{OTHER}" or "'))
        os.environ["PYTHONPATH"] = f"{folder}:{before}"
        try:
            yield
        finally:
            os.environ["PYTHONPATH"] = before


def counts_of(folder: Path) -> Counts:
    """Return the counters of every ring, as a reader that begins anew finds them."""
    reading = FileRings(folder).poll({})
    if isinstance(reading, Absent):
        raise KitError(f"rings: {reading}")
    return {one.ring.name: (one.ring.counts.enqueued, len(one.calls)) for one in reading.rings}


def numbers(document: object, key: str) -> Iterator[float]:
    """Return every number under this key, wherever it stands in a document."""
    if isinstance(document, Mapping):
        for name, value in document.items():
            if name == key and isinstance(value, int | float):
                yield value
            else:
                yield from numbers(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from numbers(value, key)


def until(what: Callable[[], Any], within: float) -> tuple[Any, float]:
    """Return the first answer that is not empty, and after how many seconds; infinite where none came."""
    began = time.monotonic()
    while not (found := what()) and time.monotonic() - began < within:
        time.sleep(LOOK)
    return found, time.monotonic() - began if found else float("inf")


def _kill(daemon: Daemon) -> None:
    """End an agent at once, as a node that replaces it does at worst."""
    os.kill(daemon.pid, signal.SIGKILL)


def _named(daemon: Daemon, gpu: str) -> list[dict[str, Any]]:
    every = hangs_in(json.loads(daemon.get("/api/v1/findings").body))
    return [one for one in every if one["rule"] == HUNG["stop"][0] and one["subject"].get("gpu") == gpu]


def hung(report: Report) -> None:
    """A rank is stopped; two agents, one after the other, name it and read its rings."""
    with _scene() as (taps, config), Job("hang", settings=taps.settings()) as job:
        gpus = len(job.wait("READY", READY).split())
        with Daemon(config) as first:
            time.sleep(WORK)
            job.send(f"stop {gpus - 1}")
            job.wait("DOES", 30.0)
            found, after = until(lambda: _named(first, str(gpus - 1)), FOUND_WITHIN)
            looked = Watcher(first).looks()
            before = counts_of(taps.rings)
            _kill(first)
        time.sleep(AWAY)
        with other_version(), Daemon(config) as second:
            version = b'version="' + OTHER.encode() in second.get("/metrics").body
            again, after_again = until(lambda: _named(second, str(gpus - 1)), AGAIN_WITHIN)
            rings = counts_of(taps.rings)
            document = json.loads(second.get("/api/v1/jobs").body)
        walls = [one["answer"]["wall"] for one in document["jobs"]]
    report.data["hung"] = {
        "after": after, "again": after_again, "looks": looked, "before": before, "rings": rings,
        "walls": walls, "evidence": [one["evidence"] for one in (*found, *again)],
    }  # fmt: skip
    report.check("hung: named by the first agent", ok=bool(found), told=f"after {after:.1f} s")
    report.check("hung: the second agent is of another version", ok=version, told=OTHER)
    report.check("hung: named again after the upgrade", ok=bool(again), told=f"after {after_again:.1f} s")
    report.check("hung: explained as a hang", ok="hang" in walls, told=str(walls))
    report.check("hung: no ring is lost", ok=bool(before) and rings == before, told=f"{before} and {rings}")


def restarts(report: Report) -> None:
    """An agent is killed ten times; each reads every ring anew, and the job goes on."""
    rows: list[list[Any]] = []
    with ExitStack() as stack:
        taps, config = stack.enter_context(_scene())
        job = stack.enter_context(Job("hang", settings=taps.settings()))
        job.wait("READY", READY)
        time.sleep(WORK)
        for number in range(RESTARTS):
            with Daemon(config) as daemon:
                joined, after = until(lambda: _joined(daemon), READS_WITHIN)
                job.must_run()
                rings = counts_of(taps.rings)
                document = json.loads(daemon.get("/api/v1/jobs").body)
                missed = sum(numbers(document, "missed"))
                rows.append([number, len(rings), sum(n for n, _ in rings.values()), after, joined, missed])
                _kill(daemon)
            time.sleep(AWAY)
        ended = job.stop()
    report.table("restarts", ["agent", "rings", "enqueued", "joined after s", "joined", "missed"], rows)
    report.data["restarts"] = rows
    good = [row for row in rows if row[4]]
    report.check("restarts: tried", ok=len(rows) == RESTARTS, told=f"{len(rows)} of {RESTARTS}")
    report.check("restarts: every agent reads the job", ok=len(good) == RESTARTS, told=f"{len(good)}")
    grown = all(now[2] > before[2] for before, now in pairwise(rows))
    report.check("restarts: the job goes on and ends", ok=grown and ended == 0, told=f"status {ended}")


def _joined(daemon: Daemon) -> float:
    return sum(numbers(json.loads(daemon.get("/api/v1/jobs").body), "joined"))


PIECES: Mapping[str, Callable[[Report], None]] = {"hung": hung, "restarts": restarts}
