"""Drawn probes: the logarithm of a rate is a stable offset of its unit plus noise that remembers.

The noise is a first-order autoregression whose innovations have Student's t distribution with four degrees of
freedom: now and then one that is many times the usual. All is drawn from the generator that is given.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from tests.node.verdict.straggler.nodes import MEMORY, PAIR, PRODUCTS, gpu
from wirewatch.verdict.straggler.signals import Resource, Signals, Unit

RHO = 0.5
"""Autocorrelation of a unit's noise from one probe to the next."""
FREEDOM = 4
"""Degrees of freedom. `student` and `survival` are closed forms of this one."""
ROBUST = 1.373
"""Robust spread of the noise for innovations of scale 1, from 2,000,000 draws."""
ROBUST_3 = 1.470
"""The same for innovations of three degrees of freedom, whose tail is `survival_3`."""
OFFSETS: Mapping[Resource, float] = {Resource.COMPUTE: 0.02, Resource.MEMORY: 0.005, Resource.PAIR: 0.008}
"""Standard deviations between healthy units of one node. Recorded on eight H200: products over 5.7 %, memory
over 1.4 %, 56 pairs over 3.7 % from the slowest to the fastest: 2.85 deviations for 8, 4.6 for 56."""
USUAL: Mapping[Resource, float] = {
    Resource.COMPUTE: PRODUCTS,
    Resource.MEMORY: MEMORY,
    Resource.PAIR: PAIR,
}
SETTLE = 8
"""Steps after which the first value is forgotten."""
Scales = Mapping[Resource, float]
"""Robust spread of the noise, as a part of the rate."""


def times(scales: Scales, factor: float) -> Scales:
    return {resource: factor * scale for resource, scale in scales.items()}


def student(chance: Random) -> float:
    """Of Student's t distribution, by its inverse."""
    part = chance.random() or 0.5
    root = math.sqrt(4 * part * (1 - part))
    if root >= 1:
        return 0.0
    return math.copysign(2 * math.sqrt(math.cos(math.acos(root) / 3) / root - 1), part - 0.5)


def survival(value: float) -> float:
    """The probability that one is above `value`, which is above 0; 3 / value^4 far out."""
    root = math.hypot(2, value)
    rest = 4 / (root * (root + value))
    return rest * rest * (3 - rest) / 4


def survival_3(value: float) -> float:
    """The same for three degrees of freedom; 1.1 / value^3 far out."""
    return (math.atan(math.sqrt(3) / value) - math.sqrt(3) * value / (3 + value * value)) / math.pi


def series(chance: Random, scale: float) -> Iterator[float]:
    """Noise without end, of this robust spread."""
    value, innovation = 0.0, scale / ROBUST
    for _ in range(SETTLE):
        value = RHO * value + innovation * student(chance)
    while True:
        value = RHO * value + innovation * student(chance)
        yield value


def units(count: int) -> Iterator[Unit]:
    """Those of so many GPUs on one switch."""
    for n in range(count):
        yield Unit(Resource.COMPUTE, gpu(n))
        yield Unit(Resource.MEMORY, gpu(n))
        yield from (Unit(Resource.PAIR, gpu(n), gpu(m)) for m in range(count) if m != n)


def probes(chance: Random, count: int, scales: Scales) -> Iterator[Signals]:
    """Probes of one healthy node without end; its offsets are drawn first."""
    every = tuple(units(count))
    usual = {one: USUAL[one.resource] * math.exp(chance.gauss(0.0, OFFSETS[one.resource])) for one in every}
    noise = {one: series(chance, scales[one.resource]) for one in every}
    alike = dict.fromkeys(every, "alike")
    while True:
        yield Signals("drawn", {one: rate * math.exp(next(noise[one])) for one, rate in usual.items()}, alike)


@dataclass(frozen=True, slots=True)
class Fault:
    """A unit and the part of its speed that it has lost; of a pair, or of a direction of a GPU to all."""

    unit: Unit
    lost: float

    def slows(self, one: Unit) -> bool:
        if self.unit.resource is Resource.SOURCE:
            return one.resource is Resource.PAIR and one.uuid == self.unit.uuid
        if self.unit.resource is Resource.DESTINATION:
            return one.resource is Resource.PAIR and one.peer == self.unit.uuid
        return one == self.unit


def slowed(told: Signals, fault: Fault) -> Signals:
    """What the probe would have given with this fault."""
    left = 1 - fault.lost
    rates = {one: rate * left if fault.slows(one) else rate for one, rate in told.rates.items()}
    return replace(told, rates=rates)
