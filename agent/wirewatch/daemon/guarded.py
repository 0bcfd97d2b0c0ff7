"""HTTP for few: short requests that come soon, one a connection, from a process that the kernel names."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from wirewatch.hw.peers import peer_of

REQUEST_BYTES = 256 << 10
"""Of a whole request, head and body; ours take 2 KiB."""
REQUEST_SECONDS = 5.0
"""From the connection to the end of the request."""
MOST = 16
"""Connections at a time; uvicorn tells others to come back."""


class Guarded(H11Protocol):
    """uvicorn's protocol with these bounds; `peer` in the state of a request is the `Peer` who sent it."""

    cycle: RequestResponseCycle | None  # type: ignore[assignment]
    _taken = 0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": peer_of(transport.get_extra_info("socket"))}
        self._late = self.loop.call_later(REQUEST_SECONDS, self._too_late)

    def data_received(self, data: bytes) -> None:
        self._taken += len(data)
        if self._taken > REQUEST_BYTES:
            self.transport.abort()
            return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def _too_late(self) -> None:
        if self.cycle is None or self.cycle.more_body:
            self.transport.abort()
