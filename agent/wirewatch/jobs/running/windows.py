"""Windows of a communicator: from joined collectives to wire time, busbw, waiting and votes. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from wirewatch.busbw.formulas import FACTORS, busbw
from wirewatch.core.statistics import grouped, high_median, low_median
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import count as counted
from wirewatch.jobs.running.lateness import covered, gap, held_up, lost_by, meetings, overlap
from wirewatch.jobs.running.model import (
    KEPT_SLOTS,
    KEPT_WINDOWS,
    MOST_ROWS,
    SLOT,
    CommunicatorMemory,
    JobsPolicy,
    JoinedCollective,
    RankMeeting,
)
from wirewatch.jobs.times import LATENCY_BELOW, CommunicatorWindow, OperationTimes, RankTime

LOW, HIGH = 0.1, 0.9
KEPT_MEETINGS = 8
DECIDED = 0.2
"""Share of collectives in which some rank must be late, for one to be late in most of those. Where buckets
become ready several at once, only the first of them waits for the late rank; the others wait for the wire."""
MOSTLY, MOMENT = 0.5, 0.5
"""Limits of a moment, which holds a few steps: the share of what is late that must be one rank's, and of a
late rank's cost what it must cost there. Healthy ranks are held up 0.6 % of the time (two H200)."""
LEAST_LOST = 0.006
"""Share of a moment's time that must be lost there for its last rank to count: some rank is always last."""
SLIGHT, GREW = 0.6, 1.2
"""Of the limit, what a rank must cost, and by how much it must be farther behind than while nobody was late,
to be late although it costs less: a GPU that became slower may have been the fastest."""
KEPT_EVEN, LEAST_EVEN = 8, 3
"""Windows in which nobody was late that are kept, and how many it takes to say how far behind is usual."""
SHARED_WAIT = 0.1
"""Part of a duration by which all ranks may differ that wait alike."""
COARSE_SPREAD, FIRST_ONES = 0.5, 0.1
"""Part of the shortest window that lines must be apart: those written at once do not say of what time they
are; and part of their time in which the first ones were written."""
PAUSES, LONGEST_PAUSES = 2, 30.0
"""A window lasts as long as so many of the longest pauses in it and in the one before, up to so many seconds.
A part of a step, or what comes between two stalls, does not show what a job does."""
FOLLOWED = 0.5
"""Share of Inspector's collectives before which computing must be known, since waiting may hide there."""
_SMALL = Absent(Why.UNSUPPORTED, "messages under 1 MiB are latency, not bandwidth")
_UNSIZED = Absent(Why.MISSING, "NCCL does not name the type of its elements")
_ONE = Absent(Why.UNSUPPORTED, "one rank has no bus")
_NO_TIME = Absent(Why.MALFORMED, "its collectives took no time")
Row = tuple[str, int]
"""Operation and power of two of the message in bytes, 0 where the size is not known."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A communicator as all of its rings agree: how many ranks it has in all, and which are here.

    `coarse`: starts are not known, and a collective is at the moment at which its line was written.
    """

    ranks: int
    here: frozenset[int]
    coarse: bool = False


class LateInWindow(NamedTuple):
    """The late rank of a window, None for nobody.

    `cost`: the share of the time that the others lose to it. `grown`: by how much of the time it is farther
    behind than while nobody was late, None where that is not known.
    """

    rank: int | None = None
    cost: float = 0.0
    grown: float | None = None


def roll(
    memory: CommunicatorMemory, shape: Shape, mono: float, policy: JobsPolicy, rows: int = MOST_ROWS
) -> CommunicatorMemory:
    """Return the memory, with the window under way closed where it is full.

    `mono` in monotonic seconds; `rows`: operations with sizes that are kept of a window.
    """
    if memory.begun is None:
        return replace(memory, begun=mono)
    age, count = mono - memory.begun, len(memory.window)
    begun = replace(memory, begun=mono, window=(), seen=0, stride=1)
    if age < 0:
        return begun
    times = [one.at for one in memory.window] or [mono]
    wide = not shape.coarse or max(times) - min(times) >= COARSE_SPREAD * policy.window
    whole = max(policy.window, min(LONGEST_PAUSES, PAUSES * max(memory.paused, _pause(memory.window))))
    if age < policy.longest and not (age >= whole and count >= policy.joined and wide):
        return memory
    if count < policy.fewest or not wide:
        return begun
    window, met = window_of(memory, shape, policy, rows)
    windows = (*memory.windows, window)
    slots = sorted({**memory.slots, **_slots(memory.window, policy)}.items())
    even = () if window.late is not None else ({one.rank: one.behind for one in window.ranks},)
    ordered = sorted(memory.window, key=lambda one: one.sequence)
    return replace(
        begun, until={one.op: (one.sequence, one.at) for one in ordered}, met=met,
        even=(*memory.even, *even)[-KEPT_EVEN:], windows=windows[-KEPT_WINDOWS:], closed=mono,
        slots=dict(slots[-KEPT_SLOTS:]), paused=_pause(memory.window),
    )  # fmt: skip


def too_few(memory: CommunicatorMemory, mono: float, policy: JobsPolicy) -> str:
    """Say how few collectives a slow job made since the newest window ended; empty where they are enough."""
    age, count = 0.0 if memory.begun is None else mono - memory.begun, len(memory.window)
    if age < policy.window or count >= policy.joined:
        return ""
    return f"{counted(count, 'collective')} in {age:.0f} s: too few to name a rank"


def window_of(
    memory: CommunicatorMemory, shape: Shape, policy: JobsPolicy, most: int = MOST_ROWS
) -> tuple[CommunicatorWindow, tuple[RankMeeting, ...]]:
    """The window that a memory holds the collectives of (there is at least one), and the newest meetings."""
    found = memory.window
    # Only where the window before has ended as this one began.
    until = memory.until if memory.closed == memory.begun and not shape.coarse else {}
    rates = _rates(found, until, coarse=shape.coarse)
    begun, ended = min(one.at for one in found), max(one.at for one in found)
    rows = grouped(((one.op, _power(one.bytes)), one) for one in found)
    largest = sorted(rows, key=lambda row: (-sum(one.wire for one in rows[row]), row))[:most]
    times = tuple(_row(row, rows[row], rates, shape, policy) for row in sorted(largest))
    ranks = _rank_times(found, rates, shape, policy)
    met = (*memory.met, *meetings(found, max(ranks, key=lambda one: one.late).rank))[-KEPT_MEETINGS:]
    followed = sum(one.before is not None for one in found) >= FOLLOWED * len(found)
    late = _late(replace(memory, met=met), ranks, policy) if followed or not shape.coarse else LateInWindow()
    if late.rank is None:
        late = _held_up(found, policy.votes, policy.cost)
    window = CommunicatorWindow(
        begun, ended - begun, times, ranks, late.rank, late.cost, _alike(found), late.grown
    )
    return window, met


def vote(seconds: Mapping[int, float], policy: JobsPolicy) -> int | None:
    """The late rank of one collective: the one that waits least, if it is clearly after the next one."""
    if len(seconds) < 2:  # noqa: PLR2004
        return None
    first, second = sorted(seconds, key=lambda rank: seconds[rank])[:2]
    gap = seconds[second] - seconds[first]
    return first if gap > max(policy.resolution, policy.clear * seconds[first]) else None


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all, above 0, are at or below; always one of them."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _slots(found: Sequence[JoinedCollective], policy: JobsPolicy) -> dict[int, int | None]:
    """By slot of time the rank that was held up most there, or late in more than half of what was late.

    None for nobody: so it is also where what is lost is too little, and any rank may be last.
    """
    slots: dict[int, int | None] = {}
    for slot, some in grouped((math.floor(one.at / SLOT), one) for one in found).items():
        slots[slot] = _held_up(some, MOSTLY, MOMENT * policy.cost).rank
        if slots[slot] is None:
            rank, share = _most_late([vote(one.seconds, policy) for one in some])
            known = [one for one in some if one.before is not None and len(one.seconds) > 1]
            lost = sum(gap(one.seconds, rank) for one in known) if rank >= 0 else 0.0
            costs = not known or lost >= LEAST_LOST * covered(known)
            slots[slot] = rank if share > MOSTLY and costs else None
    return slots


def _most_late(votes: Sequence[int | None]) -> tuple[int, float]:
    """Return who is late most often, and in what share of the collectives in which any rank is late.

    Where ranks are late too seldom to say so, it is rank -1, and the share is 0.
    """
    named = Counter(rank for rank in votes if rank is not None)
    decided = named.total()
    if decided < DECIDED * len(votes):
        return -1, 0.0
    rank, times = min(named.items(), key=lambda item: (-item[1], item[0]))
    return rank, times / decided


def _pause(found: Sequence[JoinedCollective]) -> float:
    """Return the longest time from the end of one collective to the end of the next, as far as known."""
    return max(((one.before or 0.0) + max(one.seconds.values()) for one in found), default=0.0)


def _power(size: int | None) -> int:
    return 1 << (size.bit_length() - 1) if size else 0


def _rates(
    found: Sequence[JoinedCollective], until: Mapping[str, tuple[int, float]], *, coarse: bool
) -> dict[str, float]:
    """Calls a second of each operation, timed or not: NCCL numbers them all.

    From the last one of the window before to the last that was timed, so that a pause between two steps is
    in one window; else from the first one; of the whole window at least, where there are no two moments.
    Where they were written together, from the last of the first ones: these are of the time before.
    """
    rates: dict[str, float] = {}
    whole = max(one.at for one in found) - min(one.at for one in found)
    for op, some in grouped((one.op, one) for one in found).items():
        mine = sorted(some, key=lambda one: one.sequence)
        together = mine[0].at + FIRST_ONES * (mine[-1].at - mine[0].at)
        begin = max(n for n, one in enumerate(mine) if n == 0 or (coarse and one.at <= together))
        number, at = mine[begin].sequence, mine[begin].at
        if op in until and until[op][0] < number and until[op][1] < at:
            number, at = until[op]
        seconds, calls = mine[-1].at - at, mine[-1].sequence - number
        rates[op] = calls / seconds if seconds > 0 else len(mine) / whole if whole > 0 else 0.0
    return rates


def _row(
    row: Row, found: Sequence[JoinedCollective], rates: Mapping[str, float], shape: Shape, policy: JobsPolicy
) -> OperationTimes:
    op, size = row
    wires, times = [one.wire for one in found], [one.at for one in found]
    seconds = max(times) - min(times)
    ways = Counter((one.algorithm, one.protocol, one.channels) for one in found)
    algorithm, protocol, channels = min(ways, key=lambda way: (-ways[way], way))
    votes = Counter(vote(one.seconds, policy) for one in found)
    undecided = votes.pop(None, 0)
    middle, low = low_median(wires), quantile(wires, LOW)
    message = low_median([one.bytes or 0 for one in found])
    got = _busbw(op, shape.ranks, [(one.bytes, one.wire) for one in found], size)
    return OperationTimes(
        op=op, size_bytes=size, ranks=shape.ranks, joined=len(found),
        calls=round(rates[op] * seconds), bytes=int(message), wire_seconds=middle, low=low,
        high=quantile(wires, HIGH),
        algorithm=algorithm, protocol=protocol, channels=channels,
        busbw=got if isinstance(got, Absent) else low_median(got),
        best=got if isinstance(got, Absent) else quantile(got, HIGH),
        waits={rank: _mean([one.seconds[rank] - one.wire for one in found]) for rank in sorted(shape.here)},
        votes={rank: votes[rank] for rank in sorted(r for r in votes if r is not None)}, undecided=undecided,
    )  # fmt: skip


def _busbw(op: str, ranks: int, found: Sequence[tuple[int | None, float]], size: int) -> list[float] | Absent:
    """Return bus bandwidths of single collectives, or why there are none."""
    if op not in FACTORS:
        return Absent(Why.UNSUPPORTED, f"no bus bandwidth of {op}")
    if ranks < 2:  # noqa: PLR2004
        return _ONE
    if not size:
        return _UNSIZED
    if size < LATENCY_BELOW:
        return _SMALL
    return [busbw(op, ranks, message, wire) for message, wire in found if message and wire > 0] or _NO_TIME


def _rank_times(
    found: Sequence[JoinedCollective], rates: Mapping[str, float], shape: Shape, policy: JobsPolicy
) -> tuple[RankTime, ...]:
    """Each rank's share of the time: calls a second of each operation times its mean seconds."""
    by_op = grouped((one.op, one) for one in found)
    votes = Counter(vote(one.seconds, policy) for one in found)

    def share(rank: int, seconds: Callable[[JoinedCollective, int], float], least: int = 1) -> float:
        several = {op: [one for one in some if len(one.seconds) >= least] for op, some in by_op.items()}
        return sum(rates[op] * _mean([seconds(one, rank) for one in some]) for op, some in several.items())

    return tuple(
        RankTime(
            rank, min(1.0, share(rank, lambda one, own: one.seconds[own])),
            min(1.0, share(rank, lambda one, own: one.seconds[own] - one.wire)), votes[rank] / len(found),
            share(rank, lambda one, own: gap(one.seconds, own), 2),
        )
        for rank in sorted(shape.here)
    )  # fmt: skip


def _late(memory: CommunicatorMemory, ranks: Sequence[RankTime], policy: JobsPolicy) -> LateInWindow:
    """The rank that is late in most collectives that are late.

    What counts is by how much it is later than the next one: so much sooner would all go on without it. A
    spread among the others comes from overlap with computing, and is not the fault of the last of them.
    Where this window does not show what is lost, it is what the one before it showed.
    """
    found = memory.window
    latest, share = _most_late([vote(one.seconds, policy) for one in found])
    if share < policy.votes:
        return LateInWindow()
    alone = next(one.behind for one in ranks if one.rank == latest)
    beside = overlap(found, latest)
    met = [one for one in memory.met if one.rank == latest]
    lost = lost_by(found, latest, alone, met) if beside else alone
    grown = None if beside else _grown(memory.even, latest, alone)
    if lost is None:
        known = [window.cost for window in memory.windows[-1:] if window.late == latest]
        return LateInWindow(latest, known[0]) if known else LateInWindow()
    slowed = grown is not None and lost >= SLIGHT * policy.cost and grown >= GREW * policy.cost
    if lost < policy.cost and not slowed:
        return LateInWindow()
    waits = high_median(sorted(one.waiting for one in ranks if one.rank != latest))
    return LateInWindow(latest, waits * lost / alone, grown)


def _grown(even: Sequence[Mapping[int, float]], rank: int, behind: float) -> float | None:
    """By how much a rank is farther behind than while nobody was late; None after too few such windows."""
    usual = [window[rank] for window in even]
    return behind - low_median(usual) if len(usual) >= LEAST_EVEN else None


def _held_up(found: Sequence[JoinedCollective], least_share: float, least_cost: float) -> LateInWindow:
    """The rank that is held up, where that is mostly this one."""
    seconds = held_up(found)
    if not seconds:
        return LateInWindow()
    rank = max(seconds, key=lambda one: (seconds[one], -one))
    cost, share = seconds[rank] / covered(found), seconds[rank] / sum(seconds.values())
    return LateInWindow(rank, cost) if share > least_share and cost >= least_cost else LateInWindow()


def _alike(found: Sequence[JoinedCollective]) -> bool:
    """Whether all ranks here took as long in most collectives, however long that was."""
    longest = [(one.wire, max(one.seconds.values())) for one in found]
    return 2 * sum(most - wire <= SHARED_WAIT * most for wire, most in longest) > len(longest)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
