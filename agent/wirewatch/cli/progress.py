"""A line that shows the work under way and its time, on a terminal and nowhere else."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wirewatch.cli.groups import is_terminal

SOON, OFTEN = 1.0, 0.5
"""Seconds until anything is shown, and between two updates."""
_ERASE = "\r\x1b[K"


@contextmanager
def under_way(what: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error the work under way, with its seconds, until the block ends; then erase it.

    The block gets a function that changes the text. Nothing is written where standard error is no terminal
    that can erase a line, nor in the first second.
    """
    if not is_terminal(sys.stderr) or os.environ.get("TERM", "dumb") == "dumb":
        yield lambda _: None
        return
    shown = [what]
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(shown, ended), daemon=True)
    thread.start()
    try:
        yield lambda text: shown.__setitem__(0, text)
    finally:
        ended.set()
        thread.join(OFTEN)


def _show(shown: list[str], ended: threading.Event) -> None:
    began = time.monotonic()
    if ended.wait(SOON):
        return
    while not ended.is_set():
        sys.stderr.write(f"{_ERASE}{shown[0]}, {time.monotonic() - began:.0f} s")
        sys.stderr.flush()
        ended.wait(OFTEN)
    sys.stderr.write(_ERASE)
    sys.stderr.flush()
