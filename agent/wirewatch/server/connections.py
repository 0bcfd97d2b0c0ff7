"""The HTTP server and its connections: how many there may be, their TLS handshake, how long each may take."""

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from wirewatch.server.guard import CERTIFICATE, TLS, PortGuard
from wirewatch.server.passwords import origin
from wirewatch.server.peer import peer_of
from wirewatch.server.reload import WebCounts
from wirewatch.server.webconfig import Settings

GRACE = 2
"""Seconds that open requests may take once the server has to stop."""
HEAD_BYTES = 16 << 10
"""Bytes of a request's line and headers."""
CLOSE_SECONDS = 2.0
"""Seconds for the end of a TLS connection."""


class Server(uvicorn.Server):
    """uvicorn without its main loop and its signal handling.

    The loop wakes ten times a second to read the clock, which costs more than all polls; the signal handling
    would end the process by the signal once more after a clean stop.
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


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections there may be, in all and from one client, and how long each may take.

    `patience`: seconds from the beginning, and from the end of each answer, to the end of the next answer: it
    covers slow heads, slow bodies and slow readers. `handshake`: seconds for the TLS handshake.
    """

    connections: int = 64
    of_one: int = 16
    patience: float = 30.0
    handshake: float = 10.0


LOCAL = Bounds(connections=128, of_one=64)
"""Of the local socket, where the start of every job may connect."""


@dataclass(slots=True)
class Connections:
    """All connections of one listener; `web` is None for a listener without TLS.

    A client is a user on a unix socket, else an address.
    """

    counts: WebCounts
    web: PortGuard | None = None
    bounds: Bounds = field(default_factory=Bounds)
    _open: Counter[str] = field(default_factory=Counter)

    def admit(self, client: str) -> bool:
        """Count one more connection of this client; False, and counted as refused, at its limit or ours."""
        if self._open.total() >= self.bounds.connections or self._open[client] >= self.bounds.of_one:
            self.counts.refuse("connections", client)
            return False
        self._open[client] += 1
        return True

    def release(self, client: str) -> None:
        """A connection of this client has ended."""
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]

    def options(self) -> dict[str, Any]:
        """Options for uvicorn. It logs errors only: malformed requests are counted here instead."""
        return {"http": self.protocol(), "h11_max_incomplete_event_size": HEAD_BYTES, "log_level": "error"}

    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol class that uvicorn instantiates for each connection to this listener."""
        connections = self

        class CountedHandshake(Handshake):
            def __init__(
                self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any],
                _loop: asyncio.AbstractEventLoop | None = None,
            ) -> None:  # fmt: skip
                super().__init__(connections, _UvicornArguments(config, server_state, app_state))

        return CountedHandshake


@dataclass(frozen=True, slots=True)
class _UvicornArguments:
    """The arguments with which uvicorn makes a protocol."""

    config: uvicorn.Config
    state: ServerState
    app_state: dict[str, Any]


class Handshake(asyncio.Protocol):
    """Counts a connection in, makes its TLS handshake where there is TLS, and hands it to uvicorn's protocol.

    The handshake is made here and not by the listener, so that each uses the certificate that is valid then.
    """

    def __init__(self, connections: Connections, arguments: _UvicornArguments) -> None:
        self._connections = connections
        self._arguments = arguments
        self._client = ""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - streams have no other
        self._client = _client_of(transport)
        if not self._connections.admit(self._client):
            transport.abort()
            return
        settings = self._connections.web.settings() if self._connections.web else None
        if settings is None or settings.tls is None:
            self._admit(transport, b"", {})
            return
        # Nothing may be read before the handshake reads it.
        transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(
            self._handshake(transport, settings, settings.tls)
        )

    async def _handshake(self, raw: asyncio.Transport, settings: Settings, tls: ssl.SSLContext) -> None:
        early = _EarlyBytes()
        admitted = False
        try:
            transport = await asyncio.get_running_loop().start_tls(
                raw,
                early,
                tls,
                server_side=True,
                ssl_handshake_timeout=self._connections.bounds.handshake,
                ssl_shutdown_timeout=CLOSE_SECONDS,
            )
            # It is None where the client has closed the connection meanwhile.
            if transport is not None and not early.lost:
                admitted = self._admit_named(transport, bytes(early.data), settings)
        except OSError as error:
            self._connections.counts.refuse("tls", self._client, _tls_reason(error))
        finally:
            if not admitted:
                self._connections.release(self._client)

    def _admit_named(self, transport: asyncio.Transport, early: bytes, settings: Settings) -> bool:
        """Hand the connection on, unless its certificate has none of the allowed names; whether it was."""
        certificate = transport.get_extra_info("peercert")
        if certificate and not settings.admits(certificate):
            self._connections.counts.refuse("certificate_name", self._client)
            transport.abort()
            return False
        self._admit(transport, early, {CERTIFICATE: bool(certificate), TLS: settings.tls})
        return True

    def _admit(self, transport: asyncio.Transport, early: bytes, state: dict[str, Any]) -> None:
        inner = _TimedProtocol(self._arguments, self._connections, self._client, state)
        transport.set_protocol(inner)
        inner.connection_made(transport)
        if early:
            inner.data_received(early)


class _EarlyBytes(asyncio.Protocol):
    """Keeps the bytes that arrive with the end of a handshake, until the connection has its HTTP protocol."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost = True


class _TimedProtocol(H11Protocol):
    """uvicorn's protocol, with a deadline for clients that send no request or do not read the answer."""

    def __init__(
        self, arguments: _UvicornArguments, connections: Connections, client: str, state: dict[str, Any]
    ) -> None:
        super().__init__(arguments.config, arguments.state, {**arguments.app_state, **state})
        self._connections = connections
        self._client = client
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._connections.counts.refuse("malformed", self._client)
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._connections.release(self._client)
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self.loop.call_later(self._connections.bounds.patience, self._too_late)

    def _too_late(self) -> None:
        self._connections.counts.refuse("slow", self._client)
        self.transport.abort()


def _tls_reason(error: OSError) -> str:
    """The reason as OpenSSL gives it, without any text of the client."""
    reason = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(reason or error.strerror or type(error).__name__)


def _client_of(transport: asyncio.Transport) -> str:
    """The user of the client of a unix socket, else the address."""
    end = transport.get_extra_info("socket")
    if end.family == socket.AF_UNIX:
        return f"user {peer_of(end).uid}"
    with contextlib.suppress(IndexError, TypeError):
        return origin(transport.get_extra_info("peername")[0])
    return ""
