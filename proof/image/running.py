"""A container of the image, run as hard as the chart runs it: nothing to write to, no capability."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from proof.containers import LIMITS, attempt, podman, run
from proof.image.builder import PLACE

HARD = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--no-healthcheck",
    *LIMITS,
)
NO_CAPABILITY = "0000000000000000"


class Container:
    """Runs while its block does; `more` are words for `podman run`, `words` for the image's entry point."""

    def __init__(self, image: str, more: Sequence[str], *words: str) -> None:
        self._started = (*podman(PLACE), "run", "--detach", *HARD, "--network", "host", *more)
        self._image, self._words = image, words
        self.name = f"wirewatch-image-{os.getpid()}-{time.monotonic_ns()}"

    def __enter__(self) -> Self:
        run(*self._started, "--name", self.name, self._image, *self._words)
        return self

    def __exit__(self, *_: object) -> None:
        run(*podman(PLACE), "rm", "--force", "--time", "1", self.name)

    def do(self, *command: str) -> str:
        """Standard output of a command in it that must succeed."""
        return run(*podman(PLACE), "exec", self.name, *command)

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        return attempt(*podman(PLACE), "exec", self.name, *command, seconds=120)

    def log(self) -> str:
        done = attempt(*podman(PLACE), "logs", self.name)
        return done.stdout + done.stderr

    def state(self) -> dict[str, Any]:
        """What podman says of its first process."""
        (told,) = json.loads(run(*podman(PLACE), "inspect", self.name))
        state = told["State"]
        assert isinstance(state, dict)
        return state

    def stop(self) -> tuple[float, int]:
        """Seconds until it ended on SIGTERM, and its exit status; after ten it would be killed, with 137."""
        began = time.monotonic()
        run(*podman(PLACE), "stop", "--time", "10", self.name)
        return time.monotonic() - began, int(self.state()["ExitCode"])

    def processes(self) -> dict[int, dict[str, str]]:
        """What /proc/PID/status says of every process in it, by the number that it has outside."""
        first = int(self.state()["Pid"])
        group = Path(f"/proc/{first}/cgroup").read_text("utf-8")
        found: dict[int, dict[str, str]] = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if (place / "cgroup").read_text("utf-8") == group:
                    found[int(place.name)] = status(int(place.name))
            except OSError:
                continue
        return found

    def most_memory(self) -> int:
        """Bytes that its memory cgroup held at most, what the kernel may drop at any time included."""
        first = int(self.state()["Pid"])
        for line in Path(f"/proc/{first}/cgroup").read_text("utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            if controllers == "memory":
                return int(Path(f"/sys/fs/cgroup/memory{path}/memory.max_usage_in_bytes").read_text("ascii"))
            if (number, controllers) == ("0", "") and Path(f"/sys/fs/cgroup{path}/memory.peak").exists():
                return int(Path(f"/sys/fs/cgroup{path}/memory.peak").read_text("ascii"))
        raise AssertionError("no memory cgroup")


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def resident(processes: dict[int, dict[str, str]]) -> int:
    """Bytes that processes have in memory for themselves, shared parts in their part (PSS)."""
    total = 0
    for pid in processes:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def get(port: int, path: str) -> tuple[int, str]:
    """Status and text; 0 when nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""
