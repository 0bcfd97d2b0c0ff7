"""How much of the GPUs' time probes may hold, and when the next one is due. Pure."""

import zlib
from collections.abc import Sequence

HOUR = 3600.0
Spent = tuple[tuple[float, float], ...]
"""When (monotonic seconds) and how many GPU-seconds."""


def spend(spent: Spent, mono: float, gpu_seconds: float) -> Spent:
    """The account with one probe more, what is over an hour old left out."""
    return (*((at, amount) for at, amount in spent if mono - at < HOUR), (mono, gpu_seconds))


def left(spent: Spent, mono: float, gpus: int, fraction: float) -> float:
    """GPU-seconds that may still be held within this hour."""
    return max(0.0, gpus * HOUR * fraction - spent_within(spent, mono))


def spent_within(spent: Spent, mono: float) -> float:
    """GPU-seconds held in the last hour."""
    return sum(amount for at, amount in spent if mono - at < HOUR)


def due(last: float, every: float, jitter: float, names: Sequence[str], count: int) -> float:
    """When (monotonic seconds) the next probe is due.

    `jitter`: part of `every` by which it may come earlier or later, drawn from the names of the node's GPUs
    and the number of the probe, so that nodes that were started together do not probe together.
    """
    return last + every * (1 + jitter * (2 * draw(names, count) - 1))


def draw(names: Sequence[str], count: int) -> float:
    """A number from 0 to 1 that is the same for the same names and count."""
    return zlib.crc32(" ".join((*names, str(count))).encode()) / 0xFFFFFFFF
