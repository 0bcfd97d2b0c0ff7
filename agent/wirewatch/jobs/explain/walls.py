"""Which wall a running job hits: the decision, over all that is known of it. Pure.

In the order in which a wall hides those after it: a hang; a rank for which all wait, and why it is late; a
slow wire; GPUs on which nothing runs; memory; collectives that the wire carries as fast as it can. A job is
called free of walls only where both its collectives and its GPUs' activity are watched.
"""

from collections.abc import Callable, Sequence
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
from wirewatch.jobs.explain.wires import on_wire, timed_rows
from wirewatch.jobs.explain.words import gpu_name, operation, percent, rate
from wirewatch.jobs.times import CommunicatorTimes, LateRank, OperationTimes

LESS_ACTIVE = 0.08
"""A GPU on which so much less of the time something runs than on the others is kept waiting by its host.

Measured on two H200: 0.25 in a job whose loader stalls one GPU; at most 0.04 in all jobs in lockstep."""
WAITING = 0.03
"""Share of the time below which `explain` may say that nobody waits."""
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
    gpu = _find(evidence, late.gpu)
    if evidence.more is not None and gpu is not None and evidence.more.uuid == gpu.uuid:
        return _uneven(evidence, evidence.more, late)
    who = f"rank {late.rank} on {gpu_name(late.index, late.gpu)}"
    ours = ((len(one.here), one.nodes) for one in _communicators(evidence) if one.late == late)
    ranks, nodes = next(ours, (0, 0))
    others = f"{ranks - 1} of {ranks} ranks wait"
    cost = f"{'at most ' * late.at_most}{percent(late.cost)}"
    begun = f"Collectives: {others} for {who}, which costs {cost} of the time"
    base = JobAnswer(
        Wall.LATE_RANK, f"{begun}.", Certainty.LOW if late.at_most else Certainty.MEDIUM, late.cost,
        because=(late.text,), doubts=_OTHER_NODES if nodes > 1 else (),
    )  # fmt: skip
    reasons = _throttled(evidence, gpu)
    if reasons:
        return replace(
            base, sentence=f"{begun}: that GPU is throttled ({', '.join(reasons)}).",
            certainty=Certainty.HIGH, causes=reasons,
            because=(late.text, *_throttle_texts(evidence, late.gpu)),
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


_OTHER_NODES = (
    "a rank of another node may be later still: run `wirewatch explain` on the job's other nodes",
)


def _without_tap(evidence: JobEvidence) -> JobAnswer | None:
    """What the GPUs' activity alone shows."""
    hint = evidence.late
    if hint is not None:
        reasons = _throttled(evidence, _find(evidence, hint.uuid))
        why = f": it is throttled ({', '.join(reasons)})" if reasons else ""
        return JobAnswer(
            Wall.LATE_RANK,
            f"Collectives: the others wait for {gpu_name(hint.index, hint.uuid)}, whose SMs never wait{why}.",
            Certainty.MEDIUM if reasons else Certainty.LOW, NOT_WATCHED, reasons,
            because=(hint.text, *_throttle_texts(evidence, hint.uuid)),
            doubts=("what it costs is not known without the tap",),
            advice=("`wirewatch probe` on idle GPUs says whether that GPU itself is slow",),
        )  # fmt: skip
    for gpu in evidence.gpus:
        if less := _less_active(evidence, gpu):
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
    if _throttled(evidence, _find(evidence, more.uuid)):
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
    others = [value_or(one.throttled, ()) for one in evidence.gpus if one.uuid != gpu.uuid]
    return tuple(r for r in gpu.throttled if not others or not all(r in one for one in others))


def _throttle_texts(evidence: JobEvidence, uuid: str | Absent) -> tuple[str, ...]:
    return tuple(one.evidence for one in evidence.findings if one.rule == THROTTLE and one.gpu == uuid)


def _less_active(evidence: JobEvidence, gpu: JobGpu | None) -> tuple[float, float] | None:
    """How much of the time something ran on this GPU, and on the others; None where it is as on these."""
    if gpu is None or isinstance(gpu.graphics, Absent):
        return None
    others = [one.graphics for one in evidence.gpus if one.uuid != gpu.uuid]
    usual = low_median([one for one in others if not isinstance(one, Absent)] or [0.0])
    return (gpu.graphics, usual) if usual - gpu.graphics >= LESS_ACTIVE else None


def _find(evidence: JobEvidence, uuid: str | Absent) -> JobGpu | None:
    return next((gpu for gpu in evidence.gpus if gpu.uuid == uuid), None)


def _communicators(evidence: JobEvidence) -> tuple[CommunicatorTimes, ...]:
    return () if isinstance(evidence.job, Absent) else evidence.job.communicators


LEAST_IDLE, COARSE_IDLE = 0.12, 0.3
"""Share of the time without anything on the GPU from which on it is a wall: 0.06 in jobs in lockstep at most,
0.34 in one that stalls (measured on two H200); by utilisation alone, which is of the last second, more."""
NOTHING_RUNS = 0.98
DRAM, COLLECTIVES, MATH = 0.5, 0.25, 0.5
"""Shares of time from which on something is a wall. DRAM and MATH by measured windows of two H200: a job that
memory bounds keeps 59 % of the memory's bandwidth and 26 % of the tensor cores busy, data parallel training
17 and 90 %."""
ASLEEP, AWAKE = 0.5, 0.25
"""Of the idle time: a thread that is off its cores so much of it waits for something; one that is off so
little of it is launching, or computing, all the time."""


def idle_wall(evidence: JobEvidence) -> JobAnswer | None:
    """The answer where nothing runs on the GPUs for much of the time, alike on all; None elsewhere."""
    active = [gpu.graphics for gpu in evidence.gpus if not isinstance(gpu.graphics, Absent)]
    coarse = not active
    if coarse:
        active = [gpu.utilisation for gpu in evidence.gpus if not isinstance(gpu.utilisation, Absent)]
    if not active:
        return None
    idle = 1 - low_median(active)
    if idle < (COARSE_IDLE if coarse else LEAST_IDLE):
        return None
    threads = [gpu.thread for gpu in evidence.gpus if not isinstance(gpu.thread, Absent)]
    return _with_threads(idle, threads, coarse=coarse) if threads else _either(idle, coarse=coarse)


def _with_threads(idle: float, threads: Sequence[float], *, coarse: bool) -> JobAnswer:
    busy = low_median(threads)
    off = max(0.0, 1 - busy)
    because = (
        f"nothing ran on the GPUs {percent(idle)} of the time",
        f"the busiest thread of a process is on a core {percent(busy)} of the time",
    )
    certain = Certainty.LOW if coarse else Certainty.HIGH
    doubts = _COARSE if coarse else ()
    if off >= ASLEEP * idle:
        return JobAnswer(
            Wall.HOST,
            f"Host: nothing runs on the GPUs {percent(idle)} of the time, and their processes sleep: "
            "they wait for data, storage or another process.",
            certain, idle, because=because, doubts=doubts, advice=_HOST,
        )  # fmt: skip
    if off <= AWAKE * idle:
        return JobAnswer(
            Wall.LAUNCH_GAPS,
            f"Launch gaps: nothing runs on the GPUs {percent(idle)} of the time, while the thread that "
            f"launches kernels is busy {percent(busy)} of it: the kernels are too short for the host.",
            certain, idle, because=because, doubts=doubts, advice=_LAUNCH,
        )  # fmt: skip
    return _either(idle, coarse=coarse, because=because)


def _either(idle: float, *, coarse: bool, because: tuple[str, ...] = ()) -> JobAnswer:
    sentence = (
        "Host: nothing runs on the GPUs: the job is idle, or its host does something else."
        if idle >= NOTHING_RUNS
        else f"Host or launch gaps: nothing runs on the GPUs {percent(idle)} of the time; which of the two "
        "it is is not known."
    )
    return JobAnswer(
        Wall.HOST,
        sentence,
        Certainty.LOW, idle,
        because=because or (f"nothing ran on the GPUs {percent(idle)} of the time",),
        doubts=(
            *(_COARSE if coarse else ()),
            f"{EvidenceSource.THREADS.value}: whether they sleep or launch would decide",
        ),
        advice=(*_HOST, *_LAUNCH),
    )  # fmt: skip


_COARSE = ("utilisation of the last second only: GPM windows would be surer",)
_HOST = (
    "look at what the processes wait for, with `py-spy dump --pid` and `iostat`",
    "usual are too few loader workers, slow storage, tokenisation, and checkpoints",
)
_LAUNCH = (
    "use CUDA graphs (torch.compile with mode reduce-overhead; in servers no --enforce-eager)",
    "launch fewer and larger kernels, and keep .item() and synchronise out of the step",
)


def decide(evidence: JobEvidence) -> JobAnswer:
    """The wall that a job hits, with what shows it, what is not known, and what to do; pure."""
    found = next((made for wall in _WALLS if (made := wall(evidence)) is not None), None)
    answer = found or _no_wall(evidence)
    return replace(answer, doubts=(*answer.doubts, *_doubts(evidence, answer)))


def _hang(evidence: JobEvidence) -> JobAnswer | None:
    hang = evidence.hang
    if hang is None:
        return None
    return JobAnswer(
        Wall.HANG, f"Hang: {hang.text}.", Certainty.HIGH, 1.0, because=hang.evidence, advice=(hang.action,)
    )  # fmt: skip


def _late_or_wire(evidence: JobEvidence) -> JobAnswer | None:
    """Where one rank is late and a wire is slow too, the one that costs more."""
    late, wire = late_wall(evidence), _slow_wire(evidence)
    if late is None or wire is None:
        return late or wire
    more = value_or(late.cost, 0.0) >= value_or(wire.cost, 0.0)
    first, second = (late, wire) if more else (wire, late)
    return replace(first, because=(*first.because, second.sentence), advice=(*first.advice, *second.advice))


def _slow_wire(evidence: JobEvidence) -> JobAnswer | None:
    job = evidence.job
    if isinstance(job, Absent):
        return None
    elsewhere = next((comm.elsewhere for comm in job.communicators if comm.elsewhere), "")
    slow = job.wire
    if slow is None:
        return _elsewhere(elsewhere) if elsewhere else None
    cost = on_wire(job) * max(0.0, 1 - slow.ratio)
    causes = tuple(text.partition(":")[0] for text in slow.explained)
    why = f", because {causes[0]}" if causes else ""
    sentence = (
        f"Collectives: the wire is slow: {operation(slow.op, slow.size_bytes)} gets "
        f"{rate(slow.busbw)} of {rate(slow.expected)} ({percent(slow.ratio)}){why}; this costs about "
        f"{percent(cost)} of the time."
    )
    certain = Certainty.HIGH if slow.witnesses or causes else Certainty.MEDIUM
    return JobAnswer(
        Wall.SLOW_WIRE, sentence, certain, cost, causes,
        because=(slow.text, *(f"a second witness: {one}" for one in slow.witnesses)),
        doubts=() if slow.witnesses or causes else ("no second witness agrees that it is the wire",),
        advice=_wire_advice(slow.explained, slow.witnesses),
    )  # fmt: skip


def _wire_advice(explained: Sequence[str], witnesses: Sequence[str]) -> tuple[str, ...]:
    found = []
    settings = [text.partition("=")[0] for text in explained if "=" in text.partition(":")[0]]
    if settings:
        found.append(f"unset {', '.join(settings)} in the job, or say why it needs that")
    if any(text.startswith("NCCL ran") for text in explained):
        found.append(
            "let NCCL choose: unset NCCL_ALGO and NCCL_PROTO in the job, its wrapper scripts, ~/.nccl.conf "
            "and /etc/nccl.conf; a tuner plugin may choose too (NCCL_TUNER_PLUGIN)"
        )
    if any(not text.startswith("the job's own") for text in witnesses):
        found.append("look at the findings of this node: `wirewatch findings list`")
    if not found:
        found.append(
            "run `wirewatch probe` when the GPUs are idle: it measures the same wire without the job; "
            "NCCL_DEBUG=INFO with `wirewatch parse` shows the path that NCCL took"
        )
    return tuple(found)


def _elsewhere(text: str) -> JobAnswer:
    return JobAnswer(
        Wall.LATE_RANK, f"Collectives: {text}.", Certainty.MEDIUM, because=(text,),
        doubts=("what holds the job up is on another node: this one cannot say which",),
        advice=("run `wirewatch explain` on the job's other nodes: one of them names the rank or the wire",),
    )  # fmt: skip


def _memory(evidence: JobEvidence) -> JobAnswer | None:
    seen = [
        (gpu.dram, gpu.math, gpu.index)
        for gpu in evidence.gpus
        if not isinstance(gpu.dram, Absent) and not isinstance(gpu.math, Absent)
    ]
    if not seen:
        return None
    dram, math = low_median([one[0] for one in seen]), low_median([one[1] for one in seen])
    if dram < DRAM or dram <= math:
        return None
    sentence = (
        f"Memory: the GPUs' memory is busy {percent(dram)} of the time and their arithmetic {percent(math)}: "
        "the job is bound by memory bandwidth, not by the wires."
    )
    because = tuple(f"GPU {index}: memory {percent(d)}, arithmetic {percent(m)}" for d, m, index in seen)
    certain = Certainty.HIGH if evidence.watches(EvidenceSource.TAP) else Certainty.MEDIUM
    return JobAnswer(
        Wall.MEMORY, sentence, certain, dram, because=because,
        advice=(
            "larger batches, fused kernels, a lower precision of what is read most (weights, KV cache)",
            "no wire and no part of this node holds it up: nothing to drain",
        ),
    )  # fmt: skip


def _collectives(evidence: JobEvidence) -> JobAnswer | None:
    """Collectives that are as fast as the wire, take much of the time, and hide behind no computation."""
    job = evidence.job
    math = [gpu.math for gpu in evidence.gpus if not isinstance(gpu.math, Absent)]
    if isinstance(job, Absent) or not math or low_median(math) >= MATH:
        return None
    share, rows = on_wire(job), timed_rows(job)
    if share < COLLECTIVES:
        return None
    sentence = (
        f"Collectives: {percent(share)} of the time is on the wire, which gives what it should "
        f"({speed(rows)}); there is too much to send, or it does not overlap with computing."
    )
    return JobAnswer(
        Wall.COLLECTIVES, sentence, Certainty.MEDIUM, share,
        because=(f"arithmetic is busy {percent(low_median(math))} of the time meanwhile",),
        advice=(
            "send less (gradient accumulation, larger buckets, lower precision) or overlap it with computing",
            "`wirewatch advise cost` says what a collective of this size costs on other layouts",
        ),
    )  # fmt: skip


def _no_wall(evidence: JobEvidence) -> JobAnswer:
    """No wall found; whether there is none is only known where collectives and activity are both watched."""
    rows = timed_rows(evidence.job)
    timed = bool(rows) and any(comm.doubt is None and comm.fresh for comm in _communicators(evidence))
    active = evidence.watches(EvidenceSource.ACTIVITY)
    seen = []
    waits = _waits_for_whom(evidence) if timed else ""
    if timed:
        nobody = "" if waits else "nobody waits for a rank, "
        seen.append(f"{nobody}the collectives run at {speed(rows)}")
    if active:
        seen.append("the GPUs are kept busy below the limit of their memory")
    if timed and active and not waits:
        others = all(map(evidence.watches, (EvidenceSource.GPU, EvidenceSource.HANGS)))
        others = others and not any(comm.source for comm in _communicators(evidence))
        certain = Certainty.HIGH if others else Certainty.MEDIUM
        sentence = f"No wall of this node: {', and '.join(seen)}."
        return JobAnswer(Wall.NOTHING, sentence, certain, 0.0, because=tuple(seen))
    missing = [waits] if waits else [] if timed else ["its collectives are not timed"]
    missing += [] if active else ["memory, launch gaps and host are not watched"]
    begun = f"{'; '.join(seen)}, but " if seen else ""
    sentence = f"Not known what holds it up: {begun}{' and '.join(missing)}."
    off = [one for one in evidence.sources if not one.watched]
    advice = tuple(f"{one.source.value}: {one.switch_on}" for one in off)
    return JobAnswer(Wall.NOT_KNOWN, sentence, Certainty.LOW, because=tuple(seen), advice=advice)


def _waits_for_whom(evidence: JobEvidence) -> str:
    """Say why it is not known that nobody waits, where NCCL Inspector writes no starts or no times."""
    comms = [comm for comm in _communicators(evidence) if comm.source]
    if any(comm.doubt is not None or not comm.fresh for comm in comms):
        return "not all of its communicators are judged now"
    ranks = (rank for comm in comms if comm.newest for rank in comm.newest.ranks)
    most = max((rank.waiting for rank in ranks), default=0.0)
    hidden = f"a rank waits {percent(most)} of the time, which may hide behind its computing"
    return hidden if most >= WAITING else ""


def speed(rows: Sequence[OperationTimes]) -> str:
    """Got against expected of the operation that takes most time."""
    for row in rows:
        if not isinstance(row.best, Absent) and not isinstance(row.expected, Absent):
            return f"{rate(row.best)} of {rate(row.expected)} expected"
    for row in rows:
        if not isinstance(row.busbw, Absent):
            return f"{rate(row.busbw)}, nothing known to expect"
    if any(not row.size_bytes for row in rows):
        return "a speed that is not known, since NCCL does not name the type of their elements"
    return "small messages, whose time is latency"


def _doubts(evidence: JobEvidence, answer: JobAnswer) -> tuple[str, ...]:
    found = [
        f"{one.source.value}: not watched: {one.why or one.switch_on}"
        for one in evidence.sources
        if not one.watched and one.source in _MATTERS[answer.wall]
    ]
    found += [
        f"timed by {source}: without starts, algorithms and protocols, so that waiting may cost less"
        for source in sorted({comm.source for comm in _communicators(evidence)} - {""})
    ]
    judged = ((comm.id, comm.doubt) for comm in _communicators(evidence))
    return (*found, *(f"communicator {id_} is not judged: {doubt.value}" for id_, doubt in judged if doubt))


_WALLS: tuple[Callable[[JobEvidence], JobAnswer | None], ...] = (
    _hang, _late_or_wire, idle_wall, _memory, _collectives,
)  # fmt: skip
_ALL = frozenset(EvidenceSource)
_MATTERS = {
    Wall.HANG: frozenset({EvidenceSource.TAP}),
    Wall.SLOW_WIRE: frozenset({EvidenceSource.SETTINGS, EvidenceSource.HANGS}),
    Wall.LATE_RANK: frozenset({EvidenceSource.TAP, EvidenceSource.ACTIVITY, EvidenceSource.GPU}),
    Wall.UNEVEN_WORK: frozenset({EvidenceSource.TAP}),
    Wall.HOST: frozenset({EvidenceSource.TAP, EvidenceSource.THREADS}),
    Wall.LAUNCH_GAPS: frozenset({EvidenceSource.TAP}),
    Wall.MEMORY: frozenset({EvidenceSource.TAP}),
    Wall.COLLECTIVES: frozenset({EvidenceSource.SETTINGS}),
    Wall.NOTHING: _ALL,
    Wall.NOT_KNOWN: _ALL,
}
"""The sources that would change the answer, or make it surer."""
