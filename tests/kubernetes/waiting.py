"""Waiting for what a look gives."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(what: str, look: Callable[[], T | None], seconds: float = 60, every: float = 0.3) -> T:
    """What a look gives, once it gives something other than None and False.

    Raises:
        AssertionError: it does not within so many seconds; with `what` and the look's last own error.
    """
    end, last = time.monotonic() + seconds, ""
    while True:
        try:
            found = look()
            if found is not None and found is not False:
                return found
        except (LookupError, OSError) as error:
            last = f": {type(error).__name__} {error}"
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}{last}"
        time.sleep(every)
