"""Faults drawn into fleets, and whether what was named is what was drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.fleet.pairs.drawn import BOTH, DrawnFault, DrawnFleet
from wirewatch.core.pairs import PartKind, Way
from wirewatch_fleet.pairs.model import MeasuredRound, NamedPart, SlowPlace
from wirewatch_fleet.pairs.plan import PairsVerdict, PlannedRound, next_step

LEAST, MOST = 0.05, 0.6
"""Share of its speed that a drawn fault takes."""
NEAR = 0.3
"""How often a fault is drawn onto or beside the one before: overlapping faults."""
KINDS = ("node", "node, one direction", "rail of a node", "pair", "leaf", "leaf, one direction", "rail")
SHARES = (3, 3, 3, 2, 1, 1, 1)


def drawn_faults(
    fleet: DrawnFleet, count: int, chance: Random, lost: float | None = None
) -> list[DrawnFault]:
    """So many faults, of different places. Pairs are of those that the first rounds bring together."""
    met = _first_pairs(fleet)
    made: list[DrawnFault] = []
    while len(made) < count:
        near = made[-1] if made and chance.random() < NEAR else None
        kind = chance.choices(KINDS, SHARES)[0]
        place, ways = _part(kind, fleet, met, chance, near)
        if any(one.place == place for one in made):
            continue
        made.append(DrawnFault(place, ways, chance.uniform(LEAST, MOST) if lost is None else lost))
    return made


def _first_pairs(fleet: DrawnFleet) -> list[tuple[str, str]]:
    """Pairs of the first rounds, which follow from the members alone."""
    rounds: list[MeasuredRound] = []
    for _ in range(3):
        step = next_step(fleet.fleet, rounds, seed=0)
        assert isinstance(step, PlannedRound)
        rounds.append(MeasuredRound(step.round, ()))
    return [pair for one in rounds for pair in one.round.pairs]


def _part(
    kind: str, fleet: DrawnFleet, met: Sequence[tuple[str, str]], chance: Random, near: DrawnFault | None
) -> tuple[SlowPlace, frozenset[Way]]:
    one = frozenset({chance.choice((Way.SENDS, Way.RECEIVES))})
    name = chance.choice(fleet.names)
    if near is not None:
        alike = [other for other in fleet.names if near.place.name in {other, fleet.leafs.get(other)}]
        name = chance.choice(alike or fleet.names)
    if kind == "pair":
        pairs = [pair for pair in met if near is None or name in pair] or list(met)
        a, b = chance.choice(pairs)
        return SlowPlace(PartKind.PAIR, *((a, b) if chance.random() < 0.5 else (b, a))), frozenset(
            {Way.SENDS}
        )
    if kind == "rail":
        rail = chance.choice(fleet.rail_names)
        return SlowPlace(PartKind.RAIL, rail, rail=rail), frozenset({Way.TOGETHER})
    if kind.startswith("leaf"):
        place = SlowPlace(PartKind.LEAF, fleet.leafs[name], across=chance.random() < 0.5)
        return place, one if "one" in kind else BOTH
    if kind == "rail of a node":
        return SlowPlace(PartKind.NODE, name, rail=chance.choice(fleet.rail_names)), chance.choice(
            (one, BOTH)
        )
    return SlowPlace(PartKind.NODE, name), one if "one" in kind else BOTH


def kind_of(fault: DrawnFault) -> str:
    """The name of its kind."""
    place, one = fault.place, len(fault.ways) == 1
    if place.kind is PartKind.NODE:
        return "rail of a node" if place.rail else "node, one direction" if one else "node"
    if place.kind is PartKind.LEAF:
        return "leaf, one direction" if one else "leaf"
    return place.kind.value


def hidden(fault: DrawnFault, faults: Sequence[DrawnFault], fleet: DrawnFleet) -> bool:
    """Whether no run can show it whole: another that is as slow or slower is in all of its ways."""
    return any(
        other is not fault and other.lost >= fault.lost - 0.03 and _contains(other, fault, fleet)
        for other in faults
    )


def _contains(wide: DrawnFault, fault: DrawnFault, fleet: DrawnFleet) -> bool:  # noqa: PLR0911
    """Whether every run that the fault slows, in any of its directions, has the other in its way."""
    a, b = wide.place, fault.place
    rails = not a.rail or a.rail == b.rail
    if a.kind is PartKind.RAIL:
        return rails and b.kind is not PartKind.RAIL
    if b.kind is PartKind.RAIL:
        return False
    if b.kind is PartKind.PAIR:
        ends = ((b.name, Way.SENDS), (b.peer, Way.RECEIVES))
        if a.kind is PartKind.LEAF:
            apart = fleet.leafs[b.name] != fleet.leafs[b.peer]
            return (apart or not a.across) and any(
                fleet.leafs[n] == a.name and way in wide.ways for n, way in ends
            )
        return rails and any(n == a.name and way in wide.ways for n, way in ends)
    shared = bool(wide.ways & fault.ways)
    if a.kind is PartKind.LEAF and b.kind is PartKind.LEAF:
        return a.name == b.name and shared and (b.across or not a.across)
    if a.kind is PartKind.LEAF:
        return not a.across and fleet.leafs[b.name] == a.name and shared
    return a.kind is b.kind and a.name == b.name and rails and shared


@dataclass(frozen=True, slots=True)
class Scored:
    """One fault of one run: whether it was named as it is, or stands as a suspect. `hidden` by others."""

    kind: str
    lost: float
    named: bool
    suspected: bool
    hidden: bool
    inside: bool | None


@dataclass(frozen=True, slots=True)
class FleetRun:
    """What came of one fleet. `wrong`: parts that were named and are not slow, or not so; `loose`: right in
    where, and too wide or too narrow in a direction. `tests`: runs of pairs in all rounds."""

    faults: tuple[Scored, ...]
    wrong: tuple[str, ...]
    rounds: int
    tests: int
    open: int
    health: int


def score(fleet: DrawnFleet, verdict: PairsVerdict, rounds: Sequence[MeasuredRound]) -> FleetRun:
    """A verdict beside the faults that were drawn."""
    known = verdict.assessment
    typical = fleet.typical()
    scored = tuple(_scored(one, fleet, typical, known.named, known.suspects) for one in fleet.faults)
    wrong = tuple(_words(part) for part in known.named if not _right(part, fleet))
    tests = sum(len(one.round.pairs) for one in rounds)
    return FleetRun(
        scored, wrong, verdict.rounds, tests, len(known.suspects) + len(known.thin), int(verdict.health)
    )


def _scored(
    fault: DrawnFault,
    fleet: DrawnFleet,
    typical: float,
    named: Sequence[NamedPart],
    suspects: Sequence[NamedPart],
) -> Scored:
    found = next((part for part in named if part.place == fault.place), None)
    right = found is not None and {one.way for one in found.losses} >= fault.ways
    inside = None
    if found is not None and right:
        # Losses are given beside a typical pair.
        lost = 1 - (1 - fault.lost) / typical
        inside = all(one.low <= lost <= one.high for one in found.losses if one.way in fault.ways)
    doubt = any(part.place == fault.place for part in suspects)
    return Scored(kind_of(fault), fault.lost, right, doubt, hidden(fault, fleet.faults, fleet), inside)


def _right(part: NamedPart, fleet: DrawnFleet) -> bool:
    """Whether a part that was named is slow in each direction that was named."""
    ways = {one.way for one in part.losses}
    slow: set[Way] = set()
    for fault in fleet.faults:
        if fault.place == part.place:
            slow |= fault.ways
    return ways <= slow


def _words(part: NamedPart) -> str:
    place = part.place
    ways = ",".join(f"{one.way} {one.loss:.3f} {one.slow}/{one.runs}" for one in part.losses)
    return f"{place.kind} {place.name}>{place.peer} rail {place.rail} {place.across} {part.measure}: {ways}"
