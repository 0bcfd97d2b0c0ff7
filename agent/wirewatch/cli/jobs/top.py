"""`wirewatch top`: GPUs, running jobs and findings, live in a terminal."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import Duration, daemon_options, replay_options
from wirewatch.cli.output import shown

if TYPE_CHECKING:
    from wirewatch.documents.status import NodeSnapshot

UNKNOWN = 3
EVERY, SHORTEST = 2.0, 0.5
"""Seconds between two looks, by default and at least."""
NO_TEXTUAL = "the live view takes textual: pip install 'wirewatch[top]'; --once prints without it"
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
    """Show GPUs, running jobs and findings live.

    The running daemon is asked; with --replay a recording plays instead. Keys: q ends, s sorts the GPUs by
    another column, p pauses. Without a terminal it prints once.

    Exit codes: 0 ended; 3 no daemon answers; 64 wrong usage, or textual is not installed.
    """
    if overlays and not replay:
        raise click.UsageError("--overlay changes a recording: give --replay too")
    if replay and socket is not None:
        raise click.UsageError("give either --replay or --socket")
    live = not once and sys.stdout.isatty()
    if live and find_spec("textual") is None:
        raise click.UsageError(NO_TEXTUAL)
    with ExitStack() as stack:
        look = playing(config, replay, overlays, stack, live) if replay else asking(socket, config)
        first = look()
        if isinstance(first, str):
            click.echo(f"wirewatch: {first}", err=True)
            context.exit(UNKNOWN)
        if replay and not live:
            # Rates take two looks, and nobody else has looked at what plays here.
            time.sleep(every)
            again = look()
            click.echo(printed(first) if isinstance(again, str) else printed(again, first))
        elif live:
            from wirewatch.cli.jobs.topapp import TopApp

            TopApp(look, first, every).run()
        else:
            click.echo(printed(first))


def printed(snapshot: "NodeSnapshot", before: "NodeSnapshot | None" = None) -> str:
    """The screen as text of WIDTH; `before`: an earlier snapshot, for rates."""
    from wirewatch.cli.jobs.topview import LinkRates, view

    rates = LinkRates() if before is None else LinkRates().after(before.state)
    lines = view(snapshot, rates.after(snapshot.state)).lines
    return shown(line.text for line in lines)


def asking(socket: str | None, config: Path | None) -> Look:
    """Looks by the daemon's documents.

    Raises:
        Unusable: the configuration cannot be read.
    """
    from wirewatch.cli.check.daemon import asked_socket

    path = asked_socket(socket, config)
    return lambda: asked(path)


def asked(path: str) -> "NodeSnapshot | str":
    """What the daemon at this socket knows now, or why it gives no answer."""
    from wirewatch.cli.jobs.explain import document_or_reason
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


def playing(
    config: Path | None, replay: str, overlays: Sequence[str], stack: ExitStack, loop: bool,  # noqa: FBT001
) -> Look:  # fmt: skip
    """Looks at a recording that plays from now on, with `loop` over and over; `stack` ends it.

    Raises:
        Unusable: the configuration, the recording or an overlay cannot be used.
    """
    from wirewatch.catalogue import discover
    from wirewatch.cli.check.polling import Poll
    from wirewatch.cli.hardware import replayed
    from wirewatch.config import expectations, load
    from wirewatch.documents.jobs import jobs
    from wirewatch.documents.state import findings, state
    from wirewatch.documents.status import NodeSnapshot
    from wirewatch.verdict.ledger import Ledger

    loaded, collectors = load(config, discover())
    hardware, nvml = replayed(replay, overlays, loop=loop, at_fault=True)
    stack.callback(nvml.stop)
    policy = loaded.policy.verdict
    poll = Poll(collectors, hardware, expectations(loaded), policy, Ledger(), None)

    def look() -> NodeSnapshot:
        poll.run(time.monotonic())
        at = hardware.clock.now()
        return NodeSnapshot(
            state(poll.judged, at, hardware.source), findings(poll.judged, at),
            jobs(poll.state, at, hardware.source),
        )  # fmt: skip

    return look
