"""Judge looks at bursts: which jobs run, and which plateaus are lower than they were. Never a finding."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from wirewatch.core.ports import Gpu
from wirewatch.core.statistics import low_median
from wirewatch.core.types import Absent, Expect, Finding, Ok, Why
from wirewatch.core.words import GB, MIB
from wirewatch.jobs.bursts.estimate import BurstFigures
from wirewatch.jobs.bursts.model import (
    BurstHint,
    BurstJob,
    BurstLook,
    BurstMemory,
    BurstPolicy,
    BurstReading,
    GpuJob,
    Plateau,
)

GpuJobs = Mapping[str, GpuJob | Absent]
Processes = Mapping[str, frozenset[int]]


def judge(
    memory: BurstMemory, ok: Ok[BurstReading], policy: BurstPolicy, _expect: Expect
) -> tuple[BurstMemory, tuple[Finding, ...]]:
    """Fold a reading into the memory; pure. There never is a finding."""
    gpus: GpuJobs = {item.gpu.key: item.value for item in ok.value}
    known = {key: gpu.supported for key, gpu in gpus.items() if not isinstance(gpu, Absent)}
    jobs = tuple(_running(memory.jobs, gpus, ok.mono, policy))
    why = "no job on several GPUs" if not jobs else "no GPU has its turn"
    for item in ok.value:
        if isinstance(item.value, Absent) or item.value.burst is None:
            continue
        why = f"GPU {item.gpu.index}: {_words(item.value.burst)}"
        jobs = tuple(
            _looked(job, item.gpu, item.value, ok, policy) if item.gpu.key in job.processes else job
            for job in jobs
        )
    hints = (job.hint for job in jobs if job.hint)
    last = max(hints, key=lambda hint: hint.mono, default=memory.last_hint)
    return BurstMemory({**memory.supported, **known}, jobs, why, last), ()


def watches(reading: BurstReading) -> bool:
    """Tell whether there is a GPU with NVLink here that is not split."""
    return any(not isinstance(item.value, Absent) and item.value.watched for item in reading)


def grouped(gpus: GpuJobs) -> list[Processes]:
    """The jobs that are seen now, on two GPUs or more each.

    GPUs are of one job where they share a process, or where their processes are of one Slurm job, pod or
    session. Where that is not known, all such GPUs are taken for one job.
    """
    groups: list[tuple[set[int | str], dict[str, frozenset[int]]]] = []
    for key, gpu in gpus.items():
        if isinstance(gpu, Absent) or isinstance(gpu.processes, Absent):
            continue
        marks: set[int | str] = {*gpu.processes, *gpu.groups.values()}
        members = {key: gpu.processes}
        for other in [one for one in groups if one[0] & marks]:
            groups.remove(other)
            marks, members = marks | other[0], {**other[1], **members}
        groups.append((marks, members))
    return [members for _, members in groups if len(members) > 1]


_KEPT = 200
"""Most plateaus of a GPU, of all sizes."""


def _running(
    known: tuple[BurstJob, ...], gpus: GpuJobs, mono: float, policy: BurstPolicy
) -> Iterator[BurstJob]:
    """Yield jobs that go on, and new jobs; a GPU that cannot be read proves nothing."""
    groups = grouped(gpus)
    kept = [job for job in known if _goes_on(job, gpus, groups)]
    for job in kept:
        yield replace(job, settled=mono - job.since >= policy.settle)
    for group in groups:
        if not any(group.keys() <= job.processes.keys() for job in kept):
            yield BurstJob(group, mono)


def _goes_on(job: BurstJob, gpus: GpuJobs, groups: list[Processes]) -> bool:
    read = {}
    for key, pids in job.processes.items():
        gpu = gpus.get(key)
        if isinstance(gpu, GpuJob) and not isinstance(gpu.processes, Absent):
            if gpu.processes != pids:
                return False
            read[key] = pids
    return not any(group.keys() & read.keys() and group.keys() - job.processes.keys() for group in groups)


def _looked(job: BurstJob, gpu: Gpu, seen: GpuJob, ok: Ok[BurstReading], policy: BurstPolicy) -> BurstJob:
    """Return the job after a look at its GPU."""
    job = replace(job, turns={**job.turns, gpu.key: ok.mono})
    figures = seen.burst
    if not isinstance(figures, BurstFigures):
        return job
    reference = _reference(job.plateaus.get(gpu.key, ()), figures, policy)
    look = BurstLook(str(gpu.index), gpu.uuid, job.processes[gpu.key], ok.at, figures, seen.peak, reference)
    job = replace(job, looks={**job.looks, gpu.key: look})
    plateau = _counts(figures, policy)
    if plateau is None:
        return job
    below = None
    if not isinstance(reference, Absent):
        below = reference if plateau.rate < (1 - policy.drop) * reference else None
        job = replace(job, low=(*job.low, below is not None)[-policy.looks :])
    if below is None:
        job = _learned(job, gpu.key, plateau, policy)
    return replace(job, hint=_hint(job, look, plateau, ok, policy, below))


def _counts(figures: BurstFigures, policy: BurstPolicy) -> Plateau | None:
    """The plateau, if it is known well enough to be compared."""
    if isinstance(figures.plateau, Absent) or figures.error > policy.sure or not figures.size:
        return None
    return Plateau(figures.plateau, figures.size)


def _like(known: tuple[Plateau, ...], size: int, policy: BurstPolicy) -> list[float]:
    """The plateaus of bursts of about as many bytes: another size is another collective."""
    return [one.rate for one in known if abs(one.size - size) <= policy.same_size * max(one.size, size)]


def _reference(known: tuple[Plateau, ...], figures: BurstFigures, policy: BurstPolicy) -> float | Absent:
    rates = _like(known, figures.size, policy)
    if len(rates) < policy.references:
        return Absent(Why.MISSING, f"{len(rates)} looks before at bursts of this size")
    return low_median(rates)


def _learned(job: BurstJob, key: str, plateau: Plateau, policy: BurstPolicy) -> BurstJob:
    """Add a plateau, while there are few of its size: a decline must not become the usual value."""
    known = job.plateaus.get(key, ())
    if len(_like(known, plateau.size, policy)) >= policy.most_references:
        return job
    return replace(job, plateaus={**job.plateaus, key: (*known, plateau)[-_KEPT:]})


def _hint(
    job: BurstJob, look: BurstLook, plateau: Plateau, ok: Ok[BurstReading], policy: BurstPolicy,
    below: float | None,
) -> BurstHint | None:  # fmt: skip
    """The hint after a look that counted: it begins and goes on by low looks, and ends as they get fewer.

    `below`: what the look was held against, where it was low.
    """
    count = sum(job.low)
    if count < policy.confirm:
        return None
    if below is None:
        return job.hint
    share = "" if isinstance(look.peak, Absent) else f", {plateau.rate / look.peak:.0%} of the wire's peak"
    least = "" if look.figures.long else "; its bursts are short, so both are lower bounds"
    text = (
        f"GPU {look.gpu}: NVLink carries {plateau.rate / GB:.0f} GB/s while a collective is on the wire, "
        f"{plateau.rate / below - 1:+.0%} against {below / GB:.0f} GB/s in the job's "
        f"first looks, at the same {plateau.size / MIB:.0f} MiB a burst{share}; {count} of the job's last "
        f"{len(job.low)} looks{least}"
    )
    since = job.hint.since if job.hint is not None else ok.at
    return BurstHint(look.gpu, look.uuid, since, ok.at, ok.mono, plateau.rate, below, text)


def _words(burst: BurstFigures | Absent) -> str:
    if isinstance(burst, Absent):
        return str(burst)
    if isinstance(burst.plateau, Absent):
        return burst.plateau.detail
    bursts = f"{burst.bursts} whole bursts of {burst.size / MIB:.0f} MiB"
    return f"{burst.plateau / GB:.0f} GB/s in {bursts}, on the wire {burst.duty:.0%} of the time"
