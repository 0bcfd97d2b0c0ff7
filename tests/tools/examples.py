"""Lines of help and hints, played where a user types them: beside a daemon, with the files that they name.

A place that no test may write to, such as /etc/wirewatch or /tmp, lies in the test's own folder, and a port
is any free one. A program of others is a stand-in that takes any words, and prints what it is given.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.patience import HANGS
from tests.processes import ROOT, TIMEOUT, Process

PLACES = re.compile(r"(?<![\w./])(/etc/wirewatch|/opt/wirewatch|/run/wirewatch|/tmp)(?=/)")
OTHERS = {
    "all_reduce_perf": 'cat "$HOME/all_reduce.txt"', "dot": "cat", "nvidia-smi": "true",
    "srun": '[ "$1" = --overlap ] && shift; exec "$@"',
}  # fmt: skip
"""Programs of others that stand in lines, and what stands for each."""
LASTING = frozenset({("serve",), ("demo",), ("prober",), ("fleet", "controller"), ("fleet", "simulate")})
"""Commands that go on until a signal ends them."""
_SHELL = re.compile(r"[|<>;&$*~]")
_LISTENS = re.compile(r"https?://\S+|listening at")


def stage(folder: Path, runtime: Path) -> dict[str, str]:
    """Lay out the files that lines name, and return the environment in which they are typed."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    ours = f'exec {shlex.quote(sys.executable)} -m wirewatch "$@"'
    for name, text in {**OTHERS, "wirewatch": ours}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (programs / name).chmod(0o755)
    for name in ("etc/wirewatch", "opt/wirewatch", "run/wirewatch", "tmp", ".cache/torch"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/wirewatch/wirewatch.toml").write_text('[probe]\nprobe_interval = "20m"\n', "utf-8")
    for source, names in FILES.items():
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / source, folder / name)
    path = f"{programs}:{os.environ['PATH']}"
    places = {"RUNTIME_DIRECTORY": str(runtime), "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    return {**os.environ, **places, "PATH": path, "COLUMNS": "200"}


def play(line: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Return exit code and whole output of a line; a command that lasts is ended once it listens."""
    text = PLACES.sub(lambda found: f"{folder}{found[1]}", line)
    text = re.sub(r"(--listen \S+):\d+", r"\1:0", text)
    words = shlex.split(text, comments=True)
    if words[0] == "wirewatch" and not _SHELL.search(text):
        if lasts(words):
            return _lasting(words, folder, environment)
        with Process(words, subprocess.PIPE, subprocess.PIPE, environment, folder) as process:
            out, err = process.communicate(TIMEOUT)
        return process.wait(), out + err
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", text], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=TIMEOUT, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def lasts(words: Iterable[str]) -> bool:
    """Whether a command goes on until it is ended."""
    plain = [one for one in list(words)[1:] if not one.startswith("-")]
    return not {"overlays", "recordings"} & set(plain) and any(
        tuple(plain[: len(one)]) == one for one in LASTING
    )


def _lasting(words: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    listen = [] if "--listen" in words or words[1] == "prober" else ["--listen", "127.0.0.1:0"]
    log, alone = folder / "lasting.log", {**environment, "RUNTIME_DIRECTORY": str(folder / "run/wirewatch")}
    with log.open("wb") as file, Process([*words, *listen], file, file, alone, folder) as process:
        end = time.monotonic() + HANGS
        while process.poll() is None and not _LISTENS.search(log.read_text("utf-8")):
            assert time.monotonic() < end, f"it does not listen: {log.read_text('utf-8')}"
            time.sleep(0.05)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        return process.wait(HANGS), log.read_text("utf-8")


FILES: Mapping[str, tuple[str, ...]] = {
    "docs/advice/nodes.toml": ("nodes.toml",),
    "tests/recorded/h200x8/nccl-tests_all_reduce.txt": (
        "all_reduce.txt",
        "before.txt",
        "after.txt",
    ),
    "tests/recorded/h200x8/nccl-tests_all_reduce_NCCL_DEBUG_rank0.txt": ("nccl.log",),
    "tests/recorded/h200x8/nccl_topo.xml": ("nccl_topo.xml",),
    "tests/fleet/pairs/hashed-uplinks.json": ("rounds.json",),
    **{
        f"tests/lab/study/flightdumps/healthy/comm_lib_trace_rank_{rank}": (
            f".cache/torch/comm_lib_trace_rank_{rank}",
        )
        for rank in range(4)
    },
}
"""Files of the repository, with the names by which lines know them."""
