"""Rings of jobs in a recording: what each moment found new, and their play.

A moment holds the rings as they were, with the records that came since the moment before. Times of this
machine's monotonic clock are kept as seconds since the recording began, and played from when the play began.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.jobs import Ring, RingCounts, RingReading, RingsReading, TimedCollective
from wirewatch.core.ports import Answer, Clock, Rings, Sysfs
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.overlay import Came, Player
from wirewatch.hw.recording import Key
from wirewatch.jobs.tap.here import pids_of
from wirewatch.nccl.settings import settings_of_environ, slowing_settings

RINGS: Key = ("rings", "Rings()")
MOST = 20_000
"""Records of one moment that are kept, the newest of each ring, so that no line is too long to be played."""
_READING = TypeAdapter(RingsReading)


@dataclass(frozen=True, slots=True)
class RecordedMoment:
    """One written moment, the record numbers after which the next moment asks, and the rings' processes."""

    value: Json | Absent
    after: Mapping[str, int]
    pids: tuple[int, ...] = ()


def record_rings(rings: Rings, after: Mapping[str, int], began: float) -> RecordedMoment:
    """Record what came since the numbers in `after`; `began`: monotonic seconds of the first moment."""
    found = rings.poll(after)
    if isinstance(found, Absent):
        return RecordedMoment(found, after)
    share = MOST // max(len(found.rings), 1)
    kept = RingsReading(tuple(_moved(_newest(one, share), -began) for one in found.rings), found.refused)
    value: Json = _READING.dump_python(kept, mode="json")
    last = {one.ring.name: one.last for one in found.rings}
    return RecordedMoment(value, last, tuple(sorted(pids_of(found))))


def record_settings(sysfs: Sysfs, pids: Iterable[int]) -> Iterator[tuple[Key, Answer]]:
    """The environment of each process, cut down to NCCL's settings that lower bandwidth.

    Other variables, NCCL's among them, may name machines and people, and so may paths.
    """
    for pid in pids:
        environ = sysfs.data(f"/proc/{pid}/environ")
        kept = environ if isinstance(environ, Absent) else _slowing(environ).hex()
        yield ("sysfs", f"data /proc/{pid}/environ"), Answer(kept)


def _slowing(environ: bytes) -> bytes:
    found = slowing_settings(settings_of_environ(environ))
    return b"".join(f"{name}={'masked' if '/' in value else value}\0".encode() for name, value, _ in found)


class ReplayRings:
    """The rings port from a recording: at each moment all that had come by then."""

    def __init__(self, player: Player, clock: Clock) -> None:
        self._player = player
        self._mono = clock.mono() - player.seconds()
        self._unix = clock.now() - player.seconds() - player.recording.at_unix
        self._decoded: dict[int, RingsReading | Absent] = {}

    def poll(self, after: Mapping[str, int]) -> RingsReading | Absent:
        """Every ring as it is now, with the records that came after the number given for its name."""
        now = self._read(self._player.answer(RINGS).value)
        if isinstance(now, Absent):
            return now
        came = self._player.came(RINGS)
        cycle = came[-1].cycle if came else 0
        earlier = [(one.cycle, found) for one in came if not isinstance(found := self._once(one), Absent)]
        changed = []
        for one in now.rings:
            ring = self._in_cycle(one, cycle).ring
            begin = after.get(ring.name, 0)
            # A number beyond what was written is of a ring that had this name before.
            begin = begin if begin <= ring.counts.written else 0
            new = list(self._since(begin, ring.name, earlier)) if came else [one]
            changed.append(_joined(begin, ring, new))
        return RingsReading(tuple(changed), now.refused)

    def _since(
        self, begin: int, name: str, earlier: Sequence[tuple[int, RingsReading]]
    ) -> Iterator[RingReading]:
        """Yield the moments' parts of one ring after a record, oldest first."""
        for cycle, found in earlier:
            for one in found.rings:
                if one.ring.name == name and one.last + cycle * self._grown(name)[1].written > begin:
                    yield self._in_cycle(one, cycle)

    def _once(self, came: Came) -> RingsReading | Absent:
        """Return the content of a moment; as long as no overlay changes it, it is parsed once."""
        if came.changed:
            return self._read(came.answer.value)
        if came.moment not in self._decoded:
            self._decoded[came.moment] = self._read(came.answer.value)
        return self._decoded[came.moment]

    def _read(self, value: Json | Absent) -> RingsReading | Absent:
        if isinstance(value, Absent):
            return value
        try:
            # Through JSON, since strict models take a list for a tuple only there.
            found = _READING.validate_json(json.dumps(value))
        except ValidationError as error:
            return Absent(Why.MALFORMED, f"not recorded rings: {error.errors()[0]['msg']}")
        moved = (_moved(one, self._mono) for one in found.rings)
        made = (replace(one, ring=replace(one.ring, created=one.ring.created + self._unix)) for one in moved)
        return RingsReading(tuple(made), found.refused)

    def _in_cycle(self, one: RingReading, cycle: int) -> RingReading:
        """Return the reading after so many plays: its counters grew by the growth of one play each time."""
        if not cycle:
            return one
        first, growth = self._grown(one.ring.name)
        seconds, records = cycle * self._player.length, cycle * growth.written
        counts = _plus(one.ring.counts, growth, cycle)
        counts = replace(counts, event=counts.event + seconds)
        # What a ring held at first stands where the play before has its own last records.
        new = (call for call in one.calls if call.number > first.written)
        calls = tuple(_shifted(call, records, seconds) for call in new)
        return replace(one, ring=replace(one.ring, counts=counts), calls=calls, last=one.last + records)

    def _grown(self, name: str) -> tuple[RingCounts, RingCounts]:
        """A ring's counters as they begin, and by how much they grow in one play."""
        return self._growth.get(name, (RingCounts(), RingCounts()))

    @cached_property
    def _growth(self) -> Mapping[str, tuple[RingCounts, RingCounts]]:
        moments = (self._read(answer.value) for _, answer in self._player.recording.answers.get(RINGS, ()))
        rings = (one.ring for found in moments if not isinstance(found, Absent) for one in found.rings)
        seen = grouped((ring.name, ring.counts) for ring in rings)
        return {name: (counts[0], _plus(counts[-1], counts[0], -1)) for name, counts in seen.items()}


def _joined(begin: int, ring: Ring, new: Sequence[RingReading]) -> RingReading:
    calls = tuple(call for one in new for call in one.calls if call.number > begin)
    missed, implausible = sum(one.missed for one in new), sum(one.implausible for one in new)
    return RingReading(ring, calls, missed, implausible, max((one.last for one in new), default=begin))


def _newest(one: RingReading, most: int) -> RingReading:
    """Without its older records, which count as missed."""
    calls = one.calls[-most:]
    return replace(one, calls=calls, missed=one.missed + len(one.calls) - len(calls))


def _moved(one: RingReading, seconds: float) -> RingReading:
    """Shift the times of the monotonic clock by so many seconds."""
    counts = replace(one.ring.counts, event=one.ring.counts.event + seconds)
    calls = tuple(replace(call, enqueued=call.enqueued + seconds) for call in one.calls)
    return replace(one, ring=replace(one.ring, counts=counts), calls=calls)


def _shifted(call: TimedCollective, records: int, seconds: float) -> TimedCollective:
    begun, ended = (None if one is None else one + seconds for one in (call.started, call.stopped))
    return replace(
        call, number=call.number + records, sequence=call.sequence + records, started=begun, stopped=ended,
        enqueued=call.enqueued + seconds,
    )  # fmt: skip


def _plus(counts: RingCounts, more: RingCounts, times: int) -> RingCounts:
    """Counters plus so many times others; the time of the last event stays."""
    changed: dict[str, Any] = {}
    for one in fields(RingCounts):
        before, added = getattr(counts, one.name), getattr(more, one.name)
        if isinstance(before, Mapping):
            ops = {op: before.get(op, 0) + times * added.get(op, 0) for op in {**before, **added}}
            changed[one.name] = {op: number for op, number in ops.items() if number}
        elif one.name != "event":
            changed[one.name] = before + times * added
    return replace(counts, **changed)
