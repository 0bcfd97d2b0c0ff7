"""From pairs to the GPU and direction at fault: a copy is as slow as the slower of its two ends."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.core.statistics import high_median, low_median
from wirewatch.verdict.straggler.compare import Deviation, Loss
from wirewatch.verdict.straggler.policy import StragglerPolicy
from wirewatch.verdict.straggler.signals import Resource, Unit

ENDS = (Resource.SOURCE, Resource.DESTINATION)
FEW = 2
"""Pairs of a GPU in one direction, from which on that is more than one pair."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Directions of GPUs, and pairs with what their two ends explain taken away."""

    ends: Mapping[Unit, Deviation]
    pairs: Mapping[Unit, Deviation]


def matrix(pairs: Iterable[Deviation], policy: StragglerPolicy) -> Matrix:
    """A direction of a GPU is slow when more than half of its pairs are, of two both."""
    ones = list(pairs)
    ends = {}
    for resource in ENDS:
        for uuid in dict.fromkeys(end(one.unit, resource) for one in ones):
            mine = [one for one in ones if end(one.unit, resource) == uuid]
            if len(mine) >= FEW:
                ends[Unit(resource, uuid)] = _middle(Unit(resource, uuid), mine)
    return Matrix(ends, {one.unit: _beside(one, ends, policy) for one in ones})


def end(pair: Unit, resource: Resource) -> str:
    return pair.uuid if resource is Resource.SOURCE else pair.peer


def _middle(unit: Unit, ones: Sequence[Deviation]) -> Deviation:
    own = _loss([one.own for one in ones])
    peers = _loss([one.peers for one in ones])
    return Deviation(unit, high_median(one.rate for one in ones), own, peers, min(one.count for one in ones))


def _loss(losses: Sequence[Loss | None]) -> Loss | None:
    known = [loss for loss in losses if loss is not None]
    if len(known) < len(losses):
        return None
    part = low_median(loss.part for loss in known)
    return Loss(part, high_median(one.noise for one in known), high_median(one.usual for one in known))


def _beside(one: Deviation, ends: Mapping[Unit, Deviation], policy: StragglerPolicy) -> Deviation:
    """The pair against what the slower of its ends lets through."""
    both = (Unit(Resource.SOURCE, one.unit.uuid), Unit(Resource.DESTINATION, one.unit.peer))
    told = [ends[unit].telling(policy) for unit in both if unit in ends]
    lost = max((loss.part for loss in told if loss is not None), default=0.0)
    own, peers = (None if loss is None else loss.beside(lost) for loss in (one.own, one.peers))
    return replace(one, own=own, peers=peers)
