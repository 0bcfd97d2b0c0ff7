"""From deviations to names: which GPU, which of its resources, and what merely follows from that."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from wirewatch.verdict.straggler.matrix import Matrix, explain
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
"""Compute that has lost so much of what the memory has is the cause of it: a copy within the memory needs the
multiprocessors, a matrix product hardly any memory. Measured: 0.57 under load of products, 0.27 of copies."""
FOLLOWS = 0.65
"""A direction is slow because its GPU is when the GPU has lost so much of what the direction has; less is
the other way round. Measured: 0.78 and more under load of the GPU, 0.55 and less under load of the wire."""


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
        """The part of its speed that is lost, 0 to 1."""
        return self.loss.part


@dataclass(frozen=True, slots=True)
class SlowNode:
    """All units of a resource are slower than they were, alike: something of the node, no single part.

    `worst`: the largest loss of one of them, or of what follows from it.
    """

    resource: Resource
    lost: float
    units: int
    worst: float = 0.0


@dataclass(frozen=True, slots=True)
class NamedStragglers:
    """What is slow in one probe. `scores`: standard deviations by GPU and resource."""

    slow: tuple[SlowPart, ...] = ()
    uniform: tuple[SlowNode, ...] = ()
    scores: Mapping[Unit, float] = field(default_factory=dict)


SlowUnit = SlowPart | SlowNode
Faulty = Mapping[Unit, tuple[Unit, ...]]
"""By end at fault the pairs that are slow by it."""


@dataclass(frozen=True, slots=True)
class ConfirmedStraggler:
    """A straggler that enough probes have seen.

    `seen` is as the newest of them saw it, `since` when it was first seen (Unix seconds); `times` of the last
    `looks` probes saw it.

    `failed`: jobs should be kept away.
    """

    seen: SlowUnit
    since: float
    times: int
    looks: int
    failed: bool


@dataclass(frozen=True, slots=True)
class StragglerWatch:
    """`looks`: what the newest probes saw of each unit, newest last; `began`: when it was first seen.

    A unit without a GPU stands for all of its resource. `named`: what the newest probe alone shows.
    """

    references: RateHistory = field(default_factory=RateHistory)
    looks: Mapping[Unit, tuple[SlowUnit | None, ...]] = field(default_factory=dict)
    began: Mapping[Unit, float] = field(default_factory=dict)
    named: NamedStragglers = field(default_factory=NamedStragglers)

    def held(self, policy: StragglerPolicy) -> tuple[ConfirmedStraggler, ...]:
        """The units that enough of the newest probes saw slow."""
        return tuple(self._held(policy))

    def _held(self, policy: StragglerPolicy) -> Iterator[ConfirmedStraggler]:
        for unit, looks in self.looks.items():
            seen = [one for one in looks if one is not None]
            if len(seen) >= policy.confirm:
                failed = _is_failed(seen, policy)
                yield ConfirmedStraggler(seen[-1], self.began[unit], len(seen), len(looks), failed)

    def unsure(self, policy: StragglerPolicy) -> bool:
        """Whether the newest probe saw something that another would confirm, clear, or find to be FAILED."""
        return any(_is_open(looks, policy) for looks in self.looks.values())


def name_stragglers(measured: Signals, references: RateHistory, policy: StragglerPolicy) -> NamedStragglers:
    """What is slow in one probe, judged against peers and histories."""
    found = deviations(measured, references, policy)
    raw = {unit: loss.part for unit, one in found.items() if (loss := one.decisive_loss(policy)) is not None}
    alone = [one for one in found.values() if one.unit.resource is not Resource.PAIR]
    pairs = [one for one in found.values() if one.unit.resource is Resource.PAIR]
    lost = common(pairs, policy)
    table = explain([without(one, lost) for one in pairs], measured.wires, policy)
    ends = [_slow(table.ends[unit], policy) for unit in table.faulty]
    wires = [one for one in (*ends, *_slow_pairs(table, policy)) if one]
    inner = [_inner(ones, measured.others, policy) for ones in _by_gpu(alone)]
    inside, outside = _causes([one for one in inner if one], wires, measured.used)
    uniform = [SlowNode(Resource.PAIR, lost, len(pairs), max(raw[one.unit] for one in pairs))] if lost else []
    for resource in (Resource.COMPUTE, Resource.MEMORY):
        inside, more = _alike(resource, inside, alone, raw, table.faulty, policy)
        uniform += more
    scores = _scores((*alone, *table.ends.values(), *table.pairs.values()))
    scores |= {unit: part / policy.noise_link for unit, part in measured.links.items()}
    slow = (replace(one, worst=_worst(one, raw, table.faulty)) for one in (*inside, *outside))
    return NamedStragglers(tuple(slow), tuple(uniform), scores)


def fold_stragglers(
    watch: StragglerWatch, measured: Signals, at: float, policy: StragglerPolicy, *, accepted: bool
) -> StragglerWatch:  # fmt: skip
    """The watch after a complete probe (at Unix seconds).

    `accepted`: nothing else was wrong, so that its rates may become history where nothing is slow.
    """
    named = name_stragglers(measured, watch.references, policy)
    now: dict[Unit, SlowUnit] = {slow.unit: slow for slow in named.slow}
    now |= {Unit(all_of.resource, ""): all_of for all_of in named.uniform}
    looks = {
        unit: (*watch.looks.get(unit, ()), now.get(unit))[-policy.among :] for unit in {**watch.looks, **now}
    }
    looks = {unit: seen for unit, seen in looks.items() if any(one is not None for one in seen)}
    references = watch.references
    if accepted and not looks:
        references = learn(references, measured, at)
    return StragglerWatch(references, looks, {unit: watch.began.get(unit, at) for unit in looks}, named)


def _is_failed(seen: Sequence[SlowUnit], policy: StragglerPolicy) -> bool:
    """One large outlier of which half lasts into the next probe makes two that are bad, and no third."""
    bad = sum(one.worst >= policy.failed for one in seen)
    return bad >= policy.sure or sum(one.worst >= policy.failed_twice for one in seen) >= policy.confirm


def _is_open(looks: Sequence[SlowUnit | None], policy: StragglerPolicy) -> bool:
    """A part that is now above the limit of FAILED and now below is not asked about for ever."""
    seen = [one for one in looks if one is not None]
    if looks[-1] is None or len(seen) < policy.confirm:
        return looks[-1] is not None
    return all(one.worst >= policy.failed for one in seen) and not _is_failed(seen, policy)


def _worst(one: SlowPart, raw: Mapping[Unit, float], faulty: Faulty) -> float:
    """The largest loss of a part and of all that is slow by it."""
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


def _by_gpu(ones: Iterable[Deviation]) -> Iterator[list[Deviation]]:
    gpus: dict[str, list[Deviation]] = {}
    for one in ones:
        gpus.setdefault(one.unit.uuid, []).append(one)
    yield from gpus.values()


def _inner(
    ones: Iterable[Deviation], others: Mapping[str, bool], policy: StragglerPolicy
) -> SlowPart | None:  # fmt: skip
    """What of a GPU alone is slow: its compute or its memory, and the other because of it.

    Time slices of another process slow both alike: then it is what that process uses most.
    """
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
    """Of a GPU and the wires at it, those that are slow by themselves."""
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
        wires.append(replace(wire, follows=tuple(one.unit for one in ends)))
    return list(gpus.values()), wires


def _beside(uuid: str, wire: Unit, used: frozenset[str]) -> bool:
    """Whether another process uses the other end of a wire, and not this GPU.

    Then what this GPU has lost is by what comes over the wire. Measured: copies of another process into it
    take as much of its time as of the wire's.
    """
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
    for one in every:
        made = _slow(without(one, lost), policy)
        if made is not None:
            rest.append(replace(made, follows=slow[one.unit].follows))
    worst = max(_worst(one, raw, faulty) for one in slow.values())
    return rest, [SlowNode(resource, lost, len(every), worst)]


def _slow(one: Deviation, policy: StragglerPolicy) -> SlowPart | None:
    loss = one.decisive_loss(policy)
    if loss is None:
        return None
    return SlowPart(
        one.unit, one.rate, loss, loss is one.own, _usual(one.own), _usual(one.peers), one.count
    )  # fmt: skip


def _usual(loss: Loss | None) -> float | None:
    return None if loss is None else loss.usual


def _scores(ones: Iterable[Deviation]) -> dict[Unit, float]:
    """By GPU and resource; of a GPU's pairs the worst that it sends by."""
    found: dict[Unit, float] = {}
    for one in ones:
        unit = Unit(one.unit.resource, one.unit.uuid)
        found[unit] = max(one.score, found.get(unit, one.score))
    return found
