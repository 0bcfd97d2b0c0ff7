"""`wirewatch fleet tell`: passes the pairs' findings about this node to its own agent."""

import json
import os
import socket as sockets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.check.daemon import NODE_NAMES
from wirewatch.cli.findings import listing
from wirewatch.cli.groups import examples
from wirewatch.cli.options import ExistingFile, daemon_options
from wirewatch.cli.orders import control_socket, order, user
from wirewatch.cli.output import shown

if TYPE_CHECKING:
    from wirewatch.verdict.pairs import PairsResult


@click.command(
    epilog=examples("wirewatch fleet tell result.json", "srun --overlap wirewatch fleet tell result.json")
)
@click.argument("result", type=ExistingFile())
@click.option("--node", help="This node's name in RESULT; default: as Slurm, Kubernetes or the host name it.")
@daemon_options
@click.option("--by", help="Who tells it, for the daemon's log; default: the user's name.")
@click.option("--json", "as_json", is_flag=True, help="Print all findings as one JSON document.")
def tell(
    *, result: Path, node: str | None, socket: str | None, config: Path | None, by: str | None, as_json: bool
) -> None:
    """Tell this node's agent what RESULT says of this node.

    RESULT is a document wirewatch.fleet-pairs/1, such as `wirewatch fleet probe --json` and `wirewatch fleet
    pairs --json` print. Run it on each node that took part, with the rights for orders (root, or the agent's
    own user). What is slow becomes a finding; a newer result that no longer names the node ends it.

    Exit codes: 0 told, or nothing to tell; 64 no such result, or the daemon refuses it; 69 no daemon answers.
    """
    from wirewatch_fleet.pairs.document import RoundsError, member_of, read_pairs, result_for

    try:
        found = read_pairs(result)
    except RoundsError as error:
        raise click.UsageError(str(error)) from error
    names = [node] if node else list(_names(config))
    member = member_of(found, names)
    if member is None:
        raise click.UsageError(f"{result}: no member is called {' or '.join(names)}; give --node")
    said = result_for(found, member)
    if isinstance(said, str):
        click.echo(shown([f"nothing to tell: {said}"]), err=as_json)
        return
    document = order(control_socket(socket, config), "/pairs", _order(said, by or user()))
    click.echo(json.dumps(document, indent=1) if as_json else f"{shown([_line(said)])}\n{listing(document)}")


def _names(config: Path | None) -> Iterator[str]:
    """Yield possible names of this node, the surest name first."""
    from wirewatch.catalogue import discover
    from wirewatch.config import load

    settings = load(config, discover())[0]
    host = sockets.gethostname()
    names = (
        settings.slurm.node, settings.kubernetes.node, *(os.environ.get(name, "") for name in NODE_NAMES),
        host, host.partition(".")[0],
    )  # fmt: skip
    yield from dict.fromkeys(filter(None, names))


def _order(said: "PairsResult", by: str) -> dict[str, object]:
    from pydantic import TypeAdapter

    from wirewatch.documents.pairsorder import PairsOrder

    made: dict[str, object] = TypeAdapter(PairsOrder).dump_python(PairsOrder(by[:200], said), mode="json")
    return made


def _line(said: "PairsResult") -> str:
    if not said.parts:
        return f"told: as {said.member}, nothing is slow between the nodes"
    what = "1 part is" if len(said.parts) == 1 else f"{len(said.parts)} parts are"
    return f"told: as {said.member}, {what} slow"
