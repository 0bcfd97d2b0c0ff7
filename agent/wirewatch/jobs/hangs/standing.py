"""A job that stands still, in words, before anybody has said why. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from wirewatch.core.ports import Gpu
from wirewatch.core.statistics import lasting
from wirewatch.core.types import Absent, Ok
from wirewatch.core.words import either, percent
from wirewatch.jobs.hangs.model import GpuLoad, GpuLoads, HangPolicy, StandingJob, WatchedJob
from wirewatch.jobs.hangs.watch import ALL_BUSY, IDLE


def standing(
    job: WatchedJob, loads: GpuLoads, gpus: Mapping[str, Gpu], ok: Ok[Any], policy: HangPolicy
) -> StandingJob | None:
    """Return the job as far as it stands still; None where it does not, or a finding says it."""
    if job.since is None or job.began is None or job.hang is not None:
        return None
    seen = job.diagnosis
    if (seen is None and not job.moved) or (seen is not None and seen.goes_on):
        return None
    held = ok.mono - job.since
    if held < (policy.standing if job.moved else policy.unmoved):
        return None
    mine = {key: load for key, load in loads.items() if key in job.processes and not isinstance(load, Absent)}
    busy = seen is not None and seen.busy
    why = "" if seen is None else f"busy for {lasting(held)}: {seen.text}" if busy else seen.text
    quiet = f"no byte over NVLink for {lasting(job.read - job.quiet)}" if job.sent else ""
    parts = (why, _running(mine, gpus), quiet)
    return StandingJob(job.processes, job.began, "; ".join(part for part in parts if part), busy)


def _running(loads: Mapping[str, GpuLoad], gpus: Mapping[str, Gpu]) -> str:
    """The GPUs by what runs on them: all the time, nothing, or a part of it."""
    shares = {key: load.busy for key, load in loads.items() if not isinstance(load.busy, Absent)}
    waits = [key for key, share in shares.items() if share >= ALL_BUSY]
    rests = [key for key, share in shares.items() if share < IDLE]
    others = [key for key in shares if key not in {*waits, *rests}]
    said = []
    if waits:
        power = watts([loads[key].power for key in waits])
        said.append(f"{_named(waits, gpus)} at 100 % with {power}, as kernels do that wait")
    if rests:
        said.append(f"{_named(rests, gpus)} nothing")
    said += [f"{_named([key], gpus)} at {percent(shares[key])}" for key in others]
    return "; ".join(said)


def _named(keys: Sequence[str], gpus: Mapping[str, Gpu]) -> str:
    indices = sorted(gpus[key].index for key in keys if key in gpus)
    names = either([str(index) for index in indices], "and")
    return f"GPU {names} runs" if len(indices) == 1 else f"GPUs {names} run"


def watts(powers: Sequence[float | Absent]) -> str:
    """Return the range of powers in words."""
    known = [round(power) for power in powers if not isinstance(power, Absent)]
    if not known:
        return "power not read"
    low, high = min(known), max(known)
    return f"{low} W" if low == high else f"{low}-{high} W"
