"""Fold looks into the ledgers of running jobs: over the last 10 s, over 5 min, and since ever. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from wirewatch.core.types import Absent, Expect, Finding, Ok, Why, value_or
from wirewatch.jobs.gpugroups import gpu_groups, job_name
from wirewatch.jobs.ledger.doing import added, doing, doing_words, part_of, ranks_behind, together
from wirewatch.jobs.ledger.model import (
    NO_TIME,
    GpuSight,
    LedgerMemory,
    LedgerPolicy,
    LedgerReading,
    ProcessId,
    ProcessSight,
    SpentMemory,
    SpentTally,
    TimedJob,
)
from wirewatch.jobs.ledger.spent import GpuLedger, JobLedger, LedgerFacts, Spent
from wirewatch.jobs.ledger.split import JobNow, spins, split

SHORT, LONG = 10.0, 300.0
"""Seconds of the two windows; the long window is kept in pieces of the short window's length."""
LEAST_IDLE = 0.02
"""Share of the time from which on it is said how processes spend it."""
UNKNOWN_JOB = "unknown"
"""The name of a job none of whose processes has an id."""
_GONE = Absent(Why.LOST, "no longer listed")
_IDLE = list(Spent).index(Spent.IDLE)
_EARLY = 0.5
"""Seconds by which a look may come early or late."""
MOVED = 1 << 20
"""Bytes over NVLink that show that a GPU sends to others."""
Sights = Mapping[str, GpuSight | Absent]
Held = Mapping[str, frozenset[ProcessId]]
"""The processes on each GPU, 0 for a process without an id."""


def judge(
    memory: LedgerMemory, ok: Ok[LedgerReading], policy: LedgerPolicy, _expect: Expect
) -> tuple[LedgerMemory, tuple[Finding, ...]]:
    """Fold one look into the ledgers; there never is a finding."""
    reading = ok.value
    if not reading.looked:
        return memory, ()
    sights: Sights = {item.gpu.key: item.value for item in reading.gpus}
    labels = {item.gpu.key: (str(item.gpu.index), item.gpu.uuid) for item in reading.gpus}
    held = _held(memory, reading, sights)
    gpus = {
        key: _followed(memory.gpus.get(key), some, sights.get(key, _GONE), key, reading, ok.mono, policy)
        for key, some in held.items()
    }
    spinning = {key: one.spinning for key, one in gpus.items() if one.spinning is not None}
    shared, worked = _shared(held, reading), frozenset(key for key, one in gpus.items() if one.worked)
    jobs = tuple(
        JobNow(
            name, some, pids, ok.mono, {gpu: sights.get(gpu, _GONE) for gpu in some}, reading.around,
            policy, shared, worked, spinning, timed, _bound(some, timed, held, gpus, reading),
        )
        for name, some, pids, timed in _jobs(held, reading)
    )  # fmt: skip
    kept = {pid: memory.since[pid] for some in held.values() for pid, _ in some if pid in memory.since}
    since = kept | {pid: _since(pid, memory, now, ok.mono) for pid, now in reading.processes.items()}
    tallies = _tallies(jobs, memory, reading, held, ok.mono)
    gpus = {key: _with_tally(one, tallies.get(key), ok.mono) for key, one in gpus.items()}
    known = {key: one.supported for key, one in sights.items() if not isinstance(one, Absent)}
    new = LedgerMemory(
        ok.mono, {**memory.supported, **known}, reading.processes, since, gpus,
        _totals(memory.totals, held, tallies), {**memory.labels, **labels},
    )  # fmt: skip
    return replace(new, jobs=tuple(_ledger(job, memory, new) for job in jobs)), ()


def facts(_reading: LedgerReading, memory: LedgerMemory) -> LedgerFacts:
    """Return the ledgers of all running jobs."""
    return LedgerFacts(memory.mono, memory.jobs)


def computes(reading: LedgerReading) -> bool:
    """Return whether something computes on a GPU here."""
    return any(_processes(item.value) for item in reading.gpus)


def _processes(sight: GpuSight | Absent) -> Collection[int | None]:
    return () if isinstance(sight, Absent) else value_or(sight.processes, ())


def _held(memory: LedgerMemory, reading: LedgerReading, sights: Sights) -> Held:
    """Return the processes on each used GPU; a GPU that could not be read keeps its previous processes.

    So a GPU that is lost in a running job stays part of it: nobody says that the others wait for another GPU.
    """
    found = {
        key: frozenset((pid or 0, _began(reading.processes.get(pid or 0))) for pid in _processes(sight))
        for key, sight in sights.items()
        if _is_read(sight)
    }
    if found and not any(found.values()):
        return {}
    kept = {key: one.processes for key, one in memory.gpus.items() if key not in found}
    return {key: some for key, some in {**kept, **found}.items() if some}


def _is_read(sight: GpuSight | Absent) -> bool:
    return not isinstance(sight, Absent) and not isinstance(sight.processes, Absent)


def _began(sight: ProcessSight | Absent | None) -> float:
    return value_or(sight.began, -1.0) if isinstance(sight, ProcessSight) else -1.0


def _since(pid: int, memory: LedgerMemory, now: ProcessSight | Absent, mono: float) -> float:
    """Return when a process began, or was first seen where that is not known or not of this clock."""
    then, began = memory.sights.get(pid), _began(now)
    if pid in memory.since and (then is None or _began(then) == began):
        return memory.since[pid]
    return began if 0 <= began <= mono else mono


def _followed(
    known: SpentMemory | None, held: frozenset[ProcessId], sight: GpuSight | Absent, gpu: str,
    reading: LedgerReading, mono: float, policy: LedgerPolicy,
) -> SpentMemory:  # fmt: skip
    """Return a GPU after a look, without its newest tally; it begins anew with other processes."""
    if known is None or not known.processes & held:
        known = SpentMemory(held, since=mono)
    sent = reading.around.sent.get(gpu)
    if sent is not None and reading.around.sent_at >= known.since:
        first = sent if known.sent is None else known.sent
        known = replace(known, sent=first, moved=known.moved or sent - first >= MOVED)
    state, since = spins(sight, policy), known.spinning
    if state is not None:
        since = (mono if since is None else since) if state else None
    # Where use cannot be read, as under MIG, nothing shows that it has not worked yet.
    busy = 0.0 if isinstance(sight, Absent) else value_or(sight.busy, 1.0)
    return replace(known, processes=held, spinning=since, worked=known.worked or busy > 0)


def _bound(
    gpus: Sequence[str], timed: TimedJob | None, held: Held, known: Mapping[str, SpentMemory],
    reading: LedgerReading,
) -> tuple[tuple[str, ...], ...]:  # fmt: skip
    """Return groups of a job's GPUs whose processes are known to communicate; an owner may have several jobs.

    They share a communicator, a process, a hang that NCCL has confirmed, or a lockstep. Or a common parent
    started them, and all have sent bytes over NVLink since.
    """
    pids = {gpu: [pid for pid, _ in held[gpu] if pid] or [-n - 1] for n, gpu in enumerate(gpus)}
    parents = {pid: one.parent for pid, one in reading.processes.items() if isinstance(one, ProcessSight)}
    starters = {*parents.values()} - {0}
    launched = {
        pid: f"parent:{pid if pid in starters else parents[pid]}"
        for gpu, some in pids.items()
        for pid in some
        if known[gpu].moved and (pid in starters or parents.get(pid))
    }
    around = reading.around
    proven = [{*some} & {*gpus} for some in (*(timed.linked if timed else ()), *around.hanging)]
    return gpu_groups(pids, launched, proven, {*around.in_step} & {*gpus})


def _jobs(
    held: Held, reading: LedgerReading
) -> Iterator[tuple[str, tuple[str, ...], tuple[int, ...], TimedJob | None]]:
    """Yield each job with its GPUs, its processes and its rings."""
    around = reading.around
    pids = {gpu: sorted(pid for pid, _ in some if pid) for gpu, some in held.items()}
    taken: set[str] = set()
    for timed in around.jobs:
        gpus = tuple(
            gpu for gpu in timed.gpus if gpu in held and (not pids[gpu] or {*pids[gpu]} & {*timed.pids})
        )
        if gpus:
            taken.update(gpus)
            yield timed.name, gpus, timed.pids, timed
    left = {gpu: some for gpu, some in pids.items() if gpu not in taken}
    for gpus in gpu_groups(left, around.owners, around.hanging, around.in_step):
        own = tuple(sorted({pid for gpu in gpus for pid in left[gpu]}))
        yield job_name(own, around.owners), gpus, own, None
    for gpu in (gpu for gpu, some in left.items() if not some):
        yield UNKNOWN_JOB, (gpu,), (), None


def _shared(held: Held, reading: LedgerReading) -> frozenset[str]:
    """Return the GPUs on which several jobs compute, or processes that may be several jobs."""
    owners = {pid: job.name for job in reading.around.jobs for pid in job.pids}
    known = {**reading.around.owners, **owners}
    whose = {gpu: {known.get(pid) or f"pid:{pid}" for pid, _ in some} for gpu, some in held.items()}
    return frozenset(gpu for gpu, some in whose.items() if len(some) > 1)


def _tallies(
    jobs: Sequence[JobNow], memory: LedgerMemory, reading: LedgerReading, held: Held, mono: float
) -> dict[str, SpentTally]:
    """Return the time since the last look of each GPU that was read and has had its processes since then."""
    found: dict[str, SpentTally] = {}
    seconds = mono - memory.mono
    for job in jobs:
        if not 0 < seconds <= job.policy.longest:
            continue
        for gpu in job.gpus:
            known = memory.gpus.get(gpu)
            if known is None or not known.processes & held[gpu] or not _is_read(job.sights[gpu]):
                continue
            own = split(gpu, job)
            parts = (*(own.shares.get(kind, 0.0) for kind in Spent), own.unjudged, own.waiting)
            did = together([
                doing(memory.sights.get(pid), reading.processes.get(pid), seconds) for pid, _ in held[gpu]
            ])  # fmt: skip
            found[gpu] = SpentTally(
                memory.mono, seconds, tuple(seconds * part for part in parts),
                {other: seconds * part for other, part in own.waits.items()}, part_of(did, parts[_IDLE]),
            )  # fmt: skip
    return found


def _with_tally(known: SpentMemory, tally: SpentTally | None, mono: float) -> SpentMemory:
    """Return a GPU's windows with the newest tally, without what is too old or of a clock that went back."""
    short = tuple(one for one in known.short if mono - SHORT - _EARLY <= one.begin <= mono)
    long = tuple(one for one in known.long if mono - LONG - _EARLY <= one.begin <= mono)
    fills = tally is not None and bool(long) and tally.begin < long[-1].begin + SHORT - _EARLY
    if tally is not None:
        short = (*short, tally)
        long = (*long[:-1], _sum((long[-1], tally))) if fills else (*long, tally)
    same = fills and len(long) == len(known.long)
    return replace(known, short=short, long=long, full=known.full if same else _sum(long[:-1]))


def _sum(tallies: Sequence[SpentTally]) -> SpentTally:
    if not tallies:
        return NO_TIME
    waits: dict[str, float] = {}
    for one in tallies:
        for gpu, part in one.waits.items():
            waits[gpu] = waits.get(gpu, 0.0) + part
    return SpentTally(
        tallies[0].begin, sum(one.seconds for one in tallies), _by_kind([one.spent for one in tallies]),
        waits, added([one.idle for one in tallies]),
    )  # fmt: skip


def _by_kind(some: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(sum, zip(*some, strict=True)))


def _totals(
    known: Mapping[str, tuple[float, ...]], held: Held, tallies: Mapping[str, SpentTally]
) -> dict[str, tuple[float, ...]]:
    """Return the seconds by GPU and kind since ever, from 0 on; they only grow."""
    begun = dict.fromkeys(held, (0.0,) * len(Spent)) | dict(known)
    return begun | {gpu: _by_kind((begun[gpu], one.spent[: len(Spent)])) for gpu, one in tallies.items()}


def _ledger(job: JobNow, before: LedgerMemory, now: LedgerMemory) -> JobLedger:
    since = min((now.since[pid] for pid in job.pids if pid in now.since), default=now.mono)
    begins = now.mono - since < job.policy.starting or not any(now.gpus[gpu].worked for gpu in job.gpus)
    seconds = now.mono - before.mono if now.mono - before.mono <= job.policy.longest else 0.0
    index = {gpu: now.labels.get(gpu, ("", ""))[0] for gpu in job.gpus}
    short = tuple(_summed(gpu, index[gpu], now.gpus[gpu].short) for gpu in job.gpus)
    long = tuple(_summed(gpu, index[gpu], (now.gpus[gpu].full, *now.gpus[gpu].long[-1:])) for gpu in job.gpus)
    behind = tuple(ranks_behind(job, before.sights, now.sights, seconds))
    one_job = any(len(some) == len(job.gpus) for some in job.bound)
    return JobLedger(job.name, job.pids, since, begins, short, long, behind, one_job)


def _summed(gpu: str, index: str, tallies: Sequence[SpentTally]) -> GpuLedger:
    """Return the ledger of a GPU over a window; without covered time all is not attributed."""
    one = _sum(tallies)
    if not one.seconds:
        return GpuLedger(gpu, index, 0.0, {Spent.NOT_ATTRIBUTED: 1.0})
    *parts, unjudged, waiting = (part / one.seconds for part in one.spent)
    return GpuLedger(
        gpu, index, one.seconds, {kind: part for kind, part in zip(Spent, parts, strict=True) if part > 0},
        {other: part / one.seconds for other, part in one.waits.items()},
        doing_words(one.idle) if parts[_IDLE] >= LEAST_IDLE else "", unjudged, waiting,
    )  # fmt: skip
