"""Marks between the parts of a probe: whoever started us reads counters there, while nothing runs."""

import os
import sys
from collections.abc import Callable


def _nothing(_name: str) -> None:
    """For processes that only take part."""


def marker(fd: int, *, pauses: bool) -> Callable[[str], None]:
    """A function that writes a mark, a word a line, and waits for a line on standard input.

    Without `pauses` it does nothing.
    """
    if not pauses:
        return _nothing

    def mark(name: str) -> None:
        os.write(fd, f"{name}\n".encode())
        if not sys.stdin.readline():
            # Nobody is there any more to whom the result could matter.
            os._exit(1)

    return mark
