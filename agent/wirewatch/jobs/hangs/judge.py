"""Judge jobs that hang: a finding for each hang that two looks explain, held while the job looks stuck.

All findings are DEGRADED: a hang is the job's own, and keeps no other job from starting. Where a wire is at
fault, its own counters and the kernel's log say so, in findings of their own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from wirewatch.core.collector import DEGRADED, Rule, blind_finding, subject
from wirewatch.core.ports import Gpu
from wirewatch.core.statistics import lasting
from wirewatch.core.types import Absent, Expect, Finding, Ok, Subject
from wirewatch.jobs.hangs.diagnosis import case_of, diagnose
from wirewatch.jobs.hangs.model import (
    HangFacts,
    HangingJob,
    HangKind,
    HangMemory,
    HangPolicy,
    HangReading,
    JobLook,
    PastHang,
    WatchedJob,
)
from wirewatch.jobs.hangs.standing import standing
from wirewatch.jobs.hangs.watch import followed

PAST = 16
"""Hangs that are remembered."""
NO_DRAIN = "the node is not at fault: do not drain it"
ALERT = "JobHangs"
STOPPED = Rule(
    "hangs.stopped",
    DEGRADED,
    ALERT,
    means="a process of a job is stopped, has ended or does not answer, and the other processes wait for it",
    look="the process's state and parent (`ps -o pid,ppid,stat,wchan`), and the kernel log for XIDs and the "
    "OOM killer",
    do="continue the process that is named with SIGCONT, or cancel the job. A process in state D hangs in a "
    f"driver or a file system: look there. Otherwise {NO_DRAIN}",
)
ASYMMETRIC = Rule(
    "hangs.asymmetric",
    DEGRADED,
    ALERT,
    means="some ranks of a job have not launched a collective in which others wait, or have launched "
    "collectives in another order",
    look="the stack of the process that is named (`py-spy dump --pid PID`), and PyTorch's flight recorder of "
    "its rank; of all processes where none is named",
    do="dump the stack of the process that is named (py-spy, or the flight recorder of its rank). Its "
    "program waits in a loader or a lock, has skipped a collective, or calls another one than the others; "
    f"{NO_DRAIN}",
)
SYMMETRIC = Rule(
    "hangs.symmetric",
    DEGRADED,
    ALERT,
    means="all ranks of a job have launched the same collectives, and none of these completes",
    look="findings about links, ports and XIDs since the hang began, here and on the job's other nodes, and "
    "the job's log with NCCL_DEBUG=INFO",
    do="look for a finding about a link, a port or an XID of the same time, here and on the job's other "
    "nodes, and drain the node that has one. If none has one, cancel the job and start it again; if it hangs "
    "again, probe its nodes",
)
ERROR = Rule(
    "hangs.error",
    DEGRADED,
    ALERT,
    means="NCCL has reported an error to some ranks of a job, and the job has not ended",
    look="the logs of the ranks that are named, and whether the program calls ncclCommGetAsyncError",
    do="cancel the job: NCCL will not recover. Look for a finding about a link, a port or an XID, also on "
    "the node of a rank that the others call remote. In PyTorch set TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
)
SUSPECTED = Rule(
    "hangs.suspected",
    DEGRADED,
    ALERT,
    means="a job looks as if it hangs, and its RAS could not be asked; the evidence says why",
    look="the job's own log, which shows whether it goes on, and the evidence, which says why RAS was not "
    "asked",
    do="see in the job's log whether it goes on, and dump the stack of the process of an idle GPU (py-spy). "
    f"docs/hangs.md says what RAS needs; {NO_DRAIN}",
)
OPEN = Rule(
    "hangs.ras_open",
    DEGRADED,
    means="NCCL's RAS of a job listens at an address that other machines can reach. RAS asks for no "
    "password, and since NCCL 2.31 whoever connects can change the job",
    look="NCCL_RAS_ADDR in the job's environment and in nccl.conf",
    do="take NCCL_RAS_ADDR out of the job's environment, or set it to localhost:28028",
)
RULES = (STOPPED, ASYMMETRIC, SYMMETRIC, ERROR, SUSPECTED, OPEN)
_RULE_OF: Mapping[HangKind, Rule] = dict(zip(HangKind, RULES[:-1], strict=True))


def judge(
    memory: HangMemory, ok: Ok[HangReading], policy: HangPolicy, _expect: Expect
) -> tuple[HangMemory, tuple[Finding, ...]]:
    """Return the memory with the jobs as they are now, and findings of hangs and of an open RAS; pure."""
    reading = ok.value
    gpus = {item.gpu.key: item.gpu for item in reading.gpus}
    jobs = followed(memory.jobs, ok, policy)
    for owner, look in reading.looks.items():
        if owner in jobs and jobs[owner].since is not None:
            jobs[owner] = _looked(jobs[owner], look, reading, gpus, ok, policy)
    still = {owner: standing(job, reading.loads, gpus, ok, policy) for owner, job in jobs.items()}
    jobs = {owner: replace(job, standing=still[owner]) for owner, job in jobs.items()}
    known = {key: load.supported for key, load in reading.loads.items() if not isinstance(load, Absent)}
    memory = replace(
        _remembered(memory, jobs, ok.at), jobs=jobs, supported={**memory.supported, **known},
        asked=memory.asked + bool(reading.looks), owners=reading.owners, owned=reading.owned,
    )  # fmt: skip
    if reading.listeners is not None:
        found = sorted({one.address for one in reading.listeners if one.open})
        memory = replace(memory, listened=ok.mono, open=tuple(found))
    return memory, (*_hangs(jobs, ok), *_open(memory), *_blind(reading))


def facts(reading: HangReading, memory: HangMemory) -> HangFacts:
    """Return the past hangs, the present hangs, the owners of processes, and jobs that stand still."""
    still = tuple(job.standing for job in memory.jobs.values() if job.standing is not None)
    return HangFacts(memory.past, tuple(_hanging(memory.jobs.values())), reading.owners, still)


def _hanging(jobs: Iterable[WatchedJob]) -> Iterator[HangingJob]:
    for job in jobs:
        if (hang := job.diagnosis) and hang.kind:
            do = _RULE_OF[hang.kind].do
            yield HangingJob(hang.kind, job.processes, hang.culprits, job.found, hang.text, hang.snapshot, do)


def watches(reading: HangReading) -> bool:
    """Tell whether there is a GPU here whose use can be read."""
    return any(not isinstance(load, Absent) for load in reading.loads.values())


def _looked(
    job: WatchedJob, look: JobLook, reading: HangReading, gpus: Mapping[str, Gpu], ok: Ok[HangReading],
    policy: HangPolicy,
) -> WatchedJob:  # fmt: skip
    """A job after one more look at it."""
    asked = job.asked + 1
    wait = min(policy.again * 2 ** min(asked - 1, 16), policy.seldom)
    # From when it was due: RAS takes seconds where a rank is silent, and the next look need not come later.
    due = max(job.due + wait, ok.mono + wait / 2)
    job = replace(job, looks=(*job.looks, look)[-2:], asked=asked, due=due)
    case = case_of(job, gpus, reading.loads, policy)
    if case is None:
        return job
    diagnosis = diagnose(case)
    if diagnosis.kind is None and not diagnosis.goes_on:
        job = replace(job, due=min(due, _next_limit(job, ok.mono, policy)))
    return replace(job, diagnosis=diagnosis, found=job.found if diagnosis.kind is job.hang else ok.at)


def _next_limit(job: WatchedJob, mono: float, policy: HangPolicy) -> float:
    """Return when a job that only goes on looking stuck may be judged further."""
    limits = (policy.asleep, policy.unseen, policy.unasked, policy.busy)
    since = mono if job.since is None else job.since
    return min((since + limit for limit in limits if since + limit > mono), default=math.inf)


def _remembered(memory: HangMemory, jobs: Mapping[str, WatchedJob], at: float) -> HangMemory:
    """Return the memory with ended hangs put to the past, and new hangs counted."""
    past, total = memory.past, dict(memory.total)
    for owner, job in memory.jobs.items():
        now, then = jobs.get(owner), job.diagnosis
        if then and then.kind and (now is None or now.hang is not then.kind):
            one = PastHang(then.kind.value, owner, job.found, at, then.text, then.snapshot)
            past = (*past, one)[-PAST:]
    for owner, job in jobs.items():
        before = memory.jobs.get(owner)
        if job.hang is not None and job.hang is not (before and before.hang):
            total[job.hang.value] = total.get(job.hang.value, 0) + 1
    return replace(memory, past=past, total=total)


def _hangs(jobs: Mapping[str, WatchedJob], ok: Ok[HangReading]) -> Iterator[Finding]:
    """A finding for each hang; several of a kind at one part are one."""
    found: dict[tuple[str, Subject], Finding] = {}
    for job in jobs.values():
        hang = job.diagnosis
        if hang is None or hang.kind is None:
            continue
        at = next((Subject(gpu=one.gpu, uuid=one.uuid) for one in hang.culprits if one.gpu), Subject())
        age = 0.0 if job.began is None else max(0.0, ok.at - job.began)
        text = f"{hang.text}; it has looked so for {lasting(age)}"
        one = _RULE_OF[hang.kind].finding(at, text)
        known = found.get(one.key)
        found[one.key] = one if known is None else replace(one, evidence=f"{known.evidence}; {text}")
    yield from found.values()


def _open(memory: HangMemory) -> Iterator[Finding]:
    if memory.open and memory.jobs:
        yield OPEN.finding(Subject(), f"a job's RAS listens at {', '.join(memory.open[:4])}")


def _blind(reading: HangReading) -> Iterator[Finding]:
    for item in reading.gpus:
        if isinstance(item.value, Absent):
            yield blind_finding("hangs", subject(item.gpu), item.value)
