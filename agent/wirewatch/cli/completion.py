"""`wirewatch completion`: a script that makes a shell complete commands, options, recordings and faults."""

import click
from click.shell_completion import CompletionItem, get_completion_class

from wirewatch.cli.groups import examples

SHELLS = ("bash", "zsh", "fish")
PROGRAM, VARIABLE = "wirewatch", "_WIREWATCH_COMPLETE"


@click.command(
    epilog=examples(
        "source <(wirewatch completion bash)",
        "source <(wirewatch completion zsh)",
        "wirewatch completion fish | source",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print what makes a shell complete commands, options and names.

    Names of bundled recordings and faults are completed, too. It must be read by the shell each time it
    starts: see the examples.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click knows no completion for {shell}")
    click.echo(kind(context.find_root().command, {}, PROGRAM, VARIABLE).source())


def recording_names(_context: click.Context, _option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return bundled recordings that begin with the text, or else folders."""
    from wirewatch.hw.recording import bundled_names

    found = [CompletionItem(name) for name in bundled_names() if name.startswith(begun)]
    return found or [CompletionItem(begun, type="dir")]


def overlay_names(_context: click.Context, _option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return bundled faults that begin with the text, with their sentences, or else files."""
    from wirewatch.hw.overlay import bundled_overlays, load_overlay

    names = [name for name in bundled_overlays() if name.startswith(begun)]
    return [CompletionItem(name, help=load_overlay(name).about) for name in names] or [
        CompletionItem(begun, type="file")
    ]
