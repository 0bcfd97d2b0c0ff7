"""What `--gpus` adds to the gate: `python -m proof.bench.gategpus [--write]`.

The gate is asked without it and with it in turn, so that other work of the machine comes to both alike. The
processor time of a process says what it did; the time on the clock has the waits for its turn too.
"""

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proof.bench.gate import CORES, ROOT, SCRIPTS, SHELLS, Answer, ask
from tests.node.daemon.process import FAST, Daemon

PAGE = ROOT / "proof" / "bench" / "gategpus.md"
RECORDING = "demo-dgx-h200"
MANY = 500
"""Answers of each question."""
HEAD = (
    "| ms | answers | processor, median | p99 | on the clock, median | p99 | missed |\n"
    "| -- | -- | -- | -- | -- | -- | -- |"
)


@dataclass
class Spent:
    """Milliseconds of each answer: of the processor and on the clock; `missed`: other answers than OK."""

    processor: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    missed: int = 0

    def add(self, answer: Answer) -> None:
        self.clock.append(answer.clock * 1e3)
        self.processor.append(answer.processor * 1e3)
        own = "whole node counts" not in answer.text
        self.missed += not (answer.status == 0 and answer.text.startswith("OK") and own)

    def row(self) -> str:
        def p99(values: Sequence[float]) -> float:
            return sorted(values)[round(len(values) * 0.99) - 1]

        both = (self.processor, self.clock)
        shown = [value for one in both for value in (statistics.median(one), p99(one))]
        return " | ".join([str(len(self.clock)), *(f"{one:.1f}" for one in shown), str(self.missed)])


def questions(uuids: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Options of the gate, by what the row is called."""
    return {
        "the whole node": (),
        "`--gpus 0-3`": ("--gpus", "0-3"),
        "`--gpus` with four UUIDs": ("--gpus", ",".join(uuids[:4])),
        "`--gpus` with 1,000 names": ("--gpus", ",".join([*map(str, range(4))] * 250)),
        "`--without-gpus`": ("--without-gpus",),
    }


def measured(folder: Path, uuids: Sequence[str]) -> Mapping[str, Spent]:
    gate = [str(SCRIPTS / "gate.sh"), "--file", str(folder / "verdict"), "--recording"]
    shells = {name: words for name, words in SHELLS.items() if shutil.which(words[0])}
    asked = {
        f"{shell}: {name}": [*words, *gate, *options]
        for shell, words in shells.items()
        for name, options in questions(uuids).items()
    }
    found = {name: Spent() for name in asked}
    for _ in range(MANY):
        for name, command in asked.items():
            found[name].add(ask(command, folder / "said"))
    return found


def page(found: Mapping[str, Spent], load: float) -> str:
    rows = "\n".join(f"| {name} | {one.row()} |" for name, one in found.items())
    shells = dict.fromkeys(name.partition(":")[0] for name in found)
    medians = {name: statistics.median(one.processor) for name, one in found.items()}
    more = [medians[f"{shell}: `--gpus 0-3`"] - medians[f"{shell}: the whole node"] for shell in shells]
    return f"""\
# The gate for a job on some GPUs, measured

Written by `python -m proof.bench.gategpus --write`.
[verdict-file.md](../../docs/verdict-file.md) has what is read. The questions were asked in turn, so
that other work of the machine came to all alike. *missed* is every answer that was not OK, or was by
the whole node against the question.

The machine had {CORES} processors ({platform.machine()}, Linux {platform.release()}) and a load of
{load:.0f}. The agent played a recording of 8 GPUs.

`--gpus 0-3` adds {min(more):.1f} to {max(more):.1f} ms of processor time, by the shell.

{HEAD}
{rows}

[gate.md](gate.md) has the gate for the whole node on a machine with nothing else to do, and under a
load that is known.
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    write = parser.parse_args().write
    # In memory, as /run is.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        config = FAST.replace('socket = ""', f'socket = "{folder}/wirewatch.sock"')
        with Daemon(["--replay", RECORDING, "--loop"], folder, config) as daemon:
            daemon.wait("/health", '"health":"ok"')
            file = folder / "verdict-gpus"
            while not (file.exists() and "\nhealth ok\n" in file.read_text("ascii")):
                time.sleep(0.1)
            uuids = [line.split("/")[2] for line in file.read_text("ascii").splitlines() if "/gpu-" in line]
            found = measured(folder, uuids)
    text = page(found, os.getloadavg()[0])
    if write:
        PAGE.write_text(text, "utf-8")
    print(text)
    return int(any(one.missed for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
