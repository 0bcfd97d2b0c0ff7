"""`wirewatch prober`: the process with the privileges that a probe needs, for an agent that has none."""

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

log = logging.getLogger(__name__)

USUAL = "/run/wirewatch/prober.sock"
MODE = 0o660


@click.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file, the agent's.")
@click.option("--socket", "path", help=f"Where to listen, instead of [probe] prober or {USUAL}.")
@click.option("--group", help="Group that may ask, by name or number; else that of the socket's folder.")
@click.option("--replay", help="Play a recording: a folder, or the name of a bundled one.")
@click.option("--overlay", "overlays", multiple=True, help="Change the recording; repeatable.")
@click.option("--loop", is_flag=True, help="Play the recording again and again, its counters continued.")
def prober(
    *, config_file: Path | None, path: str | None, group: str | None, replay: str | None,
    overlays: Sequence[str], loop: bool,
) -> None:  # fmt: skip
    """Run probes for an agent in another container, which asks over a unix socket.

    It sees the host's processes and asks the kubelet, runs a probe when the gate is open, and kills it at the
    first sight of somebody. It keeps nothing. Stops with SIGTERM. Exit codes: 0 stopped, 64 wrong usage, 70
    internal error, 78 wrong configuration, or the socket cannot be made.
    """
    from wirewatch.cli.hardware import live, replayed
    from wirewatch.collectors import discover
    from wirewatch.config import load
    from wirewatch.daemon.prober import serve_prober
    from wirewatch.daemon.release import Handles
    from wirewatch.probe.runner import ProbeRunner
    from wirewatch.server.sockets import local

    if (overlays or loop) and not replay:
        raise click.UsageError("--overlay and --loop change a recording: give --replay too")
    config, _ = load(config_file, discover())
    place = path or config.probe.prober or USUAL
    with ExitStack() as stack:
        listening = stack.enter_context(local(place, MODE, group or None))
        hardware, nvml = replayed(replay, overlays, loop=loop) if replay else live(config)
        stack.callback(nvml.stop)
        if hardware.source == "live" and os.getpid() == 1:
            log.warning(
                "this is process 1 of a PID namespace: without hostPID no probe knows its own process"
            )
        log.info("%s: probing %s; asked at %s", hardware.source, hardware.about, place)
        runs = hardware.probe if isinstance(hardware.probe, ProbeRunner) else None
        serve_prober(hardware, config.probe, Handles(nvml, runs), listening)
