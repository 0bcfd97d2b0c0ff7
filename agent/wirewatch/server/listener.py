"""The HTTP server: takes connections from one listening socket, counts them, and gives them to uvicorn."""

import asyncio
import os
import socket
from contextlib import suppress
from functools import partial
from math import ceil

from uvicorn import Config, Server

from wirewatch.server.connections import HEAD_BYTES, Connections, Phase, Place
from wirewatch.server.guard import Application, Headers, PortGuard
from wirewatch.server.http1 import Connection, shim
from wirewatch.server.passwords import origin
from wirewatch.server.peer import Peer, peer_of
from wirewatch.server.webconfig import Settings

GRACE = 2
"""Seconds that open requests may take once the server has to stop."""
SEND_BYTES = 64 << 10
"""Of an answer that the kernel takes before the client reads it; Linux doubles it. A gzipped scrape fits."""
PAUSE = 0.1
"""Seconds until the next connection is tried where the system has no room for one."""


class HttpServer:
    """Serves an ASGI application on a listening socket, which it closes at the end.

    Args:
        application: the application.
        listening: the socket.
        connections: the list of its connections.
        web: the settings for TLS; None for none.
        headers: of every answer.
    """

    def __init__(
        self, application: Application, listening: socket.socket, connections: Connections,
        web: PortGuard | None = None, headers: Headers = (),
    ) -> None:  # fmt: skip
        self._listening, self._connections, self._web = listening, connections, web
        self._stopping = asyncio.Event()
        self._opening: set[asyncio.Task[None]] = set()
        config = Config(
            shim(application, headers), http="h11", ws="none", lifespan="off", interface="asgi3", workers=1,
            log_config=None, log_level="error", access_log=False, proxy_headers=False, server_header=False,
            date_header=False, timeout_keep_alive=ceil(connections.bounds.idle),
            timeout_graceful_shutdown=GRACE, h11_max_incomplete_event_size=HEAD_BYTES,
        )  # fmt: skip
        config.load()
        self._server = Server(config)
        self._server.servers, self._server.lifespan = [], config.lifespan_class(config)

    def stop(self) -> None:
        """Let `run` return, soon."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`; open requests then have GRACE, connections without one end at once."""
        self._listening.settimeout(0.0)
        self._listen()
        try:
            await self._stopping.wait()
        finally:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
        places = [*self._connections.open]
        for place in places:
            if place.phase is Phase.WAITING:
                place.end()
        if any(place.phase is not Phase.WAITING for place in places):
            await self._server.shutdown()
        for place in [*self._connections.open]:
            place.end()
        if self._opening:
            await asyncio.wait(self._opening, timeout=PAUSE)

    def _listen(self) -> None:
        if not self._stopping.is_set():
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        """Take one connection and count it in, or close it; those that wait let others run in between."""
        loop = asyncio.get_running_loop()
        try:
            accepted, _ = self._listening.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # One that was gone before it was taken, or no descriptor or memory is left.
            self._connections.counts.refuse("connections", "", error.strerror or "")
            loop.remove_reader(self._listening)
            loop.call_later(PAUSE, self._listen)
            return
        accepted.settimeout(0.0)
        try:
            place, peer = _client(accepted)
            # Else the kernel takes megabytes of answers for a client that reads none of them.
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        except OSError:
            accepted.close()
            return
        if not self._connections.admit(place):
            accepted.close()
            return
        opening = loop.create_task(self._open(accepted, place, peer))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, place: Place, peer: Peer | None) -> None:
        """Make the connection, after the handshake of TLS with the certificate that is valid now."""
        settings, bounds = self._web.settings() if self._web else Settings(), self._connections.bounds
        connection = Connection(self._server, self._connections, place, settings, peer)
        times = {"ssl_handshake_timeout": bounds.handshake, "ssl_shutdown_timeout": bounds.patience}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=settings.tls, **(times if settings.tls else {})
            )
        except OSError as error:
            error.__traceback__ = None  # Its frames would keep the connection until a full collection.
            if place in self._connections.open:
                del self._connections.open[place]
                if settings.tls:
                    self._connections.counts.refuse("tls", place.client, _tls_reason(error))


def _client(accepted: socket.socket) -> tuple[Place, Peer | None]:
    """A place for the client of a connection: for its user at a unix socket, else for its address.

    Raises:
        OSError: it has gone.
    """
    # Until there is a transport: the handshake sees that and closes it.
    end = partial(_hang_up, accepted)
    if accepted.family == socket.AF_UNIX:
        peer = peer_of(accepted)
        return Place(f"user {peer.uid}", peer.uid in {0, os.geteuid()}, end), peer
    address = accepted.getpeername()[0]
    return Place(origin(address), address == accepted.getsockname()[0], end), None


def _hang_up(accepted: socket.socket) -> None:
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)


def _tls_reason(error: OSError) -> str:
    """The reason as OpenSSL gives it, without any text of the client."""
    reason = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(reason or error.strerror or type(error).__name__)
