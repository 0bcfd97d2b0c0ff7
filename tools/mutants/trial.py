"""Mutants tried one after the other in a copy of the tree below build/."""

import json
import os
import shutil
import subprocess
import sysconfig
import time
import venv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tools.mutants.catalogue import Mutant, Placed

LIMIT = 60.0
"""Seconds for the tests of one mutant; one that hangs them is noticed as well."""
BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""No plugins but those that are named: to import them takes twice as long as most tests."""
_FAILED, _BROKEN = 1, 2
"""Exit codes of pytest: a test failed; a module of tests could not be imported."""
_LINKED = ("dashboards", "docs", "proof", "tools", "README.md", "Dockerfile", "Makefile")
_COPIED = ("agent", "deploy", "helm", "tests", "pyproject.toml")
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "node_modules")


class End(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMEOUT = "killed by the time limit"
    ERROR = "not tried"


@dataclass(frozen=True, slots=True)
class Tried:
    """`why`: the test that failed, or what kept the mutant from being tried; `seconds` with all imports."""

    mutant: Mutant
    end: End
    why: str
    seconds: float

    @property
    def dead(self) -> bool:
        return self.end in {End.KILLED, End.TIMEOUT}


def note(path: Path, one: Tried) -> None:
    """Add what became of a mutant to a file, a line of JSON each."""
    line = {"mutant": _key(one.mutant), "end": one.end.name, "why": one.why, "seconds": one.seconds}
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(line)}\n")


def noted(path: Path, mutants: Sequence[Mutant]) -> list[Tried]:
    """The newest note on each mutant as it is now; one without is not tried."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    notes = {note["mutant"]: note for note in map(json.loads, lines)}
    found = [(one, notes.get(_key(one))) for one in mutants]
    return [
        Tried(one, End[note["end"]], note["why"], note["seconds"]) if note else Tried(one, End.ERROR, "", 0.0)
        for one, note in found
    ]


def _key(mutant: Mutant) -> str:
    return "|".join((mutant.id, mutant.find, mutant.put, *mutant.tests))


class Copy:
    """A copy of the tree: sources and tests are files of its own, the rest are links.

    Its Python finds the copy's agent and the packages of ours, in every process that tests start too,
    whatever environment they give it.
    """

    def __init__(self, root: Path, place: Path) -> None:
        self._place = place
        self._writes = 0
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

    def healthy(self, tests: Iterable[Path]) -> str:
        """The end of pytest's output where a test fails without any mutant; empty where all pass."""
        code, output = self._run(sorted(set(tests)), ("--maxfail=5",), 20 * LIMIT)
        return "" if code == 0 else output[-2000:]

    def try_one(self, one: Placed) -> Tried:
        """Run the tests of a mutant with the mutant in place."""
        path, began = self._place / one.path, time.monotonic()
        before = path.read_text("utf-8")
        self._write(path, one.text)
        try:
            code, output = self._run(one.tests, ("-x",), LIMIT)
        except subprocess.TimeoutExpired:
            return Tried(one.mutant, End.TIMEOUT, f"after {LIMIT:g} s", time.monotonic() - began)
        finally:
            self._write(path, before)
        seconds = time.monotonic() - began
        if code == 0:
            return Tried(one.mutant, End.SURVIVED, "", seconds)
        if code in {_FAILED, _BROKEN}:
            return Tried(one.mutant, End.KILLED, _first_failure(output), seconds)
        return Tried(one.mutant, End.ERROR, f"pytest ended with {code}: {output[-300:]!r}", seconds)

    def _write(self, path: Path, text: str) -> None:
        """Each with a time of its own, so that Python knows what it compiled as of another text."""
        path.write_text(text, "utf-8")
        self._writes += 1
        os.utime(path, (self._writes, self._writes))

    def _run(self, tests: Sequence[Path], options: Sequence[str], limit: float) -> tuple[int, str]:
        plugins = ("-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0")
        python = self._place / ".venv" / "bin" / "python"
        ran = subprocess.run(
            [python, "-m", "pytest", "-q", "--tb=no", *plugins, *options, *map(str, tests)],
            cwd=self._place, env={**os.environ, **BARE},
            capture_output=True, text=True, timeout=limit, check=False,
        )  # fmt: skip
        return ran.returncode, ran.stdout + ran.stderr


def _first_failure(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].partition(" ")[2].partition(" - ")[0] if lines else "pytest"
