"""Process groups, as tests that start workers look at them."""

import time
from contextlib import suppress
from pathlib import Path

from tests.patience import HANGS


def living(group: int) -> set[int]:
    """Processes of a group, but for those that only wait to be taken off the list."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name before the last parenthesis may hold anything.
            state, _, its_group, *_ = stat.read_text("utf-8").rpartition(")")[2].split()
            if int(its_group) == group and state not in "ZX":
                found.add(int(stat.parent.name))
    return found


def dies(group: int, seconds: float = HANGS) -> bool:
    """Whether nothing of a process group lives after so long."""
    end = time.monotonic() + seconds
    while living(group):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
