"""Following a job from window to window: a hint is what several windows in a row say. Never a finding."""

from collections.abc import Mapping
from dataclasses import replace

from wirewatch.collectors.lockstep.compare import Seen, compare, others
from wirewatch.collectors.lockstep.policy import LockstepPolicy
from wirewatch.collectors.lockstep.values import (
    Hint,
    Job,
    Memory,
    Moment,
    Reading,
    Reason,
    Suspect,
    Use,
    Window,
    goes_on,
)
from wirewatch.core.pergpu import is_lost
from wirewatch.core.ports import Gpu
from wirewatch.core.robust import high_median, low_median
from wirewatch.core.types import Absent, Expect, Finding, Ok, Why

TWO, GB = 2, 1e9
_REASONS = {Why.MISSING: Reason.WINDOW, Why.UNSUPPORTED: Reason.NOT_HERE}
"""MISSING: the first look at this job has none before it."""
FEW = Absent(Why.MISSING, "too few windows before")

Uses = Mapping[str, Use | Absent]


def judge(
    memory: Memory, ok: Ok[Reading], policy: LockstepPolicy, _expect: Expect
) -> tuple[Memory, tuple[Finding, ...]]:
    uses: Uses = {item.gpu.key: item.value for item in ok.value}
    known = {key: use.supported for key, use in uses.items() if not isinstance(use, Absent)}
    memory = replace(memory, supported={**memory.supported, **known}, busy={})
    job, idle = _job(memory.job, uses, ok.mono)
    if job is None or job is not memory.job:
        memory = replace(memory, settled=False, suspect=Suspect(), hint=None)
    memory = replace(memory, job=job)
    if job is None:
        return _told(memory, idle, ok.value), ()
    if not memory.settled:
        settled = ok.mono - job.since >= policy.settle
        return _told(replace(memory, settled=settled), Seen(Reason.SETTLING), ok.value), ()
    return _follow(memory, job, ok, policy), ()


def watches(reading: Reading) -> bool:
    """Whether there is a GPU here that could tell."""
    return any(not isinstance(item.value, Absent) and item.value.watched for item in reading)


def _job(known: Job | None, uses: Uses, mono: float) -> tuple[Job | None, Seen]:
    """The job of before, or a new one: two GPUs or more with one process each; else why there is none."""
    if known is not None and goes_on(known, uses):
        return known, Seen(Reason.NO_JOB)
    watched = {key: use for key, use in uses.items() if not isinstance(use, Absent) and use.watched}
    if not watched:
        return None, Seen(Reason.NOT_HERE, text=_why_not(uses))
    busy = {key: use.processes for key, use in watched.items() if not isinstance(use.processes, Absent)}
    busy = {key: processes for key, processes in busy.items() if processes}
    shared = next((key for key, processes in busy.items() if len(processes) > 1), None)
    if len(busy) < TWO:
        return None, Seen(Reason.NO_JOB)
    if shared is not None:
        return None, Seen(Reason.SHARED, shared, f"{len(busy[shared])} processes")
    return Job({key: min(processes) for key, processes in busy.items()}, mono), Seen(Reason.NO_JOB)


def _why_not(uses: Uses) -> str:
    """Why no GPU here could tell, in words."""
    words: dict[str, str] = {}
    for use in uses.values():
        if isinstance(use, Absent):
            words.setdefault(use.why.value, str(use))
        elif use.mig:
            words["mig"] = "split by MIG"
        elif isinstance(use.offers, Absent) and is_lost(use.offers):
            words.setdefault(use.offers.why.value, str(use.offers))
        else:
            words["no"] = "no GPM: before Hopper, or a driver that does not know it"
    return "; ".join(words.values()) or "no GPU"


def _follow(memory: Memory, job: Job, ok: Ok[Reading], policy: LockstepPolicy) -> Memory:
    """One more window of a job that has settled."""
    uses: Uses = {item.gpu.key: item.value for item in ok.value}
    seen, windows = _windows(job, uses, ok.mono, policy)
    before = references(job, policy)
    if windows:
        job = _with_clocks(job, windows, policy)
        seen = compare(windows, _clocks(job), before, policy)
    if windows and seen.reason is not Reason.WINDOW:
        memory = replace(memory, busy={key: window.sm for key, window in windows.items()})
    if seen.reason is Reason.NOBODY and len(job.gaps) < policy.most_references:
        job = replace(job, gaps=(*job.gaps, seen.gaps))
    suspect = _suspect(memory.suspect, seen, policy)
    memory = replace(memory, job=job, suspect=suspect)
    if suspect.count < policy.confirm:
        memory = replace(memory, hint=None)
    elif seen.reason is Reason.NAMED:
        hint = _hint(memory, ok, windows, seen, before)
        memory = replace(memory, hint=hint, last_hint=hint)
    return _told(memory, seen, ok.value)


def _windows(job: Job, uses: Uses, mono: float, policy: LockstepPolicy) -> tuple[Seen, dict[str, Window]]:
    """The windows of all GPUs of a job; none, and why, when one is not good for that."""
    windows: dict[str, Window] = {}
    for key in job.processes:
        use = uses.get(key, Absent(Why.LOST, "not listed any more"))
        if isinstance(use, Absent):
            return Seen(Reason.UNREAD, key, str(use)), {}
        if isinstance(use.processes, Absent):
            return Seen(Reason.UNREAD, key, str(use.processes)), {}
        if len(use.processes) > 1:
            return Seen(Reason.SHARED, key, f"{len(use.processes)} processes"), {}
        if isinstance(use.window, Absent):
            return Seen(_REASONS.get(use.window.why, Reason.UNREAD), key, str(use.window)), {}
        # A look from before this job had settled would tell of what was there before.
        if use.window.seconds > mono - job.since - policy.settle:
            return Seen(Reason.WINDOW, key, f"{use.window.seconds:.1f} s reach to before the job"), {}
        windows[key] = use.window
    return Seen(Reason.NOBODY), windows


def _with_clocks(job: Job, windows: Mapping[str, Window], policy: LockstepPolicy) -> Job:
    clocks = dict(job.clocks)
    for key, window in windows.items():
        if not isinstance(window.clock, Absent):
            clocks[key] = (*clocks.get(key, ()), window.clock)[-policy.clocks :]
    return replace(job, clocks=clocks)


def _clocks(job: Job) -> dict[str, float]:
    """One look at a clock under a power cap is up to 10 % off now and then."""
    return {key: low_median(clocks) for key, clocks in job.clocks.items()}


def references(job: Job, policy: LockstepPolicy) -> dict[str, float]:
    """How much busier than the others each GPU was in the first windows; empty while there are too few."""
    if len(job.gaps) < policy.references:
        return {}
    return {key: high_median(gaps[key] for gaps in job.gaps) for key in job.processes}


def _suspect(known: Suspect, seen: Seen, policy: LockstepPolicy) -> Suspect:
    """A window that tells nothing neither confirms nor clears; several in a row clear."""
    if seen.reason is Reason.NAMED:
        return Suspect(seen.gpu, known.count + 1 if known.gpu == seen.gpu else 1)
    if seen.reason is Reason.NOBODY or known.misses + 1 >= policy.misses:
        return Suspect()
    return replace(known, misses=known.misses + 1)


def _hint(
    memory: Memory, ok: Ok[Reading], windows: Mapping[str, Window], seen: Seen, before: Mapping[str, float]
) -> Hint:
    gpu, now = _gpu(ok.value, seen.gpu), Moment(ok.at, ok.mono)
    old = memory.hint if memory.hint is not None and memory.hint.uuid == gpu.uuid else None
    own, rest = windows[seen.gpu], others({key: w.sm for key, w in windows.items()}, seen.gpu)
    reference = before.get(seen.gpu, FEW)
    told = reference.detail if isinstance(reference, Absent) else f"{reference:+.1%} in its first windows"
    sent = low_median(others({key: w.sent for key, w in windows.items()}, seen.gpu))
    dram = low_median(others({key: w.dram for key, w in windows.items()}, seen.gpu))
    count = memory.suspect.count
    text = (
        f"GPU {gpu.index} never waits: SM busy {own.sm:.1%} against {high_median(rest):.1%} of the others, "
        f"gap {seen.gaps[seen.gpu]:+.1%} ({told}); use of memory {own.dram:.1%} against {dram:.1%}, "
        f"NVLink {own.sent / GB:.2f} against {sent / GB:.2f} GB/s; {count} windows, the last of "
        f"{own.seconds:.1f} s"
    )
    return Hint(
        str(gpu.index), gpu.uuid, old.since if old else ok.at, now, text, own.sm, high_median(rest),
        seen.gaps[seen.gpu], reference, count,
    )  # fmt: skip


def _told(memory: Memory, seen: Seen, reading: Reading) -> Memory:
    """The memory with the newest window's word on it."""
    who = f"GPU {_gpu(reading, seen.gpu).index}: " if seen.gpu else ""
    return replace(
        memory, reason=seen.reason, why=": ".join(p for p in (seen.reason.value, who + seen.text) if p)
    )


def _gpu(reading: Reading, key: str) -> Gpu:
    return next((item.gpu for item in reading if item.gpu.key == key), Gpu(-1, key))
