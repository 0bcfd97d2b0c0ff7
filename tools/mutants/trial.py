"""Mutants tried one after the other in a copy of the tree."""

import json
import os
import shutil
import subprocess
import sysconfig
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tools.mutants.bench import CANNOT
from tools.mutants.choice import Choice
from tools.mutants.site import Site

LIMIT = 240.0
"""Seconds for the tests of a mutant; a mutant that hangs them is noticed as well."""
_BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0", "RELEASE": "1"}
"""No plugins but those that are named: to import them takes twice as long as most tests."""
_PASSED = (0, 5)
"""Exit codes of pytest: all passed, and none was collected."""
_LINKED = (".venv-torch", "dashboards", "docs", "proof", "tools", "README.md", "CHANGELOG.md", "Dockerfile")
_COPIED = ("agent", "deploy", "helm", "tests", "pyproject.toml", "Makefile")
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "node_modules")


class End(Enum):
    """The end of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNTESTED = "no test reaches it"
    TIMEOUT = "killed by the time limit"
    ERROR = "not tried"


@dataclass(frozen=True, slots=True)
class Tried:
    """A mutant and its end. `by`: the test that failed, or the reason why it was not tried."""

    room: str
    site: Site
    end: End
    by: str
    seconds: float
    tests: int

    @property
    def dead(self) -> bool:
        return self.end in {End.KILLED, End.TIMEOUT}


class Copy:
    """A copy of the tree: sources and tests are files of its own, the rest are links.

    Its Python finds the copy's agent and this environment's packages, in each process that a test starts.
    """

    def __init__(self, root: Path, place: Path, choice: Choice) -> None:
        self._place, self._choice, self._writes = place, choice, 0
        self._well: set[str] = set()
        self._sick: list[str] = []
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name in _COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, place / name, ignore=_NOT_COPIED)
            elif (root / name).exists():
                shutil.copy2(root / name, place / name)
        for name in _LINKED:
            if (root / name).exists():
                (place / name).symlink_to(root / name)
        venv.EnvBuilder(symlinks=True).create(place / ".venv")
        (packages,) = (place / ".venv" / "lib").glob("python*/site-packages")
        (packages / "copy.pth").write_text(f"{place / 'agent'}\n{sysconfig.get_path('purelib')}\n", "utf-8")
        command = [str(place / ".venv/bin/python"), "-m", "tools.mutants.bench"]
        # For Pythons of other environments, in which this tree is installed.
        agent = {"PYTHONPATH": str(place / "agent")}
        environment = {**os.environ, **_BARE, **agent, "PYTHONDONTWRITEBYTECODE": ""}
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self._bench = subprocess.Popen(
            command, cwd=place, env=environment, stdin=pipe, stdout=pipe, stderr=nowhere, text=True
        )

    def try_one(self, room: str, site: Site) -> Tried:
        """Run the tests of a mutant with the mutant in place."""
        began, count = time.monotonic(), 0
        for tests in filter(None, self._choice.of(site)):
            code, name = self._noticed(site, tests)
            count += len(tests)
            if code not in _PASSED:
                return Tried(room, site, _end(code, name), name, time.monotonic() - began, count)
        return Tried(room, site, End.SURVIVED if count else End.UNTESTED, "", time.monotonic() - began, count)

    def _noticed(self, site: Site, tests: Sequence[str]) -> tuple[int | None, str]:
        """Run tests with the mutant; a test counts only if it passes without the mutant."""
        path = self._place / site.path
        before = path.read_bytes()
        while True:
            self._write(path, site.applied(before))
            try:
                code, name = self._run(tests)
            finally:
                self._write(path, before)
            if not name or code in _PASSED or name in self._well:
                return code, name
            if self._run([name.removesuffix(CANNOT)])[0] == 0:
                self._well.add(name)
                return code, name
            self._sick.append(name)

    def close(self) -> None:
        """End the process that runs the tests."""
        self._bench.communicate()

    def _write(self, path: Path, source: bytes) -> None:
        """Write a source with a time of its own: what Python compiled is then of another text.

        `make` would take C of such a time for built.
        """
        path.write_bytes(source)
        if path.suffix == ".c":
            shutil.rmtree(self._place / "build" / "tap", ignore_errors=True)
            return
        self._writes += 1
        os.utime(path, (self._writes, self._writes))

    def _run(self, tests: Sequence[str]) -> tuple[int | None, str]:
        assert self._bench.stdin
        assert self._bench.stdout
        sick = [f"--deselect={name}" for name in self._sick]
        self._bench.stdin.write(json.dumps({"tests": [*sick, *tests], "limit": LIMIT}) + "\n")
        self._bench.stdin.flush()
        code, name = json.loads(self._bench.stdout.readline())
        return code, name


def _end(code: int | None, name: str) -> End:
    if code is None:
        return End.TIMEOUT
    return End.KILLED if name else End.ERROR
