"""Files of the state folder: read with a limit, written whole or not at all, put aside."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from pydantic import ValidationError

_NAMES = 1000
"""So many names are tried for a file that is put aside."""


@dataclass(frozen=True, slots=True)
class Aside:
    """The name that a file has now, or in words why it has its own still; neither: there was none."""

    kept: Path | None = None
    wrong: str = ""

    def __str__(self) -> str:
        if self.wrong:
            return f"it cannot be moved out of the way: {self.wrong}"
        return f"kept as {self.kept}" if self.kept else ""


def content(path: Path, limit: int) -> bytes | str | None:
    """What a file holds, None where there is none, or in words why it cannot be read; `limit`: bytes."""
    try:
        mode = path.stat().st_mode
        # What is no file may never answer.
        if not S_ISREG(mode) and not S_ISDIR(mode):
            return "not a file"
        with path.open("rb") as file:
            text = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror or str(error)
    return text if len(text) <= limit else f"larger than {limit >> 20} MiB"


def reason(error: ValidationError) -> str:
    """The first thing that is wrong with a file's content, and where; the content is not repeated."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place + ': ' if place else ''}{first['msg']}"


def encoded(document: object) -> bytes:
    """JSON for machines and people."""
    # What is no Unicode in somebody's words must not keep everything from being written.
    return json.dumps(document, ensure_ascii=False, indent=1).encode(errors="replace")


def write(path: Path, text: bytes) -> str:
    """Replace the file; returns what went wrong in words, empty for nothing."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        return f"{path}: {error.strerror or error}"
    return ""


def put_aside(path: Path, at: float) -> Aside:
    """Give the file another name, with the Unix seconds `at`; a name that is taken is not used."""
    try:
        if not os.path.lexists(path):
            return Aside()
        for number in range(int(at), int(at) + _NAMES):
            name = path.with_name(f"{path.name}.corrupt-{number}")
            if not os.path.lexists(name):
                path.rename(name)
                return Aside(name)
    except OSError as error:
        return Aside(None, error.strerror or str(error))
    return Aside(None, f"{_NAMES} names are taken")
