"""Text for people; parts of it come from kernel logs and recordings, and are made harmless."""

from collections.abc import Iterable
from datetime import UTC, datetime


def shown(lines: Iterable[str]) -> str:
    """The lines as one text, each of them printable."""
    return "\n".join(map(printable, lines))


def printable(text: str) -> str:
    """The text with a space for each character that would begin a line or command a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def utc(at: float) -> str:
    """Unix seconds as a date and time in UTC; 0 is never."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else "never"
