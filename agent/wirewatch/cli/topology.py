"""`wirewatch topology`: the node as one graph, its baseline, and the differences between two graphs."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirewatch.cli.check.answer import HEALTHS, Grounds
from wirewatch.cli.check.daemon import asked_socket
from wirewatch.cli.completion import recording_names
from wirewatch.cli.groups import CommandGroup, examples
from wirewatch.cli.options import config_option, daemon_options, named_recording, replay_options
from wirewatch.cli.orders import ask, control_socket, order, user
from wirewatch.cli.output import harmless, shown
from wirewatch.cli.tables import table
from wirewatch.cli.templates import render
from wirewatch.cli.topologies import NamedTopology, dot, mermaid, of_name, of_recording, of_this_node
from wirewatch.core.collector import NodeState
from wirewatch.core.exits import exit_of
from wirewatch.core.hostlist import natural
from wirewatch.core.topology import SWITCH, Topology
from wirewatch.core.types import Absent, Health, Unusable
from wirewatch.core.words import UNKNOWN, printable
from wirewatch.documents.state import TOPOLOGY, TopologyDocument
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.wiring import (
    GpuNode,
    Graph,
    Node,
    fingerprint,
    identity,
    numbers,
    part_name,
    unknown_text,
)

if TYPE_CHECKING:
    from wirewatch.documents.drift import DiffDocument

SECONDS = 60.0
"""Seconds for a poll of the node, in which a driver may have to wake up."""

ORDER = ("failed", "degraded", "ok")
DRAWN = {"dot": dot, "mermaid": mermaid}
NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""PCI paths, the nearest first."""


@click.group(cls=CommandGroup, alone="show")
def topology() -> None:
    """Show, compare and accept this node's topology."""


@topology.command(
    epilog=examples(
        "wirewatch topology show",
        "wirewatch topology show --replay demo-dgx-h200 --dot | dot -Tsvg > node.svg",
    )
)
@daemon_options
@click.option(
    "--replay",
    callback=named_recording,
    shell_complete=recording_names,
    help="Show a recording instead: a folder, or the name of a bundled one.",
)
@click.option("--json", "form", flag_value="json", help="Print one JSON document, which `diff` reads.")
@click.option("--dot", "form", flag_value="dot", help="Print a graph for Graphviz: `dot -Tsvg`.")
@click.option("--mermaid", "form", flag_value="mermaid", help="Print a Mermaid flowchart.")
def show(*, replay: str | None, form: str | None, config: Path | None, socket: str | None) -> None:
    """Show GPUs, NVLink, the PCI tree and NICs.

    The daemon's topology is shown. If no daemon answers, this command reads the node itself.
    """
    named = of_recording(replay) if replay else of_this_node(config, socket)
    click.echo(shown(_formatted(named, form or "text").rstrip("\n").split("\n")))


@topology.command(
    epilog=examples("wirewatch topology diff", "wirewatch topology diff h200x4-idle h200x2-idle")
)
@click.argument("before", required=False)
@click.argument("after", required=False)
@daemon_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.pass_context
def diff(
    context: click.Context, *, before: str | None, after: str | None, as_json: bool, config: Path | None,
    socket: str | None,
) -> None:  # fmt: skip
    """Show what changed in a topology.

    With BEFORE and AFTER, the two are compared; with BEFORE alone, it is compared with this node; with
    neither, the baseline is. Each is a document of `topology show --json`, or a recording. Parts that only
    got another number have not changed.

    Exit codes: 0 no change, or information only; 1 DEGRADED; 2 FAILED.
    """
    from wirewatch.documents.drift import DIFF, difference

    if before is None:
        drift = _drift(config, socket)
        click.echo(json.dumps(drift, indent=1) if as_json else drift_text(drift))
        context.exit(exit_of(HEALTHS[drift["health"]]))
    one = of_name(before)
    other = of_name(after) if after else of_this_node(config, socket)
    document = difference((one.of, one.topology), (other.of, other.topology), time.time())
    click.echo(DIFF.dump_json(document, indent=1).decode() if as_json else changes_text(document))
    context.exit(exit_of(HEALTHS[document.health]))


@topology.command(epilog=examples("wirewatch topology baseline"))
@daemon_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def baseline(*, config: Path | None, socket: str | None, as_json: bool) -> None:
    """Show the baseline of this node.

    It is printed with who accepted it, when and why; or why there is no baseline yet.
    """
    document = _drift(config, socket)
    click.echo(json.dumps(document, indent=1) if as_json else drift_text(document, changes=False))


@topology.command(epilog=examples('wirewatch topology accept --why "mlx5_2 moved to slot 4, RMA 4711"'))
@click.argument("change", required=False)
@click.option("--why", required=True, help="What was done, or why; kept with the baseline.")
@click.option("--by", default=None, help="Who orders it; default: the user's name.")
@click.option("--yes", is_flag=True, help="Accept it also where a part is lost or down.")
@click.option("--undo", is_flag=True, help="Take back that CHANGE was accepted, or all for the one before.")
@daemon_options
def accept(
    *, change: str | None, why: str, by: str | None, yes: bool, undo: bool, config: Path | None,
    socket: str | None,
) -> None:  # fmt: skip
    """Accept the present topology as the baseline.

    The daemon reads the hardware once more and takes what it reads then. With CHANGE, the id of a change in
    `topology diff`, only that change is accepted. What is accepted keeps no job away any more: while a part
    is lost or down, or less is here than should be, it takes --yes.
    """
    given = {name: True for name, given in (("yes", yes), ("undo", undo)) if given}
    said = {"by": by or user(), "why": why, "change": change or "", **given}
    document = order(control_socket(socket, config), "/topology", said)
    if said_back := document.get("said"):
        click.echo(printable(said_back))
    click.echo(drift_text(document, changes=False))


@topology.command(
    epilog=examples(
        "wirewatch topology expect >> /etc/wirewatch/wirewatch.toml",
        "wirewatch topology expect --replay demo-dgx-h200",
    )
)
@config_option
@replay_options
@click.pass_context
def expect(
    context: click.Context, *, config_file: Path | None, replay: str | None, overlays: Sequence[str]
) -> None:
    """Print an [expect] section for nodes like this one.

    It goes into the configuration of all nodes of a pool: what one of them lacks is then FAILED there. This
    command polls the node itself, and prints nothing unless it is OK.

    Exit codes: 0 printed; 1, 2, 3 the node is DEGRADED, FAILED, UNKNOWN.
    """
    from wirewatch.cli.check.polling import CheckedNode, NodeSource

    node = CheckedNode(NodeSource(config_file, replay, overlays), keep=False)
    try:
        poll = node.poll()
        poll.run(time.monotonic() + SECONDS)
        health = poll.grounds("").health
        if health is Health.OK:
            click.echo(shown(expect_section(poll.state)))
        else:
            click.echo(f"wirewatch: {printable(refusal(poll.grounds('')))}", err=True)
    finally:
        node.stop()
    context.exit(exit_of(health))


def expect_section(state: NodeState) -> tuple[str, ...]:
    """Return lines of TOML: the numbers of GPUs, of active NVLinks of each and of RDMA ports, and their rate.

    Leaves out a value that differs within its kind. Raises Unusable where no GPU is known.
    """
    topology = state.facts(Topology)
    if topology is None or not topology.gpus:
        raise Unusable("no GPU is known here, so there is nothing to expect")
    return ("[expect]", f"gpus = {len(topology.gpus)}", *_nvlink(topology), *_rdma(state))


def refusal(grounds: Grounds) -> str:
    """Return why no section is made for an unhealthy node, in one line with its worst finding."""
    what = f": {grounds.findings[0].rule}: {grounds.findings[0].evidence}" if grounds.findings else ""
    return f"no [expect] is made of a node that is {grounds.health.name}{what}"


def topology_text(named: NamedTopology) -> str:
    """Return the fingerprint and the identity of the node, its islands, GPUs and NICs, as text."""
    graph = graph_of(named.topology)
    shape, node = (
        f"has no name: {value.detail}" if isinstance(value, Absent) else str(value)
        for value in (fingerprint(graph), identity(graph))
    )
    islands = [
        (numbers([gpu.index for gpu in graph.gpus if gpu.key in one.gpus]), one.kind) for one in graph.islands
    ]
    cliques = [
        (numbers([gpu.index for gpu in graph.gpus if gpu.clique == clique]), clique)
        for clique in sorted({gpu.clique for gpu in graph.gpus if gpu.clique})
    ]
    return render(
        "wirewatch.cli", "topology.j2", named=named, graph=graph, shape=shape, node=node, table=table,
        islands=islands, cliques=cliques, gpus=list(_gpus(graph)), nics=list(_nics(graph)),
        unknown=[unknown_text(graph, one) for one in graph.unknown],
    )  # fmt: skip


def changes_text(document: "DiffDocument") -> str:
    """Return the lines of a difference, the worst changes first."""
    return _changes("diff.j2", asdict(document))


def drift_text(document: Mapping[str, Any], *, changes: bool = True) -> str:
    """Return the baseline in a `wirewatch.topology-drift/1`, and each change since, the worst first."""
    return _changes("drift.j2", document, whole=changes)


def _changes(template: str, document: Mapping[str, Any], *, whole: bool = True) -> str:
    plain = harmless(document)
    worst = [one for health in ORDER for one in plain["changes"] if whole and one["health"] == health]
    return render("wirewatch.cli", template, document=plain, changes=worst, word=_word, whole=whole).rstrip()


def _word(health: str) -> str:
    return "information" if health == "ok" else health.upper()


def _formatted(named: NamedTopology, form: str) -> str:
    if form == "json":
        document = TopologyDocument("wirewatch.topology/1", named.at, named.topology)
        return TOPOLOGY.dump_json(document, indent=1).decode()
    return topology_text(named) if form == "text" else DRAWN[form](graph_of(named.topology))


def _drift(config: Path | None, socket: str | None) -> dict[str, Any]:
    return ask(asked_socket(socket, config), "GET", "/api/v1/topology/drift", None)


def _nvlink(topology: Topology) -> Iterator[str]:
    links = dict.fromkeys((gpu.uuid for gpu in topology.gpus), 0)
    for wires in topology.nvlink:
        links[wires.uuid] += len(wires.links)
    counts = set(links.values())
    if not topology.unread and len(counts) == 1 and counts != {0}:
        yield f"nvlink_links = {counts.pop()}"


def _rdma(state: NodeState) -> Iterator[str]:
    from wirewatch.collectors.infiniband import InfinibandFacts

    fabric = state.facts(InfinibandFacts)
    if fabric is None or not fabric.rates:
        return
    yield f"rdma_ports = {len(fabric.rates)}"
    rates = set(fabric.rates.values())
    if len(rates) == 1:
        yield f"rdma_rate_bytes_per_second = {rates.pop()!r}"


def _gpus(graph: Graph) -> Iterator[tuple[str, ...]]:
    for gpu in sorted(graph.gpus, key=lambda gpu: gpu.index):
        yield (
            part_name(gpu),
            gpu.product,
            _wires(graph, gpu),
            _numa(gpu),
            gpu.spot.address,
            _nearest(graph, gpu),
        )


def _numa(part: Node) -> str:
    return UNKNOWN if part.spot.numa is None else str(part.spot.numa)


def _wires(graph: Graph, gpu: GpuNode) -> str:
    if not gpu.read:
        return "not read"
    names = {one.key: part_name(one) for one in graph.gpus} | {SWITCH: "the switch"}
    counts = [f"{len(wire.links)} to {names.get(wire.peer, wire.peer)}" for wire in gpu.wires]
    return ", ".join(counts) or "none"


def _nearest(graph: Graph, gpu: GpuNode) -> str:
    paths = [(one.path, nic.device) for nic in graph.nics for one in nic.paths if one.gpu == gpu.key]
    best = next((near for near in NEAR if any(path == near for path, _ in paths)), "")
    names = sorted((device for path, device in paths if path == best), key=natural)
    return f"{', '.join(names)} ({best})" if best else UNKNOWN


def _nics(graph: Graph) -> Iterator[tuple[str, ...]]:
    for nic in sorted(graph.nics, key=lambda nic: natural(nic.device)):
        ports = ", ".join(f"{port} {layer}".rstrip() for port, layer in nic.ports)
        yield nic.device, nic.model, nic.firmware, _numa(nic), nic.spot.address, ports
