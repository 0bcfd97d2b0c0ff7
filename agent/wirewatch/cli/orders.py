"""Telling the daemon to do something, over its control socket; for people."""

import getpass
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

OK, INTERNAL = 200, 70
DEADLINE = 10.0
"""Seconds for an answer; a release needs 2, and more when the order before is still under way."""


def control_socket(socket: str | None, config: Path | None) -> str:
    """Where the daemon takes orders: beside where it answers questions; "" for nowhere."""
    from wirewatch.cli.checking.daemon import place
    from wirewatch.server.sockets import control_path

    return control_path(place(socket, config).socket)


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


def _told(why: str) -> click.exceptions.Exit:
    click.echo(f"wirewatch: {why}", err=True)
    return click.exceptions.Exit(INTERNAL)
