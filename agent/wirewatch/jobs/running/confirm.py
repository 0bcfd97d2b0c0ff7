"""From windows to confirmed facts: the late rank, a wire that is slow alone, a late rank elsewhere. Pure.

A single window says nothing: so many of the last windows must agree.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from wirewatch.core.statistics import grouped, low_median
from wirewatch.core.types import value_or
from wirewatch.core.words import GB
from wirewatch.core.words import size as human
from wirewatch.jobs.running.model import CommunicatorMemory, JobsPolicy
from wirewatch.jobs.running.parallel import RankNames
from wirewatch.jobs.times import CommunicatorWindow, JobRank, LateRank, OperationTimes, SlowWire

LEAST_ROW = 4
"""Collectives of one operation and size that a window must hold to say something of the wire."""
SLOWER = 1.5
"""Times its own best that a collective over several nodes must take to be waiting for another node."""
OUTWEIGHS = 2.0
"""Times the longest mean wait that is lost on a wire which is named although one rank is always last."""
MOSTLY_NEW = 0.5
"""Least part of a late rank's cost that came while the job ran, for the text to say so."""
UNSURE = 0.5
"""Part of the limit, where the expectation was measured at other sizes, numbers of GPUs or wires."""
_EVEN = 1 / 3
"""At least what a rank may have of all slots in a healthy job, however many ranks there are."""
Row = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LateVotes:
    """Windows of the last `of` in which `rank` was late, and the votes of all of these windows.

    `grown`: by how much of the time it is farther behind than while nobody was late, None if not known.
    `others`: ranks that are as late.
    """

    rank: int
    windows: int
    of: int
    votes: int
    voted: int
    cost: float
    grown: float | None = None
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowRow:
    """Windows of the last `of` in which one operation and size was too slow; `row` is the newest.

    `last`: the rank that nearly always came last in `row`, None for nobody.
    """

    row: OperationTimes
    windows: int
    of: int
    ratio: float
    last: int | None = None


def late_votes(
    windows: Sequence[CommunicatorWindow], slots: Mapping[int, int | None], ranks: int, policy: JobsPolicy
) -> LateVotes | None:
    """Return the rank that enough recent windows name, in more slots than chance gives; None for nobody.

    It may also be the only rank named, now and then, by windows that lose enough for all windows together.
    Between rare stalls a job is as fast as ever.
    """
    found = _named(windows[-policy.windows :], policy)
    if found is not None and _is_no_chance(found, slots, ranks, policy):
        return found
    seldom = None if _is_over(windows) else _named(windows, policy)
    seconds = sum(one.seconds for one in windows)
    lost = sum(one.cost * one.seconds for one in windows if one.late is not None)
    if seldom is None or len({one.late for one in windows} - {None}) > 1 or lost < policy.cost * seconds:
        return None
    return replace(seldom, cost=lost / seconds) if _is_no_chance(seldom, slots, ranks, policy) else None


def _is_over(windows: Sequence[CommunicatorWindow]) -> bool:
    """Tell whether nobody has been late for longer than between the windows in which somebody was."""
    runs = [(late, len([*some])) for late, some in groupby(windows, key=lambda one: one.late is not None)]
    pauses = [length for late, length in runs[1:] if not late]
    return len(pauses) > 0 and not runs[-1][0] and pauses[-1] > max(pauses[:-1], default=0)


def _named(last: Sequence[CommunicatorWindow], policy: JobsPolicy) -> LateVotes | None:
    """The rank, or ranks together, that enough of these windows name."""
    named = Counter((one.late, one.others) for one in last if one.late is not None)
    if not named:
        return None
    (rank, others), times = min(named.items(), key=lambda item: (-item[1], item[0]))
    if times < policy.confirm:
        return None
    rows = [row for one in last for row in one.collectives]
    voted = sum(row.undecided + sum(row.votes.values()) for row in rows)
    votes = sum(row.votes.get(rank, 0) for row in rows)
    mine = [one for one in last if (one.late, one.others) == (rank, others)]
    grown = [one.grown for one in mine if one.grown is not None]
    new = low_median(grown) if grown else None
    cost = low_median([one.cost for one in mine])
    return LateVotes(rank, times, len(last), votes, voted, cost, new, others)


def _is_no_chance(found: LateVotes, slots: Mapping[int, int | None], ranks: int, policy: JobsPolicy) -> bool:
    """Tell whether one rank of a healthy job, or some, would hardly be last in so many of the newest slots.

    Any of its ranks could be, or any set of so many, so that there are as many chances. A slot in which
    nobody was waited for says nothing of who it is: a rank may stall now and then.
    """
    sets = math.comb(ranks, 1 + len(found.others))
    even, mine = max(_EVEN, 1 / ranks), 0
    named = [slots[slot] for slot in sorted(slots, reverse=True) if slots[slot] is not None]
    for count, late in enumerate(named, 1):
        mine += late == found.rank
        if sets * chance(mine, count, even) <= policy.chance:
            return True
    return False


def chance(votes: int, voted: int, even: float) -> float:
    """At most how likely so many of `voted` votes or more are for one rank that gets each with `even`.

    Chernoff's bound of a binomial tail: never below the tail itself.
    """
    share = votes / voted if voted else 0.0
    if share <= even:
        return 1.0
    other = 0.0 if share == 1 else (1 - share) * math.log((1 - share) / (1 - even))
    return math.exp(-voted * (share * math.log(share / even) + other))


def late_rank(
    found: LateVotes, here: Mapping[int, JobRank], since: float, nodes: int, names: RankNames, *,
    at_most: bool = False,
) -> LateRank:  # fmt: skip
    """The late rank with its GPU, and a sentence that says all this.

    `here`: the communicator's ranks by number, `names`: how the job counts them. `at_most`: it may cost less.
    """
    rank = here[found.rank]
    late = tuple(here[one] for one in (found.rank, *found.others))
    who, several = names.words(late), len(late) > 1
    others = "the others" if nodes == 1 else f"of {nodes} nodes only this one is seen; the others here"
    often = 2 * found.votes >= found.voted
    seen = f"{found.windows} of {found.of} windows"
    new = found.grown is not None and found.grown >= MOSTLY_NEW * found.cost
    grown = f", and it fell behind by {found.grown:.0%} while the job ran" if new else ""
    how = (
        f"are late together in {seen}" if several else
        f"is {'late' if often else 'held up'}: last in {found.votes} of {found.voted} collectives of {seen}"
        f"{'' if often else ', by far'}"
    )  # fmt: skip
    text = (
        f"{who} {how}; "
        f"{others} lose {'at most ' * at_most}{found.cost:.0%} of the time to "
        f"{'them' if several else 'it'}{grown}"
    )
    return LateRank(
        names.number(rank), rank.gpu, rank.index, rank.pid, found.windows, found.of, found.votes, found.voted,
        found.cost, since, text, at_most, who, late[1:],
    )  # fmt: skip


def slow_rows(windows: Sequence[CommunicatorWindow], policy: JobsPolicy) -> tuple[SlowRow, ...]:
    """Operations and sizes whose wire is slow in enough of the last windows, the slowest first.

    The wire is slow on all ranks alike: their shortest duration is long. Nobody in particular is waited for,
    or far less than the wire loses.
    """
    last = windows[-policy.windows :]
    seen = grouped(
        (_key(row), row) for window in last for row in window.collectives if _slow(row, window.late, policy)
    )
    found = [
        SlowRow(rows[-1], len(rows), len(last), _ratio(rows), _always_last(rows[-1], policy))
        for rows in seen.values()
        if len(rows) >= policy.confirm
    ]
    return tuple(sorted(found, key=lambda one: (one.ratio, one.row.op, one.row.size_bytes)))


def slow_wire(found: SlowRow, since: float, witnesses: tuple[str, ...]) -> SlowWire:
    """The slow wire in words, with what else agrees."""
    row = found.row
    got, due = value_or(row.best, 0.0), value_or(row.expected, 0.0)
    why = f"; {'; '.join(row.explained)}" if row.explained else ""
    last = f"waiting for rank {found.last}, the last, costs far less"
    behind = "nobody is late" if found.last is None else last
    unsure = "" if row.trusted else "; what is expected there is not sure"
    text = (
        f"{operation(row)} on {row.ranks} ranks gives {got / GB:.1f} GB/s at best of "
        f"{due / GB:.1f} expected ({found.ratio:.0%}, {found.windows} of {found.of} windows), on all ranks "
        f"alike, and {behind} ({row.low * 1e3:.3g} to {row.high * 1e3:.3g} ms){unsure}{why}"
    )
    return SlowWire(
        row.op, row.size_bytes, got, due, found.ratio, found.windows, found.of, since, witnesses,
        row.explained, text,
    )  # fmt: skip


def elsewhere(memory: CommunicatorMemory, nodes: int, policy: JobsPolicy) -> str:
    """Say that all ranks here wait alike for a rank of another node; empty where that is not so.

    The due time of a communicator over several nodes is not known here: it is compared with its own best,
    over its whole life.
    """
    last = memory.windows[-policy.windows :]
    found: list[tuple[float, OperationTimes]] = []
    for window in last:
        times = (
            (row.wire_seconds / (reference(memory, row) or row.wire_seconds), row)
            for row in window.collectives
        )
        share, row = max(times, key=lambda one: one[0])
        if window.alike and window.late is None and share >= SLOWER:
            found.append((share, row))
    if nodes < 2 or len(found) < policy.confirm:  # noqa: PLR2004
        return ""
    share, row = found[-1]
    return (
        f"all ranks of this node wait alike: {operation(row)} takes "
        f"{row.wire_seconds * 1e3:.3g} ms, {share:.1f} times its best here; the late rank, or the slow wire, "
        "is not on this node"
    )


def reference(memory: CommunicatorMemory, row: OperationTimes) -> float | None:
    """The second shortest time of a window for this row; None where there were not two."""
    known = memory.best.get((row.op, row.size_bytes, row.algorithm, row.protocol), ())
    return known[-1] if len(known) > 1 else None


def operation(row: OperationTimes) -> str:
    """The operation with its size, where that is known."""
    return f"{row.op} of {human(row.size_bytes)}" if row.size_bytes else row.op


def _slow(row: OperationTimes, late: int | None, policy: JobsPolicy) -> bool:
    """Tell whether a wire is slow; with a late rank, if far more time is lost on the wire than by waiting."""
    ratio = row.best_ratio
    if ratio is None or row.joined < LEAST_ROW or ratio >= _limit(row, policy):
        return False
    if late is None and _always_last(row, policy) is None:
        return True
    return row.wire_seconds * (1 - ratio) > OUTWEIGHS * max(row.waits.values())


def _limit(row: OperationTimes, policy: JobsPolicy) -> float:
    """The share of what is expected below which a wire is slow: less where that is not sure."""
    if row.trusted:
        return policy.other_ratio if row.other_way else policy.ratio
    return policy.ratio if row.other_way else UNSURE * policy.ratio


def _always_last(row: OperationTimes, policy: JobsPolicy) -> int | None:
    rank = max(row.votes, key=lambda one: row.votes[one], default=None)
    return None if rank is None or row.votes[rank] < policy.votes * row.joined else rank


def _ratio(rows: Iterable[OperationTimes]) -> float:
    return low_median([row.best_ratio for row in rows if row.best_ratio is not None])


def _key(row: OperationTimes) -> Row:
    return (row.op, row.size_bytes)
