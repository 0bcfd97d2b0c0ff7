"""How long tests wait: a deadline turns a hang into a failure, and says nothing about speed.

So each is long, and longer on a slow or busy machine: by `SLOWNESS`, which the first process of a run
measures for all. A test asserts no speed: figures are in `make bench`.
"""

import os
import subprocess
import sys
import time

_NAME = "WIREWATCH_TESTS_SLOWNESS"
_START = 0.015
"""Seconds in which a quiet machine starts and ends an empty interpreter."""


def _slowness() -> float:
    """How many times slower than a quiet one this machine is, by a start and by the load; at least 1."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    took = time.monotonic() - began
    return max(1.0, took / _START, os.getloadavg()[0] / (os.cpu_count() or 1))


if _NAME not in os.environ:
    os.environ[_NAME] = str(_slowness())
SLOWNESS = float(os.environ[_NAME])
HANGS = 60.0 * SLOWNESS
"""Seconds after which whatever a test waits for is called hung."""


def patient(quiet: float) -> float:
    """Seconds on this machine for what takes at most so many on a quiet one."""
    return quiet * SLOWNESS
