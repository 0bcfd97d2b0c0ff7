"""What the scripts start, in our own words: programs that answer as nccl-tests and Slurm do."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.patience import HANGS
from wirewatch.core.probe import OPS
from wirewatch_lab.cli.advise.bench_script import BenchScript

SRUN = """\
#!/bin/bash
# Writes its words down, and ends as the test says.
printf '%s\\0' "$@" >> "$SAID"
echo "# Collective test starting"
exit "${SRUN_CODE:-0}"
"""
SCONTROL = """\
#!/bin/bash
echo node1
echo node2
"""


def program(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    file.chmod(0o755)
    return file


def nccl_tests(folder: Path) -> Path:
    """Programs of the three operations, which print what nccl-tests print."""
    there = Path(__file__).with_name("fakenccltests.py")
    for op in OPS:
        start = f'#!/bin/sh\nexec {sys.executable} {there} {op} "$@"\n'
        program(folder / f"{op}_perf", start)
    return folder


def script(**changes: object) -> BenchScript:
    """Two nodes with two GPUs each, one operation and one size, with `changes`."""
    given: dict[str, object] = {
        "launcher": "slurm", "nodes": 2, "gpus": 2, "ops": ("all_reduce",), "ranges": ((8, 8, 2),),
        "tests": "/opt/nccl-tests/build", "results": "results", "name": "nccl-tests", "image": "",
    }  # fmt: skip
    return BenchScript(**{**given, **changes})  # type: ignore[arg-type]


def run(text: str, folder: Path, **environment: str) -> tuple[int, list[str]]:
    """Run a Slurm script on a machine without Slurm; its exit code and all words that srun got."""
    program(folder / "bin" / "srun", SRUN)
    program(folder / "bin" / "scontrol", SCONTROL)
    said = folder / "said"
    said.unlink(missing_ok=True)
    slurm: Mapping[str, str] = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "SAID": str(said)}
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    done = subprocess.run(
        ["/bin/bash"], input=text.encode(), cwd=folder, check=False, capture_output=True, timeout=HANGS,
        env={**slurm, "PATH": path, "HOME": os.environ.get("HOME", "/"), **environment},
    )  # fmt: skip
    words = said.read_text("utf-8").split("\0")[:-1] if said.exists() else []
    return done.returncode, words
