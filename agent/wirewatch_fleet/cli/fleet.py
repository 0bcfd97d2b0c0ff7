"""`wirewatch fleet`: many nodes at once, from a place without an agent."""

import click

from wirewatch.cli.groups import LazyGroup, Listed

COMMANDS: dict[str, Listed] = {
    "controller": Listed(
        "wirewatch_fleet.cli.controller:controller",
        "Take nodes out of use whose wires are FAILED, within a budget, and give them back.",
    ),
    "pairs": Listed(
        "wirewatch_fleet.cli.pairs:pairs",
        "Name the slow node, direction, pair, rail or leaf in RESULTS, which rounds of pairs measured.",
    ),
    "peer": Listed(
        "wirewatch_fleet.cli.peer:peer",
        "Measure with the other node of a pair; `wirewatch fleet probe` starts this on both.",
        hidden=True,
    ),
    "probe": Listed(
        "wirewatch_fleet.cli.probe:probe",
        "Find the slow node, direction, pair, rail or leaf: pairs of nodes measure each other, in rounds.",
    ),
    "simulate": Listed(
        "wirewatch_fleet.cli.simulate:simulate",
        "Answer scrapes as so many nodes, to see what your Prometheus and your alerts make of them.",
    ),
    "status": Listed(
        "wirewatch_fleet.cli.status:status",
        "Show every bad node of a fleet once, worst first, with what to do.",
    ),
    "tell": Listed(
        "wirewatch_fleet.cli.tell:tell",
        "Tell this node's agent what RESULT says of this node.",
        hidden=True,
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def fleet() -> None:
    """See and mind many nodes at once."""
