"""Processes that die: the daemon, its NVML child and its probe's worker; and signals."""

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from proof.hardware import processes
from proof.siege.attack import Book, Siege
from proof.siege.daemon import Besieged, Ground, SiegeError, Start

BOOK = Book()
KILLS, SHORT_KILLS = 50, 5
STOPS, SHORT_STOPS = 50, 6
STOPPED = 5.0
WORKING = Start(
    config="[probe]\ninterval = 0.3\nsettle = 0.0\nprobe_interval = 0.5\nbudget = 1.0\njitter = 0.0\n",
    program=("-P", "-m", "proof.siege.worked"),
)
AT_WORK = 1.2
"""Seconds after which a process has answered for NVML. One that dies before is replaced ever later."""
AT_ONCE = 2
"""Daemons that are started at the same time: one for each processor."""
BLIND = ("nvlink", "gpu", "pcie", "inventory", "xid", "gpudirect", "topology", "drift", "probe")
RETRY = 15.0
"""Seconds until a collector that failed runs again, at most."""
NVML, WORKER = b"wirewatch.hw.nvml.child", b"tests.node.probe.workers"


def children(pid: int, mark: bytes) -> list[int]:
    """Children of a process with this in their command lines."""
    found = []
    for child in processes.children(pid):
        with suppress(OSError):
            if mark in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def alive_of(folder: Path) -> list[int]:
    """Processes that were started for this folder and live."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"TMPDIR={folder / 'tmp'}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return [pid for pid in found if processes.alive(pid)]


def after_death(ground: Ground) -> str:
    """What a daemon that was killed has left running, a little later."""
    end = time.monotonic() + 5.0
    while (left := alive_of(ground.folder)) and time.monotonic() < end:
        time.sleep(0.05)
    return f"{len(left)} processes left" if left else ""


def temporary(ground: Ground) -> list[str]:
    """What lies in the temporary and the runtime folder, but for the sockets."""
    places = (ground.folder / "tmp", ground.folder / "run")
    return sorted(str(one) for place in places for one in place.rglob("*") if not one.is_socket())


def _kill_parents(siege: Siege, ground: Ground, count: int, start: Start) -> None:
    """Start, kill while a worker runs, start again: the verdict must be right each time."""
    chance = random.Random(str(ground.folder))  # noqa: S311 - moments, no secrets
    for _ in range(count):
        with Besieged(ground, start) as daemon:
            # What was remembered makes the verdict right before anything is probed.
            _until_worker(daemon)
            time.sleep(chance.uniform(0.0, 0.6))
            daemon.process.kill()
            daemon.process.wait()
            siege.must(not (left := after_death(ground)), left)
    with Besieged(ground, start) as daemon:
        siege.must(not (wrong := daemon.right()), f"after {count} kills: {wrong}")
        files = temporary(ground)
        daemon.stop()
    siege.must(
        len(files) <= 2, f"{len(files)} files and folders left in /tmp and the runtime folder: {files[:3]}"
    )
    siege.figure("files and folders left", len(files))
    siege.must(not (left := after_death(ground)), f"after its end: {left}")


@BOOK.attack("SIGKILL of the daemon, 50 times, while its probe's worker runs; it is started again each time")
def kill_parent(siege: Siege) -> None:
    count = (SHORT_KILLS if siege.short else KILLS) // AT_ONCE + 1
    with ThreadPoolExecutor(AT_ONCE) as pool, siege.ground() as one, siege.ground() as other:
        for done in [pool.submit(_kill_parents, siege, ground, count, WORKING) for ground in (one, other)]:
            done.result()
    siege.figure("kills", AT_ONCE * count)


def _kill_children(siege: Siege, daemon: Besieged, mark: bytes, count: int, after: float) -> None:
    """Kill each child of a kind, so many seconds after it is there."""
    killed, end = 0, time.monotonic() + 30 + 5 * count
    last = 0
    while killed < count and time.monotonic() < end:
        found = [pid for pid in children(daemon.pid, mark) if pid != last]
        if not found:
            time.sleep(0.02)
            continue
        last = found[0]
        time.sleep(after)
        with suppress(ProcessLookupError):
            os.kill(last, signal.SIGKILL)
            killed += 1
    siege.figure("kills", killed)
    siege.must(killed == count, f"only {killed} of {count} could be killed: no other came")


@BOOK.attack("SIGKILL of the process that talks to NVML, 50 times", short=True)
def kill_child(siege: Siege) -> None:
    # While it starts again nothing is known of the GPUs, for as long as a retry takes; that is said.
    siege.allowed, siege.gap = frozenset(f"{name}.blind" for name in BLIND), RETRY
    with siege.daemon() as daemon, siege.watched(daemon):
        _kill_children(siege, daemon, NVML, SHORT_KILLS if siege.short else KILLS, AT_WORK)
        _until_child(daemon)


@BOOK.attack("SIGKILL of the probe's worker, 50 times")
def kill_worker(siege: Siege) -> None:
    siege.allowed = frozenset({"probe.", "straggler."})
    with siege.daemon(WORKING) as daemon:
        before = _between_probes(daemon)
        with siege.watched(daemon):
            _kill_children(siege, daemon, WORKER, SHORT_KILLS if siege.short else KILLS, 0.1)
            _between_probes(daemon)
        siege.must(before, "no worker ever ended")


def _until_worker(daemon: Besieged) -> None:
    end = time.monotonic() + 30
    while not children(daemon.pid, WORKER):
        if time.monotonic() > end:
            raise SiegeError("no worker within 30 s")
        time.sleep(0.02)


def _until_child(daemon: Besieged) -> None:
    end = time.monotonic() + 60
    while not children(daemon.pid, NVML):
        if time.monotonic() > end:
            raise SiegeError("no process talks to NVML any more")
        time.sleep(0.1)


def _between_probes(daemon: Besieged) -> bool:
    """Wait until a worker has come and gone."""
    end, seen = time.monotonic() + 20, False
    while time.monotonic() < end:
        here = bool(children(daemon.pid, WORKER))
        if seen and not here:
            return True
        seen = seen or here
        time.sleep(0.02)
    return False


def _stop_early(ground: Ground, moment: float) -> tuple[int | None, float, str]:
    """SIGTERM so many seconds after the start: exit status, seconds that it took, what is left."""
    daemon = Besieged(ground)
    time.sleep(moment)
    code, took = daemon.stop(seconds=15.0)
    return code, took, after_death(ground)


@BOOK.attack("SIGTERM at a random moment of the first 2.5 s after the start, 50 times")
def sigterm(siege: Siege) -> None:
    chance = random.Random(19)  # noqa: S311 - moments, no secrets
    moments = [chance.uniform(0.02, 2.5) for _ in range(SHORT_STOPS if siege.short else STOPS)]
    with siege.ground() as ground, ThreadPoolExecutor(AT_ONCE) as pool:
        grounds = [Ground(ground.tree, ground.folder / f"{number}") for number in range(len(moments))]
        ends = [*pool.map(_stop_early, grounds, moments)]
    siege.figure("stops", len(ends))
    siege.most("slowest end", max(took for _, took, _ in ends), "s", STOPPED)
    # Before Python itself has begun, the kernel ends it by the signal.
    bad = [
        (f"{moment:.2f} s", code)
        for moment, (code, _, _) in zip(moments, ends, strict=True)
        if code not in {0, -15}
    ]
    siege.must(not bad, f"other exit statuses: {bad}")
    siege.must(not (left := [what for *_, what in ends if what]), f"left: {left}")


@BOOK.attack("SIGHUP and SIGPIPE while it runs, ten times each", short=True)
def signals(siege: Siege) -> None:
    harmless = (signal.SIGHUP, signal.SIGPIPE)
    with siege.daemon() as daemon, siege.watched(daemon):
        for number in harmless * 10:
            daemon.process.send_signal(number)
            time.sleep(0.1)
            if daemon.process.poll() is not None:
                raise SiegeError(f"{number.name} ended it: {daemon.process.returncode}")
