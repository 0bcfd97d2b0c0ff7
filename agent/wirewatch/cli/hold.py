"""`wirewatch hold`: probes stay off GPUs while a job starts; deploy/slurm has the same without Python."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import Duration, config_option
from wirewatch.cli.options import owner as checked_owner
from wirewatch.core.exits import Exit
from wirewatch.core.types import Absent, Unusable
from wirewatch.core.words import count

if TYPE_CHECKING:
    from wirewatch.probe.holds import HoldFolder

DEFAULT, LONGEST = 600.0, 86400.0
"""Seconds of a hold: by default, and at most."""
PATIENCE = 5.0
"""Seconds that a worker may take to be gone: the driver takes 0.5 s to give back the memory of four GPUs."""


@click.command(
    epilog=examples(
        "wirewatch hold --owner slurm:4711 --gpus 0,1 --for 1h", "wirewatch hold --owner slurm:4711 --end"
    )
)
@click.option(
    "--owner", required=True, callback=checked_owner, help="The job that will start: slurm:ID or pod:UID."
)
@click.option("--gpus", default="all", help="Its GPUs by number, such as 0,1; default: all of the node.")
@click.option(
    "--for",
    "seconds",
    type=Duration(most=LONGEST, above_zero=True),
    help="How long at most, such as 90s, 10m (the default) or 2h; at most 1d.",
)
@click.option("--end", is_flag=True, help="End the holds of this owner.")
@config_option
@click.pass_context
def hold(
    context: click.Context, *, owner: str, gpus: str, seconds: float | None, end: bool,
    config_file: Path | None,
) -> None:  # fmt: skip
    """Keep probes off GPUs while a job starts.

    A probe that runs there is ended first: when this command returns, no probe is on the GPUs, and none
    begins until the hold has ended or its time is over. Probes of the owner itself may run. It is for a
    prolog or another program of root's that starts jobs. It needs no daemon, and a hold outlives a restart of
    the daemon.

    Exit codes: 0 done; 70 the hold cannot be made, or a probe does not end within 5 s.
    """
    from wirewatch.probe.holds import hold_named

    if end and (seconds is not None or gpus != "all"):
        raise click.UsageError("--end takes neither --for nor --gpus")
    named = hold_named(f"{owner}.0.{gpus}")
    if named is None or (named.gpus is None and gpus != "all"):
        raise click.UsageError("--owner has 64 letters, digits, _ and - at most, --gpus numbers such as 0,3")
    folder, held = _folder(config_file), ""
    try:
        if end:
            click.echo(f"{owner}: {count(folder.end(owner), 'hold')} ended")
            return
        folder.make(owner, DEFAULT if seconds is None else seconds, named.gpus)
        if isinstance(seen := folder.active(), Absent):
            raise Unusable(f"no hold is believed, and no probe runs until that is mended: {seen}")
        held = f"{owner}: probes are held off, whether one still runs is not known: "
        gone = folder.quiet(PATIENCE)
    except OSError as error:
        gone = False
        hint = "; docs/giving-way.md says how it is made" if isinstance(error, FileNotFoundError) else ""
        click.echo(f"wirewatch: {held}{error.filename}: {error.strerror}{hint}", err=True)
    else:
        said = "no probe runs there" if gone else f"a probe that was ended is not gone after {PATIENCE:g} s"
        click.echo(f"{owner}: probes are held off, {said}")
    context.exit(0 if gone else Exit.INTERNAL)


def _folder(config_file: Path | None) -> "HoldFolder":
    """The folder that the configuration names; raises Unusable where it names none."""
    from wirewatch.catalogue import discover
    from wirewatch.config import load
    from wirewatch.probe.holds import HoldFolder

    path = load(config_file, discover())[0].probe.holds
    if not path:
        raise Unusable("`[probe] holds` is empty, so that no probe of this node looks for holds")
    return HoldFolder(path)
