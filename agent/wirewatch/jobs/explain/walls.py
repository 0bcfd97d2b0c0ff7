"""Which wall a running job hits: the decision, over all that is known of it. Pure.

In the order in which a wall hides those after it: a hang; a rank for which all wait, and why it is late; a
slow wire; GPUs on which nothing runs; memory; collectives that the wire carries as fast as it can. A job is
called free of walls only where both its collectives and its GPUs' activity are watched.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from wirewatch.core.statistics import low_median
from wirewatch.core.types import Absent
from wirewatch.jobs.explain.evidence import (
    Certainty,
    EvidenceSource,
    JobAnswer,
    JobEvidence,
    Wall,
)
from wirewatch.jobs.explain.late import late_wall
from wirewatch.jobs.explain.wires import on_wire, timed_rows
from wirewatch.jobs.explain.words import operation, percent, rate
from wirewatch.jobs.times import OperationTimes

LEAST_IDLE, COARSE_IDLE = 0.12, 0.3
"""Share of the time without anything on the GPU from which on it is a wall: 0.06 in jobs in lockstep at most,
0.34 in one that stalls (measured on two H200); by utilisation alone, which is of the last second, more."""
NOTHING_RUNS = 0.98
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


class WallLimits:
    """From when on something is a wall; shares of time, 0 to 1.

    DRAM and MATH by measured windows of two H200: a memory-bound job keeps 59 % of the memory's bandwidth
    busy and 26 % of the tensor cores, data parallel training 17 and 90 %.
    """

    DRAM: ClassVar[float] = 0.5
    COLLECTIVES: ClassVar[float] = 0.25
    MATH: ClassVar[float] = 0.5


def decide(evidence: JobEvidence) -> JobAnswer:
    """The wall that a job hits, with what shows it, what is not known, and what to do; pure."""
    found = next((made for wall in _WALLS if (made := wall(evidence)) is not None), None)
    answer = found or _no_wall(evidence)
    return replace(answer, doubts=(*answer.doubts, *_doubts(evidence, answer)))


def _hang(evidence: JobEvidence) -> JobAnswer | None:
    hang = evidence.hang
    if hang is None:
        return None
    certain = Certainty.HIGH if evidence.watches(EvidenceSource.HANGS) else Certainty.MEDIUM
    advice = (hang.action,) if hang.action else ()
    return JobAnswer(
        Wall.HANG, f"Hang: {hang.text}.", certain, 1.0, because=hang.evidence, advice=advice
    )  # fmt: skip


def _late_or_wire(evidence: JobEvidence) -> JobAnswer | None:
    """Where one rank is late and a wire is slow too, the one that costs more."""
    late, wire = late_wall(evidence), _slow_wire(evidence)
    if late is None or wire is None:
        return late or wire
    first, second = (late, wire) if _cost(late) >= _cost(wire) else (wire, late)
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
    if dram < WallLimits.DRAM or dram <= math:
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
    if isinstance(job, Absent) or not math or low_median(math) >= WallLimits.MATH:
        return None
    share, rows = on_wire(job), timed_rows(job)
    if share < WallLimits.COLLECTIVES or not rows:
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
    timed = bool(rows) and not _undecided(evidence)
    active = evidence.watches(EvidenceSource.ACTIVITY)
    seen = []
    if timed:
        seen.append(f"nobody waits for a rank, the collectives run at {speed(rows)}")
    if active:
        seen.append("the GPUs are kept busy below the limit of their memory")
    if timed and active:
        others = all(map(evidence.watches, (EvidenceSource.GPU, EvidenceSource.HANGS)))
        certain = Certainty.HIGH if others else Certainty.MEDIUM
        sentence = f"No wall of this node: {', and '.join(seen)}."
        return JobAnswer(Wall.NOTHING, sentence, certain, 0.0, because=tuple(seen))
    missing = [] if timed else ["its collectives are not timed"]
    missing += [] if active else ["memory, launch gaps and host are not watched"]
    begun = f"{'; '.join(seen)}, but " if seen else ""
    sentence = f"Not known what holds it up: {begun}{' and '.join(missing)}."
    return JobAnswer(
        Wall.NOT_KNOWN, sentence, Certainty.LOW, because=tuple(seen), advice=_switch_on(evidence)
    )


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


def _switch_on(evidence: JobEvidence) -> tuple[str, ...]:
    return tuple(
        f"{one.source.value}: {one.switch_on}"
        for one in evidence.sources
        if not one.watched and one.switch_on
    )


def _undecided(evidence: JobEvidence) -> bool:
    """Whether no communicator of the job is judged."""
    job = evidence.job
    return isinstance(job, Absent) or all(comm.doubt is not None for comm in job.communicators)


def _doubts(evidence: JobEvidence, answer: JobAnswer) -> tuple[str, ...]:
    found = [
        f"{one.source.value}: not watched: {one.why or one.switch_on}"
        for one in evidence.sources
        if not one.watched and one.source in _MATTERS[answer.wall]
    ]
    if not isinstance(evidence.job, Absent):
        found += [
            f"communicator {comm.id} is not judged: {comm.doubt.value}"
            for comm in evidence.job.communicators
            if comm.doubt is not None
        ]
    return tuple(found)


def _cost(answer: JobAnswer) -> float:
    return 0.0 if isinstance(answer.cost, Absent) else answer.cost


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
