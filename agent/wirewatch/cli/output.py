"""Text for people and logs; parts of it come from kernel logs and recordings, and are made harmless."""

import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _OneLine(logging.Formatter):
    """One line a message: text from elsewhere cannot begin another line or command a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))


def shown(lines: Iterable[str]) -> str:
    """The lines as one text, each of them printable."""
    return "\n".join(map(printable, lines))


def printable(text: str) -> str:
    """The text with a space for each character that would begin a line or command a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def utc(at: float) -> str:
    """Unix seconds as a date and time in UTC; 0 is never."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else "never"


def log_to_stderr(*, verbose: bool) -> None:
    """Log to the present standard error; `verbose`: debug messages too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(FORMAT))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
