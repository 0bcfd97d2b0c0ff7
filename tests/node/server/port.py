"""A listener with bounds, over an application that answers everything, and its clients."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress

from tests.patience import HANGS
from wirewatch.server.connections import Bounds, Connections
from wirewatch.server.guard import Application, PortGuard, Receive, Scope, Send, guarded
from wirewatch.server.listener import HttpServer
from wirewatch.server.reload import WebCounts
from wirewatch.server.sockets import tcp

BIG = b"x" * (8 << 20)
"""More than the kernel keeps for a reader that does not read."""
PATIENT = HANGS
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def app(scope: Scope, _receive: Receive, send: Send) -> None:
    body = BIG if scope["path"] == "/big" else b"here"
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Port:
    """A listener with bounds; clients are opened with it and closed with it."""

    def __init__(
        self,
        listening: socket.socket,
        bounds: Bounds,
        web: PortGuard | None = None,
        tls: ssl.SSLContext | None = None,
        application: Application | None = None,
    ) -> None:
        self._application = application or app
        self.web = web or PortGuard(WebCounts())
        self._listening = listening
        self._bounds = bounds
        self.tls = tls
        self._clients: list[asyncio.StreamWriter] = []

    def refused(self, reason: str) -> int:
        return self.web.counts.report.refused[reason]

    async def until_refused(self, reasons: str | tuple[str, ...], times: int = 1) -> None:
        """Wait until `times` clients were refused for `reasons` in all: a slow machine shifts shares."""
        counted = (reasons,) if isinstance(reasons, str) else reasons
        while sum(map(self.refused, counted)) < times:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0.05)

    def connect(self, source: str = "127.0.0.1", *, wait: bool = True) -> socket.socket:
        """A client that does nothing by itself; `wait`: until it is connected."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.bind((source, 0))
        client.setblocking(wait)
        with suppress(BlockingIOError):
            client.connect(self._listening.getsockname())
        return client

    async def open(self, source: str = "127.0.0.1") -> Streams:
        if self._listening.family == socket.AF_UNIX:
            streams = await asyncio.open_unix_connection(self._listening.getsockname())
        else:
            host, port = self._listening.getsockname()
            name = "localhost" if self.tls else None
            streams = await asyncio.open_connection(
                host, port, local_addr=(source, 0), ssl=self.tls, server_hostname=name
            )
        self._clients.append(streams[1])
        return streams

    def run(self, scenario: Callable[["Port"], Awaitable[None]]) -> None:
        async def running() -> None:
            connections = Connections(self.web.counts, self._bounds)
            server = HttpServer(guarded(self._application, self.web), self._listening, connections, self.web)
            serving = asyncio.create_task(server.run())
            try:
                await asyncio.wait_for(scenario(self), PATIENT)
            finally:
                for writer in self._clients:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
                server.stop()
                await serving

        with closing(self._listening):
            asyncio.run(running())


def port(bounds: Bounds, application: Application | None = None) -> Port:
    return Port(tcp("127.0.0.1", 0), bounds, application=application)


async def ask(streams: Streams, path: str = "/") -> bytes:
    reader, writer = streams
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    await reader.readexactly(length)
    return head.split()[1]


async def ended(streams: Streams) -> bytes:
    """What comes until the other side ends it, whichever way."""
    got = b""
    with suppress(ConnectionError):
        while data := await streams[0].read(1 << 16):
            got += data
    return got
