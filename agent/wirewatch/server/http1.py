"""HTTP/1.1 on one connection: uvicorn's protocol with deadlines, and the shim before the application."""

import asyncio
import logging
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote

import h11
from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from wirewatch.server.connections import HEAD_BYTES, Connections, Phase, Place
from wirewatch.server.guard import CERTIFICATE, TLS, Application, Headers, Message, Receive, Scope, Send
from wirewatch.server.peer import Peer
from wirewatch.server.webconfig import Settings

LINGER = 1.0
"""Seconds in which what a refused client still sends is thrown away, so that it can read the refusal."""
CONNECTION = "wirewatch.connection"
"""Key in the state of the scope, for the shim alone."""
PEER = "peer"
"""Key in the state of the scope: the `Peer` at a unix socket, None at a port."""
_URL = re.compile(r"[^/]*://(?:\[[0-9A-Fa-f:.]*\]|[^/\[\]])*(/.*)?")
_CLOSE = (b"connection", b"close")
_OURS = (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE)
"""Refusals that are not the request's fault."""
log = logging.getLogger(__name__)


class Connection(H11Protocol):
    """uvicorn's protocol; each step of the client has a deadline, and errors are answered as our own are."""

    def __init__(
        self, server: Server, places: Connections, place: Place, settings: Settings, peer: Peer | None
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
        if not self.over and not self.transport.is_closing():
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
        self.transport.write(b"".join(self.conn.send(e) or b"" for e in (head, *data, h11.EndOfMessage())))
        self._linger()

    def _asked(self) -> bool:
        """Whether a request has come that is not answered yet."""
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

    connection: Connection
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
        connection: Connection = scope["state"].pop(CONNECTION)
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
    """Why a request is refused that uvicorn lets pass; None where it is not."""
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
