"""The section of running jobs that carry the tap: the wire, waiting, and who is waited for. Pure."""

from collections.abc import Iterator, Sequence

from wirewatch.core.types import Absent
from wirewatch.core.words import size as human
from wirewatch.jobs.running import algorithm_words
from wirewatch.jobs.times import GpuTime, JobsFacts, OperationTimes, RunningJob
from wirewatch.page.model import Cell, Column, Section, Sentence, Table
from wirewatch.page.tables import cell, count, listed, number, percent, table, unknown

GB, MS = 1e9, 1e3
MOST = 12
"""Jobs that are shown, and rows of each."""
LATE = 0.5
"""Share of the collectives from which on a GPU is shown as the one that is waited for."""
NOT_TIMED = "nothing was timed on all of its GPUs in the last minutes"
_JOB_HEADS = (
    Column("GPUs"), Column("In collectives", "% of the time", number=True),
    Column("Waiting", "% of the time", number=True), Column("Waits for"), Column("Remarks"),
)  # fmt: skip
_WIRE_HEADS = (
    Column("Collective"), Column("Size", number=True), Column("Ranks", number=True),
    Column("On the wire", "ms", number=True), Column("Bus bandwidth", "GB/s", number=True),
    Column("Expected", "GB/s", number=True), Column("Ratio", number=True), Column("By"),
)  # fmt: skip


def tapped(facts: JobsFacts | None) -> bool:
    """Whether there is a running job that the tap tells of."""
    return facts is not None and any(job.live for job in facts.jobs)


def jobs_section(facts: JobsFacts) -> Section:
    """Running jobs with the tap, and what their collectives get of the wire."""
    jobs = [job for job in facts.jobs if job.live]
    line = Sentence(
        "By the tap in them: the shortest duration over the GPUs of a collective is the wire, what others "
        "have more is waiting. Computing beside collectives lowers their bus bandwidth on healthy nodes too.",
        "quiet",
    )
    lines = [Sentence(f"{count(len(jobs), 'running job')} with the tap."), line]
    if facts.left_out:
        lines.append(Sentence(f"{count(facts.left_out, 'communicator')} more than are followed.", "unknown"))
    rows = [(cell(job.name), tuple(_job(job))) for job in jobs[:MOST]]
    tables = [
        table(
            "job-table",
            "Running jobs: time in collectives and in waiting",
            (Column("Job"), *_JOB_HEADS),
            rows,
        )
    ]
    tables += _wires(jobs[:MOST])
    return Section("jobs", "Running jobs", tuple(lines), tuple(tables))


def _job(job: RunningJob) -> Iterator[Cell]:
    gpus = [gpu for gpu in job.gpus if gpu.measured]
    yield cell(listed((gpu.index or gpu.gpu for gpu in job.gpus), 8) or "not known")
    if not gpus:
        yield from [unknown(NOT_TIMED)] * 3
    else:
        yield number(_range([gpu.in_collectives for gpu in gpus]))
        yield number(_range([gpu.waiting for gpu in gpus]))
        yield _waits_for(job, gpus)
    said = [one.text for one in job.remarks]
    said += [comm.elsewhere for comm in job.communicators if comm.elsewhere]
    yield cell(listed(said, 2), "warn" if said else "") if said else cell("none", "quiet")


def _waits_for(job: RunningJob, gpus: Sequence[GpuTime]) -> Cell:
    if job.late is not None:
        which = f"GPU {job.late.index}" if job.late.index else f"rank {job.late.rank}"
        return Cell(f"{which}, {percent(job.late.cost)} of the time", "warn", strong=True)
    first = max(gpus, key=lambda gpu: gpu.late)
    return cell("nobody", "quiet") if first.late < LATE else cell(f"GPU {first.index} at times", "quiet")


def _range(shares: Sequence[float]) -> str:
    low, high = (round(100 * share) for share in (min(shares), max(shares)))
    return f"{low}" if low == high else f"{low} to {high}"


def _wires(jobs: Sequence[RunningJob]) -> Iterator[Table]:
    rows = []
    for job in jobs:
        fresh = [comm.newest for comm in job.communicators if comm.fresh and comm.doubt is None]
        every = [row for window in fresh if window is not None for row in window.collectives]
        every.sort(key=lambda row: -row.joined * row.wire_seconds)
        rows += [(cell(job.name), tuple(_row(row))) for row in every[:MOST]]
    if rows:
        caption = "Collectives of running jobs in their newest windows"
        yield table("job-wire-table", caption, (Column("Job"), *_WIRE_HEADS), rows)


def _row(row: OperationTimes) -> Iterator[Cell]:
    yield cell(row.op)
    yield number(human(row.size_bytes)) if row.size_bytes else unknown("NCCL does not name its type")
    yield number(str(row.ranks))
    yield number(f"{row.wire_seconds * MS:.3g}")
    for rate in (row.busbw, row.expected):
        yield unknown(rate.detail or str(rate)) if isinstance(rate, Absent) else number(f"{rate / GB:.1f}")
    ratio = row.ratio if row.trusted else None
    yield unknown("nothing is expected well enough") if ratio is None else number(f"{ratio:.2f}")
    words = algorithm_words(row.algorithm, row.protocol)
    yield Cell(words or "not known", "warn" if row.other_way else "")
