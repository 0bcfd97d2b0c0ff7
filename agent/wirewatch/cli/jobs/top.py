"""`wirewatch top`: GPUs, running jobs, their processes and findings, live in a terminal."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.check.answer import HEALTHS
from wirewatch.cli.groups import examples
from wirewatch.cli.jobs.topprocesses import HostProcesses, host_processes
from wirewatch.cli.jobs.topview import CHOSEN, WIDTH, LinkRates, view
from wirewatch.cli.options import Duration, daemon_options, replay_options
from wirewatch.cli.output import shown
from wirewatch.core.exits import exit_of
from wirewatch.core.extras import install
from wirewatch.core.types import Unanswered

if TYPE_CHECKING:
    from wirewatch.cli.check.polling import NodeSource
    from wirewatch.documents.status import NodeSnapshot

EVERY, SHORTEST = 2.0, 0.5
"""Seconds between two looks, by default and at least."""
ONCE = 0.5
"""Seconds in which CPU time is counted where it is printed once."""
NO_TEXTUAL = f"printed once, since the live view takes textual: {install('top')}"
Look = Callable[[], "NodeSnapshot | str"]
"""A snapshot of the node, or why there is none."""


@click.command(epilog=examples("wirewatch top", "wirewatch top --replay h200x4-traffic --once"))
@daemon_options
@replay_options
@click.option(
    "--every", type=Duration(SHORTEST), default=EVERY, help="Seconds between two looks; 2s by default."
)
@click.option("--once", is_flag=True, help="Print once and end; the same where the output is not a terminal.")
@click.pass_context
def top(
    context: click.Context, *, socket: str | None, config: Path | None, replay: str | None,
    overlays: Sequence[str], every: float, once: bool,
) -> None:  # fmt: skip
    """Show GPUs, running jobs, their processes and findings live.

    The running daemon is asked; with --replay a recording plays instead, over and over. User, CPU and command
    of processes are from /proc of this machine. Keys: h shows all, q ends, s and o sort, f or / filters, p
    pauses. Without a terminal or without the package textual it prints once: of a recording its end, as
    `status` does.

    Exit codes: printed once, the node's health (0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN); live, 0 ended; 64
    wrong usage; 69 no daemon answers.
    """
    if replay and socket is not None:
        raise click.UsageError("give either --replay or --socket")
    live = not once and _is_screen()
    with ExitStack() as stack:
        if replay:
            from wirewatch.cli.check.polling import NodeSource

            source = NodeSource(config, replay, overlays, film=live)
            if not live:
                text, end = played_once(source)
                click.echo(text)
                context.exit(_code(end))
            look = filmed(source, stack)
        else:
            look = asking(socket, config)
        first = look()
        if isinstance(first, str):
            raise Unanswered(first)
        if live:
            from wirewatch.cli.jobs.topapp import TopApp

            TopApp(look, first, every).run()
        else:
            click.echo(printed(first, LinkRates()))
            context.exit(_code(first))


def _is_screen() -> bool:
    """Return whether the output can be live; a line says what a terminal lacks."""
    if not sys.stdout.isatty():
        return False
    if find_spec("textual") is None:
        click.echo(f"wirewatch: {NO_TEXTUAL}", err=True)
        return False
    return True


def _code(snapshot: "NodeSnapshot") -> int:
    return exit_of(HEALTHS[snapshot.findings.health])


def printed(snapshot: "NodeSnapshot", rates: LinkRates) -> str:
    """The screen as text of WIDTH; waits for ONCE if there are processes."""
    before = host_processes(HostProcesses(), snapshot)
    time.sleep(ONCE if before.known else 0.0)
    host = host_processes(before, snapshot)
    return shown(line.text for line in view(snapshot, rates, WIDTH, CHOSEN, host).lines)


def played_once(source: "NodeSource") -> "tuple[str, NodeSnapshot]":
    """The screen at the end of a recording with the rates of its last two moments, and the node then.

    Raises:
        Unusable: the configuration, the recording or an overlay cannot be used.
    """
    from wirewatch.cli.check.polling import Poll, played

    rates = [LinkRates()]

    def seen(poll: Poll) -> None:
        rates[0] = rates[0].after(poll.snapshot().state)

    end = played(source, seen).snapshot()
    return printed(end, rates[0]), end


def asking(socket: str | None, config: Path | None) -> Look:
    """Looks by the daemon's documents.

    Raises:
        Unusable: the configuration cannot be read.
    """
    from wirewatch.cli.check.daemon import asked_socket

    path = asked_socket(socket, config)
    return lambda: asked(path)


def asked(path: str) -> "NodeSnapshot | str":
    """Return the daemon's present knowledge by this socket, or why it gives no answer."""
    from wirewatch.cli.orders import document_or_reason
    from wirewatch.documents.jobs import JOBS
    from wirewatch.documents.state import FINDINGS, STATE
    from wirewatch.documents.status import NodeSnapshot

    state = document_or_reason(path, "/api/v1/state", STATE)
    if isinstance(state, str):
        return state
    findings = document_or_reason(path, "/api/v1/findings", FINDINGS)
    if isinstance(findings, str):
        return findings
    jobs = document_or_reason(path, "/api/v1/jobs", JOBS)
    return jobs if isinstance(jobs, str) else NodeSnapshot(state, findings, jobs)


def filmed(source: "NodeSource", stack: ExitStack) -> Look:
    """Looks at a recording that runs in real time, over and over; `stack` ends it.

    Raises:
        Unusable: the configuration, the recording or an overlay cannot be used.
    """
    from wirewatch.cli.check.polling import CheckedNode

    node = CheckedNode(source, keep=False)
    stack.callback(node.stop)
    poll = node.poll()

    def look() -> "NodeSnapshot":
        poll.run(time.monotonic())
        return poll.snapshot()

    return look
