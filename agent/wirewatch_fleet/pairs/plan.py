"""Chooses the next round from all results, or returns the verdict when no round would add more. Pure.

The first rounds are random perfect matchings of all idle members: across leafs and inside them where leafs
are known. All later rounds are small: they pair each suspect, and each member with too few results, with a
known good partner.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import NamedTuple

from wirewatch.core.pairs import PartKind, Way
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Health
from wirewatch_fleet.pairs.model import (
    DEFAULT_LIMITS,
    MeasuredRound,
    NamedPart,
    PairFleet,
    PairLimits,
    PairRound,
    RoundPurpose,
)
from wirewatch_fleet.pairs.naming import Assessment, assess, crowded_across, explained
from wirewatch_fleet.pairs.observations import across

Pair = tuple[str, str]
TRIES = 40
"""Most swaps tried for an unwanted pair."""


def matching(
    names: Sequence[str], wrong: Callable[[str, str], bool], chance: Random, rested: Mapping[str, int]
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Return random pairs of all names, and who rests; with an odd number the least rested member rests.

    Swaps remove `wrong` pairs. Where none helps the pair stays, since an idle member is the greater loss.
    """
    order = list(names)
    chance.shuffle(order)
    resting: tuple[str, ...] = ()
    if len(order) % 2:
        spared = min(order, key=lambda one: rested.get(one, 0))
        order.remove(spared)
        resting = (spared,)
    pairs = [[order[n], order[n + 1]] for n in range(0, len(order), 2)]
    for place, pair in enumerate(pairs):
        if wrong(*pair):
            _mend(pairs, place, wrong, chance)
    return tuple((a, b) for a, b in pairs), resting


def _mend(pairs: list[list[str]], place: int, wrong: Callable[[str, str], bool], chance: Random) -> None:
    """Swap the second member of a wrong pair with another pair's, so that fewer of both are wrong."""
    pair = pairs[place]
    for _ in range(TRIES):
        other = pairs[chance.randrange(len(pairs))]
        side = chance.randrange(2)
        before = 1 + wrong(*other)
        pair[1], other[side] = other[side], pair[1]
        if wrong(*pair) + wrong(*other) < before:
            if not wrong(*pair):
                return
        else:
            pair[1], other[side] = other[side], pair[1]


def inside(
    names: Sequence[str], leafs: Mapping[str, str], met: Callable[[str, str], bool], chance: Random,
    rested: Mapping[str, int],
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:  # fmt: skip
    """Pair members within each leaf; a left-over member runs with another leaf's."""
    groups = grouped((leafs.get(name, ""), name) for name in names)
    pairs: list[Pair] = []
    over: list[str] = groups.pop("", [])
    for group in groups.values():
        made, left = matching(group, met, chance, rested)
        pairs += made
        over += left
    made, resting = matching(over, met, chance, rested)
    return (*pairs, *made), resting


def meetings(pairs: Iterable[Pair]) -> Callable[[str, str], bool]:
    """Return whether two members have met in any of these pairs."""
    known = {frozenset(pair) for pair in pairs}
    return lambda a, b: frozenset((a, b)) in known


LEAF_MEMBERS = 8
"""Most members of a suspected leaf measured towards others in a round."""
CHOICES = 24
"""Most good partners considered for a suspect."""


@dataclass(frozen=True, slots=True)
class PairsVerdict:
    """The end: named parts, and open parts. `rounds`: how many ran."""

    assessment: Assessment
    rounds: int
    health: Health


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """A round to run, with the knowledge before it."""

    round: PairRound
    assessment: Assessment | None


def next_step(
    fleet: PairFleet, rounds: Sequence[MeasuredRound], idle: Collection[str] | None = None,
    limits: PairLimits = DEFAULT_LIMITS, seed: int = 0,
) -> PlannedRound | PairsVerdict:  # fmt: skip
    """Return the next round of idle members (None: all are), or the verdict.

    The same arguments give the same answer. A verdict comes when nothing is open, after `limits.most` rounds,
    or when no idle member could add more.
    """
    loud = [one for one in rounds if one.round.purpose not in QUIET]
    number = 1 + max((one.round.number for one in rounds), default=0)
    chance = Random(f"{seed}:{number}")  # noqa: S311 - a matching, no secret
    there = [one.name for one in fleet.members if idle is None or one.name in idle]
    met = [pair for one in rounds for pair in one.round.pairs]
    crowded = ENOUGH <= len(loud) <= limits.first and crowded_across(fleet, rounds, limits)
    if len(loud) < min(limits.first + crowded, limits.most):
        planned = _first(fleet, rounds, there, meetings(met), chance, number, crowded=crowded)
        if planned.pairs:
            return PlannedRound(planned, None)
    known = assess(fleet, rounds, limits)
    build = ConfirmingRound(known, fleet.leafs(), frozenset(there), met, chance)
    if len(loud) < limits.most and (pairs := build.pairs()):
        return PlannedRound(PairRound(number, RoundPurpose.CONFIRM, pairs), known)
    last = _alone(rounds, build, limits, number)
    if last is None and known.collisions and limits.queue_pairs:
        last = _queues(fleet, rounds, there, chance, number, limits)
    if last is not None:
        return PlannedRound(last, known)
    return PairsVerdict(known, len(rounds), health(known, limits))


ENOUGH = 2
"""Rounds that show whether routes across leafs are shared."""
QUIET = frozenset({RoundPurpose.ALONE, RoundPurpose.QUEUES})
REFERENCES = 2
"""Runs alone of healthy members, which show a pair's rate on unshared links."""


def _alone(
    rounds: Sequence[MeasuredRound], build: "ConfirmingRound", limits: PairLimits, number: int
) -> PairRound | None:
    """Run suspects alone, every other time with more queue pairs; None where none must run so."""
    ran = sum(one.round.purpose is RoundPurpose.ALONE for one in rounds)
    if ran >= limits.quiet or not limits.alone:
        return None
    build.before = [pair for one in rounds for pair in one.round.alone(build.leafs)]
    pairs = build.pairs_alone()
    queues = limits.queue_pairs if ran % 2 and build.known.open else 0
    return PairRound(number, RoundPurpose.ALONE, pairs, queue_pairs=queues) if pairs else None


def _queues(
    fleet: PairFleet, rounds: Sequence[MeasuredRound], there: Sequence[str], chance: Random, number: int,
    limits: PairLimits,
) -> PairRound | None:  # fmt: skip
    """Run all pairs at once with more queue pairs, once, to see whether this helps."""
    if any(one.round.purpose is RoundPurpose.QUEUES for one in rounds):
        return None
    planned = _first(fleet, (), there, meetings(()), chance, 1)
    return replace(planned, number=number, purpose=RoundPurpose.QUEUES, queue_pairs=limits.queue_pairs)


def health(known: Assessment, limits: PairLimits = DEFAULT_LIMITS) -> Health:
    """Return FAILED or DEGRADED for named parts; UNKNOWN where parts stay open, which FAILED outweighs."""
    found = [Health.FAILED if one.loss >= limits.failed else Health.DEGRADED for one in known.named]
    found += [Health.DEGRADED for one in known.collisions if one.loss >= limits.least]
    if known.open or known.thin or known.silent or known.unseen or not known.typical:
        found.append(Health.UNKNOWN)
    return max(found, default=Health.OK)


def _first(
    fleet: PairFleet, rounds: Sequence[MeasuredRound], there: Sequence[str],
    met: Callable[[str, str], bool], chance: Random, number: int, *, crowded: bool = False,
) -> PairRound:  # fmt: skip
    """Pair across leafs, inside them, and across again; at random with fewer than two known leafs.

    Where routes across leafs are `crowded`, pair inside them, where a single switch decides.
    """
    idle = set(there)
    leafs = {name: leaf for name, leaf in fleet.leafs().items() if name in idle}
    rested = Counter(name for one in rounds for name in one.round.resting)
    if len(set(leafs.values())) < 2:  # noqa: PLR2004
        pairs, resting = matching(there, met, chance, rested)
        return PairRound(number, RoundPurpose.RANDOM, pairs, resting)
    if number % 3 == 2 or crowded:  # noqa: PLR2004
        pairs, resting = inside(there, leafs, met, chance, rested)
        return PairRound(number, RoundPurpose.INSIDE, pairs, resting)
    pairs, resting = matching(there, lambda a, b: met(a, b) or _same(leafs, a, b), chance, rested)
    return PairRound(number, RoundPurpose.ACROSS, pairs, resting)


def _same(leafs: Mapping[str, str], a: str, b: str) -> bool:
    return leafs.get(a, "") == leafs.get(b)


class _Asked(NamedTuple):
    """A member with too few results: its apparent loss and directions; 0 if nothing is known."""

    name: str
    losses: Mapping[Way, float]
    rail: str = ""


@dataclass(slots=True)
class ConfirmingRound:
    """Builds the pairs of a later round; each member is in one pair at most.

    `busy`: leafs in which a pair runs alone; None while pairs need not run alone.
    """

    known: Assessment
    leafs: Mapping[str, str]
    there: frozenset[str]
    before: Sequence[Pair]
    chance: Random
    used: set[str] = field(default_factory=set)
    made: list[Pair] = field(default_factory=list)
    busy: set[str] | None = None

    def pairs_alone(self) -> tuple[Pair, ...]:
        """Return pairs without a common route: suspects, members never seen whole, and good pairs beside.

        The good pairs show the rate of a pair alone, where all are slower at once.
        """
        self.busy = set()
        good = self._good(self.known.open)
        met = meetings(self.before)
        wanted = any(one.alone < REFERENCES for one in self.known.collisions)
        if wanted and not self.leafs:
            self._references(good)
        single = [one for one in self.known.open if one.place.kind in {PartKind.NODE, PartKind.PAIR}]
        for part in sorted(single, key=lambda one: -one.loss):
            if part.place.kind is PartKind.PAIR:
                self._add(*self._pair_or_others(part.place.name, part.place.peer, good))
            else:
                self._with_good(_asked(part.place.name, part), good, met)
        for name in self.known.unseen:
            if name not in {one.place.name for one in single}:
                self._with_good(_Asked(name, {Way.TOGETHER: 0.0}), good or [*self.there], met)
        if wanted or (self.made and self.known.collisions):
            self._references(good)
        return tuple(self.made)

    def _pair_or_others(self, a: str, b: str, good: Sequence[str]) -> Pair:
        """Return a suspected pair, or others of its two leafs for comparison: the less often run alone."""
        mine = sum({a, b} == {*pair} for pair in self.before)
        like = [pair for pair in self.before if self._leafs_of(*pair) == self._leafs_of(a, b)]
        ends = ([one for one in good if one not in {a, b} and _same(self.leafs, one, end)] for end in (a, b))
        other = tuple(some[0] for some in ends if some)
        if self.leafs and not _same(self.leafs, a, b) and len(other) == 2 and len(like) - mine < mine:  # noqa: PLR2004
            return other
        return a, b

    def _references(self, good: Sequence[str]) -> None:
        """Add pairs of healthy members: pairs that ran alone before, then others across leafs and inside.

        A next run clears a pair that traffic slowed once, while each new pair would be a new suspect.
        """
        lacking = {one.across for one in self.known.collisions if one.alone < REFERENCES}
        for a, b in self.before:
            if a in good and b in good and (not lacking or across(self.leafs, a, b) in lacking):
                self._add(a, b)
        one_each = list({self.leafs.get(name, name): name for name in good}.values())
        for a, b in zip(one_each[::2], one_each[1::2], strict=False):
            if lacking != {False}:
                self._add(a, b)
        for a in good:
            others = (b for b in good if b != a and _same(self.leafs, a, b) and b not in self.used)
            for b in islice(others, 1):
                self._add(a, b)

    def pairs(self) -> tuple[Pair, ...]:
        """Return the most informative pairs of the present members."""
        suspects = self.known.suspects
        good = self._good(suspects)
        met = meetings(self.before)
        for part in suspects:
            if part.place.kind is PartKind.PAIR:
                self._add(part.place.name, part.place.peer)
        asked = [_asked(name, part) for part in suspects for name in self._members(part)]
        asked += [_Asked(name, {Way.TOGETHER: 0.0}) for name in self._little_known()]
        for one in asked:
            self._with_good(one, good, met)
        self._left(met)
        return tuple(self.made)

    def _good(self, suspects: Iterable[NamedPart]) -> list[str]:
        """Return unsuspected members, outside suspected leafs, with enough results."""
        bad = {name for part in suspects for name in (part.place.name, part.place.peer)}
        bad |= {
            part.place.name
            for part in (*self.known.named, *self.known.unconfirmed)
            if part.place.kind is PartKind.NODE
        }
        bad |= {*self._little_known(), *self.known.silent}
        leafs = {part.place.name for part in suspects if part.place.kind is PartKind.LEAF}
        good = sorted(
            one.name for one in self.known.members
            if one.name in self.there and one.name not in bad and self.leafs.get(one.name) not in leafs
        )  # fmt: skip
        self.chance.shuffle(good)
        return good

    def _little_known(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.known.thin, *self.known.unseen)))

    def _members(self, part: NamedPart) -> list[str]:
        """Return the members that must run to confirm a suspect."""
        place = part.place
        if place.kind is PartKind.NODE:
            return [place.name]
        if place.kind is PartKind.LEAF:
            inside_it = sorted(name for name in self.there if self.leafs.get(name) == place.name)
            self.chance.shuffle(inside_it)
            return inside_it[:LEAF_MEMBERS]
        if place.kind is PartKind.RAIL:
            some = sorted(self.there)
            return self.chance.sample(some, min(LEAF_MEMBERS, len(some)))
        return []

    def _with_good(self, asked: _Asked, good: list[str], met: Callable[[str, str], bool]) -> None:
        """Pair with the good partner on the freest way, preferably a new partner."""
        name = asked.name
        free = [one for one in good if one not in self.used and one != name and self._room(name, one)]
        ours = [one for one in free if _same(self.leafs, name, one)]
        # Inside a leaf no other pair is in the way, and alone one that runs there leaves room for others.
        inside = self.busy is not None or any(one.across for one in self.known.collisions)
        ranked = sorted(
            (*self._in_the_way(asked, one), met(name, one), inside and not _same(self.leafs, name, one),
             place, one)
            for place, one in enumerate((*free[:CHOICES], *ours[:CHOICES]))
        )  # fmt: skip
        if ranked and ranked[0][0] < len(asked.losses):
            self._add(name, ranked[0][-1])

    def _in_the_way(self, asked: _Asked, other: str) -> tuple[int, bool]:
        """Return how many directions a run with this partner hides, and whether anything is in its way.

        A named part other than the member itself hides equal and smaller losses in its direction.
        """
        name = asked.name
        named = [
            part for part in self.known.named if (part.place.kind, part.place.name) != (PartKind.NODE, name)
        ]
        hiding, any_ = 0, False
        for way, loss in asked.losses.items():
            there, back = (
                explained(named, *two, self.leafs, asked.rail) for two in ((name, other), (other, name))
            )
            lost = {Way.SENDS: there, Way.RECEIVES: back}.get(way, max(there, back))
            hiding += lost > 0 and lost >= loss
            any_ |= lost > 0
        return hiding, any_

    def _left(self, met: Callable[[str, str], bool]) -> None:
        """Pair members without a good partner with each other, inside their leaf first."""
        rest = [name for name in self._little_known() if name in self.there and name not in self.used]
        pairs, _ = inside(rest, self.leafs, met, self.chance, {})
        for pair in pairs:
            self._add(*pair)

    def _add(self, a: str, b: str) -> None:
        if {a, b} <= self.there and not self.used & {a, b} and self._room(a, b):
            self.used |= {a, b}
            self.made.append((a, b))
            if self.busy is not None:
                self.busy |= self._leafs_of(a, b)

    def _leafs_of(self, a: str, b: str) -> set[str]:
        return {self.leafs.get(name, "") for name in (a, b)}

    def _room(self, a: str, b: str) -> bool:
        """Return whether the two would run alone where they must: in known leafs, or as the only pair."""
        if self.busy is None or not self.made:
            return True
        leafs = self._leafs_of(a, b)
        return "" not in {*leafs, *self.busy} and not leafs & self.busy


def _asked(name: str, part: NamedPart) -> _Asked:
    return _Asked(name, {one.way: one.loss for one in part.losses}, part.place.rail)
