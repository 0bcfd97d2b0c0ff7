"""`wirewatch serve`: the daemon."""

import asyncio
import ctypes
import faulthandler
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.check.daemon import driver_is_here
from wirewatch.cli.groups import examples
from wirewatch.cli.options import config_option, replay_options
from wirewatch.config import Config, ConfigError, Listen, address, expectations, reloaded
from wirewatch.core.collector import AnyCollector
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Tier
from wirewatch.daemon.nodecondition import ConditionOptions, ConditionWriter
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.kubernetes.apiserver import endpoint
from wirewatch.kubernetes.condition import TYPE, Holds
from wirewatch.server.guard import Hosts, PortGuard
from wirewatch.server.reload import WebCounts
from wirewatch.server.sockets import ListenError, tcp

if TYPE_CHECKING:
    from wirewatch.daemon.notify import Reporters, VerdictFile
    from wirewatch.daemon.release import Handles
    from wirewatch.daemon.service import Reread, Sockets
    from wirewatch.page.content import PageContext
    from wirewatch.probe.remote import RemoteProber
    from wirewatch.statefolder import StateFolder

log = logging.getLogger(__name__)
DEMO = "demo-dgx-h200"
BUFFER = 64 << 10
_M_MMAP_THRESHOLD = -3
"""<malloc.h>"""
Port = tuple[socket.socket, PortGuard]


@click.command(
    epilog=examples(
        "wirewatch serve --listen 0.0.0.0:9410",
        "wirewatch serve --replay demo-dgx-h200 --overlay nvlink-link-down",
    )
)
@config_option
@click.option("--listen", help="HOST:PORT for HTTP, instead of the configured one.")
@click.option(
    "--socket", "place",
    help="Path of the socket for local questions, instead of the configured one; '' for none.",
)  # fmt: skip
@click.option("--web-config", help="File with TLS, users and tokens for HTTP, instead of the configured one.")
@replay_options
@click.option("--loop", is_flag=True, help="Repeat the recording, with counters that go on rising.")
@click.option("--demo", is_flag=True, help="Watch this machine's GPUs, or without any a bundled recording.")
@click.option("--rings", help="With --replay: the folder with rings of this machine's jobs.")
def serve(
    *, config_file: Path | None, listen: str | None, web_config: str | None, replay: str | None,
    overlays: Sequence[str], loop: bool, demo: bool, rings: str | None, place: str | None,
) -> None:  # fmt: skip
    """Run the daemon: metrics, health and state over HTTP."""
    from wirewatch.daemon.notify import Notifier, Reporters

    # A watchdog's SIGABRT leaves the stack of each thread in the log.
    faulthandler.enable()
    # Before any child process could inherit the variables.
    notifier = Notifier.of_environment(os.environ)
    demo = demo and not replay and not driver_is_here()
    if demo:
        replay, loop = DEMO, True
    if (overlays or loop) and not replay:
        raise click.UsageError("--overlay and --loop change a recording: give --replay too")
    if rings and not replay:
        raise click.UsageError("--rings goes with --replay; the folder of this node is [jobs] rings")
    if listen:
        try:
            address(listen, "--listen")
        except ConfigError as error:
            raise click.UsageError(str(error)) from error
    given = ServeOptions(
        config_file, listen, web_config, replay, overlays, loop, rings or "", place, demo=demo
    )
    run_serve(given, Reporters(notifier))


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The command line: files, addresses over those of the configuration, and what to replay and how.

    `rings`: a folder of rings of this machine, beside a replay. `socket`: None for the configured one.
    `demo`: the commands of this user shall find it as they find `wirewatch demo`.
    `lead`: seconds after which the overlays begin; None for when they say.
    """

    config_file: Path | None
    listen: str | None
    web_config: str | None
    replay: str | None
    overlays: Sequence[str]
    loop: bool
    rings: str = ""
    socket: str | None = None
    lead: float | None = None
    demo: bool = False


def run_serve(
    given: ServeOptions, reporters: "Reporters", listening: Callable[[str], None] = lambda _: None
) -> None:
    """Compose the daemon and run it to its end.

    Args:
        given: the command line.
        reporters: what reports it, besides those that the configuration asks for.
        listening: called once with the URL at which it will answer.
    """
    from wirewatch.catalogue import discover
    from wirewatch.cli.composition import composed
    from wirewatch.config import load
    from wirewatch.daemon.service import serve as run_daemon
    from wirewatch.probe.workfolder import remove_left_folders

    _return_large_buffers()
    every = discover()
    config, collectors = load(given.config_file, every)
    with ExitStack() as stack:
        state = _state(config, given.replay, stack)
        web = guard(config.listen, given.listen, given.web_config, stack)
        place = _socket_path(config, given, stack)
        sockets = _sockets(web, place, config.metrics.tier, stack)
        remove_left_folders()
        hardware, nvml = _hardware(config, given, state)
        stack.callback(nvml.stop)
        prober = _remote_prober(config, hardware)
        parts = composed(config, hardware, state, every, prober, stack)
        made = parts.components(config, collectors)
        handles = _handles(hardware, nvml, prober)
        stack.callback(handles.end, "the daemon ends")
        announce(hardware, *web)
        listening(base_url(*web))
        daemon = run_daemon(
            made, hardware, expectations(config), sockets, handles, parts.topologies, parts.remembered,
            _place(config, hardware), _reporters(reporters, config, hardware, place),
            ConfigurationFile(given.config_file, config, parts.components).read_again,
        )  # fmt: skip
        asyncio.run(daemon)


def _return_large_buffers() -> None:
    """Have glibc give each buffer of BUFFER bytes or more back to the system when it is freed.

    By itself it keeps the size of the largest that was ever freed, so that a crowd of connections with TLS
    or with unread answers would leave its peak behind for good.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, BUFFER)


class ConfigurationFile:
    """The file that is read again while the daemon runs; for one thread at a time.

    Args:
        running: what holds since the start.
        components: makes the components of a configuration and of its enabled collectors.
    """

    def __init__(
        self, path: Path | None, running: Config,
        components: Callable[[Config, Sequence[AnyCollector]], Sequence[AnyCollector]],
    ) -> None:  # fmt: skip
        self._path, self._running, self._components = path, running, components

    def read_again(self) -> "Reread":
        """What holds from now on.

        Raises:
            Unusable: there is no file, or it cannot be used; what held before holds.
        """
        from wirewatch.catalogue import discover
        from wirewatch.config import load
        from wirewatch.daemon.service import Reread

        if self._path is None:
            raise ConfigError("there is no configuration file to read again")
        new, collectors = load(self._path, discover())
        config, restart = reloaded(self._running, new)
        made = self._components(config, collectors)
        self._running = config
        return Reread(made, expectations(config), config.policy.verdict, restart)


def guard(listen: Listen, instead: str | None, web_config: str | None, stack: ExitStack) -> Port:
    """The listening port and what guards it; `instead` and `web_config` override the configuration.

    Raises:
        ListenError: the address cannot be listened on.
        WebConfigError: the web configuration cannot be used.
    """
    # Before the port opens, so that no first request finds it unguarded.
    counts, file = WebCounts(), listen.web_config if web_config is None else web_config
    web = _configured(Path(file), counts) if file else PortGuard(counts)
    port = stack.enter_context(tcp(*address(instead or listen.address)))
    hosts = Hosts.of(listen.hosts, port.getsockname()[0])
    return port, PortGuard(counts, hosts, web.current, web.passwords)


def announce(hardware: Hardware, port: socket.socket, web: PortGuard) -> None:
    """Log where the daemon answers, and warn when more people may read it than may be intended."""
    base, settings = base_url(port, web), web.settings()
    log.info("%s: reading %s", hardware.source, hardware.about)
    for path in ("/", "/metrics", "/health", "/api/v1/state"):
        log.info("%s%s", base, path)
    if web.hosts.loopback:
        return
    if web.current is None:
        log.warning(
            "%s: anyone who reaches it may read it: there is no web configuration (docs/security.md)",
            base,
        )
    elif settings.asks and not settings.tls:
        log.warning(
            "%s: passwords and tokens are sent unencrypted, as the web configuration has no TLS", base
        )


def base_url(port: socket.socket, web: PortGuard) -> str:
    """Where the port answers, without a path."""
    host, number = port.getsockname()[:2]
    scheme = "https" if web.settings().tls else "http"
    return f"{scheme}://[{host}]:{number}" if ":" in host else f"{scheme}://{host}:{number}"


def condition_writer(config: Config, hardware: Hardware) -> ConditionWriter | None:
    """What writes the node condition; None when it is switched off.

    Raises:
        PlaceError: the node or the API server is not known.
    """
    options = config.kubernetes
    if not options.node_condition:
        return None
    where = endpoint(options.api_server, options.credentials, options.node, os.environ)
    holds = Holds(
        options.condition_failed_after, options.condition_unknown_after, options.condition_recovered_after
    )
    recording = "" if hardware.source == "live" else hardware.about
    if recording:
        log.warning("node %s gets its condition from a recording, as configured", where.node)
    log.info("condition %s of node %s goes to %s:%d", TYPE, where.node, where.host, where.port)
    how = ConditionOptions(holds, options.condition_heartbeat, recording=recording)
    return ConditionWriter(where, how, hardware.clock)


def verdict_file(socket: str, hardware: Hardware) -> "VerdictFile | None":
    """What keeps the verdict beside the socket; None where there is no socket, or no /proc of Linux."""
    from wirewatch.cli.check.daemon import file_verdict
    from wirewatch.daemon.notify import VerdictFile, verdict_path

    path = verdict_path(socket)
    if path is None:
        return None
    try:
        return VerdictFile(path, lambda health: file_verdict(health, hardware.source, socket), hardware.clock)
    except OSError as error:
        log.warning("%s is not kept: %s", path, error)
        return None


def _state(config: Config, replay: str | None, stack: ExitStack) -> "StateFolder | None":
    """The state folder, locked; a recording uses one only when it is configured, not that of the node.

    None where it cannot be used: a node is watched without memory rather than not at all.

    Raises:
        StateInUse: another agent uses it.
    """
    from wirewatch.statefolder import StateError, StateInUse, lock_agent, state_directory, state_owner

    if replay and not config.state.directory:
        return None
    try:
        state, unwritable = _opened(state_directory(config.state.directory))
        stack.enter_context(lock_agent(state))
    except StateInUse:
        raise
    except StateError as error:
        log.warning("%s: nothing is remembered over a restart", error)
        return None
    if unwritable:
        log.warning("%s: what it holds is read, and written once that is possible", unwritable)
    owner = None if os.geteuid() else state_owner(state.directory)
    if owner is not None:
        log.info("root works in %s with the rights of its owner, uid %d", state.directory, owner[0])
    return state


def _opened(directory: Path) -> "tuple[StateFolder, str]":
    """The state folder, and why it cannot be written now, in words; empty where it can.

    Raises:
        StateError: it is not there, or cannot be made.
    """
    from wirewatch.statefolder import ReadOnlyState, StateFolder, open_state

    try:
        return open_state(directory), ""
    except ReadOnlyState as error:
        return StateFolder(directory), str(error)


def _hardware(
    config: Config, given: ServeOptions, state: "StateFolder | None"
) -> tuple[Hardware, NvmlClient]:
    from wirewatch.cli.hardware import live, replayed

    if given.replay:
        return replayed(given.replay, given.overlays, loop=given.loop, rings=given.rings, lead=given.lead)
    return live(config, state=state)


def _reporters(reporters: "Reporters", config: Config, hardware: Hardware, place: str) -> "Reporters":
    """With those that the configuration asks for."""
    writer, file = condition_writer(config, hardware), verdict_file(place, hardware)
    return replace(reporters, condition_writer=writer, verdict_file=file)


def _place(config: Config, hardware: Hardware) -> "PageContext":
    """What the status page says of this node; for a recording it names no node."""
    from wirewatch.page.content import PageContext
    from wirewatch.page.html import OWN

    name = config.slurm.node or socket.gethostname() if hardware.source == "live" else ""
    return PageContext(name, hardware.about, config.page.runbook or OWN)


def _socket_path(config: Config, given: ServeOptions, stack: ExitStack) -> str:
    """The path of the socket; a recording has none by default, since no job may start by a demo's verdict."""
    from wirewatch.server.sockets import default_path

    if given.socket is not None:
        return given.socket
    if config.listen.socket is not None:
        return config.listen.socket
    if given.demo:
        return _demo_socket(stack)
    return "" if given.replay else default_path()


def _demo_socket(stack: ExitStack) -> str:
    """Where the commands of this user find a demo; "" where another one listens, or no folder can be made."""
    from wirewatch.cli.demo import demo_folder

    try:
        return stack.enter_context(demo_folder())
    except ListenError as error:
        log.info("commands without --socket do not find this one: %s", error)
        return ""


def _sockets(port: "Port", path: str, tier: Tier, stack: ExitStack) -> "Sockets":
    from wirewatch.daemon.service import Sockets
    from wirewatch.server.sockets import control, local

    if not path:
        return Sockets(*port, tier=tier)
    return Sockets(*port, stack.enter_context(local(path)), stack.enter_context(control(path)), tier)


def _remote_prober(config: Config, hardware: Hardware) -> "RemoteProber | None":
    """The prober in another container; None without one, or when probing is switched off."""
    from wirewatch.cli.hardware import remote_prober

    return remote_prober(config, hardware) if config.probe.enabled else None


def _handles(hardware: Hardware, nvml: NvmlClient, prober: "RemoteProber | None") -> "Handles":
    """What may hold a GPU; the probe of a recording holds none."""
    from wirewatch.daemon.release import Handles
    from wirewatch.probe.runner import ProbeRunner

    return Handles(nvml, hardware.probe if isinstance(hardware.probe, ProbeRunner) else None, prober)


def _configured(file: Path, counts: WebCounts) -> PortGuard:
    from wirewatch.server.passwords import Passwords
    from wirewatch.server.reload import CurrentSettings

    return PortGuard(counts, current=CurrentSettings(file, counts), passwords=Passwords())
