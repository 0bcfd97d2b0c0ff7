"""The place of a line that was read: its file, and its number there as `grep -n` counts it."""

from array import array
from bisect import bisect_right
from pathlib import PurePath

MOST = 1_000_000
"""Most places where both counts diverge; beyond them a number counts lines as read."""


class SourceLines:
    """Maps lines of consecutive files, as read, to the lines of each file.

    Container runtimes break lines, and carriage returns divide them, so both counts differ.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.firsts: list[int] = []
        self._read = array("Q")
        self._real = array("Q")

    def begin(self, name: str, read: int) -> None:
        """Begin a file whose first line has this number among all lines read."""
        self.names.append(name)
        self.firsts.append(read)
        self._add(read, 1)

    def note(self, read: int, real: int) -> None:
        """Record which line of the current file a line as read is."""
        if len(self._read) < MOST and self._real[-1] + read - self._read[-1] != real:
            self._add(read, real)

    def _add(self, read: int, real: int) -> None:
        self._read.append(read)
        self._real.append(real)

    def short(self, name: str) -> str:
        """Return a file's name without its folder, where the name is unique."""
        alike = [one for one in self.names if PurePath(one).name == PurePath(name).name]
        return PurePath(name).name if len(alike) <= 1 else name

    def number(self, read: int) -> int:
        """Return the number of a line in its own file."""
        at = bisect_right(self._read, read) - 1
        return self._real[at] + read - self._read[at] if at >= 0 else read

    def whole(self, read: int) -> str:
        """Return `nccl.log:17`."""
        at = bisect_right(self.firsts, read) - 1
        return f"{self.short(self.names[at]) if at >= 0 else 'input'}:{self.number(read)}"

    def brief(self, read: int) -> str:
        """Return the number alone where there is one file."""
        return self.whole(read) if len(self.names) > 1 else str(self.number(read))

    def named(self, read: int) -> str:
        """Return `line 17` where there is one file."""
        return self.whole(read) if len(self.names) > 1 else f"line {self.number(read)}"
