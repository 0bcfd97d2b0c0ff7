"""Which wire carries a job's collectives, by what NVLink counted meanwhile. Pure."""

from wirewatch.core.statistics import low_median
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.evidence import JobEvidence
from wirewatch.jobs.explain.words import percent, rate
from wirewatch.jobs.times import OperationTimes, RunningJob

MOST, LEAST = 0.5, 0.2
"""Of what the collectives put on a wire: from which part on NVLink carries it, up to which it does not."""


def timed_rows(job: RunningJob | Absent) -> tuple[OperationTimes, ...]:
    """The operations of the newest windows of all communicators, those that took most time first."""
    if isinstance(job, Absent):
        return ()
    rows = [row for comm in job.communicators if comm.newest for row in comm.newest.collectives]
    return tuple(sorted(rows, key=lambda row: -row.wire_seconds * row.joined))


def on_wire(job: RunningJob) -> float:
    """Share of the time in which collectives are on the wire: of the GPUs, less what they wait."""
    shares = [max(0.0, gpu.in_collectives - gpu.waiting) for gpu in job.gpus]
    return min(1.0, low_median(shares)) if shares else 0.0


def wire_in_use(evidence: JobEvidence) -> str | Absent:
    """What carries the collectives, in words with the counter that says so."""
    job = evidence.job
    if isinstance(job, Absent):
        return _by_bytes(evidence)
    nodes = max(comm.nodes for comm in job.communicators)
    if nodes > 1:
        return f"{nodes} nodes: between them the network, which this node's counters show only in part"
    return _by_due(evidence, job)


def _by_due(evidence: JobEvidence, job: RunningJob) -> str | Absent:
    """NVLink's bytes held against those that the collectives of this node put on a wire."""
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
