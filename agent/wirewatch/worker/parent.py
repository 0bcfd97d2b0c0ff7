"""No process outlives the one that started it."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable

WATCH = 0.5
"""Seconds between looks whether the parent still lives."""
_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG (linux/prctl.h)."""


def follow(parent: int, end: Callable[[], None]) -> None:
    """Have this process killed when its parent is gone.

    The kernel does it at once, also while we hang in a driver, when the thread that started us ends; but not
    where that was before it was asked to. So we look ourselves too, and call `end`.
    """
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent, end), daemon=True).start()


def _watch(parent: int, end: Callable[[], None]) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH)
    end()
