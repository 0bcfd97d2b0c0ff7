"""Running jobs as series: the wire by operation and size, waiting by GPU, no job's name by default."""

from collections.abc import Iterator

from wirewatch.core.types import Absent, Kind, Metric, Panel, Sample, Tier
from wirewatch.jobs.running.model import JobsMemory, JobsReading
from wirewatch.jobs.times import JobsFacts, OperationTimes

MOST_SERIES = 16
"""Operations with sizes and ranks that have series: only the most time-consuming."""
_AT = ("op", "size", "ranks")
_GPU = ("gpu", "uuid")
_UNPROVEN = "more than 4 GPUs, and communicators over several nodes"
_LIMITS = ((0.0, "red"), (0.7, "green"))
BUSBW = Metric(
    "job_busbw_bytes_per_second", Kind.GAUGE, _AT,
    "Bus bandwidth of running jobs on the wire, the worst where several: message over the shortest "
    "duration of the local ranks, the median of the newest window; size is the power of two below.",
    _UNPROVEN,
)  # fmt: skip
EXPECTED = Metric(
    "job_expected_busbw_bytes_per_second", Kind.GAUGE, _AT,
    "What NCCL's defaults should give on this topology at that size; no series where nothing is known.",
    _UNPROVEN,
)  # fmt: skip
RATIO = Metric(
    "job_busbw_ratio", Kind.GAUGE, _AT,
    "Measured over expected bandwidth of running jobs. Compute beside collectives lowers it on healthy "
    "nodes too: alert on the finding "
    "jobs.slow_wire.", _UNPROVEN, panel=Panel("Busbw of jobs", _LIMITS),
    tier=Tier.CORE,
)  # fmt: skip
WAIT = Metric(
    "job_wait_ratio", Kind.GAUGE, _GPU,
    "Share of the time for which this GPU's collectives wait for other GPUs, here or on other nodes, in the "
    "last 12 s; low on the late one.", _UNPROVEN,
    panel=Panel("Waiting for other GPUs"), tier=Tier.CORE,
)  # fmt: skip
LATE = Metric(
    "job_late_ratio", Kind.GAUGE, _GPU,
    "Share of a job's collectives in which this GPU was the one that the others waited for.", _UNPROVEN,
    panel=Panel("Waited for, share of collectives"), tier=Tier.CORE,
)  # fmt: skip
COLLECTIVES = Metric(
    "job_collectives_total", Kind.COUNTER, (*_GPU, "op"),
    "Collectives that jobs with the tap enqueued on this GPU.", _UNPROVEN,
)  # fmt: skip
BYTES = Metric(
    "job_bytes_total", Kind.COUNTER, (*_GPU, "op"),
    "Bytes of their messages as nccl-tests counts them; those of a type that NCCL does not name are missing.",
    _UNPROVEN,
)  # fmt: skip
OWNER = Metric(
    "gpu_allocation_info", Kind.INFO, (*_GPU, "owner"),
    "Which job or pod uses a GPU, by its processes; only with [collectors.jobs] names = true.", _UNPROVEN,
)  # fmt: skip
METRICS = (BUSBW, EXPECTED, RATIO, WAIT, LATE, COLLECTIVES, BYTES, OWNER)


def samples(reading: JobsReading, memory: JobsMemory) -> Iterator[Sample]:
    """The series of the jobs that run now; counters stay when a job is over."""
    facts = memory.facts
    if facts is None or isinstance(reading.rings, Absent):
        return
    yield from _wires(facts)
    indexes = reading.indexes
    yield from _gpus(facts, indexes)
    for metric, found in ((COLLECTIVES, memory.calls), (BYTES, memory.bytes)):
        for (gpu, op), value in found.items():
            if gpu in indexes:
                yield metric.sample(value, indexes[gpu], gpu, op)
    if reading.names:
        for job in facts.jobs:
            for one in job.gpus:
                if job.live and one.gpu in indexes:
                    yield OWNER.sample(1, indexes[one.gpu], one.gpu, job.name)


def _wires(facts: JobsFacts) -> Iterator[Sample]:
    """Yield for each operation, size and number of ranks the row farthest below its expectation."""
    worst: dict[tuple[str, str, str], OperationTimes] = {}
    for row in facts.rows():
        if not isinstance(row.busbw, Absent):
            key = (row.op, str(row.size_bytes), str(row.ranks))
            if key not in worst or _rank(row) < _rank(worst[key]):
                worst[key] = row
    most = sorted(worst, key=lambda key: -worst[key].calls * worst[key].wire_seconds)[:MOST_SERIES]
    for key in sorted(most):
        row = worst[key]
        if not isinstance(row.busbw, Absent):
            yield BUSBW.sample(row.busbw, *key)
        if not isinstance(row.expected, Absent):
            yield EXPECTED.sample(row.expected, *key)
        ratio = row.ratio if row.trusted else None
        if ratio is not None:
            yield RATIO.sample(ratio, *key)


def _rank(row: OperationTimes) -> tuple[bool, float]:
    """Rows with a ratio first, the lowest before."""
    return (row.ratio is None, row.ratio if row.ratio is not None else -row.wire_seconds)


def _gpus(facts: JobsFacts, indexes: dict[str, str]) -> Iterator[Sample]:
    """Yield for each GPU how much its jobs wait together, and how often a job waits for it."""
    waits: dict[str, float] = {}
    lates: dict[str, float] = {}
    for job in facts.jobs:
        for one in job.gpus:
            if one.gpu in indexes and one.measured:
                waits[one.gpu] = min(1.0, waits.get(one.gpu, 0.0) + one.waiting)
                lates[one.gpu] = max(lates.get(one.gpu, 0.0), one.late)
    for gpu, waiting in waits.items():
        yield WAIT.sample(waiting, indexes[gpu], gpu)
        yield LATE.sample(lates[gpu], indexes[gpu], gpu)
