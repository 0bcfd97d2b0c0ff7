"""The prober as a process: a desk behind a socket, until it is told to stop."""

import asyncio
import gc
import logging
import os
import signal
import socket
from typing import Any

from wirewatch import __version__
from wirewatch.core.ports import Hardware
from wirewatch.daemon.desk import Desk
from wirewatch.daemon.guarded import MOST, Guarded
from wirewatch.daemon.lane import Lane
from wirewatch.daemon.release import Handles, Release
from wirewatch.daemon.server import Server, server
from wirewatch.hw.peers import Peer
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.remote import VERSION
from wirewatch.server.control import Probing, prober_application

log = logging.getLogger(__name__)

ENDING = "the prober ends"
LAST = 2.0
"""Seconds that closing handles may take once we are told to stop."""


def serve_prober(
    hardware: Hardware, options: ProbeOptions, handles: Handles, listening: socket.socket
) -> None:
    """Run until SIGTERM or SIGINT; returns within a few seconds of either, whatever hangs."""
    asyncio.run(_serve(hardware, options, handles, listening))


async def _serve(
    hardware: Hardware, options: ProbeOptions, handles: Handles, listening: socket.socket
) -> None:
    desk = Desk(hardware, options, handles.rest)
    release = Release(handles, hardware.clock)
    group = os.stat(listening.getsockname()).st_gid  # noqa: PTH116 - a socket's name, no path to walk

    def may(peer: Peer) -> bool:
        return peer.uid in {0, os.geteuid()} or peer.belongs(group)

    app = prober_application(Probing(desk.look, desk.attempt, desk.terms, release.begin, release.end, may))
    serving = server(
        app, http=Guarded, limit_concurrency=MOST, headers=[("connection", "close"), (VERSION, __version__)]
    )
    await _until_told(serving, handles, listening)


async def _until_told(serving: Server, handles: Handles, listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Future[Any]] = []

    def stop(name: str) -> None:
        log.info("%s: stopping", name)
        # At once, so that a probe that runs is over when its asker is answered.
        closing.append(Lane("end").submit(lambda: handles.close(ENDING, 0.0)))
        serving.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    # All that was imported stays: the garbage collector need not walk it again at every full collection.
    gc.collect()
    gc.freeze()
    await serving.serve(sockets=[listening])
    if closing:
        await asyncio.wait(closing, timeout=LAST)
