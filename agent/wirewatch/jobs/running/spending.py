"""How each GPU of a job spends its time in collectives, over the windows of the last seconds. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wirewatch.busbw.formulas import FACTORS, factor
from wirewatch.core.types import Absent
from wirewatch.jobs.running.confirm import UNSURE
from wirewatch.jobs.running.judge import JudgedCommunicator
from wirewatch.jobs.running.model import JobsPolicy
from wirewatch.jobs.running.rails import beyond_best
from wirewatch.jobs.running.windows import under_way
from wirewatch.jobs.times import ELSEWHERE, CommunicatorWindow, JobRank, OperationTimes, TimesDoubt

LOOK = 12.0
"""Windows that ended within so many seconds count, by their length. Older windows hide a new fault."""
MOSTLY = 0.5
"""Least part of the unattributed waiting that a GPU must explain for the waiting to be attributed."""


@dataclass
class TimeShares:
    """The shares of a rank of one communicator, or of a GPU, as `GpuTime` has them.

    `in_collectives` may be above 1 where communicators overlap; `beyond` is None if not known.
    """

    in_collectives: float = 0.0
    waiting: float = 0.0
    late: float = 0.0
    beyond: float | None = None
    waits: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def shares(one: JudgedCommunicator, mono: float, policy: JobsPolicy) -> Iterator[tuple[JobRank, TimeShares]]:
    """Each rank of a communicator with its shares, the mean of the windows that count, by their length."""
    windows = _windows(one, mono, policy)
    weights = [window.seconds for window in windows]
    if sum(weights) <= 0:
        weights = [1.0] * len(windows)
    found = {rank.rank: TimeShares() for rank in one.here}
    for window, weight in zip(windows, weights, strict=True):
        _add(found, window, weight / sum(weights), one, policy)
    yield from ((rank, found[rank.rank]) for rank in one.here)


def summed(found: Sequence[TimeShares]) -> TimeShares:
    """Sum the shares of a GPU over its ranks in several communicators."""
    waits: dict[str, float] = defaultdict(float)
    for one in found:
        for cause, share in one.waits.items():
            waits[cause] += share
    beyond = [one.beyond for one in found if one.beyond is not None]
    waiting, total = min(1.0, sum(one.waiting for one in found)), sum(waits.values())
    fits = min(1.0, waiting / total) if total > 0 else 1.0
    return TimeShares(
        sum(one.in_collectives for one in found), waiting, max(one.late for one in found),
        min(1.0, sum(beyond)) if beyond else None,
        {cause: share * fits for cause, share in sorted(waits.items()) if share > 0},
    )  # fmt: skip


def with_the_busiest(gpus: Mapping[str, TimeShares]) -> dict[str, TimeShares]:
    """Attribute waiting without a record: as much of it is for the GPU that has most time of its own.

    GPUs of a job take as long for a step. Where all of their collectives are seen, the rest is their own
    time. By as much as one GPU has more of it than every other, all others wait for it.
    """
    order = sorted(gpus, key=lambda gpu: (gpus[gpu].in_collectives, gpu))
    if len(order) < 2:  # noqa: PLR2004
        return dict(gpus)
    busiest, more = order[0], gpus[order[1]].in_collectives - gpus[order[0]].in_collectives
    return {gpu: one if gpu == busiest else _with(one, busiest, more) for gpu, one in gpus.items()}


def _with(one: TimeShares, busiest: str, more: float) -> TimeShares:
    rest = one.waiting - sum(one.waits.values())
    share = min(rest, more - one.waits.get(busiest, 0.0))
    if share <= MOSTLY * rest:
        return one
    return replace(one, waits={**one.waits, busiest: one.waits.get(busiest, 0.0) + share})


def _windows(one: JudgedCommunicator, mono: float, policy: JobsPolicy) -> list[CommunicatorWindow]:
    """Return the windows that ended lately, the newest at least, and a slow job's that is under way."""
    *older, newest = one.memory.windows
    windows = [window for window in older if window.started + window.seconds >= mono - LOOK]
    begun = one.memory.begun
    late = begun is not None and mono - begun > policy.window
    now = under_way(one.memory, one.group.shape, policy) if late else None
    return [*windows, newest, *([now] if now else [])]


def _add(
    found: Mapping[int, TimeShares], window: CommunicatorWindow, part: float, one: JudgedCommunicator,
    policy: JobsPolicy,
) -> None:  # fmt: skip
    remote = beyond_best(one.memory, window, one.usual) if one.group.nodes > 1 else 0.0
    beyond = _beyond(window.collectives, policy)
    attributed = one.doubt in {None, TimesDoubt.ALONE}
    for time in (known for known in window.ranks if known.rank in found):
        mine, wire = found[time.rank], max(0.0, time.in_collectives - time.waiting)
        mine.in_collectives += part * time.in_collectives
        mine.waiting += part * (time.waiting + wire * remote)
        mine.late += part * time.late
        for cause, share in time.waits.items() if attributed else ():
            mine.waits[cause] += part * share
        mine.waits[ELSEWHERE] += part * wire * remote
        if beyond is not None:
            mine.beyond = (mine.beyond or 0.0) + part * wire * beyond


def _beyond(rows: Sequence[OperationTimes], policy: JobsPolicy) -> float | None:
    """Return the part of the time on the wire beyond the expected time; None without an expectation.

    Where what is expected is not sure, only what is far beyond it counts.
    """
    total, more, known = sum(row.joined * row.mean for row in rows), 0.0, False
    for row in rows:
        if isinstance(row.expected, Absent) or row.expected <= 0 or row.op not in FACTORS:
            continue
        known = True
        due = factor(row.op, row.ranks) * row.bytes / row.expected
        if row.trusted or due < UNSURE * policy.ratio * row.mean:
            more += row.joined * max(0.0, row.mean - due)
    return more / total if known and total > 0 else None
