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
from functools import partial
from pathlib import Path

import click

from wirewatch.catalogue import discover
from wirewatch.cli.check.daemon import driver_is_here, file_verdict, node_name
from wirewatch.cli.demo import DEMO, demo_folder
from wirewatch.cli.groups import examples
from wirewatch.cli.guarded import guard
from wirewatch.cli.hardware import live, remote_prober, replayed
from wirewatch.cli.options import config_option, replay_options
from wirewatch.cli.output import log_as_daemon
from wirewatch.cli.topologies import given_graph
from wirewatch.collectors.agent import with_state
from wirewatch.config import Config, ConfigError, address, expectations, load, reloaded
from wirewatch.core.collector import AnyCollector
from wirewatch.core.ports import Hardware
from wirewatch.daemon.baselines import NOTHING, BaselineStore, foreign, read_baseline
from wirewatch.daemon.machine import KeptMachine, MachineWriter, load_kept, recalled
from wirewatch.daemon.nodecondition import ConditionOptions, ConditionWriter
from wirewatch.daemon.notify import Notifier, Reporters, VerdictFile, verdict_path
from wirewatch.daemon.operator import TopologyOrders
from wirewatch.daemon.pairsresult import PairsResultStore, read_result
from wirewatch.daemon.persistence import lost, read_ledger
from wirewatch.daemon.release import Handles
from wirewatch.daemon.service import LAST_WRITE, Remembered, Reread, Sockets
from wirewatch.daemon.service import serve as run_daemon
from wirewatch.documents.process import PROCESS
from wirewatch.hw.slurm import held_by
from wirewatch.jobs.apart.messages import JobPlaces
from wirewatch.jobs.apart.process import Watcher
from wirewatch.jobs.surroundings import newest_hint, with_surroundings
from wirewatch.kubernetes.apiserver import endpoint
from wirewatch.kubernetes.condition import TYPE, Holds
from wirewatch.page.content import PageContext
from wirewatch.page.html import OWN
from wirewatch.probe.collector import due_after_hint, probe_collector
from wirewatch.probe.history import History, HistoryLimits
from wirewatch.probe.nics import nics_collector
from wirewatch.probe.remote import RemoteProber
from wirewatch.probe.restore import boot_id, persistent, remember
from wirewatch.probe.runner import ProbeRunner
from wirewatch.probe.workfolder import remove_left_folders
from wirewatch.server.guard import PortGuard
from wirewatch.server.sockets import ListenError, control, default_path, local
from wirewatch.statefolder import (
    HeldFolder,
    ReadOnlyState,
    StateError,
    StateFolder,
    StateInUse,
    open_state,
    state_directory,
    state_owner,
)
from wirewatch.verdict.drift.component import DriftContext, drift_component
from wirewatch.verdict.ledger import Ledger
from wirewatch.verdict.pairs import pairs_component

log = logging.getLogger(__name__)
BUFFER = 64 << 10
_M_MMAP_THRESHOLD = -3
"""<malloc.h>"""
Composer = Callable[[Config, Sequence[AnyCollector]], tuple[AnyCollector, ...]]
"""Makes all components of a configuration and of its enabled collectors."""
Switched = Callable[[Config], Sequence[AnyCollector]]
"""Makes the component that a configuration may switch off."""


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
@click.option("--demo", is_flag=True, is_eager=True, hidden=True)
@click.option("--rings", help="With --replay: the folder with rings of this machine's jobs.")
def serve(
    *, config_file: Path | None, listen: str | None, web_config: str | None, replay: str | None,
    overlays: Sequence[str], loop: bool, demo: bool, rings: str | None, place: str | None,
) -> None:  # fmt: skip
    """Run the daemon: metrics, health and state over HTTP.

    `wirewatch demo` runs it on a recorded node, for a first look without GPUs.
    """
    log_as_daemon()
    PROCESS.begun()
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
    """The command line: files, addresses over the configured addresses, and the recording to replay and how.

    `rings`: a folder of rings of this machine, beside a replay. `socket`: None for the configured path.
    `demo`: the commands of this user find it as they find `wirewatch demo`. `lead`: seconds after which the
    overlays begin; None for their own times.
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
    given: ServeOptions, reporters: Reporters, listening: Callable[[str], None] = lambda _: None
) -> None:
    """Compose the daemon and run it to its end.

    `reporters` report it besides the configured reporters; `listening` gets the URL at which it answers.
    """
    _return_large_buffers()
    every = discover()
    config, collectors = load(given.config_file, every)
    with ExitStack() as stack:
        keeping = _state(config, given.replay, stack)
        hardware, nvml = (
            replayed(given.replay, given.overlays, loop=given.loop, rings=given.rings, lead=given.lead)
            if given.replay
            else live(config, state=keeping.state)
        )
        stack.callback(nvml.stop)
        hardware, watcher = _watched(hardware, config, given, every, stack)
        prober = remote_prober(config, hardware) if config.probe.enabled else None
        parts = composed(config, hardware, keeping, every, prober, stack, watcher)
        components, writer = parts.components(config, collectors), condition_writer(config, hardware)
        # After all input is read: a mistake in it is not hidden by an address that is in use.
        web = guard(config.listen, given.listen, given.web_config, stack)
        place = _socket_path(config, given, stack)
        asked, ordered = (stack.enter_context(made(place)) if place else None for made in (local, control))
        sockets = Sockets(*web, asked, ordered, config.metrics.tier)
        remove_left_folders()
        # The probe of a recording holds no GPU.
        handles = Handles(nvml, hardware.probe if isinstance(hardware.probe, ProbeRunner) else None, prober)
        stack.callback(handles.end, "the daemon ends")
        announce(hardware, *web)
        listening(base_url(*web))
        daemon = run_daemon(
            components, hardware, expectations(config), sockets, handles, parts.topologies, parts.remembered,
            _place(config, hardware),
            replace(reporters, condition_writer=writer, verdict_file=verdict_file(place, hardware)),
            ConfigurationFile(given.config_file, config, parts.components).read_again,
        )  # fmt: skip
        asyncio.run(daemon)


def _return_large_buffers() -> None:
    """Have glibc give each buffer of BUFFER bytes or more back to the system when it is freed.

    Without this, glibc keeps the size of the largest freed buffer. A crowd of connections with TLS or with
    unread answers would then leave its peak behind for good.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, BUFFER)


class ConfigurationFile:
    """The file that is read again while the daemon runs; for one thread at a time.

    `running` holds since the start; `components` makes the components of a configuration and its collectors.
    """

    def __init__(self, path: Path | None, running: Config, components: Composer) -> None:
        self._path, self._running, self._components = path, running, components

    def read_again(self) -> Reread:
        """Return the new configuration; raises Unusable without a usable file, and then nothing changes."""
        if self._path is None:
            raise ConfigError("there is no configuration file to read again")
        new, collectors = load(self._path, discover())
        config, restart = reloaded(self._running, new)
        made = self._components(config, collectors)
        self._running = config
        return Reread(made, expectations(config), config.policy.verdict, restart)


def announce(hardware: Hardware, port: socket.socket, web: PortGuard) -> None:
    """Log where the daemon answers, and warn when it may have more readers than intended."""
    base, settings = base_url(port, web), web.settings()
    log.info("%s: reading %s", hardware.source, hardware.about)
    for path in ("/", "/metrics", "/health", "/api/v1/state"):
        log.info("%s%s", base, path)
    if web.hosts.loopback:
        return
    if web.current is None:
        log.warning(
            "%s: anyone who reaches it may read it: there is no web configuration (docs/security.md)", base
        )
    elif settings.asks and not settings.tls:
        log.warning(
            "%s: passwords and tokens are sent unencrypted, as the web configuration has no TLS", base
        )


def base_url(port: socket.socket, web: PortGuard) -> str:
    """Return the URL of the port, without a path."""
    host, number = port.getsockname()[:2]
    scheme = "https" if web.settings().tls else "http"
    return f"{scheme}://[{host}]:{number}" if ":" in host else f"{scheme}://{host}:{number}"


def condition_writer(config: Config, hardware: Hardware) -> ConditionWriter | None:
    """Return the writer of the node condition, None if off; PlaceError: node or API server unknown."""
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


def verdict_file(socket: str, hardware: Hardware) -> VerdictFile | None:
    """Return the writer of the verdict beside the socket; None without a socket, or without Linux' /proc."""
    path = verdict_path(socket)
    if path is None:
        return None
    try:
        return VerdictFile(path, lambda health: file_verdict(health, hardware.source, socket), hardware.clock)
    except OSError as error:
        log.warning("%s is not kept: %s", path, error)
        return None


@dataclass(frozen=True, slots=True)
class Keeping:
    """The state folder, None without; the lock of this agent on it; and why there is no folder, in words."""

    state: StateFolder | None = None
    held: HeldFolder | None = None
    wrong: str = ""

    def unwritten(self) -> str:
        """Return why the memory is not written now; empty where it is written, or need not be."""
        return self.held.wrong if self.held else self.wrong


def _state(config: Config, replay: str | None, stack: ExitStack) -> Keeping:
    """Return the state folder, locked; a recording uses only a configured folder, not that of the node.

    An agent whose folder cannot be used watches its node without memory. StateInUse: another agent uses it.
    """
    if replay and not config.state.directory:
        return Keeping()
    unwritable = ""
    try:
        folder = state_directory(config.state.directory)
        try:
            state = open_state(folder)
        except ReadOnlyState as error:
            state, unwritable = StateFolder(folder), str(error)
        held = stack.enter_context(HeldFolder(state))
    except StateInUse:
        raise
    except StateError as error:
        wrong = f"{error}: nothing is remembered over a restart"
        log.warning("%s", wrong)
        return Keeping(wrong=wrong)
    if unwritable:
        held.note("", unwritable)
        log.warning("%s: what it holds is read, and written once that is possible", unwritable)
    owner = None if os.geteuid() else state_owner(state.directory)
    if owner is not None:
        log.info("root works in %s with the rights of its owner, uid %d", state.directory, owner[0])
    return Keeping(state, held)


def _place(config: Config, hardware: Hardware) -> PageContext:
    """Return the context of the status page; for a recording it names no node."""
    named = config.slurm.node or config.kubernetes.node or node_name()
    name = named if hardware.source == "live" else ""
    return PageContext(name, hardware.about, config.page.runbook or OWN)


def _socket_path(config: Config, given: ServeOptions, stack: ExitStack) -> str:
    """Return the socket's path; a recording has none by default, as no job may start by a demo's verdict."""
    if given.socket is not None:
        return given.socket
    if config.listen.socket is not None:
        return config.listen.socket
    if given.demo:
        return _demo_socket(stack)
    return "" if given.replay else default_path()


def _demo_socket(stack: ExitStack) -> str:
    """Return where this user's commands find a demo; "" if another demo listens, or no folder can be made."""
    try:
        return stack.enter_context(demo_folder())
    except ListenError as error:
        log.info("commands without --socket do not find this one: %s", error)
        return ""


@dataclass(frozen=True, slots=True)
class Parts:
    """The receiver of orders, the memory, and the maker of a configuration's components."""

    topologies: TopologyOrders
    remembered: Remembered
    components: Composer


def composed(
    config: Config, hardware: Hardware, keeping: Keeping, every: Sequence[AnyCollector],
    prober: RemoteProber | None, stack: ExitStack, watcher: Watcher | None = None,
) -> Parts:  # fmt: skip
    """Compose the parts of the daemon; `every`: all collectors, also any that a reload may switch on."""
    state = keeping.state
    kept = KeptMachine() if state is None else load_kept(state, every, hardware)
    topologies, again, drifting = _drifting(hardware, state, stack)
    result = () if state is None else (read_result(state.pairs, hardware.clock.now()),)
    pairs = PairsResultStore(None if state is None else state.pairs, hardware.clock, *result)

    def hinted() -> float | None:
        node = topologies.node()
        return None if node is None else newest_hint(node.state)

    probing = _probing(config, hardware, state, prober, hinted)

    def components(config: Config, collectors: Sequence[AnyCollector]) -> tuple[AnyCollector, ...]:
        links, pins = config.expect.nvlink_links, config.probe.pins
        held = partial(held_by, config.slurm.brake)
        known = (with_state(one, keeping.unwritten, held) for one in recalled(collectors, kept))
        own = (with_surroundings(one, topologies.node, links, pins, watcher) for one in known)
        paired = (pairs_component(config.pairs, config.policy.pairs, pairs),) if config.pairs.enabled else ()
        return (*own, *probing(config), *drifting(config), *paired)

    remembered = replace(
        _remembered(config, hardware, state, kept, every), pairs=pairs, folder=keeping.held, baseline=again
    )
    return Parts(topologies, remembered, components)


def _watched(
    hardware: Hardware, config: Config, given: ServeOptions, every: Sequence[AnyCollector], stack: ExitStack
) -> tuple[Hardware, Watcher | None]:
    """Return the ports, and the watcher of this machine's jobs; None where a recording has everything."""
    if given.replay and not given.rings:
        return hardware, None
    jobs = config.jobs
    here = JobPlaces(live=True, rings=jobs.rings, inspector=jobs.inspector, ras=jobs.ras)
    places = JobPlaces(live=False, rings=given.rings) if given.replay else here
    watcher = Watcher(places, [one.lane for one in every if not one.gates])
    stack.callback(watcher.close)
    return replace(hardware, watcher=lambda: watcher.pid), watcher


def _probing(
    config: Config, hardware: Hardware, state: StateFolder | None, prober: RemoteProber | None,
    hinted: Callable[[], float | None],
) -> Switched:  # fmt: skip
    """Return the maker of the probes' components; it makes none when the probe is off."""
    if not config.probe.enabled:
        return lambda _: ()
    history, boot = None if state is None else History.open(state.history, hardware.clock), boot_id(hardware)
    start = None
    if history is not None:
        start = remember(history, hardware.clock, config.policy.probe, boot=boot)

    # No file is made before a NIC has been probed.
    nics = partial(History, state.nics, hardware.clock, HistoryLimits()) if state else None

    def component(config: Config) -> Sequence[AnyCollector]:
        expect, policy = expectations(config), config.policy.probe
        one = probe_collector(config.probe, policy, expect, start, prober)
        kept = one if history is None else persistent(one, history, boot, expect, prober)
        made = (due_after_hint(kept, hinted),)
        if not config.probe.nics.enabled:
            return made
        return (*made, nics_collector(config.probe, policy, expect, prober, nics, boot))

    return component


def _drifting(
    hardware: Hardware, state: StateFolder | None, stack: ExitStack
) -> tuple[TopologyOrders, Callable[[], None], Switched]:
    """Return orders about the topology, the function that writes it again, and the maker of its component."""
    loaded = NOTHING if state is None else read_baseline(state.baseline, hardware.clock.now())
    store = BaselineStore(None if state is None else state.baseline, hardware.clock, loaded)
    stack.callback(store.flush, LAST_WRITE)
    topologies = TopologyOrders(store, hardware.clock)

    def component(config: Config) -> Sequence[AnyCollector]:
        options = config.drift
        if not options.enabled:
            return ()
        given = given_graph(options.baseline) if options.baseline else None
        around = DriftContext(store, given, topologies.troubles, foreign)
        return (drift_component(options, config.policy.drift, around),)

    return topologies, store.submit, component


def _remembered(
    config: Config, hardware: Hardware, state: StateFolder | None, kept: KeptMachine,
    every: Sequence[AnyCollector],
) -> Remembered:  # fmt: skip
    boot, policy = boot_id(hardware), config.policy.verdict
    if state is None:
        return Remembered(policy, Ledger(boot))
    now = hardware.clock.now()
    ledger = read_ledger(state.latches, boot, now, own=True)
    if kept.wrong:
        ledger = lost(ledger, "the machine", kept.wrong, now)
    writer = MachineWriter(state.machine, kept, every, hardware.clock)
    return Remembered(policy, ledger, state.latches, writer)
