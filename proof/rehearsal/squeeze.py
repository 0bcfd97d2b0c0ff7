"""Time, squeezed: what takes minutes in service takes seconds here, by one function for everything.

Up to a quarter of an hour everything is `FACTOR` times as fast: polls, scrapes, confirmations, `for`. What is
longer is squeezed more and more, so that an hour, a day and a week still come one after another, in that
order, within minutes: each tenfold beyond the quarter is `DECADE` seconds more.
"""

import math

FACTOR = 15.0
"""A poll of 15 s is one of 1 s."""
KNEE = 900.0
DECADE = 45.0


def squeezed(seconds: float) -> float:
    """Seconds of a rehearsal for seconds in service. It only ever grows, and 0 stays 0."""
    if seconds <= KNEE:
        return seconds / FACTOR
    return KNEE / FACTOR + DECADE * math.log10(seconds / KNEE)
