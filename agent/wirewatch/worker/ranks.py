"""Processes that take part beside the one that leads: forked, in its process group, gone when it is gone."""

import os
import signal
import sys
import time
import warnings

from wirewatch.worker.parent import follow

PARTING = 2.0
"""Seconds that the others may take to end, once all is measured."""
_LOOK = 0.005


def fork_ranks(count: int) -> int:
    """Become `count` processes, and tell each its rank; 0 is the one that was there before.

    Raises:
        OSError: there may not be so many; those already made end with this process.
    """
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


def _take_part(leader: int) -> None:
    try:
        # Ourselves alone: whoever started the leader may share our process group.
        follow(leader, lambda: os.kill(os.getpid(), signal.SIGKILL))
    except (RuntimeError, OSError):
        # Who took this for an engine that cannot be loaded would tell so beside the leader.
        os._exit(1)


def part() -> None:
    """Wait until the others, if any, have ended, so that what they used is counted."""
    late = time.monotonic() + PARTING
    while time.monotonic() < late:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            time.sleep(_LOOK)
