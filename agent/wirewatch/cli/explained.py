"""The page of `wirewatch explain`: the answer in one line, and below it all that it stands on."""

import textwrap
from collections.abc import Iterator, Sequence

from wirewatch.core.jobtimes import CommunicatorTimes, OperationTimes, RunningJob
from wirewatch.core.types import Absent
from wirewatch.documents.jobs import ExplainDocument
from wirewatch.explain.evidence import JobEvidence, JobGpu, JobSettings
from wirewatch.explain.wires import timed_rows, wire_in_use
from wirewatch.explain.words import gpu_name, operation, percent, rate, share_or_dash
from wirewatch.nccl.settings import slowing_settings

WIDTH = 110
"""Characters of a line, but for the first."""
MOST_ROWS, MOST_RANKS = 12, 64
MICRO = 1e-6
SOURCES = {"replay": "a recording", "synthetic": "a recording that was changed"}


def page(document: ExplainDocument) -> list[str]:
    """The lines of the page; the first one is the answer."""
    answer, evidence = document.answer, document.evidence
    cost = "" if isinstance(answer.cost, Absent) else f", takes {percent(answer.cost)} of the time"
    source = f"; of {SOURCES[document.source]}" if document.source in SOURCES else ""
    return [
        document.sentence,
        "",
        f"job        {_about(evidence)}{source}",
        f"wall       {answer.wall.value}{cost}; certainty {answer.certainty.value}",
        *_listed("because", answer.because),
        *_listed("in doubt", answer.doubts),
        *_listed("to do", answer.advice),
        *_ranks(evidence),
        *_wires(evidence),
        *_waits(evidence.job),
        *_remarks(evidence.job),
        *_counters(evidence),
        *_settings(evidence.settings),
        *_sources(evidence),
    ]


def _about(evidence: JobEvidence) -> str:
    gpus = f"{len(evidence.gpus)} GPU{'s' if len(evidence.gpus) != 1 else ''} of this node"
    job = evidence.job
    if isinstance(job, Absent):
        return f"{evidence.name}, {gpus}; {job.detail}"
    ranks = max((comm.ranks for comm in job.communicators), default=0)
    nodes = max((comm.nodes for comm in job.communicators), default=0)
    where = f"{ranks} ranks on {nodes} node{'s' if nodes != 1 else ''}" if ranks else "no communicator yet"
    hours = (evidence.now - job.since) / 3600
    owners = [one for one in job.owners if one != job.name]
    return f"{', '.join((job.name, *owners))}, {where}, {gpus}, user {job.uid}, since {hours:.1f} h"


def _listed(title: str, texts: Sequence[str]) -> Iterator[str]:
    """Texts under one title, each wrapped, with the title beside the first."""
    for number, text in enumerate(texts):
        head = f"{title if number == 0 else '':<11}- "
        yield from textwrap.wrap(
            text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False
        )


def _titled(title: str, rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """A table with its title; the first `left` columns to the left, the others to the right."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    yield ""
    yield title
    for row in rows:
        cells = [
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()


def _ranks(evidence: JobEvidence) -> Iterator[str]:
    shares = {} if isinstance(evidence.job, Absent) else {gpu.gpu: gpu for gpu in evidence.job.gpus}
    ranks = _ranks_by_gpu(evidence.job)
    head = (
        "GPU", "ranks", "pid", "in coll.", "waiting", "late", "active", "SM", "memory", "arith.", "thread",
        "power", "throttled",
    )  # fmt: skip
    rows = [head]
    for gpu in evidence.gpus:
        share = shares.get(gpu.uuid)
        times = (
            ("-", "-", "-")
            if share is None
            else (percent(share.in_collectives), percent(share.waiting), percent(share.late))
        )
        rows.append((
            gpu.index or gpu.uuid, ranks.get(gpu.uuid, "-"), ",".join(map(str, gpu.pids)) or "-", *times,
            share_or_dash(_active(gpu)), share_or_dash(gpu.sm), share_or_dash(gpu.dram),
            share_or_dash(gpu.math), share_or_dash(gpu.thread), _power(gpu.power), _reasons(gpu),
        ))  # fmt: skip
    yield from _titled("Ranks and GPUs (shares of the time)", rows)


def _active(gpu: JobGpu) -> float | Absent:
    return gpu.utilisation if isinstance(gpu.graphics, Absent) else gpu.graphics


def _power(watts: float | Absent) -> str:
    return "-" if isinstance(watts, Absent) else f"{watts:.0f} W"


def _reasons(gpu: JobGpu) -> str:
    return "-" if isinstance(gpu.throttled, Absent) else ",".join(gpu.throttled) or "no"


def _ranks_by_gpu(job: RunningJob | Absent) -> dict[str, str]:
    """The rank of each GPU in the job's largest communicator."""
    if isinstance(job, Absent) or not job.communicators:
        return {}
    largest = max(job.communicators, key=lambda comm: comm.ranks)
    return {rank.gpu: str(rank.rank) for rank in largest.here if not isinstance(rank.gpu, Absent)}


def _wires(evidence: JobEvidence) -> Iterator[str]:
    wire = wire_in_use(evidence)
    yield ""
    said = f"not known ({wire.detail})" if isinstance(wire, Absent) else wire
    yield from textwrap.wrap(f"Wire in use: {said}", WIDTH, subsequent_indent="  ")
    found = timed_rows(evidence.job)
    if not found:
        return
    head = ("operation", "algorithm", "ranks", "timed", "time", "got", "best", "expected", "best/exp.")
    yield from _titled("Collectives", [head, *map(_row, found[:MOST_ROWS])], left=2)
    if len(found) > MOST_ROWS:
        yield f"  and {len(found) - MOST_ROWS} more, which take less of the time"
    seen: set[tuple[str, ...]] = set()
    for row in found[:MOST_ROWS]:
        if row.derivation and row.derivation not in seen:
            seen.add(row.derivation)
            yield from _wrapped(f"expected of {operation(row.op, row.bytes)}: {'; '.join(row.derivation)}")


def _row(row: OperationTimes) -> tuple[str, ...]:
    way = ", ".join(one for one in (row.algorithm, row.protocol) if one) or "-"
    ratio = row.best_ratio
    seconds = f"{row.wire_seconds / MICRO:.0f} us" if row.small else f"{row.wire_seconds * 1e3:.3g} ms"
    due = row.floor if row.small else row.expected
    expected = "-" if isinstance(due, Absent) else f"{due / MICRO:.0f} us" if row.small else rate(due)
    return (
        operation(row.op, row.bytes), f"{way}, {row.channels} channels", str(row.ranks), str(row.joined),
        seconds, _rate(row.busbw), _rate(row.best), expected, "-" if ratio is None else percent(ratio),
    )  # fmt: skip


def _rate(value: float | Absent) -> str:
    return "-" if isinstance(value, Absent) else rate(value)


def _plateau(gpu: JobGpu) -> str:
    least = "at least " if gpu.short and not isinstance(gpu.plateau, Absent) else ""
    return f"{least}{_rate(gpu.plateau)}"


def _waits(job: RunningJob | Absent) -> Iterator[str]:
    comms = () if isinstance(job, Absent) else job.communicators
    for comm in comms:
        if comm.late is not None or comm.doubt is not None or comm.elsewhere or comm.captured:
            yield ""
            yield f"Communicator {comm.name or comm.id}: {comm.ranks} ranks, {len(comm.here)} here"
            yield from _wrapped("; ".join(_said(comm)))


def _said(comm: CommunicatorTimes) -> Iterator[str]:
    if comm.late is not None:
        late = comm.late
        yield (
            f"who waits for whom: all for rank {late.rank} on {gpu_name(late.index, late.gpu)}, last in "
            f"{late.votes} of {late.voted} collectives; the others wait {percent(late.cost)} of the time"
        )
    if comm.elsewhere:
        yield comm.elsewhere
    if comm.doubt is not None:
        yield f"not judged: {comm.doubt.value}"
    if comm.captured:
        yield f"{comm.captured} calls in CUDA graphs: from then on counted, not timed"


def _remarks(job: RunningJob | Absent) -> Iterator[str]:
    """What the job's owner should know, and no fault of the node is."""
    remarks = () if isinstance(job, Absent) else job.remarks
    if remarks:
        yield ""
        yield "Remarks"
    for one in remarks:
        cost = "" if one.cost is None else f" (costs {percent(one.cost)} of the time)"
        yield from _wrapped(f"{one.kind.value}: {one.text}{cost}")


def _counters(evidence: JobEvidence) -> Iterator[str]:
    known = [
        gpu
        for gpu in evidence.gpus
        if not isinstance(gpu.sent, Absent) or not isinstance(gpu.plateau, Absent)
    ]
    if known:
        head = ("GPU", "NVLink sent", "of peak", "in bursts", "bursts take")
        rows = [
            (
                gpu.index or gpu.uuid,
                _rate(gpu.sent),
                _of_peak(gpu),
                _plateau(gpu),
                share_or_dash(gpu.duty),
            )
            for gpu in known
        ]
        yield from _titled("Counters", [head, *rows])
    for one in evidence.findings:
        yield from _wrapped(
            f"finding {one.rule} ({one.health}) at {one.subject}: {one.evidence}; {one.action}"
        )


def _of_peak(gpu: JobGpu) -> str:
    if isinstance(gpu.sent, Absent) or isinstance(gpu.peak, Absent) or gpu.peak <= 0:
        return "-"
    return percent(gpu.sent / gpu.peak)


def _settings(read: Sequence[JobSettings]) -> Iterator[str]:
    """Settings that slow, and those of all processes alike in short; which processes could not be read."""
    if not read:
        return
    yield ""
    yield "NCCL settings of its processes"
    for one in read[:MOST_RANKS]:
        if isinstance(one.settings, Absent):
            yield f"  process {one.pid}: not read: {one.settings.detail or one.settings.why.value}"
    texts: dict[str, list[int]] = {}
    for one in read:
        if not isinstance(one.settings, Absent):
            slowing = {name: effect for name, _, effect in slowing_settings(one.settings)}
            for name, value in sorted(one.settings.items()):
                slow = f"; slows: {slowing[name]}" if name in slowing else ""
                texts.setdefault(f"{name}={value}{slow}", []).append(one.pid)
    known = sum(not isinstance(one.settings, Absent) for one in read)
    for text, pids in texts.items():
        whose = "" if len(pids) == len(read) else f" (process {', '.join(map(str, pids[:8]))})"
        yield from _wrapped(f"{text}{whose}")
    if known and not texts:
        yield "  none is set"


def _sources(evidence: JobEvidence) -> Iterator[str]:
    missing = [one for one in evidence.sources if not one.watched]
    if not missing:
        return
    yield ""
    yield "Not watched"
    for one in missing:
        yield from _wrapped(f"{one.source.value}: not watched: {one.switch_on} ({one.why})")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False
    )  # fmt: skip
