"""How far a part is from its peers and from its own history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.core.statistics import high_median, low_median, spread
from wirewatch.verdict.straggler.policy import StragglerPolicy
from wirewatch.verdict.straggler.references import Reference, References
from wirewatch.verdict.straggler.signals import Resource, Signals, Unit

CLOSE = 0.2
"""How far two losses may be from each other and still be the same."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The part of its speed that a unit has lost against `usual`; `noise` is one standard deviation of it."""

    part: float
    noise: float
    usual: float

    @property
    def score(self) -> float:
        """In standard deviations; above 0 for slower."""
        return self.part / self.noise

    def beside(self, lost: float) -> "Loss":
        """What is left to explain when so much is the loss of something that it depends on."""
        return Loss(1 - (1 - self.part) / (1 - lost), self.noise, self.usual * (1 - lost))


@dataclass(frozen=True, slots=True)
class Deviation:
    """One unit's rate beside that of its own history and of its peers; None where there is none."""

    unit: Unit
    rate: float
    own: Loss | None = None
    peers: Loss | None = None
    count: int = 0
    """Values of its own history."""

    def slow(self, policy: StragglerPolicy) -> bool:
        return self.telling(policy) is not None

    def own_slow(self, policy: StragglerPolicy) -> bool:
        return replace(self, peers=None).slow(policy)

    def telling(self, policy: StragglerPolicy) -> Loss | None:
        """The loss that makes it slow, the larger of both; None when it is not."""
        broken = [
            loss
            for loss, limit in ((self.own, policy.own), (self.peers, policy.peers))
            if loss is not None and loss.part >= limit and loss.score >= policy.score
        ]
        # Its own history is the better measure, unless it has been slow from the start.
        return max(broken, key=lambda loss: loss.part * (1 + CLOSE * (loss is self.own)), default=None)

    @property
    def score(self) -> float:
        """The larger of both; 0 where nothing can be compared."""
        return max((loss.score for loss in (self.own, self.peers) if loss is not None), default=0.0)


def deviations(told: Signals, references: References, policy: StragglerPolicy) -> Mapping[Unit, Deviation]:
    """Every unit of a probe against its history, and against those that are made alike."""
    groups: dict[tuple[Resource, str], list[Unit]] = {}
    for unit in told.rates:
        way = told.alike.get(unit, "")
        if way:
            groups.setdefault((unit.resource, way), []).append(unit)
    found = {unit: _alone(unit, told, references, policy) for unit in told.rates}
    for units in groups.values():
        rates = [_steady(found[unit], policy) for unit in units]
        for unit, rate in zip(units, rates, strict=True):
            found[unit] = replace(found[unit], peers=_to_peers(rate, rates, policy))
    return found


def _alone(unit: Unit, told: Signals, references: References, policy: StragglerPolicy) -> Deviation:
    one = Deviation(unit, told.rates[unit])
    reference = references.of(unit, told.kind, policy.learn)
    if reference is None:
        return one
    return replace(one, own=_to_own(one, reference, policy), count=reference.count)


def _steady(one: Deviation, policy: StragglerPolicy) -> float:
    """What peers are compared by: the history of one that is as it was; near the limit no noise decides."""
    return one.rate if one.own is None or one.own_slow(policy) else one.own.usual


def _to_peers(rate: float, rates: Sequence[float], policy: StragglerPolicy) -> Loss | None:
    """Against the middle of all, of an even number the faster of both: so of two GPUs the faster."""
    if len(rates) < 2:  # noqa: PLR2004
        return None
    usual = high_median(rates)
    noise = max(policy.noise_peers, spread([one / usual for one in rates], 1.0))
    return Loss(1 - rate / usual, noise, usual)


def _to_own(one: Deviation, reference: Reference, policy: StragglerPolicy) -> Loss:
    noise = max(policy.noise(one.unit.resource), reference.spread)
    return Loss(1 - one.rate / reference.rate, noise, reference.rate)


def common(ones: Sequence[Deviation], policy: StragglerPolicy) -> float:
    """What all of several units have lost against their own histories; 0 unless every one is slow."""
    losses = [one.own for one in ones if one.own is not None and one.own_slow(policy)]
    if len(ones) < 2 or len(losses) < len(ones):  # noqa: PLR2004
        return 0.0
    return low_median(loss.part for loss in losses)


def without(one: Deviation, lost: float) -> Deviation:
    """The deviation beside what all units have lost alike, which no comparison with each other shows."""
    return one if one.own is None else replace(one, own=one.own.beside(lost))
