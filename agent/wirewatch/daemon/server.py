"""uvicorn as our processes need it, on sockets that they made themselves."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

GRACE = 2
"""Seconds that open requests may take once we are told to stop."""


class Server(uvicorn.Server):
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


def server(app: Callable[..., Any], **options: Any) -> Server:
    """A server of an application; `options` are uvicorn's, over our own."""
    given: dict[str, Any] = {
        "log_config": None, "access_log": False, "lifespan": "off", "loop": "asyncio", "http": "h11",
        "ws": "none", "date_header": False, "server_header": False, "timeout_graceful_shutdown": GRACE,
    }  # fmt: skip
    return Server(uvicorn.Config(app, **{**given, **options}))
