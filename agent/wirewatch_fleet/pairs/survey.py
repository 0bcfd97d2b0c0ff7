"""Judges a measure of all runs: its slow parts, from the widest to the narrowest. Pure.

A run shows the minimum over all parts on its way. So only runs that no wider part explains name a part, which
then masks all narrower parts. The order is rail, leaf, node, rail of a node, pair.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from typing import NamedTuple

from wirewatch.core.pairs import PartKind, Way
from wirewatch.core.statistics import grouped, low_median
from wirewatch_fleet.pairs.crowd import Crowd, End, crowds, slow_from, stands_out
from wirewatch_fleet.pairs.model import PairLimits, SlowPlace
from wirewatch_fleet.pairs.observations import ALL_RAILS, Observation, all_but_a_quarter, weigh
from wirewatch_fleet.pairs.spread import (
    HealthySpread,
    JudgedPart,
    NamingBar,
    RoundLoss,
    healthy_spread,
    judge,
)

CLIP = 2.5
"""Standard deviations at which a loss is cut, since a slow partner is not the member's own pace."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Sums and counts of cut losses, for each end of the unexplained observations.

    `most`: the cut of a loss on both sides.
    """

    sums: Mapping[End, tuple[float, int]]
    between: float
    noise: float
    most: float

    def without(self, end: End, one: Observation) -> float:
        """Return a member's own loss by all its other runs, drawn towards 0 by their possible error."""
        total, count = self.sums.get(end, (0.0, 0))
        if one.explained() <= 0:
            total, count = total - _cut(one.loss, self.most), count - 1
        if not count:
            return 0.0
        known = count * self.between**2
        return total / count * known / (known + self.noise**2)


def set_paces(every: Sequence[Observation], spread: HealthySpread) -> None:
    """Compute the paces of both ends; `spread`: of members, before their partners' own paces are removed."""
    known = _offsets(every, spread)
    for one in every:
        a, b = one.ends
        one.paces = (known.without(a, one), known.without(b, one))


def _offsets(every: Iterable[Observation], spread: HealthySpread) -> Offsets:
    most = CLIP * math.hypot(spread.between, spread.within)
    sums: dict[End, tuple[float, int]] = {}
    for one in every:
        if one.explained() > 0:
            continue
        cut = _cut(one.loss, most)
        for end in one.ends:
            total, count = sums.get(end, (0.0, 0))
            sums[end] = (total + cut, count + 1)
    return Offsets(sums, spread.between, spread.within, most)


def _cut(loss: float, most: float) -> float:
    return max(-most, min(most, loss))


GROUP = 4
"""Least runs of a leaf or rail in a round for the round to count."""
ONE_LEAF = 0.75
"""Share of a leaf's runs with a single other leaf, above which the slow leaf is undecided."""
NEARLY = 0.1
"""Share of a leaf's loss towards others by which it may lose less inside and still count as equally slow."""
OTHERS = 2
"""Other partners that both ends of a pair must run well with before the pair is suspected."""
SAMPLED = 100
"""Most ends sampled for the spread of healthy nodes' rails."""
KINDS = 24
"""Chances of naming a part by mistake: three measures, with eight kinds of parts each."""


class Found(NamedTuple):
    """A judged part in a direction."""

    place: SlowPlace
    way: Way
    judged: JudgedPart


@dataclass(slots=True)
class Survey:
    """The state of a measure while its parts are judged. `nodes`: each end, before anything is named."""

    every: Sequence[Observation]
    leafs: Mapping[str, str]
    limits: PairLimits
    explained_before: frozenset[Observation] = frozenset()
    ends: dict[End, list[Observation]] = field(default_factory=dict)
    ways: frozenset[Way] = frozenset()
    spread: HealthySpread = field(default_factory=lambda: HealthySpread(0.0, 0.0, ()))
    doubtful: frozenset[Observation] = frozenset()
    nodes: dict[End, JudgedPart] = field(default_factory=dict)
    crowded: frozenset[Crowd] = frozenset()
    named: list[Found] = field(default_factory=list)
    suspects: list[Found] = field(default_factory=list)

    def first_look(self) -> None:
        """Judge wide parts, and nodes, against the upper quartile of all runs."""
        self.ends = grouped((end, one) for one in self.every for end in one.ends)
        self.ways = frozenset(way for _, way in self.ends)
        weigh(self.every)
        self._judge_wide()

    def run(self) -> None:
        """Judge all parts twice, the second time against the median of the runs that the first found well."""
        self.first_look()
        self.doubtful = frozenset(
            one for end, judged in self.nodes.items() if judged.suspected for one in self.ends[end]
        )
        weigh(self.every, lambda one, rail: one.explained(rail) <= 0 and one not in self.doubtful)
        self._judge_wide()
        self._node_rails()
        self._pairs()

    @property
    def rails(self) -> list[str]:
        return sorted({rail for one in self.every for rail in one.logs} - {ALL_RAILS})

    def _judge_wide(self) -> None:
        for one in self.every:
            one.masked, one.rails_masked = (inf if one in self.explained_before else 0.0), {}
            one.see_loss()
        self.named, self.suspects = [], []
        self._see_spread()
        self._groups(self.rail_parts())
        self._groups(self.leaf_parts())
        self._leafs_inside()
        self.crowded = crowds(self.every, self.ends, self.slow)
        self._see_spread()
        self._nodes()

    def _see_spread(self) -> None:
        """Measure the spread of healthy nodes, and each node's own pace, by the unexplained losses."""
        least = self.bar(1).least
        well = {end: [one for one in some if one not in self.doubtful] for end, some in self.ends.items()}
        for one in self.every:
            one.paces = (0.0, 0.0)
        set_paces(self.every, healthy_spread((_points(end, some) for end, some in well.items()), least))
        self.spread = healthy_spread((_points(end, some) for end, some in well.items()), least)

    @property
    def slow(self) -> float:
        """Return the loss from which on a run counts as slowed by others."""
        return slow_from(math.hypot(self.spread.between, self.spread.within))

    def bar(self, parts: int) -> NamingBar:
        """Return the conditions for naming, among so many candidate parts."""
        return NamingBar(parts, self.limits.error / KINDS, self.limits)

    # Rails of the whole fleet, and leafs: many members at once.

    def rail_parts(self) -> Iterator[tuple[SlowPlace, Way, Sequence[Observation]]]:
        """Yield each rail of the whole fleet, where there are several, with its runs."""
        rails = self.rails
        if len(rails) > 1:
            for rail in rails:
                some = [one for one in self.every if rail in one.losses]
                yield SlowPlace(PartKind.RAIL, rail, rail=rail), Way.TOGETHER, some

    def leaf_parts(self) -> Iterator[tuple[SlowPlace, Way, Sequence[Observation]]]:
        """Yield whole leafs, then single rails of them, both by their outgoing or incoming runs."""
        across = [one for one in self.every if one.across]
        groups = grouped(((self.leafs[name], way), one) for one in across for name, way in one.ends)
        rails = self.rails
        for rail in (ALL_RAILS, *(rails if len(rails) > 1 else ())):
            for (leaf, way), some in groups.items():
                yield SlowPlace(PartKind.LEAF, leaf, rail=rail, across=True), way, some

    def _groups(self, parts: Iterable[tuple[SlowPlace, Way, Sequence[Observation]]]) -> None:
        """Name groups, the slowest first, and mask their losses; all rails precede single rails."""
        listed = [(place, way, some, self.rounds_of(place, some)) for place, way, some in parts]
        losses = healthy_spread((points for *_, points in listed), self.bar(1).least).losses
        spread = HealthySpread(self.spread.between, self.spread.within, losses)
        for rail in (False, True):
            these = [one for one in listed if bool(one[0].rail) is rail]
            bar = self.bar(len(these))
            found = [(judge(points, spread, bar), place, way, some) for place, way, some, points in these]
            suspected = [one for one in found if one[0].suspected]
            doubtful = {place.name for _, place, *_ in suspected}
            for before, place, way, some in sorted(suspected, key=lambda one: -one[0].deviations):
                limit = max(bar.least, before.loss / 2)
                if not stands_out(place, some, self.every, limit, self.leafs, doubtful):
                    continue
                now = judge(self.rounds_of(place, some), spread, bar)
                if now.named:
                    self._name_group(place, way, now, some)
                elif now.suspected:
                    # Until it is settled, nothing narrower is judged by what may be its doing.
                    self.suspects.append(Found(place, way, now))
                    for one in some:
                        one.mask(now.loss, place.rail)

    def rounds_of(self, place: SlowPlace, some: Sequence[Observation]) -> list[RoundLoss]:
        """Return a group in each round; for a leaf, only rounds with several other leafs if several exist."""
        rounds = grouped((one.round, one) for one in some if not place.rail or place.rail in one.losses)
        several = place.kind is PartKind.LEAF and len(set(self.leafs.values())) > 2  # noqa: PLR2004
        points = []
        for number, runs in rounds.items():
            if len(runs) < GROUP or (several and self._one_sided(place.name, runs)):
                continue
            losses = (one.losses[place.rail] if place.rail else one.loss for one in runs)
            masked = (one.explained(place.rail) for one in runs)
            points.append(
                RoundLoss(number, all_but_a_quarter(losses), all_but_a_quarter(masked), f"{number}")
            )
        return points

    def _one_sided(self, leaf: str, runs: Sequence[Observation]) -> bool:
        others = Counter(
            other for one in runs for name, _ in one.ends if (other := self.leafs.get(name, "")) != leaf
        )
        return max(others.values()) > ONE_LEAF * len(runs)

    def _name_group(
        self, place: SlowPlace, way: Way, judged: JudgedPart, some: Sequence[Observation]
    ) -> None:
        within = self.within(place) if place.kind is PartKind.LEAF else []
        if self.as_slow_inside(place, judged.loss, within):
            place = SlowPlace(PartKind.LEAF, place.name, rail=place.rail)
            some = [*some, *within]
        self._name(place, way, judged, some)

    def _name(self, place: SlowPlace, way: Way, judged: JudgedPart, some: Sequence[Observation]) -> None:
        losses = sorted(_losses(some, place.rail))
        judged = replace(judged, loss=median(losses))
        self.named.append(Found(place, way, judged))
        low, high = all_but_a_quarter(losses), losses[-1 - len(losses) // 4]
        # Load that comes and goes explains all that its runs lose; what is always there no more than that.
        uneven = high - low > max(self.bar(1).least, judged.loss / 2)
        for one in some:
            one.mask(losses[-1] if uneven else judged.loss, place.rail)

    def within(self, leaf: SlowPlace) -> list[Observation]:
        """Return runs between two members of a leaf."""
        return [
            one for one in self.every
            if one.across is False and self.leafs[one.sender] == leaf.name
            and leaf.rail in {ALL_RAILS, *one.losses}
        ]  # fmt: skip

    def as_slow_inside(self, leaf: SlowPlace, loss: float, within: Sequence[Observation]) -> bool:
        """Return whether a leaf is as slow inside as towards others, where the runs can show it.

        Inside runs do not count where a named part, in the other direction, explains a greater loss.
        """
        apart = max(self.bar(1).least, NEARLY * loss)
        told = _losses((one for one in within if one.explained(leaf.rail) <= loss + apart), leaf.rail)
        return len(told) >= GROUP and all_but_a_quarter(told) >= max(loss / 2, loss - apart)

    def _leafs_inside(self) -> None:
        """Name leafs that are slow towards others and less so inside, judging each run separately.

        Both ends of such a run are in the leaf, so it shows all its named directions.
        """
        leafs = (one for one in self.named if one.place.across)
        for leaf, named in grouped((one.place, one.way) for one in leafs).items():
            within = self.within(leaf)
            points = [
                RoundLoss(one.round, loss, one.explained(leaf.rail), f"{n}")
                for n, (one, loss) in enumerate(zip(within, _losses(within, leaf.rail), strict=True))
            ]
            judged = judge(points, self.spread, self.bar(len(self.ends)))
            if judged.rounds >= GROUP and judged.named:
                for way in named:
                    self._name(SlowPlace(PartKind.LEAF, leaf.name, rail=leaf.rail), way, judged, within)

    # Nodes, their rails, and pairs.

    def _nodes(self) -> None:
        bar = self.bar(len(self.ends))
        self.nodes = {end: judge(_points(end, self.ends[end]), self.spread, bar) for end in self.ends}
        waiting = [end for end, judged in self.nodes.items() if judged.suspected]
        named: set[str] = set()
        for _ in range(2):
            left = []
            for end in sorted(waiting, key=lambda one: -self.nodes[one].deviations):
                # Where one direction of a node is named, the other is one of few to ask about, not of all.
                judged = judge(
                    _points(end, self.ends[end]), self.spread, self.bar(4) if end[0] in named else bar
                )
                if judged.named and self.confirmed(end, judged):
                    named.add(end[0])
                    self.named.append(Found(SlowPlace(PartKind.NODE, end[0]), end[1], judged))
                    for one in self.ends[end]:
                        one.mask(judged.loss)
                elif judged.suspected:
                    left.append(end)
                self.nodes[end] = judged
            waiting = left
        for end in waiting:
            judged = self.nodes[end] = judge(_points(end, self.ends[end]), self.spread, bar)
            if judged.suspected:
                self.suspects.append(Found(SlowPlace(PartKind.NODE, end[0]), end[1], judged))
                for one in self.ends[end]:
                    one.mask(judged.loss)

    def confirmed(self, end: End, judged: JudgedPart) -> bool:
        """Return whether an end is slow with two or more partners, of whom some are well with others."""
        if len(judged.slow_with) <= 1:
            return False
        back = {Way.SENDS: Way.RECEIVES, Way.RECEIVES: Way.SENDS}.get(end[1], Way.TOGETHER)
        return any(self._good((partner, back)) for partner in judged.slow_with)

    def _good(self, end: End) -> bool:
        judged = self.nodes[end]
        return not judged.suspected and judged.rounds > judged.slow

    def _node_rails(self) -> None:
        rails = self.rails
        if len(rails) <= 1:
            return
        bar = self.bar(len(self.ends) * len(rails))
        step = -(-len(self.ends) // SAMPLED)
        sampled = list(self.ends)[::step]
        spread = healthy_spread(
            (_points(end, self.ends[end], rail) for end in sampled for rail in rails), bar.least
        )
        found: list[tuple[JudgedPart, End, str]] = []
        for end, rail in self.slow_rails(bar.least):
            judged = judge(_points(end, self.ends[end], rail), spread, bar)
            if judged.suspected:
                found.append((judged, end, rail))
        named: set[tuple[str, str]] = set()
        for _, end, rail in sorted(found, key=lambda one: -one[0].deviations):
            # As of a node: where one direction is named, the other is one of few.
            asked = self.bar(4) if (end[0], rail) in named else bar
            judged = judge(_points(end, self.ends[end], rail), spread, asked)
            if not judged.suspected or self.on_all_rails(end, judged):
                continue
            part = Found(SlowPlace(PartKind.NODE, end[0], rail=rail), end[1], judged)
            if judged.named and len(judged.slow_with) > 1:
                self.named.append(part)
                named.add((end[0], rail))
            else:
                self.suspects.append(part)
            for one in self.ends[end]:
                one.mask(judged.loss, rail)

    def on_all_rails(self, end: End, rail: JudgedPart) -> bool:
        """Return whether a node is about as slow as a rail of it, so that the whole node is suspected."""
        whole = judge(_points(end, self.ends[end]), self.spread, self.bar(len(self.ends)))
        least = max(self.bar(1).least, rail.loss / 2)
        if self._named_node(end) or 2 * whole.slow <= whole.rounds or whole.loss < least:
            return False
        self.suspect_node(end, whole)
        return True

    def suspect_node(self, end: End, judged: JudgedPart, rail: str = ALL_RAILS) -> None:
        """Suspect a node, or a rail of it, instead of a narrower part."""
        found = Found(SlowPlace(PartKind.NODE, end[0], rail=rail), end[1], judged)
        if all((one.place, one.way) != (found.place, found.way) for one in self.suspects):
            self.suspects.append(found)
        for one in self.ends[end]:
            one.mask(judged.loss, rail)

    def slow_rails(self, least: float) -> Iterator[tuple[End, str]]:
        """Yield ends and rails with any slow and unexplained run."""
        slow = {
            (end, rail)
            for one in self.every
            for rail, loss in one.losses.items()
            if loss > least and loss > one.explained(rail)
            for end in one.ends
        }
        yield from sorted(slow, key=lambda one: (one[0][0], one[0][1].value, one[1]))

    def _pairs(self) -> None:
        met = grouped(((one.sender, one.receiver), one) for one in self.every)
        bar = self.bar(len(met))
        spread = healthy_spread((self._pair_points(some) for some in met.values()), bar.least)
        together = HealthySpread(max(spread.between, spread.within), spread.within, spread.losses)
        for (a, b), some in met.items():
            if any(one.loss > bar.least for one in some):
                self.judge_pair(SlowPlace(PartKind.PAIR, a, b), some, together, bar)
        rails = self.rails
        if len(rails) <= 1:
            return
        bar = self.bar(len(met) * len(rails))
        for (a, b), some in met.items():
            slow = {rail for one in some for rail, loss in one.losses.items()
                    if loss > bar.least and loss > one.explained(rail)}  # fmt: skip
            for rail in sorted(slow):
                self.judge_pair(SlowPlace(PartKind.PAIR, a, b, rail), some, together, bar)

    def judge_pair(
        self, place: SlowPlace, some: Sequence[Observation], spread: HealthySpread, bar: NamingBar
    ) -> None:
        """Name a pair, suspect it, or suspect an end of it that is as slow with others."""
        judged = judge(self._pair_points(some, place.rail), spread, bar)
        if not judged.suspected or not all(self.known_apart(end) for end in some[0].ends):
            return
        slow = [end for end in some[0].ends if self.slow_with_others(end, place, judged.loss / 2)]
        if slow:
            for end in slow:
                alone = judge(_points(end, self.ends[end], place.rail), self.spread, bar)
                self.suspect_node(end, alone, place.rail)
            return
        part = Found(place, some[0].ends[0][1], judged)
        (self.named if judged.named else self.suspects).append(part)
        for one in some:
            one.mask(judged.loss, place.rail)

    def _pair_points(self, some: Sequence[Observation], rail: str = ALL_RAILS) -> list[RoundLoss]:
        points = []
        for one in some:
            loss = one.losses.get(rail) if rail else one.loss
            if loss is not None:
                points.append(
                    RoundLoss(one.round, loss - sum(one.paces), one.explained(rail), f"{one.round}")
                )
        return points

    def known_apart(self, end: End) -> bool:
        """Return whether a pair's member is known separately: named itself, or not suspected with others."""
        if self._named_node(end):
            return True
        others = {one.receiver if one.sender == end[0] else one.sender for one in self.ends[end]}
        return not self.nodes[end].suspected and len(others) - 1 >= OTHERS

    def slow_with_others(self, end: End, pair: SlowPlace, least: float) -> bool:
        """Return whether a pair's member loses as much with others; then the pair's runs prove nothing."""
        others = [
            one.loss for one in _points(end, self.ends[end], pair.rail)
            if one.partner not in {pair.name, pair.peer} and one.explained <= 0
        ]  # fmt: skip
        return bool(others) and not self._named_node(end) and low_median(others) > least

    def _named_node(self, end: End) -> bool:
        place = SlowPlace(PartKind.NODE, end[0])
        return any((one.place, one.way) == (place, end[1]) for one in self.named)


def _losses(some: Iterable[Observation], rail: str) -> list[float]:
    """Return the losses of runs that measured this rail, or of all rails."""
    return [one.losses[rail] if rail else one.loss for one in some if rail in {ALL_RAILS, *one.losses}]


def _points(end: End, some: Sequence[Observation], rail: str = ALL_RAILS) -> list[RoundLoss]:
    """Return a member's runs in a direction, without its partners' own pace."""
    points = []
    for one in some:
        there = 1 if one.ends[0] == end else 0
        loss = one.losses.get(rail) if rail else one.loss
        if loss is not None:
            points.append(
                RoundLoss(one.round, loss - one.paces[there], one.explained(rail), one.ends[there][0])
            )
    return points
