"""Windows of a communicator: from joined collectives to wire time, busbw, waiting and votes. Pure."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from wirewatch.busbw.formulas import FACTORS, busbw
from wirewatch.core.statistics import grouped, high_median, low_median
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import count as counted
from wirewatch.jobs.running.lateness import (
    beside,
    covered,
    fresh,
    gap,
    held_up,
    lost_by,
    maybe_held_up,
    meetings,
    overlap,
)
from wirewatch.jobs.running.model import (
    KEPT_SLOTS,
    KEPT_WINDOWS,
    MOST_ROWS,
    SLOT,
    CommunicatorMemory,
    JobsPolicy,
    JoinedCollective,
    RankMeeting,
    References,
)
from wirewatch.jobs.times import LATENCY_BELOW, CommunicatorWindow, OperationTimes, RankTime

LOW, HIGH = 0.1, 0.9
KEPT_MEETINGS = 8
KEPT_BEST, TAIL = 2, 16
LEAST_TOGETHER = 4
"""Ranks of which two can be late together, and two not."""
DECIDED = 0.2
"""Least share of collectives with a late rank for a window to name a late rank. Where buckets become ready
several at once, only the first of them waits for the late rank; the others wait for the wire."""
MOSTLY, MOMENT = 0.5, 0.5
"""Least values in a moment of a few steps: the rank's share of all lateness, and its cost as a part of a late
rank's. Healthy ranks are held up 0.6 % of the time (two H200)."""
LEAST_LOST = 0.006
"""Share of a moment's time that must be lost there for its last rank to count: some rank is always last."""
SLIGHT, GREW = 0.6, 1.2
"""Parts of the cost limit, for a rank that costs less but fell behind: its least cost, and its least growth
since nobody was late. A GPU that became slower may have been the fastest."""
KEPT_EVEN, LEAST_EVEN = 8, 3
"""Windows in which nobody was late that are kept, and how many it takes to say how far behind is usual."""
SHARED_WAIT = 0.1
"""Part of a duration by which all ranks may differ that wait alike."""
APART = 2.0
"""How many times as far apart as ranks are from each other are two groups of them."""
COARSE_SPREAD, FIRST_ONES = 0.5, 0.1
"""Part of the shortest window that lines must be apart: lines written at once do not show their time. Part of
their time in which the first lines were written."""
PAUSES, LONGEST_PAUSES = 2, 30.0
"""A window lasts as long as so many of the longest pauses in it and in the window before, up to so many
seconds. A part of a step, or the time between two stalls, does not show the job."""
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
    behind than while nobody was late, None where that is not known. `others`: ranks that are as late.
    """

    rank: int | None = None
    cost: float = 0.0
    grown: float | None = None
    others: tuple[int, ...] = ()


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
    late = () if window.late is None else (window.late, *window.others)
    apart = together(memory.window, late) if window.others else memory.window
    slots = sorted({**memory.slots, **_slots(apart, policy)}.items())
    even = () if window.late is not None else ({one.rank: one.behind for one in window.ranks},)
    ordered = sorted(memory.window, key=lambda one: one.sequence)
    return replace(
        begun, until={one.op: (one.sequence, one.at) for one in ordered}, met=met,
        even=(*memory.even, *even)[-KEPT_EVEN:], windows=windows[-KEPT_WINDOWS:], closed=mono,
        slots=dict(slots[-KEPT_SLOTS:]), paused=_pause(memory.window),
        tail=tuple(sorted(memory.window, key=lambda one: one.at)[-TAIL:]),
        best=best_times(memory.best, window, rows),
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
    rates = _rates_of(memory, shape)
    begun, ended = min(one.at for one in found), max(one.at for one in found)
    rows = grouped(((one.op, _power(one.bytes)), one) for one in found)
    largest = sorted(rows, key=lambda row: (-sum(one.wire for one in rows[row]), row))[:most]
    times = tuple(_row(row, rows[row], rates, shape, policy) for row in sorted(largest))
    ranks = _rank_times(found, rates, shape, policy, dict(memory.ranks))
    met = (*memory.met, *meetings(found, max(ranks, key=lambda one: one.late).rank))[-KEPT_MEETINGS:]
    followed = sum(one.before is not None for one in found) >= FOLLOWED * len(found)
    late = LateInWindow()
    if followed or not shape.coarse:
        late = _late(replace(memory, met=met), ranks, policy)
        if late.rank is None:
            late = _late_together(memory, rates, shape, policy)
    if late.rank is None:
        late = _held_up(found, policy.votes, policy.cost, memory.tail)
    window = CommunicatorWindow(
        begun, ended - begun, times, _lost(memory, ranks, met), late.rank, late.cost, _alike(found),
        late.grown, late.others,
    )  # fmt: skip
    return window, met


def under_way(memory: CommunicatorMemory, shape: Shape, policy: JobsPolicy) -> CommunicatorWindow | None:
    """The window under way, of which only the shares of time count; None where it holds too little."""
    found = memory.window
    if len(found) < policy.fewest:
        return None
    rates = _rates_of(memory, shape)
    ranks = _rank_times(found, rates, shape, policy, dict(memory.ranks))
    begun, ended = min(one.at for one in found), max(one.at for one in found)
    return CommunicatorWindow(begun, ended - begun, (), _lost(memory, ranks, memory.met))


def vote(seconds: Mapping[int, float], policy: JobsPolicy) -> int | None:
    """Return the late rank of a collective: the rank that waits least, if clearly after the next rank."""
    if len(seconds) < 2:  # noqa: PLR2004
        return None
    first, second = sorted(seconds, key=seconds.__getitem__)[:2]
    gap = seconds[second] - seconds[first]
    return first if gap > max(policy.resolution, policy.clear * seconds[first]) else None


def late_together(seconds: Mapping[int, float], policy: JobsPolicy) -> tuple[int, ...]:
    """The ranks that come late together, up to half of all: clearly after the rest, and alike.

    Empty where ranks come one after the other, so that it is a spread and no two groups.
    """
    order = sorted(seconds, key=lambda rank: (seconds[rank], rank))
    steps = [seconds[two] - seconds[one] for one, two in pairwise(order)]
    place = max(range(len(steps) and len(order) // 2), key=lambda one: steps[one], default=0)
    if place < 1 or steps[place] <= max(policy.resolution, policy.clear * seconds[order[0]]):
        return ()
    late, rest = order[: place + 1], order[place + 1 :]
    apart = max(seconds[some[-1]] - seconds[some[0]] for some in (late, rest))
    return tuple(sorted(late)) if steps[place] >= APART * apart else ()


def together(found: Sequence[JoinedCollective], ranks: Sequence[int]) -> tuple[JoinedCollective, ...]:
    """The collectives, with ranks that are late together as one: the lowest, as early as any of them."""

    def merged(own: Mapping[int, float]) -> dict[int, float]:
        rest = {rank: seconds for rank, seconds in own.items() if rank not in ranks}
        late = [seconds for rank, seconds in own.items() if rank in ranks]
        return {**rest, min(ranks): max(late)} if late else rest

    return tuple(replace(one, begun=merged(one.own)) for one in found)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all, above 0, are at or below; always an element of `values`."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _slots(found: Sequence[JoinedCollective], policy: JobsPolicy) -> dict[int, int | None]:
    """By slot of time the rank that was held up most there, or late in more than half of what was late.

    None for nobody: so it is also where what is lost is too little, and any rank may be last.
    """
    slots: dict[int, int | None] = {}
    for slot, some in grouped((math.floor(one.at / SLOT), one) for one in found).items():
        slots[slot] = _held_up(some, MOSTLY, MOMENT * policy.cost).rank
        if slots[slot] is None:
            rank, share = _most_late(_votes(some, policy))
            known = [one for one in some if one.before is not None and len(one.own) > 1]
            lost = sum(gap(one.own, rank) for one in known) if rank >= 0 else 0.0
            costs = not known or lost >= LEAST_LOST * covered(known)
            slots[slot] = rank if share > MOSTLY and costs else None
    return slots


def _most_late(votes: Sequence[int | None]) -> tuple[int, float]:
    """Return who is late most often, and in what share of the collectives in which any rank is late.

    Where ranks are late too seldom to say so, it is rank -1, and the share is 0.
    """
    named = Counter(rank for rank in votes if rank is not None)
    decided = named.total()
    if not named or decided < DECIDED * len(votes):
        return -1, 0.0
    rank, times = min(named.items(), key=lambda item: (-item[1], item[0]))
    return rank, times / decided


def _votes(found: Sequence[JoinedCollective], policy: JobsPolicy) -> list[int | None]:
    """The vote of each collective of which it is known whose lateness begins there."""
    return [vote(one.own, policy) for one in found if one.own]


def _pause(found: Sequence[JoinedCollective]) -> float:
    """Return the longest time from the end of one collective to the end of the next, as far as known."""
    return max(((one.before or 0.0) + max(one.seconds.values()) for one in found), default=0.0)


def _power(size: int | None) -> int:
    return 1 << (size.bit_length() - 1) if size else 0


def _rates_of(memory: CommunicatorMemory, shape: Shape) -> dict[str, float]:
    """Return calls a second in the window under way, since the window before where it adjoins."""
    until = memory.until if memory.closed == memory.begun and not shape.coarse else {}
    return _rates(memory.window, until, coarse=shape.coarse)


def _rates(
    found: Sequence[JoinedCollective], until: Mapping[str, tuple[int, float]], *, coarse: bool
) -> dict[str, float]:
    """Calls a second of each operation, timed or not: NCCL numbers them all.

    The time begins at the last call of the window before, so that a window has the pause between two steps.
    It ends at the last timed call. Otherwise it begins at the first call; without two moments it is the whole
    window. Where calls were written together, it begins at the last of the first calls, which are of the time
    before.
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
    votes = Counter(_votes(found, policy))
    undecided = votes.pop(None, 0)
    middle, low = low_median(wires), quantile(wires, LOW)
    message = low_median([one.bytes or 0 for one in found])
    got = _busbw(op, shape.ranks, [(one.bytes, one.wire) for one in found], size)
    return OperationTimes(
        op=op, size_bytes=size, ranks=shape.ranks, joined=len(found),
        calls=round(rates[op] * seconds), bytes=int(message), wire_seconds=middle, low=low,
        high=quantile(wires, HIGH), mean=_mean(wires),
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
    found: Sequence[JoinedCollective], rates: Mapping[str, float], shape: Shape, policy: JobsPolicy,
    gpus: Mapping[int, str],
) -> tuple[RankTime, ...]:  # fmt: skip
    """Each rank's share of the time: calls a second of each operation times its mean seconds."""
    by_op = grouped((one.op, one) for one in found)
    votes, waits = Counter(vote(one.own, policy) for one in found), _waits(found, rates, gpus)

    def share(rank: int, seconds: Callable[[JoinedCollective, int], float], least: int = 0) -> float:
        several = {op: [one for one in some if len(one.own) >= least] for op, some in by_op.items()}
        return sum(rates[op] * _mean([seconds(one, rank) for one in some]) for op, some in several.items())

    return tuple(
        RankTime(
            rank, min(1.0, share(rank, lambda one, own: one.seconds[own])),
            min(1.0, share(rank, lambda one, own: one.seconds[own] - one.wire)), votes[rank] / len(found),
            share(rank, lambda one, own: gap(one.own, own), 2), waits.get(rank, {}),
        )
        for rank in sorted(shape.here)
    )  # fmt: skip


def _lost(
    memory: CommunicatorMemory, ranks: Sequence[RankTime], met: Sequence[RankMeeting]
) -> tuple[RankTime, ...]:
    """Return the ranks without what they wait while they compute beside the collectives: nothing is lost."""
    found, gpus, parts = memory.window, dict(memory.ranks), dict[str, float]()
    goes_on = all(beside(found, gpus))
    new = fresh(found) if goes_on else {}
    for one in (one for one in ranks if one.rank in gpus):
        lost = None
        if one.behind > 0 and (goes_on or overlap(found, one.rank, surely=True)):
            lost = lost_by(found, one.rank, one.behind, [own for own in met if own.rank == one.rank])
        part = new.get(one.rank, 1.0) if lost is None else min(1.0, lost / one.behind)
        parts[gpus[one.rank]] = part
    return tuple(_without(one, parts) for one in ranks)


def _without(one: RankTime, parts: Mapping[str, float]) -> RankTime:
    waits = {gpu: share * parts.get(gpu, 1.0) for gpu, share in one.waits.items()}
    hidden = min(one.waiting, math.fsum(one.waits.values()) - math.fsum(waits.values()))
    inside = max(0.0, one.in_collectives - hidden)
    return replace(one, in_collectives=inside, waiting=one.waiting - hidden, waits=waits)


def _waits(
    found: Sequence[JoinedCollective], rates: Mapping[str, float], gpus: Mapping[int, str]
) -> dict[int, dict[str, float]]:
    """The share of the time that each rank waits, by who is waited for."""
    waits: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    many = Counter(one.op for one in found)
    for one in found:
        wire, often = one.wire, rates[one.op] / many[one.op]
        causes = one.causes
        if causes is None:
            last = next(rank for rank, seconds in one.seconds.items() if seconds == wire)
            causes = {gpus.get(last, ""): 1.0}
        for rank, seconds in one.seconds.items():
            for cause, part in causes.items() if seconds > wire else ():
                waits[rank][cause] += (seconds - wire) * often * part
    return {rank: {cause: share for cause, share in mine.items() if cause} for rank, mine in waits.items()}


def _late(memory: CommunicatorMemory, ranks: Sequence[RankTime], policy: JobsPolicy) -> LateInWindow:
    """Find the rank that is late in most of the collectives with a late rank.

    Its lateness counts only up to the next rank: so much sooner would all go on without it. A spread among
    the others comes from overlap with computing, and is not the fault of the last of them. Where this window
    does not show the loss, the loss of the window before counts.
    """
    found = memory.window
    latest, share = _most_late(_votes(found, policy))
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
    return LateInWindow(latest, waits * _own_part(found, latest) * lost / alone, grown)


def _own_part(found: Sequence[JoinedCollective], rank: int) -> float:
    """Return the part of the other ranks' waiting that begins in this communicator."""
    waited = math.fsum(math.fsum(one.seconds.values()) - len(one.seconds) * one.wire for one in found)
    own = (one.own for one in found if one.own)
    began = math.fsum(math.fsum(some.values()) - len(some) * some[rank] for some in own)
    return min(1.0, began / waited) if waited > 0 and any(one.begun is not None for one in found) else 1.0


def _late_ranks(own: Mapping[int, float], policy: JobsPolicy) -> tuple[int, ...]:
    alone = vote(own, policy)
    return late_together(own, policy) or (() if alone is None else (alone,))


def _late_together(
    memory: CommunicatorMemory, rates: Mapping[str, float], shape: Shape, policy: JobsPolicy
) -> LateInWindow:
    """Ranks that are late together in most collectives in which any are, as one rank."""
    if len(shape.here) < LEAST_TOGETHER:
        return LateInWindow()
    known = [one for one in memory.window if one.own]
    named = Counter(_late_ranks(one.own, policy) for one in known)
    named.pop((), 0)
    if not named or named.total() < DECIDED * len(known):
        return LateInWindow()
    ranks, times = max(named.items(), key=lambda item: item[1])
    if len(ranks) == 1 or times < policy.votes * named.total():
        return LateInWindow()
    first, *others = ranks
    found = together(memory.window, [first, *others])
    here = replace(shape, here=shape.here - set(others))
    times_of = _rank_times(found, rates, here, policy, dict(memory.ranks))
    late = _late(replace(memory, window=found, met=(), even=()), times_of, policy)
    return late._replace(others=tuple(others)) if late.rank == first else LateInWindow()


def _grown(even: Sequence[Mapping[int, float]], rank: int, behind: float) -> float | None:
    """Return by how much a rank fell behind since nobody was late; None after too few such windows."""
    usual = [window[rank] for window in even]
    return behind - low_median(usual) if len(usual) >= LEAST_EVEN else None


def _held_up(
    found: Sequence[JoinedCollective], least_share: float, least_cost: float,
    front: Sequence[JoinedCollective] = (),
) -> LateInWindow:  # fmt: skip
    """Find the rank that is held up, where that is mostly one rank; `front`: the collectives before these.

    Where sudden lateness is unknown, ranks that came far behind count.
    """
    seconds = {rank: more for rank, more in held_up(found, front).items() if more > 0}
    if not seconds:
        return LateInWindow()
    rank = max(seconds, key=lambda one: (seconds[one], -one))
    maybe = maybe_held_up(found)
    mine, every = seconds[rank] + maybe.get(rank, 0.0), sum(seconds.values()) + sum(maybe.values())
    cost, share = seconds[rank] / covered(found), mine / every
    return LateInWindow(rank, cost) if share > least_share and cost >= least_cost else LateInWindow()


def best_times(known: References, window: CommunicatorWindow, most: int) -> References:
    """Add the times of a window to the shortest; where there are too many, the oldest go."""
    best = dict(known)
    for row in window.collectives:
        key = (row.op, row.size_bytes, row.algorithm, row.protocol)
        best[key] = tuple(sorted((*best.pop(key, ()), row.low))[:KEPT_BEST])
    return dict([*best.items()][-2 * most :])


def _alike(found: Sequence[JoinedCollective]) -> bool:
    """Tell whether all ranks here took as long in most collectives, however long that was."""
    longest = [(one.wire, max(one.seconds.values())) for one in found]
    return 2 * sum(most - wire <= SHARED_WAIT * most for wire, most in longest) > len(longest)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
