"""The sections of running jobs: hints, the tap's wire and waiting, and jobs that hang or did. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from wirewatch.core.types import Absent
from wirewatch.core.words import GB, count, first, percent, size, span
from wirewatch.documents.jobs import ExplainedJob
from wirewatch.documents.state import HintKind
from wirewatch.jobs.explain.evidence import Wall
from wirewatch.jobs.explain.spending import NOBODY, ledger_shares
from wirewatch.jobs.explain.words import in_words
from wirewatch.jobs.hangs import HangFacts, HangingJob, PastHang
from wirewatch.jobs.running import algorithm_words
from wirewatch.jobs.times import GpuTime, JobsFacts, OperationTimes, RunningJob
from wirewatch.page.content import PageContent
from wirewatch.page.model import Cell, Column, Section, Sentence, Table
from wirewatch.page.tables import number, table, unknown, when

MS = 1e3
JOBS, HANGS = 12, 8
"""Jobs that are shown, and rows of each; hangs that are shown, the newest first."""
LATE = 0.5
"""Least share of the collectives for which a GPU must be late to be shown as the late GPU."""
_JOB_HEADS = (
    Column("Job"), Column("GPUs"), Column("In collectives", "% of the time", number=True),
    Column("Waiting", "% of the time", number=True), Column("Waits for"), Column("Remarks"),
)  # fmt: skip
_EXPLAIN_HEADS = (Column("Job"), Column("GPUs"), Column("What holds it up"), Column("Shares of its time"))
_WIRE_HEADS = (
    Column("Job"), Column("Collective"), Column("Size", number=True), Column("Ranks", number=True),
    Column("On the wire", "ms", number=True), Column("Bus bandwidth", "GB/s", number=True),
    Column("Expected", "GB/s", number=True), Column("Ratio", number=True), Column("By"),
)  # fmt: skip
_HANG_HEADS = (Column("Kind"), Column("Since"), Column("For"), Column("Job"), Column("What was seen"))
_HINT_HEADS = (Column("Hint"), Column("Of"), Column("What shows it"), Column("Since"))
_HINTS: Mapping[HintKind, str] = {
    "slow_gpu": "may be slow", "uneven_work": "has more work", "slower_collectives": "collectives slower",
    "late_gpu": "is late", "slow_wire": "wire may be slow",
}  # fmt: skip


def sections(content: PageContent) -> Iterator[Section]:
    """Yield the sections that have something to show."""
    if content.state.hints:
        yield _hints(content)
    if content.explained:
        yield _explained(content.explained)
    if content.jobs is not None and any(job.live for job in content.jobs.jobs):
        yield _tapped(content.jobs)
    if content.hangs is not None and (content.hangs.now or content.hangs.past):
        yield _hangs(content.hangs, content.at)


def _hints(content: PageContent) -> Section:
    line = "By how running jobs behave; no verdict. What may be slow brings the next probe forward."
    rows = []
    for one in content.state.hints:
        part = f"GPU {one.subject['gpu']}" if "gpu" in one.subject else one.subject.get("uuid", "the node")
        cells = (Cell(part), Cell(one.text), when(one.since, content.at))
        rows.append((Cell(_HINTS[one.kind]), cells))
    made = table("hint-table", "Hints", _HINT_HEADS, rows)
    return Section("hints", "Hints from running jobs", (Sentence(line, "quiet"),), (made,))


def _explained(jobs: Sequence[ExplainedJob]) -> Section:
    lines = [Sentence("`wirewatch explain` has the page of each job.", "quiet")]
    if len(jobs) > JOBS:
        lines.append(Sentence(f"{count(len(jobs) - JOBS, 'job')} more run here.", "quiet"))
    rows = [(Cell(one.evidence.name), _first_line(one)) for one in jobs[:JOBS]]
    made = table("explain-table", "What holds running jobs up", _EXPLAIN_HEADS, rows)
    return Section("explained", "Why jobs are as fast as they are", tuple(lines), (made,))


def _first_line(one: ExplainedJob) -> Iterator[Cell]:
    gpus, answer = one.evidence.gpus, one.answer
    yield Cell(first([gpu.index or gpu.uuid for gpu in gpus], 8) or "not known")
    quiet = answer.wall in {Wall.NOTHING, Wall.COMPUTING, Wall.STARTING}
    yield Cell(answer.sentence, "quiet" if quiet else "warn", note=f"certainty {answer.certainty.value}")
    shares = in_words(ledger_shares(one.evidence.ledger))
    yield Cell(shares) if shares else unknown("its waiting ledger is not watched")


def _tapped(facts: JobsFacts) -> Section:
    jobs = [job for job in facts.jobs if job.live]
    line = (
        "By the tap in them: the shortest duration over the GPUs of a collective is the wire, what others "
        "have more is waiting. Computing beside collectives lowers their bus bandwidth on healthy nodes too."
    )
    other = any(comm.source for job in jobs for comm in job.communicators)
    carried = f"{count(len(jobs), 'running job')} with the tap{' or NCCL Inspector' * other}."
    lines = [Sentence(carried), Sentence(line, "quiet")]
    if facts.left_out:
        lines.append(Sentence(f"{count(facts.left_out, 'communicator')} more than are followed.", "unknown"))
    rows = [(Cell(job.name), _job(job)) for job in jobs[:JOBS]]
    made = table("job-table", "Running jobs: time in collectives and in waiting", _JOB_HEADS, rows)
    return Section("jobs", "Running jobs", tuple(lines), (made, *_wires(jobs[:JOBS])))


def _job(job: RunningJob) -> Iterator[Cell]:
    gpus = [gpu for gpu in job.gpus if gpu.measured]
    yield Cell(first([gpu.index or gpu.gpu for gpu in job.gpus], 8) or "not known")
    if gpus:
        yield _range([gpu.in_collectives for gpu in gpus])
        yield _range([gpu.waiting for gpu in gpus])
        yield _waits_for(job, gpus)
    else:
        yield from [unknown("nothing was timed on all of its GPUs in the last minutes")] * 3
    said = [one.text for one in job.remarks]
    said += [comm.elsewhere for comm in job.communicators if comm.elsewhere]
    yield Cell(first(said, 2), "warn") if said else Cell("none", "quiet")


def _waits_for(job: RunningJob, gpus: Sequence[GpuTime]) -> Cell:
    if job.late is not None:
        which = f"GPU {job.late.index}" if job.late.index else f"rank {job.late.rank}"
        return Cell(f"{which}, {percent(job.late.cost)} of the time", "warn", strong=True)
    latest = max(gpus, key=lambda gpu: gpu.late)
    if latest.late >= LATE:
        return Cell(f"GPU {latest.index} at times", "quiet")
    little = len(gpus) == len(job.gpus) and all(gpu.waiting < NOBODY for gpu in gpus)
    return Cell("nobody" if little else "no single GPU", "quiet")


def _range(shares: Sequence[float]) -> Cell:
    low, high = (round(100 * share) for share in (min(shares), max(shares)))
    return number(f"{low}" if low == high else f"{low} to {high}")


def _wires(jobs: Sequence[RunningJob]) -> Iterator[Table]:
    rows = []
    for job in jobs:
        fresh = [comm.newest for comm in job.communicators if comm.fresh and comm.doubt is None]
        every = [row for window in fresh if window is not None for row in window.collectives]
        every.sort(key=lambda row: -row.joined * row.wire_seconds)
        rows += [(Cell(job.name), _collective(row)) for row in every[:JOBS]]
    if rows:
        caption = "Collectives of running jobs in their newest windows"
        yield table("job-wire-table", caption, _WIRE_HEADS, rows)


def _collective(row: OperationTimes) -> Iterator[Cell]:
    yield Cell(row.op)
    yield number(size(row.size_bytes)) if row.size_bytes else unknown("NCCL does not name its type")
    yield number(str(row.ranks))
    yield number(f"{row.wire_seconds * MS:.3g}")
    for rate in (row.busbw, row.expected):
        yield unknown(rate.detail or str(rate)) if isinstance(rate, Absent) else number(f"{rate / GB:.1f}")
    ratio = row.ratio if row.trusted else None
    yield unknown("nothing is expected well enough") if ratio is None else number(f"{ratio:.2f}")
    yield Cell(algorithm_words(row.algorithm, row.protocol) or "not known", "warn" if row.other_way else "")


def _hangs(facts: HangFacts, now: float) -> Section:
    past = tuple(reversed(facts.past))
    shown = past[: max(0, HANGS - len(facts.now))]
    here = f"{count(len(facts.now), 'job hangs', 'jobs hang')} now" if facts.now else "No job hangs now"
    over = f"; {count(len(past), 'hang is over', 'hangs are over')}" if past else ""
    said = f"{here}{over}. A hang is the job's: the next one may start here."
    lines = [Sentence(said, "warn" if facts.now else "")]
    if len(past) > len(shown):
        lines.append(Sentence(f"{count(len(past) - len(shown), 'older one')} in the state folder.", "quiet"))
    rows = [
        *((Cell(job.kind.value, "warn"), _hanging(job, facts, now)) for job in facts.now),
        *((Cell(one.kind, "quiet"), _over(one, now)) for one in shown),
    ]
    made = table("hang-table", "Jobs that hang", _HANG_HEADS, rows)
    return Section("hangs", "Jobs that hang", tuple(lines), (made,))


def _hanging(job: HangingJob, facts: HangFacts, now: float) -> tuple[Cell, ...]:
    owners = {facts.owners.get(pid, "") for pids in job.processes.values() for pid in pids}
    length = Cell(span(now - job.found), note="and it lasts")
    text = f"{job.text}. {job.action[:1].upper()}{job.action[1:]}."
    return when(job.found, now), length, _owner(", ".join(sorted(owners - {""}))), Cell(text)


def _over(one: PastHang, now: float) -> tuple[Cell, ...]:
    return when(one.begin, now), Cell(span(one.end - one.begin)), _owner(one.owner), Cell(one.text)


def _owner(name: str) -> Cell:
    return Cell(name) if name else unknown("the kernel does not show whose processes they are")
