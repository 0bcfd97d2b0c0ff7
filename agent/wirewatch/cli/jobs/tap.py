"""`wirewatch jobs`: the tap onto this node and off it, and who carries it."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.groups import CommandGroup, examples
from wirewatch.cli.options import config_option, replay_options
from wirewatch.core.exits import Exit

if TYPE_CHECKING:
    from wirewatch.documents.jobs import JobsStatusDocument, RingStatus
    from wirewatch.jobs.tap.carriers import Carriers
    from wirewatch.jobs.tap.tapfile import Installed

DEFAULT = "/run/wirewatch-jobs"
"""The tap's folder if nothing else is set in the job."""
DRIVER = Path("/dev/nvidiactl")
"""The driver's file, without which no process is on a GPU."""


@click.group(cls=CommandGroup)
def jobs() -> None:
    """Time the collectives of running jobs.

    These commands put NCCL's plugin onto this node, and show who carries it.
    """


@jobs.command(epilog=examples("wirewatch jobs install /opt/wirewatch/lib"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--compiler", help="Compile it here with this C compiler, even where a binary is at hand.")
@config_option
def install(*, folder: Path, compiler: str | None, config_file: Path | None) -> None:
    """Put the tap, libwirewatch-tap.so, into FOLDER.

    No job uses it before a variable of NCCL names it, which this command prints and does not set. Jobs that
    run with an older tap keep that one until they end.

    Exit codes: 0 installed; 64 nothing was changed.
    """
    from wirewatch.jobs.tap.tapfile import TapError
    from wirewatch.jobs.tap.tapfile import install as put

    rings, _ = _folders(config_file)
    try:
        done = put(folder.absolute(), compiler)
    except TapError as error:
        raise click.UsageError(str(error)) from error
    click.echo("\n".join(_installed(done, rings)))


@jobs.command(epilog=examples("wirewatch jobs uninstall /opt/wirewatch/lib"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def uninstall(*, folder: Path) -> None:
    """Remove the tap from FOLDER.

    Jobs that run with it go on with it; jobs that start with the variable still set run without a plugin.

    Exit codes: 0 removed; 64 there is no tap, or the file is not a tap: nothing was changed.
    """
    from wirewatch.cli.output import shown
    from wirewatch.jobs.tap.carriers import carriers
    from wirewatch.jobs.tap.tapfile import TapError
    from wirewatch.jobs.tap.tapfile import uninstall as remove

    try:
        path = remove(folder.absolute())
    except TapError as error:
        raise click.UsageError(str(error)) from error
    found = carriers()
    click.echo(f"{path} is removed; take NCCL_PROFILER_PLUGIN={path} out of where it is set, too")
    click.echo(shown(_carrying(found)))


@jobs.command(epilog=examples("wirewatch jobs status"))
@config_option
@replay_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.pass_context
def status(
    context: click.Context, *, config_file: Path | None, replay: str | None, overlays: tuple[str, ...],
    as_json: bool,
) -> None:  # fmt: skip
    """Show who carries the tap: communicators, their GPUs and processes, versions, and what was dropped.

    Root sees all of it. The agent's user sees all but the processes of others.

    Exit codes: 0 whatever there is, also nothing; 70 the folder of rings is there and cannot be read.
    """
    from wirewatch.cli.output import shown
    from wirewatch.documents.jobs import STATUS

    document = _played(replay, overlays) if replay else _here(*_folders(config_file))
    click.echo(STATUS.dump_json(document, indent=1).decode() if as_json else shown(_text(document)))
    context.exit(Exit.INTERNAL if not document.read and document.why != "missing" else 0)


def _folders(config_file: Path | None) -> tuple[str, str]:
    from wirewatch.catalogue import discover
    from wirewatch.config import load

    jobs = load(config_file, discover())[0].jobs
    return jobs.rings, jobs.inspector


def _here(folder: str, inspector: str) -> "JobsStatusDocument":
    from wirewatch.core.types import Absent
    from wirewatch.documents.jobs import jobs_status
    from wirewatch.hw.nvml.client import NvmlClient
    from wirewatch.hw.nvml.protocol import Source
    from wirewatch.jobs.inspector.files import job_rings
    from wirewatch.jobs.running import computing
    from wirewatch.jobs.tap.carriers import carriers
    from wirewatch.jobs.tap.tapfile import folder_remarks

    found = job_rings(folder, inspector).poll({})
    now, both = (time.time(), time.monotonic()), " and ".join(filter(None, (folder, inspector)))
    with closing(NvmlClient(Source())) as nvml:
        # Its process starts with the first question, and takes a while.
        asked = DRIVER.exists() and not isinstance(found, Absent) and found.rings
        gpus = computing(nvml) if asked else ({}, ())
    remarks = folder_remarks(Path(folder)) if folder else ()
    return jobs_status(both, found, carriers(), remarks, now, gpus)


def _played(replay: str, overlays: tuple[str, ...]) -> "JobsStatusDocument":
    from wirewatch.cli.hardware import replayed
    from wirewatch.documents.jobs import jobs_status
    from wirewatch.jobs.tap.carriers import Carriers

    # NVML's process starts with the first question, and none is asked here.
    hardware, _ = replayed(replay, overlays, at_fault=True)
    now = (hardware.clock.now(), hardware.clock.mono())
    return jobs_status(hardware.about, hardware.rings.poll({}), Carriers(), (), now)


def _installed(done: "Installed", rings: str) -> Iterator[str]:
    from wirewatch.jobs.tap.tapfile import folder_remarks

    yield f"{done.path} is there: {done.machine}, {done.size_bytes // 1000} kB, {done.made}"
    yield from (f"but {remark}" for remark in done.remarks)
    setting = f"NCCL_PROFILER_PLUGIN={done.path}"
    yield "Nothing uses it yet. For jobs that start from now on, one of:"
    yield f"  every job of this node        a line `{setting}` in /etc/nccl.conf"
    yield f'  every job of a Slurm cluster  echo "export {setting}" in the TaskProlog'
    yield f"  one job                       `export {setting}` before it starts"
    yield "What it costs, when not to, containers and pods: docs/jobs.md. Off: NCCL_PROFILER_PLUGIN=none"
    if not rings:
        yield "The agent reads no rings: [jobs] rings is empty in its configuration"
    elif rings != DEFAULT:
        yield f"and WIREWATCH_TAP_DIR={rings} in the same place, since the agent reads there"
    yield from (f"{rings}: {remark}" for remark in folder_remarks(Path(rings)) if rings)


def _carrying(found: "Carriers") -> Iterator[str]:
    for one in found.found:
        version = ", a file that has been replaced or removed since" if one.replaced else ""
        yield f"process {one.pid} of user {one.uid} maps {one.path}{version}, until it ends"
    if not found.found:
        yield "no process that can be seen maps it"
    yield from _unseen(found.closed, late=found.late)


def _unseen(closed: int, *, late: bool) -> Iterator[str]:
    if closed:
        yield f"not looked into, which root may: {closed} of the processes"
    if late:
        yield "not all processes could be looked into in time"


def _text(document: "JobsStatusDocument") -> Iterator[str]:
    from wirewatch.cli.tables import table
    from wirewatch.core.words import count

    if not document.read:
        none = f"no folder of rings at {document.folder}: no job of this node is timed"
        yield none if document.why == "missing" else f"{document.folder} cannot be read: {document.why}"
    elif not document.rings:
        yield f"no rings in {document.folder}: no communicator of a running job carries the tap"
    else:
        yield f"{len(document.rings)} rings in {document.folder}"
        header = (
            "communicator", "rank", "gpu", "pid", "job", "uid", "tap", "nccl", "state", "collectives",
            "timed", "share", "dropped", "quiet",
        )  # fmt: skip
        yield from table(header, [_row(one) for one in document.rings])
    for why in sorted({one.untimed for one in document.rings if one.untimed}):
        yield f"{count(sum(one.untimed == why for one in document.rings), 'ring')} without times: {why}"
    for source in sorted({one.source for one in document.rings if one.source}):
        yield f"{count(sum(one.source == source for one in document.rings), 'ring')} by {source}"
    yield from (f"{document.folder}: {remark}" for remark in document.remarks)
    yield from (f"refused: {one.name}: {one.why}" for one in document.refused)
    known = {one.host_pid for one in document.rings}
    for one in document.carriers:
        if one.pid not in known:
            yield f"process {one.pid} of user {one.uid} maps {one.path} and has no ring here"
    if replaced := [str(one.pid) for one in document.carriers if one.replaced]:
        yield f"with a tap that has been replaced or removed since, until they end: {', '.join(replaced)}"
    yield from _unseen(document.unread_processes, late=document.late)


def _row(one: "RingStatus") -> tuple[str, ...]:
    name = f" {one.communicator_name}" if one.communicator_name else ""
    pid = "-" if one.host_pid is None else str(one.host_pid)
    quiet = f"{one.quiet_seconds:.0f} s" if one.state == "live" else "-"
    share = f"{100 * one.timing_share:.3g}%" if one.timing_share else "-"
    return (
        f"{one.communicator}{name}", f"{one.rank}/{one.ranks}", (one.gpu or "-")[:12],
        pid if one.host_pid in {None, one.pid} else f"{pid} ({one.pid} inside)", one.owner or "-",
        str(one.uid), one.tap or "-", one.nccl or "-", one.state, str(one.collectives), str(one.timed),
        share, str(one.dropped), quiet,
    )  # fmt: skip
