"""`wirewatch fleet`: many nodes at once, from where no agent runs."""

import click

from wirewatch.cli import LazyGroup

COMMANDS: dict[str, str] = {
    "controller": "wirewatch.cli.fleet.controller:controller",
    "pairs": "wirewatch.cli.fleet.pairs:pairs",
    "simulate": "wirewatch.cli.fleet.simulate:simulate",
    "status": "wirewatch.cli.fleet.status:status",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def fleet() -> None:
    """See and mind many nodes at once."""
