"""The diagnosis by two looks at a job that seems to hang: its kind, and whom it waits for. Pure.

docs/hangs.md gives the rules. One look is never enough: counts that differ are usual in a job at work, and
only two answers show that they stand still.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.jobs import RasCommunicator, RasPhase, RasRank, RasReport
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.core.words import first
from wirewatch.jobs.hangs.launches import (
    Alike,
    Edge,
    Launches,
    Mismatch,
    Peer,
    launches,
    mismatch,
    peer_of,
    world_ranks,
)
from wirewatch.jobs.hangs.model import (
    Culprit,
    Diagnosis,
    GpuLoad,
    GpuLoads,
    HangKind,
    HangPolicy,
    JobLook,
    JobProcess,
    WatchedJob,
)
from wirewatch.jobs.hangs.standing import watts
from wirewatch.jobs.hangs.watch import ALL_BUSY, IDLE
from wirewatch.jobs.hangs.working import ProcessWork, work_of

_NAMED = 4
"""Culprits that a text names."""
_SNAPSHOT = 1500
"""Characters kept of what was seen."""
_STATES: Mapping[str, str] = {
    "T": "is stopped by a signal",
    "t": "is stopped by a debugger",
    "Z": "has ended, a zombie",
    "X": "has ended",
    "D": "is inside the kernel, which does not let it be ended",
}
_ENDED = frozenset({"T", "t", "Z", "X"})
_QUIET = frozenset({RasPhase.STARTING, RasPhase.FINALIZING, RasPhase.ABORTING, RasPhase.LEFT})


@dataclass(frozen=True, slots=True)
class HungCase:
    """A job with what is known of it: its GPUs by key, their loads, its two looks and what RAS said at each.

    `host`: this machine as the job's RAS names it. `inner`: processes here by their id as the job sees it.
    `places`: GPUs, by key, of processes here. `ranks`: the job's own ranks, by process as RAS names it.
    """

    job: WatchedJob
    gpus: Mapping[str, Gpu]
    loads: GpuLoads
    older: JobLook
    newer: JobLook
    policy: HangPolicy
    before: RasReport | Absent
    now: RasReport | Absent
    host: str
    inner: Mapping[int, int]
    places: Mapping[int, str]
    ranks: Mapping[Peer, int]

    @property
    def seconds(self) -> float:
        """Between the looks."""
        return self.newer.mono - self.older.mono

    @property
    def held(self) -> float:
        """Seconds for which it has looked stuck."""
        return 0.0 if self.job.since is None else self.newer.mono - self.job.since

    def gpu(self, pid: int) -> Gpu | None:
        """Return the GPU of a process here; None for a process without a GPU."""
        return self.gpus.get(self.places.get(pid, ""))

    def here(self, rank: RasRank) -> int:
        """The process on this machine that is a rank; 0 where it is not here, or that is not known."""
        return self.inner.get(rank.pid, 0) if rank.host == self.host else 0

    def own_loads(self) -> dict[str, GpuLoad]:
        """The loads of the job's GPUs that were read."""
        mine = {key: load for key, load in self.loads.items() if key in self.job.processes}
        return {key: load for key, load in mine.items() if not isinstance(load, Absent)}


def case_of(job: WatchedJob, gpus: Mapping[str, Gpu], loads: GpuLoads, policy: HangPolicy) -> HungCase | None:
    """The case of a job that has been looked at twice; None before."""
    if len(job.looks) < 2:  # noqa: PLR2004
        return None
    older, newer = job.looks
    before, now = own_report(older), own_report(newer)
    # A process that has ended since is known by the older look alone.
    inner = {_inner(pid, one): pid for look in (older, newer) for pid, one in look.processes.items()}
    hosts = Counter[str]()
    if not isinstance(now, Absent):
        peers = {(rank.host, rank.pid) for _, rank in _ranks(now) if rank.pid in inner}
        hosts.update(host for host, _ in sorted(peers))
    host = hosts.most_common(1)[0][0] if hosts else ""
    places = _places(job, gpus, now, host, inner)
    world = {} if isinstance(now, Absent) else world_ranks(now)
    return HungCase(job, gpus, loads, older, newer, policy, before, now, host, inner, places, world)


def _places(
    job: WatchedJob, gpus: Mapping[str, Gpu], now: RasReport | Absent, host: str, inner: Mapping[int, int]
) -> dict[int, str]:
    """GPUs of processes: as NVML says, and only where it does not know them as RAS does, by index."""
    places = {**job.gone, **{pid: key for key, pids in job.processes.items() for pid in pids}}
    if isinstance(now, Absent) or set(inner.values()) & set(places):
        return places
    indices = {gpu.index: key for key, gpu in gpus.items() if key in job.processes}
    for _, rank in _ranks(now):
        if rank.host == host and rank.pid in inner and rank.nvml in indices:
            places[inner[rank.pid]] = indices[rank.nvml]
    return places


def diagnose(case: HungCase) -> Diagnosis:
    """The kind of a hang and its culprits; no kind where the job does not hang, or that is not known yet."""
    unanswered = isinstance(case.now, Absent) or isinstance(case.before, Absent)
    if unanswered and case.job.lone and not case.job.moved:
        return Diagnosis(None, "one process, which waits for nobody that is known", goes_on=True)
    stopped = tuple(_stopped(case))
    if stopped:
        return _found(case, HangKind.STOPPED, stopped, "the others wait for it")
    if isinstance(case.now, Absent):
        return _unasked(case, case.now)
    if isinstance(case.before, Absent):
        return _unasked(case, case.before)
    return _by_reports(case, case.before, case.now)


def _by_reports(case: HungCase, older: RasReport, newer: RasReport) -> Diagnosis:
    """Diagnose by two answers of RAS a job whose processes all run."""
    failed = [(one, rank) for one, rank in _ranks(newer) if rank.errors]
    if failed:
        named = tuple(_culprit(case, rank, ", ".join(rank.errors)) for _, rank in failed)
        return _found(case, HangKind.ERROR, named, "NCCL reports errors, and the job has not ended")
    if all(one.size < 2 for one in newer.communicators):  # noqa: PLR2004
        return Diagnosis(None, "each of its communicators has one rank, which waits for nobody", goes_on=True)
    if any(_QUIET & {one.phase, *(rank.phase for rank in one.ranks)} for one in newer.communicators):
        text = "the job begins or ends: some ranks are not in their communicators"
        return Diagnosis(None, text, goes_on=True)
    if _advanced(older, newer):
        return Diagnosis(None, "the job goes on: it has launched collectives since", goes_on=True)
    if (found := mismatch(newer)) is not None:
        return _mismatched(case, found)
    return _compared(case, newer)


def own_report(look: JobLook) -> RasReport | Absent:
    """The report whose ranks are the processes of a job, by their ids inside their own namespace and owner.

    Returns:
        MISSING where RAS answered, but for nobody of this job: another user has the port, say.
    """
    if isinstance(look.ras, Absent):
        return _reason(look, look.ras)
    inner = {_inner(pid, one) for pid, one in look.processes.items()}
    uids = {one.uid for one in look.processes.values() if not isinstance(one.uid, Absent)}
    scores = []
    for report in look.ras:
        pids = {rank.pid for _, rank in _ranks(report)} - {-1}
        score = len(pids & inner) + (not pids and report.processes >= len(inner) > 0)
        if score and (isinstance(report.uid, Absent) or not uids or report.uid in uids):
            scores.append((score, report))
    if scores:
        return max(scores, key=lambda one: one[0])[1]
    return _reason(look, Absent(Why.MISSING, "RAS answered for other jobs, not for this one"))


def _reason(look: JobLook, why: Absent) -> Absent:
    if look.elsewhere:
        return Absent(Why.DENIED, "no RAS: the job is in a network namespace of its own, a pod's for example")
    return why


def _inner(pid: int, process: JobProcess) -> int:
    """The id of a process in its own namespace; its id here where that cannot be read."""
    return pid if isinstance(process.inner, Absent) else process.inner


def _ranks(report: RasReport) -> Iterator[tuple[RasCommunicator, RasRank]]:
    for one in report.communicators:
        for rank in one.ranks:
            yield one, rank


def _stopped(case: HungCase) -> Iterator[Culprit]:
    """Processes that cannot go on: stopped or ended here, or silent to RAS at both looks."""
    named: set[int] = set()
    for pid, now in sorted(case.newer.processes.items()):
        before = case.older.processes.get(pid)
        if before is not None and now.state in _ENDED and before.state in _ENDED:
            named.add(pid)
            yield _culprit_here(case, pid, _STATES[str(now.state)])
    for pid in sorted(case.job.gone):
        named.add(pid)
        yield _culprit_here(case, pid, "has ended")
    older, newer = case.before, case.now
    if isinstance(older, Absent) or isinstance(newer, Absent):
        return
    silent = {(one.hash, rank.rank) for one, rank in _ranks(older) if rank.missing}
    seen: set[Peer] = set()
    for one, rank in _ranks(newer):
        peer = (rank.host, rank.pid)
        if rank.missing and (one.hash, rank.rank) in silent and peer not in seen:
            seen.add(peer)
            pid = case.here(rank)
            if not pid or pid not in named:
                yield _culprit(case, rank, _silence(case, rank, pid))


def _silence(case: HungCase, rank: RasRank, pid: int) -> str:
    process = case.newer.processes.get(pid)
    state = _STATES.get(str(process.state), "") if process is not None else ""
    return f"does not answer RAS ({rank.missing}){f' and {state}' if state else ''}"


def _advanced(older: RasReport, newer: RasReport) -> bool:
    """Tell whether any rank has launched anything between two answers; only ranks in both are compared."""
    before = {
        (one.hash, one.secondary, rank.rank): rank.counts for one, rank in _ranks(older) if rank.counts
    }  # fmt: skip
    for one, rank in _ranks(newer):
        known = before.get((one.hash, one.secondary, rank.rank))
        if known is not None and any(rank.counts.get(op, 0) > count for op, count in known.items()):
            return True
    crowds = {(one.hash, each) for one in older.communicators for each in one.crowds}
    now = {(one.hash, each) for one in newer.communicators for each in one.crowds}
    return bool(crowds and now) and crowds != now


def _mismatched(case: HungCase, found: Mismatch) -> Diagnosis:
    """Name the few ranks that launched collectives in another order; equal parts are not named."""
    one = found.communicator
    where = f"(communicator {one.hash} of {one.size})"
    if found.few:
        rest = [group for group in found.groups if group not in found.few] or found.groups
        other = max(rest, key=lambda group: len(group.ranks))
        named = tuple(
            _culprit(case, rank, f"has launched {_counts(few, other)} {where}")
            for few in found.few
            for rank in few.ranks
        )
        what = "a mismatch: most ranks have launched another collective than it"
        return _found(case, HangKind.ASYMMETRIC, named, what)
    groups = [
        f"{first([_who(case, rank) for rank in group.ranks], _NAMED)} {_ahead_in(group)}"
        for group in found.groups
    ]
    text = first(groups, _NAMED, "; ")
    what = f"a mismatch: ranks have launched different collectives {where}: {text}; nobody is named"
    return _found(case, HangKind.ASYMMETRIC, (), what)


def _counts(few: Alike, other: Alike) -> str:
    """Where a group is ahead of another and where behind it: `101 all_gather, others 100`."""
    ops = sorted(few.counts.keys() & other.counts.keys(), key=lambda op: few.counts[op] <= other.counts[op])
    texts = [
        f"{few.counts[op]} {op}, others {other.counts[op]}"
        for op in ops
        if few.counts[op] != other.counts[op]
    ]
    return " and ".join(texts)


def _ahead_in(group: Alike) -> str:
    return "launched " + " and ".join(f"{group.counts[op]} {op}" for op in group.ops)


def _compared(case: HungCase, report: RasReport) -> Diagnosis:
    """Compare ranks of a standing job with all ranks there: who has launched less, else whose GPU is idle."""
    idle, seen = _idle(case), launches(report)
    late = _late(case, seen, idle)
    if late:
        named = tuple(_culprit(case, rank, f"has launched {text}") for rank, text in late)
        pids = [case.here(rank) for rank, _ in late]
    elif seen.behind:
        return _found(case, HangKind.ASYMMETRIC, (), _deadlock(case, seen.cycle()))
    elif idle:
        text = "has launched as much as the others by RAS, and its GPU is idle"
        pids = _on_gpus(case, idle)
        named = tuple(_culprit_here(case, pid, text) for pid in pids)
    else:
        return _symmetric(case, report)
    return _waited(case, named, [_work(case, pid) for pid in pids])


def _waited(case: HungCase, named: Sequence[Culprit], works: Sequence[ProcessWork]) -> Diagnosis:
    """Diagnose a job that waits for processes: a hang where they sleep, later also where that is not seen."""
    work = next((one.text for one in works if one.text), "")
    unseen = next((one.unseen for one in works if one.unseen), "")
    if work and case.held < case.policy.busy:
        return _at_work(named, work)
    if unseen and not work and case.held < case.policy.unseen:
        text = f"{_joined(named)}; whether it is at work cannot be seen here ({unseen})"
        return Diagnosis(None, text, tuple(named))
    pids = [one.pid for one in named if one.pid]
    looks = [look for pid in pids if (look := case.newer.processes.get(pid))]
    files = next((str(look.files) for look in looks if isinstance(look.files, Absent)), "")
    dark = f"at work cannot be seen: {unseen}" if unseen else f"at work on files cannot be seen: {files}"
    doubt = f" (it {work})" if work else f" (whether it is {dark})" if unseen or files else ""
    return _found(case, HangKind.ASYMMETRIC, named, f"the others wait in what it has not launched{doubt}")


def _at_work(named: Sequence[Culprit], work: str) -> Diagnosis:
    """Say that a job waits for processes that work."""
    return Diagnosis(None, f"{_joined(named)}; it {work}: a compile, a checkpoint?", tuple(named), busy=True)


def _symmetric(case: HungCase, report: RasReport) -> Diagnosis:
    """Diagnose a job whose ranks have all launched the same: its wire, or a rank that RAS does not count."""
    uncounted = not any(rank.counts for _, rank in _ranks(report))
    how = "this NCCL shows no counts" if uncounted else "all have launched as much as each other"
    if case.held < case.policy.unseen and any(rank.host != case.host for _, rank in _ranks(report)):
        return Diagnosis(None, f"{how}; whether ranks of other nodes are at work cannot be seen here")
    return _found(case, HangKind.SYMMETRIC, (), f"{how}, and none completes: the wire or its proxy")


def _deadlock(case: HungCase, edges: Sequence[Edge]) -> str:
    """Ranks that wait for each other in a circle: `rank 0 waits in 0xa for rank 1, which waits in ...`."""
    steps = [f"waits in communicator {one.communicator.hash} for {_who(case, one.waited)}" for one in edges]
    return f"a deadlock: {_who(case, edges[0].waits)} {', which '.join(steps)}"


def _work(case: HungCase, pid: int) -> ProcessWork:
    """Return the work of a process here between the looks; 0 for a process of another node."""
    if not pid:
        return ProcessWork(unseen="its process is on another node")
    load = case.own_loads().get(case.places.get(pid, ""))
    spins = load is not None and not isinstance(load.busy, Absent) and load.busy >= ALL_BUSY
    older, newer = case.older.processes.get(pid), case.newer.processes.get(pid)
    return work_of(older, newer, case.seconds, case.policy, spins=spins)


def _late(case: HungCase, seen: Launches, idle: Sequence[str]) -> list[tuple[RasRank, str]]:
    """Return the ranks that launched less than others and wait for nobody, each with its launches.

    Where all such ranks are here, only ranks with an idle GPU count: the others wait in a kernel. The same
    holds where each rank is ahead of another. Nobody is named where such ranks wait for each other.
    """
    resting = set(_on_gpus(case, idle))
    idlers = [found for found in seen.behind.values() if case.here(found[0]) in resting]
    roots = seen.roots
    if all(case.here(rank) for rank, _ in roots):
        roots = [found for found in roots if found in idlers] or roots
    return roots or idlers or ([] if seen.cycle() else list(seen.behind.values()))


def _idle(case: HungCase) -> list[str]:
    """GPUs of the job, by key, that have nothing to do while others are all busy."""
    busy = {key: load.busy for key, load in case.own_loads().items()}
    return [key for key, share in busy.items() if not isinstance(share, Absent) and share < IDLE]


def _on_gpus(case: HungCase, keys: Sequence[str]) -> list[int]:
    """Return the processes on these GPUs: processes known here first."""
    found = sorted(pid for pid, key in case.places.items() if key in keys)
    return [pid for pid in found if pid in case.newer.processes] or found


def _unasked(case: HungCase, why: Absent) -> Diagnosis:
    """Say what can be said where RAS cannot: for long nothing, then what the GPUs show."""
    if not case.job.moved and not value_or(case.newer.listeners, ()):
        return Diagnosis(None, f"nothing shows that its processes use NCCL: {why}", goes_on=True)
    pids = _on_gpus(case, _idle(case))
    works = [_work(case, pid) for pid in pids]
    work = next((one.text for one in works if one.text), "")
    named = tuple(_culprit_here(case, pid, "its GPU is idle while others wait") for pid in pids)
    looks = [case.newer.processes.get(pid) for pid in pids]
    unread = any(look is None or isinstance(look.files, Absent) for look in looks)
    seen = pids and not unread and not any(one.unseen for one in works)
    policy = case.policy
    asleep = min(policy.asleep, policy.unasked) if seen and case.job.moved else policy.unasked
    if case.held < (policy.busy if work else asleep):
        return _at_work(named, work) if work else Diagnosis(None, f"nobody says more: {why}")
    doubt = f" (it {work})" if work else ""
    what = f"RAS does not say more, such as the collective in which they wait{doubt}: {why}"
    return _found(case, HangKind.SUSPECTED, named, what)


def _found(case: HungCase, kind: HangKind, named: Sequence[Culprit], what: str) -> Diagnosis:
    who = _joined(named)
    gpus = len({*case.job.processes, *case.job.gone.values()})
    power = watts([load.power for load in case.own_loads().values()])
    seen = f"{gpus} GPUs at {power}, no byte over NVLink"
    text = f"{case.newer.about}: {f'{who}; ' if who else ''}{what}; {seen}"
    return Diagnosis(kind, text, tuple(named), _snapshot(case))


def _joined(named: Sequence[Culprit]) -> str:
    return first([one.text for one in named], _NAMED, "; ")


def _culprit(case: HungCase, rank: RasRank, what: str) -> Culprit:
    """A rank by its number, with its GPU and process here, or with its host where it is elsewhere."""
    pid = case.here(rank)
    who = _who(case, rank)
    return _named(who, what, case.gpu(pid), pid) if pid else Culprit(f"{who} {what}")


def _who(case: HungCase, rank: RasRank) -> str:
    """Name a rank by the job's own number, where it is known, with its place."""
    number = case.ranks.get(peer_of(rank))
    name = f"communicator rank {rank.rank}" if number is None else f"rank {number}"
    pid = case.here(rank)
    if pid:
        return f"{name} ({_on(case.gpu(pid))}process {pid})"
    where = f"GPU {rank.nvml} as the job counts, process {rank.pid}"
    if rank.host != case.host:
        where += f" on host {rank.host}"
    return f"{name} ({where})"


def _culprit_here(case: HungCase, pid: int, what: str) -> Culprit:
    """A process here, with its rank where RAS says which that is."""
    if pid and not isinstance(case.now, Absent):
        rank = next((rank for _, rank in _ranks(case.now) if case.here(rank) == pid), None)
        if rank is not None:
            return _culprit(case, rank, what)
    gpu = case.gpu(pid)
    return _named(f"{_on(gpu)}process {pid}" if pid else "a process without an id", what, gpu, pid)


def _on(gpu: Gpu | None) -> str:
    return "" if gpu is None else f"GPU {gpu.index}, "


def _named(who: str, what: str, gpu: Gpu | None, pid: int) -> Culprit:
    if gpu is None:
        return Culprit(f"{who} {what}", pid=pid)
    return Culprit(f"{who} {what}", str(gpu.index), gpu.uuid, pid)


def _snapshot(case: HungCase) -> str:
    """Return what was seen, to be kept when the job is gone: processes, and each communicator's counts."""
    lines = []
    for pid, one in sorted(case.newer.processes.items()):
        lines.append(f"{_on(case.gpu(pid))}process {pid}, state {one.state}")
    report = case.now
    if isinstance(report, Absent):
        lines.append(f"RAS: {report}")
    else:
        lines.append(f"NCCL {report.nccl}, answer after {report.seconds:.1f} s")
        for comm in report.communicators:
            counts = [
                f"{rank.rank}:{rank.missing or '/'.join(str(n) for n in rank.counts.values())}"
                for rank in comm.ranks
            ]  # fmt: skip
            crowds = [f"{each.ranks} ranks:{each.launched} {each.op}" for each in comm.crowds]
            lines.append(f"communicator {comm.hash or '?'} of {comm.size}: {' '.join(counts + crowds)}")
    return "\n".join(lines)[:_SNAPSHOT]
