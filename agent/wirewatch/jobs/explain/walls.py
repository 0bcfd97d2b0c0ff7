"""Decide which wall a running job hits, from all evidence about it. Pure.

In order: a hang; a job that stands still; its first minute; the largest share of its ledger apart from
computing, with its explanation; memory. Without a ledger only a late rank and a slow wire are named, with low
certainty.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from wirewatch.core.types import Absent, value_or
from wirewatch.core.words import count, either, first, span
from wirewatch.jobs.explain.evidence import (
    NOT_BEGUN,
    NOT_WATCHED,
    Certainty,
    EvidenceSource,
    HungJob,
    JobAnswer,
    JobEvidence,
    JobGpu,
    Wall,
)
from wirewatch.jobs.explain.late import DISAGREES, LESS_ACTIVE, late_walls
from wirewatch.jobs.explain.ranks import communicators, rank_name
from wirewatch.jobs.explain.spending import (
    HALF,
    NAMED,
    NOBODY,
    JobSpending,
    covered,
    mean_of,
    shares_of,
    spending,
)
from wirewatch.jobs.explain.wires import timed_rows, wire_walls
from wirewatch.jobs.explain.words import gpu_name, in_words, percent, rate
from wirewatch.jobs.ledger.spent import RankBehind, Spent, is_share
from wirewatch.jobs.times import CommunicatorTimes, OperationTimes

LEAST = 10.0
"""Seconds of a ledger without which nothing is said to be well."""
STILL = 10.0
"""Seconds without a call from which on a rank behind the others makes a job stand still."""
EACH_OTHER = 0.1
"""Share of the time from which on it is said that GPUs wait for each other in turn."""
LEAST_IDLE = 0.12
"""Share of the time without anything on the GPU from which on idling is a wall. Measured on two H200: 0.06 at
most in jobs in lockstep, 0.34 in a job that stalls."""
NOTHING_RUNS = 0.98
DRAM, COLLECTIVES, MATH = 0.5, 0.25, 0.5
"""Shares of time from which on each is a wall. DRAM and MATH come from measured windows of two H200. A
memory-bound job keeps 59 % of the memory's bandwidth and 26 % of the tensor cores busy, data parallel
training 17 and 90 %."""
ASLEEP, AWAKE = 0.5, 0.25
"""Shares of the idle time. A thread off its cores for the first share waits for something. A thread off its
cores for less than the second always launches or computes."""
SPINS, REST = 0.95, 1.2
"""Least busy share of a GPU that waits in a kernel, and the most power, relative to idle GPUs, called
idle."""
_GPUS = 8
"""Names in a sentence."""
_STARTING = JobAnswer(
    Wall.STARTING, "Starting: it was first seen less than a minute ago, or has not worked yet.",
    Certainty.LOW, advice=("ask again in a minute",),
)  # fmt: skip
_NOT_ONE = ", nor that they are of one job"
FULL_SPEED = 0.9
"""A wire is good from this share of its expected bandwidth on. [share]"""
_HOST = (
    "look at what the processes wait for, with `py-spy dump --pid` and `iostat`",
    "usual are too few loader workers, slow storage, tokenisation, and checkpoints",
)
_LAUNCH = (
    "use CUDA graphs (torch.compile with mode reduce-overhead; in servers no --enforce-eager)",
    "launch fewer and larger kernels, and keep .item() and synchronise out of the step",
)


def decide(evidence: JobEvidence) -> JobAnswer:
    """Return the wall that a job hits, its evidence, what is not known, and advice."""
    answer = _standing(evidence) if evidence.hang is None else _hang(evidence.hang)
    if answer is None:
        answer = _by_shares(evidence)
        if not isinstance(evidence.ledger, Absent) and evidence.ledger.starting:
            answer = answer if _timed(evidence, answer) else _STARTING
    return replace(answer, doubts=(*answer.doubts, *_doubts(evidence, answer)))


def _by_shares(evidence: JobEvidence) -> JobAnswer:
    """Return the answer by the largest share; a wall that the ledger does not show is a doubt of another."""
    spent = spending(evidence.ledger)
    late = late_walls(evidence, spent)
    found = [*late, *wire_walls(evidence, spent)]
    if spent is None:
        # The ledger would decide.
        return replace(_joined(found) or _unbooked(evidence, spent), certainty=Certainty.LOW)
    accused = {one.gpu for one in late if DISAGREES not in one.doubts}
    found += _unattributed(evidence, spent)
    rest = (idle_wall(evidence, spent, accused), _collectives(evidence, spent))
    found += [one for one in rest if one is not None]
    walls = [one for one in found if DISAGREES not in one.doubts or value_or(one.cost, 0.0) >= NAMED]
    unseen = tuple(one.sentence for one in found if one not in walls)
    blind = _blind(evidence, spent)
    answer = _joined(walls) or blind or _memory(evidence) or _no_wall(evidence, spent, unseen)
    firm = evidence.one_job and evidence.watches(EvidenceSource.HANGS)
    firm = firm and not (blind or unseen or spent.uncertain)
    return replace(
        answer, because=(*answer.because, *spent.texts), doubts=(*answer.doubts, *unseen),
        certainty=answer.certainty if firm or answer.certainty is Certainty.LOW else Certainty.MEDIUM,
    )  # fmt: skip


def _hang(hang: HungJob) -> JobAnswer:
    certain = Certainty.MEDIUM if hang.suspected else Certainty.HIGH
    return JobAnswer(Wall.HANG, f"Hang: {hang.text}.", certain, 1.0, (), hang.evidence, (), (hang.action,))


def _standing(evidence: JobEvidence) -> JobAnswer | None:
    """Return the answer for a job that moves no more, before anything says that it hangs."""
    standing, ledger = evidence.standing, evidence.ledger
    behind = () if isinstance(ledger, Absent) else ledger.behind
    still = [one for one in behind if standing is not None or one.seconds >= STILL]
    if standing is None and not still:
        return None
    seconds = max(one.seconds for one in still) if standing is None else evidence.now - standing.since
    seen = [_behind(evidence, one) for one in still]
    text = [standing.text] if standing else []
    said = [*text, *seen] if standing and standing.busy else [*seen, *text]
    pids = [str(one.pid) for one in still if one.pid is not None]
    return JobAnswer(
        Wall.STANDING, f"Stands still since {span(max(0.0, seconds))}: {said[0]}.", Certainty.MEDIUM,
        1.0, because=tuple(said), doubts=("nobody has been asked yet why",),
        advice=(
            f"look at process {', '.join(pids) or '?'} with py-spy or gdb",
            "wait: NCCL's RAS is asked while it lasts, and a finding says what it is if it hangs",
        ),
        gpu=still[0].gpu if still else "",
    )  # fmt: skip


def _behind(evidence: JobEvidence, one: RankBehind) -> str:
    rank = rank_name(evidence, one.rank, one.communicator, one.pid)
    does = f" (its process: {one.does})" if one.does else ""
    gpu = gpu_name(one.index, one.gpu, evidence.host)
    return f"{rank} on {gpu} has not launched {count(one.calls, 'collective')} that others have{does}"


def _timed(evidence: JobEvidence, answer: JobAnswer) -> bool:
    """Tell whether windows of timed collectives name what an answer names, and the ledger shows it."""
    job = evidence.job
    if isinstance(job, Absent) or answer.certainty is Certainty.LOW:
        return False
    named = job.late is not None and answer.gpu == job.late.gpu
    return named or (job.wire is not None and answer.wall is Wall.SLOW_WIRE)


def _joined(walls: Sequence[JobAnswer]) -> JobAnswer | None:
    """Return the answer that costs most, with the others as what is known beside it."""
    if not walls:
        return None
    largest, *others = sorted(walls, key=lambda one: -value_or(one.cost, 0.0))
    because = (*largest.because, *(one.sentence for one in others))
    advice = dict.fromkeys((*largest.advice, *(text for one in others for text in one.advice[:1])))
    return replace(largest, because=because, advice=tuple(advice))


def _unattributed(evidence: JobEvidence, spent: JobSpending) -> list[JobAnswer]:
    """Return the answers for waiting of which nobody is known to be the cause, and for what is not known."""
    share, waited, each, found = spent.unknown(), spent.unnamed(), spent.of(Spent.LOCAL_RANK), []
    certain = Certainty.MEDIUM if evidence.watches(EvidenceSource.TAP) else Certainty.LOW
    advice = ("`py-spy dump --pid` of each process shows in which call it waits", *_switches(evidence))
    if waited.value >= NAMED:
        sentence = f"{waited} is waiting that could not be attributed{_spinning(evidence, spent)}."
        found.append(JobAnswer(Wall.NOT_ATTRIBUTED, sentence, certain, waited.value, advice=advice))
    elif share.value >= NAMED:
        sentence = f"Not known: {share} could not be attributed: nothing shows whether its GPUs work or wait"
        found.append(_not_known(evidence, f"{sentence}{_NOT_ONE * (not evidence.one_job)}.", share.value))
    if each.value >= EACH_OTHER and not {*spent.late()} & {gpu.uuid for gpu in evidence.gpus}:
        sentence = f"Collectives: the GPUs wait for each other {each}, and for no single one."
        found.append(JobAnswer(Wall.NOT_ATTRIBUTED, sentence, certain, each.value, advice=advice))
    return found


def _spinning(evidence: JobEvidence, spent: JobSpending) -> str:
    """Return in words which GPUs wait in a kernel, for nobody who is known, and which are idle."""
    unknown = {one.gpu for one in spent.judged if one.waiting >= HALF}
    idle = {uuid for uuid, share in spent.idle().items() if share.value >= HALF}
    rest = [value_or(gpu.power, 0.0) for gpu in evidence.gpus if gpu.uuid in idle]
    said: list[str] = []
    for gpu in evidence.gpus:
        name = gpu_name(gpu.index, gpu.uuid, "" if said else evidence.host)
        if gpu.uuid in unknown and value_or(gpu.utilisation, 0.0) >= SPINS:
            watts = value_or(gpu.power, 0.0)
            power = f" at {'idle power, ' * (0 < watts <= REST * max(rest, default=0.0))}{watts:.0f} W"
            said.append(f"{name} is {percent(gpu.utilisation)} busy{power if watts else ''}, and waits")
        elif gpu.uuid in idle:
            said.append(f"nothing runs on {name}")
    return f": {first(said, _GPUS, '; ')}" if said else ""


def idle_wall(evidence: JobEvidence, spent: JobSpending, accused: Collection[str]) -> JobAnswer | None:
    """Return the answer where nothing runs on GPUs for much of the time; None elsewhere.

    Some GPUs are named where the others are clearly less idle: these may wait for them.
    """
    shares = {uuid: one.value for uuid, one in spent.idle().items()}
    idle = [g for g in evidence.gpus if shares.get(g.uuid, 0.0) >= LEAST_IDLE and g.uuid not in accused]
    rest = [uuid for uuid, share in shares.items() if share < LEAST_IDLE]
    if rest:
        idle = [gpu for gpu in idle if spent.idler(gpu.uuid, rest) >= LESS_ACTIVE]
    if not idle:
        return None
    every = len(idle) == len(evidence.gpus)
    names = first([gpu_name(gpu.index, gpu.uuid) for gpu in idle], _GPUS)
    names += f" of {evidence.host}" if evidence.host else ""
    made = _of_threads(idle, "the GPUs" if every else names, min(shares[gpu.uuid] for gpu in idle), spent)
    made = replace(made, cost=sum(shares[gpu.uuid] for gpu in idle) / len(evidence.gpus))
    if every:
        return made
    doubts = (f"whether the others wait for {names} is not known", *made.doubts)
    return replace(made, certainty=Certainty.LOW, doubts=doubts, gpu=idle[0].uuid)


def _of_threads(idle: Sequence[JobGpu], where: str, share: float, spent: JobSpending) -> JobAnswer:
    """Return why nothing runs on these GPUs, by the threads of all of their processes."""
    threads, names = [gpu.thread for gpu in idle if is_share(gpu.thread)], {gpu.uuid for gpu in idle}
    does = dict.fromkeys(one.idle for one in spent.judged if one.idle and one.gpu in names)
    meanwhile = f" ({either(list(does), 'and')})" if does else ""
    nothing = f"nothing runs on {where} {percent(share)} of the time"
    because: tuple[str, ...] = (f"nothing ran on {where} {percent(share)} of the time",)
    if threads:
        busy = " to ".join(dict.fromkeys(map(percent, (min(threads), max(threads)))))
        because = (*because, f"the busiest thread of a process is on a core {busy} of the time")
    sleep = "their processes sleep" if len(idle) > 1 else "its process sleeps"
    every = len(threads) == len(idle)
    if every and 1 - max(threads) >= ASLEEP * share:
        said = f"Host: {nothing}, and {sleep}{meanwhile}: waiting for data, storage or another process."
        return JobAnswer(Wall.HOST, said, Certainty.HIGH, because=because, advice=_HOST)
    if every and 1 - min(threads) <= AWAKE * share:
        busy = f"while the thread that launches kernels is busy {busy} of it"
        said = f"Launch gaps: {nothing}, {busy}: the kernels are too short for the host."
        return JobAnswer(Wall.LAUNCH_GAPS, said, Certainty.HIGH, because=because, advice=_LAUNCH)
    said = (
        f"Host: nothing runs on {where}{meanwhile}: the job is idle, or its host does something else."
        if share >= NOTHING_RUNS
        else f"Host or launch gaps: {nothing}{meanwhile}; which of the two it is is not known."
    )
    doubts = (f"{EvidenceSource.THREADS.value}: whether they sleep or launch would decide",)
    return JobAnswer(
        Wall.HOST, said, Certainty.LOW, because=because, doubts=doubts, advice=(*_HOST, *_LAUNCH)
    )  # fmt: skip


def _memory(evidence: JobEvidence) -> JobAnswer | None:
    """Return the answer where the memory of every GPU is busier than its arithmetic."""
    seen = [(g.dram, g.math, g.index) for g in evidence.gpus if is_share(g.dram) and is_share(g.math)]
    if len(seen) < len(evidence.gpus) or any(dram < DRAM or dram <= math for dram, math, _ in seen):
        return None
    dram, math = min(one[0] for one in seen), max(one[1] for one in seen)
    sentence = (
        f"Memory: the GPUs' memory is busy {percent(dram)} of the time and their arithmetic {percent(math)}: "
        "the job is bound by memory bandwidth, not by the wires."
    )
    because = tuple(f"GPU {index}: memory {percent(d)}, arithmetic {percent(m)}" for d, m, index in seen)
    certain = Certainty.HIGH if evidence.watches(EvidenceSource.TAP) else Certainty.LOW
    return JobAnswer(
        Wall.MEMORY, sentence, certain, dram, because=because,
        advice=(
            "larger batches, fused kernels, a lower precision of what is read most (weights, KV cache)",
            "no wire and no part of this node holds it up: nothing to drain",
        ),
    )  # fmt: skip


def _collectives(evidence: JobEvidence, spent: JobSpending) -> JobAnswer | None:
    """Return the answer where collectives take much of the time, and hide behind no computation."""
    share, rows = spent.of(Spent.WIRE), timed_rows(evidence.job)
    math = [gpu.math for gpu in evidence.gpus if is_share(gpu.math) and gpu.math < MATH]
    if isinstance(evidence.job, Absent) or share.value < COLLECTIVES or len(math) < len(evidence.gpus):
        return None
    ratios = [row.best_ratio or 0.0 for row in rows if not row.small]
    full = bool(ratios) and all(ratio >= FULL_SPEED for ratio in ratios)
    gives = "which gives" if full else "of which nothing shows that it gives"
    sentence = (
        f"Collectives: {share} is on the wire, {gives} what it should ({speed(rows)}); there is too much to "
        "send, or it does not overlap with computing."
    )
    return JobAnswer(
        Wall.COLLECTIVES, sentence, Certainty.MEDIUM if full else Certainty.LOW, share.value,
        because=(f"arithmetic is busy {percent(max(math))} of the time meanwhile",),
        advice=(
            "send less (gradient accumulation, larger buckets, lower precision) or overlap it with computing",
            "`wirewatch advise cost` says what a collective of this size costs on other layouts",
        ),
    )  # fmt: skip


def _no_wall(evidence: JobEvidence, spent: JobSpending, unseen: Collection[str]) -> JobAnswer:
    """Return the answer where no wall is found: that there is none takes all sources, and all GPUs."""
    comms, runs = communicators(evidence), _runs(evidence)
    nobody = bool(runs) and all(one.doubt is None and one.fresh and _waits_little(one) for one in comms)
    nobody = nobody and not unseen and evidence.one_job and spent.most_waiting() < NOBODY
    said = (in_words(shares_of(spent.judged)), "nobody waits" if nobody else "", runs)
    seen = tuple(one for one in said if one)
    watched = all(map(evidence.watches, (EvidenceSource.TAP, EvidenceSource.HANGS))) and not unseen
    watched = watched and all(is_share(one.dram) and is_share(one.math) for one in evidence.gpus)
    all_seen = nobody and watched and not any(isinstance(one.throttled, Absent) for one in evidence.gpus)
    nothing = all_seen and spent.lost() < NOBODY
    certain = Certainty.MEDIUM if watched else Certainty.LOW
    if all_seen and not any(one.source for one in comms):
        certain = Certainty.HIGH
    none = f"No cause of {percent(NAMED)} or more is {'sure' if unseen else 'known'}"
    begun = "Nothing of this node holds it up" if nothing else none
    wall = Wall.NOTHING if nothing else Wall.COMPUTING
    return JobAnswer(wall, f"{begun}: {'; '.join(seen)}.", certain, 0.0, because=seen[1:])


def _blind(evidence: JobEvidence, spent: JobSpending) -> JobAnswer | None:
    """Return the answer where the ledger cannot say how all GPUs of a job spend their time now; else None."""
    here = {gpu.uuid for gpu in evidence.gpus}
    if not here or not here <= {one.gpu for one in spent.judged}:
        return _unbooked(evidence, spent)
    unsure = _unsure(evidence, spent)
    return _not_known(evidence, f"Not known: {unsure}.") if unsure else None


def _unbooked(evidence: JobEvidence, spent: JobSpending | None) -> JobAnswer:
    """Return the answer where the ledger lacks GPUs of a job, or all of them."""
    booked = {one.gpu for one in spent.judged} if spent else set()
    lost = [gpu_name(gpu.index, gpu.uuid) for gpu in evidence.gpus if gpu.uuid not in booked]
    runs, of = _runs(evidence), f" of {first(lost, _GPUS)}" if spent else ""
    known = f"{runs}, but " if runs else "its collectives are not timed, and "
    why = "has not seen it at work yet" if evidence.ledger == NOT_BEGUN else "is not watched"
    said = f"{known}the time{of} is not accounted for: its waiting ledger {why}"
    return _not_known(evidence, f"Not known what holds it up: {said}.", because=(runs,) if runs else ())


def _not_known(
    evidence: JobEvidence, sentence: str, cost: float | Absent = NOT_WATCHED, because: tuple[str, ...] = ()
) -> JobAnswer:
    return JobAnswer(Wall.NOT_KNOWN, sentence, Certainty.LOW, cost, (), because, (), _switches(evidence))


def _unsure(evidence: JobEvidence, spent: JobSpending) -> str:
    """Return why the ledger cannot say that nothing holds the job up now; empty where it can."""
    if (seconds := covered(spent.judged)) < LEAST:
        return f"only {span(seconds)} of its time are accounted for yet"
    if mean_of(spent.short, Spent.IDLE) >= HALF:
        return "nothing has run on its GPUs lately; whether it ends, pauses or stalls is not known yet"
    unread = {one.gpu for one in spent.short if one.shares.get(Spent.NOT_ATTRIBUTED, 0.0) >= HALF}
    names = [gpu_name(gpu.index, gpu.uuid) for gpu in evidence.gpus if gpu.uuid in unread]
    return f"nothing has shown lately what {first(names, _GPUS)} spent its time on" if names else ""


def _runs(evidence: JobEvidence) -> str:
    """Return how fast the collectives run now; empty where none is timed and judged."""
    rows = timed_rows(evidence.job)
    timed = any(one.doubt is None and one.fresh for one in communicators(evidence))
    return f"the collectives run at {speed(rows)}" if rows and timed else ""


def _waits_little(comm: CommunicatorTimes) -> bool:
    """Tell whether its newest window has all ranks here, and each waits less than NOBODY."""
    ranks = comm.newest.ranks if comm.newest else ()
    return len(ranks) >= max(1, len(comm.here)) and all(0 <= rank.waiting < NOBODY for rank in ranks)


def _switches(evidence: JobEvidence) -> tuple[str, ...]:
    """Return what would switch on the sources that are not watched."""
    return tuple(f"{one.source.value}: {one.switch_on}" for one in evidence.sources if not one.watched)


def speed(rows: Sequence[OperationTimes]) -> str:
    """Return got against expected of the operation that takes most time."""
    for row in rows:
        if (row.best_ratio or 0.0) > 0:
            return f"{rate(row.best)} of {rate(row.expected)} expected"
    for row in rows:
        if not isinstance(row.busbw, Absent):
            return f"{rate(row.busbw)}, nothing known to expect"
    if rows and all(row.small for row in rows):
        return "small messages, whose time is latency"
    untyped = any(not row.size_bytes for row in rows)
    why = ", since NCCL does not name the type of their elements" if untyped else ""
    return f"a speed that is not known{why}"


def _doubts(evidence: JobEvidence, answer: JobAnswer) -> tuple[str, ...]:
    found = [
        f"{one.source.value}: not watched: {one.why or one.switch_on}"
        for one in evidence.sources
        if not one.watched and one.source in _MATTERS[answer.wall]
    ]
    found += [
        f"timed by {source}: without starts, algorithms and protocols, so that waiting may cost less"
        for source in sorted({comm.source for comm in communicators(evidence)} - {""})
    ]
    if answer.wall is not Wall.HANG and not (evidence.one_job or isinstance(evidence.ledger, Absent)):
        found.append("whether its processes are one job is not known: nothing shows that they communicate")
    judged = ((comm.id, comm.doubt) for comm in communicators(evidence))
    return (*found, *(f"communicator {id_} is not judged: {doubt.value}" for id_, doubt in judged if doubt))


_ALL = frozenset(EvidenceSource)
_MATTERS = {
    Wall.HANG: frozenset({EvidenceSource.TAP}),
    Wall.STANDING: frozenset({EvidenceSource.TAP, EvidenceSource.HANGS}),
    Wall.STARTING: frozenset[EvidenceSource](),
    Wall.SLOW_WIRE: frozenset({EvidenceSource.LEDGER, EvidenceSource.SETTINGS, EvidenceSource.HANGS}),
    Wall.LATE_RANK: _ALL - {EvidenceSource.BURSTS, EvidenceSource.THREADS, EvidenceSource.SETTINGS},
    Wall.UNEVEN_WORK: frozenset({EvidenceSource.LEDGER, EvidenceSource.TAP}),
    Wall.HOST: frozenset({EvidenceSource.TAP, EvidenceSource.THREADS}),
    Wall.LAUNCH_GAPS: frozenset({EvidenceSource.TAP}),
    Wall.MEMORY: frozenset({EvidenceSource.TAP}),
    Wall.COLLECTIVES: frozenset({EvidenceSource.SETTINGS}),
    Wall.NOT_ATTRIBUTED: frozenset({EvidenceSource.TAP, EvidenceSource.ACTIVITY}),
    Wall.COMPUTING: _ALL,
    Wall.NOTHING: _ALL,
    Wall.NOT_KNOWN: _ALL,
}
"""The sources that would change the answer, or make it surer."""
