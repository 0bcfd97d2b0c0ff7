"""Tables for people, and the text of a probe: GB/s are 10^9 bytes per second, as in nccl-tests."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wirewatch.busbw.references import LEAST_BYTES
from wirewatch.cli.templates import render
from wirewatch.core.probe import OFF, Difference
from wirewatch.core.statistics import grouped
from wirewatch.core.words import GB, GIB, MIB, MICRO, UNKNOWN, percent, size
from wirewatch.documents.probes import CollectiveResult, HostLinkResult, ProbeDocument, RunResult, Straggler

_NUMBER = re.compile(r"-|\d[\d.]*( ?[%A-Za-z/]{1,4})?")
"""A number, with or without a short unit, or the mark for a missing one."""
GPUDIRECT = {
    "proven": "proven by NCCL's log", "partly": "on some connections, by NCCL's log",
    "refuted": "not used, by NCCL's log", "not_known": "not known: NCCL's log names no network connection",
}  # fmt: skip
SMALL = MIB
"""Bytes below which a message measures latency and no bandwidth."""
Row = tuple[str, ...]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the rows as lines in columns: text aligned to the left, numbers to the right."""
    if not rows:
        return
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [
            cell.rjust(w) if _NUMBER.fullmatch(rows[0][i]) else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()


def probe_tables(probe: ProbeDocument, *, explain: bool) -> str:
    """Return the text of one probe; `explain`: with the derivation of each expected busbw."""
    # Something is expected of every message over the network, and of large ones within a node.
    least = 0 if probe.network is not None else LEAST_BYTES
    results = [one for run in probe.runs for one in run.results] or probe.results
    problems = {run.problem for run in probe.runs}
    places, copies = _matrix(probe)
    gpus = [
        (
            str(one.gpu), _scaled(one.gemm_seconds, 1e3, 3),
            _scaled(one.memory_copy_bytes_per_second, 1 / GB), _scaled(one.sm_clock, 1e-6),
            _scaled(one.memory_peak, 1 / GIB, 2),
        )
        for one in probe.gpus
    ]  # fmt: skip
    return render(
        "wirewatch.cli", "probe.j2", probe=probe, explain=explain, table=table, gb=_gb, small=SMALL,
        gpudirect=GPUDIRECT, common=problems.pop() if len(problems) == 1 else "", gpus=gpus, places=places,
        copies=copies, hosts=list(map(_host, probe.hosts)),
        host_ways=grouped((_way(one), str(one.gpu)) for one in probe.hosts).items(),
        results=[_result(one, least) for one in probe.results],
        stragglers=list(map(_straggler, probe.stragglers)), without_reference=_unexpected(results, least),
        **_side_by_side(probe, least),
    ).rstrip("\n")  # fmt: skip


def _side_by_side(probe: ProbeDocument, least: int) -> Mapping[str, Any]:
    """Return the busbw of each run and their differences: heads of columns, and a row for each message."""
    known = {(r.op, r.size_bytes, r.gpus, run.name): r for run in probe.runs for r in run.results}
    gain = {(d.op, d.size_bytes, d.gpus, d.run): d for d in probe.differences}
    against = {
        d.run: "gain" if d.against == OFF else f"{d.run} against {d.against}" for d in probe.differences
    }
    rows = [
        (
            message[0], size(message[1]), message[2],
            *(_cell(run, known.get((*message, run.name))) for run in probe.runs),
            _expected(next(one for key, one in known.items() if key[:3] == message), least),
            *(_gain(gain.get((*message, name))) for name in against),
        )
        for message in dict.fromkeys(key[:3] for key in known)
    ]  # fmt: skip
    heads = tuple(f"{run.name} GB/s" for run in probe.runs)
    return {"run_heads": heads, "gain_heads": tuple(against.values()), "beside": rows}


def _cell(run: RunResult, result: CollectiveResult | None) -> str:
    if result is None:
        return {"no_engine": "not installed", "ok": UNKNOWN}.get(run.outcome, run.outcome)
    wrong = f", {result.wrong} wrong" if result.wrong else ""
    return f"{result.busbw / GB:.{1 if result.busbw >= GB else 3}f}{wrong}"


def _gain(one: Difference | None) -> str:
    if one is None:
        return UNKNOWN
    spreads = [percent(spread, 1) for spread in (one.spread, one.against_spread) if spread is not None]
    beside = ", ".join(spreads) if one.beyond_spread is not None else "no spread"
    return f"{one.difference * 100:+.1f} % ({beside}){' !' if one.beyond_spread else ''}"


def _result(one: CollectiveResult, least: int) -> Row:
    return (
        one.op, size(one.size_bytes), one.gpus, f"{one.seconds * MICRO:.1f}",
        UNKNOWN if one.size_bytes < SMALL else _gb(one.busbw), _expected(one, least), percent(one.ratio),
        percent(one.peak_ratio), f"{one.algorithm}/{one.protocol}".strip("/") or "?",
        f"{one.wrong} elements" if one.wrong else "no",
    )  # fmt: skip


def _expected(result: CollectiveResult, least: int) -> str:
    if result.expected_busbw is not None:
        return _gb(result.expected_busbw)
    return "no reference" if result.no_reference and result.size_bytes >= least else UNKNOWN


def _unexpected(results: Sequence[CollectiveResult], least: int) -> list[str]:
    """Return why large messages have no expectation, each reason once."""
    large = (one for one in results if one.size_bytes >= least)
    reasons = grouped((one.no_reference, one.op) for one in large if one.no_reference)
    return [f"{', '.join(dict.fromkeys(ops))}: {reason}" for reason, ops in reasons.items()]


def _straggler(one: Straggler) -> Row:
    to = "" if one.peer is None else f" to {one.peer}"
    part = "all GPUs" if one.gpu is None else f"GPU {one.gpu}{to}"
    return (
        part, one.resource, percent(one.lost), "its own history" if one.against == "own" else "its peers",
        _scaled(one.score, 1), ", ".join(one.follows),
    )  # fmt: skip


def _host(one: HostLinkResult) -> Row:
    rates = (one.to_device, one.from_device, one.both, one.all_to_device, one.all_from_device)
    beside, link = ", ".join(map(str, one.shares_with)) or UNKNOWN, one.link or UNKNOWN
    return str(one.gpu), *map(_gb, rates), percent(one.ratio), link, percent(one.counted), beside


def _way(one: HostLinkResult) -> tuple[str, ...]:
    """Return the derivation of its expectation; without a trusted figure, what judges it instead."""
    placed = ("from CPUs near it",) if one.near else ()
    judged = "" if one.expected_to_device else ": siblings and its own past judge it, where they can"
    sure = (f"confidence: {one.confidence}{judged}",) if one.confidence else ()
    return *placed, *one.derivation, *sure


def _matrix(probe: ProbeDocument) -> tuple[Row, Sequence[Row]]:
    """Return the GPUs of copies, and a row for each sender."""
    places = sorted({one.source for one in probe.copies})
    found = {(one.source, one.destination): _gb(one.bytes_per_second) for one in probe.copies}
    rows = [(str(a), *(found.get((a, b), UNKNOWN) for b in places)) for a in places]
    return tuple(map(str, places)), rows


def _scaled(value: float | None, by: float, digits: int = 0) -> str:
    return UNKNOWN if value is None else f"{value * by:.{digits}f}"


def _gb(value: float) -> str:
    return f"{value / GB:.1f}"
