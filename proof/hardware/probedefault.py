"""The default plan again and again: its fitted bandwidths against nccl-tests, and its path proof."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from proof.hardware.comparing import percent
from proof.hardware.kit import Report
from proof.hardware.nccltests import NcclTests
from proof.hardware.probing import Probing
from proof.hardware.probing import as_document as document_of
from wirewatch.core.probe import MIB, OPS, Probed
from wirewatch.probe import measurement
from wirewatch.probe.measurement import asymptotes, measure

RUNS = 10
ORACLE_EVERY = 2
SIZE = 1024 * MIB
WITHIN = 0.03
ENOUGH = 9
BYTES_WITHIN = 0.05
UNEVEN = 0.05


def run(here: Probing, oracle: NcclTests) -> None:
    probes: list[Probed] = []
    theirs: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(RUNS):
        here.report.progress(f"default plan: run {number + 1} of {RUNS}")
        probes.append(here.must("default"))
        if number % ORACLE_EVERY == 0:
            for op in OPS:
                theirs[op].append(oracle.sizes(op, SIZE).row(SIZE).in_place.busbw)
    _asymptotes(here.report, probes, theirs)
    here.report.attempt("the path proof", lambda: _path(here.report, probes))


def _asymptotes(report: Report, probes: Sequence[Probed], theirs: dict[str, list[float]]) -> None:
    found = [asymptotes(measure(one)) for one in probes]
    rows: list[list[object]] = []
    for op in OPS:
        middle = statistics.median(theirs[op])
        ours = [one[0, op] for one in found if (0, op) in one]
        off = [value / middle - 1 for value in ours]
        good = sum(abs(one) <= WITHIN for one in off)
        rows.append([op, middle / 1e9, *(percent(one) for one in off)])
        report.check(
            f"{op}: the fit is within {100 * WITHIN:g} % of nccl-tests at 1 GiB in {ENOUGH} of {RUNS} runs",
            ok=good >= ENOUGH, told=f"{good} of {len(off)}",
        )  # fmt: skip
    header = ["collective", "nccl-tests, GB/s", *(f"run {n + 1}" for n in range(len(found)))]
    wide = [row + [""] * (len(header) - len(row)) for row in rows]
    report.table("fitted bus bandwidth of ever larger messages against nccl-tests at 1 GiB", header, wide)
    report.note(asymptotes=[{op: one.get((0, op)) for op in OPS} for one in found], oracle_1g=dict(theirs))


def _path(report: Report, probes: Sequence[Probed]) -> None:
    crossings = [one for probed in probes for one in measurement.crossings(probed, measure(probed))]
    shares = [
        value / one.due - 1 for one in crossings for value in (one.sent, one.received) if value is not None
    ]
    unknown = sum(None in {one.sent, one.received} for one in crossings)
    due = len(probes) * len(probes[0].gpus) * (len(OPS) + 1)
    # A reading of a counter that stood still beside a moving twin is none: rare, and given as not known.
    whole = len(crossings) == due and unknown <= due // 50
    ok = whole and bool(shares) and max(map(abs, shares)) <= BYTES_WITHIN
    most = max(shares, key=abs, default=float("nan"))
    report.check(
        f"NVLink's bytes within {100 * BYTES_WITHIN:g} % of the algorithm's", ok=ok,
        told=f"{len(crossings)} of {due} parts, worst {percent(most)}, {unknown} without a reading",
    )  # fmt: skip
    uneven = [
        found for probed in probes for links in probed.links if (found := measurement.unevenness(links))
    ]
    away = max((one[1] for one in uneven), default=float("nan"))
    report.check(
        f"each link carries within {100 * UNEVEN:g} % of its GPU's mean",
        ok=len(uneven) == len(probes) * len(probes[0].gpus) and away <= UNEVEN,
        told=f"{len(uneven)} GPUs in {len(probes)} runs, farthest {percent(away)}",
    )  # fmt: skip
    errors = [as_document for probed in probes if (as_document := measurement.new_errors(probed))]
    report.check("no new NVLink errors", ok=not errors, told=str(errors[:2]) if errors else "")
    _documents(report, probes)


def _documents(report: Report, probes: Sequence[Probed]) -> None:
    documents = [document_of(one) for one in probes]
    report.note(document=documents[-1])
    ways = sorted({one["transport"] for one in documents})
    report.check("NCCL went from GPU to GPU", ok=ways == ["p2p"], told=", ".join(ways))
    findings = [f"{f['rule']}: {f['evidence']}" for one in documents for f in one["findings"]]
    report.check("no finding", ok=not findings, told="; ".join(findings[:3]))
    wrong = sum(result["wrong"] for one in documents for result in one["results"])
    checked = sum(len(one["results"]) for one in documents)
    report.check(
        "no wrong element", ok=wrong == 0 and checked > 0, told=f"{wrong} wrong in {checked} collectives"
    )
