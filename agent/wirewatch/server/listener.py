"""The HTTP server: accepts, counts and times the connections of one listening socket; uvicorn speaks HTTP."""

import asyncio
import logging
import os
import re
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from math import ceil
from urllib.parse import unquote

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from wirewatch.server.connections import HEAD_BYTES, Admission, Connections, Phase
from wirewatch.server.guard import (
    CERTIFICATE,
    TLS,
    Application,
    Headers,
    Message,
    PortGuard,
    Receive,
    Scope,
    Send,
)
from wirewatch.server.passwords import origin
from wirewatch.server.peer import Peer, peer_of
from wirewatch.server.webconfig import Settings

GRACE = 2
"""Seconds that open requests may take once the server has to stop."""
LINGER = 1.0
"""Seconds in which what a refused client still sends is thrown away, so that it can read the refusal."""
SEND_BYTES = 64 << 10
"""Bytes of an answer that the kernel takes before the client reads it. Linux doubles them. A gzipped scrape
fits."""
PAUSE = 0.1
"""Seconds until the next connection is tried where the system has no room for one."""
CONNECTION, PEER = "wirewatch.connection", "peer"
"""Keys in the state of the scope: for the shim alone; the `Peer` at a unix socket, None at a port."""
_URL = re.compile(r"[^/]*://(?:\[[0-9A-Fa-f:.]*\]|[^/\[\]])*(/.*)?")
_CLOSE = (b"connection", b"close")
_OURS = (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE)
"""Refusals that are not the request's fault."""
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
        """Take a connection and count it in, or close it; waiting connections let others run in between."""
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

    async def _open(self, accepted: socket.socket, place: Admission, peer: Peer | None) -> None:
        """Make the connection, after the handshake of TLS with the certificate that is valid now."""
        settings, bounds = self._web.settings() if self._web else Settings(), self._connections.bounds
        connection = HttpConnection(self._server, self._connections, place, settings, peer)
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


def _client(accepted: socket.socket) -> tuple[Admission, Peer | None]:
    """A place for a client: its user at a unix socket, else its address; OSError where it has gone."""
    # Until there is a transport: the handshake sees that and closes it.
    end = partial(_hang_up, accepted)
    if accepted.family == socket.AF_UNIX:
        peer = peer_of(accepted)
        return Admission(f"user {peer.uid}", peer.uid in {0, os.geteuid()}, end), peer
    address = accepted.getpeername()[0]
    return Admission(origin(address), address == accepted.getsockname()[0], end), None


def _hang_up(accepted: socket.socket) -> None:
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)


def _tls_reason(error: OSError) -> str:
    """The reason as OpenSSL gives it, without any text of the client."""
    reason = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(reason or error.strerror or type(error).__name__)


class HttpConnection(H11Protocol):
    """uvicorn's protocol; each step of the client has a deadline, and errors are answered as our own are."""

    def __init__(
        self, server: Server, places: Connections, place: Admission, settings: Settings, peer: Peer | None
    ) -> None:
        super().__init__(server.config, server.server_state, {})
        self.places, self.place, self.over = places, place, False
        self._settings, self._peer, self._half = settings, peer, False
        self._step: object = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1)
        self.place.end = transport.abort
        certificate = transport.get_extra_info("peercert")
        given = {CERTIFICATE: bool(certificate), TLS: self._settings.tls, PEER: self._peer}
        self.app_state = {**given, CONNECTION: self}
        self._look()
        if certificate and not self._settings.admits(certificate):
            self.places.counts.refuse("certificate_name", self.place.client)
            transport.abort()

    def data_received(self, data: bytes) -> None:
        # After its last request a client may send line ends, which h11 would refuse.
        if not self.over and self.conn.their_state is not h11.MUST_CLOSE:
            super().data_received(data)
            self._look()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer what was asked before the client closed its half, where TLS does not forbid that."""
        asked = self._asked()
        half_a_request = self.cycle.more_body if asked else bool(self.conn.trailing_data[0])
        if half_a_request and not self.over:
            self.refuse(HTTPStatus.BAD_REQUEST)
        elif asked:
            self.cycle.message_event.set()  # The application learns that the client may have left.
            self._half = self.scheme == "http"
        return self._half

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        super().connection_lost(None)  # An error would keep the keep-alive timer, and with it this object.
        self.app_state = {}
        self.places.open.pop(self.place, None)
        self._allow(None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # May begin the next request.
        self._look()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """h11 has refused what the client sent; uvicorn calls this while it handles that error."""
        self.refuse(HTTPStatus(getattr(sys.exception(), "error_status_hint", HTTPStatus.BAD_REQUEST)))

    def refuse(self, status: HTTPStatus) -> None:
        """Answer with an error if nothing has been answered, then let the client read it."""
        if status not in _OURS:
            self.places.counts.refuse("malformed", self.place.client)
        if self._asked():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.abort()
            return
        body = b'{"detail":"%s"}' % status.phrase.encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), _CLOSE]
        head = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
        with_body = self.conn.our_state is h11.IDLE or self.scope["method"] != "HEAD"
        data = (h11.Data(data=body),) if with_body else ()
        self.transport.write(b"".join(filter(None, map(self.conn.send, (head, *data, h11.EndOfMessage())))))
        self._linger()

    def _asked(self) -> bool:
        """Tell whether a request has come that is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _linger(self) -> None:
        """Throw away what still comes for a moment: closing at once could take back what was answered."""
        self.over = True
        self._look()
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            with suppress(OSError):
                self.transport.write_eof()

    def _look(self) -> None:
        """See who is waited for now, and give the client its time for each new step."""
        bounds = self.places.bounds
        phase, seconds = Phase.WAITING, None
        if self.over:
            seconds = LINGER
        elif self.flow.write_paused or (self._asked() and self.conn.their_state is h11.SEND_BODY):
            phase, seconds = Phase.TRANSFER, bounds.patience
        elif self._asked():
            phase = Phase.WORKING
        elif self._half:
            self.transport.close()
        elif self.conn.their_state is h11.SEND_BODY:
            self._linger()
            return
        elif self.cycle is None or self.conn.trailing_data[0]:  # type: ignore[redundant-expr]
            seconds = bounds.head
        step = phase, seconds, self.cycle
        if step != self._step:
            self._step = step
            self.places.enter(self.place, phase)
            self._allow(seconds)

    def _allow(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._overdue)

    def _overdue(self) -> None:
        if not self.over:
            self.places.counts.refuse("slow", self.place.client)
        self.transport.abort()


@dataclass(slots=True)
class Exchange:
    """One request and its answer, as the application receives and sends them."""

    connection: HttpConnection
    receive: Receive
    send: Send
    headers: Headers
    size: int = 0
    whole: bool = False

    async def received(self) -> Message:
        """The next part of the body, and after all of it that the client has left."""
        message = await self.receive()
        if self.whole or message["type"] == "http.disconnect":
            return {"type": "http.disconnect"}
        self.whole = not message["more_body"]
        self.size += len(message["body"])
        if self.size > self.connection.places.bounds.body:
            self.connection.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return {"type": "http.disconnect"}
        return message

    async def sent(self, message: Message) -> None:
        """A part of the answer; the connection is not kept when room may be needed soon."""
        if message["type"] == "http.response.start":
            more = (*self.headers, *((_CLOSE,) if self.connection.places.crowded() else ()))
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await self.send(message)


def shim(application: Application, headers: Headers) -> Application:
    """The application as uvicorn calls it, within the bounds; `headers` are added to every answer."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        connection: HttpConnection = scope["state"].pop(CONNECTION)
        cycle, path = connection.cycle, _path(scope["raw_path"].decode())
        status = _wrong(scope) if path else HTTPStatus.BAD_REQUEST
        if status is None and not connection.places.begin(connection.place, path):
            status = HTTPStatus.SERVICE_UNAVAILABLE
        # HEAD is GET, whose body uvicorn leaves out.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        exchange = Exchange(connection, receive, send, headers)
        try:
            if status is None:
                asked = {**scope, "method": method, "path": path, "server": None}
                await application(asked, exchange.received, exchange.sent)
        except asyncio.CancelledError:
            connection.transport.abort()
        except Exception:
            log.exception("%s %s raised", method, path)
        if not (cycle.response_complete or connection.over):
            connection.refuse(status or HTTPStatus.INTERNAL_SERVER_ERROR)

    return serve


def _wrong(scope: Scope) -> HTTPStatus | None:
    """Return why a request is refused that uvicorn lets pass; None where it is not."""
    names = {name for name, _ in scope["headers"]}
    size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if scope["method"] == "CONNECT":
        return HTTPStatus.NOT_IMPLEMENTED
    if scope["http_version"] not in {"1.0", "1.1"}:
        return HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
    if size + len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"]) > HEAD_BYTES:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    if b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] == "1.0"):
        return HTTPStatus.BAD_REQUEST
    return None


def _path(target: str) -> str:
    """The path of a request's target, which may be a URL, as proxies send it; "" where it cannot be one."""
    if target.startswith("/") or "://" not in target:
        return unquote(target)
    url = _URL.fullmatch(target)
    return unquote(url[1] or "/") if url else ""
