"""One request and its answer within the bounds, and what is refused of a request, without sockets."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rows import each
from wirewatch.server import listener
from wirewatch.server.connections import Bounds, Phase
from wirewatch.server.listener import CONNECTION, Exchange, shim

GONE = {"type": "http.disconnect"}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


class Connection:
    """A connection that notes what it is told; `begins`: whether there is room for its request."""

    def __init__(self, *, begins: bool = True, crowded: bool = False, complete: bool = False) -> None:
        self.refused: list[HTTPStatus] = []
        self.asked: list[str] = []
        self.aborted = 0
        self.over, self.place = False, SimpleNamespace()
        self.cycle = SimpleNamespace(response_complete=complete)
        self.transport = SimpleNamespace(abort=self._abort)

        def begin(_place: object, path: str) -> bool:
            self.asked.append(path)
            return begins

        self.places = SimpleNamespace(bounds=Bounds(body=10), begin=begin, crowded=lambda: crowded)

    def refuse(self, status: HTTPStatus) -> None:
        self.refused.append(status)

    def _abort(self) -> None:
        self.aborted += 1


@each(
    ("given", "heard", "refused"),
    [
        ([body(b"x" * 10)], [body(b"x" * 10), GONE], []),
        ([body(b"x" * 11)], [GONE, GONE], [HTTPStatus.REQUEST_ENTITY_TOO_LARGE]),
        ([body(b"x" * 6, more=True), body(b"x" * 4)], [body(b"x" * 6, more=True), body(b"x" * 4)], []),
        ([body(b"x" * 6, more=True), body(b"x" * 5)], [body(b"x" * 6, more=True), GONE],
         [HTTPStatus.REQUEST_ENTITY_TOO_LARGE]),
        ([body(b"x", more=True), GONE], [body(b"x", more=True), GONE], []), ([GONE, GONE], [GONE, GONE], []),
    ],
)  # fmt: skip
def test_a_body_has_its_bound_and_its_end(given: Sequence[Any], heard: Sequence[Any], refused: Any) -> None:
    connection, left = Connection(), iter([*given, body(b""), body(b"")])

    async def receive() -> Any:
        return next(left)

    async def scenario() -> list[Any]:
        exchange = Exchange(connection, receive, receive, ())  # type: ignore[arg-type]
        return [await exchange.received() for _ in range(2)]

    assert asyncio.run(scenario()) == heard
    assert connection.refused == refused


def answered(connection: Connection, application: Any = None, **scope: Any) -> list[Any]:
    """What an application answers through the shim; by default it echoes what it is asked."""
    sent: list[Any] = []

    async def echo(scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": f"{scope['method']} {scope['path']}".encode()})

    async def send(message: Any) -> None:
        sent.append(message)

    asked = {
        "method": "GET", "raw_path": b"/a%20b", "http_version": "1.1", "headers": [], "query_string": b"",
        "state": {CONNECTION: connection}, "server": ("x", 1), **scope,
    }  # fmt: skip
    asyncio.run(shim(application or echo, ((b"v", b"1"),))(asked, None, send))  # type: ignore[arg-type]
    return sent


@pytest.mark.parametrize(("crowded", "more"), [(False, []), (True, [(b"connection", b"close")])])
def test_headers_are_added_and_connections_are_not_kept_where_it_is_crowded(
    *, crowded: bool, more: Any
) -> None:
    start, told = answered(Connection(crowded=crowded, complete=True), method="HEAD")
    assert start["headers"] == [(b"a", b"b"), (b"v", b"1"), *more]
    assert told["body"] == b"GET /a b"


@each(
    ("changes", "status"),
    [
        ({"method": "CONNECT"}, 501), ({"http_version": "2.0"}, 505), ({"raw_path": b"http://["}, 400),
        ({"headers": [(b"x", b"y" * (16 << 10))]}, 431), ({"query_string": b"x" * (16 << 10)}, 431),
        ({"headers": [(b"x", b"y" * ((16 << 10) - 13))], "method": "PUT"}, 431),
        ({"headers": [(b"transfer-encoding", b"chunked"), (b"content-length", b"1")]}, 400),
        ({"headers": [(b"transfer-encoding", b"chunked")], "http_version": "1.0"}, 400),
    ],
)  # fmt: skip
def test_what_uvicorn_lets_pass_is_refused(changes: dict[str, Any], status: int) -> None:
    connection = Connection()
    assert answered(connection, **changes) == []
    assert (connection.refused, connection.asked) == ([HTTPStatus(status)], [])


@each(
    "changes",
    [
        {"headers": [(b"x", b"y" * ((16 << 10) - 13))], "method": "PU"}, {"http_version": "1.0"},
        {"headers": [(b"transfer-encoding", b"chunked")]}, {"headers": [(b"content-length", b"1")]},
        {"headers": [(b"content-length", b"1")], "http_version": "1.0"},
    ],
)  # fmt: skip
def test_what_is_not_refused(changes: dict[str, Any]) -> None:
    connection = Connection(complete=True)
    assert len(answered(connection, **changes)) == 2
    assert (connection.refused, connection.asked) == ([], ["/a b"])


async def raising(*_: Any) -> None:
    raise RuntimeError("as asked")


async def silent(*_: Any) -> None:
    """Answers nothing."""


async def cancelled(*_: Any) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("connection", "application", "refused"),
    [
        (Connection(begins=False), None, [HTTPStatus.SERVICE_UNAVAILABLE]),
        (Connection(), raising, [HTTPStatus.INTERNAL_SERVER_ERROR]),
        (Connection(), silent, [HTTPStatus.INTERNAL_SERVER_ERROR]), (Connection(complete=True), raising, []),
    ],
    ids=["no room", "raises", "silent", "raises after its answer"],
)  # fmt: skip
def test_a_request_without_an_answer_gets_one(connection: Connection, application: Any, refused: Any) -> None:
    answered(connection, application)
    assert connection.refused == refused


def test_a_refused_connection_is_not_refused_again_and_a_cancelled_one_is_ended() -> None:
    connection = Connection()
    connection.over = True
    answered(connection, silent)
    assert (connection.refused, connection.aborted) == ([], 0)
    answered(connection, cancelled)
    assert connection.aborted == 1


@each(
    ("target", "path"),
    [
        ("/a%20b", "/a b"), ("*", "*"), ("http://x/y%20z", "/y z"), ("http://x", "/"),
        ("http://[::1]:80/y", "/y"),
        ("http://[", ""), ("/http://[", "/http://["),
    ],
)  # fmt: skip
def test_the_path_of_a_target(target: str, path: str) -> None:
    assert vars(listener)["_path"](target) == path


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(104, "Connection reset by peer"), "Connection reset by peer"),
        (ConnectionAbortedError(), "ConnectionAbortedError"),
        (ssl.SSLError(1, "[SSL: WRONG] x"), "[SSL: WRONG] x"),
    ],
)  # fmt: skip
def test_why_a_handshake_failed(error: OSError, reason: str) -> None:
    assert vars(listener)["_tls_reason"](error) == reason
    verified = ssl.SSLCertVerificationError("x")
    verified.verify_message, verified.reason = "certificate has expired", "CERTIFICATE_VERIFY_FAILED"
    assert vars(listener)["_tls_reason"](verified) == "certificate has expired"
    verified.verify_message = ""
    assert vars(listener)["_tls_reason"](verified) == "CERTIFICATE_VERIFY_FAILED"


def test_the_client_of_a_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        place, peer = vars(listener)["_client"](ours)
        assert (place.client, place.own, place.phase) == (f"user {peer.uid}", True, Phase.WAITING)
        place.end()
        assert theirs.recv(1) == b""
    place.end()
