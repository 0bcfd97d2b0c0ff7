"""The lines of `wirewatch status`. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wirewatch.cli.check.answer import duration
from wirewatch.core.types import Subject
from wirewatch.core.words import GB
from wirewatch.documents.status import GpuStatus, HeadlineProbe, PortStatus, StatusDocument

GBIT, MIB, PERCENT = 1e9 / 8, 1 << 20, 100
NAMED = 3
"""Parts that are named one by one in a line."""
SHOWN = 5
"""Findings that are shown; `wirewatch findings list` has all."""
BETWEEN = "; "


@dataclass(frozen=True, slots=True)
class StatusLine:
    """A line: what it is about, its text, and in which tone, a health or `quiet`."""

    head: str
    text: str
    tone: str = ""


def status_lines(document: StatusDocument) -> Iterator[StatusLine]:
    """All lines, the verdict first."""
    ready = "a job may start" if document.job_ready else "no job may start"
    yield StatusLine(document.health.upper(), ready, document.health)
    if document.why:
        yield StatusLine("", document.why, "quiet")
    yield _gpus(document)
    yield _links(document.gpus)
    yield _pcie(document.gpus)
    yield _ports(document.ports)
    if document.paths:
        yield StatusLine("paths", f"GPU to its nearest NIC: {_counted(one.path for one in document.paths)}")
    if document.gpudirect:
        yield _gpudirect(document.gpudirect)
    yield from _probe(document)
    yield _jobs(document)
    if document.by != "own" or document.source == "live":
        yield from _read(document)
    yield from _findings(document)


def _gpus(document: StatusDocument) -> StatusLine:
    gpus = document.gpus
    if not gpus:
        return StatusLine("GPUs", "none has been read", "unknown")
    what = f"{len(gpus)} {document.product or 'of a product that is not known'}"
    driver = f"driver {document.driver}" if document.driver else "driver not known"
    ranges = (
        _range([one.celsius for one in gpus], "C"), _range([one.watts for one in gpus], "W"),
        _range([None if one.utilisation is None else one.utilisation * PERCENT for one in gpus], "% busy"),
    )  # fmt: skip
    return StatusLine("GPUs", BETWEEN.join((what, driver, ", ".join(filter(None, ranges)))))


def _links(gpus: Sequence[GpuStatus]) -> StatusLine:
    known = [one for one in gpus if one.links is not None]
    if not known:
        return StatusLine("NVLink", "none" if gpus else "not known", "quiet")
    up = sum(one.links or 0 for one in known)
    due = sum(one.links or 0 if one.links_expected is None else one.links_expected for one in known)
    low = [one for one in known if one.links_expected is not None and (one.links or 0) < one.links_expected]
    bad = [f"GPU {one.gpu} has {one.links} of {one.links_expected}" for one in low]
    return _with_bad("NVLink", f"{up} of {due} links up", bad, not_read=len(gpus) - len(known))


def _pcie(gpus: Sequence[GpuStatus]) -> StatusLine:
    known = [one for one in gpus if one.pcie_generation is not None and one.pcie_width is not None]
    if not known:
        return StatusLine("PCIe", "not known", "quiet")
    now = _counted(f"generation {one.pcie_generation} x{one.pcie_width}" for one in known)
    narrow = [one for one in known if one.pcie_width_max and (one.pcie_width or 0) < one.pcie_width_max]
    # A GPU at rest may lower its generation by itself: that is no fault, and the findings know which is one.
    bad = [f"GPU {one.gpu} could have x{one.pcie_width_max}" for one in narrow]
    return _with_bad("PCIe", now, bad, not_read=len(gpus) - len(known))


def _ports(ports: Sequence[PortStatus]) -> StatusLine:
    if not ports:
        return StatusLine("ports", "no RDMA port", "quiet")
    active = [one for one in ports if one.state == "active"]
    rates = _counted(f"{(one.bytes_per_second or 0) / GBIT:.0f} Gb/s" for one in active)
    bad = [f"{one.device} port {one.port} is {one.state}" for one in ports if one.state != "active"]
    bad += [
        f"{one.device} port {one.port} has {(one.bytes_per_second or 0) / GBIT:.0f} of "
        f"{one.expected_bytes_per_second / GBIT:.0f} Gb/s"
        for one in active
        if one.expected_bytes_per_second and (one.bytes_per_second or 0) < one.expected_bytes_per_second
    ]
    text = f"{len(active)} of {len(ports)} active: {rates}" if active else "none active"
    return _with_bad("ports", text, bad)


def _gpudirect(checks: dict[str, str]) -> StatusLine:
    passed = sum(state == "passed" for state in checks.values())
    bad = [f"{name} {state}" for name, state in checks.items() if state != "passed"]
    return _with_bad("GPUDirect", f"{passed} of {len(checks)} checks passed", bad)


def _probe(document: StatusDocument) -> Iterator[StatusLine]:
    probe, gate = document.probe, document.gate
    if not any(one.collector == "probe" for one in document.collectors):
        yield StatusLine("probe", "switched off", "quiet")
        return
    yield StatusLine("probe", "none yet" if probe is None else _headline(probe))
    if not gate.open:
        yield StatusLine("", f"none now: {gate.detail} ({gate.reason})", "quiet")


def _headline(probe: HeadlineProbe) -> str:
    size = f"{probe.size_bytes / MIB:.0f} MiB" if probe.size_bytes >= MIB else f"{probe.size_bytes} B"
    got = f"{probe.op} of {size}: {probe.busbw / GB:.1f} GB/s"
    if probe.expected_busbw is None or probe.ratio is None:
        due = "nothing is expected here"
    else:
        due = f"{probe.ratio * PERCENT:.0f} % of {probe.expected_busbw / GB:.1f} expected"
    return f"{got}, {due}; {duration(probe.age_seconds)} ago"


def _jobs(document: StatusDocument) -> StatusLine:
    jobs = [f"{one.job} on {one.gpus} GPUs ({one.wall})" for one in document.jobs]
    return StatusLine("jobs", _listed(jobs) if jobs else "none seen", "" if jobs else "quiet")


def _read(document: StatusDocument) -> Iterator[StatusLine]:
    """How old each value is, and what cannot be read."""
    by_age: dict[str, list[str]] = {}
    ages = [(one.age_seconds, one.collector) for one in document.collectors if one.age_seconds is not None]
    for seconds, name in sorted(ages):
        by_age.setdefault(f"{duration(seconds)} ago", []).append(name)
    text = BETWEEN.join(f"{', '.join(names)} {age}" for age, names in by_age.items())
    yield StatusLine("read", text or "nothing yet", "quiet" if text else "unknown")
    for error in dict.fromkeys(one.error for one in document.collectors if one.error):
        names = (one.collector for one in document.collectors if one.error == error)
        yield StatusLine("", f"not read now: {', '.join(names)}: {error}", "unknown")


def _findings(document: StatusDocument) -> Iterator[StatusLine]:
    head = "findings"
    for one in document.findings[:SHOWN]:
        stage = "" if one.stage == "live" else f" ({one.stage})"
        quiet = one.stage in {"acknowledged", "suppressed"}
        text = f"{one.health.upper()} {one.rule} {Subject.of(one.subject)}{stage}: {one.evidence}"
        yield StatusLine(head, text, "quiet" if quiet else one.health)
        head = ""
    if (more := len(document.findings) - SHOWN) > 0:
        yield StatusLine("", f"{more} more: `wirewatch findings list`")
    if not document.findings:
        yield StatusLine(head, "none", "quiet")


def _with_bad(head: str, text: str, bad: Sequence[str], not_read: int = 0) -> StatusLine:
    """A line that ends with what is not as it should be."""
    lost = [f"{not_read} not read"] if not_read else []
    parts = (text, *([_listed(bad)] if bad else []), *lost)
    return StatusLine(head, BETWEEN.join(parts), "degraded" if bad or lost else "")


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join((*names[:NAMED], *more))


def _counted(words: Iterable[str]) -> str:
    """Each word once, with how often it comes where they differ."""
    counts = Counter(words)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} with {word}" for word, count in counts.most_common())


def _range(values: Sequence[float | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = round(min(known)), round(max(known))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
