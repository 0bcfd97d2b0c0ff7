"""How long `wirewatch check` takes, from the start of its process to its exit: `python -m proof.bench.check`.

With a daemon that answers: 200 times on an idle machine, and with a busy loop on every core. With one that
does not: the answer must come by the deadline, here the default of 3 s. Its own look is at this machine; on
one without GPUs that costs its imports and little else.
"""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.node.cli.replies import health, holding, reply, replying, server
from tests.node.daemon.process import Daemon

DEADLINE = 3.0
MANY, FEW = 200, 6
CORES = len(os.sched_getaffinity(0))
WHOLE = json.dumps(health(0.0)).encode()
Sockets = dict[str, str]


class Bench:
    """Runs of the command, installed as users have it: compiled once, started by its own name."""

    def __init__(self, folder: Path) -> None:
        script = Path(sys.executable).with_name("wirewatch")
        self.command = [str(script)] if script.exists() else [sys.executable, "-m", "wirewatch"]
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environment = {**kept, "PYTHONPYCACHEPREFIX": str(folder / "cache")}
        self.late = 0

    def run(self, *options: str) -> float:
        """Milliseconds of one."""
        began = time.perf_counter()
        subprocess.run(
            [*self.command, "check", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=self._environment, check=False,
        )  # fmt: skip
        return (time.perf_counter() - began) * 1e3

    def measure(self, name: str, count: int, *options: str) -> None:
        self.run(*options)
        times = sorted(self.run(*options) for _ in range(count))
        p95 = times[max(0, round(count * 0.95) - 1)]
        self.late += sum(ms > DEADLINE * 1e3 for ms in times)
        shown = (statistics.median(times), p95, times[0], times[-1])
        print(f"{name:<44}{count:>5}" + "".join(f"{ms:>9.0f}" for ms in shown), flush=True)


@contextmanager
def busy() -> Iterator[None]:
    """A loop on every core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(CORES)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def silent_sockets(folder: Path, stack: ExitStack) -> Sockets:
    """Sockets by what is wrong with whoever listens there."""
    dead = folder / "dead.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(dead))
    half = reply(WHOLE)[: len(WHOLE) // 2]
    stale = replying(reply(WHOLE))
    made = {"accepts, never answers": holding(), "answers half": holding(half), "is stale": stale}
    found = {"is not there": str(folder / "none.sock"), "is dead, its socket left": str(dead)}
    for number, (name, behave) in enumerate(made.items()):
        place = folder / str(number)
        place.mkdir()
        found[name] = stack.enter_context(server(place, behave))
    return found


def answering(bench: Bench, path: str) -> None:
    bench.measure("daemon answers", MANY, "--socket", path)
    with busy():
        bench.measure("daemon answers, every core busy", MANY, "--socket", path)


def not_answering(bench: Bench, sockets: Sockets) -> None:
    for name, path in sockets.items():
        bench.measure(f"daemon {name}: own look", FEW, "--socket", path)
        bench.measure(f"daemon {name}: --cached", FEW, "--socket", path, "--cached")
    with busy():
        for name, path in sockets.items():
            bench.measure(f"daemon {name}: own look, busy", FEW, "--socket", path)


def main() -> int:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        bench, path = Bench(folder), folder / "wirewatch.sock"
        print(f"{f'check, {CORES} cores, ms':<44}{'runs':>5}{'median':>9}{'p95':>9}{'min':>9}{'max':>9}")
        config = f'[listen]\nsocket = "{path}"\n'
        daemon = stack.enter_context(Daemon(["--replay", "demo-dgx-h200", "--loop"], folder, config))
        daemon.ready()
        answering(bench, str(path))
        daemon.process.send_signal(signal.SIGSTOP)
        not_answering(bench, {"is stopped": str(path), **silent_sockets(folder, stack)})
        bench.measure("own look at a recording of 8 GPUs", FEW, "--replay", "demo-dgx-h200")
    print(f"later than the deadline of {DEADLINE:g} s: {bench.late}")
    return 1 if bench.late else 0


if __name__ == "__main__":
    sys.exit(main())
