"""Manual pages and completions of the commands, for the Debian packages."""

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from click.shell_completion import get_completion_class
from click_man.core import generate_man_page

from wirewatch.cli import cli
from wirewatch.cli.completion import PROGRAM, VARIABLE

SHELLS = {"bash": "wirewatch", "zsh": "_wirewatch", "fish": "wirewatch.fish"}
"""File names by shell, as each shell looks for them."""


def manuals(folder: Path, version: str, epoch: int) -> None:
    """Write a manual page for each command that a list shows; `epoch`: Unix seconds of the release."""
    folder.mkdir(parents=True)
    day = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d")
    for context in contexts(click.Context(cli, info_name=PROGRAM)):
        with warnings.catch_warnings():
            # It calls a function that click 9 will not have.
            warnings.simplefilter("ignore", DeprecationWarning)
            page = generate_man_page(context, version=version, date=day)
        (folder / f"{context.command_path.replace(' ', '-')}.1").write_text(page, "utf-8")


def contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield a context for this command and for each visible command below it."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from contexts(click.Context(command, info_name=name, parent=context))


def completions(folder: Path) -> None:
    """Write what makes each shell complete commands, options and names."""
    folder.mkdir(parents=True)
    for shell, name in SHELLS.items():
        made = get_completion_class(shell)
        assert made is not None, shell
        (folder / name).write_text(f"{made(cli, {}, PROGRAM, VARIABLE).source()}\n", "utf-8")
