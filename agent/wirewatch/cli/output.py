"""What is printed for people; some of it others wrote, in a kernel's log or a recording that was sent."""

import logging
import sys
from collections.abc import Iterable

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _OneLine(logging.Formatter):
    """A message is one line: what it tells of others cannot begin another, nor command a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))


def shown(lines: Iterable[str]) -> str:
    """The lines as one text, with a space for whatever would move a terminal's cursor or begin a line."""
    return "\n".join(map(printable, lines))


def printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def log_to_stderr(*, verbose: bool) -> None:
    """To standard error as it is now."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(FORMAT))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
