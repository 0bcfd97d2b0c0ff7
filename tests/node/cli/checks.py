"""`wirewatch check` as a process."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.node.cli.schemas import complaints
from tests.patience import HANGS
from tests.processes import Process, run_wirewatch

COMMAND = (sys.executable, "-m", "wirewatch", "check")
NOWHERE = ("--socket", "/nonexistent/wirewatch.sock")


@dataclass(frozen=True)
class Checked:
    """What came of it."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        (line,) = self.out.splitlines()
        return line

    @property
    def document(self) -> dict[str, Any]:
        """With `--json`: the document, which is as its schema says."""
        assert complaints("wirewatch.check.1", self.out) == []
        document: dict[str, Any] = json.loads(self.out)
        return document


def check(*arguments: str, **environment: str) -> Checked:
    done = run_wirewatch("check", *arguments, env={**os.environ, **environment})
    return Checked(done.returncode, done.stdout, done.stderr)


def check_machine(recording: str, changes: tuple[str, ...], *arguments: str) -> Checked:
    """A check without a daemon on a machine that is this recording, in real time."""
    words = ("tests.node.cli.unplayed", recording, changes[1], "check", *NOWHERE, *arguments)
    with Process(words, subprocess.PIPE, subprocess.PIPE) as process:
        out, err = process.communicate(HANGS)
    return Checked(process.wait(), out, err)


def overlay(folder: Path, *changes: tuple[str, str, str]) -> tuple[str, ...]:
    """Options for changes of port, question and action."""
    file = folder / "overlay.toml"
    text = "\n".join(
        f'[[change]]\nport = "{port}"\nmatch = "{match}"\n{action}' for port, match, action in changes
    )
    file.write_text(text, "utf-8")
    return ("--overlay", str(file))


def noted(notes: list[Any], note: Any, answer: Any = None) -> Any:
    """Keep a note of a call, and return its answer."""
    notes.append(note)
    return answer
