"""`wirewatch findings`: what is wrong, and what an operator says of it."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirewatch.cli.durations import Duration
from wirewatch.cli.orders import ask, control_socket, order, user
from wirewatch.cli.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable


def _places(command: "Callable[..., None]") -> "Callable[..., None]":
    config = click.option("--config", type=click.Path(path_type=Path), help="TOML file.")
    socket = click.option("--socket", help="The daemon's socket, instead of the configuration's.")
    return config(socket(command))


def _words(command: "Callable[..., None]") -> "Callable[..., None]":
    why = click.option("--why", required=True, help="What was done, or why; kept with it.")
    by = click.option("--by", default=None, help="Who says so; else the user's name.")
    return _places(why(by(command)))


@click.group()
def findings() -> None:
    """What is wrong with this node, and what an operator says of it."""


@findings.command("list")
@_places
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@click.pass_context
def list_(context: click.Context, *, config: Path | None, socket: str | None, as_json: bool) -> None:
    """All findings, worst first, also those that are suppressed or acknowledged.

    Exit code: the node's health (0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN).
    """
    from wirewatch.cli.checking.daemon import place
    from wirewatch.cli.checking.values import EXIT
    from wirewatch.core.types import Health

    document = ask(place(socket, config).socket, "GET", "/api/v1/findings", None)
    click.echo(json.dumps(document, indent=1) if as_json else shown(_text(document)))
    context.exit(EXIT[Health[document["health"].upper()]])


@findings.command()
@click.argument("finding")
@_places
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@click.pass_context
def show(
    context: click.Context, *, finding: str, config: Path | None, socket: str | None, as_json: bool
) -> None:
    """Everything about FINDING that a vendor asks for when the part is returned, as text for a ticket.

    Exit code: the node's health (0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN).
    """
    from wirewatch.cli.checking.daemon import place
    from wirewatch.cli.checking.values import EXIT
    from wirewatch.cli.ticket import ticket
    from wirewatch.core.types import Health

    _must_be_id(finding)
    document = ask(place(socket, config).socket, "GET", f"/api/v1/findings/{finding}", None)
    click.echo(json.dumps(document, indent=1) if as_json else shown(ticket(document).split("\n")))
    context.exit(EXIT[Health[document["health"].upper()]])


@findings.command()
@click.argument("finding")
@_words
def ack(*, finding: str, config: Path | None, socket: str | None, why: str, by: str | None) -> None:
    """Say that what FINDING tells of was repaired: it goes on probation; on probation, it ends.

    What is measured at this moment cannot be talked away: repair it, or suppress it until a date.
    """
    _order(config, socket, finding, "ack", {"why": why}, by)


@findings.command()
@click.argument("finding")
@click.option(
    "--until", type=click.DateTime(("%Y-%m-%d", "%Y-%m-%dT%H:%M")), help="Date, or date and time, in UTC."
)
@click.option("--for", "seconds", type=Duration(), help="Such as 12h or 7d, instead of a date.")
@_words
def suppress(
    *, finding: str, until: datetime | None, seconds: float | None, config: Path | None, socket: str | None,
    why: str, by: str | None,
) -> None:  # fmt: skip
    """Let FINDING take no part in the verdict until a date, unless it gets worse than it is now."""
    if (until is None) == (seconds is None):
        raise click.UsageError("give either --until or --for")
    end = time.time() + (seconds or 0.0) if until is None else until.replace(tzinfo=UTC).timestamp()
    _order(config, socket, finding, "suppress", {"why": why, "until": end}, by)


@findings.command()
@click.argument("finding")
@_words
def unsuppress(*, finding: str, config: Path | None, socket: str | None, why: str, by: str | None) -> None:
    """Let FINDING take part again."""
    _order(config, socket, finding, "unsuppress", {"why": why}, by)


def _order(
    config: Path | None, socket: str | None, finding: str, what: str, said: Mapping[str, Any], by: str | None
) -> None:
    _must_be_id(finding)
    path = control_socket(socket, config)
    document = order(path, f"/findings/{finding}", {**said, "order": what, "by": by or user()})
    click.echo(shown(_text(document)))


def _must_be_id(finding: str) -> None:
    if not (finding.isascii() and finding.isalnum()):
        raise click.UsageError(f"not an id of a finding: {finding!r}; see `wirewatch findings list`")


def _text(document: Mapping[str, Any]) -> list[str]:
    ready = "the next job may start" if document["job_ready"] else "no job may start"
    lines = [f"{document['health'].upper()}, {ready}"]
    for one in document["findings"]:
        lines += ["", *_one(one)]
    return lines


def _one(one: Mapping[str, Any]) -> list[str]:
    from wirewatch.core.types import Subject

    part = Subject.of(one["subject"])
    times = f", {one['times']} times" if one["times"] > 1 else ""
    words = (one["id"], one["health"].upper(), one["rule"], str(part), f"{one['stage']}{times}")
    lines = [
        "  ".join((*words, f"since {_time(one['since'])}")),
        f"          {one['evidence']}",
        f"          -> {one['action']}",
    ]
    for word, until in (("acknowledged", ""), ("suppressed", _time(one["suppressed_until"]))):
        said = one[word]
        if said:
            end = f" until {until}" if until else ""
            lines.append(f"          {word}{end} by {said['by']} at {_time(said['at'])}: {said['why']}")
    return lines


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else ""
