"""How long the gate takes beside other work: `python -m proof.bench.gate [--write]`.

A daemon plays a recording and keeps its file. Asked are the gate, by each shell, Slurm's prolog as a whole,
and `wirewatch check --cached`: with nothing else to do, and with four busy loops on every core. Then the
daemon is stopped, and killed: how long its last word is believed.
"""

import argparse
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.node.daemon.process import FAST, Daemon
from wirewatch.documents.verdictfile import VALID
from wirewatch.probe.holds import HoldFolder

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "deploy" / "slurm"
PAGE = ROOT / "proof" / "bench" / "gate.md"
CORES = len(os.sched_getaffinity(0))
LOAD = 4
"""Busy loops on every core."""
MANY, FEW = 200, 50
LIMIT = 0.05
"""Seconds: p99 of the gate under that load."""
DEADLINE = 3.0
HEAD = "| ms | answers | median | p95 | p99 | longest | missed |\n| -- | -- | -- | -- | -- | -- | -- |"
SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"]}
CONF = """\
CHECK_OPTIONS=(--socket "{folder}/wirewatch.sock")
VERDICT={folder}/verdict
GATE_OPTIONS=(--recording)
RUN={folder}/locks
NODE=n1
LOGGER=/bin/false
"""
HOLDING = """\
HOLDS={holds}
SLURM_JOB_ID=7
SLURM_JOB_GPUS=0,1,2,3
"""
HELD = 8
"""Holds of other jobs."""


@dataclass
class Times:
    """Seconds from the start of a process to its end, one of each answer; `missed`: not OK, or none."""

    seconds: list[float] = field(default_factory=list)
    missed: int = 0

    def quantile(self, part: float) -> float:
        ranked = sorted(self.seconds)
        return ranked[min(len(ranked) - 1, round(len(ranked) * part))]

    def row(self) -> str:
        ms = [
            f"{one * 1e3:,.1f}"
            for one in (
                statistics.median(self.seconds),
                self.quantile(0.95),
                self.quantile(0.99),
                max(self.seconds),
            )
        ]
        return " | ".join([str(len(self.seconds)), *ms, str(self.missed)])


class Answer(NamedTuple):
    """How a process ended and what it printed, with its seconds on the clock and of the processor."""

    status: int
    text: str
    clock: float
    processor: float


def ask(command: list[str], said: Path) -> Answer:
    """Start a process without a shell or an interpreter of ours between, and wait for its end."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(said), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    began = time.perf_counter()
    child = os.posix_spawnp(command[0], command, {"PATH": os.environ["PATH"]}, file_actions=actions)
    _, status, used = os.wait4(child, 0)
    took = time.perf_counter() - began
    return Answer(status, said.read_text("utf-8"), took, used.ru_utime + used.ru_stime)


def answered(command: list[str], said: Path, wanted: str) -> tuple[float, bool]:
    """Seconds of an answer, and whether it said what it should, by the deadline."""
    one = ask(command, said)
    return one.clock, one.status == 0 and one.text.startswith(wanted) and one.clock < DEADLINE


@contextmanager
def busy() -> Iterator[list[int]]:
    """LOAD loops on every core; their process ids."""
    loop = [sys.executable, "-c", "while True: pass"]
    loops = [os.posix_spawn(loop[0], loop, os.environ) for _ in range(LOAD * CORES)]
    try:
        yield loops
    finally:
        for pid in loops:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def processor(pids: Sequence[int]) -> float:
    """Seconds of processor time that these processes have had."""
    ticks = [Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[11:13] for pid in pids]
    return sum(int(one) for both in ticks for one in both) / os.sysconf("SC_CLK_TCK")


def commands(folder: Path) -> Mapping[str, tuple[list[str], str, int]]:
    """By name: the command, how its answer begins, and how many are asked for."""
    gate = [str(SCRIPTS / "gate.sh"), "--file", str(folder / "verdict"), "--recording"]
    found = {
        f"the gate, {name}": ([*words, *gate], "OK", MANY)
        for name, words in SHELLS.items()
        if shutil.which(words[0])
    }
    scripts = folder / "slurm"
    shutil.copytree(SCRIPTS, scripts)
    (scripts / "wirewatch-slurm.conf").write_text(CONF.format(folder=folder), "utf-8")
    found["the prolog as a whole, a fit node"] = ([str(scripts / "prolog.sh")], "", MANY)
    found["the prolog with a hold"] = ([str(_holding(folder) / "prolog.sh")], "", MANY)
    check = Path(sys.executable).with_name("wirewatch")
    cached = ["check", "--cached", "--socket", str(folder / "wirewatch.sock")]
    found["`wirewatch check --cached`"] = ([str(check), *cached], "OK", FEW)
    found["a shell that does nothing (`dash -c :`)"] = (["dash", "-c", ":"], "", MANY)
    return found


def _holding(folder: Path) -> Path:
    """The scripts once more, for a job with GPUs and a folder of holds, with as many as a busy node has."""
    scripts, holds = folder / "holding", folder / "holds"
    shutil.copytree(SCRIPTS, scripts)
    conf = CONF.format(folder=folder) + HOLDING.format(holds=holds)
    (scripts / "wirewatch-slurm.conf").write_text(conf, "utf-8")
    holds.mkdir(mode=0o755)
    (holds / "lock").touch(mode=0o640)
    for job in range(HELD):
        HoldFolder(str(holds)).make(f"slurm:{100 + job}", 7200.0, None)
    return scripts


def measured(folder: Path, asked: Mapping[str, tuple[list[str], str, int]]) -> Mapping[str, Times]:
    found = {}
    for name, (command, wanted, count) in asked.items():
        times = found[name] = Times()
        answered(command, folder / "said", wanted)
        for _ in range(count):
            took, right = answered(command, folder / "said", wanted)
            times.seconds.append(took)
            times.missed += not right
        print(f"{name}: {times.row()}", flush=True)
    return found


def believed(folder: Path, end: Callable[[], None]) -> float:
    """Seconds from the end of the daemon until the gate does not say OK any more."""
    command = ["dash", str(SCRIPTS / "gate.sh"), "--file", str(folder / "verdict"), "--recording"]
    while not answered(command, folder / "said", "OK")[1]:
        time.sleep(0.1)
    end()
    began = time.monotonic()
    while answered(command, folder / "said", "OK")[1]:
        time.sleep(0.1)
    return time.monotonic() - began


def of_gate(times: Mapping[str, Times]) -> list[Times]:
    return [one for name, one in times.items() if name.startswith("the gate")]


def table(times: Mapping[str, Times]) -> str:
    rows = "\n".join(f"| {name} | {one.row()} |" for name, one in times.items())
    return f"{HEAD}\n{rows}"


def page(
    quiet: Mapping[str, Times], loaded: Mapping[str, Times], share: float, ends: Mapping[str, float]
) -> str:
    gates = of_gate(loaded)
    p99, missed = max(times.quantile(0.99) for times in gates), sum(times.missed for times in gates)
    last = "\n".join(f"| {name} | {seconds:.0f} s |" for name, seconds in ends.items())
    return f"""\
# The gate beside other work, measured

Written by `make gate-bench` on {CORES} processors ({platform.machine()}, Linux {platform.release()}).
[verdict-file.md](../../docs/verdict-file.md) has what is read. Milliseconds from the start of a process
to its end; *missed* is every answer that was not the daemon's OK, or came after {DEADLINE:g} s. The
agent that keeps the file plays a recording of 8 GPUs on the same processors, under the same load. The prolog
is that of [deploy/slurm](../../deploy/slurm/README.md); with a hold it is that of a job with four GPUs,
beside {HELD} holds of others, while no probe runs ([giving-way.md](../../docs/giving-way.md)).

## Every core busy at four times its load

{LOAD} loops on every core, which had {share:.0%} of the processors; the rest went to what was measured, to
the agent and to other work of the machine.

{table(loaded)}

The gate's p99 is {p99 * 1e3:.0f} ms at most (the limit is {LIMIT * 1e3:.0f} ms), and {missed} of
{sum(len(times.seconds) for times in gates)} answers were missed. The last row is what any process
takes on such a machine: the gate has little of its own to do, and for the rest waits for its turn.

## Nothing else to do

{table(quiet)}

## How long the last word of an agent is believed

| after | the gate says UNKNOWN |
| -- | -- |
{last}

A verdict is valid for {VALID} s, and is written every 5 s, or within a second of a change. Under systemd the
file goes with the service, however that ends.
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    write = parser.parse_args().write
    # In memory, as /run is.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        config = FAST.replace('socket = ""', f'socket = "{folder}/wirewatch.sock"')
        ends = {}
        with Daemon(["--replay", "demo-dgx-h200", "--loop"], folder, config) as daemon:
            asked = commands(folder)
            while not answered(next(iter(asked.values()))[0], folder / "said", "OK")[1]:
                time.sleep(0.1)
            quiet = measured(folder, asked)
            with busy() as loops:
                began, before = time.monotonic(), processor(loops)
                loaded = measured(folder, asked)
                share = (processor(loops) - before) / (time.monotonic() - began) / CORES
            ends["SIGSTOP: it hangs"] = believed(folder, lambda: daemon.process.send_signal(signal.SIGSTOP))
            daemon.process.send_signal(signal.SIGCONT)
            ends["SIGKILL, and nobody removes the file"] = believed(folder, daemon.process.kill)
    text = page(quiet, loaded, share, ends)
    if write:
        PAGE.write_text(text, "utf-8")
    print(text)
    return 1 if any(one.missed or one.quantile(0.99) > LIMIT for one in of_gate(loaded)) else 0


if __name__ == "__main__":
    sys.exit(main())
