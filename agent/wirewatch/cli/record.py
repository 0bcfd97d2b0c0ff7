"""`wirewatch record`: a recording of this node, fit for a bug report and for replay."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGINT
from tempfile import TemporaryFile

import click

from wirewatch import __version__
from wirewatch.catalogue import discover
from wirewatch.cli.groups import examples
from wirewatch.cli.hardware import live, own_state, remote_prober
from wirewatch.cli.options import FiniteNumber, WholeNumber, config_option
from wirewatch.cli.progress import under_way
from wirewatch.cli.recorder import Recorder
from wirewatch.config import Config, expectations, load
from wirewatch.core.exits import Exit
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Json
from wirewatch.probe.model import ProbePolicy
from wirewatch.probe.request import ProbeOverrides, probe_now
from wirewatch.probe.restore import PROBED
from wirewatch.signals import Stopped


@click.command(
    epilog=examples(
        'wirewatch record /tmp/node17 --moments 12 --note "all_reduce at half speed"',
        "wirewatch check --replay /tmp/node17",
    )
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--moments", default=3, show_default=True, type=WholeNumber(1, 1000), help="How many readings.")
@click.option(
    "--every", default=5.0, show_default=True, type=FiniteNumber(0), help="Seconds between two readings."
)
@click.option("--probe", is_flag=True, help="Run a probe first, if the GPUs are idle, and record it too.")
@click.option(
    "--ras", is_flag=True, help="Ask the RAS of running NCCL jobs at each reading: all their processes talk."
)
@config_option
@click.option("--note", default="", help="A remark for the manifest: what the node was doing.")
@click.pass_context
def record(
    context: click.Context, *, folder: Path, moments: int, every: float, probe: bool, ras: bool,
    config_file: Path | None, note: str,
) -> None:  # fmt: skip
    """Record everything that can be read of this node.

    The recording is written to FOLDER, with names, serial numbers and UUIDs masked. It is written after each
    reading, so that what was read can be played whenever the command ends.

    Exit codes: 0 all was recorded; 64 wrong usage, or FOLDER cannot be written; 70 it ended before, by
    Ctrl-C, by SIGTERM or since the disk is full.
    """
    config, _ = load(config_file, discover())
    state = own_state(config) if probe else None
    with _made(folder):
        hardware, nvml = live(config, timed=True, state=state)
        try:
            recorder = Recorder(hardware, _probed(hardware, config) if probe else None, ras)
            why = _take(recorder, folder, moments, every, note)
        finally:
            nvml.close()
        text = f"{folder}: {{}} moments, {recorder.lines} answers, names masked"
        if why:
            taken = f"{recorder.written} of {moments}"
            click.echo(f"wirewatch: {text.format(taken)}; it ended before, {why}", err=True)
            context.exit(Exit.INTERNAL)
        click.echo(text.format(moments))


def _take(recorder: Recorder, folder: Path, moments: int, every: float, note: str) -> str:
    """Record this number of moments, `every` seconds; return why it ended early, empty where it did not."""
    due = time.monotonic()
    try:
        for number in range(moments):
            with under_way(f"reading moment {number + 1} of {moments}"):
                changed = recorder.take(note)
                recorder.write(folder, __version__)
            click.echo(f"moment {number}: {changed} answers new or changed", err=True)
            due = max(due + every, time.monotonic())
            if number + 1 < moments:
                with under_way(f"waiting for moment {number + 2} of {moments}"):
                    time.sleep(max(0.0, due - time.monotonic()))
    except Stopped as stopped:
        return "by Ctrl-C" if stopped.number is SIGINT else f"by {stopped.number.name}"
    except OSError as error:
        return f"since it cannot be written: {error.strerror or error}"
    return ""


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Yield the folder, which can be written; a new folder that is still empty at the end is removed.

    Raises UsageError: it is not empty, or cannot be made or written.
    """
    there = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise click.UsageError(f"{folder} is not empty, and a recording is never overwritten")
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        if not there:
            with suppress(OSError):
                folder.rmdir()


def _probed(hardware: Hardware, config: Config) -> Json:
    """Return the result of a probe of the idle node, as JSON; UsageError where none may run, or completes."""
    asked = probe_now(
        hardware, config.probe, ProbePolicy(confirm=1), expectations(config), ProbeOverrides(), None,
        prober=remote_prober(config, hardware),
    )  # fmt: skip
    if asked.probed is None or asked.probed.outcome != "ok":
        reason = asked.refusal.detail if asked.refusal else asked.probed.why if asked.probed else ""
        raise click.UsageError(f"no probe to record: {reason}")
    answer: Json = PROBED.dump_python(asked.probed, mode="json")
    return answer
