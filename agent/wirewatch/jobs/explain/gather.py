"""Gather the evidence about each running job from the state of the node. Pure.

The collector `jobs` gives the jobs that carry the tap. The processes on other GPUs are jobs too, known only
by the GPUs' data. Processes in lockstep form a job, every other process is its own job.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from wirewatch.collectors.gpu import GpuFacts, GpuNow
from wirewatch.collectors.nvlink import NvlinkFacts
from wirewatch.core.collector import NodeState
from wirewatch.core.nvml import UP
from wirewatch.core.owners import PROBE
from wirewatch.core.types import Absent, Failed, Why, value_or
from wirewatch.jobs.bursts import BurstFacts
from wirewatch.jobs.explain.evidence import (
    NOT_BEGUN,
    NOT_WATCHED,
    EvidenceSource,
    HungJob,
    JobEvidence,
    JobFinding,
    JobGpu,
    JobSettings,
    LateGpu,
    MoreWork,
    SourceStatus,
)
from wirewatch.jobs.gpugroups import gpu_groups, job_name
from wirewatch.jobs.hangs import HangFacts, HangingJob, HangKind
from wirewatch.jobs.ledger.spent import JobLedger, LedgerFacts
from wirewatch.jobs.lockstep import LockstepFacts
from wirewatch.jobs.times import UNTIMED, JobsFacts, RunningJob

F = TypeVar("F")
JOBS, LOCKSTEP, GPU, BURSTS, HANGS, NVLINK = "jobs", "lockstep", "gpu", "bursts", "hangs", "nvlink"
LEDGER = "ledger"
"""Collectors."""
TAP_ON = (
    "install the tap with `wirewatch jobs install DIR` and name it in the job's NCCL_PROFILER_PLUGIN "
    "(docs/jobs.md)"
)
HERE = "run `wirewatch explain` on this machine, as the job's user or as root"
_OWN = ("jobs.", "hangs.", "lockstep.", "bursts.")
"""Rules about jobs themselves: what they say is in the evidence already."""
_NO_TAP = Absent(Why.MISSING, "its processes do not carry the tap")
_NO_MATH = Absent(Why.UNSUPPORTED, "no arithmetic unit is reported")
_NO_THREADS = Absent(Why.MISSING, HERE)


def jobs_of(state: NodeState, now: float, host: str = "") -> tuple[JobEvidence, ...]:
    """Return the running jobs of this node (`host`) at `now` (Unix seconds), jobs with the tap first.

    A probe of wirewatch is no job.
    """
    facts = state.facts(JobsFacts)
    tapped = [job for job in facts.jobs if job.live] if facts else []
    found = [_of_tap(state, job, now) for job in tapped]
    taken = {gpu.uuid for one in found for gpu in one.gpus}
    found += [_of_gpus(state, uuids, now) for uuids in _untapped(state, taken)]
    return tuple(replace(one, host=host) for one in found)


def switch_on(collector: str) -> str:
    """Return the words for switching a collector on."""
    return f"set enabled = true under [collectors.{collector}] and reload the daemon"


def with_threads(evidence: JobEvidence, threads: Mapping[int, float | Absent]) -> JobEvidence:
    """Return the evidence with the load of the busiest thread of each process (by pid).

    A GPU has the least value of its processes; it is unknown where any of them is unknown.
    """
    read = ([threads.get(pid, _NO_THREADS) for pid in gpu.pids] for gpu in evidence.gpus)
    gpus = tuple(replace(gpu, thread=_least(some)) for gpu, some in zip(evidence.gpus, read, strict=True))
    seen = any(not isinstance(gpu.thread, Absent) for gpu in gpus)
    reasons = (str(one) for one in threads.values() if isinstance(one, Absent))
    why = "" if seen else next(reasons, "none of its processes is known")
    return _with_source(replace(evidence, gpus=gpus), SourceStatus(EvidenceSource.THREADS, seen, why, HERE))


def with_settings(evidence: JobEvidence, read: Sequence[JobSettings]) -> JobEvidence:
    """Return the evidence with settings that were read beside the daemon, where it could not read them."""
    known = {one.pid: one for one in read}
    own = {one.pid: one for one in evidence.settings if not isinstance(one.settings, Absent)}
    merged = tuple({**known, **own}.values())
    return _with_source(replace(evidence, settings=merged), _settings_status(merged))


def _of_tap(state: NodeState, job: RunningJob, now: float) -> JobEvidence:
    # Of its windows a fresh one says how it is now; what older ones have shown is in `late` and `wire`.
    if _status(state, JOBS):
        over = (replace(comm, fresh=False, elsewhere="") for comm in job.communicators)
        job = replace(job, communicators=tuple(over), late=None, wire=None)
    newest = (replace(comm, windows=comm.windows[-1:] if comm.fresh else ()) for comm in job.communicators)
    job = replace(job, communicators=tuple(newest))
    pids: dict[str, set[int]] = {gpu.gpu: set() for gpu in job.gpus}
    settings: dict[int, JobSettings] = {}
    for rank in (rank for comm in job.communicators for rank in comm.here):
        if not isinstance(rank.gpu, Absent) and not isinstance(rank.pid, Absent):
            pids[rank.gpu].add(rank.pid)
            settings[rank.pid] = JobSettings(rank.pid, rank.settings)
    gpus = tuple(_gpu(state, gpu.gpu, gpu.index, pids[gpu.gpu]) for gpu in job.gpus)
    read = tuple(settings[pid] for pid in sorted(settings))
    return _completed(state, JobEvidence(job.name, now, _sorted(gpus), job, settings=read))


def _of_gpus(state: NodeState, uuids: Iterable[str], now: float) -> JobEvidence:
    gpus = tuple(_gpu(state, uuid, "", ()) for uuid in uuids)
    pids = sorted(pid for gpu in gpus for pid in gpu.pids)
    name = job_name(pids, _hangs(state).owners)
    return _completed(state, JobEvidence(name, now, _sorted(gpus), _NO_TAP))


def _hangs(state: NodeState) -> HangFacts:
    """Return owners, hangs and jobs that stand still; none where that is not read now."""
    return _facts(state, HangFacts, HANGS) or HangFacts(())


def _completed(state: NodeState, evidence: JobEvidence) -> JobEvidence:
    """Return the evidence with findings, hints of lockstep, and the sources that are watched."""
    hangs = _hangs(state)
    made = replace(
        evidence, hang=next((_hung(one) for one in hangs.now if _is_of(one.processes, evidence)), None),
        standing=next((one for one in hangs.standing if _is_of(one.processes, evidence)), None),
        findings=tuple(_findings(state, evidence)), ledger=_ledger(state, evidence),
    )  # fmt: skip
    made = replace(made, sources=tuple(_sources(state, made)))
    facts, here = _facts(state, LockstepFacts, LOCKSTEP), {gpu.uuid for gpu in evidence.gpus}
    if facts and (hint := facts.hint) and hint.uuid in here:
        made = replace(made, late=LateGpu(hint.uuid, hint.gpu, hint.text))
    if facts and (more := facts.uneven) and more.uuid in here:
        made = replace(made, more=MoreWork(more.uuid, more.gpu, more.more, more.waits, more.text))
    return made


def _hung(hang: HangingJob) -> HungJob:
    lines, suspected = tuple(hang.snapshot.splitlines()), hang.kind is HangKind.SUSPECTED
    return HungJob(hang.text, hang.found, lines, hang.action, suspected=suspected)


def _is_of(processes: Mapping[str, Iterable[int]], evidence: JobEvidence) -> bool:
    """Tell whether processes by GPU belong to this job; where processes are unknown, compare GPUs."""
    pids, here = set(evidence.pids), {gpu.uuid for gpu in evidence.gpus}
    theirs = {pid for some in processes.values() for pid in some} - {0}
    return bool(pids & theirs if pids and theirs else here & set(processes))


def _ledger(state: NodeState, evidence: JobEvidence) -> JobLedger | Absent:
    """Return the ledgers of the job's GPUs as a single ledger: owners may not be known yet."""
    facts, here = _facts(state, LedgerFacts, LEDGER), {gpu.uuid for gpu in evidence.gpus}
    found = [one for one in (facts.jobs if facts else ()) if here & {g.gpu for g in (*one.short, *one.long)}]
    if not found:
        return NOT_WATCHED if facts is None else NOT_BEGUN
    short, long = (
        tuple(gpu for one in found for gpu in getattr(one, window) if gpu.gpu in here)
        for window in ("short", "long")
    )
    behind = tuple(rank for one in found for rank in one.behind if rank.gpu in here)
    pids = tuple(pid for one in found for pid in one.pids)
    return JobLedger(
        found[0].name, pids, min(one.since for one in found), any(one.starting for one in found), short, long,
        behind, len(found) == 1 and found[0].one_job,
    )  # fmt: skip


def _gpu(state: NodeState, uuid: str, index: str, pids: Iterable[int]) -> JobGpu:
    gpus, lockstep = state.facts(GpuFacts), _facts(state, LockstepFacts, LOCKSTEP)
    bursts = _facts(state, BurstFacts, BURSTS)
    made = JobGpu(uuid, index, tuple(sorted(pids)))
    now = gpus.now.get(uuid) if gpus else None
    if now is not None:
        # Whose GPU it is stays as it was last read; how busy it is does not.
        made = replace(made, index=str(now.index), pids=made.pids or _pids(state, now))
        if _status(state, GPU) is None:
            made = replace(made, utilisation=now.utilization, power=now.power, throttled=now.throttled)
            made = replace(made, memory={pid: now.memory[pid] for pid in made.pids if pid in now.memory})
    window = lockstep.windows.get(uuid) if lockstep else None
    if window is not None:
        math = max(window.math.values(), default=_NO_MATH)
        made = replace(made, graphics=window.graphics, sm=window.sm, dram=window.dram)
        made = replace(made, math=math, sent=window.sent)
    made = replace(made, peak=_peak(state, uuid))
    seen = next((one.figures for one in bursts.looks if one.uuid == uuid), None) if bursts else None
    return replace(made, plateau=seen.plateau, duty=seen.duty, short=not seen.long) if seen else made


def _peak(state: NodeState, uuid: str) -> float | Absent:
    """Bytes per second of all links of a GPU that are up, one way."""
    facts = _facts(state, NvlinkFacts, NVLINK)
    links = next((some for gpu, some in facts.links.items() if gpu.uuid == uuid), ()) if facts else ()
    speeds = [one.speed for one in links if one.state in UP and not isinstance(one.speed, Absent)]
    return sum(speeds) if speeds else Absent(Why.MISSING, "the rates of its NVLinks are not known")


def _untapped(state: NodeState, taken: set[str]) -> Iterator[tuple[str, ...]]:
    """GPUs of each job without the tap; largest first."""
    gpus, facts = state.facts(GpuFacts), _facts(state, LockstepFacts, LOCKSTEP)
    known = {uuid: _pids(state, now) for uuid, now in (gpus.now if gpus else {}).items() if uuid not in taken}
    hangs, in_step = _hangs(state), facts.windows.keys() if facts and facts.in_step else ()
    yield from gpu_groups(known, hangs.owners, [one.processes.keys() for one in hangs.now], in_step)


def _findings(state: NodeState, evidence: JobEvidence) -> Iterator[JobFinding]:
    job = evidence.job
    network = not isinstance(job, Absent) and any(comm.nodes > 1 for comm in job.communicators)
    here = {gpu.uuid for gpu in evidence.gpus}
    for component in state.components.values():
        for one in component.findings:
            ours = one.subject.uuid in here or (network and one.subject.device)
            if ours and not one.rule.startswith(_OWN):
                health, part = one.health.name.lower(), one.subject
                yield JobFinding(one.rule, health, str(part), part.uuid, one.evidence, one.action)


def _sources(state: NodeState, evidence: JobEvidence) -> Iterator[SourceStatus]:
    yield _tap_status(state, evidence.job)
    booked = not isinstance(evidence.ledger, Absent)
    why = "" if booked else _status(state, LEDGER) or "it has nothing of these GPUs yet"
    yield SourceStatus(EvidenceSource.LEDGER, booked, why, switch_on(LEDGER))
    facts = state.facts(LockstepFacts)
    for source, collector, field, why in (
        (EvidenceSource.ACTIVITY, LOCKSTEP, "graphics", facts.why if facts else ""),
        (EvidenceSource.GPU, GPU, "throttled", "NVML does not say it of these GPUs"),
        (EvidenceSource.BURSTS, BURSTS, "plateau", "no look at its GPUs yet"),
    ):
        # A look at bursts is of one GPU; of the other sources each GPU counts.
        read = [not isinstance(getattr(gpu, field), Absent) for gpu in evidence.gpus]
        known = any(read) if source is EvidenceSource.BURSTS else bool(read) and all(read)
        said = "" if known else _status(state, collector) or why
        yield SourceStatus(source, known, said, switch_on(collector))
    why = _status(state, HANGS) or ""
    yield SourceStatus(EvidenceSource.HANGS, not why, why, switch_on(HANGS))
    yield SourceStatus(EvidenceSource.THREADS, False, "the daemon does not read them", HERE)  # noqa: FBT003
    yield _settings_status(evidence.settings)


def _tap_status(state: NodeState, job: RunningJob | Absent) -> SourceStatus:
    facts, off = state.facts(JobsFacts), _status(state, JOBS)
    if isinstance(job, Absent):
        folder = facts.folder if facts else None
        why = off or (str(folder) if folder is not None else job.detail)
        return SourceStatus(EvidenceSource.TAP, watched=False, why=why, switch_on=TAP_ON)
    if any(comm.windows for comm in job.communicators):
        return SourceStatus(EvidenceSource.TAP, watched=True)
    ever = "" if _counted(job) else "wait a window"
    return SourceStatus(EvidenceSource.TAP, watched=False, why=off or _untimed(job), switch_on=ever)


def _counted(job: RunningJob) -> str:
    """Return why the tap of a job times nothing, with the version of NCCL; empty where it does."""
    for comm in job.communicators:
        if comm.doubt is not None and comm.doubt in UNTIMED.values():
            versions = ", ".join(sorted({rank.nccl for rank in comm.here if rank.nccl}))
            return f"{comm.doubt.value}{versions and f' (NCCL {versions})'}"
    return ""


def _untimed(job: RunningJob) -> str:
    """Return why no window shows how it is now."""
    if captured := sum(comm.captured for comm in job.communicators):
        return f"{captured} calls are in CUDA graphs, and their communicators are not timed"
    if counted := _counted(job):
        return counted
    joined = any(comm.joined for comm in job.communicators)
    return "no collective has been timed lately" if joined else "no window is full yet"


def _settings_status(read: Sequence[JobSettings]) -> SourceStatus:
    known = [one for one in read if not isinstance(one.settings, Absent)]
    if read and len(known) == len(read):
        return SourceStatus(EvidenceSource.SETTINGS, watched=True)
    reasons = (str(one.settings) for one in read if isinstance(one.settings, Absent))
    why = next(reasons, "the daemon reads those of jobs with the tap")
    return SourceStatus(EvidenceSource.SETTINGS, watched=False, why=why, switch_on=HERE)


def _facts(state: NodeState, kind: type[F], collector: str) -> F | None:
    """The facts of a collector that reads now."""
    return state.facts(kind) if _status(state, collector) is None else None


def _status(state: NodeState, collector: str) -> str | None:
    """Return why nothing of a collector can be taken now; None where it can."""
    component = state.components.get(collector)
    if component is None:
        return "its collector is off"
    if component.outcome is None:
        return "its collector has not read yet"
    if isinstance(component.outcome, Failed):
        return str(component.outcome.absent)
    return None if component.succeeding else "its collector is overdue"


def _with_source(evidence: JobEvidence, status: SourceStatus) -> JobEvidence:
    others = tuple(one for one in evidence.sources if one.source is not status.source)
    return replace(evidence, sources=(*others, status))


def _least(values: Sequence[float | Absent]) -> float | Absent:
    known = [one for one in values if not isinstance(one, Absent)]
    unknown = next((one for one in values if isinstance(one, Absent)), _NO_THREADS)
    return min(known) if known and len(known) == len(values) else unknown


def _pids(state: NodeState, now: GpuNow) -> tuple[int, ...]:
    """Return the processes of jobs on a GPU, without processes of a probe."""
    owners = _hangs(state).owners
    return tuple(sorted(pid for pid in value_or(now.pids, ()) if owners.get(pid) != PROBE))


def _sorted(gpus: Sequence[JobGpu]) -> tuple[JobGpu, ...]:
    return tuple(sorted(gpus, key=lambda gpu: (int(gpu.index) if gpu.index.isdigit() else 1 << 30, gpu.uuid)))
