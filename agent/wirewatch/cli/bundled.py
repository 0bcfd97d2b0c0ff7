"""`wirewatch demo recordings` and `wirewatch demo overlays`: bundled examples for trials."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wirewatch.cli.groups import CommandGroup, examples
from wirewatch.cli.output import terminal_width

if TYPE_CHECKING:
    from wirewatch.documents import installed


@click.command("recordings", epilog=examples("wirewatch demo recordings"))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def recordings(*, as_json: bool) -> None:
    """List the recordings that come with wirewatch.

    Each can be named after --replay, and stands for a node that is not here.
    """
    from wirewatch.documents import installed

    found = installed.recordings()
    if as_json:
        click.echo(installed.RECORDINGS.dump_json(found, indent=1).decode())
        return
    click.echo(_columns([(one.name, one.about) for one in found.recordings]))
    click.echo("\nPlay one with --replay NAME, such as:\n  wirewatch check --replay h200x8")


@click.command("overlays", epilog=examples("wirewatch demo overlays", "wirewatch demo overlays nvlink"))
@click.argument("words", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def overlays(*, words: Sequence[str], as_json: bool) -> None:
    """List the faults that come with wirewatch.

    With WORDS, only those that have one of them in their name or sentence. Each can be named after --overlay,
    together with `--replay demo-dgx-h200`, and after `wirewatch demo`.
    """
    from wirewatch.documents import installed

    every = installed.overlays()
    wanted = [one for one in every.overlays if not words or _has(one, words)]
    found = installed.OverlaysDocument(every.schema, wanted)
    if as_json:
        click.echo(installed.OVERLAYS.dump_json(found, indent=1).decode())
        return
    if not found.overlays:
        raise click.UsageError(f"none of {len(every.overlays)} faults has one of: {' '.join(words)}")
    click.echo(_columns([(one.name, _said(one)) for one in found.overlays]))
    click.echo(f"\nTry one: wirewatch demo {found.overlays[0].name}")


def _under_list(command: click.Command, name: str) -> CommandGroup:
    """Return the group of a former name, in which `list` is this command."""
    return CommandGroup(name=name, help=command.help, commands={"list": command}, alone="list")


old_recordings = _under_list(recordings, "recordings")
old_overlays = _under_list(overlays, "overlays")


def _has(one: "installed.BundledOverlay", words: Sequence[str]) -> bool:
    text = f"{one.name} {one.about} {' '.join(one.rules)}".lower()
    return any(word.lower() in text for word in words)


def _said(one: "installed.BundledOverlay") -> str:
    return one.about if one.health is None else f"{one.health.upper()}: {one.about}"


def _columns(rows: list[tuple[str, str]]) -> str:
    formatter = click.HelpFormatter(width=terminal_width())
    formatter.write_dl(rows)
    return formatter.getvalue().rstrip("\n")
