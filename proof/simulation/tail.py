"""False alarms that are too rare to be drawn: from the tail of the model, and the bound of what was counted.

Several of three probes must see the loss. Far out one large innovation does that: each later probe keeps
`RHO` of it, so it has to be 1 / RHO times the loss for two probes, and that squared for three. That several
large ones meet is rarer by orders of magnitude.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import islice
from random import Random

from proof.simulation.noise import RHO, ROBUST, ROBUST_3, Scales, series, survival, survival_3, units
from wirewatch.verdict.straggler.signals import Resource, StragglerPolicy

DAY = 144
"""Probes, one in ten minutes: of a node that is always idle."""
MILLION = 1e6


def begun(lost: float, scale: float, policy: StragglerPolicy) -> float:
    """The probability for each probe that a healthy unit begins to look as if it had lost so much."""
    return survival(_to_finding(lost, policy) / (scale / ROBUST))


def begun_failed(lost: float, scale: float, policy: StragglerPolicy) -> float:
    """The same for FAILED with this limit: one probe more sees it, or as many as for a finding twice it."""
    return survival(_to_failed(lost, policy) / (scale / ROBUST))


def false_degraded(count: int, scales: Scales, policy: StragglerPolicy) -> float:
    """Units of so many GPUs that are believed, falsely, to be slow: in 10^6 days of a node."""
    found = _units(count, scales, policy, policy.own)
    return DAY * MILLION * sum(begun(lost, scales[one], policy) for one, lost in found)


def false_failed(count: int, scales: Scales, policy: StragglerPolicy) -> float:
    """The same of units that are FAILED, falsely."""
    found = _units(count, scales, policy, policy.failed)
    return DAY * MILLION * sum(begun_failed(lost, scales[one], policy) for one, lost in found)


def heavier_failed(count: int, scales: Scales, policy: StragglerPolicy) -> float:
    """The same if the innovations of memory had three degrees of freedom."""
    found = [
        (one, lost) for one, lost in _units(count, scales, policy, policy.failed) if one is Resource.MEMORY
    ]
    more = sum(
        survival_3(_to_failed(lost, policy) / (scales[one] / ROBUST_3))
        - begun_failed(lost, scales[one], policy)
        for one, lost in found
    )
    return false_failed(count, scales, policy) + DAY * MILLION * more


def bound(count: int) -> float:
    """What nothing in so many probes allows, at 95 %: events in 10^6 days of a node."""
    return 3 / count * DAY * MILLION


def counted(
    lost: float, scale: float, probes: int, seed: int, policy: StragglerPolicy
) -> tuple[float, float]:  # fmt: skip
    """What `begun` and `begun_failed` estimate for this loss, by drawing a series and counting."""
    chance = Random(seed)  # noqa: S311 - the same each time
    limit, last = math.log1p(-lost), deque([0.0] * policy.among, policy.among)
    before, events = [False, False], [0, 0]
    for value in islice(series(chance, scale), probes):
        last.append(value)
        bad = sum(one <= limit for one in last)
        worse = sum(one <= 2 * limit for one in last)
        now = [bad >= policy.confirm, bad >= policy.sure or worse >= policy.confirm]
        events = [count + (new and not old) for count, new, old in zip(events, now, before, strict=True)]
        before = now
    return events[0] / probes, events[1] / probes


def _to_finding(lost: float, policy: StragglerPolicy) -> float:
    """The innovation of a logarithm that makes a finding of this loss."""
    return float(-math.log1p(-lost) / RHO ** (policy.confirm - 1))


def _to_failed(lost: float, policy: StragglerPolicy) -> float:
    longer = -math.log1p(-lost) / RHO ** (policy.sure - 1)
    return float(min(longer, 2 * _to_finding(lost, policy)))


def _units(
    count: int, scales: Scales, policy: StragglerPolicy, limit: float
) -> Iterator[tuple[Resource, float]]:  # fmt: skip
    """Each unit's resource, and the loss from which on it is slow by this limit and its noise."""
    for one in units(count):
        noise = max(policy.noise(one.resource), scales[one.resource])
        yield one.resource, max(limit, policy.score * noise)
