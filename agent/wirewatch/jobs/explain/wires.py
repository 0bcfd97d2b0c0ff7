"""Name the wire of a job's collectives, and other causes of their delay than a rank of this node. Pure."""

from collections.abc import Sequence

from wirewatch.core.statistics import low_median
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.evidence import Certainty, JobAnswer, JobEvidence, Wall
from wirewatch.jobs.explain.late import weighed
from wirewatch.jobs.explain.ranks import communicators
from wirewatch.jobs.explain.spending import HALF, NAMED, JobSpending, TimeShare
from wirewatch.jobs.explain.words import operation, percent, rate
from wirewatch.jobs.ledger.spent import Spent, is_share
from wirewatch.jobs.times import JobRemarkKind, OperationTimes, RunningJob

MOST, LEAST = 0.5, 0.2
"""Shares of the due bytes: from the first on NVLink carries the collectives, up to the second it does not."""
MUCH = 0.6
"""Share of the expected time on the wire; more beyond it is not explained by work beside collectives.

They reach 67 % of their bus bandwidth and more (ADR 0095)."""
_RAIL = "the rail has two ends: another node's NIC may be the slow one"
_ELSEWHERE = "what holds the job up is on another node: this one cannot say which"


def timed_rows(job: RunningJob | Absent) -> tuple[OperationTimes, ...]:
    """Return the operations of the newest windows of all communicators, most time first."""
    if isinstance(job, Absent):
        return ()
    rows = [row for comm in job.communicators if comm.newest for row in comm.newest.collectives]
    return tuple(sorted(rows, key=lambda row: -row.wire_seconds * row.joined))


def on_wire(job: RunningJob) -> float:
    """Share of the time in which collectives are on the wire: of the GPUs, less what they wait."""
    known = (one for one in job.gpus if is_share(one.in_collectives) and is_share(one.waiting))
    shares = [max(0.0, gpu.in_collectives - gpu.waiting) for gpu in known]
    return min(1.0, low_median(shares)) if shares else 0.0


def wire_in_use(evidence: JobEvidence) -> str | Absent:
    """Return what carries the collectives, in words with the counter that says so."""
    job = evidence.job
    if isinstance(job, Absent):
        return _by_bytes(evidence)
    nodes = max((comm.nodes for comm in job.communicators), default=1)
    if nodes > 1:
        return f"{nodes} nodes: between them the network, which this node's counters show only in part"
    return _by_due(evidence, job)


def _by_due(evidence: JobEvidence, job: RunningJob) -> str | Absent:
    """Compare NVLink's bytes with the bytes that the collectives of this node put on a wire."""
    sent = [gpu.sent for gpu in evidence.gpus if not isinstance(gpu.sent, Absent)]
    rates = [row.busbw for row in timed_rows(job) if not isinstance(row.busbw, Absent)]
    due = on_wire(job) * rates[0] if rates else 0.0
    if not sent or due <= 0:
        return Absent(Why.MISSING, "NVLink bytes in the same window, or large collectives, are not known")
    got = low_median(sent)
    counted = f"NVLink counts {rate(got)} a GPU, the collectives put about {rate(due)} on a wire"
    if got >= MOST * due:
        return f"NVLink: {counted}"
    if got <= LEAST * due:
        return f"not NVLink, but host memory (SHM), PCIe or sockets: {counted} ({percent(got / due)})"
    return Absent(Why.MALFORMED, f"the counters do not agree: {counted}")


def _by_bytes(evidence: JobEvidence) -> str | Absent:
    sent = [gpu.sent for gpu in evidence.gpus if not isinstance(gpu.sent, Absent)]
    if not sent:
        return Absent(Why.MISSING, "neither the tap nor NVLink bytes are watched")
    if low_median(sent) <= 0:
        return "not NVLink: no bytes moved over it in the last window"
    return f"NVLink: {rate(low_median(sent))} a GPU in the last window"


def wire_walls(evidence: JobEvidence, spent: JobSpending | None) -> list[JobAnswer]:
    """Return what holds the collectives up beside a rank of this node: a slow wire, another node."""
    slow = _slow_wire(evidence, spent)
    elsewhere = _elsewhere(evidence, spent) if slow is None or spent else None
    return [one for one in (slow, elsewhere) if one is not None]


def _slow_wire(evidence: JobEvidence, spent: JobSpending | None) -> JobAnswer | None:
    beyond = spent.of(Spent.BEYOND) if spent else TimeShare(0.0)
    slow = None if isinstance(evidence.job, Absent) else evidence.job.wire
    if slow is None or isinstance(evidence.job, Absent) or not is_share(slow.ratio):
        much = spent is not None and beyond.value >= max(NAMED, MUCH * spent.of(Spent.WIRE).value)
        return _beyond(beyond) if much else None
    claimed = on_wire(evidence.job) * max(0.0, 1 - slow.ratio)
    if spent and beyond.value < HALF * claimed:
        # Without a trusted expectation all of it stands among the time on the wire.
        beyond = TimeShare(min(claimed, beyond.value + spent.of(Spent.WIRE).value))
    agrees = spent is not None and beyond.value >= HALF * claimed
    cost = beyond if agrees else TimeShare(claimed)
    causes = tuple(text.partition(":")[0] for text in slow.explained)
    why = f", because {causes[0]}" if causes else ""
    sentence = (
        f"Collectives: the wire is slow: {operation(slow.op, slow.size_bytes)} gets "
        f"{rate(slow.busbw)} of {rate(slow.expected)} ({percent(slow.ratio)}){why}; this costs about {cost}."
    )
    certain = Certainty.HIGH if slow.witnesses or causes else Certainty.MEDIUM
    answer = JobAnswer(
        Wall.SLOW_WIRE, sentence, certain, cost.value, causes,
        because=(slow.text, *(f"a second witness: {one}" for one in slow.witnesses)),
        doubts=() if slow.witnesses or causes else ("no second witness agrees that it is the wire",),
        advice=_wire_advice(slow.explained, slow.witnesses),
    )  # fmt: skip
    return answer if agrees or spent is None else weighed(answer, beyond)


def _beyond(share: TimeShare) -> JobAnswer:
    return JobAnswer(
        Wall.SLOW_WIRE,
        f"Collectives: the wire takes longer than is expected, which costs {share}; no operation is slow "
        "enough to be named.",
        Certainty.LOW, share.value, doubts=("computing beside collectives slows them on healthy nodes too",),
        advice=_wire_advice((), ()),
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


def _elsewhere(evidence: JobEvidence, spent: JobSpending | None) -> JobAnswer | None:
    """Return the answer for a slow rail, or else for a rank or a wire of another node."""
    remarks = () if isinstance(evidence.job, Absent) else evidence.job.remarks
    rail = next((one.text for one in remarks if one.kind is JobRemarkKind.RAIL), "")
    text = rail or next((one.elsewhere for one in communicators(evidence) if one.elsewhere), "")
    share = spent.of(Spent.OTHER_NODE) if spent else None
    if not text and (share is None or share.value < NAMED):
        return None
    answer = JobAnswer(
        Wall.SLOW_WIRE if rail else Wall.LATE_RANK,
        f"Collectives: {text or 'the GPUs wait for another node'}.", Certainty.MEDIUM,
        because=(text,) if text else (), doubts=(_RAIL if rail else _ELSEWHERE,),
        advice=("run `wirewatch explain` on the job's other nodes: one of them names the rank or the wire",),
    )  # fmt: skip
    return answer if share is None else weighed(answer, share)
