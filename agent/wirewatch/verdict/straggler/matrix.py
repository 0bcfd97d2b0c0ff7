"""What makes the copies between GPUs slow: the ends and pairs that no shorter explanation does without.

A copy goes at the lowest of three rates: what its source sends, what its destination receives, and what lies
between the two. A direction of a GPU can only be slow when no pair in it is faster than it lets through; all
other sources together make every destination but one look slow, though. So an end is at fault only when every
explanation that takes the fewest ends and pairs has it. Where two ends explain the same equally well, the
pairs are slow, which is true, and neither GPU is named.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.core.statistics import high_median, low_median
from wirewatch.verdict.straggler.signals import (
    Deviation,
    Loss,
    Resource,
    StragglerPolicy,
    Unit,
)

ENDS = (Resource.SOURCE, Resource.DESTINATION)
FEW = 2
"""Pairs of a GPU in one direction, from which on that is more than one pair."""
ALIKE = 2.0
"""Standard deviations by which pairs of one slow end are apart, in their noise."""
UNSTEADY = 1.5
"""Largest over smallest loss of pairs that one cause slows: a load is not the same at each moment. Measured
between two GPUs, from one probe to the next: 1.5."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """`ends`: directions of GPUs beside what others explain; `pairs`: beside what the faulty ends explain.

    `faulty`: by end at fault the pairs that are slow by it. `undecided`: by pair the ends that would explain
    it as well as itself.
    """

    ends: Mapping[Unit, Deviation]
    pairs: Mapping[Unit, Deviation]
    faulty: Mapping[Unit, tuple[Unit, ...]]
    undecided: Mapping[Unit, tuple[Unit, ...]]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What an end lets through by its own history and by its peers: the part that all its pairs have lost.

    `own_rate` and `peers_rate`: the highest rate of them, 0 where that part is none that counts; a pair that
    is usually faster than the others loses more.
    """

    deviation: Deviation
    own_rate: float
    peers_rate: float

    def leaves(self, pair: Deviation) -> Deviation:
        """The pair beside what this end explains of it."""
        own, peers = self.deviation.own, self.deviation.peers
        return replace(
            pair,
            own=_beside(pair.own, own or peers, self.own_rate),
            peers=_beside(pair.peers, peers or own, self.peers_rate),
        )

    def lost(self, policy: StragglerPolicy) -> float:
        """The part of its speed that the end has lost."""
        return _lost(self.deviation, policy)

    def of(self, pairs: Sequence[Deviation], policy: StragglerPolicy) -> "Ceiling":
        """The same by the middle of the pairs that are slow by it."""
        middle = _middle(self.deviation.unit, pairs)
        return replace(self, deviation=middle) if middle.slow(policy) else self

    def explains(self, pair: Deviation, policy: StragglerPolicy) -> bool:
        """Whether the end may be all that is wrong with the pair."""
        return _lost(pair, policy) <= UNSTEADY * self.lost(policy) or not self.leaves(pair).slow(policy)


Causes = Mapping[Unit, Collection[Unit]]
"""By slow pair the ends that explain it."""


def explain(pairs: Iterable[Deviation], wires: Mapping[Unit, str], policy: StragglerPolicy) -> Matrix:
    """The shortest explanation of all slow pairs, for pairs of each kind of wire alone."""
    groups: dict[str, list[Deviation]] = {}
    for one in pairs:
        groups.setdefault(wires.get(one.unit, ""), []).append(one)
    return _together([_explained(ones, policy) for ones in groups.values()])


def end(pair: Unit, resource: Resource) -> str:
    """UUID of the GPU at this end of a pair: `SOURCE` sends, any other resource is the receiving end."""
    return pair.uuid if resource is Resource.SOURCE else pair.peer


def least_parts(causes: Causes) -> int:
    """The fewest ends and pairs that explain all slow pairs.

    So many slow pairs there are of which no two can have one end as their cause (Kőnig's theorem).
    """
    reached: dict[Unit, list[Unit]] = {}
    for pair, ends in causes.items():
        known = {one.resource: one for one in ends}
        source, destination = (known.get(resource, pair) for resource in ENDS)
        reached.setdefault(source, []).append(destination)
    taken: dict[Unit, Unit] = {}

    def placed(source: Unit, tried: set[Unit]) -> bool:
        for destination in reached[source]:
            if destination not in tried:
                tried.add(destination)
                if destination not in taken or placed(taken[destination], tried):
                    taken[destination] = source
                    return True
        return False

    return sum(placed(source, set()) for source in reached)


def _explained(pairs: Sequence[Deviation], policy: StragglerPolicy) -> Matrix:
    every = {
        Unit(resource, uuid): [one for one in pairs if end(one.unit, resource) == uuid]
        for resource in ENDS
        for uuid in dict.fromkeys(end(one.unit, resource) for one in pairs)
    }
    ceilings = {unit: _ceiling(unit, ones, policy) for unit, ones in every.items() if len(ones) >= FEW}
    able = {unit: one for unit, one in ceilings.items() if one.deviation.slow(policy)}
    causes = {one.unit: _causes(one, able, policy) for one in pairs if one.slow(policy)}
    fewest = least_parts(causes)
    found = {unit: one for unit, one in able.items() if least_parts(_without(causes, unit)) > fewest}
    slow_by: dict[Unit, list[Unit]] = {unit: [] for unit in found}
    for pair, ends in causes.items():
        if reasons := [unit for unit in ends if unit in found]:
            slow_by[max(reasons, key=lambda unit: found[unit].lost(policy))].append(pair)
    faulty = {
        unit: found[unit].of([one for one in every[unit] if one.unit in slow_by[unit]], policy)
        for unit in found
    }
    rest = {one.unit: _left(one, faulty, policy) for one in pairs}
    middles = {
        unit: _middle(unit, [rest[one.unit] for one in every[unit]])
        for unit in ceilings
        if unit not in faulty
    }
    return Matrix(
        middles | {unit: one.deviation for unit, one in faulty.items()},
        rest,
        {unit: tuple(ones) for unit, ones in slow_by.items()},
        {pair: tuple(ends) for pair, ends in causes.items() if ends and not set(ends) & faulty.keys()},
    )


def _together(tables: Iterable[Matrix]) -> Matrix:
    """Of an end that has several kinds of wire the one that is slow, or the slower one."""
    ends: dict[Unit, Deviation] = {}
    pairs: dict[Unit, Deviation] = {}
    faulty: dict[Unit, tuple[Unit, ...]] = {}
    undecided: dict[Unit, tuple[Unit, ...]] = {}
    for table in tables:
        for unit, one in table.ends.items():
            known = ends.get(unit)
            before, now = unit in faulty, unit in table.faulty
            if known is None or (now, one.score) > (before, known.score):
                ends[unit] = one
        for unit, ones in table.faulty.items():
            faulty[unit] = (*faulty.get(unit, ()), *ones)
        pairs |= table.pairs
        undecided |= table.undecided
    return Matrix(ends, pairs, faulty, undecided)


def _causes(pair: Deviation, able: Mapping[Unit, Ceiling], policy: StragglerPolicy) -> list[Unit]:
    return [unit for unit in _both(pair.unit) if unit in able and able[unit].explains(pair, policy)]


def _lost(one: Deviation, policy: StragglerPolicy) -> float:
    loss = one.decisive_loss(policy)
    return 0.0 if loss is None else loss.part


def _without(causes: Causes, unit: Unit) -> Causes:
    return {pair: [one for one in ends if one != unit] for pair, ends in causes.items()}


def _both(pair: Unit) -> tuple[Unit, Unit]:
    return Unit(Resource.SOURCE, pair.uuid), Unit(Resource.DESTINATION, pair.peer)


def _left(pair: Deviation, faulty: Mapping[Unit, Ceiling], policy: StragglerPolicy) -> Deviation:
    """The pair against what the slower of its ends lets through."""
    slow = [faulty[unit] for unit in _both(pair.unit) if unit in faulty]
    worst = max(slow, key=lambda one: one.lost(policy), default=None)
    return pair if worst is None else worst.leaves(pair)


def _ceiling(unit: Unit, ones: Sequence[Deviation], policy: StragglerPolicy) -> Ceiling:
    own, own_rate = _least(ones, lambda one: one.own, policy.own, policy)
    peers, peers_rate = _least(ones, lambda one: one.peers, policy.peers, policy)
    return Ceiling(_deviation(unit, ones, own, peers), own_rate, peers_rate)


def _least(
    ones: Sequence[Deviation], of: Callable[[Deviation], Loss | None], limit: float, policy: StragglerPolicy
) -> tuple[Loss | None, float]:
    """What all pairs of an end have lost, and the highest rate of them.

    A pair that is as it was, and no faster than the slow ones, tells nothing: more may not get through.
    """
    known = [loss for loss in map(of, ones) if loss is not None]
    if len(known) < FEW:
        return None, 0.0
    slow = [loss for loss in known if loss.breaks(limit, policy.score)]
    top = max((loss.rate for loss in slow), default=0.0)
    telling = [loss for loss in known if loss in slow or loss.rate > top * (1 + ALIKE * loss.noise)]
    least = min(telling, key=lambda loss: loss.part)
    near = [loss for loss in telling if loss.part <= least.part + ALIKE * least.noise]
    found = _of(low_median, near)
    return found, max(loss.rate for loss in telling) if found.breaks(limit, policy.score) else 0.0


def _beside(loss: Loss | None, explained: Loss | None, rate: float) -> Loss | None:
    if loss is None or explained is None:
        return loss
    return loss.beside(max(0.0, explained.part, 1 - rate / loss.usual if rate else 0.0))


def _middle(unit: Unit, ones: Sequence[Deviation]) -> Deviation:
    """An end by the middle of these pairs."""
    own = [one.own for one in ones if one.own is not None]
    peers = [one.peers for one in ones if one.peers is not None]
    whole = (_of(low_median, losses) if len(losses) == len(ones) else None for losses in (own, peers))
    return _deviation(unit, ones, *whole)


def _deviation(unit: Unit, ones: Sequence[Deviation], own: Loss | None, peers: Loss | None) -> Deviation:
    return Deviation(unit, high_median(one.rate for one in ones), own, peers, min(one.count for one in ones))


def _of(middle: Callable[[Iterable[float]], float], losses: Sequence[Loss]) -> Loss:
    part = middle(loss.part for loss in losses)
    return Loss(part, high_median(one.noise for one in losses), high_median(one.usual for one in losses))
