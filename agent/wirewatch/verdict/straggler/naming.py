"""From deviations to names: which GPU, which of its resources, and what merely follows from that."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from wirewatch.core.statistics import grouped, high_median, low_median
from wirewatch.verdict.straggler.signals import (
    Deviation,
    Loss,
    RateHistory,
    Resource,
    Signals,
    StragglerPolicy,
    Unit,
    common,
    deviations,
    learn,
    without,
)

BUSY = 0.4
"""Compute is the cause where it has lost at least this part of the loss of memory. A copy within the memory
needs the multiprocessors; a matrix product needs hardly any memory. Measured: 0.57 under load of products,
0.27 of copies."""
FOLLOWS = 0.65
"""A GPU makes a direction slow when it has lost at least this part of the direction's loss; otherwise the
direction makes the GPU slow. Measured: 0.78 and more under load of the GPU, 0.55 and less under load of the
wire."""


@dataclass(frozen=True, slots=True)
class SlowPart:
    """A part that is slow. Rates in products or bytes per second; `lost` is the part of its speed.

    `loss`: what it is judged by, its own history if `own`, else its peers. `usual` and `peers`: the rates of
    both, None where there is none; `probes`: how many its history has. `follows`: what else is slow by it.
    `undecided`: of a pair the directions of its GPUs that explain it as well, as far as one probe shows.
    `worst`: the largest loss of all that, whatever explains it: a cause must not hide how bad it is.
    """

    unit: Unit
    rate: float
    loss: Loss
    own: bool
    usual: float | None = None
    peers: float | None = None
    probes: int = 0
    follows: tuple[Unit, ...] = ()
    undecided: tuple[Unit, ...] = ()
    worst: float = 0.0

    @property
    def lost(self) -> float:
        return self.loss.part


@dataclass(frozen=True, slots=True)
class SlowNode:
    """All units of a resource are slow alike, by the node; `worst`: the largest loss among them.

    `lone`: the GPU beside which all others look slow; whether they are is not known.
    """

    resource: Resource
    lost: float
    units: int
    worst: float = 0.0
    lone: str = ""


@dataclass(frozen=True, slots=True)
class NamedStragglers:
    """Parts that are slow in one probe. `scores`: standard deviations by GPU and resource."""

    slow: tuple[SlowPart, ...] = ()
    uniform: tuple[SlowNode, ...] = ()
    scores: Mapping[Unit, float] = field(default_factory=dict)


SlowUnit = SlowPart | SlowNode
Faulty = Mapping[Unit, tuple[Unit, ...]]
"""Slow pairs by the end at fault."""


@dataclass(frozen=True, slots=True)
class ConfirmedStraggler:
    """A straggler in `times` of the last `looks` probes; `since` (Unix seconds); `failed`: keep jobs away."""

    seen: SlowUnit
    since: float
    times: int
    looks: int
    failed: bool


@dataclass(frozen=True, slots=True)
class StragglerWatch:
    """Looks of the newest probes at each unit, newest last; an empty GPU stands for all of its resource."""

    references: RateHistory = field(default_factory=RateHistory)
    looks: Mapping[Unit, tuple[SlowUnit | None, ...]] = field(default_factory=dict)
    began: Mapping[Unit, float] = field(default_factory=dict)
    named: NamedStragglers = field(default_factory=NamedStragglers)

    def held(self, policy: StragglerPolicy) -> tuple[ConfirmedStraggler, ...]:
        """The units that enough of the newest probes saw slow."""
        every = ((unit, looks, [one for one in looks if one]) for unit, looks in self.looks.items())
        return tuple(
            ConfirmedStraggler(seen[-1], self.began[unit], len(seen), len(looks), _is_failed(seen, policy))
            for unit, looks, seen in every
            if _is_held(looks, policy)
        )

    def unsure(self, policy: StragglerPolicy) -> bool:
        """Whether the newest probe saw something that another would confirm, clear, or find to be FAILED."""
        return any(_is_open(looks, policy) for looks in self.looks.values())


ENDS = (Resource.SOURCE, Resource.DESTINATION)
FEW = 2
"""Pairs of a GPU in one direction, from which on that is more than one pair."""
ALIKE = 2.0
"""Standard deviations by which pairs of one slow end are apart, in their noise."""
UNSTEADY = 1.5
"""Largest over smallest loss of pairs with a common cause: a load varies from moment to moment. Measured
between two GPUs, from a probe to the next: 1.5."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Deviations beside what others explain; pairs by the end at fault, and ends that could be at fault."""

    ends: Mapping[Unit, Deviation]
    pairs: Mapping[Unit, Deviation]
    faulty: Mapping[Unit, tuple[Unit, ...]]
    undecided: Mapping[Unit, tuple[Unit, ...]]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The rate that an end lets through by its own history and its peers: the loss of all its pairs.

    `own_rate` and `peers_rate`: the highest rate of its pairs, 0 where that part is too small to count. A
    pair that is usually faster than the others loses more.
    """

    deviation: Deviation
    own_rate: float
    peers_rate: float

    def leaves(self, pair: Deviation) -> Deviation:
        """The pair beside what this end explains of it."""
        own, peers = self.deviation.own, self.deviation.peers
        return replace(
            pair,
            own=_unexplained(pair.own, own or peers, self.own_rate),
            peers=_unexplained(pair.peers, peers or own, self.peers_rate),
        )

    def lost(self, policy: StragglerPolicy) -> float:
        """The part of its speed that the end has lost."""
        return _lost(self.deviation, policy)

    def of(self, pairs: Sequence[Deviation], policy: StragglerPolicy) -> "Ceiling":
        """The same by the middle of the pairs that are slow by it."""
        middle = _middle(self.deviation.unit, pairs)
        return replace(self, deviation=middle) if middle.slow(policy) else self

    def explains(self, pair: Deviation, policy: StragglerPolicy) -> bool:
        """Tell whether the end may be all that is wrong with the pair."""
        return _lost(pair, policy) <= UNSTEADY * self.lost(policy) or not self.leaves(pair).slow(policy)


Causes = Mapping[Unit, Collection[Unit]]
"""The ends that explain each slow pair."""


def name_stragglers(measured: Signals, references: RateHistory, policy: StragglerPolicy) -> NamedStragglers:
    """Name the parts that are slow in one probe, judged against peers and histories."""
    found = deviations(measured, references, policy)
    raw = {unit: loss.part for unit, one in found.items() if (loss := one.decisive_loss(policy)) is not None}
    alone = [one for one in found.values() if one.unit.resource is not Resource.PAIR]
    pairs = [one for one in found.values() if one.unit.resource is Resource.PAIR]
    lost = common(pairs, policy)
    table = explain([without(one, lost) for one in pairs], measured.wires, policy)
    ends = [_slow(table.ends[unit], policy) for unit in table.faulty]
    wires = [one for one in (*ends, *_slow_pairs(table, policy)) if one]
    of_gpus = grouped((one.unit.uuid, one) for one in alone)
    inner = [_inner(ones, measured.others, policy) for ones in of_gpus.values()]
    inside, outside = _causes([one for one in inner if one], wires, measured.used)
    hosts = (_slow(one, policy) for one in alone if one.unit.resource is Resource.HOST)
    inside += [one for one in hosts if one]
    uniform = [SlowNode(Resource.PAIR, lost, len(pairs), max(raw[one.unit] for one in pairs))] if lost else []
    for resource in (Resource.COMPUTE, Resource.MEMORY, Resource.HOST):
        inside, more = _alike(resource, inside, alone, raw, table.faulty, policy)
        # One slot may be better than all others by design.
        uniform += more or (_few(resource, alone) if resource is not Resource.HOST else [])
    scores = _scores((*alone, *table.ends.values(), *table.pairs.values()))
    scores |= {unit: part / policy.noise_link for unit, part in measured.links.items()}
    slow = (replace(one, worst=_worst(one, raw, table.faulty)) for one in (*inside, *outside))
    return NamedStragglers(tuple(slow), tuple(uniform), scores)


def fold_stragglers(
    watch: StragglerWatch, measured: Signals, at: float, policy: StragglerPolicy, *, accepted: bool,
    told: frozenset[Unit] = frozenset(), unseen: frozenset[Unit] = frozenset(),
) -> StragglerWatch:  # fmt: skip
    """Return the watch after a complete probe (at Unix seconds).

    `accepted`: nothing else was wrong; `told`: parts that another finding names; `unseen`: planned parts that
    were not measured, whose held findings stay.
    """
    held = {unit: seen for unit, seen in watch.looks.items() if unit in unseen and _is_held(seen, policy)}
    named = name_stragglers(measured, watch.references, policy)
    now: dict[Unit, SlowUnit] = {slow.unit: slow for slow in named.slow if slow.unit not in told}
    now |= {Unit(all_of.resource, ""): all_of for all_of in named.uniform}
    looks = {
        unit: (*watch.looks.get(unit, ()), now.get(unit))[-policy.among :] for unit in {**watch.looks, **now}
    }
    looks = {unit: seen for unit, seen in looks.items() if any(one is not None for one in seen)} | held
    references = watch.references
    if accepted and not looks:
        references = learn(references, measured, at)
    return StragglerWatch(references, looks, {unit: watch.began.get(unit, at) for unit in looks}, named)


def explain(pairs: Iterable[Deviation], wires: Mapping[Unit, str], policy: StragglerPolicy) -> Matrix:
    """The shortest explanation of all slow pairs, for pairs of each kind of wire alone."""
    groups = grouped((wires.get(one.unit, ""), one) for one in pairs)
    return _together([_explained(ones, policy) for ones in groups.values()])


def end(pair: Unit, resource: Resource) -> str:
    """UUID of the GPU at this end of a pair: `SOURCE` sends, any other resource is the receiving end."""
    return pair.uuid if resource is Resource.SOURCE else pair.peer


def least_parts(causes: Causes) -> int:
    """Count the fewest ends and pairs that explain all slow pairs, by Kőnig's theorem."""
    known = ((pair, {one.resource: one for one in ends}) for pair, ends in causes.items())
    source, destination = ENDS
    reached = grouped((ends.get(source, pair), ends.get(destination, pair)) for pair, ends in known)
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


def _is_held(looks: Sequence[SlowUnit | None], policy: StragglerPolicy) -> bool:
    """Tell whether enough of the newest probes saw it."""
    return sum(one is not None for one in looks) >= policy.confirm


def _is_failed(seen: Sequence[SlowUnit], policy: StragglerPolicy) -> bool:
    """Tell whether jobs should be kept away; an outlier that lasts into the next probe is bad but twice."""
    bad = sum(one.worst >= policy.failed for one in seen)
    return bad >= policy.sure or sum(one.worst >= policy.failed_twice for one in seen) >= policy.confirm


def _is_open(looks: Sequence[SlowUnit | None], policy: StragglerPolicy) -> bool:
    """Tell whether another probe would confirm, clear or fail it.

    A part that is above the limit of FAILED in one probe and below in the next is not asked about for ever.
    """
    seen = [one for one in looks if one is not None]
    if looks[-1] is None or len(seen) < policy.confirm:
        return looks[-1] is not None
    return all(one.worst >= policy.failed for one in seen) and not _is_failed(seen, policy)


def _worst(one: SlowPart, raw: Mapping[Unit, float], faulty: Faulty) -> float:
    units = [one.unit, *one.follows]
    units += [pair for unit in units for pair in faulty.get(unit, ())]
    return max((raw[unit] for unit in units if unit in raw), default=one.lost)


def _slow_pairs(table: Matrix, policy: StragglerPolicy) -> Iterator[SlowPart]:
    """Pairs that are slower than their ends explain."""
    explained = set(chain.from_iterable(table.faulty.values()))
    for unit, one in table.pairs.items():
        made = _slow(one, policy)
        if made is not None and unit not in explained:
            yield replace(made, undecided=table.undecided.get(unit, ()))


def _inner(ones: Iterable[Deviation], others: Mapping[str, bool], policy: StragglerPolicy) -> SlowPart | None:
    """Name what is slow inside a GPU, and the other by it; in time slices the part that is used most."""
    slow = {one.unit.resource: made for one in ones if (made := _slow(one, policy)) is not None}
    compute, memory = slow.get(Resource.COMPUTE), slow.get(Resource.MEMORY)
    if compute is None or memory is None:
        return compute or memory
    used = others.get(compute.unit.uuid)
    by_compute = compute.lost >= BUSY * memory.lost if used is None else not used
    first, second = (compute, memory) if by_compute else (memory, compute)
    return replace(first, follows=(second.unit,))


def _causes(
    inside: Sequence[SlowPart], outside: Sequence[SlowPart], used: frozenset[str]
) -> tuple[list[SlowPart], list[SlowPart]]:
    """The GPUs and the wires that are slow by themselves, not because of each other."""
    gpus = {one.unit.uuid: one for one in inside}
    wires = []
    for wire in sorted(outside, key=lambda one: -one.lost):
        ends = [gpus[uuid] for uuid in (wire.unit.uuid, wire.unit.peer) if uuid in gpus]
        causes = [one for one in ends if not _beside(one.unit.uuid, wire.unit, used)]
        cause = max(causes, key=lambda one: one.lost, default=None)
        if cause is not None and cause.lost >= FOLLOWS * wire.lost:
            gpus[cause.unit.uuid] = replace(cause, follows=(*cause.follows, wire.unit))
            continue
        for one in ends:
            del gpus[one.unit.uuid]
        wires.append(replace(wire, follows=tuple(unit for one in ends for unit in (one.unit, *one.follows))))
    return list(gpus.values()), wires


def _beside(uuid: str, wire: Unit, used: frozenset[str]) -> bool:
    """Whether another process uses the wire's other end, and not this GPU, which is then slowed by it."""
    others = {wire.uuid, wire.peer} - {uuid} if wire.peer else used
    return uuid not in used and bool(others & used)


def _alike(
    resource: Resource, inside: Sequence[SlowPart], alone: Sequence[Deviation], raw: Mapping[Unit, float],
    faulty: Faulty, policy: StragglerPolicy,
) -> tuple[list[SlowPart], list[SlowNode]]:  # fmt: skip
    """GPUs that are slow by themselves, beside what all have lost alike of a resource."""
    every = [one for one in alone if one.unit.resource is resource]
    slow = {one.unit: one for one in inside if one.unit.resource is resource}
    lost = common(every, policy) if len(slow) == len(every) else 0.0
    if not lost:
        return list(inside), []
    rest = [one for one in inside if one.unit not in slow]
    left = (_slow(without(one, lost), policy) for one in every)
    rest += [replace(made, follows=slow[made.unit].follows) for made in left if made]
    worst = max(_worst(one, raw, faulty) for one in slow.values())
    return rest, [SlowNode(resource, lost, len(every), worst)]


def _few(resource: Resource, alone: Sequence[Deviation]) -> list[SlowNode]:
    """Return the GPUs beside a single faster one: nothing says which side is right."""
    every = [one for one in alone if one.unit.resource is resource]
    lone = [one for one in every if one.lone]
    others = [one.rate for one in every if not one.lone]
    return [SlowNode(resource, 1 - max(others) / one.rate, len(others), lone=one.unit.uuid) for one in lone]


def _slow(one: Deviation, policy: StragglerPolicy) -> SlowPart | None:
    loss = one.decisive_loss(policy)
    if loss is None:
        return None
    own, peers = (None if known is None else known.usual for known in (one.own, one.peers))
    return SlowPart(one.unit, one.rate, loss, loss is one.own, own, peers, one.count)


def _scores(ones: Iterable[Deviation]) -> dict[Unit, float]:
    """By GPU and resource; of a GPU's pairs the worst that it sends by."""
    found: dict[Unit, float] = {}
    for one in ones:
        unit = Unit(one.unit.resource, one.unit.uuid)
        found[unit] = max(one.score, found.get(unit, one.score))
    return found


def _explained(pairs: Sequence[Deviation], policy: StragglerPolicy) -> Matrix:
    every = {
        Unit(resource, uuid): [one for one in pairs if end(one.unit, resource) == uuid]
        for resource in ENDS
        for uuid in dict.fromkeys(end(one.unit, resource) for one in pairs)
    }
    ceilings = {unit: _ceiling(unit, ones, policy) for unit, ones in every.items() if len(ones) >= FEW}
    able = {unit: one for unit, one in ceilings.items() if one.deviation.slow(policy)}
    causes = {
        one.unit: [unit for unit in _both(one.unit) if unit in able and able[unit].explains(one, policy)]
        for one in pairs
        if one.slow(policy)
    }
    fewest = least_parts(causes)
    found = {unit: one for unit, one in able.items() if least_parts(_without(causes, unit)) > fewest}
    slow_by: dict[Unit, list[Unit]] = {unit: [] for unit in found}
    for pair, ends in causes.items():
        if reasons := [unit for unit in ends if unit in found]:
            slow_by[max(reasons, key=lambda unit: found[unit].lost(policy))].append(pair)
    slow = {unit: [one for one in every[unit] if one.unit in slow_by[unit]] for unit in found}
    faulty = {unit: one.of(slow[unit], policy) for unit, one in found.items()}
    rest = {one.unit: _left(one, faulty, policy) for one in pairs}
    well = (unit for unit in ceilings if unit not in faulty)
    middles = {unit: _middle(unit, [rest[one.unit] for one in every[unit]]) for unit in well}
    return Matrix(
        middles | {unit: one.deviation for unit, one in faulty.items()},
        rest,
        {unit: tuple(ones) for unit, ones in slow_by.items()},
        {pair: tuple(ends) for pair, ends in causes.items()},
    )


def _together(tables: Iterable[Matrix]) -> Matrix:
    """Merge the tables; for an end with several kinds of wire take the faulty kind, or the slower."""
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
    """Return the loss that all pairs of an end share, and the highest rate among them.

    An unchanged pair that is no faster than the slow pairs shows nothing: more may not get through.
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


def _unexplained(loss: Loss | None, explained: Loss | None, rate: float) -> Loss | None:
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
