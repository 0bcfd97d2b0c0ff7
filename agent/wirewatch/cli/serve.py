"""`wirewatch serve`: the daemon."""

import logging
import socket
from collections.abc import Sequence
from pathlib import Path

import click

from wirewatch.config import Config, ConfigError
from wirewatch.core.ports import Hardware
from wirewatch.daemon.sockets import ListenError
from wirewatch.hw.nvml.client import NvmlClient

log = logging.getLogger(__name__)

DEMO = "demo-dgx-h200"
_DRIVER = (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia"))


@click.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file.")
@click.option("--listen", help="HOST:PORT for HTTP, instead of the configuration's.")
@click.option("--replay", help="Play a recording: a folder, or the name of a bundled one.")
@click.option(
    "--overlay", "overlays", multiple=True,
    help="Change the recording: a TOML file, or the name of a bundled fault; repeatable.",
)  # fmt: skip
@click.option("--loop", is_flag=True, help="Play the recording again and again, its counters continued.")
@click.option("--demo", is_flag=True, help="The GPUs found here, else a bundled recording, looped.")
def serve(
    *, config_file: Path | None, listen: str | None, replay: str | None, overlays: Sequence[str], loop: bool,
    demo: bool,
) -> None:  # fmt: skip
    """Run the daemon: metrics, health and state over HTTP."""
    from wirewatch.collectors import discover
    from wirewatch.config import address, expectations, load
    from wirewatch.daemon.service import serve as run_daemon

    if demo and not replay and not any(path.exists() for path in _DRIVER):
        replay, loop = DEMO, True
    if (overlays or loop) and not replay:
        raise click.UsageError("--overlay and --loop change a recording: give --replay too")
    config, collectors = load(config_file, discover())
    if listen:
        try:
            address(listen)
        except ConfigError as error:
            raise click.UsageError(str(error)) from error
    host, port = address(listen or config.listen.address)
    hardware, nvml = _hardware(replay, overlays, loop=loop)
    sockets = _sockets(host, port, _socket_path(config, replay))
    _announce(hardware, sockets[0])
    try:
        run_daemon(collectors, hardware, expectations(config), sockets)
    finally:
        nvml.stop()


def _hardware(replay: str | None, overlays: Sequence[str], *, loop: bool) -> tuple[Hardware, NvmlClient]:
    from wirewatch.cli.hardware import live, replayed

    return replayed(replay, overlays, loop=loop) if replay else live()


def _socket_path(config: Config, replay: str | None) -> str:
    """A recording answers for this node only when told to: nothing may start a job on a demo's word."""
    from wirewatch.daemon.sockets import default_path

    if config.listen.socket is not None:
        return config.listen.socket
    return "" if replay else default_path()


def _sockets(host: str, port: int, path: str) -> list[socket.socket]:
    from wirewatch.daemon.sockets import local, tcp

    sockets = [tcp(host, port)]
    if path:
        try:
            sockets.append(local(path))
        except ListenError:
            sockets[0].close()
            raise
    return sockets


def _announce(hardware: Hardware, server: socket.socket) -> None:
    host, port = server.getsockname()[:2]
    base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    log.info("%s: reading %s", hardware.source, hardware.about)
    for path in ("/metrics", "/health", "/api/v1/state"):
        log.info("%s%s", base, path)
