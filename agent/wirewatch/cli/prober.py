"""`wirewatch prober`: runs probes with the privileges they need, for an agent that has none."""

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from wirewatch.catalogue import discover
from wirewatch.cli.groups import examples
from wirewatch.cli.hardware import live, replayed
from wirewatch.cli.options import config_option, replay_options
from wirewatch.cli.output import log_as_daemon
from wirewatch.config import load
from wirewatch.daemon.prober import serve_prober
from wirewatch.daemon.release import Handles
from wirewatch.probe.runner import ProbeRunner
from wirewatch.probe.workfolder import remove_left_folders
from wirewatch.server.sockets import local

log = logging.getLogger(__name__)

SOCKET = "/run/wirewatch/prober.sock"
MODE = 0o660


@click.command(epilog=examples("wirewatch prober --socket /run/wirewatch/prober.sock --group wirewatch"))
@config_option
@click.option("--socket", "path", help=f"Socket to listen on; default: [probe] prober, else {SOCKET}.")
@click.option("--group", help="Group that may ask, by name or number; else that of the socket's folder.")
@replay_options
@click.option("--loop", is_flag=True, help="Repeat the recording, with counters that go on rising.")
def prober(
    *, config_file: Path | None, path: str | None, group: str | None, replay: str | None,
    overlays: Sequence[str], loop: bool,
) -> None:  # fmt: skip
    """Run probes for an agent in another container.

    The agent asks over a unix socket. The prober sees the host's processes and asks the kubelet. It runs a
    probe when the gate is open, and kills it as soon as another process uses the GPUs. It keeps nothing, and
    stops with SIGTERM.

    Exit codes: 0 stopped; 64 wrong usage; 70 internal error; 78 wrong configuration, or the socket cannot be
    made.
    """
    log_as_daemon()
    if loop and not replay:
        raise click.UsageError("--loop repeats a recording: give --replay too")
    config, _ = load(config_file, discover())
    address = path or config.probe.prober or SOCKET
    remove_left_folders()
    with ExitStack() as stack:
        hardware, nvml = replayed(replay, overlays, loop=loop) if replay else live(config)
        stack.callback(nvml.stop)
        listening = stack.enter_context(local(address, MODE, group or None))
        if hardware.source == "live" and os.getpid() == 1:
            log.warning(
                "this is process 1 of a PID namespace: without hostPID no probe knows its own process"
            )
        log.info("%s: probing %s; listening at %s", hardware.source, hardware.about, address)
        runner = hardware.probe if isinstance(hardware.probe, ProbeRunner) else None
        asyncio.run(serve_prober(hardware, config.probe, Handles(nvml, runner), listening))
