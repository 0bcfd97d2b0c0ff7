"""What is printed for people; some of it others wrote, in a kernel's log or a recording that was sent."""

from collections.abc import Iterable


def shown(lines: Iterable[str]) -> str:
    """The lines as one text, with a space for whatever would move a terminal's cursor or begin a line."""
    return "\n".join(map(printable, lines))


def printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
