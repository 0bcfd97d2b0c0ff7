"""Where logs go: standard error. Imported only by those that have something to log."""

import logging
import sys

from wirewatch.cli.shown import printable

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _OneLine(logging.Formatter):
    """A message is one line: what it tells of others cannot begin another, nor command a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))


def log_to_stderr(*, verbose: bool) -> None:
    """To standard error as it is now."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(FORMAT))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
