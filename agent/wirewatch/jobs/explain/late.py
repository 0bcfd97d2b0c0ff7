"""The rank or GPU for which the others wait, and why: throttled, more work, its host, or not known."""

from dataclasses import replace

from wirewatch.core.statistics import low_median
from wirewatch.core.types import Absent
from wirewatch.jobs.explain.evidence import (
    NOT_WATCHED,
    Certainty,
    JobAnswer,
    JobEvidence,
    JobGpu,
    MoreWork,
    Wall,
)
from wirewatch.jobs.explain.words import gpu_name, percent
from wirewatch.jobs.times import CommunicatorTimes, LateRank

LESS_ACTIVE = 0.08
"""A GPU on which so much less of the time something runs than on the others is kept waiting by its host.

Measured on two H200: 0.25 in a job whose loader stalls one GPU; at most 0.04 in all jobs in lockstep."""
THROTTLE = "gpu.throttle"


def late_wall(evidence: JobEvidence) -> JobAnswer | None:
    """The answer where the others wait for one GPU; None where nobody is waited for."""
    late = None if isinstance(evidence.job, Absent) else evidence.job.late
    if late is not None:
        return _explained(evidence, late)
    if evidence.more is not None:
        return _uneven(evidence, evidence.more, None)
    return _without_tap(evidence)


def _explained(evidence: JobEvidence, late: LateRank) -> JobAnswer:
    """What the tap measured, and beside it what else is known of the late rank's GPU."""
    gpu = _find(evidence, late.gpu, late.index)
    if evidence.more is not None and gpu is not None and evidence.more.uuid == gpu.uuid:
        return _uneven(evidence, evidence.more, late)
    who = f"rank {late.rank} on {gpu_name(late.index, late.gpu)}"
    ranks = max((len(c.here) for c in _communicators(evidence) if c.late == late), default=0)
    others = f"{ranks - 1} of {ranks} ranks wait" if ranks > 1 else "the others wait"
    begun = f"Collectives: {others} for {who}, which costs {percent(late.cost)} of the time"
    base = JobAnswer(
        Wall.LATE_RANK, f"{begun}.", Certainty.MEDIUM, late.cost, because=(late.text,),
        doubts=_of_other_nodes(evidence, late),
    )  # fmt: skip
    reasons = _throttled(evidence, gpu)
    if reasons:
        return replace(
            base, sentence=f"{begun}: that GPU is throttled ({', '.join(reasons)}).",
            certainty=Certainty.HIGH, causes=reasons, because=(late.text, *_throttle_texts(evidence, gpu)),
            advice=("check power and cooling of that GPU; `wirewatch findings list` names the reason",),
        )  # fmt: skip
    less = _less_active(evidence, gpu)
    if less is not None:
        return _host_of(base, who, less, late.cost)
    if evidence.late is not None and gpu is not None and evidence.late.uuid == gpu.uuid:
        # Two that know nothing of each other: the tap's clocks, and the GPU's own activity.
        base = replace(base, certainty=Certainty.HIGH, because=(*base.because, evidence.late.text))
    advice = (
        f"profile process {'?' if isinstance(late.pid, Absent) else late.pid} with py-spy or nsys",
        "look for more work, a slower loader, or another program on its GPU or cores",
        "`wirewatch probe` on idle GPUs says whether that GPU itself is slow",
    )
    return replace(base, doubts=(*base.doubts, "why that rank is late is not known"), advice=advice)


def _of_other_nodes(evidence: JobEvidence, late: LateRank) -> tuple[str, ...]:
    """The doubt about a late rank whose communicator spans several nodes, of which this one is seen alone."""
    if all(comm.nodes == 1 for comm in _communicators(evidence) if comm.late == late):
        return ()
    return ("a rank of another node may be later still: run `wirewatch explain` on the job's other nodes",)


def _without_tap(evidence: JobEvidence) -> JobAnswer | None:
    """What the GPUs' activity alone shows."""
    hint = evidence.late
    if hint is not None:
        gpu = _find(evidence, hint.uuid, hint.index)
        reasons = _throttled(evidence, gpu)
        why = f": it is throttled ({', '.join(reasons)})" if reasons else ""
        return JobAnswer(
            Wall.LATE_RANK,
            f"Collectives: the others wait for {gpu_name(hint.index, hint.uuid)}, whose SMs never wait{why}.",
            Certainty.MEDIUM if reasons else Certainty.LOW, NOT_WATCHED, reasons,
            because=(hint.text, *_throttle_texts(evidence, gpu)),
            doubts=("what it costs is not known without the tap",),
            advice=("`wirewatch probe` on idle GPUs says whether that GPU itself is slow",),
        )  # fmt: skip
    for gpu in evidence.gpus:
        less = _less_active(evidence, gpu)
        if less is not None:
            base = JobAnswer(Wall.HOST, "", Certainty.LOW)
            return _host_of(base, gpu_name(gpu.index, gpu.uuid), less, None)
    return None


def _host_of(base: JobAnswer, who: str, less: tuple[float, float], cost: float | None) -> JobAnswer:
    own, others = less
    costs = f", which costs {percent(cost)} of the time" if cost is not None else ""
    return replace(
        base,
        wall=Wall.HOST,
        sentence=(
            f"Host: the others wait for {who}{costs}: something runs on its GPU only {percent(own)} of the "
            f"time, on the others {percent(others)}, so its process keeps it waiting."
        ),
        certainty=Certainty.HIGH if cost is not None else Certainty.MEDIUM,
        because=(*base.because, f"GPU active {percent(own)} of the time against {percent(others)}"),
        advice=(
            "look at what that process waits for, with `py-spy dump --pid` and `pidstat -t -p`",
            "usual are its loader, storage, garbage collection, and cores that it shares",
        ),
    )


def _uneven(evidence: JobEvidence, more: MoreWork, late: LateRank | None) -> JobAnswer:
    who = gpu_name(more.index, more.uuid)
    amount = f"{percent(more.more)} more" if not isinstance(more.more, Absent) else "more"
    share = late.cost if late is not None and isinstance(more.waiting, Absent) else more.waiting
    waits = f"; the others wait {percent(share)} of the time" if not isinstance(share, Absent) else ""
    doubts = () if late is not None else ("waiting is inferred from activity: the tap would measure it",)
    if _throttled(evidence, _find(evidence, more.uuid, more.index)):
        doubts = (*doubts, "that GPU is throttled too")
    return JobAnswer(
        Wall.UNEVEN_WORK,
        f"Uneven work: {who} has {amount} work than the others{waits}.",
        Certainty.HIGH if late is not None else Certainty.MEDIUM,
        share,
        because=(more.text, *((late.text,) if late is not None else ())),
        doubts=doubts,
        advice=(
            "balance the work: sequence lengths, pipeline stages, experts, or the last, smaller shard",
            "the GPU itself is not slow: nothing to drain",
        ),
    )


def _throttled(evidence: JobEvidence, gpu: JobGpu | None) -> tuple[str, ...]:
    """The reasons that hold this GPU's clocks down and not those of all others of the job."""
    if gpu is None or isinstance(gpu.throttled, Absent):
        return ()
    others = [one.throttled for one in evidence.gpus if one.uuid != gpu.uuid]
    everywhere = [
        reason
        for reason in gpu.throttled
        if others and all(not isinstance(one, Absent) and reason in one for one in others)
    ]
    return tuple(reason for reason in gpu.throttled if reason not in everywhere)


def _throttle_texts(evidence: JobEvidence, gpu: JobGpu | None) -> tuple[str, ...]:
    if gpu is None:
        return ()
    return tuple(one.evidence for one in evidence.findings if one.rule == THROTTLE and one.gpu == gpu.uuid)


def _less_active(evidence: JobEvidence, gpu: JobGpu | None) -> tuple[float, float] | None:
    """How much of the time something ran on this GPU, and on the others; None where it is as on these."""
    others = [
        one.graphics
        for one in evidence.gpus
        if gpu is not None and one.uuid != gpu.uuid and not isinstance(one.graphics, Absent)
    ]
    if gpu is None or isinstance(gpu.graphics, Absent) or not others:
        return None
    usual = low_median(others)
    return (gpu.graphics, usual) if usual - gpu.graphics >= LESS_ACTIVE else None


def _find(evidence: JobEvidence, uuid: str | Absent, index: str) -> JobGpu | None:
    if not isinstance(uuid, Absent):
        return next((gpu for gpu in evidence.gpus if gpu.uuid == uuid), None)
    return next((gpu for gpu in evidence.gpus if index and gpu.index == index), None)


def _communicators(evidence: JobEvidence) -> tuple[CommunicatorTimes, ...]:
    return () if isinstance(evidence.job, Absent) else evidence.job.communicators
