"""`python -m tools.mutants.bench`: a process that has imported all packages once and forks for each mutant.

It reads a line of JSON for each trial and writes one with the end of it.
"""

import contextlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

_PACKAGES = (
    "pydantic", "fastapi", "uvicorn", "prometheus_client", "click.testing", "jinja2", "yaml", "psutil", "h11",
    "aiohttp", "kubernetes_asyncio", "json", "asyncio", "multiprocessing", "email", "bcrypt",
)  # fmt: skip
_QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider")
_OPTIONS = ("-q", "-x", "--tb=no", *_QUIET, "-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0")
CANNOT = " cannot be imported"
"""Said after the name of a test file."""


class _First:
    """A plugin that keeps the first test that fails."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.name = self.name or (report.nodeid if report.failed else "")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.name = self.name or (f"{report.nodeid}{CANNOT}" if report.failed else "")


def main() -> None:
    """Try what stdin asks for, until it ends."""
    for name in _PACKAGES:
        with contextlib.suppress(ImportError):
            import_module(name)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        answers.write(json.dumps(_tried(order["tests"], order["limit"])) + "\n")
        answers.flush()


def _tried(tests: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Run some tests in a fork; return pytest's exit code, None at the limit, and the first failure."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.close(reading)
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        first, code = _First(), 3
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(BaseException):
            code = int(pytest.main([*_OPTIONS, *tests], plugins=[first]))
        os.write(writing, json.dumps([code, first.name]).encode()[:4000])
        os._exit(0)
    os.close(writing)
    ended = _waited(child, limit)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        os.set_blocking(reading, False)
        answer = pipe.read() or b""
    return tuple(json.loads(answer)) if answer else (None if not ended else 3, "")


def _waited(child: int, limit: float) -> bool:
    """Wait for the end of a process, or for the limit."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    return False


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
