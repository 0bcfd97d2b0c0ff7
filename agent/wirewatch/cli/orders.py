"""Questions and orders of an operator to the daemon, over its sockets; `wirewatch release`."""

import getpass
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import Duration, daemon_options
from wirewatch.core.exits import Exit
from wirewatch.core.types import Unanswered

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
ANOTHER_VERSION = "the answer is not from this version of wirewatch"
OK, FAULT = 200, 500
"""HTTP statuses: of an answer, and the first that means that the daemon could not give an answer."""
BUSY = (408, 429)
DEADLINE = 10.0
"""Seconds for an answer; a release needs 2, and more while another order is under way."""
DEFAULT, LONGEST = 600.0, 86400.0
"""Seconds of a release: by default, and at most."""


def control_socket(socket: str | None, config: Path | None) -> str:
    """Return the socket for the daemon's orders, beside the socket for questions; "" for none."""
    from wirewatch.cli.check.daemon import asked_socket
    from wirewatch.server.sockets import control_path

    return control_path(asked_socket(socket, config))


def user() -> str:
    """Return the name of the user who gives the order, for the daemon's log and for the finding."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.geteuid()}"


def order(path: str, target: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Give an order; returns the daemon's document and raises as `ask` does."""
    if not path:
        raise Unanswered("the daemon of this configuration takes no orders, because it has no socket")
    return ask(path, "POST", target, json.dumps(said).encode())


def ask(path: str, method: str, target: str, body: bytes | None) -> dict[str, Any]:
    """Ask the daemon; returns its document.

    Raises UsageError: the daemon refuses, in its own words. Raises Unanswered: it does not answer.
    """
    from wirewatch.client import STRANGE, NoAnswer, request

    try:
        status, answer = request(path, method, target, body, DEADLINE, known=True)
        document = json.loads(answer)
    except NoAnswer as error:
        raise Unanswered(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise Unanswered(f"{path}: {STRANGE}") from error
    if not isinstance(document, dict):
        raise Unanswered(f"{path}: {STRANGE}")
    if status in BUSY or status >= FAULT:
        raise Unanswered(f"{path}: HTTP status {status} to {target}: the daemon is busy, or it failed")
    if status != OK:
        raise click.UsageError(str(document.get("detail", f"refused, HTTP status {status}")))
    if not str(document.get("schema", "")).startswith("wirewatch."):
        raise Unanswered(f"{path}: {ANOTHER_VERSION}")
    return document


def document_or_reason(path: str, target: str, adapter: "TypeAdapter[T]") -> "T | str":
    """Return a document of the daemon at this socket, or why it gives none."""
    from pydantic import ValidationError

    body = body_or_reason(path, target)
    try:
        return body if isinstance(body, str) else adapter.validate_json(body)
    except (ValidationError, RecursionError):
        return f"{path}: {ANOTHER_VERSION}"


def body_or_reason(path: str, target: str) -> bytes | str:
    """Return the bytes of a document of the daemon at this socket, or why it gives none."""
    from wirewatch.client import NoAnswer, request

    if not path:
        return "the configuration names no socket of a daemon"
    try:
        status, body = request(path, "GET", target, None, DEADLINE, known=True)
        if status != OK:
            return f"{path}: HTTP status {status} to {target}: a daemon that is busy, or of an older version"
    except NoAnswer as error:
        return str(error)
    return body


@click.command(
    epilog=examples("wirewatch release --for 10m && nvidia-smi --gpu-reset -i 2", "wirewatch release --end")
)
@click.option(
    "--for",
    "seconds",
    type=Duration(most=LONGEST, above_zero=True),
    help="How long, such as 90s, 10m (the default) or 2h; at most 1d.",
)
@click.option("--end", is_flag=True, help="End a release and watch the GPUs again.")
@daemon_options
@click.option("--by", help="Who orders it, for the daemon's log; default: the user's name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.pass_context
def release(
    context: click.Context, *, seconds: float | None, end: bool, socket: str | None, config: Path | None,
    by: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Close the daemon's GPU handles for a while.

    A reset of a GPU and an upgrade of the driver need that.

    All handles are closed when this command returns. The daemon watches the GPUs again when the time is up.
    Until then the health of the node is UNKNOWN.

    Exit codes: 0 done; 69 no daemon answers; 70 a handle could not be closed.
    """
    if end and seconds is not None:
        raise click.UsageError("give either --for or --end")
    said: dict[str, Any] = {"by": (by or user())[:200]}
    if not end:
        said["seconds"] = DEFAULT if seconds is None else seconds
    document = order(control_socket(socket, config), "/resume" if end else "/release", said)
    click.echo(json.dumps(document, indent=1) if as_json else _text(document))
    for pid in document["stuck"]:
        click.echo(f"wirewatch: process {pid} cannot be killed and still holds GPUs", err=True)
    if document["unsure"]:
        click.echo(f"wirewatch: the prober may still hold GPUs: {document['unsure']}", err=True)
    context.exit(Exit.INTERNAL if document["stuck"] or document["unsure"] else 0)


def _text(document: dict[str, Any]) -> str:
    if not document["released"]:
        return f"GPUs are watched: {document['why']}"
    if document["stuck"] or document["unsure"]:
        return str(document["why"])
    return f"{document['why']}; every handle was closed in {document['seconds_taken']:.2f} s"
