"""The HTTP server: takes connections from one listening socket, makes their TLS handshake, ends them."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from typing import Any

from wirewatch.server.connections import Admission, Client, Connections, Phase
from wirewatch.server.guard import CERTIFICATE, TLS, Application, Headers, PortGuard
from wirewatch.server.http1 import Conversation, Streams
from wirewatch.server.passwords import origin
from wirewatch.server.peer import peer_of
from wirewatch.server.webconfig import Settings

GRACE = 2.0
"""Seconds that open requests may take once the server has to stop."""
CLOSE_SECONDS = 2.0
"""Seconds for the end of a connection, which with TLS waits for the client."""
SEND_BYTES = 64 << 10
"""Of an answer that the kernel takes before the client reads it; Linux doubles it. A gzipped scrape fits."""
PAUSE = 0.1
"""Seconds until the next connection is tried where the system has no room for one."""
PEER = "peer"
"""Key in the state of the scope: the `Peer` at a unix socket, None at a port."""
log = logging.getLogger(__name__)


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
        self._application, self._listening, self._connections = application, listening, connections
        self._web, self._headers = web, headers
        self._stopping = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], Admission] = {}

    def stop(self) -> None:
        """Let `run` return, soon."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`; open requests then have GRACE, connections without one end at once."""
        self._listening.settimeout(0.0)
        accepting = asyncio.create_task(self._accept())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({accepting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            accepting.cancel()
            stopping.cancel()
            await asyncio.wait({accepting, stopping})
            self._listening.close()
        await self._end_all()
        if not accepting.cancelled() and (error := accepting.exception()):
            raise error

    async def _end_all(self) -> None:
        for task, place in self._tasks.items():
            if place.phase is Phase.WAITING:
                task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=GRACE)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=PAUSE)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except OSError as error:
                # One that was gone before it was taken, or no descriptor or memory is left.
                self._connections.counts.refuse("connections", "", error.strerror or "")
                await asyncio.sleep(PAUSE)
                continue
            self._take(connection)
            # A connection that is there at once does not let others run.
            await asyncio.sleep(0)

    def _take(self, connection: socket.socket) -> None:
        """Count a connection in and begin to serve it, or close it."""
        try:
            client = client_of(connection)
        except OSError:
            connection.close()
            return
        # Else the kernel takes megabytes of answers for a client that reads none of them.
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        accepted = _Accepted(connection)
        place = self._connections.admit(client, accepted.end)
        if place is None:
            connection.close()
            return
        task = accepted.task = asyncio.create_task(self._serve(accepted, place))
        self._tasks[task] = place
        task.add_done_callback(lambda task: self._ended(task, accepted, place))

    def _ended(self, task: "asyncio.Task[None]", accepted: "_Accepted", place: Admission) -> None:
        del self._tasks[task]
        self._connections.release(place)
        accepted.close()
        # How it ended keeps its frames, and those would keep the task: its answer would stay for long.
        accepted.task = None
        if not task.cancelled() and (error := task.exception()):
            log.error("a connection of %s ended", place.client.name, exc_info=error)

    async def _serve(self, accepted: "_Accepted", place: Admission) -> None:
        settings = self._web.settings() if self._web else Settings()
        try:
            reader, writer = await accepted.streams(settings.tls, self._connections.bounds.handshake)
        except OSError as error:
            if settings.tls:
                self._connections.counts.refuse("tls", place.client.name, _tls_reason(error))
            return
        certificate = writer.get_extra_info("peercert")
        if certificate and not settings.admits(certificate):
            self._connections.counts.refuse("certificate_name", place.client.name)
            return
        state = {CERTIFICATE: bool(certificate), TLS: settings.tls, PEER: place.client.peer}
        address = writer.get_extra_info("peername")[:2] if place.client.peer is None else None
        link = Streams(reader, writer, place, "https" if settings.tls else "http", address, state)
        await Conversation(self._application, link, self._connections, self._headers).run()
        writer.close()
        with contextlib.suppress(OSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await writer.wait_closed()


class _Accepted:
    """A connection that was taken from the listening socket; asyncio closes it once it has a transport."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._given = False
        self.task: asyncio.Task[None] | None = None

    def end(self) -> None:
        """End its task, and with it the connection."""
        if self.task is not None:
            self.task.cancel()

    async def streams(
        self, tls: ssl.SSLContext | None, patience: float
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Its streams, after the handshake of TLS.

        Raises:
            OSError: the handshake failed, or took longer than `patience` seconds.
        """
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        times: dict[str, Any] = (
            {"ssl_handshake_timeout": patience, "ssl_shutdown_timeout": CLOSE_SECONDS} if tls else {}
        )
        self._given = True
        self._transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, self._connection, ssl=tls, **times
        )
        return reader, asyncio.StreamWriter(self._transport, protocol, reader, loop)

    def close(self) -> None:
        """Close it at once, whatever it waits for."""
        if self._transport is not None:
            self._transport.abort()
        elif not self._given:
            self._connection.close()
        else:
            # In the middle of a handshake, whose own transport sees that and closes it.
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


def client_of(connection: socket.socket) -> Client:
    """The client of a connection: its user at a unix socket, else its address.

    Raises:
        OSError: it has gone.
    """
    if connection.family == socket.AF_UNIX:
        peer = peer_of(connection)
        return Client(f"user {peer.uid}", peer.uid in {0, os.geteuid()}, peer)
    address = connection.getpeername()[0]
    return Client(origin(address), address == connection.getsockname()[0])


def _tls_reason(error: OSError) -> str:
    """The reason as OpenSSL gives it, without any text of the client."""
    reason = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(reason or error.strerror or type(error).__name__)
