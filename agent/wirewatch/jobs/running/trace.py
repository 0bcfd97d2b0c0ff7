"""Where lateness begins: a rank that was held up in another communicator before is not the cause. Pure.

A process has several communicators (tensor, pipeline, data parallel). All of its collectives on one GPU are
on one clock, so that between two collectives of one communicator a rank's own time is known: what it did not
spend in collectives of others. Only by more of that a rank is late itself. What is left is passed on: to the
rank for which it waited there, or out of this node. Clocks of different GPUs are never compared: they share
the ends of collectives alone. Where records do not show all of that, nobody is named.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from wirewatch.core.jobs import RingReading
from wirewatch.core.statistics import grouped
from wirewatch.jobs.running.grouping import RingGroup, process_key
from wirewatch.jobs.running.join import Complete
from wirewatch.jobs.running.model import (
    MOST_SPANS,
    SPANS_IN_ALL,
    CommunicatorKey,
    JoinedCollective,
    ProcessKey,
    RingProgress,
    Span,
)
from wirewatch.jobs.running.parallel import all_to_all, calls_of
from wirewatch.jobs.times import ELSEWHERE, TimesDoubt

ACTIVE = 15
"""Polls since its last call for which a communicator counts as in use."""
RARE = 5
"""So many collectives are between two of which something untimed may lie, where that is of no account."""
_UNKNOWN = ""
"""In the place of a cause."""
_SOME = 3
SpanKey = tuple[CommunicatorKey, str, int]


@dataclass
class ProcessLine:
    """What one process did on one GPU, by its clock; `holes`: where calls are missing.

    A hole is the moment at which it ends, and that at which it begins. `begun`: when a communicator was first
    timed. `spans` in the order of their ends. `alone`: by communicator, whether it has one rank here and
    others on other nodes.
    """

    spans: list[Span]
    alone: Mapping[CommunicatorKey, bool]
    places: dict[SpanKey, int] = field(init=False)
    stops: list[float] = field(init=False)
    holes: dict[tuple[CommunicatorKey, str], list[tuple[float, float]]] = field(init=False)
    begun: dict[CommunicatorKey, float] = field(init=False)

    def __post_init__(self) -> None:
        self.spans.sort(key=lambda one: one.stopped)
        self.stops = [one.stopped for one in self.spans]
        self.places = {one[:3]: place for place, one in enumerate(self.spans)}
        self.begun = {one.communicator: one.started for one in reversed(self.spans)}
        calls = grouped(((one.communicator, one.op), one) for one in self.spans)
        self.holes = {
            key: [
                (new.started, old.stopped)
                for old, new in pairwise(mine)
                if new.sequence != old.sequence + 1
            ]
            for key, mine in calls.items()
        }  # fmt: skip

    def between(self, key: CommunicatorKey, begin: float, end: float) -> list[Span]:
        """Collectives of other communicators that ended there; one that goes on does not hold up the next."""
        found = self.spans[bisect_right(self.stops, begin) : bisect_right(self.stops, end)]
        return [one for one in found if one.communicator != key]

    def is_whole(self, key: CommunicatorKey, begin: float, end: float) -> bool:
        """Whether all calls of other communicators between two of `key` were timed.

        Calls that are missing before the timing of `key` itself began are from before it.
        """
        mine = (holes[: _until(holes, end)] for (one, _), holes in self.holes.items() if one == key)
        since = max([self.begun.get(key, begin), *(holes[-1][0] for holes in mine if holes)])
        return not any(
            since <= hole[1] < end
            for (other, _), holes in self.holes.items()
            if other != key
            for hole in holes[_until(holes, begin) :][:_SOME]
        )


@dataclass(frozen=True, slots=True)
class Interval:
    """A rank from the last meeting in a communicator to its start: seconds of its `own`, and of others."""

    own: float
    spans: tuple[Span, ...]


class Tracer:
    """Traces the collectives of one poll, each after those that its ranks were in before.

    Args:
        groups: communicators by key.
        complete: by key, what all of their local ranks timed.
        rings: how far each ring has come.
        known: spans of earlier polls.
    """

    def __init__(
        self, groups: Mapping[CommunicatorKey, RingGroup], complete: Mapping[CommunicatorKey, Complete],
        rings: Mapping[str, RingProgress], known: Mapping[ProcessKey, Sequence[Span]],
    ) -> None:  # fmt: skip
        self._groups, self._complete, self._rings = groups, complete, rings
        self._by_process = grouped(
            (_process(one), (key, one.ring.name)) for key, group in groups.items() for one in group.rings
        )
        self.lines = {
            process: self._line(process, known) for process in self._by_process if self._many(process)
        }
        self._found: dict[SpanKey, JoinedCollective] = {}
        self._intervals: dict[SpanKey, dict[int, Interval] | None] = {}
        self._sure = {key: self._is_sure(key) for key in groups}

    def traced(self, key: CommunicatorKey) -> list[JoinedCollective]:
        """The joined collectives of a communicator, each with its ranks' own lateness."""
        for call in self._complete[key].joined:
            self._trace((key, *call))
        return [self._found[key, *call] for call in self._complete[key].joined]

    def spans(self) -> dict[ProcessKey, tuple[Span, ...]]:
        """The newest spans of each process, for the next poll."""
        most = min(MOST_SPANS, SPANS_IN_ALL // max(1, len(self.lines)))
        return {process: tuple(line.spans[-most:]) for process, line in self.lines.items()}

    def _many(self, process: ProcessKey) -> bool:
        used = {key for key, name in self._by_process[process] if self._rings[name].idle <= ACTIVE}
        return len(used) > 1

    def _line(self, process: ProcessKey, known: Mapping[ProcessKey, Sequence[Span]]) -> ProcessLine:
        mine = {name: key for key, name in self._by_process[process]}
        new = {
            (key, call.op, call.sequence): Span(key, call.op, call.sequence, call.started, call.stopped)
            for key in mine.values()
            for one in self._groups[key].rings
            if one.ring.name in mine
            for call in one.calls
            if call.started is not None and call.stopped is not None
        }
        old = {one[:3]: one for one in known.get(process, ()) if one.communicator in mine.values()}
        alone = {key: _is_alone(self._groups[key]) for key in mine.values()}
        return ProcessLine([*{**old, **new}.values()], alone)

    def _is_sure(self, key: CommunicatorKey) -> bool:
        """Whether what is not timed in its processes is rare enough beside its calls to be of no account."""
        group = self._groups[key]
        calls = max(calls_of(self._rings[one.ring.name]) for one in group.rings)
        return all(calls >= RARE * self._untimed(group, _process(one)) for one in group.rings)

    def _untimed(self, group: RingGroup, process: ProcessKey) -> int:
        """Sends of a process, and calls of its communicators of which no record is known."""
        line = self.lines.get(process)
        timed = {one.communicator for one in line.spans} if line else set[CommunicatorKey]()
        count = 0
        for key, name in self._by_process[process]:
            ring = self._rings[name]
            count += 0 if key == group.key and all_to_all(group, self._rings) else ring.sends
            if line is not None and key != group.key and key not in timed and ring.idle <= ACTIVE:
                count += calls_of(ring)
        return count

    def _trace(self, key: SpanKey) -> None:
        """Trace a collective after those that its ranks were in before it.

        What leads back to itself is made up, and is traced without what it leads to.
        """
        opened, stack = set[SpanKey](), [key]
        while stack:
            newest = stack[-1]
            if newest in self._found:
                stack.pop()
            elif newest in opened:
                self._found[newest] = self._lateness(newest)
                self._fill(newest, self._found[newest])
            else:
                opened.add(newest)
                self._intervals[newest] = found = self._since_meeting(newest)
                spans = (one[:3] for interval in (found or {}).values() for one in interval.spans)
                stack += [one for one in spans if one not in opened and self._is_new(one)]

    def _is_new(self, key: SpanKey) -> bool:
        complete = self._complete.get(key[0])
        return complete is not None and key[1:] in complete.joined and key not in self._found

    def _lateness(self, key: SpanKey) -> JoinedCollective:
        group, one = self._groups[key[0]], self._complete[key[0]].joined[key[1:]]
        intervals = self._intervals.pop(key)
        if not self._sure[key[0]]:
            return replace(one, begun={}, causes={})
        if not any(_process(ring) in self.lines for ring in group.rings):
            return one
        if intervals is None:
            return replace(one, begun={}, causes={})
        if not any(interval.spans for interval in intervals.values()):
            return one
        return self._shared(one, group, intervals)

    def _since_meeting(self, key: SpanKey) -> dict[int, Interval] | None:
        """Each rank's time since the one in front; None where records do not show all of it."""
        complete = self._complete[key[0]]
        front, records = complete.front.get(key[1:]), complete.records[key[1:]]
        found = {}
        for ring in self._groups[key[0]].rings if front else ():
            rank, line = ring.ring.rank, self.lines.get(_process(ring))
            begin, end = front[rank].stopped if front else None, records[rank].started
            if begin is None or end is None or (line and not line.is_whole(key[0], begin, end)):
                return None
            spans = line.between(key[0], begin, end) if line else []
            found[rank] = Interval(max(0.0, end - begin - _covered(spans, begin)), tuple(spans))
        return found or None

    def _shared(
        self, one: JoinedCollective, group: RingGroup, intervals: Mapping[int, Interval]
    ) -> JoinedCollective:
        """With its ranks' own lateness, never more than what they are waited for, and who is the cause."""
        seconds = one.seconds
        busiest = max(intervals, key=lambda rank: intervals[rank].own)
        most = max(0.0, max(seconds.values()) - seconds[busiest])
        own = {rank: min(most, intervals[busiest].own - each.own) for rank, each in intervals.items()}
        begun = {rank: one.wire + late for rank, late in own.items()}
        last, first = min(seconds, key=lambda r: seconds[r]), max(seconds, key=lambda r: seconds[r])
        before = sum(each.own for each in intervals.values()) / len(intervals)
        whole = seconds[first] - seconds[last]
        causes: dict[str, float] = defaultdict(float)
        if whole > 0:
            part = min(1.0, max(0.0, (intervals[last].own - intervals[first].own) / whole))
            gpus = {ring.ring.rank: str(ring.ring.gpu) for ring in group.rings}
            causes[gpus[last]] = part
            passed = self._passed(group, last, first, intervals)
            for cause, share in passed.items():
                causes[cause] += (1 - part) * share
        return replace(one, begun=begun, causes=dict(causes), before=None if one.before is None else before)

    def _passed(
        self, group: RingGroup, last: int, first: int, intervals: Mapping[int, Interval]
    ) -> dict[str, float]:
        """By cause, the share of what the last rank was held up by elsewhere, beside the first rank."""
        lines = {one.ring.rank: self.lines.get(_process(one)) for one in group.rings}
        late, soon = (self._spent(intervals[rank].spans, lines[rank]) for rank in (last, first))
        more = {cause: max(0.0, seconds - soon.get(cause, 0.0)) for cause, seconds in late.items()}
        total = sum(more.values())
        return {cause: seconds / total for cause, seconds in more.items() if total > 0 and cause != _UNKNOWN}

    def _spent(self, spans: Iterable[Span], line: ProcessLine | None) -> dict[str, float]:
        """Seconds in collectives by their cause; time on a wire between nodes is of another node's making."""
        found: dict[str, float] = defaultdict(float)
        for one in spans:
            known = line.spans[line.places[one[:3]]] if line else one
            seconds = known.stopped - known.started
            if line and line.alone.get(known.communicator):
                found[ELSEWHERE] += seconds
                continue
            waited = min(seconds, known.waited or 0.0)
            told = sum(known.causes.values())
            for cause, share in known.causes.items():
                found[cause] += waited * share
            wide = known.waited is not None and self._groups[known.communicator].nodes > 1
            found[ELSEWHERE if wide else _UNKNOWN] += seconds - waited
            found[_UNKNOWN] += waited * max(0.0, 1 - told)
        return found

    def _fill(self, key: SpanKey, one: JoinedCollective) -> None:
        """Note in the lines of its ranks how long each waited, and for whom."""
        group = self._groups[key[0]]
        causes = one.causes
        if causes is None:
            last = min(one.seconds, key=lambda rank: (one.seconds[rank], rank))
            causes = {str(ring.ring.gpu): 1.0 for ring in group.rings if ring.ring.rank == last}
        if group.doubt is not None:
            causes = {}
        for ring in group.rings:
            line = self.lines.get(_process(ring))
            place = line.places.get(key) if line else None
            if line is not None and place is not None:
                waited = one.seconds[ring.ring.rank] - one.wire
                line.spans[place] = line.spans[place]._replace(waited=waited, causes=causes)


def _process(one: RingReading) -> ProcessKey:
    return (process_key(one.ring), str(one.ring.gpu))


def _until(holes: Sequence[tuple[float, float]], moment: float) -> int:
    """How many holes ended by then."""
    return bisect_right(holes, (moment, math.inf))


def _is_alone(group: RingGroup) -> bool:
    return group.doubt is TimesDoubt.ALONE


def _covered(spans: Sequence[Span], begin: float) -> float:
    """Seconds in which at least one of the spans was under way, since `begin`."""
    total, until = 0.0, begin
    for one in sorted(spans, key=lambda span: span.started):
        total += max(0.0, one.stopped - max(until, one.started))
        until = max(until, one.stopped)
    return total
