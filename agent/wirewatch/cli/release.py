"""`wirewatch release`: the daemon lets go of every GPU for a reset or a driver upgrade."""

import json
from pathlib import Path
from typing import Any

import click

from wirewatch.cli.durations import Duration
from wirewatch.cli.orders import INTERNAL, control_socket, order, user

USUAL, MOST = 600.0, 86400.0
"""Seconds of a release."""


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


def _text(document: dict[str, Any]) -> str:
    if not document["released"]:
        return f"GPUs are watched: {document['why']}"
    if document["stuck"] or document["unsure"]:
        return str(document["why"])
    return f"{document['why']}; every handle was closed in {document['seconds_taken']:.2f} s"
