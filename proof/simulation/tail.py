"""False alarms that are too rare to be drawn: from the tail of the model, and the bound of what was counted.

Two of three probes must see the loss. Far out one large innovation does that: the next probe keeps `RHO` of
it, so it has to be 1 / RHO times the loss. That two large ones meet is rarer by orders of magnitude.
"""

import math
from collections import Counter, deque
from itertools import islice
from random import Random

from proof.simulation.noise import RHO, ROBUST, Scales, series, survival, units
from wirewatch.verdict.straggler.signals import StragglerPolicy

DAY = 144
"""Probes, one in ten minutes: of a node that is always idle."""
MILLION = 1e6


def begun(lost: float, scale: float) -> float:
    """The probability for each probe that a healthy unit begins to look as if it had lost so much."""
    return survival(-math.log1p(-lost) / RHO / (scale / ROBUST))


def false_alarms(count: int, scales: Scales, policy: StragglerPolicy, limit: float) -> float:
    """Units of so many GPUs that are believed, falsely, to have lost `limit`: in 10^6 days of a node."""
    found = Counter(one.resource for one in units(count))
    rate = 0.0
    for resource, number in found.items():
        noise = max(policy.noise(resource), scales[resource])
        rate += number * begun(max(limit, policy.score * noise), scales[resource])
    return rate * DAY * MILLION


def bound(count: int) -> float:
    """What nothing in so many probes allows, at 95 %: events in 10^6 days of a node."""
    return 3 / count * DAY * MILLION


def counted(lost: float, scale: float, probes: int, seed: int) -> float:
    """What `begun` estimates, by drawing a series."""
    chance = Random(seed)  # noqa: S311 - the same each time
    limit, last, events = math.log1p(-lost), deque([False] * 3, 3), 0
    for value in islice(series(chance, scale), probes):
        before = sum(last) >= 2
        last.append(value <= limit)
        events += sum(last) >= 2 and not before
    return events / probes
