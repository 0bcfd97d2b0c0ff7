"""`wirewatch findings`: the node's faults, an operator's orders about them, and texts for tickets."""

import json
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from wirewatch.cli.check.answer import HEALTHS, NOT_COUNTED
from wirewatch.cli.check.daemon import asked_socket
from wirewatch.cli.groups import CommandGroup, examples
from wirewatch.cli.options import Date, Duration, daemon_options
from wirewatch.cli.orders import ask, control_socket, order, user
from wirewatch.cli.output import harmless
from wirewatch.cli.templates import render
from wirewatch.core.answer import answer_line, shortened
from wirewatch.core.exits import exit_of
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Subject
from wirewatch.core.words import GB, utc

MHZ, MILLI, SMALL = 1e6, 1e-3, 0.1
WIDTH, KEY = 110, 20
"""Characters of a line, and of a key."""
LINES = 15
"""Lines of the answer, at most, without --explain."""
LABELS: Mapping[str, str] = {
    "serial": "serial number", "uuid": "UUID", "board_part_number": "board part number",
    "pci_address": "slot (PCI address)", "pci_path": "PCI path", "numa_node": "NUMA node",
    "module_id": "module id", "vbios": "VBIOS", "inforom": "InfoROM image", "gsp_firmware": "GSP firmware",
    "link": "NVLink", "link_goes_to": "other end", "psid": "PSID (board id)", "node_guid": "node GUID",
    "network_interfaces": "network interfaces", "link_layer": "link layer",
}  # fmt: skip
OF_NODE: Mapping[str, str] = {
    "product": "GPUs of the node", "gpus": "number of GPUs", "nvml": "NVML", "cuda_driver": "CUDA driver",
    "mlx5_core": "mlx5_core", "source": "read from",
}  # fmt: skip
KINDS: Mapping[str, str] = {
    "gpu": "GPU", "network_device": "network card", "pci_device": "PCI device", "node": "this node",
}  # fmt: skip
SOURCES: Mapping[str, str] = {
    "live": "this machine", "replay": "a recording: no evidence of this machine",
    "synthetic": "a recording that was changed: no evidence of any machine",
}  # fmt: skip
PREFIX, TIME = "wirewatch_", "unix seconds"
HEADER = ("metric", "this part", "peers min", "median", "max", "peers")


@click.group(cls=CommandGroup, alone="list")
def findings() -> None:
    """List findings, show one, give orders about one."""


def _reason_options(command: Callable[..., None]) -> Callable[..., None]:
    why = click.option("--why", required=True, help="What was done, or why; kept with the finding.")
    by = click.option("--by", default=None, help="Who orders it; default: the user's name.")
    return daemon_options(why(by(command)))


@findings.command("list", epilog=examples("wirewatch findings list"))
@daemon_options
@click.option(
    "--explain", is_flag=True, help="Print all of each finding: evidence, what to do, who said what."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.pass_context
def list_(
    context: click.Context, *, config: Path | None, socket: str | None, explain: bool, as_json: bool
) -> None:
    """List all findings, worst first.

    Each finding has a line, and there are at most 15 lines: --explain prints everything. Suppressed and
    repaired findings are listed too, and findings of running jobs (`aside`).

    Exit code: the node's health (0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN).
    """
    document = ask(asked_socket(socket, config), "GET", "/api/v1/findings", None)
    text = json.dumps(document, indent=1) if as_json else (listing if explain else short)(document)
    click.echo(text)
    context.exit(exit_of(HEALTHS[document["health"]]))


@findings.command(epilog=examples("wirewatch findings show d1fac7e2"))
@click.argument("finding")
@daemon_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.pass_context
def show(
    context: click.Context, *, finding: str, config: Path | None, socket: str | None, as_json: bool
) -> None:
    """Show one finding as text for a ticket.

    The text has everything about FINDING that a vendor asks for when the part is returned.

    Exit code: the node's health (0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN).
    """
    _must_be_id(finding)
    document = ask(asked_socket(socket, config), "GET", f"/api/v1/findings/{finding}", None)
    click.echo(json.dumps(document, indent=1) if as_json else ticket(document))
    context.exit(exit_of(HEALTHS[document["health"]]))


@findings.command(epilog=examples('wirewatch findings ack d1fac7e2 --why "seen, looking at it"'))
@click.argument("finding")
@click.option("--undo", is_flag=True, help="Take it back: reminders go on.")
@_reason_options
def ack(
    *, finding: str, undo: bool, config: Path | None, socket: str | None, why: str, by: str | None
) -> None:
    """Say that FINDING was seen.

    Reminders of it stop until it is worse or over. It changes no verdict: what is FAILED stays FAILED. Once
    the fault is repaired, `wirewatch findings repaired` says so.
    """
    _order(config, socket, finding, "unack" if undo else "ack", {"why": why}, by)


@findings.command(
    epilog=examples('wirewatch findings repaired d1fac7e2 --yes --why "GPU 2 reseated, RMA 4711"')
)
@click.argument("finding")
@click.option("--yes", is_flag=True, help="Order it for a FAILED finding too: jobs may start on the node.")
@click.option("--undo", is_flag=True, help="Take it back: FINDING counts as before.")
@_reason_options
def repaired(
    *, finding: str, yes: bool, undo: bool, config: Path | None, socket: str | None, why: str,
    by: str | None,
) -> None:  # fmt: skip
    """Say that the fault of FINDING is repaired.

    FINDING then goes on probation; a FINDING that is on probation ends. While it is FAILED, that lets jobs
    start on the node and wants --yes. A fault that is measured at this moment is not repaired: repair it, or
    suppress it until a date.
    """
    said = {"why": why, **({"yes": True} if yes else {})}
    _order(config, socket, finding, "unrepaired" if undo else "repaired", said, by)


@findings.command(epilog=examples('wirewatch findings suppress d1fac7e2 --for 7d --why "part is ordered"'))
@click.argument("finding")
@click.option(
    "--until",
    type=Date(),
    metavar="DATE",
    help="Date, or date and time, in UTC: 2027-01-31 or 2027-01-31T18:00.",
)
@click.option("--for", "seconds", type=Duration(), help="How long instead of a date, such as 12h or 7d.")
@click.option("--yes", is_flag=True, help="Order it for a FAILED finding too: jobs may start on the node.")
@_reason_options
def suppress(
    *, finding: str, until: datetime | None, seconds: float | None, yes: bool, config: Path | None,
    socket: str | None, why: str, by: str | None,
) -> None:  # fmt: skip
    """Leave FINDING out of the verdict until a date.

    It counts again at once if it gets worse than it is now. While a FAILED finding is suppressed, jobs may
    start on the node, although it is broken: that wants --yes. Drain a node that waits for a part.
    """
    ends = [] if until is None else [until.replace(tzinfo=UTC).timestamp()]
    ends += [] if seconds is None else [time.time() + seconds]
    if len(ends) != 1:
        raise click.UsageError("give either --until or --for")
    said = {"why": why, "until": ends[0]} | ({"yes": True} if yes else {})
    _order(config, socket, finding, "suppress", said, by)


@findings.command(epilog=examples('wirewatch findings unsuppress d1fac7e2 --why "part has come"'))
@click.argument("finding")
@_reason_options
def unsuppress(*, finding: str, config: Path | None, socket: str | None, why: str, by: str | None) -> None:
    """Let a suppressed FINDING count in the verdict again."""
    _order(config, socket, finding, "unsuppress", {"why": why}, by)


def listing(document: Mapping[str, Any]) -> str:
    """Return the text of a document `wirewatch.findings/1`: the order's effect, the health, each finding."""
    document = harmless(document)
    return _rendered("findings.j2", document=document, answer=_answer(document))


def short(document: Mapping[str, Any]) -> str:
    """Return the same with a line for each finding, and at most LINES in all."""
    document = harmless(document)
    rows = [_short(one) for one in document["findings"]]
    shown = rows if len(rows) <= LINES - 2 else rows[: LINES - 2]
    more = f"{len(rows) - len(shown)} more, and " if shown != rows else ""
    hint = [f"{more}all about each: `wirewatch findings list --explain`"] if rows else []
    return "\n".join([_answer(document), *shown, *hint])


def _short(one: Mapping[str, Any]) -> str:
    stage = "" if one["stage"] == "live" else f" ({one['stage']})"
    seen = f"; seen by {one['acknowledged']['by']}" if one.get("acknowledged") else ""
    text = f"{one['id']}  {one['health'].upper():<8}  {one['rule']} {_subject(one)}{stage}: {one['evidence']}"
    return shortened(text, WIDTH - len(seen.encode())) + seen


def _answer(document: Mapping[str, Any]) -> str:
    """Return the node in one line: the worst finding that counts, and the command that shows it in full."""
    counting = [one for one in document["findings"] if one["stage"] not in NOT_COUNTED]
    worst = max(counting, key=lambda one: HEALTHS[one["health"]], default=None)
    verdict, host = f"{document['health'].upper()}, {_ready(document)}", document.get("host", "")
    if worst is None or worst["health"] == "ok":
        return answer_line(verdict, host=host)
    part, then = f"{worst['rule']} {_subject(worst)}", f"Next: `wirewatch findings show {worst['id']}`"
    return answer_line(f"{verdict}:", part, worst["evidence"], then, host=host)


def ticket(document: Mapping[str, Any]) -> str:
    """Return the text for a ticket, in printable ASCII, of a document `wirewatch.finding/1`."""
    document = harmless(document, _ascii)
    source = {"value": SOURCES.get(document["source"], document["source"]), "unknown": None}
    text = _rendered(
        "ticket.j2", document=document, one=document["finding"], kind=KINDS[document["kind"]],
        node={**document["node"], "source": source}, labels=LABELS, of_node=OF_NODE, seen=_seen(document),
        numbers=list(_numbers(document["numbers"])), zeros=_in_short(filter(_is_zero, document["numbers"])),
    )  # fmt: skip
    return "\n".join(row for line in text.split("\n") for row in _wrapped(line))


def amount(value: float, unit: str) -> str:
    """A number with its unit, scaled for people; `unit` is that of a metric."""
    if unit == TIME:
        return utc(value)
    if unit == "seconds":
        return f"{value / MILLI:.3f} ms" if 0 < value < SMALL else f"{value:.1f} s"
    scaled = {"bytes per second": (GB, 3, "GB/s"), "bytes": (GB, 3, "GB"), "hertz": (MHZ, 0, "MHz")}
    if unit in scaled:
        by, digits, word = scaled[unit]
        return f"{value / by:.{digits}f} {word}"
    digits = 10 if value == int(value) else 4
    end = {"watts": " W", "degrees celsius": " C"}.get(unit, "")
    return f"{value:.{digits}g}{end}"


def _order(
    config: Path | None, socket: str | None, finding: str, what: str, said: Mapping[str, Any], by: str | None
) -> None:
    """Give an order about a finding; prints its effect, and all findings after it."""
    _must_be_id(finding)
    said = {**said, "order": what, "by": by or user()}
    click.echo(listing(order(control_socket(socket, config), f"/findings/{finding}", said)))


def _must_be_id(finding: str) -> None:
    if not (finding.isascii() and finding.isalnum()):
        raise click.UsageError(f"{finding!r} is not the id of a finding; see `wirewatch findings list`")


def _rendered(template: str, **values: Any) -> str:
    return render("wirewatch.cli", template, subject=_subject, ready=_ready, **values).rstrip("\n")


def _subject(finding: Mapping[str, Any]) -> Subject:
    return Subject.of(finding["subject"])


def _ready(document: Mapping[str, Any]) -> str:
    return "the next job may start" if document["job_ready"] else "no job may start"


def _seen(document: Mapping[str, Any]) -> str:
    seen = document["last_seen"]
    if seen is None:
        return "not known: not since the agent started"
    over = document["measured"] is None and not document["finding"]["last"]
    return f"{utc(seen)} at the latest" if over else utc(seen)


def _ascii(text: str) -> str:
    """The text in printable ASCII, other characters escaped; people may give any text as a reason."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode() for c in text)


def _wrapped(line: str) -> Sequence[str]:
    """A line of a key and its value, broken between words; a row of a table stays whole."""
    whole = line.startswith("  ") or not line
    return [line] if whole else textwrap.wrap(
        line, WIDTH, subsequent_indent=" " * KEY, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip


def _numbers(numbers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    compared = [one for one in numbers if one["peers"] is not None and not _is_zero(one)]
    if compared:
        yield from _table([HEADER, *map(_row, compared)])
    alone = grouped((one["peers_unknown"], one) for one in numbers if one["peers"] is None)
    for why, ones in alone.items():
        yield f"without peers: {why}"
        yield from _table([(_name(one), amount(one["value"], one["unit"])) for one in ones])


def _is_zero(one: Mapping[str, Any]) -> bool:
    peers = one["peers"]
    zero = one["value"] == 0 and peers is not None and peers["min"] == peers["max"] == 0
    return zero and one["unit"] != TIME


def _in_short(ones: Iterable[Mapping[str, Any]]) -> str:
    """Names, each with the values of its labels in brackets."""
    found = grouped((_plain(one), "/".join(one["labels"].values())) for one in ones)
    return ", ".join(f"{name} ({', '.join(of)})" if any(of) else name for name, of in found.items())


def _plain(one: Mapping[str, Any]) -> str:
    return str(one["name"]).removeprefix(PREFIX)


def _name(one: Mapping[str, Any]) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in one["labels"].items())
    return f"{_plain(one)}{{{labels}}}" if labels else _plain(one)


def _row(one: Mapping[str, Any]) -> Sequence[str]:
    """Return the row of a number that has peers."""
    peers, unit = one["peers"], one["unit"]
    mine = "(none named)" if one["value"] is None else amount(one["value"], unit)
    values = (amount(peers[name], unit) for name in ("min", "median", "max"))
    every = "all " if one["value"] is None else ""
    return (_name(one), mine, *values, f"{every}{peers['count']} {peers['of']}")


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return lines with the first and last column aligned to the left, and numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.ljust(w) if i in {0, len(HEADER) - 1} else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )  # fmt: skip
        yield f"  {'  '.join(cells)}".rstrip()
