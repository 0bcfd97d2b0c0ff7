"""A mutant: a place in a source file and the text that replaces it there."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """A small fault. `start` and `end` are offsets in bytes; `line` and `last` are lines, counted from 1.

    `kind` names the change; `where` names the function or class around it; `path` is relative to the root.
    """

    path: str
    line: int
    last: int
    where: str
    kind: str
    start: int
    end: int
    before: str
    put: str

    @property
    def key(self) -> str:
        """The name under which an explanation finds it: it outlives moves to another line or file."""
        return f"{self.where} {self.kind}: {one_line(self.before)} -> {one_line(self.put)}"

    def applied(self, source: bytes) -> bytes:
        """Return the source with the fault in it."""
        return source[: self.start] + self.put.encode() + source[self.end :]


def one_line(text: str) -> str:
    """Return the text with each run of whitespace as one space."""
    return " ".join(text.split())
