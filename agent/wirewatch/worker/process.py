"""The worker's processes: ranks by fork, which never outlive their parent."""

import ctypes
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable

WATCH = 0.5
"""Seconds between two checks whether the parent still lives."""
_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG (linux/prctl.h)."""
PARTING = 2.0
"""Seconds that the others may take to end, once all is measured."""
NOTICE = 2.0
"""Seconds in which an engine may notice by itself that a rank is gone."""
_POLL = 0.005


def follow(parent: int, end: Callable[[], None]) -> None:
    """Have this process killed when its parent is gone.

    The kernel does it when the thread that started us ends, also while we hang in a driver; but not if it
    ended before. So a thread checks too, and calls `end`.
    """
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        end()

    threading.Thread(target=watch, daemon=True).start()


def fork_ranks(count: int) -> int:
    """Become `count` processes and return each its rank, 0 for the caller; OSError for too many."""
    leader = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    for rank in range(1, count):
        with warnings.catch_warnings():
            # Our only other thread sleeps and holds nothing, which is what Python warns of.
            warnings.simplefilter("ignore", DeprecationWarning)
            forked = os.fork()
        if forked == 0:
            _take_part(leader)
            return rank
    return 0


def watch_ranks(lost: Callable[[str], None]) -> None:
    """Call `lost` in a thread, `NOTICE` seconds after a rank ended badly, for which the others wait."""
    threading.Thread(target=_await_ranks, args=(lost,), daemon=True).start()


def part() -> None:
    """Wait until the others, if any, have ended, so that what they used is counted."""
    late = time.monotonic() + PARTING
    while time.monotonic() < late:
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        time.sleep(_POLL)


def _await_ranks(lost: Callable[[str], None]) -> None:
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        if status:
            time.sleep(NOTICE)
            killed = os.WIFSIGNALED(status) and signal.Signals(os.WTERMSIG(status)).name
            how = f"by {killed}" if killed else f"with status {os.WEXITSTATUS(status)}"
            lost(f"the process of a rank, {pid}, ended {how}")


def _take_part(leader: int) -> None:
    try:
        # This process alone: the one that started the leader may share its group.
        follow(leader, lambda: os.kill(os.getpid(), signal.SIGKILL))
    except (RuntimeError, OSError):
        # As an error of the engine it would be reported a second time, beside the leader's.
        os._exit(1)
