"""What a connection may take of the daemon, against real sockets: how many, how long, how much head."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.server.authority import Authority
from wirewatch.server.connections import HEAD_BYTES, Bounds, Connections, server
from wirewatch.server.guard import PortGuard, Receive, Scope, Send, guarded
from wirewatch.server.reload import CurrentSettings, WebCounts
from wirewatch.server.sockets import ListenError, local, tcp

BIG = b"x" * (8 << 20)
"""More than the kernel keeps for a reader that does not read."""
PATIENT = 60.0
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
    ) -> None:
        self.web = web or PortGuard(WebCounts())
        self._listening = listening
        self._server = server(
            guarded(app, self.web), **Connections(self.web.counts, self.web, bounds).options()
        )
        self._tls = tls
        self._clients: list[asyncio.StreamWriter] = []

    def refused(self, reason: str) -> int:
        return self.web.counts.report.refused[reason]

    async def until_refused(self, reason: str, times: int = 1) -> None:
        while self.refused(reason) < times:  # noqa: ASYNC110 - what is counted has no event
            await asyncio.sleep(0.05)

    def connect(self) -> socket.socket:
        """A client that does only what it is told to."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(self._listening.getsockname())
        return client

    async def open(self, source: str = "127.0.0.1") -> Streams:
        if self._listening.family == socket.AF_UNIX:
            streams = await asyncio.open_unix_connection(self._listening.getsockname())
        else:
            host, port = self._listening.getsockname()
            name = "localhost" if self._tls else None
            streams = await asyncio.open_connection(
                host, port, local_addr=(source, 0), ssl=self._tls, server_hostname=name
            )
        self._clients.append(streams[1])
        return streams

    def run(self, scenario: Callable[["Port"], Awaitable[None]]) -> None:
        async def running() -> None:
            serving = asyncio.create_task(self._server.serve(sockets=[self._listening]))
            try:
                await asyncio.wait_for(scenario(self), PATIENT)
            finally:
                for writer in self._clients:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
                self._server.stop()
                await serving

        with closing(self._listening):
            asyncio.run(running())


def port(bounds: Bounds) -> Port:
    return Port(tcp("127.0.0.1", 0), bounds)


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


async def trickle(writer: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):
        for byte in data:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 1000,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b"x" * 5000,
    ],
    ids=["says nothing", "slow head", "slow body"],
)
def test_who_takes_his_time_is_let_go(sent: bytes) -> None:
    async def scenario(here: Port) -> None:
        streams = await here.open()
        trickling = asyncio.create_task(trickle(streams[1], sent))
        await ended(streams)
        assert here.refused("slow") == 1
        assert await ask(await here.open()) == b"200"
        trickling.cancel()

    port(Bounds(patience=0.5)).run(scenario)


def test_who_does_not_read_is_let_go_and_his_answer_with_him() -> None:
    async def scenario(here: Port) -> None:
        with closing(here.connect()) as lazy:
            lazy.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await here.until_refused("slow")
        assert await ask(await here.open(), "/big") == b"200"

    port(Bounds(patience=1.0)).run(scenario)


def test_who_asks_again_and_again_is_not() -> None:
    async def scenario(here: Port) -> None:
        streams = await here.open()
        for _ in range(10):
            assert await ask(streams) == b"200"
            await asyncio.sleep(0.1)
        assert here.refused("slow") == 0

    port(Bounds(patience=0.5)).run(scenario)


def test_one_address_has_so_many_connections_and_all_together_so_many() -> None:
    async def scenario(here: Port) -> None:
        first = [await here.open() for _ in range(4)]
        for streams in first:
            assert await ask(streams) == b"200"
        assert await ended(await here.open()) == b""
        others = [await here.open(f"127.0.0.{n}") for n in (2, 3)]
        for streams in others:
            assert await ask(streams) == b"200"
        assert await ended(await here.open("127.0.0.4")) == b""
        assert here.refused("connections") == 2
        # Whoever leaves makes room.
        first[0][1].close()
        await first[0][1].wait_closed()
        await asyncio.sleep(0.1)
        assert await ask(await here.open("127.0.0.4")) == b"200"

    port(Bounds(connections=6, of_one=4)).run(scenario)


def test_on_a_local_socket_users_are_told_apart(tmp_path: Path) -> None:
    async def scenario(here: Port) -> None:
        assert await ask(await here.open()) == b"200"
        assert await ask(await here.open()) == b"200"
        assert await ended(await here.open()) == b""

    Port(local(str(tmp_path / "w.sock")), Bounds(of_one=2)).run(scenario)


def test_a_head_that_is_too_long_and_what_is_no_http_are_refused() -> None:
    async def scenario(here: Port) -> None:
        for head in (
            b"GET /" + b"a" * HEAD_BYTES,
            b"GET / HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES,
            b"\x16\x03 no\r\n\r\n",
        ):
            streams = await here.open()
            streams[1].write(head)
            assert (await ended(streams)).startswith(b"HTTP/1.1 400 ")
        assert here.refused("malformed") == 3
        streams = await here.open()
        streams[1].write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (HEAD_BYTES // 2) + b"\r\n\r\n")
        assert b" 200 " in await streams[0].readline()

    port(Bounds()).run(scenario)


@pytest.fixture
def secured(tmp_path: Path) -> Callable[[Bounds], Port]:
    authority = Authority(tmp_path, "ours")
    authority.pair("here")
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config: {cert_file: here.crt, key_file: here.key}", "utf-8")
    counts = WebCounts()
    web = PortGuard(counts, current=CurrentSettings(file, counts))
    tls = ssl.create_default_context(cafile=str(authority.file))
    return lambda bounds: Port(tcp("127.0.0.1", 0), bounds, web, tls=tls)


def test_connections_of_tls_are_counted_from_before_the_handshake(secured: Callable[[Bounds], Port]) -> None:
    async def scenario(here: Port) -> None:
        silent = [here.connect() for _ in range(3)]
        await asyncio.sleep(0.2)
        with pytest.raises(OSError):  # noqa: PT011 - any end of a handshake
            await here.open()
        for one in silent:
            one.close()
        await here.until_refused("tls", 3)
        for streams in [await here.open() for _ in range(3)]:
            assert await ask(streams) == b"200"

    secured(Bounds(of_one=3)).run(scenario)


def test_a_handshake_that_is_never_ended_is(secured: Callable[[Bounds], Port]) -> None:
    async def scenario(here: Port) -> None:
        with closing(here.connect()) as silent:
            silent.sendall(b"\x16\x03\x01\x02\x00\x01")
            await here.until_refused("tls")
        assert await ask(await here.open()) == b"200"

    secured(Bounds(of_one=1, handshake=0.3)).run(scenario)


def test_many_at_once_over_tls_are_all_answered(secured: Callable[[Bounds], Port]) -> None:
    """Their first question comes with the end of the handshake, often in one piece with it."""

    async def one(here: Port) -> bytes:
        return await ask(await here.open())

    async def scenario(here: Port) -> None:
        for _ in range(5):
            assert await asyncio.gather(*(one(here) for _ in range(20))) == [b"200"] * 20

    secured(Bounds(connections=200, of_one=200)).run(scenario)


def test_a_socket_for_a_group_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="no such group: 'nobody-has-this-name'"):
        local(str(tmp_path / "s"), group="nobody-has-this-name")
