"""Joining what all local ranks of a communicator timed, by operation and NCCL's sequence number. Pure.

Each rank's tap times for a short while now and then, and ranks see slightly different whiles: only a
collective that all of them timed says who waited. Clocks of different GPUs are never compared: a duration is
of one GPU's own clock.
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

LONGEST = 3600.0
"""Seconds; no collective takes longer."""
PATIENCE, COARSE_PATIENCE = 2, 15
"""Polls for which a collective waits for the records of other ranks; Inspector writes now and then."""
MOST_NEW, RUN = 512, 32
"""Most records of one ring and poll that are joined. Of more, runs of RUN numbers stay on all ranks."""


@dataclass(frozen=True, slots=True)
class RankRecords:
    """What one rank timed since the last poll."""

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
    """What all local ranks timed, with their `records`; `front`: those of the one right in front of it.

    `memory`: without these collectives in its window.
    """

    memory: CommunicatorMemory
    joined: Mapping[CallKey, JoinedCollective]
    records: Mapping[CallKey, Mapping[int, TimedCollective]]
    front: Mapping[CallKey, Mapping[int, TimedCollective]]


def join(
    memory: CommunicatorMemory, records: Sequence[RankRecords], ranks: frozenset[int], poll: int,
    patience: int = PATIENCE, most: int = MOST_JOINED,
) -> Complete:  # fmt: skip
    """What is complete now; what waits too long is counted as partial.

    Args:
        memory: of before.
        records: what each rank timed since the last poll.
        ranks: those that must have timed a collective for it to count.
        poll: the number of this poll.
        patience: polls for which a collective waits for other ranks.
        most: collectives that may wait, and as many that a window may have.
    """
    pending = dict(memory.pending)
    for one in records:
        for call in one.calls:
            if (call.op, call.sequence) in pending or call.sequence > memory.ended.get(call.op, -1):
                _add(pending, one.rank, call, poll)
    whole = {key: one for key, one in pending.items() if ranks <= one.records.keys()}
    left = {key: one for key, one in pending.items() if key not in whole and poll - one.poll < patience}
    newest = sorted(left, key=lambda key: (left[key].poll, key[1]))[-most:]
    once = {key: one for key, one in whole.items() if not one.replayed}
    known = {(op, number): some for op, (number, some) in memory.newest.items() if some.keys() == ranks}
    calls = {**known, **{key: one.records for key, one in once.items()}}
    front = in_front(calls, ranks)
    before = gaps(calls, front)
    new = replace(
        memory,
        pending={key: left[key] for key in newest},
        ended=_ended(memory.ended, whole),
        newest={op: (number, calls[op, number]) for op, number in _ended({}, calls).items()},
        partial=memory.partial + len(pending) - len(whole) - len(newest),
        replayed=memory.replayed + sum(one.replayed for one in whole.values()),
        joined=memory.joined + len(once),
    )
    joined = {key: _joined(key, one, ranks, before.get(key)) for key, one in once.items()}
    return Complete(new, joined, calls, {key: calls[one] for key, one in front.items()})


def _usable(call: TimedCollective) -> bool:
    """A duration that a collective can have; a ring may hold anything."""
    return 0 < call.seconds < LONGEST and call.sequence >= 0 and math.isfinite(call.enqueued)


def _add(pending: dict[CallKey, PendingCall], rank: int, call: TimedCollective, poll: int) -> None:
    """A record that comes twice is another replay of a captured graph, and which one is not known."""
    key = (call.op, call.sequence)
    known = pending.get(key)
    if known is None:
        pending[key] = PendingCall(poll, {rank: call})
    elif rank in known.records:
        pending[key] = replace(known, replayed=True)
    else:
        pending[key] = replace(known, records={**known.records, rank: call})


def _ended(known: Mapping[str, int], keys: Iterable[CallKey]) -> dict[str, int]:
    """By operation, the highest sequence number that was joined: what is below it came too late.

    A number that only some ranks report does not count: it may be nonsense.
    """
    ended = dict(known)
    for op, sequence in keys:
        ended[op] = max(sequence, ended.get(op, -1))
    return ended


def in_front(
    calls: Mapping[CallKey, Mapping[int, TimedCollective]], ranks: frozenset[int]
) -> dict[CallKey, CallKey]:
    """For each collective the one that the communicator made right before it.

    Only where none is missing between the two: NCCL numbers those of each operation, so that a number left
    out, and an operation seen for the first time, say that there may be others anywhere before it. None are
    known where starts were not written.
    """
    if any(call.started is None or call.stopped is None for some in calls.values() for call in some.values()):
        return {}
    ordered = sorted(calls, key=lambda key: sum(calls[key][rank].started or 0.0 for rank in ranks))
    doubtful = set[int]()
    last: dict[str, tuple[int, int]] = {}
    for place, (op, sequence) in enumerate(ordered):
        number, at = last.get(op, (None, -1))
        if number is None or sequence != number + 1:
            doubtful.update(range(at + 1, place + 1))
        last[op] = (sequence, place)
    pairs = enumerate(pairwise(ordered), 1)
    found = {two: one for place, (one, two) in pairs if place not in doubtful}
    return {two: one for two, one in found.items() if _gap(calls[one], calls[two]) < LONGEST}


def gaps(
    calls: Mapping[CallKey, Mapping[int, TimedCollective]], front: Mapping[CallKey, CallKey]
) -> dict[CallKey, float]:
    """Seconds between the end of the collective in front and the start of each, the mean of the ranks."""
    return {two: max(0.0, _gap(calls[one], calls[two])) for two, one in front.items()}


def _gap(first: Mapping[int, TimedCollective], then: Mapping[int, TimedCollective]) -> float:
    between = ((then[rank].started or 0.0) - (first[rank].stopped or 0.0) for rank in first)
    return sum(between) / len(first)


def _joined(key: CallKey, call: PendingCall, ranks: frozenset[int], before: float | None) -> JoinedCollective:
    records = {rank: call.records[rank] for rank in ranks}
    sizes = {one.size_bytes for one in records.values()}
    ways = Counter((one.algorithm, one.protocol, one.channels) for one in records.values())
    algorithm, protocol, channels = min(ways, key=lambda way: (-ways[way], way))
    return JoinedCollective(
        op=key[0],
        sequence=key[1],
        # Ranks that do not agree on the size are wrong about it, or not of one collective.
        bytes=sizes.pop() if len(sizes) == 1 else None,
        algorithm=algorithm,
        protocol=protocol,
        channels=channels,
        at=min(one.enqueued for one in records.values()),
        seconds={rank: one.seconds for rank, one in records.items()},
        before=before,
    )


def keep(
    memory: CommunicatorMemory, found: Sequence[JoinedCollective], most: int = MOST_JOINED
) -> CommunicatorMemory:
    """With what was found in the window, evenly thinned out where that is too much."""
    stride = memory.stride
    window = list(memory.window)
    for place, one in enumerate(sorted(found, key=lambda one: (one.op, one.sequence)), memory.seen):
        if place % stride == 0:
            window.append(one)
        while len(window) > most:
            window, stride = window[::2], stride * 2
    return replace(memory, window=tuple(window), seen=memory.seen + len(found), stride=stride)
