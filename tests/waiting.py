"""Waiting for what a look gives."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.patience import HANGS

T = TypeVar("T")


def until(
    what: str | Callable[[], str], look: Callable[[], T | None], seconds: float = HANGS, every: float = 0.3
) -> T:
    """What a look gives, once it gives something other than None and False.

    Raises:
        AssertionError: it does not within so many seconds; with `what`, such as a log as it is then, and
            the look's last own error.
    """
    end, last = time.monotonic() + seconds, ""
    while True:
        try:
            found = look()
            if found is not None and found is not False:
                return found
        except (LookupError, OSError) as error:
            last = f": {type(error).__name__} {error}"
        if time.monotonic() >= end:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds:.0f} s: {told}{last}")
        time.sleep(every)
