"""The daemon itself: schedule and HTTP in one loop, until it is told to stop."""

import asyncio
import contextlib
import gc
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
    """uvicorn, without what costs an idle daemon or fights with it.

    Its own main loop wakes ten times a second to look at the clock, which costs more than all our polls; and
    its signal handling would end the process by the signal once more after a clean stop.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stop.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._stop.wait()


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
        ws="none", date_header=False, server_header=False, timeout_graceful_shutdown=GRACE,
    )  # fmt: skip
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop(name: str) -> None:
        log.info("%s: stopping", name)
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    # All that was imported stays: the garbage collector need not walk it again at every full collection.
    gc.collect()
    gc.freeze()
    polling = asyncio.create_task(schedule.run())
    await server.serve(sockets=list(sockets))
    polling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await polling
