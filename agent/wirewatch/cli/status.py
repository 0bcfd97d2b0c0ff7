"""`wirewatch status`: the node on a dozen lines."""

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from wirewatch.cli.check.answer import EXIT, HEALTHS
from wirewatch.cli.groups import examples
from wirewatch.cli.options import daemon_options, replay_options
from wirewatch.cli.output import coloured, terminal_width
from wirewatch.cli.progress import under_way
from wirewatch.core.words import printable

if TYPE_CHECKING:
    from wirewatch.cli.check.polling import Poll
    from wirewatch.documents.status import StatusDocument

SECONDS = 10.0
"""For a poll of our own, in which a driver may have to wake up."""
HEAD, LEAST = 11, 20
"""Characters of what a line is about, and of its text, at least."""


@click.command(epilog=examples("wirewatch status", "wirewatch status --replay demo-dgx-h200"))
@daemon_options
@replay_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.pass_context
def status(
    context: click.Context, *, socket: str | None, config: Path | None, replay: str | None,
    overlays: Sequence[str], as_json: bool,
) -> None:  # fmt: skip
    """Show how this node is, on a dozen lines.

    GPUs, links, ports and paths, the last probe and why none runs now, jobs, how old each value is, and what
    is wrong. The daemon is asked; if none answers, this command reads the node itself. A recording is played,
    without waiting, until what it or an overlay changes has been confirmed.

    Exit code: the node's health (0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN).
    """
    from wirewatch.documents.status import STATUS

    if overlays and not replay:
        raise click.UsageError("--overlay changes a recording: give --replay too")
    if replay and socket is not None:
        raise click.UsageError("give either --replay or --socket")
    document = _played(config, replay, overlays) if replay else _of_this_node(socket, config)
    if as_json:
        click.echo(STATUS.dump_json(document, indent=1).decode())
    else:
        click.echo("\n".join(_text(document, terminal_width())))
    context.exit(EXIT[HEALTHS[document.health]])


def _of_this_node(socket: str | None, config: Path | None) -> "StatusDocument":
    """By the daemon or a demo; else by a poll of our own, unless a socket was named.

    Raises:
        Unusable: the configuration cannot be used, or nothing answers at the socket that was named.
    """
    from wirewatch.cli.check.daemon import asked_socket, driver_is_here
    from wirewatch.core.types import Unusable
    from wirewatch.server.sockets import demo_path

    path = asked_socket(socket, config)
    found = _asked(path, demo=path == demo_path())
    if not isinstance(found, str):
        return found
    if socket is not None:
        raise Unusable(found)
    hint = "" if driver_is_here() else "; no NVIDIA driver is here: `wirewatch demo` shows a node with GPUs"
    return _polled(config, f"read once by this command, since no daemon answers: {found}{hint}")


def _asked(path: str, *, demo: bool) -> "StatusDocument | str":
    """What the daemon at this socket knows now, or why it gives no answer."""
    from wirewatch.cli.jobs.explain import document_or_reason
    from wirewatch.cli.jobs.top import asked
    from wirewatch.documents.probes import PROBES
    from wirewatch.documents.status import status as document

    node = asked(path)
    if isinstance(node, str):
        return node
    probes = document_or_reason(path, "/api/v1/probes", PROBES)
    return probes if isinstance(probes, str) else document(node, probes, "demo" if demo else "daemon")


def _polled(config: Path | None, why: str) -> "StatusDocument":
    """By a poll of the node, whatever hangs.

    Raises:
        Unusable: the configuration cannot be used.
    """
    from wirewatch.cli.check.command import Work
    from wirewatch.cli.check.polling import CheckedNode, NodeSource

    if not click.get_current_context().find_root().params.get("verbose"):
        # What it logs stands in the lines, too.
        logging.getLogger("wirewatch.hw.nvml").setLevel(logging.CRITICAL)
    node = CheckedNode(NodeSource(config), keep=False)
    poll = node.poll()
    end = time.monotonic() + SECONDS
    work = Work(lambda: poll.run(end), node.stop)
    try:
        with under_way("reading this node"):
            work.outcome(SECONDS)
    except TimeoutError:
        node.kill()
    return _of_poll(poll, why)


def _played(config: Path | None, replay: str, overlays: Sequence[str]) -> "StatusDocument":
    """Of a recording at its end.

    Raises:
        Unusable: the configuration, the recording or an overlay cannot be used.
    """
    from wirewatch.cli.check.polling import NodeSource, played

    about = ", ".join((f"recording {replay}", *(f"overlay {name}" for name in overlays)))
    return _of_poll(played(NodeSource(config, replay, overlays)), f"{about}, played without waiting")


def _of_poll(poll: "Poll", why: str) -> "StatusDocument":
    from wirewatch.documents.probes import probes_of
    from wirewatch.documents.status import status as document

    node = poll.snapshot()
    return document(node, probes_of(poll.state, node.state.at), "own", why)


def _text(document: "StatusDocument", width: int) -> Iterator[str]:
    from wirewatch.cli.statustext import status_lines

    for line in status_lines(document):
        rows = wrap(printable(line.text), max(width - HEAD, LEAST), break_on_hyphens=False) or [""]
        for number, row in enumerate(rows):
            head = line.head if number == 0 else ""
            yield coloured(f"{head:<{HEAD}}{row}", line.tone)
