"""Where lateness begins: a rank that was held up in another communicator before is not the cause. Pure.

A process has several communicators (tensor, pipeline, data parallel). One clock times all of its collectives
on one GPU. So a rank's own time between two collectives of a communicator is known: the time outside
collectives of other communicators. A rank is late itself only by more own time. The remaining lateness is
passed on: to the rank for which it waited there, or out of this node. Clocks of different GPUs are never
compared: they share the ends of collectives alone. Where records do not show all of this, nobody is named.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.core.jobs import RingReading, TimedCollective
from wirewatch.core.statistics import grouped, low_median
from wirewatch.jobs.running.grouping import RingGroup, process_key
from wirewatch.jobs.running.join import Complete
from wirewatch.jobs.running.lateness import APART
from wirewatch.jobs.running.model import (
    MOST_SPANS,
    SPANS_IN_ALL,
    CommunicatorKey,
    JoinedCollective,
    ProcessKey,
    ProcessSpan,
    RingProgress,
    SpanKey,
)
from wirewatch.jobs.running.parallel import all_to_all, calls_of
from wirewatch.jobs.times import ELSEWHERE, TimesDoubt

ACTIVE = 15
"""Polls since its last call for which a communicator counts as in use."""
RARE = 5
"""Collectives for each untimed call, from which on untimed calls between them do not matter."""
_UNKNOWN = ""
"""In the place of a cause."""
_SOME = 3


class ProcessTimeline:
    """The timeline of one process on one GPU, by its clock: `spans` in the order of their ends.

    Args:
        known: spans of earlier polls.
        new: what was timed since then, by communicator.
    """

    def __init__(
        self, known: Iterable[ProcessSpan], new: Iterable[tuple[CommunicatorKey, TimedCollective]]
    ) -> None:
        self.spans = sorted(known, key=lambda one: one.stopped)
        last = {one.key[:2]: one for one in self.spans}
        first = min((one.started for one in self.spans), default=math.inf)
        first = min([first, *(call.started for _, call in new if call.started is not None)])
        for key, call in new:
            if call.started is not None and call.stopped is not None:
                old = last.get((key, call.op))
                span = _span(old, (key, call.op, call.sequence), call.started, call.stopped, first)
                last[key, call.op] = span
                self.spans.append(span)
        self.spans.sort(key=lambda one: one.stopped)
        self.stops = [one.stopped for one in self.spans]
        self.by_key = {one.key: one for one in self.spans}
        holes = ((one.key[:2], (one.started, one.gap)) for one in self.spans if one.gap is not None)
        self._holes = grouped(holes)
        self._ended = {one.key[0]: one.stopped for one in self.spans}

    def between(self, key: CommunicatorKey, begin: float, end: float) -> list[ProcessSpan]:
        """Return collectives of other communicators that ended there; only these hold up the next."""
        found = self.spans[bisect_right(self.stops, begin) : bisect_right(self.stops, end)]
        return [one for one in found if one.key[0] != key]

    def is_whole(
        self, front: SpanKey, begin: float, end: float, often: Iterable[CommunicatorKey] = ()
    ) -> bool:
        """Tell whether all calls of other communicators between `front` and the next of its own were timed.

        Calls that are missing from before the timing of its own communicator began are from before it. Of
        communicators that are used `often`, some must have been timed since: else the next are missing.
        """
        since = self.by_key[front].since if front in self.by_key else begin
        if any(self._ended.get(key, begin) < end for key in often):
            return False
        for (other, _), holes in self._holes.items():
            place = bisect_right(holes, (begin, math.inf)) if other != front[0] else len(holes)
            if any(since <= gap < end for _, gap in holes[place : place + _SOME]):
                return False
        return True

    def newest(self, used: Container[CommunicatorKey], most: int) -> list[ProcessSpan]:
        """The spans that the next poll needs: from the last call of each communicator on, and all last."""
        lasts = {one.key[:2]: place for place, one in enumerate(self.spans)}
        by_communicator: dict[CommunicatorKey, int] = {}
        for (key, _), place in lasts.items():
            by_communicator[key] = max(place, by_communicator.get(key, 0))
        cut = min((place for key, place in by_communicator.items() if key in used), default=len(self.spans))
        cut = max(cut, len(self.spans) - most)
        return [*(self.spans[place] for place in sorted(lasts.values()) if place < cut), *self.spans[cut:]]


def _span(old: ProcessSpan | None, key: SpanKey, started: float, stopped: float, first: float) -> ProcessSpan:
    """Make a span that follows the last span of its operation; before the first span, calls are missing."""
    if old is None:
        return ProcessSpan(key, started, stopped, started, first if first < started else None)
    since, gap = (old.since, None) if key[2] == old.key[2] + 1 else (started, old.stopped)
    return ProcessSpan(key, started, stopped, since, gap)


@dataclass(frozen=True, slots=True)
class Interval:
    """A rank from the last meeting in a communicator to its start: seconds of its `own`, and of others."""

    own: float
    spans: tuple[ProcessSpan, ...] = ()


class Tracer:
    """Traces the collectives of one poll, each after the earlier collectives of its ranks.

    Args:
        groups: communicators by key.
        complete: by key, the collectives that all of their local ranks timed.
        rings: how far each ring has come.
        known: spans of earlier polls.
    """

    def __init__(
        self, groups: Mapping[CommunicatorKey, RingGroup], complete: Mapping[CommunicatorKey, Complete],
        rings: Mapping[str, RingProgress], known: Mapping[ProcessKey, Sequence[ProcessSpan]],
    ) -> None:  # fmt: skip
        self._groups, self._complete, self._rings = groups, complete, rings
        self._places = {
            key: {one.ring.rank: _process(one) for one in group.rings} for key, group in groups.items()
        }
        self._by_process = grouped(
            (_process(one), (key, one)) for key, group in groups.items() for one in group.rings
        )
        self._used = {
            process: {key for key, one in mine if rings[one.ring.name].idle <= ACTIVE}
            for process, mine in self._by_process.items()
        }
        self._lines = {
            process: self._line(process, known.get(process, ()))
            for process, used in self._used.items()
            if len(used) > 1
        }
        self._found: dict[SpanKey, JoinedCollective] = {}
        self._intervals: dict[SpanKey, dict[int, Interval] | None] = {}
        self._frequent: dict[tuple[CommunicatorKey, ProcessKey], list[CommunicatorKey]] = {}
        self._sure = {key: self._is_sure(key) for key in groups}

    def traced(self, key: CommunicatorKey) -> list[JoinedCollective]:
        """The joined collectives of a communicator, each with its ranks' own lateness."""
        joined = self._complete[key].joined
        if not self._sure[key]:
            return [replace(one, begun={}, causes={}) for one in joined.values()]
        places = self._places[key].values()
        if len(places) > 1 and any(process in self._lines for process in places):
            for call in joined:
                self._trace((key, *call))
            joined = {call: self._found[key, *call] for call in joined}
        sends = any(
            self._rings[one.ring.name].sends for place in places for _, one in self._by_process[place]
        )
        return [*(_without_long(joined.values()) if sends else joined.values())]

    def spans(self) -> dict[ProcessKey, tuple[ProcessSpan, ...]]:
        """The newest spans of each process, for the next poll."""
        most = min(MOST_SPANS, SPANS_IN_ALL // max(1, len(self._lines)))
        return {
            process: tuple(self._told(one, process) for one in line.newest(self._used[process], most))
            for process, line in self._lines.items()
        }

    def _line(self, process: ProcessKey, known: Iterable[ProcessSpan]) -> ProcessTimeline:
        mine = dict(self._by_process[process])
        calls = [(key, call) for key, one in mine.items() for call in one.calls]
        return ProcessTimeline((one for one in known if one.key[0] in mine), calls)

    def _is_sure(self, key: CommunicatorKey) -> bool:
        """Tell whether its processes have few enough calls that are not timed, beside its own.

        Inspector's starts are by the time of its lines: they do not say what was between two of them.
        """
        group = self._groups[key]
        if group.source and any(process in self._lines for process in self._places[key].values()):
            return False
        calls = max(calls_of(self._rings[one.ring.name]) for one in group.rings)
        return all(calls >= RARE * self._untimed(group, process) for process in self._places[key].values())

    def _untimed(self, group: RingGroup, process: ProcessKey) -> int:
        """Sends of a process, and calls of its communicators of which no record is known."""
        line = self._lines.get(process)
        timed = {one.key[0] for one in line.spans} if line else set[CommunicatorKey]()
        count = 0
        for key, one in self._by_process[process]:
            ring = self._rings[one.ring.name]
            count += 0 if key == group.key and all_to_all(group, self._rings) else ring.sends
            if line is not None and key not in {group.key, *timed} and ring.idle <= ACTIVE:
                count += calls_of(ring)
        return count

    def _trace(self, key: SpanKey) -> None:
        """Trace a collective after the earlier collectives of its ranks.

        A collective that leads back to itself is made up, and is traced without its predecessors.
        """
        opened, stack = set[SpanKey](), [key]
        while stack:
            newest = stack[-1]
            if newest in self._found:
                stack.pop()
            elif newest in opened:
                self._found[newest] = self._lateness(newest)
            else:
                opened.add(newest)
                self._intervals[newest] = found = self._since_meeting(newest)
                spans = (one.key for interval in (found or {}).values() for one in interval.spans)
                stack += [one for one in spans if one not in opened and self._is_new(one)]

    def _is_new(self, key: SpanKey) -> bool:
        complete = self._complete.get(key[0])
        return complete is not None and key[1:] in complete.joined and key not in self._found

    def _lateness(self, key: SpanKey) -> JoinedCollective:
        group, one = self._groups[key[0]], self._complete[key[0]].joined[key[1:]]
        intervals = self._intervals.pop(key)
        if intervals is None or not self._sure[key[0]]:
            return replace(one, begun={}, causes={})
        if not any(interval.spans for interval in intervals.values()):
            return one
        return self._shared(one, group, intervals)

    def _since_meeting(self, key: SpanKey) -> dict[int, Interval] | None:
        """Return each rank's time since the last collective; None where records do not show all of it."""
        complete, places = self._complete[key[0]], self._places[key[0]]
        front = complete.front.get(key[1:])
        if front is None:
            return None
        found = {}
        for rank, call in complete.records[key[1:]].items():
            old, line = front[rank], self._lines.get(places[rank])
            begin, end = old.stopped, call.started
            if begin is None or end is None:
                return None
            if line is None:
                found[rank] = Interval(max(0.0, end - begin))
                continue
            if not line.is_whole(
                (key[0], old.op, old.sequence), begin, end, self._often(key[0], places[rank])
            ):
                return None
            spans = line.between(key[0], begin, end)
            found[rank] = Interval(max(0.0, end - begin - _covered(spans, begin)), tuple(spans))
        return found

    def _often(self, key: CommunicatorKey, process: ProcessKey) -> list[CommunicatorKey]:
        """Return communicators of a process that make at least half as many calls as this communicator."""
        if (key, process) not in self._frequent:
            calls = {other: calls_of(self._rings[one.ring.name]) for other, one in self._by_process[process]}
            self._frequent[key, process] = [
                other for other in self._used[process] if other != key and 2 * calls[other] >= calls[key]
            ]
        return self._frequent[key, process]

    def _shared(
        self, one: JoinedCollective, group: RingGroup, intervals: Mapping[int, Interval]
    ) -> JoinedCollective:
        """Add the ranks' own lateness, never more than the waiting for them, and the causes."""
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
        """Return by cause the share of the last rank's hold-up elsewhere, compared with the first rank."""
        places = self._places[group.key]
        late, soon = (self._spent(intervals[rank].spans, places[rank]) for rank in (last, first))
        more = {cause: max(0.0, seconds - soon.get(cause, 0.0)) for cause, seconds in late.items()}
        total = sum(more.values())
        return {cause: seconds / total for cause, seconds in more.items() if total > 0 and cause != _UNKNOWN}

    def _spent(self, spans: Iterable[ProcessSpan], process: ProcessKey) -> dict[str, float]:
        """Seconds in collectives by their cause; time on a wire between nodes is of another node's making."""
        found: dict[str, float] = defaultdict(float)
        for one in spans:
            told, group = self._told(one, process), self._groups[one.key[0]]
            seconds = one.stopped - one.started
            waited = 0.0 if group.doubt is TimesDoubt.ALONE else min(seconds, told.waited or 0.0)
            for cause, share in told.causes.items():
                found[cause] += waited * share
            found[_UNKNOWN] += waited * max(0.0, 1 - sum(told.causes.values()))
            wide = group.nodes > 1 and (told.waited is not None or group.doubt is TimesDoubt.ALONE)
            found[ELSEWHERE if wide else _UNKNOWN] += seconds - waited
        return found

    def _told(self, span: ProcessSpan, process: ProcessKey) -> ProcessSpan:
        """The span with how long its process waited, and for whom, where its collective was joined."""
        one, group = self._found.get(span.key), self._groups[span.key[0]]
        if one is None:
            return span
        places = self._places[group.key]
        rank = next(rank for rank, other in places.items() if other == process)
        causes = one.causes
        if causes is None:
            last = min(one.seconds, key=lambda other: (one.seconds[other], other))
            causes = {places[last][1]: 1.0}
        sure = group.doubt is None
        return span._replace(waited=one.seconds[rank] - one.wire, causes=causes if sure else {})


def _without_long(found: Collection[JoinedCollective]) -> Iterator[JoinedCollective]:
    """Collectives without lateness after far longer stretches than others: a send may be in them."""
    usual = low_median([one.before for one in found if one.before is not None] or [0.0])
    for one in found:
        long = one.before is not None and one.before > APART * usual
        yield replace(one, before=None, begun={}, causes={}) if long else one


def _process(one: RingReading) -> ProcessKey:
    return process_key(one.ring), str(one.ring.gpu)


def _covered(spans: Sequence[ProcessSpan], begin: float) -> float:
    """Return seconds since `begin` in which any of the spans was under way."""
    total, until = 0.0, begin
    for one in sorted(spans, key=lambda span: span.started):
        total += max(0.0, one.stopped - max(until, one.started))
        until = max(until, one.stopped)
    return total
