"""Nodes drawn as the rates that a probe would give; a fault is a part and what is left of its speed."""

from collections.abc import Mapping

from wirewatch.verdict.straggler.naming import StragglerWatch, fold_stragglers
from wirewatch.verdict.straggler.signals import (
    RateHistory,
    Resource,
    Signals,
    StragglerPolicy,
    Unit,
    learn,
)

POLICY = StragglerPolicy()
PRODUCTS, MEMORY, PAIR = 1 / 0.9e-3, 4.135e12, 389.7e9
"""What an H200 gives: matrix products and bytes per second."""
OFFSETS = (0.0, 0.012, -0.007, 0.018, -0.014, 0.004, -0.003, 0.009)
"""Healthy GPUs differ by a stable few per cent."""


def gpu(number: int) -> str:
    return f"GPU-{number}"


def probe(count: int, faults: Mapping[str, float] | None = None, scale: float = 1.0) -> Signals:
    """Rates of `count` GPUs on one switch; `faults`: what is left of a part's speed.

    Parts are `compute 1`, `memory 1`, `source 1`, `destination 1`, `pair 0>2`.
    """
    left = faults or {}
    rates: dict[Unit, float] = {}
    alike: dict[Unit, str] = {}
    for n in range(count):
        own = 1 + OFFSETS[n % len(OFFSETS)]
        rates[Unit(Resource.COMPUTE, gpu(n))] = scale * PRODUCTS * own * left.get(f"compute {n}", 1.0)
        rates[Unit(Resource.MEMORY, gpu(n))] = (
            scale * MEMORY * (1 + OFFSETS[n] / 3) * left.get(f"memory {n}", 1.0)
        )
        alike |= {Unit(resource, gpu(n)): "product" for resource in (Resource.COMPUTE, Resource.MEMORY)}
        for m in range(count):
            if m != n:
                unit = Unit(Resource.PAIR, gpu(n), gpu(m))
                ends = (left.get(f"source {n}", 1.0), left.get(f"destination {m}", 1.0))
                rates[unit] = scale * PAIR * min(*ends, left.get(f"pair {n}>{m}", 1.0))
                alike[unit] = "switch"
    return Signals("kind", rates, alike)


def history(count: int, probes: int = 12) -> RateHistory:
    """That of a node that was well."""
    references = RateHistory()
    for number in range(probes):
        references = learn(references, probe(count), 600.0 * number)
    return references


def told(unit: Unit) -> str:
    """`compute 1`, `pair 0>2`."""
    name = f"{unit.resource.value} {unit.uuid.removeprefix('GPU-')}"
    return f"{name}>{unit.peer.removeprefix('GPU-')}" if unit.peer else name


def watched(looks: list[Signals], references: RateHistory | None = None) -> StragglerWatch:
    """After these probes, ten minutes apart."""
    watch = StragglerWatch(references or RateHistory())
    for number, signals in enumerate(looks):
        watch = fold_stragglers(watch, signals, 600.0 * number, POLICY, accepted=True)
    return watch
