"""`wirewatch topology`: the node as one graph, and what is different between two."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

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
    click.echo(_shown(told, form or "text").rstrip("\n"))


def _shown(told: "Told", form: str) -> str:
    from wirewatch.cli.graphs import text
    from wirewatch.export.documents import TOPOLOGY, TopologyDocument
    from wirewatch.verdict.drift.canonical import graph_of
    from wirewatch.verdict.drift.draw import dot, mermaid

    if form == "json":
        document = TopologyDocument("wirewatch.topology/1", told.at, told.topology)
        return TOPOLOGY.dump_json(document, indent=1).decode()
    draw = {"dot": dot, "mermaid": mermaid}.get(form)
    return draw(graph_of(told.topology)) if draw else text(told)


@topology.command()
@click.argument("before")
@click.argument("after", required=False)
@_places
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@click.pass_context
def diff(
    context: click.Context, *, before: str, after: str | None, as_json: bool, config: Path | None,
    socket: str | None,
) -> None:  # fmt: skip
    """What changed from BEFORE to AFTER, or to this node.

    Each is a document of `topology show --json`, or a recording. Parts that are only numbered anew are no
    change. Exit code: 0 nothing or information alone, 1 DEGRADED, 2 FAILED.
    """
    from wirewatch.cli.checking.values import EXIT
    from wirewatch.cli.graphs import changes
    from wirewatch.cli.topologies import of_name, of_this_node
    from wirewatch.core.types import Health
    from wirewatch.export.drifting import DIFF, difference

    one = of_name(before)
    other = of_name(after) if after else of_this_node(config, socket)
    document = difference((one.of, one.topology), (other.of, other.topology), time.time())
    click.echo(DIFF.dump_json(document, indent=1).decode() if as_json else "\n".join(changes(document)))
    context.exit(EXIT[Health[document.health.upper()]])
