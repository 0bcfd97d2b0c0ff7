"""What `wirewatch parse` read, as text for people: GB/s are 10^9 bytes per second, as in nccl-tests."""

from collections.abc import Iterator, Sequence

from wirewatch.busbw.expected import GB, human
from wirewatch.cli.tables import MICRO, table
from wirewatch.core.types import Health
from wirewatch.study.logsummary import LogSummary
from wirewatch.study.nccltests import Reader
from wirewatch.study.parsed import ParseDocument, ParsedPlacement, ParsedRow, ParsedRun

_RUNS = 50
"""Runs that people are shown."""
_HEADER = (
    "size", "type", "us", "busbw GB/s", "ratio", "in place us", "busbw GB/s", "ratio", "expected", "wrong"
)  # fmt: skip


def why(health: Health, runs: Sequence[ParsedRun], reader: Reader, log: LogSummary) -> str:
    """A verdict in one line, with what it leaves out."""
    missed = reader.not_understood
    parts = [_why(health, runs, reader.failures, log)]
    parts += ["values were not checked"] if runs and not any(run.checked for run in runs) else []
    parts += [f"{missed} row{'' if missed == 1 else 's'} not understood"] if missed else []
    return "; ".join(parts)


def text(document: ParseDocument, *, explain: bool) -> Iterator[str]:
    """All of it, from the verdict to the rows; `explain`: how each expected busbw follows."""
    yield f"{document.health.upper()}: {document.why}"
    for run in document.runs[:_RUNS]:
        yield ""
        yield from _run(run, explain=explain)
    if len(document.runs) > _RUNS:
        yield ""
        yield f"{len(document.runs) - _RUNS} more runs are judged and not shown"
    yield from (f"failed: {failure}" for failure in document.failures)
    if document.nccl_log is not None:
        yield ""
        # What a log lacks is worth a word where there is nothing else.
        brief = document.runs and document.nccl_log.hot is None
        yield from document.nccl_log.lines()[: 1 if brief else None]
    if document.not_understood:
        yield ""
        yield f"look like rows and are none: {document.not_understood}; the first:"
        yield from (f"  line {one.line}, {one.why}: {one.text}" for one in document.first)


def _why(health: Health, runs: Sequence[ParsedRun], failures: Sequence[str], log: LogSummary) -> str:
    if not runs and not failures:
        return log.answer
    if health is Health.FAILED:
        return _first([*(failure for run in runs for failure in run.failures), *failures])
    if health is Health.DEGRADED:
        missed = [one.text for run in runs for one in run.targets if one.reached is False]
        return _first([*(low for run in runs for low in run.low), *missed])
    if health is Health.OK:
        return _judged(runs)
    return next((run.reason for run in runs if run.reason), "nothing could be judged")


def _first(found: Sequence[str]) -> str:
    return found[0] + (f", and {len(found) - 1} more below" if len(found) > 1 else "")


def _judged(runs: Sequence[ParsedRun]) -> str:
    rows = [
        (placed.ratio, row.size_bytes, run.op)
        for run in runs
        for row in run.rows
        for placed in (row.out_of_place, row.in_place)
        if placed is not None and placed.ratio is not None
    ]
    if not rows:
        return "all targets are reached"
    ratio, size, op = min(rows)
    return f"the lowest is {ratio * 100:.0f} % of what is expected, {op} of {human(size)}"


def _run(run: ParsedRun, *, explain: bool) -> Iterator[str]:
    yield _title(run)
    yield from (f"  {remark}" for remark in run.remarks)
    yield from (f"  FAILED {failure}" for failure in run.failures)
    yield from (f"  LOW {low}" for low in run.low)
    yield from table(_HEADER, [_row(row) for row in run.rows])
    if run.rows_left_out:
        yield f"  {run.rows_left_out} more rows are judged and not shown"
    for curve in run.curves:
        yield f"  {curve.dtype}, {'in place' if curve.in_place else 'out of place'}: {curve.text}"
    if run.reason:
        yield f"  not judged: {run.reason}"
    yield f"  targets between nodes: {run.targets_apply}"
    yield from (f"    {'LOW ' if one.reached is False else ''}{one.text}" for one in run.targets)
    if explain:
        for row in run.rows:
            if row.derivation:
                yield f"  {run.op} of {human(row.size_bytes)}:"
                yield from (f"    {line}" for line in row.derivation)
                yield f"    confidence: {row.confidence}"


def _title(run: ParsedRun) -> str:
    hosts, products = len(run.hosts), ", ".join(run.products)
    on = f" on {hosts} host{'' if hosts == 1 else 's'}" if hosts else ""
    ranks = "an unknown number of ranks" if run.ranks is None else f"{run.ranks} ranks"
    versions = [f"nccl-tests {run.nccl_tests}"] if run.nccl_tests else []
    versions += [f"NCCL {run.nccl}"] if run.nccl else []
    parts = [run.op or "an unknown operation", ranks + on, products, *versions, run.launch]
    return f"line {run.line}: {', '.join(part for part in parts if part)}: {run.health.upper()}"


def _row(row: ParsedRow) -> tuple[str, ...]:
    times = "" if row.repeats == 1 else f" x{row.repeats}"
    wrong = [placed.wrong for placed in (row.out_of_place, row.in_place) if placed is not None]
    known = [count for count in wrong if count is not None]
    return (
        human(row.size_bytes) + times, row.dtype, *_placed(row.out_of_place), *_placed(row.in_place),
        "-" if row.expected_busbw is None else f"{row.expected_busbw / GB:.1f}",
        "not checked" if not known else str(sum(known) or "no"),
    )  # fmt: skip


def _placed(placed: ParsedPlacement | None) -> tuple[str, str, str]:
    if placed is None:
        return "-", "-", "-"
    return (
        "-" if placed.seconds is None else f"{placed.seconds * MICRO:.1f}",
        "-" if placed.busbw is None else f"{placed.busbw / GB:.1f}",
        "-" if placed.ratio is None else f"{placed.ratio * 100:.0f} %",
    )
