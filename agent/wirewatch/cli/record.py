"""`wirewatch record`: a capture, fit for a bug report and for replay."""

import time
from pathlib import Path

import click

from wirewatch import __version__


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--moments", default=3, show_default=True, type=click.IntRange(1, 1000), help="How many.")
@click.option(
    "--every", default=5.0, show_default=True, type=click.FloatRange(0), help="Seconds between them."
)
@click.option("--note", default="", help="What the node was doing; kept in the manifest.")
def record(*, folder: Path, moments: int, every: float, note: str) -> None:
    """Record everything that can be read of this node into FOLDER, names masked."""
    from wirewatch.cli.hardware import live
    from wirewatch.hw.record import Recorder

    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty; a recording is never written over")
    hardware, nvml = live(timed=True)
    recorder = Recorder(hardware)
    try:
        due = time.monotonic()
        for number in range(moments):
            changed = recorder.take(note)
            click.echo(f"moment {number}: {changed} answers new or changed", err=True)
            due = max(due + every, time.monotonic())
            if number + 1 < moments:
                time.sleep(max(0.0, due - time.monotonic()))
    finally:
        nvml.close()
    lines = recorder.write(folder, __version__)
    click.echo(f"{folder}: {len(recorder.moments)} moments, {lines} answers, names masked")
