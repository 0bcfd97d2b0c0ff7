"""`wirewatch topology`: the node as one graph, and what is different between two."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.output import shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from wirewatch.cli.topologies import Told


def _places(command: "Callable[..., None]") -> "Callable[..., None]":
    config = click.option("--config", type=click.Path(path_type=Path), help="TOML file.")
    socket = click.option("--socket", help="The daemon's socket, instead of the configuration's.")
    return config(socket(command))


@click.group()
def topology() -> None:
    """What hangs where in this node: GPUs, NVLink, the PCI tree, NICs."""


@topology.command()
@_places
@click.option("--replay", help="Of a recording: a folder, or the name of a bundled one.")
@click.option("--json", "form", flag_value="json", help="One JSON document, which `diff` takes.")
@click.option("--dot", "form", flag_value="dot", help="For Graphviz: `dot -Tsvg`.")
@click.option("--mermaid", "form", flag_value="mermaid", help="A Mermaid flowchart.")
def show(*, replay: str | None, form: str | None, config: Path | None, socket: str | None) -> None:
    """The topology of this node, as its daemon knows it or by a look of its own."""
    from wirewatch.cli.topologies import of_recording, of_this_node

    told = of_recording(replay) if replay else of_this_node(config, socket)
    click.echo(shown(_shown(told, form or "text").rstrip("\n").split("\n")))


def _shown(told: "Told", form: str) -> str:
    from wirewatch.cli.topologies import dot, mermaid, text
    from wirewatch.documents.state import TOPOLOGY, TopologyDocument
    from wirewatch.verdict.drift.canonical import graph_of

    if form == "json":
        document = TopologyDocument("wirewatch.topology/1", told.at, told.topology)
        return TOPOLOGY.dump_json(document, indent=1).decode()
    draw = {"dot": dot, "mermaid": mermaid}.get(form)
    return draw(graph_of(told.topology)) if draw else text(told)


@topology.command()
@click.argument("before", required=False)
@click.argument("after", required=False)
@_places
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@click.pass_context
def diff(
    context: click.Context, *, before: str | None, after: str | None, as_json: bool, config: Path | None,
    socket: str | None,
) -> None:  # fmt: skip
    """What changed from BEFORE to AFTER, or to this node; without both, since its baseline.

    Each is a document of `topology show --json`, or a recording. Parts that are only numbered anew are no
    change. Exit code: 0 nothing or information alone, 1 DEGRADED, 2 FAILED.
    """
    from wirewatch.cli.check.answer import EXIT
    from wirewatch.cli.topologies import changes, of_name, of_this_node
    from wirewatch.core.types import Health
    from wirewatch.documents.drift import DIFF, difference

    if before is None:
        _against_baseline(context, config, socket, as_json=as_json)
        return
    one = of_name(before)
    other = of_name(after) if after else of_this_node(config, socket)
    document = difference((one.of, one.topology), (other.of, other.topology), time.time())
    click.echo(DIFF.dump_json(document, indent=1).decode() if as_json else shown(changes(document)))
    context.exit(EXIT[Health[document.health.upper()]])


def _against_baseline(
    context: click.Context, config: Path | None, socket: str | None, *, as_json: bool
) -> None:  # fmt: skip
    from wirewatch.cli.check.answer import EXIT
    from wirewatch.cli.topologies import drift
    from wirewatch.core.types import Health

    told = _drift(config, socket)
    click.echo(json.dumps(told, indent=1) if as_json else shown(drift(told)))
    context.exit(EXIT[Health[told["health"].upper()]])


def _drift(config: Path | None, socket: str | None) -> "dict[str, Any]":
    from wirewatch.cli.check.daemon import daemon_address
    from wirewatch.cli.orders import ask

    return ask(daemon_address(socket, config).socket, "GET", "/api/v1/topology/drift", None)


@topology.command()
@_places
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
def baseline(*, config: Path | None, socket: str | None, as_json: bool) -> None:
    """What the daemon compares this node with: who accepted it, when, why; or why there is nothing yet."""
    from wirewatch.cli.topologies import baseline as text

    told = _drift(config, socket)
    click.echo(json.dumps(told, indent=1) if as_json else shown(text(told)))


@topology.command()
@click.argument("change", required=False)
@click.option("--why", required=True, help="What was done, or why; kept with it.")
@click.option("--by", default=None, help="Who says so; else the user's name.")
@_places
def accept(*, change: str | None, why: str, by: str | None, config: Path | None, socket: str | None) -> None:
    """Take the topology as it is now for right; or CHANGE alone, by the id that `topology diff` shows."""
    from wirewatch.cli.orders import control_socket, order, user
    from wirewatch.cli.topologies import baseline as text

    said = {"by": by or user(), "why": why, "change": change or ""}
    click.echo(shown(text(order(control_socket(socket, config), "/topology", said))))
