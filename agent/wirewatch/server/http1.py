"""HTTP/1.1 on one connection: h11 parses the requests, an ASGI application answers them."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

import h11

from wirewatch.server.connections import HEAD_BYTES, Admission, Connections, Phase
from wirewatch.server.guard import Application, Headers, Message, Scope

CHUNK = 16 << 10
"""Bytes that are read at a time."""
LINGER = 1.0
"""Seconds in which what a refused client still sends is thrown away, so that it can read the refusal."""
VERSIONS = (b"1.1", b"1.0")
_CLOSE = (b"connection", b"close")
_OURS = (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE)
"""Refusals that are not the request's fault."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Streams:
    """One connection: its streams, its place among the others, and what each request's scope says of it.

    `address` of the client is None at a unix socket.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    place: Admission
    scheme: str
    address: tuple[str, int] | None
    state: Mapping[str, Any]


class RequestRefused(Exception):
    """A request that is answered with an error before the application has seen all of it."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Conversation:
    """Requests and answers on one connection, until either side ends it.

    Args:
        application: the ASGI application.
        link: the connection.
        connections: the list that has its place.
        headers: of every answer.
    """

    def __init__(
        self, application: Application, link: Streams, connections: Connections, headers: Headers = ()
    ) -> None:
        self._application, self._link, self._connections = application, link, connections
        self._headers = headers
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._with_body = True
        link.writer.transport.set_write_buffer_limits(high=0)

    async def run(self) -> None:
        """Talk until the connection is to be closed; raises nothing for what a client does."""
        try:
            self._http.receive_data(await self._first_bytes())
            while await self._exchange():
                self._http.start_next_cycle()
                self._connections.wait(self._link.place)
                if not self._http.trailing_data[0]:
                    self._http.receive_data(await self._next_bytes())
            if self._http.their_state is h11.SEND_BODY:
                await self._linger()
        except RequestRefused as error:
            await self._refuse(error.status)
        except h11.RemoteProtocolError as error:
            await self._refuse(HTTPStatus(error.error_status_hint))
        except TimeoutError:
            self._connections.counts.refuse("slow", self._link.place.client.name)
            self._link.writer.transport.abort()
        except OSError:
            self._link.writer.transport.abort()

    async def _first_bytes(self) -> bytes:
        async with asyncio.timeout(self._connections.bounds.head):
            return await self._link.reader.read(CHUNK)

    async def _next_bytes(self) -> bytes:
        """The beginning of the next request; nothing, as if the client had left, when none comes."""
        try:
            async with asyncio.timeout(self._connections.bounds.idle):
                return await self._link.reader.read(CHUNK)
        except TimeoutError:
            return b""

    async def _exchange(self) -> bool:
        """One request and its answer; False when no other can follow."""
        self._with_body = True
        async with asyncio.timeout(self._connections.bounds.head):
            request = await _event(self._http, self._link.reader)
        if not isinstance(request, h11.Request):
            return False
        self._with_body = request.method != b"HEAD"
        _check(request)
        scope = self._scope(request)
        if not self._connections.begin(self._link.place, scope["path"]):
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE)
        headers = (*self._headers, *((_CLOSE,) if self._connections.crowded() else ()))
        exchange = Exchange(self._http, self._link, self._connections, headers, with_body=self._with_body)
        try:
            await self._application(scope, exchange.receive, exchange.send)
        except Exception:
            log.exception("%s %s raised", scope["method"], scope["path"])
        if exchange.failure is not None:
            raise exchange.taken_failure()
        if self._http.our_state not in {h11.DONE, h11.MUST_CLOSE}:
            raise RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR)
        if self._http.their_state is h11.SEND_BODY:
            self._http.next_event()  # the end of a request without a body, which no application reads
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def _scope(self, request: h11.Request) -> Scope:
        """The scope of ASGI 3; HEAD is GET, whose body is then not sent."""
        path, _, query = _path(request.target).partition(b"?")
        link = self._link
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode(),
            "method": "GET" if request.method == b"HEAD" else request.method.decode(),
            "scheme": link.scheme,
            "path": unquote(path.decode("ascii", "replace")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": link.address,
            "server": None,
            "state": dict(link.state),
        }

    async def _refuse(self, status: HTTPStatus) -> None:
        """Answer with an error if nothing has been answered, then let the client read it."""
        if status not in _OURS:
            self._connections.counts.refuse("malformed", self._link.place.client.name)
        if self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self._link.writer.transport.abort()
            return
        body = b'{"detail":"%s"}' % status.phrase.encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), _CLOSE]
        answer = _response(status, headers)
        data = (h11.Data(data=body),) if self._with_body else ()
        self._link.writer.write(_sent(self._http, answer, *data, h11.EndOfMessage()))
        await self._linger()

    async def _linger(self) -> None:
        """Throw away what still comes for a moment: closing at once could take back what was answered."""
        self._connections.wait(self._link.place)
        try:
            async with asyncio.timeout(LINGER):
                if self._link.writer.can_write_eof():
                    self._link.writer.write_eof()
                while await self._link.reader.read(CHUNK):
                    pass
        except (TimeoutError, OSError):
            self._link.writer.transport.abort()


class Exchange:
    """One request's body and its answer, as an ASGI application receives and sends them.

    Args:
        http: the state of the connection, after the head of the request.
        headers: added to the answer's own.
        with_body: whether the answer's body is sent: not to HEAD.

    `failure`: why the rest of it was given up; the application then gets a disconnect.
    """

    def __init__(
        self,
        http: h11.Connection,
        link: Streams,
        connections: Connections,
        headers: Headers,
        *,
        with_body: bool,
    ) -> None:
        self._http, self._link, self._connections, self._headers = http, link, connections, headers
        self._with_body = with_body
        self._end = asyncio.get_running_loop().time() + connections.bounds.patience
        self._left = connections.bounds.body
        self._head: h11.Response | None = None
        self._received = False
        self.failure: Exception | None = None

    def taken_failure(self) -> Exception:
        """The failure, which is then not kept here: its traceback would keep this exchange and its answer."""
        failure, self.failure = self.failure, None
        return failure or ConnectionError()

    async def receive(self) -> Message:
        """The next message of ASGI: a part of the body, then a disconnect once the client has left."""
        if self.failure is None and not self._received:
            try:
                return await self._part()
            except (RequestRefused, h11.RemoteProtocolError, OSError) as error:
                self.failure = error.with_traceback(None)
        if self.failure is None:
            await self._disconnected()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a message of ASGI; nothing more is sent after a failure."""
        if self.failure is not None:
            return
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *self._headers]
            self._head = _response(message["status"], headers)
            return
        events: list[h11.Event] = []
        if self._head is not None:
            events.append(self._head)
            self._head = None
        if message.get("body") and self._with_body:
            events.append(h11.Data(data=message["body"]))
        if not message.get("more_body"):
            events.append(h11.EndOfMessage())
        self._link.writer.write(_sent(self._http, *events))
        await self._read_by_client()

    async def _part(self) -> Message:
        self._connections.enter(self._link.place, Phase.TRANSFER)
        async with asyncio.timeout_at(self._end):
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self._link.writer.write(_sent(self._http, go_on))
            event = await _event(self._http, self._link.reader)
        self._connections.enter(self._link.place, Phase.WORKING)
        data = bytes(event.data) if isinstance(event, h11.Data) else b""
        self._left -= len(data)
        if self._left < 0:
            raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self._received = not isinstance(event, h11.Data)
        return {"type": "http.request", "body": data, "more_body": not self._received}

    async def _disconnected(self) -> None:
        """Wait until the client leaves, or sends more than a client that waits for its answer."""
        while len(self._http.trailing_data[0]) <= CHUNK:
            data = await self._link.reader.read(CHUNK)
            self._http.receive_data(data)
            if not data:
                return

    async def _read_by_client(self) -> None:
        self._connections.enter(self._link.place, Phase.TRANSFER)
        try:
            async with asyncio.timeout(self._connections.bounds.patience):
                await self._link.writer.drain()
        except OSError as error:
            self.failure = error.with_traceback(None)


async def _event(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    """The next event of a connection, for which it is read."""
    while not isinstance(event := http.next_event(), h11.Event):
        if event is h11.PAUSED:
            raise RequestRefused(HTTPStatus.BAD_REQUEST)
        http.receive_data(await reader.read(CHUNK))
    return event


def _response(status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
    return h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())


def _sent(http: h11.Connection, *events: h11.Event) -> bytes:
    return b"".join(http.send(event) or b"" for event in events)


def _check(request: h11.Request) -> None:
    """Refuse what h11 lets pass.

    Raises:
        RequestRefused: another version, a head that is too long, a body whose length is given twice, or
            CONNECT, after which h11 takes the connection for a tunnel.
    """
    if request.method == b"CONNECT":
        raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED)
    if request.http_version not in VERSIONS:
        raise RequestRefused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    size = sum(len(name) + len(value) + 4 for name, value in request.headers)
    if size + len(request.method) + len(request.target) > HEAD_BYTES:
        raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
        raise RequestRefused(HTTPStatus.BAD_REQUEST)


def _path(target: bytes) -> bytes:
    """Path and query of a request's target; an absolute URL, as proxies send it, is allowed.

    Raises:
        RequestRefused: it is not a URL.
    """
    if target.startswith(b"/") or b"://" not in target:
        return target
    try:
        url = urlsplit(target.decode("ascii", "replace"))
    except ValueError as error:
        raise RequestRefused(HTTPStatus.BAD_REQUEST) from error
    return f"{url.path or '/'}{'?' if url.query else ''}{url.query}".encode()
