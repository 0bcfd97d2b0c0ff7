"""HTTP/1.1 as clients speak it, well and badly: bytes to a real listener, and bytes that come back."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.server.port import Port, port
from tests.rows import each
from wirewatch.server.connections import HEAD_BYTES, Bounds
from wirewatch.server.guard import Application, Receive, Scope, Send

CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
QUIET = Bounds(head=1.0, idle=1.0, patience=1.0, body=1000)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the method, the path, the query and the body of a POST; `/raise` raises."""
    if scope["path"] == "/raise":
        raise RuntimeError("as asked")
    body = b""
    while scope["method"] == "POST":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    text = b"%s %s?%s %s" % (scope["method"].encode(), scope["path"].encode(), scope["query_string"], body)
    headers = [(b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def answered(
    *pieces: bytes, bounds: Bounds = QUIET, pause: float = 0.0, application: Application = echo
) -> bytes:
    """All that comes back on one connection for these pieces, until the server closes it."""
    got: list[bytes] = []

    async def scenario(here: Port) -> None:
        reader, writer = await here.open()
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        writer.write_eof()
        got.append(await reader.read())

    port(bounds, application).run(scenario)
    return got[0]


@each(
    ("sent", "status"),
    [
        (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 505),
        (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03 no\r\n\r\n", 400),
        (GET + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (GET + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
        (GET + b"Content-Length: -3\r\n\r\nabcd", 400),
        (GET + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (b"CONNECT localhost:9410 HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
        (b"CONNECT / HTTP/1.0\r\n\r\n", 501),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://[::1/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://[nonsense]/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (GET + b"X: " + b"a" * HEAD_BYTES + b"\r\n\r\n", 431),
        (GET + b"X: y\r\n" * (HEAD_BYTES // 6) + b"\r\n", 431),
        (GET + b"X: " + b"a" * 17_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * HEAD_BYTES + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (GET + b"X: " + b"a" * (4 * HEAD_BYTES) + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1001, 413),
        (CHUNKED + b"zz\r\n", 400),
        (b"GET /raise HTTP/1.1\r\nHost: localhost\r\n\r\n", 500),
        (b"GET / HTTP/1.1\r\nHost: loc", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf", 400),
    ],
)
def test_a_refused_request_gets_the_reason_and_is_closed(sent: bytes, status: int) -> None:
    answer = answered(sent)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close\r\n" in answer.lower()
    assert answer.count(b"HTTP/1.1") == 1


@each(
    ("sent", "text"),
    [
        (GET + b"\r\n", b"GET /? "),
        (b"GET /a%20b?c=d HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /a b?c=d "),
        (b"GET http://localhost/x?y HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /x?y "),
        (b"GET / HTTP/1.0\r\n\r\n", b"GET /? "),
        (GET + b"X: " + b"a" * (HEAD_BYTES - 100) + b"\r\n\r\n", b"GET /? "),
        (GET + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n", b"GET /? "),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", b"POST /? abc"),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000,
            b"POST /? " + b"x" * 1000,
        ),
        (
            CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
            b"POST /? abc",
        ),
    ],
)
def test_what_is_answered(sent: bytes, text: bytes) -> None:
    answer = answered(sent)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n" + text)


def test_a_refusal_is_read_by_a_client_that_still_sends() -> None:
    """Whether uvicorn has stopped to read a body, or a head goes on in pieces."""
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n"
    assert answered(head + b"x" * 20_000_000).startswith(b"HTTP/1.1 413 ")

    async def late(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await asyncio.sleep(0.2)
        raise RuntimeError("as asked")

    assert answered(head + b"x" * 20_000_000, application=late).startswith(b"HTTP/1.1 500 ")
    long = GET + b"X: " + b"a" * (4 * HEAD_BYTES)
    pieces = [long[start : start + 8192] for start in range(0, len(long), 8192)]
    assert answered(*pieces, pause=0.02).startswith(b"HTTP/1.1 431 ")


async def patient(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers once the client says no more, with what it has got until then."""
    kinds: list[str] = []
    while not kinds or kinds[-1] != "http.disconnect":
        kinds.append((await receive())["type"])
        if scope["http_version"] == "1.0":
            await asyncio.sleep(0.2)
            break
    text = f"{scope['method']} {scope['server']} {' '.join(kinds)}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})
    await send({"type": "http.response.body", "body": text})


def test_a_client_that_closes_its_half_is_answered_and_the_application_learns_it() -> None:
    got = answered(GET + b"\r\n", application=patient)
    assert b"GET None http.request http.disconnect" in got


def test_line_ends_after_the_last_request_are_no_request() -> None:
    got = answered(b"GET / HTTP/1.0\r\n\r\n", b"\r\n", application=patient, pause=0.05)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert got.endswith(b"GET None http.request")


def test_head_is_answered_as_get_without_its_body() -> None:
    head = answered(b"HEAD /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"content-length: 8\r\n" in head
    assert head.endswith(b"\r\n\r\n")
    assert answered(b"HEAD /raise HTTP/1.1\r\nHost: localhost\r\n\r\n").endswith(b"\r\n\r\n")


def test_a_client_that_waits_for_it_is_told_to_go_on() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    answer = answered(head, b"abc", pause=0.1)
    assert answer.startswith(b"HTTP/1.1 100 ")
    assert answer.endswith(b"POST /? abc")


def test_a_body_that_the_application_does_not_read_ends_the_connection_and_not_the_answer() -> None:
    sent = b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000
    assert answered(sent).endswith(b"PUT /? ")


requests = st.lists(
    st.sampled_from(
        (
            (GET + b"\r\n", b"GET /? "),
            (b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
            (b"POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi", b"POST /p? hi"),
            (
                CHUNKED + b"2\r\nyo\r\n0\r\n\r\n",
                b"POST /? yo",
            ),
        )
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(60))
@given(requests, st.lists(st.integers(1, 40), max_size=20))
def test_cut_and_merged_pieces_are_the_same_requests(asked: Any, cuts: list[int]) -> None:
    whole, pieces = b"".join(sent for sent, _ in asked), []
    for cut in cuts:
        pieces.append(whole[:cut])
        whole = whole[cut:]
    answer = answered(*pieces, whole)
    assert answer.count(b"HTTP/1.1 200 ") == len(asked)
    end = 0
    for _, text in asked:
        end = answer.index(b"\r\n\r\n" + text, end) + 4 + len(text)
    assert end == len(answer)


@settings(max_examples=examples(100))
@given(
    st.lists(st.binary(max_size=60) | st.sampled_from((GET, b"\r\n", b"Content-Length: 5\r\n")), max_size=8)
)
def test_any_bytes_get_an_answer_of_http_or_none(pieces: list[bytes]) -> None:
    answer = answered(*pieces, bounds=Bounds(head=0.5, idle=0.5, patience=0.5))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize(
    "second", [b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\r\n\r\n", GET + b"Content-Length: x\r\n\r\n"]
)
def test_what_is_refused_after_head_has_its_body(second: bytes) -> None:
    answer = answered(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n" + second)
    assert answer.count(b"HTTP/1.1 ") == 2
    assert answer.endswith(b'"}')


def test_a_client_that_offers_another_protocol_gets_this_one(caplog: pytest.LogCaptureFixture) -> None:
    """Without a word in the log: uvicorn has two lines for each such request."""
    offer = GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    assert answered(offer).startswith(b"HTTP/1.1 200 ")
    assert caplog.records == []
