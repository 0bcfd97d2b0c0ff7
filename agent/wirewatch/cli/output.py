"""Text for people; parts of it come from kernel logs and recordings, and are made harmless."""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click

from wirewatch.cli.groups import is_terminal
from wirewatch.core.words import each_text, printable

WIDTH = 110
"""Most characters of a line: a longer line is hard to read."""
COLOURS: Mapping[str, Mapping[str, Any]] = {
    "ok": {"fg": "green"}, "degraded": {"fg": "yellow"}, "unknown": {"fg": "magenta"},
    "failed": {"fg": "red", "bold": True}, "head": {"bold": True}, "quiet": {"dim": True},
}  # fmt: skip
"""The colours of `top`."""


def shown(lines: Iterable[str]) -> str:
    """The lines as one text, each of them printable."""
    return "\n".join(map(printable, lines))


def harmless(value: Any, cleaned: Callable[[str], str] = printable) -> Any:
    """Return a value of JSON with each text on one line, and printable or otherwise `cleaned`."""
    return each_text(value, lambda text: cleaned(" ".join(text.split())))


def terminal_width() -> int:
    """Return the characters of the terminal's line, but at most WIDTH; 80 without a terminal."""
    return min(get_terminal_size().columns, WIDTH)


def coloured(text: str, health: str) -> str:
    """The text in the colour of a health, for standard output; plain where that is no terminal, or NO_COLOR.

    See https://no-color.org: any value of NO_COLOR but an empty one counts.
    """
    plain = not is_terminal(sys.stdout) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or health not in COLOURS else click.style(text, **COLOURS[health])


def write_whole(path: Path, text: str) -> None:
    """Replace a file of this name in one step; OSError where it cannot be written."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, "utf-8")
    new.replace(path)


def log_as_daemon() -> None:
    """Log as a daemon does: its log is all that is known of it."""
    root = logging.getLogger()
    root.setLevel(min(root.level, logging.INFO))
