"""The first moments of a connection, and what it may take of us: how many, TLS, how long."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from wirewatch.server.guard import CERTIFICATE, TLS, PortGuard
from wirewatch.server.passwords import origin
from wirewatch.server.reload import WebCounts
from wirewatch.server.webconfig import Settings

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


HEAD_BYTES = 16 << 10
"""Bytes of a request's line and headers."""
CLOSE_SECONDS = 2.0
"""Seconds for the end of a TLS connection."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections there may be, in all and from one address, and how long each may take.

    `patience`: seconds until it must have been answered, from its beginning and from the end of each answer.
    Slow heads, slow bodies and slow readers are one to that. `handshake`: seconds for that of TLS.
    """

    connections: int = 64
    of_one: int = 16
    patience: float = 30.0
    handshake: float = 10.0


LOCAL = Bounds(connections=128, of_one=64)
"""Of the local socket, where every job's start may ask."""


@dataclass(slots=True)
class Connections:
    """All connections of one listener; `web` is None for a listener without TLS.

    Who connects over a unix socket is told apart by user, else by address.
    """

    counts: WebCounts
    web: PortGuard | None = None
    bounds: Bounds = field(default_factory=Bounds)
    _inside: Counter[str] = field(default_factory=Counter)

    def enter(self, who: str) -> bool:
        """Count one in, if there is room."""
        if self._inside.total() >= self.bounds.connections or self._inside[who] >= self.bounds.of_one:
            self.counts.refuse("connections", who)
            return False
        self._inside[who] += 1
        return True

    def leave(self, who: str) -> None:
        self._inside[who] -= 1
        if not self._inside[who]:
            del self._inside[who]

    def options(self) -> dict[str, Any]:
        """What uvicorn must know of them; its warnings of requests that are none are counted instead."""
        return {"http": self.protocol(), "h11_max_incomplete_event_size": HEAD_BYTES, "log_level": "error"}

    def protocol(self) -> type[asyncio.Protocol]:
        """What uvicorn makes of each connection to this listener."""
        doors = self

        class OfTheseDoors(Handshake):
            def __init__(
                self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any],
                _loop: asyncio.AbstractEventLoop | None = None,
            ) -> None:  # fmt: skip
                super().__init__(doors, _UvicornArguments(config, server_state, app_state))

        return OfTheseDoors


@dataclass(frozen=True, slots=True)
class _UvicornArguments:
    """What uvicorn gives to a protocol of its own."""

    config: uvicorn.Config
    state: ServerState
    app_state: dict[str, Any]


class Handshake(asyncio.Protocol):
    """Lets a connection in, after a TLS handshake where there is TLS, and hands it to uvicorn's protocol.

    The handshake is ours and not the listener's, so that each takes the certificate that holds then.
    """

    def __init__(self, doors: Connections, made: _UvicornArguments) -> None:
        self._doors = doors
        self._made = made
        self._who = ""
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - streams have no other
        self._who = _client_of(transport)
        if not self._doors.enter(self._who):
            transport.abort()
            return
        settings = self._doors.web.look() if self._doors.web else None
        if settings is None or settings.tls is None:
            self._admit(transport, b"", {})
            return
        # Nothing may be read before the handshake reads it.
        transport.pause_reading()
        self._shaking = asyncio.get_running_loop().create_task(
            self._shake_hands(transport, settings, settings.tls)
        )

    async def _shake_hands(self, raw: asyncio.Transport, settings: Settings, tls: ssl.SSLContext) -> None:
        early = _EarlyBytes()
        admitted = False
        try:
            transport = await asyncio.get_running_loop().start_tls(
                raw,
                early,
                tls,
                server_side=True,
                ssl_handshake_timeout=self._doors.bounds.handshake,
                ssl_shutdown_timeout=CLOSE_SECONDS,
            )
            # It is None where the other end has gone meanwhile.
            if transport is not None and not early.lost:
                admitted = self._admit_named(transport, bytes(early.data), settings)
        except OSError as error:
            self._doors.counts.refuse("tls", self._who, _tls_reason(error))
        finally:
            if not admitted:
                self._doors.leave(self._who)

    def _admit_named(self, transport: asyncio.Transport, early: bytes, settings: Settings) -> bool:
        """Whether the certificate has a name that is allowed, where there are such."""
        certificate = transport.get_extra_info("peercert")
        if certificate and not settings.admits(certificate):
            self._doors.counts.refuse("certificate_name", self._who)
            transport.abort()
            return False
        self._admit(transport, early, {CERTIFICATE: bool(certificate), TLS: settings.tls})
        return True

    def _admit(self, transport: asyncio.Transport, early: bytes, state: dict[str, Any]) -> None:
        inner = _TimedProtocol(self._made, self._doors, self._who, state)
        transport.set_protocol(inner)
        inner.connection_made(transport)
        if early:
            inner.data_received(early)


class _EarlyBytes(asyncio.Protocol):
    """Keeps what arrives with the last bytes of a handshake, until somebody takes the connection over."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost = True


class _TimedProtocol(H11Protocol):
    """uvicorn's protocol, with an end to its patience for who asks nothing or does not read the answer."""

    def __init__(self, made: _UvicornArguments, doors: Connections, who: str, state: dict[str, Any]) -> None:
        super().__init__(made.config, made.state, {**made.app_state, **state})
        self._doors = doors
        self._who = who
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._doors.counts.refuse("malformed", self._who)
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._doors.leave(self._who)
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self.loop.call_later(self._doors.bounds.patience, self._too_late)

    def _too_late(self) -> None:
        self._doors.counts.refuse("slow", self._who)
        self.transport.abort()


_CREDENTIALS = struct.Struct("3i")
REQUEST_BYTES = 256 << 10
"""Of a whole request, head and body; ours take 2 KiB."""
REQUEST_SECONDS = 5.0
"""From the connection to the end of the request."""
PROBER_CONNECTIONS = 16
"""Connections at a time; uvicorn tells others to come back."""


class ProberProtocol(H11Protocol):
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


_SO_PEERGROUPS = 59
"""<asm-generic/socket.h>, Linux 4.13; Python has no name for it."""
_MOST_GROUPS = 1024
"""Bytes of them; all that Python lets ask for."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process as it was when it connected; `pid` as we number processes, 0 for one that we cannot see."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return f"uid {self.uid} (pid {self.pid})"

    def belongs(self, group: int) -> bool:
        """Whether it is in this group."""
        return group in {self.gid, *self.groups}


def peer_of(connection: Any) -> Peer:
    """Who connected; takes a socket, or asyncio's view of one."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(told)
    return Peer(pid, uid, gid, _groups(connection))


def _tls_reason(error: OSError) -> str:
    """What OpenSSL says, in its own words and without what the other end sent."""
    told = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(told or error.strerror or type(error).__name__)


def _client_of(transport: asyncio.Transport) -> str:
    """The user at the other end of a unix socket, else the address."""
    end = transport.get_extra_info("socket")
    if end.family == socket.AF_UNIX:
        told = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return f"user {_CREDENTIALS.unpack(told)[1]}"
    with contextlib.suppress(IndexError, TypeError):
        return origin(transport.get_extra_info("peername")[0])
    return ""


def _groups(connection: Any) -> frozenset[int]:
    """Its groups beside the first; none where the kernel does not tell, or there are more than 256."""
    try:
        told = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS)
    except OSError:
        return frozenset()
    return frozenset(struct.unpack(f"{len(told) // 4}I", told))


def server(app: Callable[..., Any], **options: Any) -> Server:
    """A server of an application; `options` are uvicorn's, over our own."""
    given: dict[str, Any] = {
        "log_config": None, "access_log": False, "lifespan": "off", "loop": "asyncio", "http": "h11",
        "ws": "none", "date_header": False, "server_header": False, "timeout_graceful_shutdown": GRACE,
    }  # fmt: skip
    return Server(uvicorn.Config(app, **{**given, **options}))
