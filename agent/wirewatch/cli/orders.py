"""Telling the daemon to do something, over its control socket; for people."""

import getpass
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from wirewatch.cli.options import Duration

OK, INTERNAL = 200, 70
DEADLINE = 10.0
"""Seconds for an answer; a release needs 2, and more when the order before is still under way."""
USUAL, MOST = 600.0, 86400.0
"""Seconds of a release."""


def control_socket(socket: str | None, config: Path | None) -> str:
    """Where the daemon takes orders: beside where it answers questions; "" for nowhere."""
    from wirewatch.cli.check.daemon import daemon_address
    from wirewatch.server.sockets import control_path

    return control_path(daemon_address(socket, config).socket)


def user() -> str:
    """Who gives the order, for the daemon's log and what is kept with a finding."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.geteuid()}"


def order(path: str, target: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """The daemon's document after an order. Raises as `ask`."""
    if not path:
        raise _told("the daemon of this configuration takes no orders: it has no socket")
    return ask(path, "POST", target, json.dumps(said).encode())


def ask(path: str, method: str, target: str, body: bytes | None) -> dict[str, Any]:
    """The daemon's document.

    Raises:
        UsageError: it cannot be done; the daemon's own words.
        Exit: nobody answers, which was told.
    """
    from wirewatch.hw.httpclient import STRANGE, NoAnswer, request

    try:
        status, answer = request(path, method, target, body, DEADLINE)
        document = json.loads(answer)
    except NoAnswer as error:
        raise _told(str(error)) from error
    except ValueError as error:
        raise _told(f"{path}: {STRANGE}") from error
    if not isinstance(document, dict):
        raise _told(f"{path}: {STRANGE}")
    if status != OK:
        raise click.UsageError(str(document.get("detail", f"refused, HTTP status {status}")))
    if not str(document.get("schema", "")).startswith("wirewatch."):
        raise _told(f"{path}: what answers there is not this version of wirewatch")
    return document


@click.command()
@click.option("--for", "seconds", type=Duration(), help="Such as 90s, 10m (default) or 2h; at most 1d.")
@click.option("--end", is_flag=True, help="Take the GPUs back now.")
@click.option("--socket", help="The daemon's socket, instead of the configuration's.")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file.")
@click.option("--by", help="Who wants it, for the daemon's log; else the user's name.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@click.pass_context
def release(
    context: click.Context, *, seconds: float | None, end: bool, socket: str | None, config: Path | None,
    by: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Close every GPU handle of the daemon, for a reset or a driver upgrade.

    They are closed when this returns. The daemon comes back by itself when the time is up. Meanwhile the
    node's health is UNKNOWN. Exit codes: 0 done; 70 nobody answers, or a handle could not be closed.
    """
    if end and seconds is not None:
        raise click.UsageError("give either --for or --end")
    if seconds is not None and not 0 < seconds <= MOST:
        raise click.UsageError("--for must be above 0 and at most 1d")
    said: dict[str, Any] = {"by": (by or user())[:200]}
    if not end:
        said["seconds"] = USUAL if seconds is None else seconds
    document = order(control_socket(socket, config), "/resume" if end else "/release", said)
    click.echo(json.dumps(document, indent=1) if as_json else _text(document))
    for pid in document["stuck"]:
        click.echo(f"wirewatch: process {pid} cannot be killed and still holds GPUs", err=True)
    if document["unsure"]:
        click.echo(f"wirewatch: the prober may still hold GPUs: {document['unsure']}", err=True)
    context.exit(INTERNAL if document["stuck"] or document["unsure"] else 0)


def _told(why: str) -> click.exceptions.Exit:
    click.echo(f"wirewatch: {why}", err=True)
    return click.exceptions.Exit(INTERNAL)


def _text(document: dict[str, Any]) -> str:
    if not document["released"]:
        return f"GPUs are watched: {document['why']}"
    if document["stuck"] or document["unsure"]:
        return str(document["why"])
    return f"{document['why']}; every handle was closed in {document['seconds_taken']:.2f} s"
