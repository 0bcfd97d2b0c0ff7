"""The daemon itself: schedule and HTTP in one loop, until it is told to stop."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator, Sequence

import uvicorn

from wirewatch.core.collector import AnyCollector
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Expect
from wirewatch.daemon.schedule import Board, Schedule
from wirewatch.export.http import Status, application

log = logging.getLogger(__name__)

GRACE = 2
"""Seconds that open requests may take once we are told to stop."""


class _Server(uvicorn.Server):
    """Signals are the daemon's business: uvicorn's own handling would end the process by the signal again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    collectors: Sequence[AnyCollector], hardware: Hardware, expect: Expect, sockets: Sequence[socket.socket]
) -> None:
    """Run until SIGTERM or SIGINT; returns within a few seconds of either, whatever hangs."""
    asyncio.run(_serve(collectors, hardware, expect, sockets))


async def _serve(
    collectors: Sequence[AnyCollector], hardware: Hardware, expect: Expect, sockets: Sequence[socket.socket]
) -> None:
    board = Board(collectors)
    schedule = Schedule(collectors, hardware, expect, board)
    status = Status(
        lambda: board.state, schedule.turning, board.first_polls_done, hardware.clock.now, hardware.source
    )
    config = uvicorn.Config(
        application(status), log_config=None, access_log=False, lifespan="off", loop="asyncio", http="h11",
        ws="none", server_header=False, timeout_graceful_shutdown=GRACE,
    )  # fmt: skip
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop(name: str) -> None:
        log.info("%s: stopping", name)
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    polling = asyncio.create_task(schedule.run())
    await server.serve(sockets=list(sockets))
    polling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await polling
