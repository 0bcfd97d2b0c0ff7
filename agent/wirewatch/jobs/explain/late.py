"""Name the GPU that the others wait for, with the certainty, and the reason for its lateness. Pure."""

from dataclasses import replace

from wirewatch.core.statistics import low_median
from wirewatch.core.types import Absent, value_or
from wirewatch.jobs.explain.evidence import (
    NOT_WATCHED,
    Certainty,
    EvidenceSource,
    JobAnswer,
    JobEvidence,
    JobGpu,
    MoreWork,
    Wall,
)
from wirewatch.jobs.explain.ranks import communicators, gpu_rank_name, late_name
from wirewatch.jobs.explain.spending import HALF, NAMED, JobSpending, TimeShare
from wirewatch.jobs.explain.words import percent
from wirewatch.jobs.ledger.spent import is_share
from wirewatch.jobs.times import LateRank

LESS_ACTIVE = 0.08
"""A GPU on which so much less of the time something runs than on the others is kept waiting by its host.

Measured on two H200: 0.25 in a job whose loader stalls one GPU; at most 0.04 in all jobs in lockstep."""
THROTTLE = "gpu.throttle"
CLOCKS = "whether that GPU is throttled is not known"
HOST_LINKS = frozenset({"probe.host_link", "straggler.host_link"})
_HOST_LINK = "its host link is slow, which slows what its loader copies: `wirewatch findings list` has why"
DISAGREES = "the waiting ledger does not show so much"
_OTHER_NODES = (
    "a rank of another node may be later still: run `wirewatch explain` on the job's other nodes",
)
_INFERRED = ("waiting is inferred from activity: the tap would measure it",)
_WAITS_FOR = (
    "look at what that process waits for, with `py-spy dump --pid` and `pidstat -t -p`",
    "usual are its loader, storage, garbage collection, and cores that it shares",
)
_PROBE = "`wirewatch probe` on idle GPUs says whether that GPU itself is slow"


def late_walls(evidence: JobEvidence, spent: JobSpending | None) -> list[JobAnswer]:
    """Return an answer for each GPU that the others wait for, by the ledger first.

    A GPU that the tap or GPM names, and the ledger does not, is less sure.
    """
    here = {one.uuid for one in evidence.gpus}
    booked = [uuid for uuid in spent.late() if uuid in here] if spent else []
    tapped, seen = _tapped(evidence), (evidence.more, evidence.late)
    others = [*([value_or(tapped.gpu, "")] if tapped else []), *(one.uuid for one in seen if one)]
    found = [_late(evidence, uuid, spent) for uuid in booked]
    for uuid in dict.fromkeys(others):
        if uuid in {"", *here} and uuid not in booked:
            other = _late(evidence, uuid, None)
            found.append(weighed(other, spent.waited(uuid)) if spent else other)
    return found


def weighed(answer: JobAnswer, share: TimeShare) -> JobAnswer:
    """Return an answer with its share by the ledger, and less sure where the ledger hardly shows it."""
    seen = replace(
        answer, sentence=f"{answer.sentence.removesuffix('.')}; the ledger shows {share}.", cost=share.value
    )
    if share.value >= HALF * value_or(answer.cost, NAMED / HALF):
        return seen
    return replace(seen, certainty=Certainty.LOW, doubts=(*answer.doubts, DISAGREES))


def _late(evidence: JobEvidence, uuid: str, spent: JobSpending | None) -> JobAnswer:
    """Return the answer for a GPU that the ledger names, or without it the tap or GPM."""
    late, more = _tapped(evidence), evidence.more
    late = late if late is not None and value_or(late.gpu, "") == uuid else None
    share = spent.waited(uuid) if spent else None if late is None else TimeShare(late.cost)
    if more is not None and more.uuid == uuid:
        return _uneven(evidence, more, late, share if spent else None)
    who = late_name(evidence, late) if late else gpu_rank_name(evidence, uuid)
    if share is None:
        begun = f"the others wait for {who}, whose SMs never wait"
        seen = (evidence.late.text,) if evidence.late else ()
        doubts: tuple[str, ...] = ("what it costs is not known without the tap",)
    else:
        waits = f"{spent.waiting_for(uuid)} of {len(evidence.gpus)} GPUs wait" if spent else ""
        seen, doubts, most = (late.text,) if late else (), (), "at most " if late and late.at_most else ""
        for comm in (one for one in communicators(evidence) if late and one.late == late):
            waits = f"{len(comm.here) - 1} of {len(comm.here)} ranks wait"
            doubts = _OTHER_NODES if comm.nodes > 1 else ()
        begun = f"{waits} for {who}, which costs {most}{share}"
    # How GPUs look does not say for sure that they wait, and starts that are not known not for how long.
    sure = share is not None and not (late.at_most if late else not evidence.watches(EvidenceSource.TAP))
    base = JobAnswer(
        Wall.LATE_RANK, f"Collectives: {begun}.", Certainty.MEDIUM if sure else Certainty.LOW,
        share.value if share else NOT_WATCHED, because=seen, doubts=doubts, gpu=uuid,
    )  # fmt: skip
    return _with_reason(evidence, base, begun, spent, late)


def _tapped(evidence: JobEvidence) -> LateRank | None:
    late = None if isinstance(evidence.job, Absent) else evidence.job.late
    return late if late is not None and is_share(late.cost) else None


def _with_reason(
    evidence: JobEvidence, base: JobAnswer, begun: str, spent: JobSpending | None, late: LateRank | None
) -> JobAnswer:
    """Return the answer with why that GPU is late; neither the ledger nor the tap may measure the waiting."""
    gpu = _gpu(evidence, base.gpu)
    reasons = throttled(evidence, gpu)
    if reasons:
        texts = tuple(o.evidence for o in evidence.findings if o.rule == THROTTLE and o.gpu == base.gpu)
        return replace(
            base, sentence=f"Collectives: {begun}: that GPU is throttled ({', '.join(reasons)}).",
            certainty=base.certainty if late is None else Certainty.HIGH, causes=reasons,
            because=(*base.because, *texts),
            advice=("check power and cooling of that GPU; `wirewatch findings list` names the reason",),
        )  # fmt: skip
    if spent is None and late is None:
        return replace(base, advice=(_PROBE,))
    if spent and (less := _less_active(base.gpu, spent)):
        sure = base.certainty if late is None else Certainty.HIGH
        does = next((one.idle for one in spent.judged if one.gpu == base.gpu), "")
        answer = _host_of(replace(base, certainty=sure), begun, less, does)
        slow = tuple(o.evidence for o in evidence.findings if o.rule in HOST_LINKS and o.gpu == base.gpu)
        advice = (_HOST_LINK, *answer.advice) if slow else answer.advice
        return replace(answer, because=(*answer.because, *slow), advice=advice)
    if late is not None and evidence.late is not None and gpu is not None and evidence.late.uuid == gpu.uuid:
        # Two that know nothing of each other: clocks of the collectives, and the GPU's own activity.
        base = replace(base, certainty=Certainty.HIGH, because=(*base.because, evidence.late.text))
    pids = (late.pid,) if late and not isinstance(late.pid, Absent) else gpu.pids if gpu else ()
    advice = (
        f"profile process {', '.join(map(str, pids)) or '?'} with py-spy or nsys",
        "look for more work, a slower loader, or another program on its GPU or cores",
        _PROBE,
    )
    doubts = (*base.doubts, "why that rank is late is not known", *_clocks(evidence, gpu))
    return replace(base, doubts=doubts, advice=advice)


def _host_of(base: JobAnswer, begun: str, less: tuple[float, float], does: str) -> JobAnswer:
    own, others = map(percent, less)
    runs = f"something runs on its GPU only {own} of the time, on the others {others}"
    return replace(
        base, wall=Wall.HOST,
        sentence=f"Host: {begun}: {runs}, so its process keeps it waiting{f' ({does})' if does else ''}.",
        because=(*base.because, f"GPU active {own} of the time against {others}"), advice=_WAITS_FOR,
    )  # fmt: skip


def _uneven(
    evidence: JobEvidence, more: MoreWork, late: LateRank | None, share: TimeShare | None
) -> JobAnswer:
    who = gpu_rank_name(evidence, more.uuid)
    amount = f"{percent(more.more)} more" if is_share(more.more) else "more"
    lost = more.waiting if is_share(more.waiting) else late.cost if late is not None else NOT_WATCHED
    lost = share.value if share else lost
    waits = "" if isinstance(lost, Absent) else f"; the others wait {share or TimeShare(lost)}"
    doubts = (*(() if late is not None else _INFERRED), *_clocks(evidence, _gpu(evidence, more.uuid)))
    own = () if CLOCKS in doubts else ("the GPU itself is not slow: nothing to drain",)
    return JobAnswer(
        Wall.UNEVEN_WORK, f"Uneven work: {who} has {amount} work than the others{waits}.",
        Certainty.HIGH if late is not None and CLOCKS not in doubts else Certainty.MEDIUM, lost,
        because=(more.text, *((late.text,) if late is not None else ())), doubts=doubts,
        advice=(
            "balance the work: sequence lengths, pipeline stages, experts, or the last, smaller shard", *own,
        ), gpu=more.uuid,
    )  # fmt: skip


def throttled(evidence: JobEvidence, gpu: JobGpu | None) -> tuple[str, ...]:
    """Return the reasons that hold this GPU's clocks down but not the clocks of all other GPUs of the job."""
    if gpu is None or isinstance(gpu.throttled, Absent):
        return ()
    others = [one.throttled for one in evidence.gpus if one.uuid != gpu.uuid]
    read = [one for one in others if not isinstance(one, Absent)]
    return tuple(r for r in gpu.throttled if not others or any(r not in one for one in read))


def _clocks(evidence: JobEvidence, gpu: JobGpu | None) -> tuple[str, ...]:
    """Return the doubt about a GPU's clocks, if there is one."""
    if gpu is None or isinstance(gpu.throttled, Absent):
        return (CLOCKS,)
    return ("that GPU is throttled too",) if throttled(evidence, gpu) else ()


def _gpu(evidence: JobEvidence, uuid: str) -> JobGpu | None:
    return next((one for one in evidence.gpus if one.uuid == uuid), None)


def _less_active(uuid: str, spent: JobSpending) -> tuple[float, float] | None:
    """Return the time in which something ran on this GPU, and on the others; None where it is as on these."""
    active = {gpu: 1 - one.value for gpu, one in spent.idle().items()}
    own = active.pop(uuid, 1.0)
    usual = low_median(active.values() or [0.0])
    return (own, usual) if usual - own >= LESS_ACTIVE else None
