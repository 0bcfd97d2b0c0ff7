"""The golden texts of the lab: what its commands print, word for word, for the questions that stand there.

A line `$ wirewatch ...` in a file of this folder is a question, and what follows it is the answer. After a
change that was meant, or to add a question: `make generated`, and read the difference before committing it.
"""

import io
import os
import re
import shlex
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab.advice import timetable
from tests.lab.goldens.files import FILES
from tests.support import EPOCH
from wirewatch import cli
from wirewatch.core import words

HERE = Path(__file__).parent
PROMPT = "$ wirewatch "
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")


def made() -> Mapping[Path, str]:
    """Every golden text by its path."""
    texts = {path: "".join(map(answer, answers(path))) for path in sorted(HERE.glob("*.txt"))}
    return {**texts, timetable.HERE: timetable.text()}


def answers(path: Path) -> Mapping[str, str]:
    """Return the questions of a golden text, each with itself and its answer as they stand there."""
    found: dict[str, str] = {}
    question = ""
    for line in path.read_text("utf-8").splitlines(keepends=True):
        if line.startswith(PROMPT):
            question = line.removeprefix(PROMPT).strip()
        found[question] = found.get(question, "") + line
    return found


def answer(question: str) -> str:
    """Return a question with both outputs and the exit code of the command, run here beside the files."""
    raw = io.BytesIO()
    said = io.TextIOWrapper(raw, "utf-8", write_through=True)
    with chdir(_keep().name), redirect_stdout(said), redirect_stderr(said):
        code = cli.run(shlex.split(question))
    text = _TIME.sub(_unless_of_a_file, raw.getvalue().decode())
    text = "\n".join(line.rstrip() for line in text.splitlines())
    return f"{PROMPT}{question}\n{text}\n[ends with {code}]\n"


def _unless_of_a_file(found: re.Match[str]) -> str:
    """Return a time of the files as it is, and another time, which is that of the answer, as a word."""
    return found[0] if found[0] == words.utc(EPOCH) else "NOW"


@cache
def _keep() -> "TemporaryDirectory[str]":
    """Return the folder with the files, all of the same time, which some answers have."""
    folder = TemporaryDirectory()
    for name, text in FILES.items():
        path = Path(folder.name) / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.utime(path, (EPOCH, EPOCH))
    return folder
