"""The gate that reads the daemon's file, run by each shell that is here, and files for it to read."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.patience import HANGS
from tests.release import ALL
from wirewatch.cli.check.daemon import file_verdict
from wirewatch.documents.state import HEALTH
from wirewatch.documents.verdictfile import OF_GPUS, FileVerdict, Stamp, encoded

GATE = Path(__file__).parents[3] / "deploy" / "slurm" / "gate.sh"
SHELLS: Mapping[str, Sequence[str]] = {
    "sh": ("sh",), "dash": ("dash",), "bash": ("bash",), "busybox": ("busybox", "sh"),
}  # fmt: skip
HERE = [name for name in ("dash", "bash", "busybox") if shutil.which(SHELLS[name][0])] or ["sh"]
"""Those that this machine has; tests/system needs all of them."""
SOCKET = "/run/wirewatch/wirewatch.sock"


def asked(*options: str) -> Sequence[str]:
    """Return the shells that are asked a question: all before a release, and for a change one, by turns."""
    return HERE if ALL else HERE[crc32("".join(options).encode()) % len(HERE) :][:1]


@dataclass(frozen=True)
class Gated:
    """What the gate said, and its exit status."""

    code: int
    line: str


def gate(file: Path, *options: str, shell: str = "sh", user: int | None = None) -> Gated:
    """Run it with the environment of slurmd, which is next to nothing, and nothing on standard error."""
    words = [*SHELLS[shell], str(GATE), "--file", str(file), *options]
    program = shutil.which(words[0])
    assert program, f"{words[0]} is missing: tests/system/packages installs it"
    done = subprocess.run(
        [program, *words[1:]], env={}, cwd="/", capture_output=True, text=True, check=False,
        timeout=HANGS, stdin=subprocess.DEVNULL, user=user,
    )  # fmt: skip
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    return Gated(done.returncode, line)


def now(age: float = 0.0) -> Stamp:
    """So many seconds ago, of this boot."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return Stamp(boot, float(Path("/proc/uptime").read_text("ascii").split()[0]) - age)


def verdict_of(document: Any, source: str = "live") -> FileVerdict:
    return file_verdict(HEALTH.validate_python(document), source, SOCKET)


def written(file: Path, document: Any, stamp: Stamp | None = None, source: str = "live") -> Path:
    """The file as the daemon leaves it after this document, and beside it that with the parts."""
    verdict, at = verdict_of(document, source), stamp or now()
    file.write_bytes(encoded(verdict, at))
    file.with_name(f"{file.name}{OF_GPUS}").write_bytes(encoded(verdict, at, gpus=True))
    return file
