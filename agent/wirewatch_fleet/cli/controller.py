"""`wirewatch fleet controller`: takes FAILED nodes of a Kubernetes cluster out of use, with a brake."""

import asyncio
import logging
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import config_option
from wirewatch.cli.output import log_as_daemon
from wirewatch.core.extras import install
from wirewatch.core.types import Unusable

if TYPE_CHECKING:
    from wirewatch.cli.guarded import Port
    from wirewatch.config import Config
    from wirewatch_fleet.controller.loop import Controller, Identity

log = logging.getLogger(__name__)
ACTS = ("taint", "cordon", "nvsentinel", "undo")
_NO_RELOAD = "the controller reads its configuration at its start alone"


@click.command(epilog=examples("wirewatch fleet controller --config controller.toml"))
@config_option
@click.option("--listen", help="HOST:PORT for metrics and probes, instead of the configured one.")
@click.option("--act", type=click.Choice(ACTS), help="What takes a node out; `undo` takes all of it back.")
@click.option("--dry-run/--no-dry-run", default=None, help="Only say what would be done; the default.")
def controller(
    *, config_file: Path | None, listen: str | None, act: str | None, dry_run: bool | None
) -> None:
    """Take nodes out of use whose wires are FAILED, within a budget, and give them back.

    Runs once in a cluster, as a Deployment; of several, the one that holds the lease works. It follows the
    condition InterconnectHealthy that the agents write, and undoes only what it did itself. Without
    --no-dry-run, or `dry_run = false` in [controller], it changes no node. docs/controller.md tells the rest.

    Exit codes: 0 stopped; 64 wrong usage; 70 internal error; 78 wrong configuration.
    """
    from wirewatch.catalogue import discover
    from wirewatch.cli.guarded import guard
    from wirewatch.config import Listen, load

    log_as_daemon()
    config, _ = load(config_file, discover())
    given = {"listen": listen, "act": act, "dry_run": dry_run}
    changed = {name: value for name, value in given.items() if value is not None}
    config = config.model_copy(update={"controller": config.controller.model_copy(update=changed)})
    composed = _composed(config)
    with ExitStack() as stack:
        listening = Listen(
            address=config.controller.listen, web_config=config.listen.web_config, hosts=config.listen.hosts
        )
        asyncio.run(_serve(composed, guard(listening, None, None, stack)))


def _composed(config: "Config") -> "Controller":
    """Return the controller of a configuration.

    Raises:
        Unusable: the API server or the namespace is not known, or a library is not installed.
    """
    try:
        from wirewatch_fleet.controller.cluster import connected
        from wirewatch_fleet.controller.loop import Controller
    except ModuleNotFoundError as error:
        raise Unusable(f"{error.name} is not installed: {install('controller')}") from error
    from wirewatch.hw.host import SystemClock
    from wirewatch.kubernetes.apiserver import api_server

    ours, api = config.controller, config.kubernetes
    where = api_server(api.api_server, api.credentials, os.environ, "controller")
    log.info(
        "%s; taken out within an hour: %s of the cluster, %s of a pool, %s of a rack; out of use in all: %s",
        "dry run: no node is changed" if ours.dry_run else f"nodes are changed: {ours.act}",
        ours.budget.cluster, ours.budget.pool, ours.budget.rack, ours.budget.stock,
    )  # fmt: skip
    if ours.dedicated_taints:
        log.warning(
            "controller.dedicated_taints is not read any more: only outage_taints are outages; remove it"
        )
    return Controller(lambda: connected(where), _identity(ours.namespace, where.folder), ours, SystemClock())


def _identity(namespace: str, folder: Path) -> "Identity":
    from wirewatch_fleet.controller.loop import Identity

    try:
        here = namespace or (folder / "namespace").read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise Unusable(f"controller.namespace: not given, and {folder / 'namespace'}: {told}") from error
    return Identity(os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}", here)


async def _serve(ours: "Controller", port: "Port") -> None:
    """Run until a signal, or until the controller ends."""
    from wirewatch.server.api import ControllerView, controller_application
    from wirewatch.server.connections import Bounds, Connections, within_descriptors
    from wirewatch.server.guard import guarded
    from wirewatch.server.listener import HttpServer
    from wirewatch.signals import SIGNALS
    from wirewatch_fleet.controller.report import samples

    listening, web = port
    view = ControllerView(lambda: samples(ours.report), ours.turning, lambda: ours.asked)
    connections = Connections(web.counts, within_descriptors(Bounds()))
    server = HttpServer(guarded(controller_application(view), web), listening, connections, web)
    loop = asyncio.get_running_loop()
    log.info("metrics at %s:%s", *listening.getsockname()[:2])

    def stop(name: str) -> None:
        log.info("%s: stopping", name)
        server.stop()

    soon = loop.call_soon_threadsafe
    with SIGNALS.taken(lambda name: soon(stop, name), lambda: soon(log.warning, _NO_RELOAD)):
        working = asyncio.create_task(ours.run())
        working.add_done_callback(lambda _: server.stop())
        await server.run()
        working.cancel()
        await asyncio.wait({working})
    if not working.cancelled():
        working.result()
