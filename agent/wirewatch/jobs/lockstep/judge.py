"""Judge the windows of a job: several in a row that name the same GPU are a hint. Never a finding."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from wirewatch.core.collector import is_lost
from wirewatch.core.ports import Gpu
from wirewatch.core.statistics import high_median, low_median
from wirewatch.core.types import Absent, Expect, Finding, Ok, Why
from wirewatch.core.words import GB
from wirewatch.jobs.lockstep.model import (
    GpuUse,
    GpuWindow,
    Hint,
    HintTime,
    LockstepJob,
    LockstepMemory,
    LockstepPolicy,
    LockstepReading,
    Suspect,
    UnevenWork,
    WindowReason,
    goes_on,
)


def judge(
    memory: LockstepMemory, ok: Ok[LockstepReading], policy: LockstepPolicy, _expect: Expect
) -> tuple[LockstepMemory, tuple[Finding, ...]]:
    """Return the memory with the newest window's result and the hint; pure. There never is a finding."""
    uses: GpuUses = {item.gpu.key: item.value for item in ok.value}
    known = {key: use.supported for key, use in uses.items() if not isinstance(use, Absent)}
    memory = replace(memory, supported={**memory.supported, **known}, busy={})
    job, idle = _job(memory.job, uses, ok.mono)
    if job is not memory.job:
        memory = replace(memory, job=job, suspect=Suspect(), hint=None, loaded=Suspect(), uneven=None)
    if job is None:
        return _with_result(memory, idle, ok.value), ()
    memory = replace(memory, age=ok.mono - job.since)
    if not job.settled:
        memory = replace(memory, job=replace(job, settled=ok.mono - job.since >= policy.settle))
        return _with_result(memory, WindowResult(WindowReason.SETTLING), ok.value), ()
    return _follow(memory, job, ok, policy), ()


def watches(reading: LockstepReading) -> bool:
    """Tell whether there is a GPU here that offers what is read."""
    return any(not isinstance(item.value, Absent) and item.value.watched for item in reading)


_TWO = 2
_REASONS = {Why.MISSING: WindowReason.WINDOW, Why.UNSUPPORTED: WindowReason.NOT_HERE}
"""MISSING: the first reading of a job has no window, which begins at the reading before."""
_FEW = Absent(Why.MISSING, "too few windows before")
GpuUses = Mapping[str, GpuUse | Absent]
GpuWindows = Mapping[str, GpuWindow]
"""By GPU (`Gpu.key`), two at least."""
_MB = 1e6
_EVEN = frozenset({WindowReason.NOBODY, WindowReason.NAMED})
"""Reasons of windows in which all GPUs did the same work."""


@dataclass(frozen=True, slots=True)
class WindowResult:
    """The result of one window; `text` has the deciding numbers, of `gpu` where it is about a GPU.

    `gaps`: how much busier each GPU's SMs were than the others' SMs; empty unless they can be compared.
    `work`: how much more work a GPU has than the others, who wait for it, by kind; else empty.
    """

    reason: WindowReason
    gpu: str = ""
    text: str = ""
    gaps: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)


def _job(known: LockstepJob | None, uses: GpuUses, mono: float) -> tuple[LockstepJob | None, WindowResult]:
    """Return the known job, or a new job of two GPUs or more with one process each; else the reason."""
    if known is not None and goes_on(known, uses):
        return known, WindowResult(WindowReason.NO_JOB)
    watched = {key: use for key, use in uses.items() if not isinstance(use, Absent) and use.watched}
    if not watched:
        return None, WindowResult(WindowReason.NOT_HERE, text=_why_not(uses))
    busy = {key: use.processes for key, use in watched.items() if not isinstance(use.processes, Absent)}
    busy = {key: processes for key, processes in busy.items() if processes}
    shared = next((key for key, processes in busy.items() if len(processes) > 1), None)
    if len(busy) < _TWO:
        return None, WindowResult(WindowReason.NO_JOB)
    if shared is not None:
        return None, WindowResult(WindowReason.SHARED, shared, f"{len(busy[shared])} processes")
    job = LockstepJob({key: process for key, (process,) in busy.items()}, mono)
    return job, WindowResult(WindowReason.NO_JOB)


def _why_not(uses: GpuUses) -> str:
    """Return why no GPU here offers what is read, in words."""
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


def _follow(
    memory: LockstepMemory, job: LockstepJob, ok: Ok[LockstepReading], policy: LockstepPolicy
) -> LockstepMemory:
    """One more window of a job that has settled."""
    uses: GpuUses = {item.gpu.key: item.value for item in ok.value}
    seen, windows = _windows(job, uses, ok.mono, policy)
    before = _references(job, policy)
    if windows:
        job = _with_clocks(job, windows, policy)
        seen = _compare(windows, _clocks(job), before, policy)
    if seen.reason is not WindowReason.WINDOW:
        memory = replace(memory, busy={key: window.sm for key, window in windows.items()})
    if seen.reason is WindowReason.NOBODY and len(job.gaps) < policy.most_references:
        job = replace(job, gaps=(*job.gaps, seen.gaps))
    named = seen.gpu if seen.reason is WindowReason.NAMED else ""
    loaded = seen.gpu if seen.work else ""
    memory = replace(
        memory,
        job=job,
        suspect=_suspect(memory.suspect, named, seen.reason is WindowReason.NOBODY, policy),
        loaded=_suspect(memory.loaded, loaded, seen.reason in _EVEN, policy),
    )
    if memory.suspect.count < policy.confirm:
        memory = replace(memory, hint=None)
    elif named:
        hint = _hint(memory, ok, windows, seen, before)
        memory = replace(memory, hint=hint, last_hint=hint)
    if memory.loaded.count < policy.confirm:
        memory = replace(memory, uneven=None)
    elif loaded:
        memory = replace(memory, uneven=_uneven_work(memory, ok, windows, seen, before))
    return _with_result(memory, seen, ok.value)


def _windows(
    job: LockstepJob, uses: GpuUses, mono: float, policy: LockstepPolicy
) -> tuple[WindowResult, dict[str, GpuWindow]]:
    """Return the windows of all GPUs of a job; none, with the reason, when a window is unusable."""
    windows: dict[str, GpuWindow] = {}
    for key in job.processes:
        use = uses.get(key, Absent(Why.LOST, "no longer listed"))
        if isinstance(use, Absent):
            return WindowResult(WindowReason.UNREAD, key, str(use)), {}
        if isinstance(use.processes, Absent):
            return WindowResult(WindowReason.UNREAD, key, str(use.processes)), {}
        if len(use.processes) > 1:
            return WindowResult(WindowReason.SHARED, key, f"{len(use.processes)} processes"), {}
        if isinstance(use.window, Absent):
            return WindowResult(_REASONS.get(use.window.why, WindowReason.UNREAD), key, str(use.window)), {}
        # A window that begins before this job had settled is of what ran there before.
        if use.window.seconds > mono - job.since - policy.settle:
            early = f"{use.window.seconds:.1f} s reach to before the job"
            return WindowResult(WindowReason.WINDOW, key, early), {}
        windows[key] = use.window
    return WindowResult(WindowReason.NOBODY), windows


def _with_clocks(job: LockstepJob, windows: Mapping[str, GpuWindow], policy: LockstepPolicy) -> LockstepJob:
    clocks = dict(job.clocks)
    for key, window in windows.items():
        if not isinstance(window.clock, Absent):
            clocks[key] = (*clocks.get(key, ()), window.clock)[-policy.clocks :]
    return replace(job, clocks=clocks)


def _clocks(job: LockstepJob) -> dict[str, float]:
    """The median of the last clocks: a single reading under a power cap is up to 10 % off now and then."""
    return {key: low_median(clocks) for key, clocks in job.clocks.items()}


def _references(job: LockstepJob, policy: LockstepPolicy) -> dict[str, float]:
    """How much busier than the others each GPU was in the first windows; empty while there are too few."""
    if len(job.gaps) < policy.references:
        return {}
    return {key: high_median(gaps[key] for gaps in job.gaps) for key in job.processes}


def _suspect(known: Suspect, gpu: str, clears: bool, policy: LockstepPolicy) -> Suspect:  # noqa: FBT001
    """The suspect after a window that shows this GPU, or that shows none (""), and perhaps `clears` it.

    A window without a result neither confirms nor clears; several in a row clear.
    """
    if gpu:
        return Suspect(gpu, known.count + 1 if known.gpu == gpu else 1)
    if clears or known.misses + 1 >= policy.misses:
        return Suspect()
    return replace(known, misses=known.misses + 1)


def _hint(
    memory: LockstepMemory, ok: Ok[LockstepReading], windows: GpuWindows, seen: WindowResult,
    before: Mapping[str, float],
) -> Hint:  # fmt: skip
    gpu, count = _gpu(ok.value, seen.gpu), memory.suspect.count
    since = memory.hint.since if memory.hint and memory.hint.uuid == gpu.uuid else ok.at
    own, others = windows[seen.gpu], [w for key, w in windows.items() if key != seen.gpu]
    rest, sent = high_median(w.sm for w in others), low_median(w.sent for w in others)
    dram = low_median(w.dram for w in others)
    reference, usual = _reference(before, seen.gpu)
    text = (
        f"{_name(gpu)} never waits: SM busy {own.sm:.1%} against {rest:.1%} of the others, "
        f"gap {seen.gaps[seen.gpu]:+.1%} ({usual}); use of memory {own.dram:.1%} against {dram:.1%}, "
        f"NVLink {own.sent / GB:.2f} against {sent / GB:.2f} GB/s; {count} windows, the last of "
        f"{own.seconds:.1f} s"
    )
    return Hint(
        str(gpu.index), gpu.uuid, since, HintTime(ok.at, ok.mono), text, own.sm, rest, seen.gaps[seen.gpu],
        reference, count,
    )  # fmt: skip


def _uneven_work(
    memory: LockstepMemory, ok: Ok[LockstepReading], windows: GpuWindows, seen: WindowResult,
    before: Mapping[str, float],
) -> UnevenWork:  # fmt: skip
    gpu, count = _gpu(ok.value, seen.gpu), memory.loaded.count
    since = memory.uneven.since if memory.uneven and memory.uneven.uuid == gpu.uuid else ok.at
    more, own = seen.gaps[seen.gpu], windows[seen.gpu]
    waits = more / (1 + more)
    costs = waits * (len(windows) - 1) / len(windows)
    rest = high_median(w.sm for key, w in windows.items() if key != seen.gpu)
    reference, usual = _reference(before, seen.gpu)
    text = (
        f"{_name(gpu)} has {more:.0%} more work; the others wait {waits:.0%} of the time, and a step "
        f"could be {costs:.0%} shorter at most, were it spread evenly: SM busy {own.sm:.1%} against "
        f"{rest:.1%} of the others ({usual}), {_more(seen.work)}; {count} windows, the last of "
        f"{own.seconds:.1f} s"
    )
    return UnevenWork(
        str(gpu.index), gpu.uuid, since, HintTime(ok.at, ok.mono), text, more, waits, costs, seen.work,
        reference, count,
    )  # fmt: skip


def _reference(before: Mapping[str, float], gpu: str) -> tuple[float | Absent, str]:
    known = before.get(gpu)
    return (_FEW, _FEW.detail) if known is None else (known, f"{known:+.1%} in its first windows")


def _compare(
    windows: GpuWindows, clocks: Mapping[str, float], references: Mapping[str, float], policy: LockstepPolicy
) -> WindowResult:
    """Judge one window.

    `clocks`: the known clocks of GPUs in Hz; `references`: the `gaps` of each GPU in the first windows of the
    job, empty when unknown.
    """
    for doubt in (_unlike_windows, _no_lockstep, _host):
        if seen := doubt(windows, policy):
            return seen
    uneven = _uneven(windows, clocks, policy)
    if uneven is None:
        return _busiest(windows, references, policy)
    return _loaded(windows, clocks, references, policy) or uneven


def _unlike_windows(windows: GpuWindows, policy: LockstepPolicy) -> WindowResult | None:
    seconds = [w.seconds for w in windows.values()]
    low, high = min(seconds), max(seconds)
    if policy.shortest <= low and high <= policy.longest and high - low <= policy.together:
        return None
    return WindowResult(WindowReason.WINDOW, text=f"windows of {low:.1f} to {high:.1f} s")


def _no_lockstep(windows: GpuWindows, policy: LockstepPolicy) -> WindowResult | None:
    for name in ("received", "sent"):
        bytes_ = [getattr(window, name) for window in windows.values()]
        low, high = min(bytes_), max(bytes_)
        if low < policy.least_bytes or high - low > policy.same_bytes * high:
            text = f"{low / _MB:.0f} to {high / _MB:.0f} MB/s {name} over NVLink"
            return WindowResult(WindowReason.NO_LOCKSTEP, text=text)
    return None


def _host(windows: GpuWindows, policy: LockstepPolicy) -> WindowResult | None:
    shares = {key: w.graphics for key, w in windows.items()}
    idlest = min(shares, key=lambda key: shares[key])
    if max(shares.values()) - shares[idlest] <= policy.same_time:
        return None
    text = f"something runs there {shares[idlest]:.0%} of the time, elsewhere {max(shares.values()):.0%}"
    return WindowResult(WindowReason.HOST, idlest, text)


def _uneven(windows: GpuWindows, clocks: Mapping[str, float], policy: LockstepPolicy) -> WindowResult | None:
    for name, amounts, tolerance in _work(windows, clocks, policy):
        if len(amounts) < len(windows):
            return WindowResult(WindowReason.UNREAD, text=f"{name} cannot be compared without every clock")
        for key, amount in amounts.items():
            usual = low_median(_others(amounts, key))
            if abs(amount - usual) > tolerance * usual:
                part = f"{amount / usual - 1:+.0%} against" if usual else "more than none on"
                return WindowResult(WindowReason.UNEVEN, key, f"{name} is {part} the others")
    return None


def _work(
    windows: GpuWindows, clocks: Mapping[str, float], policy: LockstepPolicy
) -> Iterator[tuple[str, dict[str, float], float]]:
    """Return how much of each kind of work every GPU did, and how far it may be from that of the others."""
    yield "use of memory", {key: w.dram for key, w in windows.items()}, policy.same_memory
    for unit in sorted({unit for w in windows.values() for unit in w.math}):
        shares = {key: w.math.get(unit, 0.0) for key, w in windows.items()}
        if max(shares.values()) > policy.math_from:
            # A share of cycles: a GPU with a lower clock is busy for longer with the same work.
            done = {key: share * clocks[key] for key, share in shares.items() if key in clocks}
            yield f"{unit} work", done, policy.same_math


def _busiest(windows: GpuWindows, references: Mapping[str, float], policy: LockstepPolicy) -> WindowResult:
    busy = {key: w.sm for key, w in windows.items()}
    usual = {key: high_median(_others(busy, key)) for key in busy}
    gaps = {key: busy[key] / usual[key] - 1 if usual[key] > 0 else 0.0 for key in busy}
    first = max(gaps, key=lambda key: gaps[key])
    rest = _others(busy, first)
    if max(rest) - min(rest) > policy.same_others * max(rest):
        text = f"their SMs are busy {min(rest):.1%} to {max(rest):.1%}"
        return WindowResult(WindowReason.SCATTERED, text=text)
    gap, before = gaps[first], references.get(first)
    text = f"SM busy {busy[first]:.1%} against {usual[first]:.1%}"
    shifted = before is not None and gap >= policy.least_gap and gap - before >= policy.shift
    named = WindowReason.NAMED if gap >= policy.gap or shifted else WindowReason.NOBODY
    return WindowResult(named, first, text, gaps)


def _loaded(
    windows: GpuWindows, clocks: Mapping[str, float], references: Mapping[str, float], policy: LockstepPolicy
) -> WindowResult | None:
    """Return the single GPU with more work than the others, who are alike and wait for it; None for nobody.

    With two GPUs the job itself may be uneven (stages of a pipeline, experts), unless the same job was even
    before. With more GPUs it is not: at the ends of a pipeline and at a hot expert NVLink's bytes differ.
    """
    if len(windows) == _TWO and not references:
        return None
    seen = _busiest(windows, references, policy)
    if seen.reason is not WindowReason.NAMED:
        return None
    more: dict[str, float] = {}
    shown = False
    for name, amounts, tolerance in _work(windows, clocks, policy):
        rest = _others(amounts, seen.gpu)
        usual = low_median(rest)
        if max(rest) - min(rest) > tolerance * max(rest) or amounts[seen.gpu] < (1 - tolerance) * usual:
            return None
        if usual > 0:
            more[name] = amounts[seen.gpu] / usual - 1
            shown = shown or more[name] > tolerance
    if not shown:
        return None
    text = f"{seen.text}, {_more(more)}"
    return WindowResult(WindowReason.UNEVEN, seen.gpu, text, seen.gaps, more)


def _more(work: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {part:+.0%}" for name, part in work.items())


def _others(values: Mapping[str, float], key: str) -> list[float]:
    return [value for other, value in values.items() if other != key]


def _with_result(memory: LockstepMemory, seen: WindowResult, reading: LockstepReading) -> LockstepMemory:
    """The memory with the newest window's result, and why, in words."""
    who = f"{_name(_gpu(reading, seen.gpu))}: " if seen.gpu else ""
    why = ": ".join(filter(None, (seen.reason.value, who + seen.text)))
    return replace(memory, reason=seen.reason, why=why)


def _gpu(reading: LockstepReading, key: str) -> Gpu:
    return next((item.gpu for item in reading if item.gpu.key == key), Gpu(-1, key))


def _name(gpu: Gpu) -> str:
    """Return `GPU 3`, or the UUID of a GPU that the reading lacks."""
    return f"GPU {gpu.index}" if gpu.index >= 0 else gpu.uuid
