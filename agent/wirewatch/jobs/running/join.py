"""Join the times of all local ranks of a communicator, by operation and NCCL's sequence number. Pure.

Each rank's tap times blocks of calls, and all calls in a slow job. Ranks may differ for a moment in how many:
only a collective that all of them timed says who waited. Clocks of different GPUs are never compared: a
duration is of one GPU's own clock.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from wirewatch.core.jobs import RingReading, TimedCollective
from wirewatch.jobs.running.model import (
    MOST_JOINED,
    CallKey,
    CommunicatorMemory,
    JoinedCollective,
    PendingCall,
)

Records = Mapping[int, TimedCollective]
"""The records of one collective, by rank."""
LONGEST = 3600.0
"""Seconds; no collective takes longer."""
PATIENCE, COARSE_PATIENCE = 2, 15
"""Polls for which a collective waits for the records of other ranks; Inspector writes now and then."""
MOST_NEW, RUN = 512, 32
"""Most records of one ring and poll that are joined. Of more, runs of RUN numbers stay on all ranks."""


@dataclass(frozen=True, slots=True)
class RankRecords:
    """The collectives that a rank timed since the last poll."""

    rank: int
    calls: tuple[TimedCollective, ...]


def records_of(readings: Iterable[RingReading]) -> tuple[RankRecords, ...]:
    """The usable records of the rings of one communicator, thinned alike on every rank.

    A sequence number is the same on every rank, and so is a run of numbers. Within a run collectives follow
    each other, so that the time between them is known.
    """
    known = [RankRecords(one.ring.rank, tuple(filter(_usable, one.calls))) for one in readings]
    most = max((len(one.calls) for one in known), default=0)
    step = 1 << math.ceil(math.log2(most / MOST_NEW)) if most > MOST_NEW else 1
    return tuple(
        RankRecords(one.rank, tuple(c for c in one.calls if c.sequence // RUN % step == 0)) for one in known
    )


@dataclass(frozen=True, slots=True)
class Complete:
    """The collectives that all local ranks timed, with `records`; `front`: the records before each.

    `memory`: without these collectives in its window.
    """

    memory: CommunicatorMemory
    joined: Mapping[CallKey, JoinedCollective]
    records: Mapping[CallKey, Records]
    front: Mapping[CallKey, Records]


def join(
    memory: CommunicatorMemory, records: Sequence[RankRecords], ranks: frozenset[int], poll: int,
    patience: int = PATIENCE, most: int = MOST_JOINED,
) -> Complete:  # fmt: skip
    """Return the collectives that are complete now, and count collectives that wait too long as partial.

    Args:
        memory: of before.
        records: of each rank, timed since the last poll.
        ranks: must all have timed a collective for it to count.
        poll: the number of this poll.
        patience: polls for which a collective waits for other ranks.
        most: collectives that may wait, and as many that a window may have.
    """
    pending = _grown(memory, records, poll)
    whole = {key: one for key, one in pending.items() if ranks <= one.records.keys()}
    left = {key: one for key, one in pending.items() if key not in whole and poll - one.poll < patience}
    newest = sorted(left, key=lambda key: (left[key].poll, key[1]))[-most:]
    once = {key: one for key, one in whole.items() if not one.replayed}
    every = {key: one.records for key, one in once.items()}
    front = in_front(every, ranks, memory.ended, memory.front)
    calls = {**dict([memory.front] if memory.front else []), **every}
    before = gaps(calls, front)
    new = replace(
        memory, pending={key: left[key] for key in newest}, ended=_ended(memory.ended, whole),
        front=_front(every, ranks) or memory.front, joined=memory.joined + len(once),
        partial=memory.partial + len(pending) - len(whole) - len(newest),
        replayed=memory.replayed + sum(one.replayed for one in whole.values()),
    )  # fmt: skip
    joined = {key: _joined(key, one, ranks, before.get(key)) for key, one in once.items()}
    return Complete(new, joined, calls, {key: calls[one] for key, one in front.items()})


def _usable(call: TimedCollective) -> bool:
    """A duration that a collective can have; a ring may hold anything."""
    return 0 < call.seconds < LONGEST and call.sequence >= 0 and math.isfinite(call.enqueued)


def _grown(
    memory: CommunicatorMemory, records: Sequence[RankRecords], poll: int
) -> dict[CallKey, PendingCall]:
    """Return what waits, with what came. A record that comes twice is another replay of a captured graph."""
    known, ended = memory.pending, memory.ended
    grown: dict[CallKey, dict[int, TimedCollective]] = {}
    replayed = set[CallKey]()
    for one in records:
        for call in one.calls:
            key = (call.op, call.sequence)
            if (some := grown.get(key)) is None:
                if key not in known and call.sequence <= ended.get(call.op, -1):
                    continue
                some = grown[key] = dict(known[key].records) if key in known else {}
            if some.setdefault(one.rank, call) is not call:
                replayed.add(key)
    new = {
        key: PendingCall(known[key].poll, some, known[key].replayed or key in replayed)
        if key in known
        else PendingCall(poll, some, key in replayed)
        for key, some in grown.items()
    }
    return {**known, **new}


def _ended(known: Mapping[str, int], keys: Iterable[CallKey]) -> dict[str, int]:
    """Return by operation the highest joined sequence number: collectives below it came too late.

    A number that only some ranks report does not count: it may be nonsense.
    """
    ended = dict(known)
    for op, sequence in keys:
        ended[op] = max(sequence, ended.get(op, -1))
    return ended


def _front(records: Mapping[CallKey, Records], ranks: frozenset[int]) -> tuple[CallKey, Records] | None:
    """Return the last of these collectives, which precedes the next poll; None where starts are not known."""
    known = [key for key, some in records.items() if all(one.started is not None for one in some.values())]
    last = max(known, key=lambda key: _starts(records[key], ranks), default=None)
    return None if last is None else (last, records[last])


def _starts(records: Records, ranks: frozenset[int]) -> float:
    return sum(records[rank].started or 0.0 for rank in ranks)


def in_front(
    calls: Mapping[CallKey, Records], ranks: frozenset[int], ended: Mapping[str, int] | None = None,
    front: tuple[CallKey, Records] | None = None,
) -> dict[CallKey, CallKey]:  # fmt: skip
    """Return for each collective the collective that the communicator made right before it.

    Pairs with a possible gap between them are left out. NCCL numbers the calls of each operation: before a
    missing number, or an operation's first call, other calls may lie anywhere. Without starts there are no
    pairs.

    Args:
        calls: of one poll.
        ranks: that timed them.
        ended: by operation the highest number of the polls before.
        front: the last collective of the polls before: a slow job has one a poll.
    """
    last: dict[str, tuple[int, int]] = {}
    if front is not None and ranks <= front[1].keys():
        calls = {front[0]: front[1], **calls}
        last = {op: (number, 0) for op, number in (ended or {}).items()}
    if any(call.started is None or call.stopped is None for some in calls.values() for call in some.values()):
        return {}
    ordered = sorted(calls, key=lambda key: _starts(calls[key], ranks))
    doubtful = set[int]()
    for place, (op, sequence) in enumerate(ordered):
        number, at = last.get(op, (None, -1))
        if number is None or sequence != number + 1:
            doubtful.update(range(at + 1, place + 1))
        last[op] = (sequence, place)
    pairs = enumerate(pairwise(ordered), 1)
    found = {two: one for place, (one, two) in pairs if place not in doubtful}
    return {two: one for two, one in found.items() if _gap(calls[one], calls[two]) < LONGEST}


def gaps(calls: Mapping[CallKey, Records], front: Mapping[CallKey, CallKey]) -> dict[CallKey, float]:
    """Seconds between the end of the collective in front and the start of each, the mean of the ranks."""
    return {two: max(0.0, _gap(calls[one], calls[two])) for two, one in front.items()}


def _gap(first: Records, then: Records) -> float:
    between = ((then[rank].started or 0.0) - (first[rank].stopped or 0.0) for rank in then)
    return sum(between) / len(then)


def _joined(key: CallKey, call: PendingCall, ranks: frozenset[int], before: float | None) -> JoinedCollective:
    records = {rank: call.records[rank] for rank in ranks}
    sizes = {one.size_bytes for one in records.values()}
    ways = Counter((one.algorithm, one.protocol, one.channels) for one in records.values())
    algorithm, protocol, channels = min(ways, key=lambda way: (-ways[way], way))
    # Ranks that do not agree on the size are wrong about it, or not of one collective.
    size, at = sizes.pop() if len(sizes) == 1 else None, min(one.enqueued for one in records.values())
    seconds = {rank: one.seconds for rank, one in records.items()}
    return JoinedCollective(*key, size, algorithm, protocol, channels, at, seconds, before)


def keep(
    memory: CommunicatorMemory, found: Sequence[JoinedCollective], most: int = MOST_JOINED
) -> CommunicatorMemory:
    """Add the found collectives to the window, and thin it out evenly where it is too large."""
    stride = memory.stride
    window = list(memory.window)
    for place, one in enumerate(sorted(found, key=lambda one: (one.op, one.sequence)), memory.seen):
        if place % stride == 0:
            window.append(one)
        while len(window) > most:
            window, stride = window[::2], stride * 2
    return replace(memory, window=tuple(window), seen=memory.seen + len(found), stride=stride)
