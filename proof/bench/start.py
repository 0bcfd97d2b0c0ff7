"""Measures the start of each command: `python -m proof.bench.start [--write] [--before PYTHON]`.

Each command runs beside a daemon that plays a recording. CPU seconds of user and system are
medians: other work of the machine takes no part in them. Modules are counted by `-X importtime`. `--before`
measures another checkout too, by its interpreter.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.node.daemon.process import FAST, Daemon

ROOT = Path(__file__).resolve().parents[2]
PAGE, DATA = ROOT / "proof" / "bench" / "start.md", ROOT / "proof" / "bench" / "start.json"
RUNS = 5
GOAL = 0.25
GROUPS = ("", "advise", "config", "findings", "fleet", "jobs", "topology")
HELPED = (
    *GROUPS, "check", "completion", "demo", "explain", "probe", "prober", "record", "release", "serve",
    "status", "top", "parse", "compare", "sweep", "advise cost", "advise bench-script", "advise gpu-nic",
    "advise nccl-env", "advise placement", "fleet controller", "fleet pairs", "fleet peer", "fleet probe",
    "fleet simulate", "fleet status", "fleet tell",
)  # fmt: skip
"""Commands whose help is asked for."""
ASKED = (
    "check --socket {folder}/w.sock", "status --socket {folder}/w.sock",
    "status --json --socket {folder}/w.sock",
    "findings list --socket {folder}/w.sock", "topology show --socket {folder}/w.sock",
    "topology diff --socket {folder}/w.sock", "top --once --socket {folder}/w.sock", "demo overlays",
    "demo recordings",
    "completion bash", "parse --op all_reduce {folder}/table",
    "advise cost --machine 8xH200 --model llama-3-70b --tp 8",
    "advise nccl-env --for inference --machine 8xH200", "advise bench-script --nodes 2",
)  # fmt: skip
"""Commands that are run; none of them reads the GPUs itself."""
TABLE = """\
# nThread 1 nGpus 8 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
# Using devices
{devices}
#       size         count   type redop root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
  1073741824     268435456  float   sum   -1   3900.0  275.32  481.81      0   3900.0  275.32  481.81      0
"""
DEVICE = "#  Rank  {0} Group  0 Pid  11111 on      node1 device  {0} [0000:{0}b:00] NVIDIA H200"


@dataclass(frozen=True, slots=True)
class Start:
    """A command with its exit code, the modules that it loads, and CPU seconds from its start to its end."""

    command: str
    code: int
    modules: int
    cpu_seconds: float


def every() -> tuple[str, ...]:
    return (*(f"{name} --help".strip() for name in HELPED), *ASKED)


@contextmanager
def beside_a_daemon() -> Iterator[Path]:
    """A folder with the socket of a daemon, and with a table of nccl-tests."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "table").write_text(TABLE.format(devices="\n".join(map(DEVICE.format, range(8)))), "utf-8")
        config = FAST.replace('socket = ""', f'socket = "{folder}/w.sock"')
        with Daemon(("--replay", "demo-dgx-h200", "--loop"), folder, config) as daemon:
            daemon.ready()
            daemon.wait("/health", '"health":"ok"')
            yield folder


def loaded(command: str, folder: Path, python: str = sys.executable) -> tuple[int, frozenset[str]]:
    """The exit code of a command, and the modules that it imports."""
    words = [python, "-X", "importtime", "-m", "wirewatch", *_words(command, folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return done.returncode, frozenset(line.rpartition("|")[2].strip() for line in lines[1:])


def measured(command: str, folder: Path, python: str = sys.executable) -> Start:
    code, modules = loaded(command, folder, python)
    spent = [_cpu([python, "-m", "wirewatch", *_words(command, folder)], folder) for _ in range(RUNS)]
    return Start(command, code, len(modules), round(statistics.median(spent), 3))


def _words(command: str, folder: Path) -> list[str]:
    return command.format(folder=folder).split()


def _cpu(words: Sequence[str], folder: Path) -> float:
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, capture_output=True, check=False, cwd=folder)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


def page(data: Mapping[str, list[Start]], about: str) -> str:
    before = {one.command: one for one in data["before"]}
    rows = "\n".join(
        f"| `{one.command.format(folder='DIR')}` | {_cells(before.get(one.command))} | {_cells(one)} |"
        for one in data["after"]
    )
    over = [f"`{one.command.format(folder='DIR')}`" for one in data["after"] if one.cpu_seconds > GOAL]
    return f"""# What the start of each command takes

Written by `python -m proof.bench.start --write` {about}. Seconds of CPU, user and
system, from the start of the process to its end: medians of {RUNS} runs. Modules are all that the
process imports. A daemon plays a recording in the same folder; no command here reads GPUs itself.
[start.json](start.json) has the numbers. tests/proof/test_start.py bounds the modules.

{len(over)} of {len(data["after"])} commands take more than {GOAL} s: {", ".join(over) or "none"}.

| command | before, CPU s | modules | now, CPU s | modules |
| -- | -- | -- | -- | -- |
{rows}
"""


def _cells(one: Start | None) -> str:
    return "| " if one is None else f"{one.cpu_seconds:.3f} | {one.modules}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)} and its data")
    parser.add_argument(
        "--before", help="the interpreter of another checkout, to be measured beside this one"
    )
    options = parser.parse_args()
    old = json.loads(DATA.read_text("utf-8"))["before"] if DATA.exists() else []
    data = {"before": [Start(**one) for one in old], "after": list[Start]()}
    with beside_a_daemon() as folder:
        if options.before:
            data["before"] = [measured(one, folder, options.before) for one in every()]
        data["after"] = [measured(one, folder) for one in every()]
    cores, python = len(os.sched_getaffinity(0)), platform.python_version()
    machine = f"{cores} processors ({platform.machine()}, Python {python})"
    text = page(data, f"on {machine}, with other work beside it")
    if options.write:
        kept = {name: [asdict(one) for one in rows] for name, rows in data.items()}
        date = datetime.now(UTC).date().isoformat()
        DATA.write_text(
            json.dumps({"date": date, "machine": machine, "runs": RUNS, **kept}, indent=1) + "\n", "utf-8"
        )
        PAGE.write_text(text, "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
