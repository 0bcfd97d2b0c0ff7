"""Tables for people, and the text of a probe: GB/s are 10^9 bytes per second, as in nccl-tests."""

import re
from collections.abc import Iterator, Sequence

from wirewatch.busbw.references import LEAST_BYTES
from wirewatch.core.words import size as human
from wirewatch.documents.probes import (
    CollectiveResult,
    GpuResult,
    PeerCopy,
    ProbeDocument,
    RunResult,
    Straggler,
)
from wirewatch.probe.request import OFF, Difference

GB = 1e9
MICRO = 1e6
GIB = 1 << 30
_NUMBER = re.compile(r"-|\d[\d.]*( ?[%A-Za-z/]{1,4})?")
GPUDIRECT = {
    "proven": "proven by NCCL's log", "partly": "on some connections, by NCCL's log",
    "refuted": "not used, by NCCL's log", "not_known": "not known: NCCL's log names no network connection",
}  # fmt: skip
SMALL = 1 << 20
"""Bytes below which a message measures latency and no bandwidth."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows as lines in columns; text is aligned to the left, numbers to the right."""
    if not rows:
        return
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [
            cell.rjust(w) if _number(rows[0][i]) else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()


def probe_tables(probe: ProbeDocument, *, explain: bool) -> str:
    """The text of one probe, from the verdict to the numbers; `explain`: how each expected busbw follows."""
    return "\n".join(_lines(probe, explain=explain))


def side_by_side(probe: ProbeDocument) -> Iterator[str]:
    """One table with the busbw of each run, in how far they differ, and which could not be compared."""
    known = {(r.op, r.size_bytes, r.gpus, run.name): r for run in probe.runs for r in run.results}
    rows = list(dict.fromkeys(key[:3] for key in known))
    gain = {(d.op, d.size_bytes, d.gpus, d.run): d for d in probe.differences}
    compared = {
        d.run: "gain" if d.against == OFF else f"{d.run} against {d.against}" for d in probe.differences
    }
    runs = (f"{run.name} GB/s" for run in probe.runs)
    from_bytes = _judged_from(probe)
    yield ""
    yield from table(
        ("op", "size", "gpus", *runs, "expected", *compared.values()),
        [
            (
                op, human(size), gpus,
                *(_cell(run, known.get((op, size, gpus, run.name))) for run in probe.runs),
                next(_expected(known[op, size, gpus, run.name], from_bytes)
                     for run in probe.runs if (op, size, gpus, run.name) in known),
                *(_gain(gain.get((op, size, gpus, name))) for name in compared),
            )
            for op, size, gpus in rows
        ],
    )  # fmt: skip
    if compared:
        yield "  in brackets the spread of single timed runs of both; !: the difference is more than that"
    yield from _without_reference([result for run in probe.runs for result in run.results], from_bytes)
    yield from _remarks(probe.runs)


def _cell(run: RunResult, result: CollectiveResult | None) -> str:
    if result is None:
        return "not installed" if run.outcome == "no_engine" else run.outcome if run.outcome != "ok" else "-"
    wrong = f", {result.wrong} wrong" if result.wrong else ""
    rate = result.busbw / GB
    return f"{rate:.1f}{wrong}" if rate >= 1 else f"{rate:.3f}{wrong}"


def _not_as_asked(probe: ProbeDocument) -> Iterator[str]:
    """Why it shows nothing of what was asked."""
    if probe.outcome != "ok":
        yield f"  {probe.outcome}: {probe.why}"
    elif probe.unproven and not probe.runs:
        yield f"  not as asked: {probe.unproven}"
    elif why := _common_problem(probe.runs):
        yield f"  nothing to compare: {why}"


def _common_problem(runs: Sequence[RunResult]) -> str:
    """Why no run is compared, where that is the same of all."""
    problems = {run.problem for run in runs}
    return problems.pop() if len(problems) == 1 else ""


def _remarks(runs: Sequence[RunResult]) -> Iterator[str]:
    common = _common_problem(runs)
    for run in runs:
        if run.problem and not common:
            yield f"  {run.name}: not compared: {run.problem}"
        if run.not_offered:
            yield f"  {run.name}: not offered: {', '.join(run.not_offered)}"
        if run.gpudirect:
            yield f"  {run.name}: GPUDirect RDMA is {GPUDIRECT[run.gpudirect]}"


def _gain(one: Difference | None) -> str:
    if one is None:
        return "-"
    spreads = [f"{spread * 100:.1f} %" for spread in (one.spread, one.against_spread) if spread is not None]
    beside = ", ".join(spreads) if one.beyond_spread is not None else "no spread"
    return f"{one.difference * 100:+.1f} % ({beside}){' !' if one.beyond_spread else ''}"


def _number(text: str) -> bool:
    """Whether the text is a number, with or without a short unit, or the mark for a missing one."""
    return _NUMBER.fullmatch(text) is not None


def _lines(probe: ProbeDocument, *, explain: bool) -> Iterator[str]:
    kinds = ["forced"] if probe.forced else []
    kinds += [f"study, not kept: {'; '.join(probe.study)}"] if probe.study else []
    label = f" ({', '.join(kinds)}: no verdict about the node)" if kinds else ""
    yield f"{probe.health.upper()}{label}"
    yield from _not_as_asked(probe)
    if probe.not_offered and probe.results and not probe.runs:
        yield f"  not offered by the engine {probe.engine}: {', '.join(probe.not_offered)}"
    if probe.not_recorded and probe.outcome != "skipped":
        yield f"  not in the recording: {', '.join(probe.not_recorded)}"
    for finding in probe.findings:
        subject = " ".join(f"{name} {value}" for name, value in finding.subject.items() if name != "uuid")
        yield f"  {finding.health.upper()} {finding.rule} {subject}".rstrip()
        yield f"    {finding.evidence}"
        yield f"    {finding.action}"
    if probe.runs:
        yield from side_by_side(probe)
    elif probe.results:
        yield ""
        versions = ", ".join(f"{name} {version}" for name, version in probe.versions.items())
        by = f"engine {probe.engine}" + (f" ({versions})" if versions else "")
        yield by + (f", between GPUs: {probe.transport}" if probe.transport else "")
        yield from _results(probe.results, _judged_from(probe))
        yield from _without_reference(probe.results, _judged_from(probe))
        yield from _network(probe)
        yield from _asymptotes(probe)
        yield from _gpus(probe.gpus)
        yield from _stragglers(probe.stragglers)
        yield from _matrix(probe.copies)
        yield from _cost(probe)
    if probe.slowing:
        yield ""
        yield "NCCL settings that lower bandwidth:"
        yield from (f"  {line}" for line in probe.slowing)
    if explain:
        yield from _explained(probe.results)
        yield from _expected_network(probe)


def _judged_from(probe: ProbeDocument) -> int:
    """Bytes from which something is expected of a message: over the network of every one."""
    return 0 if probe.network is not None else LEAST_BYTES


def _results(results: Sequence[CollectiveResult], from_bytes: int) -> Iterator[str]:
    rows = [
        (
            r.op, human(r.size_bytes), r.gpus, f"{r.seconds * MICRO:.1f}",
            "-" if r.size_bytes < SMALL else f"{r.busbw / GB:.1f}",
            _expected(r, from_bytes), _percent(r.ratio),
            _percent(r.peak_ratio), f"{r.algorithm}/{r.protocol}".strip("/") or "?",
            "no" if not r.wrong else f"{r.wrong} elements",
        )
        for r in results
    ]  # fmt: skip
    header = ("op", "size", "gpus", "us", "busbw GB/s", "expected", "ratio", "of wire", "by", "wrong")
    yield from table(header, rows)


def _expected(result: CollectiveResult, from_bytes: int) -> str:
    if result.expected_busbw is not None:
        return f"{result.expected_busbw / GB:.1f}"
    return "no reference" if result.no_reference and result.size_bytes >= from_bytes else "-"


def _without_reference(results: Sequence[CollectiveResult], from_bytes: int) -> Iterator[str]:
    """Why nothing is expected of messages that are large enough, each reason once."""
    reasons: dict[str, list[str]] = {}
    for one in results:
        if one.no_reference and one.size_bytes >= from_bytes:
            reasons.setdefault(one.no_reference, []).append(one.op)
    for reason, ops in reasons.items():
        yield f"  {', '.join(dict.fromkeys(ops))}: {reason}"


def _network(probe: ProbeDocument) -> Iterator[str]:
    if probe.network is None:
        return
    yield f"  GPUDirect RDMA is {GPUDIRECT[probe.network.gpudirect]}"
    sent = {name: count for name, count in probe.network.sent_bytes.items() if count}
    if sent:
        yield f"  the RDMA ports sent: {', '.join(f'{name} {n / GB:.1f} GB' for name, n in sent.items())}"


def _expected_network(probe: ProbeDocument) -> Iterator[str]:
    """What is expected over the network, also where nothing was measured."""
    if probe.network is not None:
        yield ""
        yield "large messages over the network:"
        yield from (f"  {line}" for line in probe.network.derivation)


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.0f} %"


def _asymptotes(probe: ProbeDocument) -> Iterator[str]:
    if probe.asymptotes:
        values = ", ".join(
            f"{a.op}{'' if a.gpus == 'all' else f' on GPUs {a.gpus}'} {a.busbw / GB:.1f}"
            for a in probe.asymptotes
        )
        yield f"  busbw of ever larger messages, GB/s: {values}"


def _gpus(gpus: Sequence[GpuResult]) -> Iterator[str]:
    rows = [
        (
            str(g.gpu), _scaled(g.gemm_seconds, 1e3, 3), _scaled(g.memory_copy_bytes_per_second, 1 / GB, 0),
            _scaled(g.sm_clock, 1e-6, 0), _scaled(g.memory_peak, 1 / GIB, 2),
        )
        for g in gpus
    ]  # fmt: skip
    if rows:
        yield ""
        yield from table(("gpu", "product ms", "memory GB/s", "SM MHz", "GiB in use at most"), rows)


def _stragglers(stragglers: Sequence[Straggler]) -> Iterator[str]:
    """What is slow by this probe alone, confirmed or not."""
    if not stragglers:
        return
    yield ""
    yield "slow, by this probe:"
    rows = [
        (
            "all GPUs" if s.gpu is None else f"GPU {s.gpu}" + ("" if s.peer is None else f" to {s.peer}"),
            s.resource, f"{s.lost * 100:.0f} %", "its own history" if s.against == "own" else "its peers",
            _scaled(s.score, 1, 0), ", ".join(s.follows),
        )
        for s in stragglers
    ]  # fmt: skip
    yield from table(("part", "resource", "slower", "than", "deviations", "slowed by it"), rows)


def _scaled(value: float | None, by: float, digits: int) -> str:
    return "-" if value is None else f"{value * by:.{digits}f}"


def _matrix(copies: Sequence[PeerCopy]) -> Iterator[str]:
    if not copies:
        return
    places = sorted({c.source for c in copies})
    found = {(c.source, c.destination): f"{c.bytes_per_second / GB:.1f}" for c in copies}
    yield ""
    yield "copies between GPUs, GB/s (rows send):"
    rows = [(str(a), *(found.get((a, b), "-") for b in places)) for a in places]
    yield from table(("", *map(str, places)), rows)


def _cost(probe: ProbeDocument) -> Iterator[str]:
    busy = max(probe.kernel_seconds, default=0.0)
    yield ""
    if probe.engine == "gloo":
        yield f"took {probe.seconds:.2f} s, on CPUs alone: this says nothing about GPUs"
        return
    held = f"held the GPUs for {probe.held_seconds:.2f} s"
    yield f"took {probe.seconds:.2f} s, {held}, {busy * 1e3:.0f} ms of work each"


def _explained(results: Sequence[CollectiveResult]) -> Iterator[str]:
    for result in results:
        if result.size_bytes < SMALL:
            continue
        yield ""
        yield f"{result.op} of {human(result.size_bytes)}, {result.ranks} ranks ({result.gpus}):"
        yield from (f"  {line}" for line in result.derivation)
        if result.confidence:
            yield f"  confidence: {result.confidence}"
        if result.usual_busbw is not None:
            yield f"  usual here: {result.usual_busbw / GB:.1f} GB/s, the median of accepted probes"
