"""`wirewatch status`: the node on a dozen lines."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from wirewatch.cli.check.answer import HEALTHS, NOT_COUNTED
from wirewatch.cli.check.command import Work
from wirewatch.cli.check.daemon import WrongAnswer, asked_socket, driver_is_here, read_status
from wirewatch.cli.groups import examples
from wirewatch.cli.options import daemon_options, replay_options
from wirewatch.cli.orders import ANOTHER_VERSION, body_or_reason
from wirewatch.cli.output import coloured, terminal_width
from wirewatch.cli.progress import under_way
from wirewatch.core import words
from wirewatch.core.answer import answer_line
from wirewatch.core.exits import exit_of
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Subject, Unanswered
from wirewatch.documents.health import (
    GpuStatus,
    HeadlineProbe,
    NicStatus,
    PortStatus,
    StatusDocument,
)
from wirewatch.jobs.explain.words import in_words
from wirewatch.server.sockets import demo_path

if TYPE_CHECKING:
    from wirewatch.cli.check.polling import Poll

SECONDS = 10.0
"""Seconds for a poll by this process, in which a driver may have to wake up."""
SHOWN = 5
"""Most findings, and most jobs; `wirewatch findings list` and `wirewatch top` have all."""
LINES = 15
"""Lines of the answer, at most, without --explain."""
BETWEEN = "; "
HEAD, LEAST = 11, 20
"""Characters of a line's subject, and the least characters of its text."""


@click.command(epilog=examples("wirewatch status", "wirewatch status --replay demo-dgx-h200"))
@daemon_options
@replay_options
@click.option("--explain", is_flag=True, help="Print all lines, also beyond 15.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.pass_context
def status(
    context: click.Context, *, socket: str | None, config: Path | None, replay: str | None,
    overlays: Sequence[str], explain: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show how this node is, on a dozen lines.

    The first line is the verdict with the worst finding, then come GPUs, links, ports and paths, the last
    probe and why none runs now, jobs, how old each value is, and what is wrong. There are at most 15 lines:
    --explain prints all of them. The daemon is asked; if none answers, this command reads the node itself. A
    recording is played, without waiting, until what it or an overlay changes has been confirmed.

    Exit code: the node's health (0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN).
    """
    if replay and socket is not None:
        raise click.UsageError("give either --replay or --socket")
    if replay:
        about = ", ".join((f"recording {replay}", *(f"overlay {name}" for name in overlays)))
        from wirewatch.cli.check.polling import NodeSource, played

        poll = played(NodeSource(config, replay, overlays))
        document = _of_poll(poll, f"{about}, played without waiting")
    else:
        document = _of_this_node(socket, config)
    if as_json:
        click.echo(json.dumps(asdict(document), indent=1, ensure_ascii=False))
    else:
        rows = list(_text(document, terminal_width()))
        if len(rows) > LINES and not explain:
            rows[LINES - 1 :] = [f"{len(rows) - LINES + 1} more lines: `wirewatch status --explain`"]
        click.echo("\n".join(rows))
    context.exit(exit_of(HEALTHS[document.health]))


def _of_this_node(socket: str | None, config: Path | None) -> StatusDocument:
    """Return the status by the daemon or a demo; else by a poll of our own, unless a socket was named.

    Raises Unusable: the configuration cannot be used. Raises Unanswered: nothing answers at the socket that
    was named.
    """
    path = asked_socket(socket, config)
    found = _asked(path, demo=path == demo_path())
    if not isinstance(found, str):
        return found
    if socket is not None:
        raise Unanswered(found)
    hint = "" if driver_is_here() else "; no NVIDIA driver is here: `wirewatch demo` shows a node with GPUs"
    return _polled(config, f"read once by this command, since no daemon answers: {found}{hint}")


def _asked(path: str, *, demo: bool) -> StatusDocument | str:
    """Ask the daemon at this socket for its status; returns why it gives no answer."""
    body = body_or_reason(path, "/api/v1/status")
    if isinstance(body, str):
        return body
    try:
        document = read_status(body)
    except WrongAnswer:
        return f"{path}: {ANOTHER_VERSION}"
    return replace(document, by="demo") if demo else document


def _polled(config: Path | None, why: str) -> StatusDocument:
    """Return the status by a poll of the node, whatever hangs; raises Unusable for a wrong configuration."""
    from wirewatch.cli.check.polling import CheckedNode, NodeSource

    node = CheckedNode(NodeSource(config), keep=False)
    poll = node.poll()
    end = time.monotonic() + SECONDS
    work = Work(lambda: poll.run(end), node.stop)
    try:
        with under_way("reading this node"):
            work.outcome(SECONDS)
    except TimeoutError:
        node.kill()
    return _of_poll(poll, why)


def _of_poll(poll: "Poll", why: str) -> StatusDocument:
    from wirewatch.documents.probed import probes_of
    from wirewatch.documents.status import status as status_document

    node = poll.snapshot()
    return status_document(node, probes_of(poll.state, node.state.at), "own", why)


def _text(document: StatusDocument, width: int) -> Iterator[str]:
    for line in status_lines(document):
        rows = wrap(words.printable(line.text), max(width - HEAD, LEAST), break_on_hyphens=False) or [""]
        for number, row in enumerate(rows):
            head = line.head if number == 0 else ""
            yield coloured(f"{head:<{HEAD}}{row}", line.tone)


@dataclass(frozen=True, slots=True)
class StatusLine:
    """A line: its subject, its text, and its tone, a health or `quiet`."""

    head: str
    text: str
    tone: str = ""


def status_lines(document: StatusDocument) -> Iterator[StatusLine]:
    """All lines, the verdict first."""
    ready = "a job may start" if document.job_ready else "no job may start"
    yield StatusLine(document.health.upper(), _answer(document, ready), document.health)
    if document.why:
        yield StatusLine("", document.why, "quiet")
    yield _gpus(document)
    yield _links(document.gpus)
    yield _pcie(document.gpus)
    yield _ports(document.ports)
    if any(one.collector == "nics" for one in document.collectors):
        yield _nics(document.nics, document.at)
    if document.paths:
        yield StatusLine("paths", f"GPU to its nearest NIC: {_counted(one.path for one in document.paths)}")
    if document.gpudirect:
        yield _gpudirect(document.gpudirect)
    yield from _probe(document)
    yield from _jobs(document)
    if document.by != "own" or document.source == "live":
        yield from _read(document)
    yield from _findings(document)


def _answer(document: StatusDocument, ready: str) -> str:
    """Return whether a job may start, the worst finding that counts, and the next command."""
    worst = next((one for one in document.findings if one.stage not in NOT_COUNTED), None)
    if worst is None or worst.health == "ok":
        return answer_line(ready, host=document.host)
    asked = document.by != "own"
    then = f"Next: `wirewatch findings show {worst.id}`" if asked else worst.action
    part = f"{worst.rule} {Subject.of(worst.subject)}"
    return answer_line(f"{ready}:", part, worst.evidence, then, host=document.host)


def _gpus(document: StatusDocument) -> StatusLine:
    gpus = document.gpus
    if not gpus:
        return StatusLine("GPUs", "none has been read", "unknown")
    what = f"{len(gpus)} {document.product or 'of a product that is not known'}"
    driver = f"driver {document.driver}" if document.driver else "driver not known"
    ranges = (
        _range([one.celsius for one in gpus], "C"), _range([one.watts for one in gpus], "W"),
        _range([None if one.utilisation is None else one.utilisation * 100 for one in gpus], "% busy"),
    )  # fmt: skip
    return StatusLine("GPUs", BETWEEN.join((what, driver, ", ".join(filter(None, ranges)))))


def _links(gpus: Sequence[GpuStatus]) -> StatusLine:
    known = [(one.gpu, one.links, one.links_expected) for one in gpus if one.links is not None]
    if not known:
        return StatusLine("NVLink", "none" if gpus else "not known", "quiet")
    wanted = [(gpu, up, up if due is None else due) for gpu, up, due in known]
    text = f"{sum(up for _, up, _ in wanted)} of {sum(due for *_, due in wanted)} links up"
    bad = [f"GPU {gpu} has {up} of {due}" for gpu, up, due in wanted if up < due]
    return _with_bad("NVLink", text, bad, not_read=len(gpus) - len(known))


def _pcie(gpus: Sequence[GpuStatus]) -> StatusLine:
    known = [
        (one, one.pcie_width)
        for one in gpus
        if one.pcie_generation is not None and one.pcie_width is not None
    ]
    if not known:
        return StatusLine("PCIe", "not known", "quiet")
    now = _counted(f"generation {one.pcie_generation} x{width}" for one, width in known)
    # A GPU at rest may lower its generation by itself: that is no fault, and the findings know which is one.
    most = ((one.gpu, width, one.pcie_width_max) for one, width in known)
    bad = [f"GPU {gpu} could have x{top}" for gpu, width, top in most if top and width < top]
    return _with_bad("PCIe", now, bad, not_read=len(gpus) - len(known))


def _ports(ports: Sequence[PortStatus]) -> StatusLine:
    if not ports:
        return StatusLine("ports", "no RDMA port", "quiet")
    active = [(one, one.bytes_per_second or 0.0) for one in ports if one.state == "active"]
    rates = _counted(f"{rate / words.GBIT:.0f} Gb/s" for _, rate in active)
    bad = [f"{one.device} port {one.port} is {one.state}" for one in ports if one.state != "active"]
    bad += [
        f"{one.device} port {one.port} has {rate / words.GBIT:.0f} of {due / words.GBIT:.0f} Gb/s"
        for one, rate in active
        if (due := one.expected_bytes_per_second) and rate < due
    ]
    text = f"{len(active)} of {len(ports)} active: {rates}" if active else "none active"
    return _with_bad("ports", text, bad)


def _nics(nics: Sequence[NicStatus], at: float) -> StatusLine:
    ages = [max(at - one.measured, 0.0) for one in nics if one.measured is not None]
    if not ages:
        none = "none to probe alone: the daemon's log says why" if not nics else "none measured alone yet"
        return StatusLine("NICs", none, "unknown" if nics else "quiet")
    rates = [rate / words.GB for one in nics for rate in one.bytes_per_second.values()]
    text = f"{len(ages)} of {len(nics)} measured alone, the oldest {words.short_span(max(ages))} ago"
    never = [str(Subject(device=one.device, port=one.port)) for one in nics if one.measured is None]
    bad = [f"{words.first(never)} never"] if never else []
    return _with_bad("NICs", f"{text}: {_range(rates, 'GB/s each way') or 'too old to count'}", bad)


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
        yield StatusLine("", f"none now: {gate.detail or gate.reason}", "quiet")
    if gate.holds:
        yield StatusLine("", f"held off by {words.first(gate.holds)}", "quiet")


def _headline(probe: HeadlineProbe) -> str:
    got = f"{probe.op} of {words.size(probe.size_bytes)}: {words.rate(probe.busbw)}"
    if probe.expected_busbw is None or probe.ratio is None:
        due = "nothing is expected here"
    else:
        due = f"{words.percent(probe.ratio)} of {probe.expected_busbw / words.GB:.1f} expected"
    return f"{got}, {due}; {words.short_span(probe.age_seconds)} ago"


def _jobs(document: StatusDocument) -> Iterator[StatusLine]:
    """Return each job with its first line, and the shares of its time."""
    if not document.jobs:
        yield StatusLine("jobs", "none seen", "quiet")
    for number, one in enumerate(document.jobs[:SHOWN]):
        said = f": {one.sentence}" if one.sentence else ""
        on = words.count(one.gpus, "GPU")
        yield StatusLine("" if number else "jobs", f"{one.job} on {on} ({one.wall}){said}")
        if one.shares:
            yield StatusLine("", in_words(one.shares), "quiet")
    if (more := len(document.jobs) - SHOWN) > 0:
        yield StatusLine("", f"{more} more: `wirewatch top`")


def _read(document: StatusDocument) -> Iterator[StatusLine]:
    """Return the age of each value, and the values that cannot be read."""
    ages = [(one.age_seconds, one.collector) for one in document.collectors if one.age_seconds is not None]
    by_age = grouped((f"{words.short_span(seconds)} ago", name) for seconds, name in sorted(ages))
    text = BETWEEN.join(f"{', '.join(names)} {age}" for age, names in by_age.items())
    yield StatusLine("read", text or "nothing yet", "quiet" if text else "unknown")
    for error in dict.fromkeys(one.error for one in document.collectors if one.error):
        names = (one.collector for one in document.collectors if one.error == error)
        yield StatusLine("", f"not read now: {', '.join(names)}: {error}", "unknown")


def _findings(document: StatusDocument) -> Iterator[StatusLine]:
    head = "findings"
    for one in document.findings[:SHOWN]:
        stage = "" if one.stage == "live" else f" ({one.stage})"
        quiet = one.stage in {"repaired", "suppressed"}
        text = f"{one.health.upper()} {one.rule} {Subject.of(one.subject)}{stage}: {one.evidence}"
        yield StatusLine(head, text, "quiet" if quiet else one.health)
        head = ""
    if (more := len(document.findings) - SHOWN) > 0:
        yield StatusLine("", f"{more} more: `wirewatch findings list`")
    if not document.findings:
        yield StatusLine(head, "none", "quiet")


def _with_bad(head: str, text: str, bad: Sequence[str], not_read: int = 0) -> StatusLine:
    """Return a line that ends with the faulty parts."""
    lost = [f"{not_read} not read"] if not_read else []
    parts = (text, *([words.first(bad)] if bad else []), *lost)
    return StatusLine(head, BETWEEN.join(parts), "degraded" if bad or lost else "")


def _counted(texts: Iterable[str]) -> str:
    """Return each word once, with its count where they differ."""
    counts = Counter(texts)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{number} with {text}" for text, number in counts.most_common())


def _range(values: Sequence[float | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = round(min(known)), round(max(known))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
