"""Jobs over time: which GPUs and processes are one job, and since when it has looked stuck. Pure."""

import math
from collections.abc import Mapping
from dataclasses import replace

from wirewatch.core.types import Absent
from wirewatch.jobs.hangs.model import GpuLoad, GpuLoads, HangPolicy, HangReading, WatchedJob
from wirewatch.jobs.hangs.read import ALL_BUSY

Processes = Mapping[str, frozenset[int]]


def jobs_now(reading: HangReading) -> dict[str, Processes]:
    """Processes by GPU of each owner; a process without an id is 0, of the owner without a name."""
    found: dict[str, dict[str, set[int]]] = {}
    for key, load in reading.loads.items():
        if isinstance(load, Absent) or isinstance(load.processes, Absent):
            continue
        for pid in load.processes:
            owner = "" if pid is None else reading.owners.get(pid, "")
            found.setdefault(owner, {}).setdefault(key, set()).add(pid or 0)
    return {owner: {key: frozenset(pids) for key, pids in by_gpu.items()} for owner, by_gpu in found.items()}


def followed(
    known: Mapping[str, WatchedJob], reading: HangReading, mono: float, policy: HangPolicy
) -> dict[str, WatchedJob]:
    """The jobs after one more poll; a GPU that could not be read neither ends a job nor clears it."""
    loads, now = reading.loads, jobs_now(reading)
    unread = {key for key, load in loads.items() if isinstance(load, Absent) or _unlisted(load)}
    alive = {pid for by_gpu in now.values() for pids in by_gpu.values() for pid in pids}
    jobs: dict[str, WatchedJob] = {}
    for owner in sorted({*known, *now}):
        job = _continued(known.get(owner), now.get(owner, {}), unread, alive)
        if job is not None:
            jobs[owner] = _polled(job, loads, mono, policy)
    return jobs


def _unlisted(load: GpuLoad) -> bool:
    return isinstance(load.processes, Absent)


def _continued(
    known: WatchedJob | None, now: Processes, unread: set[str], alive: set[int]
) -> WatchedJob | None:
    """The job of before as long as no process came to it or went to another; None where none is left.

    Processes that are gone stay part of it: the others may wait for them.
    """
    if known is None:
        return WatchedJob(now) if now else None
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


def _polled(job: WatchedJob, loads: GpuLoads, mono: float, policy: HangPolicy) -> WatchedJob:
    """Whether it moved since the last poll, and since when it has looked stuck."""
    mine = {key: load for key, load in loads.items() if key in job.processes}
    sent = {
        key: load.sent
        for key, load in mine.items()
        if not isinstance(load, Absent) and not isinstance(load.sent, Absent)
    }
    grown = [sent[key] - job.sent[key] for key in sent if key in job.sent]
    moving = any(growth > policy.still or growth < 0 for growth in grown)
    moved = job.moved or any(growth >= policy.moved for growth in grown)
    job = replace(job, sent={**job.sent, **sent}, moved=moved)
    if moving or not moved:
        return _free(job)
    stuck = _stuck(mine, len(job.processes), policy)
    if stuck is None or (len(grown) < len(mine) and stuck):
        return job
    if not stuck:
        return _free(job)
    return job if job.since is not None else replace(job, since=mono, due=mono + policy.after)


def _stuck(loads: GpuLoads, gpus: int, policy: HangPolicy) -> bool | None:
    """Whether all are at low power and one at least is all busy; None where that cannot be known now."""
    known = [load for load in loads.values() if not isinstance(load, Absent)]
    powers = [_low(load, policy) for load in known]
    busy = [load.busy for load in known if not isinstance(load.busy, Absent)]
    if False in powers:
        return False
    if len(known) == gpus and len(busy) == gpus and max(busy, default=0.0) < ALL_BUSY:
        return False
    if len(known) < gpus or None in powers or len(busy) < gpus:
        return None
    return True


def _low(load: GpuLoad, policy: HangPolicy) -> bool | None:
    if isinstance(load.power, Absent) or isinstance(load.limit, Absent):
        return None
    return load.power <= policy.low_power * load.limit


def _free(job: WatchedJob) -> WatchedJob:
    """A job that does not look stuck."""
    return replace(job, since=None, looks=(), asked=0, due=math.inf, diagnosis=None, counted=None)
