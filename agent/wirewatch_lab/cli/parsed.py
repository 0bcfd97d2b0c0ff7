"""What `wirewatch parse` read, as text for people: GB/s are 10^9 bytes per second, as in nccl-tests."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from wirewatch.cli.tables import MICRO, table
from wirewatch.core.types import Health
from wirewatch.core.words import GB
from wirewatch.core.words import size as human
from wirewatch_lab.study.judge import JudgedRun
from wirewatch_lab.study.logsummary import LogSummary
from wirewatch_lab.study.nccltests import Reader
from wirewatch_lab.study.parsed import (
    ParseDocument,
    ParsedPlacement,
    ParsedRow,
    ParsedRun,
    low_text,
    target_text,
)

_RUNS = 50
"""Runs that people are shown."""
_HEADER = (
    "size", "type", "us", "busbw GB/s", "ratio", "in place us", "busbw GB/s", "ratio", "expected", "wrong"
)  # fmt: skip


@dataclass(slots=True)
class Tally:
    """What all runs have in common to say: how many things are wrong and the first of them.

    `lowest`: ratio, size and operation of the row that is nearest to its limit.
    """

    runs: int = 0
    wrong: dict[Health, tuple[int, str]] = field(default_factory=dict)
    lowest: tuple[float, int, str] = (math.inf, 0, "")
    reason: str = ""
    checked: bool = False
    healths: set[Health] = field(default_factory=set)
    bad: ClassVar[frozenset[Health]] = frozenset({Health.DEGRADED, Health.FAILED})

    def add(self, judged: JudgedRun) -> None:
        """Take a run."""
        self.runs += 1
        self.healths.add(judged.health)
        self.checked |= judged.checked
        self.reason = self.reason or judged.reason
        low = [low_text(judged.run.op, one) for one in judged.low]
        low += [target_text(one) for one in judged.targets if one.point and one.busbw < one.target.least]
        for health, found in ((Health.FAILED, list(judged.failures)), (Health.DEGRADED, low)):
            self._count(health, found)
        for one in judged.sizes:
            self.lowest = min(self.lowest, (one.ratio, one.point.size_bytes, judged.run.op))

    def why(self, health: Health, reader: Reader, log: LogSummary) -> str:
        """A verdict in one line, with what it leaves out."""
        self._count(Health.FAILED, reader.failures)
        missed = reader.not_understood
        parts = [self._why(health, log)]
        parts += ["values were not checked"] if self.runs and not self.checked else []
        parts += [f"{missed} row{'' if missed == 1 else 's'} not understood"] if missed else []
        return "; ".join(parts)

    def _count(self, health: Health, found: Sequence[str]) -> None:
        if found:
            count, first = self.wrong.get(health, (0, found[0]))
            self.wrong[health] = (count + len(found), first)

    def _why(self, health: Health, log: LogSummary) -> str:
        if health in self.wrong:
            count, first = self.wrong[health]
            return first + (f", and {count - 1} more below" if count > 1 else "")
        if not self.runs:
            return log.answer
        if health is not Health.OK:
            return self.reason or "nothing could be judged"
        ratio, size, op = self.lowest
        if not math.isfinite(ratio):
            return "all targets are reached"
        return f"the lowest is {ratio * 100:.0f} % of what is expected, {op} of {human(size)}"


def text(document: ParseDocument, *, explain: bool) -> Iterator[str]:
    """All of it, from the verdict to the rows; `explain`: how each expected busbw follows."""
    yield f"{document.health.upper()}: {document.why}"
    for run in document.runs[:_RUNS]:
        yield ""
        yield from _run(run, explain=explain)
    more = max(len(document.runs) - _RUNS, 0) + document.runs_left_out
    if more:
        yield ""
        yield f"{more} more runs are judged and not shown"
    yield from (f"failed: {failure}" for failure in document.failures)
    if document.nccl_log is not None:
        yield ""
        # What a log lacks is worth a word where there is nothing else.
        brief = document.runs and document.nccl_log.hot is None
        yield from document.nccl_log.lines()[: 1 if brief else None]
    if document.not_understood:
        yield ""
        yield f"look like rows and are not: {document.not_understood}; the first:"
        yield from (f"  line {one.line}, {one.why}: {one.text}" for one in document.first)


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
