"""64 requests byte for byte, good ones and bad ones, and the statuses that answer them."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

PAUSE = 0.01
"""Seconds between two pieces."""
PATIENCE = 4.0
"""Seconds until the server ends the connection: an unread body is read for one."""
STILL_OPEN = 0
"""In the place of a status: the server has not ended the connection."""
HOST = b"Host: localhost\r\n"
GET, POST = b"GET / HTTP/1.1\r\n" + HOST, b"POST / HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LONG = 16 << 10
"""Bytes of a head; a body has at most four times as many."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Pieces to send and the statuses that come back.

    `kept`: one more request is answered on the connection. `half`: the client then closes its half.
    """

    name: str
    pieces: tuple[bytes, ...]
    statuses: tuple[int, ...]
    kept: bool = False
    half: bool = False

    @property
    def wanted(self) -> tuple[int, ...]:
        return (*self.statuses, 200) if self.kept else self.statuses


def _each(data: bytes) -> tuple[bytes, ...]:
    return tuple(bytes((byte,)) for byte in data)


def _good() -> Iterator[Vector]:
    for name, data in {
        "GET": GET + b"\r\n",
        "POST with a length": POST + b"Content-Length: 3\r\n\r\nabc",
        "POST of nothing": POST + b"Content-Length: 0\r\n\r\n",
        "chunks": CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        "chunks with an extension": CHUNKED + b"3;a=b\r\nabc\r\n0\r\n\r\n",
        "chunks with a trailer": CHUNKED + b"3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        "HEAD": b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n",
        "OPTIONS *": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
        "a method that is not known": b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n",
        "a URL": b"GET http://localhost/x?y HTTP/1.1\r\n" + HOST + b"\r\n",
        "a URL without a path": b"GET http://localhost HTTP/1.1\r\n" + HOST + b"\r\n",
        "escapes in the path": b"GET /a%20b%ff HTTP/1.1\r\n" + HOST + b"\r\n",
        "a query with a question mark": b"GET /?a?b HTTP/1.1\r\n" + HOST + b"\r\n",
        "a Host with a port": b"GET / HTTP/1.1\r\nHost: [::1]:9410\r\n\r\n",
        "names of headers in any case": b"GET / HTTP/1.1\r\nhOST: localhost\r\nx: y\r\n\r\n",
        "a header without a value": GET + b"X:\r\n\r\n",
        "blanks around a value": GET + b"X: \t y \t\r\n\r\n",
        "a folded header": GET + b"X: y\r\n z\r\n\r\n",
        "Latin-1 in a header": GET + b"X: \xe9\r\n\r\n",
        "lines that end with LF": b"GET / HTTP/1.1\nHost: localhost\n\n",
        "an offer of HTTP/2": GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "an offer of WebSocket": GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "GET with a body": GET + b"Content-Length: 3\r\n\r\nabc",
        "one length twice": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "a head of 12 KiB": GET + b"X: " + b"a" * (12 << 10) + b"\r\n\r\n",
    }.items():
        yield Vector(name, (data,), (200,), kept=True)
    yield Vector("a head byte by byte", _each(GET + b"\r\n"), (200,), kept=True)
    yield Vector("chunks byte by byte", (CHUNKED, *_each(b"3\r\nabc\r\n0\r\n\r\n")), (200,), kept=True)
    waiting = POST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    yield Vector("Expect: 100-continue", (waiting, b"abc"), (100, 200), kept=True)
    yield Vector("two at once", (GET + b"\r\n" + GET + b"\r\n",), (200, 200), kept=True)
    two = POST + b"Content-Length: 2\r\n\r\nhi" + CHUNKED + b"2\r\nyo\r\n0\r\n\r\n"
    yield Vector("two bodies at once", (two,), (200, 200), kept=True)
    yield Vector("HTTP/1.0", (b"GET / HTTP/1.0\r\n\r\n",), (200,))
    yield Vector("Connection: close", (GET + b"Connection: close\r\n\r\n",), (200,))
    yield Vector("a half that is closed after the request", (GET + b"\r\n",), (200,), half=True)
    unread = b"PUT / HTTP/1.1\r\n" + HOST + b"Content-Length: 900000\r\n\r\n" + b"x" * 900_000
    yield Vector("a body that nobody reads", (unread,), (200,))


def _bad() -> Iterator[Vector]:
    head = b"GET / HTTP/1.1\r\n"
    for status, name, data in (
        (505, "HTTP/9.9", b"GET / HTTP/9.9\r\n" + HOST + b"\r\n"),
        (505, "HTTP/2.0", b"GET / HTTP/2.0\r\n" + HOST + b"\r\n"),
        (505, "the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (400, "HTTP/0.9", b"GET /\r\n\r\n"),
        (400, "a version in small letters", b"GET / http/1.1\r\n" + HOST + b"\r\n"),
        (400, "no Host", head + b"\r\n"),
        (400, "two Hosts", head + HOST + HOST + b"\r\n"),
        (400, "a handshake of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
        (400, "NUL in a header", GET + b"X: a\0b\r\n\r\n"),
        (400, "a blank before the colon", GET + b"X : y\r\n\r\n"),
        (400, "a line without a colon", GET + b"nothing\r\n\r\n"),
        (
            400,
            "a length and chunks",
            POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (400, "chunks in HTTP/1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (400, "two lengths", POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
        (400, "a length below zero", POST + b"Content-Length: -3\r\n\r\nabc"),
        (400, "a length with a sign", POST + b"Content-Length: +3\r\n\r\nabc"),
        (501, "a coding that is not known", POST + b"Transfer-Encoding: gzip\r\n\r\n"),
        (501, "two codings", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        (400, "a chunk without a size", CHUNKED + b"zz\r\n"),
        (400, "a chunk without an end", CHUNKED + b"3\r\nabcdef\r\n"),
        (501, "CONNECT", b"CONNECT localhost:9410 HTTP/1.1\r\n" + HOST + b"\r\n"),
        (400, "a URL that is none", b"GET http://[ HTTP/1.1\r\n" + HOST + b"\r\n"),
        (431, "a long header", GET + b"X: " + b"a" * LONG + b"\r\n\r\n"),
        (431, "many headers", GET + b"X: y\r\n" * (LONG // 6) + b"\r\n"),
        (431, "a long target", b"GET /" + b"a" * LONG + b" HTTP/1.1\r\n" + HOST + b"\r\n"),
        (413, "a body that is too long", POST + b"Content-Length: 65537\r\n\r\n" + b"x" * 65537),
        (413, "chunks that are too long", CHUNKED + (b"4000\r\n" + b"x" * 0x4000 + b"\r\n") * 5),
        (500, "an application that raises", b"GET /raise HTTP/1.1\r\n" + HOST + b"\r\n"),
    ):
        yield Vector(name, (data,), (status,))
    then = b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n" + b"GET / HTTP/9.9\r\n\r\n"
    yield Vector("a good one, then a bad one", (then,), (200, 505))
    yield Vector("half of a body, then the end", (POST + b"Content-Length: 9\r\n\r\nab",), (400,), half=True)


VECTORS = (*_good(), *_bad())
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def answered(address: tuple[str, int], vector: Vector) -> tuple[int, ...]:
    """The statuses of all answers on one connection, until the server ends it."""
    got = b""
    with socket.create_connection(address, PATIENCE) as client, suppress(ConnectionError):
        for piece in (*vector.pieces, *((LAST,) if vector.kept else ())):
            client.sendall(piece)
            time.sleep(PAUSE if len(vector.pieces) > 1 else 0.0)
        if vector.half:
            client.shutdown(socket.SHUT_WR)
        try:
            while more := client.recv(1 << 16):
                got += more
        except TimeoutError:
            return (*(int(one) for one in _STATUS.findall(got)), STILL_OPEN)
    return tuple(int(one) for one in _STATUS.findall(got))
