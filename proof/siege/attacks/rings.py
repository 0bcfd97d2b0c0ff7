"""A tenant that writes rings beside another's job: many, forged, nonsense, cut, and 10,000 names."""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proof.hardware import processes
from proof.siege.attack import LOGGED, Book, Siege
from proof.siege.attacks.limits import CGROUPS
from proof.siege.daemon import ROOT, Besieged, Ground, SiegeError, Start
from proof.siege.watch import Local, ask
from tests.node.jobs.tap.playing import Player, collective

BOOK = Book()
SAMPLES, SHORT = 100, 20
EVERY, CHECKS = 0.4, 10
"""Seconds between two samples, and so many of them to one command."""
MEMORY = 150e6
"""Bytes of all processes of the agent."""
HEALTHY = '[[change]]\nport = "nvml"\nmatch = "gpu2/Field(165,7)"\nset = 1\n'
OFTEN = "[collectors.jobs]\ninterval = 1.0\n"
DURATION = 'wirewatch_collector_duration_seconds{collector="jobs"}'
COMMUNICATOR, USER = 0xC0FFEE, 4001
ISOLATED = Path("docs/adr/0088-folders-of-rings.md")
"""A tree that has it gives each job a folder; before, all jobs shared one."""
FORGED = Path("user.slice/user-1000.slice/user@1000.service/app.slice/job_4711")
"""A group that any user can make below their own."""


class Healthy(Besieged):
    """A daemon on a node without a fault, which lets a job start."""

    def right(self) -> str:
        """ "" where a job may start, else what is found."""
        try:
            return _closed(self.health())
        except (OSError, ValueError) as error:
            return f"no answer: {error!r}"


def _closed(document: Mapping[str, Any]) -> str:
    rules = sorted({one["rule"] for one in document["findings"]})
    return "" if document["job_ready"] else f"{document['health']}: {', '.join(rules)}"


@dataclass
class Victim:
    """A job that the real tap watches; it calls a collective now and then, in a thread, until its end."""

    player: Player
    over: threading.Event = field(default_factory=threading.Event)
    wrong: str = ""

    def run(self) -> None:
        number = 0
        try:
            while not self.over.wait(0.05):
                number += 1
                self.player.all(f"call 5 0 1 0\n{collective(number=number)}")
        except (AssertionError, OSError, ValueError) as error:
            self.wrong = str(error) or type(error).__name__

    @property
    def ended(self) -> bool:
        return not processes.alive(self.player.pid)


@contextmanager
def _victim(folder: Path) -> Iterator[Victim]:
    """It has one communicator of two ranks, whose file is a user's."""
    player = Player(folder, "PLAIN")
    victim = Victim(player)
    thread = threading.Thread(target=victim.run, daemon=True)
    try:
        player.do(f"init 5 0 {COMMUNICATOR} 1 2 0 -")
        (ring,) = player.rings()
        os.chown(ring, USER, USER)
        thread.start()
        yield victim
    finally:
        victim.over.set()
        if thread.ident:
            thread.join(5.0)
        player.kill()


@contextmanager
def _tenant(mode: str, folder: Path, *more: str, group: Path | None = None) -> Iterator[None]:
    command = [sys.executable, "-m", "proof.siege.ringwriters", mode, str(folder), *more]
    paths = f"{ROOT}:{ROOT / 'agent'}"
    writer = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert writer.stdout is not None
    try:
        if group is not None:
            (group / "cgroup.procs").write_text(f"{writer.pid}", "ascii")
        if writer.stdout.readline() != b"ready\n":
            raise SiegeError(f"the writer of {mode} ended with {writer.wait(10)}")
        yield
    finally:
        # It may be in the middle of a round.
        writer.kill()
        writer.wait()
        writer.stdout.close()
        if writer.stdin:
            writer.stdin.close()


@contextmanager
def _folders(tree: Path) -> Iterator[tuple[Path, Path, Path]]:
    """The root of rings, what the victim's job mounts of it, and what the tenant does; all on tmpfs."""
    with tempfile.TemporaryDirectory(prefix="siege-", dir="/dev/shm", ignore_cleanup_errors=True) as name:
        root = Path(name)
        if not (tree / ISOLATED).exists():
            root.chmod(0o1777)
            yield root, root, root
            return
        root.chmod(0o755)
        places = [root / "containers" / one for one in ("victim", "tenant")]
        for place in places:
            place.mkdir(parents=True)
            place.chmod(0o770)
        places[0].parent.chmod(0o755)
        yield root, places[0], places[1]


@contextmanager
def _group() -> Iterator[Path | None]:
    """A control group by a name that a user can choose; None where none can be made."""
    trees = [CGROUPS / "systemd", CGROUPS]
    place = next((one for one in trees if (one / "cgroup.procs").exists()), None)
    if place is None:
        yield None
        return
    made = place / FORGED
    made.mkdir(parents=True, exist_ok=True)
    try:
        yield made
    finally:
        for _ in range(50):
            with suppress(OSError):
                for one in (made, *made.parents[: len(FORGED.parts) - 1]):
                    one.rmdir()
                break
            time.sleep(0.1)


@dataclass
class Sampled:
    """What was seen of a daemon while a tenant wrote, in bytes and seconds. `pid`: of the victim."""

    pid: int
    closed: list[str] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    polls: list[float] = field(default_factory=list)
    forged: set[str] = field(default_factory=set)
    shown: int = 0
    samples: int = 0

    def look(self, daemon: Healthy) -> None:
        """Ask for the verdict, the jobs and the memory once; every CHECKS samples by a command too."""
        self.samples += 1
        if wrong := daemon.right():
            self.closed.append(wrong)
        self.memory.append(_memory(daemon.pid))
        self.alone.append(processes.memory(daemon.pid)["pss"])
        if self.samples % CHECKS == 0:
            file = str(daemon.ground.folder / "wirewatch.toml")
            self.refused += (
                [code] if (code := daemon.ground.run("check", "--config", file).returncode) else []
            )
        with suppress(OSError, ValueError):
            text = daemon.get("/metrics")[1].decode()
            self.polls += [float(one.split()[-1]) for one in text.splitlines() if one.startswith(DURATION)]
            answer = ask(Local(str(daemon.ground.socket), 5.0), "/api/v1/jobs", {})[1]
            self.judge(json.loads(answer))

    def judge(self, document: Mapping[str, Any]) -> None:
        """Look for the victim, for ranks that it does not have, and for a job by a name that was chosen."""
        mine = [
            one["here"]
            for one in _communicators(document)
            if any(r["own_pid"] == self.pid for r in one["here"])
        ]
        self.shown += bool(mine)
        if any(len(ranks) > 1 for ranks in mine):
            self.forged.add(f"{max(map(len, mine))} ranks of the victim's communicator")
        names = {name for job in _jobs(document) for name in (job["name"], *job["owners"])}
        self.forged |= names & {"slurm:4711"}


def _jobs(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The jobs that the tap watches."""
    jobs = (one["evidence"]["job"] for one in document["jobs"])
    return (one for one in jobs if "communicators" in one)


def _communicators(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (comm for job in _jobs(document) for comm in job["communicators"])


def _memory(pid: int) -> int:
    """Of a process and all below it."""
    below = [pid]
    for one in below:
        below += processes.children(one)
    total = 0
    for one in below:
        with suppress(OSError):
            total += processes.memory(one)["pss"]
    return total


def _besieged(siege: Siege, modes: Sequence[str]) -> None:
    """Sample a daemon while a tenant writes in each of these ways, beside a job of somebody else."""
    if siege.short:
        modes = modes[:1]
    for mode in modes:
        siege.mark = mode if len(modes) > 1 else ""
        with siege.ground() as bare, _folders(siege.tree) as (root, mine, theirs), _victim(mine) as victim:
            ground = Ground(bare.tree, bare.folder, overlay=HEALTHY)
            start = Start(config=OFTEN, arguments=("--rings", str(root)))
            with Healthy(ground, start) as daemon, _group() as group:
                calm = _memory(daemon.pid)
                log = daemon.size().log
                with _tenant(mode, theirs, str(COMMUNICATOR), group=group if mode == "forged" else None):
                    seen = _sampled(daemon, victim, SHORT if siege.short else SAMPLES)
                _judged(siege, seen, victim)
                siege.figure("memory before", calm / 1e6, "MB")
                siege.most("log grew", (daemon.size().log - log) / 1024, "KiB", LOGGED / 1024)
                siege.must("Traceback" not in daemon.log, f"a traceback: {daemon.log[-300:]}")


def _sampled(daemon: Healthy, victim: Victim, times: int) -> Sampled:
    seen = Sampled(victim.player.pid)
    for _ in range(times):
        began = time.monotonic()
        seen.look(daemon)
        time.sleep(max(0.0, began + EVERY - time.monotonic()))
        if daemon.process.poll() is not None:
            raise SiegeError(f"the daemon ended with {daemon.process.returncode}: {daemon.log[-400:]}")
    return seen


def _judged(siege: Siege, seen: Sampled, victim: Victim) -> None:
    siege.most(f"gate closed of {seen.samples}", len(seen.closed), "", 0)
    siege.must(not seen.closed, f"closed by {seen.closed[0] if seen.closed else ''}")
    siege.most(f"checks refused of {seen.samples // CHECKS}", len(seen.refused), "", 0)
    siege.most("most memory", max(seen.memory) / 1e6, "MB", MEMORY / 1e6)
    siege.figure("of which the daemon itself", max(seen.alone) / 1e6, "MB")
    siege.figure("longest poll of jobs", max(seen.polls, default=math.nan), "s")
    siege.figure("median poll of jobs", statistics.median(seen.polls or [math.nan]), "s")
    siege.most("jobs that ended", int(victim.ended), "", 0)
    siege.most("forged owners", len(seen.forged), "", 0)
    siege.must(not seen.forged, f"forged: {', '.join(sorted(seen.forged))}")
    siege.must(victim.ended or not victim.wrong, f"the job: {victim.wrong}")
    siege.figure(f"the job is shown in, of {seen.samples}", seen.shown)
    siege.must(seen.shown, "the job is never shown")


@BOOK.attack("512 live rings of 512 users, which one container has made and writes all the time", short=True)
def rings(siege: Siege) -> None:
    _besieged(siege, ["crowd"])


@BOOK.attack(
    "Rings whose file owner, communicator and GPU are another's, written from a control group `job_4711` "
    "below a user's slice"
)
def forged_rings(siege: Siege) -> None:
    _besieged(siege, ["forged"])


@BOOK.attack(
    "A container that fills its rings with nonsense; that truncates and regrows all files it can reach; that "
    "makes and removes 10,000 names"
)
def bursting_records(siege: Siege) -> None:
    _besieged(siege, ["nonsense", "truncating", "names"])
