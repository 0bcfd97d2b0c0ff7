"""The page of `wirewatch explain`: the answer in one line, and below it all the evidence."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.types import Absent, value_or
from wirewatch.core.words import count, first, span
from wirewatch.documents.jobs import ExplainDocument
from wirewatch.jobs.explain.evidence import NOT_WATCHED, JobEvidence, JobGpu, JobSettings
from wirewatch.jobs.explain.ranks import communicators, late_name, ranks_on
from wirewatch.jobs.explain.wires import timed_rows, wire_in_use
from wirewatch.jobs.explain.words import TINY, gpu_name, operation, percent, rate
from wirewatch.jobs.ledger.spent import GpuLedger, Spent
from wirewatch.jobs.times import CommunicatorTimes, OperationTimes, RunningJob
from wirewatch.nccl.settings import is_shown, slowing_settings

TITLE, GAP = 11, 2
MOST_ROWS, MOST_RANKS = 12, 64
MICRO = 1e-6
FOR = "for"
_SPENT: Mapping[Spent | str, str] = {
    Spent.COMPUTING: "computing", Spent.LOCAL_RANK: "waiting", FOR: "for GPU",
    Spent.OTHER_NODE: "other node", Spent.WIRE: "wire", Spent.BEYOND: "beyond", Spent.IDLE: "idle",
    Spent.NOT_ATTRIBUTED: "not attr.",
}  # fmt: skip
"""Columns of the ledger."""
SOURCES = {"replay": "a recording", "synthetic": "a recording that was changed"}


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Lines of at most `width` characters, where no single word is longer."""

    width: int

    def headed(self, head: str, text: str) -> list[str]:
        return self.wrapped(text, head, " " * len(head))

    def listed(self, title: str, texts: Sequence[str]) -> Iterator[str]:
        """Texts under one title, with the title beside the first."""
        for number, text in enumerate(texts):
            yield from self.headed(f"{title if number == 0 else '':<{TITLE}}- ", text)

    def indented(self, text: str) -> list[str]:
        return self.wrapped(text, " " * GAP, " " * 2 * GAP)

    def titled(self, title: str, rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
        """Yield a table with its title; the first `left` columns to the left, the others to the right.

        A table that is too wide goes on below, with its first column again.
        """
        yield ""
        yield title
        widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
        for number, columns in enumerate(self._parts(widths)):
            if number:
                yield ""
            for row in rows:
                cells = [row[n].ljust(widths[n]) if n < left else row[n].rjust(widths[n]) for n in columns]
                yield f"{' ' * GAP}{(' ' * GAP).join(cells)}".rstrip()

    def _parts(self, widths: Sequence[int]) -> Iterator[list[int]]:
        """Columns that fit beside each other."""
        part, taken = [0], GAP + widths[0]
        for column, width in enumerate(widths[1:], 1):
            if len(part) > 1 and taken + GAP + width > self.width:
                yield part
                part, taken = [0], GAP + widths[0]
            part.append(column)
            taken += GAP + width
        yield part

    def wrapped(self, text: str, first: str, following: str) -> list[str]:
        """Return a text in lines, with `first` before the first line and `following` before the others."""
        return textwrap.wrap(
            text, self.width, initial_indent=first, subsequent_indent=following, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip


def page(document: ExplainDocument, width: int) -> list[str]:
    """Return the lines of the page; the first line is the answer, however long."""
    answer, evidence, layout = document.answer, document.evidence, PageLayout(width)
    cost = f", takes {percent(answer.cost)} of the time" if value_or(answer.cost, 0.0) else ""
    source = f"; of {SOURCES[document.source]}" if document.source in SOURCES else ""
    on = f"; on {document.host}" if document.host else ""
    wall = f"{answer.wall.value}{cost}; certainty {answer.certainty.value}"
    return [
        document.sentence,
        "",
        *layout.headed(f"{'job':<{TITLE}}", f"{_about(evidence)}{source}{on}"),
        *layout.headed(f"{'wall':<{TITLE}}", wall),
        *layout.listed("because", answer.because),
        *layout.listed("in doubt", answer.doubts),
        *layout.listed("to do", answer.advice),
        *_ledger(evidence, layout),
        *_ranks(evidence, layout),
        *_wires(evidence, layout),
        *_waits(evidence, layout),
        *_remarks(evidence.job, layout),
        *_counters(evidence, layout),
        *_settings(evidence.settings, layout),
        *_sources(evidence, layout),
    ]


def _about(evidence: JobEvidence) -> str:
    gpus = f"{count(len(evidence.gpus), 'GPU')} of this node"
    job = evidence.job
    if isinstance(job, Absent):
        return f"{evidence.name}, {gpus}; {job.detail}"
    ranks = max((comm.ranks for comm in job.communicators), default=0)
    nodes = max((comm.nodes for comm in job.communicators), default=0)
    where = f"{ranks} ranks on {count(nodes, 'node')}" if ranks else "no communicator yet"
    hours = (evidence.now - job.since) / 3600
    owners = [one for one in job.owners if one != job.name]
    return f"{', '.join((job.name, *owners))}, {where}, {gpus}, user {job.uid}, since {hours:.1f} h"


def _ledger(evidence: JobEvidence, layout: PageLayout) -> Iterator[str]:
    """Yield for each GPU the use of the last minutes, and of the last seconds."""
    ledger = evidence.ledger
    if isinstance(ledger, Absent):
        yield from ("", f"Where the time goes: {ledger.detail or ledger.why.value}")
        return
    numbers = {gpu.uuid: gpu.index for gpu in evidence.gpus if gpu.index.isdigit()}
    for gpus in (ledger.long, ledger.short):
        if gpus:
            seconds = min(one.seconds for one in gpus)
            rows = [("GPU", *_SPENT.values()), *(_spent(one, numbers) for one in gpus)]
            yield from layout.titled(f"Where the time of the last {span(seconds)} went", rows)
    for one in ledger.long or ledger.short:
        if one.idle:
            name = gpu_name(numbers.get(one.gpu, one.index), one.gpu)
            yield from layout.indented(f"{name} idle: its process: {one.idle}")


def _spent(one: GpuLedger, numbers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the row of a GPU, with the GPUs that it waits for, the costliest first."""
    whom = [gpu for gpu, share in sorted(one.waits_for.items(), key=lambda item: -item[1]) if share >= TINY]
    waits = first([numbers.get(gpu, gpu) for gpu in whom], 2)
    shares = (percent(one.shares.get(kind, 0.0)) if isinstance(kind, Spent) else waits for kind in _SPENT)
    return numbers.get(one.gpu, one.gpu), *shares


def _ranks(evidence: JobEvidence, layout: PageLayout) -> Iterator[str]:
    shares = {} if isinstance(evidence.job, Absent) else {gpu.gpu: gpu for gpu in evidence.job.gpus}
    head = (
        "GPU", "ranks", "pid", "in coll.", "waiting", "late", "active", "SM", "memory", "arith.", "thread",
        "power", "throttled",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = [head]
    for gpu in evidence.gpus:
        one = shares.get(gpu.uuid)
        times = (one.in_collectives, one.waiting, one.late) if one else (NOT_WATCHED,) * 3
        active = gpu.utilisation if isinstance(gpu.graphics, Absent) else gpu.graphics
        busy = (active, gpu.sm, gpu.dram, gpu.math, gpu.thread)
        rows.append((
            gpu.index or gpu.uuid, ranks_on(evidence, gpu.uuid) or "-", ",".join(map(str, gpu.pids)) or "-",
            *map(percent, (*times, *busy)), _power(gpu.power), _reasons(gpu),
        ))  # fmt: skip
    yield from layout.titled("Ranks and GPUs (shares of the time)", rows)


def _power(watts: float | Absent) -> str:
    return "-" if isinstance(watts, Absent) else f"{watts:.0f} W"


def _reasons(gpu: JobGpu) -> str:
    return "-" if isinstance(gpu.throttled, Absent) else ",".join(gpu.throttled) or "no"


def _wires(evidence: JobEvidence, layout: PageLayout) -> Iterator[str]:
    wire = wire_in_use(evidence)
    yield ""
    said = f"not known ({wire.detail})" if isinstance(wire, Absent) else wire
    yield from layout.wrapped(f"Wire in use: {said}", "", " " * GAP)
    found = timed_rows(evidence.job)
    if not found:
        return
    head = ("operation", "algorithm", "ranks", "timed", "time", "got", "best", "expected", "best/exp.")
    yield from layout.titled("Collectives", [head, *map(_row, found[:MOST_ROWS])], left=2)
    if len(found) > MOST_ROWS:
        yield f"  and {len(found) - MOST_ROWS} more, which take less of the time"
    seen: set[tuple[str, ...]] = set()
    for row in found[:MOST_ROWS]:
        if row.derivation and row.derivation not in seen:
            seen.add(row.derivation)
            text = f"expected of {operation(row.op, row.bytes)}: {'; '.join(row.derivation)}"
            yield from layout.indented(text)


def _row(row: OperationTimes) -> tuple[str, ...]:
    way = ", ".join(one for one in (row.algorithm, row.protocol) if one) or "-"
    ratio = NOT_WATCHED if row.best_ratio is None else row.best_ratio
    seconds = f"{row.wire_seconds / MICRO:.0f} us" if row.small else f"{row.wire_seconds * 1e3:.3g} ms"
    due = row.floor if row.small else row.expected
    expected = "-" if isinstance(due, Absent) else f"{due / MICRO:.0f} us" if row.small else rate(due)
    way += f", {row.channels} channels" if row.channels else ""
    return (
        operation(row.op, row.bytes), way, str(row.ranks), str(row.joined),
        seconds, rate(row.busbw), rate(row.best), expected, percent(ratio),
    )  # fmt: skip


def _waits(evidence: JobEvidence, layout: PageLayout) -> Iterator[str]:
    for comm in communicators(evidence):
        if comm.late is not None or comm.doubt is not None or comm.elsewhere or comm.captured:
            yield ""
            yield f"Communicator {comm.name or comm.id}: {comm.ranks} ranks, {len(comm.here)} here"
            yield from layout.indented("; ".join(_said(evidence, comm)))


def _said(evidence: JobEvidence, comm: CommunicatorTimes) -> Iterator[str]:
    if comm.late is not None:
        late = comm.late
        yield (
            f"who waits for whom: all for {late_name(evidence, late)}, last in "
            f"{late.votes} of {late.voted} collectives; the others lose {'at most ' * late.at_most}"
            f"{percent(late.cost)} of the time"
        )
    if comm.elsewhere:
        yield comm.elsewhere
    if comm.doubt is not None:
        yield f"not judged: {comm.doubt.value}"
    if comm.captured:
        yield f"{comm.captured} calls in CUDA graphs: from then on counted, not timed"


def _remarks(job: RunningJob | Absent, layout: PageLayout) -> Iterator[str]:
    """Yield remarks for the job's owner that are no fault of the node."""
    remarks = () if isinstance(job, Absent) else job.remarks
    yield from ("", "Remarks") if remarks else ()
    for one in remarks:
        cost = "" if one.cost is None else f" (costs {percent(one.cost)} of the time)"
        yield from layout.indented(f"{one.kind.value}: {one.text}{cost}")


def _counters(evidence: JobEvidence, layout: PageLayout) -> Iterator[str]:
    rows = [("GPU", "NVLink sent", "of peak", "in bursts", "bursts take")]
    for gpu in evidence.gpus:
        known = not isinstance(gpu.plateau, Absent)
        if known or not isinstance(gpu.sent, Absent):
            least = "at least " if gpu.short and known else ""
            burst = f"{least}{rate(gpu.plateau)}"
            rows.append((gpu.index or gpu.uuid, rate(gpu.sent), _of_peak(gpu), burst, percent(gpu.duty)))
    if len(rows) > 1:
        yield from layout.titled("Counters", rows)
    for one in evidence.findings:
        text = f"finding {one.rule} ({one.health}) at {one.subject}: {one.evidence}; {one.action}"
        yield from layout.indented(text)


def _of_peak(gpu: JobGpu) -> str:
    if isinstance(gpu.sent, Absent) or isinstance(gpu.peak, Absent) or gpu.peak <= 0:
        return "-"
    return percent(gpu.sent / gpu.peak)


def _settings(read: Sequence[JobSettings], layout: PageLayout) -> Iterator[str]:
    """Yield slowing settings, common settings of all processes in short, and processes that were not read."""
    if not read:
        return
    yield ""
    yield "NCCL settings of its processes"
    texts: dict[str, list[int]] = {}
    for number, one in enumerate(read):
        if not isinstance(one.settings, Absent):
            slowing = {name: effect for name, _, effect in slowing_settings(one.settings)}
            for name, value in sorted(one.settings.items()):
                does = "slows: " if name in slowing and is_shown(name, value) else ""
                slow = f"; {does}{slowing[name]}" if name in slowing else ""
                texts.setdefault(f"{name}={value}{slow}", []).append(one.pid)
        elif number < MOST_RANKS:
            yield f"  process {one.pid}: not read: {one.settings.detail or one.settings.why.value}"
    for text, pids in texts.items():
        whose = "" if len(pids) == len(read) else f" (process {', '.join(map(str, pids[:8]))})"
        yield from layout.indented(f"{text}{whose}")
    if not texts and not all(isinstance(one.settings, Absent) for one in read):
        yield "  none is set"


def _sources(evidence: JobEvidence, layout: PageLayout) -> Iterator[str]:
    missing = [one for one in evidence.sources if not one.watched]
    yield from ("", "Not watched") if missing else ()
    for one in missing:
        yield from layout.indented(f"{one.source.value}: {one.switch_on} ({one.why})")
