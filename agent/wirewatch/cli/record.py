"""`wirewatch record`: a recording of this node, fit for a bug report and for replay."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch import __version__
from wirewatch.cli.options import config_option
from wirewatch.core.types import Json

if TYPE_CHECKING:
    from wirewatch.config import Config
    from wirewatch.core.ports import Hardware


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--moments",
    default=3,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="How many readings.",
)
@click.option(
    "--every", default=5.0, show_default=True, type=click.FloatRange(0), help="Seconds between two readings."
)
@click.option("--probe", is_flag=True, help="Run a probe first, if the GPUs are idle, and record it too.")
@config_option
@click.option("--note", default="", help="A remark for the manifest: what the node was doing.")
def record(
    *, folder: Path, moments: int, every: float, probe: bool, config_file: Path | None, note: str
) -> None:
    """Record everything that can be read of this node.

    The recording is written to FOLDER, with names, serial numbers and UUIDs masked.
    """
    from wirewatch.cli.hardware import live
    from wirewatch.collectors import discover
    from wirewatch.config import load
    from wirewatch.hw.record import Recorder
    from wirewatch.probe.statefolder import open_state, state_directory

    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty, and a recording is never overwritten")
    config, _ = load(config_file, discover())
    # Only a probe needs the state folder, for its lock.
    state = open_state(state_directory(config.state.directory)) if probe else None
    hardware, nvml = live(config, timed=True, state=state)
    try:
        recorder = Recorder(hardware, _probed(hardware, config) if probe else None)
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


def _probed(hardware: "Hardware", config: "Config") -> Json:
    """The result of a probe of the idle node, as JSON.

    Raises:
        UsageError: a probe may not run now, or did not complete.
    """
    from wirewatch.cli.hardware import remote_prober
    from wirewatch.config import expectations
    from wirewatch.probe.model import ProbePolicy
    from wirewatch.probe.request import ProbeOverrides, probe_now
    from wirewatch.probe.restore import PROBED

    asked = probe_now(
        hardware, config.probe, ProbePolicy(confirm=1), expectations(config), ProbeOverrides(), None,
        prober=remote_prober(config, hardware),
    )  # fmt: skip
    if asked.probed is None or asked.probed.outcome != "ok":
        reason = asked.refusal.detail if asked.refusal else asked.probed.why if asked.probed else ""
        raise click.UsageError(f"no probe to record: {reason}")
    answer: Json = PROBED.dump_python(asked.probed, mode="json")
    return answer
