"""The published methods beside which rounds of pairs stand, by pass and fail, on the same drawn fleets.

Bisecting is as NVIDIA's cluster-readiness-engine describes it (its ADR-055): groups of the root of N,
failing ones split in halves down to two, a node alone padded with one that is well, and each suspect with
a partner that is well. Pairs and re-pairs is as Google's cluster-health-scanner does: random pairs, then
each of a failing pair with one of a passing pair. Both pass at so much of the typical rate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.fleet.pairs.drawn import RATE, DrawnFleet

PASSES = 0.9
"""Of the typical rate; one published tolerance."""
MINUTES = 4.0
"""Of one test: the time that cluster-readiness-engine gives a job."""


@dataclass(frozen=True, slots=True)
class MethodRun:
    """What a method named, and what it took: rounds of tests at once, and nodes in all tests."""

    named: frozenset[str]
    rounds: int
    tests: int


def passes(fleet: DrawnFleet, names: Sequence[str]) -> bool:
    """A ring of these nodes: the least of its edges, each way round as NCCL's rings run, on all rails."""
    ring = zip(names, [*names[1:], names[0]], strict=True)
    least = min(min(fleet.direction(a, b)) for a, b in ring)
    return least >= PASSES * RATE * math.exp(-fleet.across)


def bisect(fleet: DrawnFleet, chance: Random) -> MethodRun:
    names = list(fleet.names)
    chance.shuffle(names)
    size = math.isqrt(len(names) - 1) + 1
    groups = [names[n : n + size] for n in range(0, len(names), size)]
    rounds, tests, good = 0, 0, ""
    suspects: list[str] = []
    while groups:
        rounds += 1
        tests += sum(map(len, groups))
        failed = []
        for group in groups:
            if passes(fleet, group):
                good = good or group[0]
            else:
                failed.append(group)
        groups = []
        for group in failed:
            if len(group) <= 2:
                suspects += group
            else:
                half = len(group) // 2
                groups += [_padded(part, good) for part in (group[:half], group[half:])]
    if not good:
        return MethodRun(frozenset(), rounds, tests)
    suspects = [one for one in dict.fromkeys(suspects) if one != good]
    named = frozenset(one for one in suspects if not passes(fleet, [one, good]))
    # With one partner that is known to be good, its tests come one after the other.
    return MethodRun(named, rounds + bool(suspects), tests + 2 * len(suspects))


def _padded(part: list[str], good: str) -> list[str]:
    return [*part, good] if len(part) == 1 and good and good not in part else part


def paired_again(fleet: DrawnFleet, chance: Random) -> MethodRun:
    names = list(fleet.names)
    chance.shuffle(names)
    pairs = [names[n : n + 2] for n in range(0, len(names) - 1, 2)]
    failed = [pair for pair in pairs if not passes(fleet, pair)]
    good = [name for pair in pairs if pair not in failed for name in pair]
    suspects = [name for pair in failed for name in pair]
    chance.shuffle(good)
    tried = list(zip(suspects, good, strict=False))
    named = frozenset(one for one, other in tried if not passes(fleet, [one, other]))
    return MethodRun(named, 2, 2 * len(pairs) + 2 * len(tried))
