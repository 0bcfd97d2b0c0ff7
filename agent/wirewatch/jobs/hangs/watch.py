"""Follow jobs from poll to poll: which processes form a job, and since when it has looked stuck. Pure.

A job looks stuck while all its GPUs draw little power, at least one GPU is fully busy, and no byte moves over
NVLink. Where no byte was ever seen to move, no GPU may read or write its memory either.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wirewatch.core.types import Absent, Ok, Why, value_or
from wirewatch.jobs.hangs.model import (
    CALM,
    HELD,
    LEARN,
    LEARNT,
    GpuLoad,
    GpuLoads,
    HangPolicy,
    HangReading,
    WatchedJob,
)
from wirewatch.jobs.hangs.read import ALL_BUSY

__all__ = ["ALL_BUSY", "IDLE", "followed", "looks_stuck", "polled"]

IDLE = 0.05
"""Share of the time below which a GPU has nothing to do."""
Processes = Mapping[str, frozenset[int]]


def followed(
    known: Mapping[str, WatchedJob], ok: Ok[HangReading], policy: HangPolicy
) -> dict[str, WatchedJob]:
    """The jobs after one more poll; a GPU that could not be read neither ends a job nor clears it."""
    loads, now = ok.value.loads, _jobs_now(ok.value)
    unread = {
        key for key, load in loads.items() if isinstance(load, Absent) or isinstance(load.processes, Absent)
    }
    alive = {pid for by_gpu in now.values() for pids in by_gpu.values() for pid in pids}
    jobs: dict[str, WatchedJob] = {}
    for owner in sorted({*known, *now}):
        job = _continued(known.get(owner), now.get(owner, {}), unread, alive)
        if job is not None:
            jobs[owner] = polled(job, loads, ok, policy)
    return jobs


def _jobs_now(reading: HangReading) -> Mapping[str, Processes]:
    """Processes by GPU of each owner; a process without an id is 0, of the owner without a name."""
    found: dict[str, dict[str, frozenset[int]]] = {}
    for key, load in reading.loads.items():
        for pid in () if isinstance(load, Absent) else value_or(load.processes, ()):
            by_gpu = found.setdefault("" if pid is None else reading.owners.get(pid, ""), {})
            by_gpu[key] = by_gpu.get(key, frozenset()) | {pid or 0}
    return found


def _continued(
    known: WatchedJob | None, now: Processes, unread: set[str], alive: set[int]
) -> WatchedJob | None:
    """The job of before as long as no process came to it or went to another; None where none is left.

    Processes that are gone stay part of it: the others may wait for them.
    """
    if known is None:
        return WatchedJob(now)
    kept = {key: pids for key, pids in known.processes.items() if key in unread}
    seen = {**kept, **now}
    if not seen:
        return None
    before = {pid for pids in known.processes.values() for pid in pids}
    if any(pid not in before for pids in seen.values() for pid in pids):
        return WatchedJob(now)
    left = {pid for pids in seen.values() for pid in pids}
    gone = {pid: key for key, pids in known.processes.items() for pid in pids if pid not in left}
    if any(pid in alive for pid in gone):
        return WatchedJob(now) if now else None
    return replace(known, processes=seen, gone={**known.gone, **gone})


def polled(job: WatchedJob, loads: GpuLoads, ok: Ok[Any], policy: HangPolicy) -> WatchedJob:
    """The job after one more poll: whether it moved, since when it has looked stuck, when it is read next."""
    mine = {key: load for key, load in loads.items() if key in job.processes}
    sent = {
        key: load.sent
        for key, load in mine.items()
        if not isinstance(load, Absent) and not isinstance(load.sent, Absent)
    }
    grown = [sent[key] - job.sent[key] for key in sent if key in job.sent]
    moving = any(growth > policy.still or growth < 0 for growth in grown)
    # Bytes that moved before it looked stuck say nothing of the time since.
    known_low = job.low is not None
    afresh = moving and job.low is not None and job.read >= job.low
    quiet = ok.mono if moving or sent.keys() - job.sent.keys() else job.quiet
    job = replace(
        job, sent={**job.sent, **sent}, read=ok.mono if sent else job.read, quiet=quiet,
        moved=job.moved or any(growth >= policy.moved for growth in grown),
    )  # fmt: skip
    if sent and not job.moved:
        job = replace(job, learnt=job.learnt + 1, learn=ok.mono + min(LEARN * 2**job.learnt, LEARNT))
    stuck = looks_stuck(mine, job, policy)
    if stuck is False or (moving and (job.since is not None or job.diagnosis is not None)):
        job = _free(job)
    if stuck:
        job = replace(job, low=ok.mono if afresh or job.low is None else job.low)
        still = not moving and len(grown) + sum(map(_unlinked, mine.values())) == len(mine)
        if still and job.since is None:
            job = _begun(job, ok, policy)
    soon = ok.mono + CALM if afresh else job.count if known_low and not sent else ok.mono
    return replace(job, count=_next_count(job, soon))


def _begun(job: WatchedJob, ok: Ok[Any], policy: HangPolicy) -> WatchedJob:
    """A job that looks stuck from its `low` on, or has since before the agent was started."""
    assert job.low is not None  # noqa: S101
    if job.began is not None:
        return replace(job, since=ok.mono - max(0.0, ok.at - job.began), due=ok.mono)
    # Where bytes could not be read for a while, nobody knows whether some moved.
    since = job.low if job.quiet <= job.low + CALM else job.quiet
    wait = policy.after if job.moved else policy.unmoved
    return replace(job, since=since, began=ok.at - (ok.mono - since), due=since + wait)


def _next_count(job: WatchedJob, soon: float) -> float:
    """When its bytes are to be read again: `soon` only until it is known whether it stands still."""
    if job.low is None:
        return math.inf if job.moved or job.lone else job.learn
    if job.since is None:
        return soon
    rests = job.diagnosis is not None and job.diagnosis.goes_on
    return job.due if rests else min(job.due, max(job.read, job.since) + HELD)


def looks_stuck(loads: GpuLoads, job: WatchedJob, policy: HangPolicy) -> bool | None:
    """Tell whether all are at low power and one at least is all busy; None where that cannot be known now."""
    known = [load for load in loads.values() if not isinstance(load, Absent)]
    signs = [_low(load, policy) for load in known]
    if not job.moved:
        signs += [None if isinstance(load.memory, Absent) else load.memory == 0 for load in known]
    busy = [load.busy for load in known if not isinstance(load.busy, Absent)]
    if False in signs:
        return False
    if len(busy) < len(job.processes):
        return None
    if max(busy) < ALL_BUSY:
        return False
    return None if None in signs else True


def _low(load: GpuLoad, policy: HangPolicy) -> bool | None:
    if isinstance(load.power, Absent) or isinstance(load.limit, Absent):
        return None
    return load.power <= policy.low_power * load.limit


def _unlinked(load: GpuLoad | Absent) -> bool:
    """Tell whether a GPU has no NVLink whose bytes could be read."""
    absent = load if isinstance(load, Absent) else load.sent
    return isinstance(absent, Absent) and absent.why is Why.UNSUPPORTED


def _free(job: WatchedJob) -> WatchedJob:
    """A job that does not look stuck."""
    return replace(
        job, low=None, since=None, began=None, looks=(), asked=0, due=math.inf, diagnosis=None, standing=None
    )
