"""Commands, waiting, and where things are."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"


def run(*command: str, seconds: float = 600, **environment: str) -> str:
    """Standard output of a command that must succeed."""
    done = attempt(*command, seconds=seconds, **environment)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def attempt(
    *command: str, seconds: float = 600, **environment: str
) -> "subprocess.CompletedProcess[str]":  # fmt: skip
    """A command that may fail."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, **environment},
    )


def mirror() -> tuple[str, ...]:
    """Where this machine has its packages from."""
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    if not sources.exists():
        return ()
    lines = sources.read_text("utf-8").splitlines()
    return tuple(line.split()[1] for line in lines if line.startswith("URIs:"))[:1]


def until(what: str, look: Callable[[], T | None], seconds: float = 60, every: float = 0.3) -> T:
    """What a look gives, once it gives something other than None and False.

    Raises:
        AssertionError: it does not within so many seconds; with `what` and the look's last own error.
    """
    end, last = time.monotonic() + seconds, ""
    while True:
        try:
            found = look()
            if found is not None and found is not False:
                return found
        except (LookupError, OSError) as error:
            last = f": {type(error).__name__} {error}"
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}{last}"
        time.sleep(every)
