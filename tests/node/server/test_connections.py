"""What connections may take of the daemon, against real sockets: how many, and how long."""

import asyncio
import fcntl
import gc
import socket
import ssl
import struct
import termios
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from tests.node.server.authority import Authority
from tests.node.server.port import BIG, PATIENT, Port, app, ask, ended, port
from tests.patience import HANGS
from wirewatch.server.connections import Admission, Bounds
from wirewatch.server.guard import PortGuard, Receive, Scope, Send
from wirewatch.server.listener import SEND_BYTES, Exchange, HttpConnection
from wirewatch.server.reload import CurrentSettings, WebCounts
from wirewatch.server.sockets import ListenError, local, tcp


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


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
def test_a_client_that_takes_too_long_is_let_go(sent: bytes) -> None:
    async def scenario(here: Port) -> None:
        streams = await here.open()
        trickling = asyncio.create_task(trickle(streams[1], sent))
        await ended(streams)
        assert here.refused("slow") == 1
        assert await ask(await here.open()) == b"200"
        trickling.cancel()

    port(Bounds(head=0.5, patience=0.5)).run(scenario)


@pytest.mark.parametrize("together", [True, False], ids=["pipelined", "after the answer"])
def test_a_next_request_that_begins_has_the_time_of_a_head_and_not_that_of_an_idle_client(
    *, together: bool
) -> None:
    async def scenario(here: Port) -> None:
        streams = await here.open()
        begun = b"GET / HTTP/1.1\r\nHost: local"
        if together:
            streams[1].write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + begun)
        else:
            assert await ask(streams) == b"200"
            streams[1].write(begun)
        await ended(streams)
        assert here.refused("slow") == 1

    port(Bounds(head=0.5, idle=3 * PATIENT)).run(scenario)


def test_a_body_that_nobody_reads_may_not_go_on_after_the_answer() -> None:
    async def scenario(here: Port) -> None:
        streams = await here.open()
        streams[1].write(b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx")
        trickling = asyncio.create_task(trickle(streams[1], b"x" * 3000))
        assert (await ended(streams)).endswith(b"here")
        await trickling
        assert here.refused("slow") == 0

    port(Bounds()).run(scenario)


def test_a_client_that_does_not_read_is_let_go_with_its_answer() -> None:
    async def scenario(here: Port) -> None:
        with closing(here.connect()) as lazy:
            lazy.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await here.until_refused("slow")
        assert await ask(await here.open(), "/big") == b"200"

    port(Bounds(patience=1.0)).run(scenario)


def test_a_client_that_asks_again_and_again_is_not_slow() -> None:
    async def scenario(here: Port) -> None:
        streams = await here.open()
        for _ in range(10):
            assert await ask(streams) == b"200"
            await asyncio.sleep(0.1)
        assert here.refused("slow") == 0

    port(Bounds(patience=0.5)).run(scenario)


def test_without_room_the_client_that_has_most_gives_way_with_its_oldest_idle_connection() -> None:
    async def scenario(here: Port) -> None:
        many = [await here.open("127.0.0.2") for _ in range(4)]
        few = [await here.open("127.0.0.3") for _ in range(2)]
        assert await ask(await here.open("127.0.0.4")) == b"200"
        assert await ended(many[0]) == b""
        assert here.refused("connections") == 1
        for streams in (*many[1:], *few):
            assert await ask(streams) == b"200"

    port(Bounds(connections=6, of_one=4)).run(scenario)


def test_a_client_at_its_limit_loses_its_own_oldest_connection() -> None:
    async def scenario(here: Port) -> None:
        first, second = await here.open("127.0.0.2"), await here.open("127.0.0.2")
        other = await here.open("127.0.0.3")
        for streams in (first, second, other):
            assert await ask(streams) == b"200"
        assert await ask(await here.open("127.0.0.2")) == b"200"
        assert await ended(first) == b""
        for streams in (second, other):
            assert await ask(streams) == b"200"

    port(Bounds(of_one=2)).run(scenario)


def test_a_client_that_is_slow_to_send_a_body_gives_way() -> None:
    async def scenario(here: Port) -> None:
        slow = [await here.open("127.0.0.2") for _ in range(2)]
        for _, writer in slow:
            writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx")
        await asyncio.sleep(0.1)
        assert await ask(await here.open("127.0.0.3")) == b"200"
        assert await ended(slow[0]) == b""
        assert here.refused("connections") == 1

    async def reading(scope: Scope, receive: Receive, send: Send) -> None:
        while scope["method"] == "POST" and (await receive()).get("more_body"):
            pass
        await app(scope, receive, send)

    port(Bounds(connections=2, of_one=2), reading).run(scenario)


def test_clients_that_do_not_read_keep_no_one_out() -> None:
    async def scenario(here: Port) -> None:
        lazy = [here.connect(f"127.0.0.{n}") for n in range(2, 10)]
        for client in lazy:
            client.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(0.3)
        for _ in range(3):
            for path in ("/livez", "/"):
                assert await ask(await here.open("127.0.0.99"), path) == b"200"
        for client in lazy:
            client.close()

    port(Bounds(connections=12, requests=4)).run(scenario)


def test_answers_that_are_not_read_stay_with_the_agent_and_not_in_the_kernel() -> None:
    """What the kernel holds for a client of the same host lies in the client's own buffer too."""

    async def scenario(here: Port) -> None:
        lazy = here.connect("127.0.0.2")
        lazy.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(0.5)
        server = next(one for one in psutil.Process().net_connections() if one.raddr == lazy.getsockname())
        with socket.fromfd(server.fd, socket.AF_INET, socket.SOCK_STREAM) as theirs:
            unsent = struct.unpack("i", fcntl.ioctl(theirs, termios.TIOCOUTQ, bytes(4)))[0]
        assert 0 < unsent <= 4 * SEND_BYTES
        lazy.close()

    port(Bounds()).run(scenario)


def test_the_end_of_a_small_answer_that_is_not_read_is_noticed() -> None:
    """asyncio tells a protocol of 64 KiB in its buffer, and a scrape leaves less."""

    def waiting(one: socket.socket, question: int) -> int:
        found: int = struct.unpack("i", fcntl.ioctl(one, question, bytes(4)))[0]
        return found

    async def sized(scope: Scope, _receive: Receive, send: Send) -> None:
        size = int(scope["query_string"] or 0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * size})

    async def scenario(here: Port) -> None:
        first, second = here.connect("127.0.0.2"), here.connect("127.0.0.3")
        first.sendall(b"GET /?8000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(0.3)
        server = next(one for one in psutil.Process().net_connections() if one.raddr == first.getsockname())
        with socket.fromfd(server.fd, socket.AF_INET, socket.SOCK_STREAM) as theirs:
            held = waiting(theirs, termios.TIOCOUTQ) + waiting(first, termios.FIONREAD)
        second.sendall(b"GET /?%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % (held + 30_000))
        await here.until_refused("slow", 2)
        assert here.refused("slow") == 2
        first.close()
        second.close()

    port(Bounds(patience=1.0), sized).run(scenario)


def test_connections_that_ended_leave_nothing_to_the_garbage_collector() -> None:
    """Each would keep its answer until a full collection, which may come much later."""

    async def scenario(here: Port) -> None:
        gc.collect()
        gc.disable()
        lazy = [here.connect(f"127.0.0.{2 + n % 8}") for n in range(24)]
        for client in lazy:
            client.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        await here.until_refused(("slow", "connections"), len(lazy))
        for client in lazy:
            client.close()
        reset = await here.open("127.0.0.30")
        assert await ask(reset) == b"200"
        # Its end is an error then, after which uvicorn's timer for kept connections would keep it.
        reset[1].get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        reset[1].transport.abort()
        await asyncio.sleep(0.3)
        kinds = HttpConnection | Exchange | RequestResponseCycle | Admission
        assert not [one for one in gc.get_objects() if isinstance(one, kinds)]

    try:
        port(Bounds(connections=16, patience=0.5), None).run(scenario)
    finally:
        gc.enable()


def test_a_request_too_many_is_told_to_come_back_but_not_for_an_open_path() -> None:
    go_on = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await go_on.wait()
        await app(scope, receive, send)

    async def scenario(here: Port) -> None:
        working = asyncio.create_task(ask(await here.open("127.0.0.2"), "/slow"))
        await asyncio.sleep(0.1)
        assert await ask(await here.open("127.0.0.3")) == b"503"
        assert await ask(await here.open("127.0.0.3"), "/livez") == b"200"
        go_on.set()
        assert await working == b"200"
        assert await ask(await here.open("127.0.0.3")) == b"200"

    port(Bounds(requests=1), slow).run(scenario)


def test_thousands_at_once_leave_descriptors_and_the_loop_alone() -> None:
    """Each is taken and closed again before the next; a client that keeps to its few is served meanwhile."""

    async def scenario(here: Port) -> None:
        before = descriptors()
        clients = []
        for n in range(600):
            clients.append(here.connect(f"127.0.1.{n % 4}", wait=False))
            if n % 100 == 99:
                assert await ask(await here.open("127.0.0.2")) == b"200"
                assert descriptors() - before - len(clients) < 40
        for client in clients:
            client.close()

    port(Bounds(connections=16, of_one=4)).run(scenario)


def test_at_a_local_socket_a_client_is_a_user(tmp_path: Path) -> None:
    async def scenario(here: Port) -> None:
        first, second = await here.open(), await here.open()
        assert await ask(await here.open()) == b"200"
        assert await ended(first) == b""
        assert await ask(second) == b"200"

    Port(local(str(tmp_path / "w.sock")), Bounds(of_one=2)).run(scenario)


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


def test_handshakes_that_are_not_made_keep_no_one_out(secured: Callable[[Bounds], Port]) -> None:
    async def scenario(here: Port) -> None:
        silent = [here.connect() for _ in range(3)]
        await asyncio.sleep(0.2)
        assert await ask(await here.open()) == b"200"
        assert here.refused("connections") == 1
        for one in silent:
            one.close()
        await here.until_refused("tls", 2)
        for streams in [await here.open() for _ in range(3)]:
            assert await ask(streams) == b"200"

    secured(Bounds(of_one=3)).run(scenario)


def test_a_handshake_has_an_end(secured: Callable[[Bounds], Port]) -> None:
    async def scenario(here: Port) -> None:
        with closing(here.connect()) as silent:
            silent.sendall(b"\x16\x03\x01\x02\x00\x01")
            await here.until_refused("tls")
        assert await ask(await here.open()) == b"200"

    secured(Bounds(of_one=1, handshake=0.3)).run(scenario)


def test_handshakes_that_are_under_way_do_not_hold_the_end(secured: Callable[[Bounds], Port]) -> None:
    begun: list[socket.socket] = []

    async def scenario(here: Port) -> None:
        begun.extend(here.connect() for _ in range(3))
        begun[0].sendall(b"\x16\x03\x01\x02\x00\x01")
        await asyncio.sleep(0.1)

    secured(Bounds(handshake=PATIENT)).run(scenario)
    for one in begun:
        assert one.recv(1) == b""
        one.close()


def test_the_end_waits_for_an_answer_and_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """What is answered within the grace is read by the client; what is not is ended, without a traceback."""
    asked: list[socket.socket] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.3 if scope["path"] == "/slow" else PATIENT)
        await app(scope, receive, send)

    async def scenario(here: Port) -> None:
        for path in (b"/slow", b"/stuck"):
            asked.append(here.connect())
            asked[-1].sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(0.1)

    port(Bounds(), slow).run(scenario)
    answers = [one.recv(1 << 16) for one in asked]
    for one in asked:
        one.close()
    assert answers[0].endswith(b"here")
    assert answers[1] == b""
    assert "Traceback" not in caplog.text


def test_handshakes_that_gave_way_or_failed_leave_nothing_to_the_garbage_collector(
    secured: Callable[[Bounds], Port],
) -> None:
    """Each has a buffer of 256 KiB."""

    async def scenario(here: Port) -> None:
        gc.collect()
        gc.disable()
        silent = [here.connect(f"127.0.0.{2 + n % 8}") for n in range(24)]
        silent[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        await here.until_refused(("connections", "tls"), len(silent))
        await asyncio.sleep(0.1)
        for one in silent:
            one.close()
        assert not [
            one for one in gc.get_objects() if isinstance(one, HttpConnection | SSLProtocol | Admission)
        ]

    try:
        secured(Bounds(connections=16, handshake=0.3)).run(scenario)
    finally:
        gc.enable()


def test_an_answer_that_ends_a_connection_over_tls_is_read_as_slowly_as_others(
    secured: Callable[[Bounds], Port],
) -> None:
    """The end over TLS has a time of its own, in which the answer may still be on its way."""

    async def scenario(here: Port) -> None:
        reader, writer = await here.open()
        writer.write(b"GET /big HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert await reader.read(1)
        await asyncio.sleep(2.5)
        assert len(await ended((reader, writer))) >= len(BIG)

    secured(Bounds()).run(scenario)


def test_the_end_of_a_client_over_tls_is_no_half_of_a_connection(
    secured: Callable[[Bounds], Port], caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio warns of a protocol that wants to go on."""

    def asked(here: Port) -> None:
        assert here.tls is not None
        with here.connect() as plain, here.tls.wrap_socket(plain, server_hostname="localhost") as client:
            client.settimeout(HANGS)
            client.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            with suppress(OSError):
                client.unwrap()

    async def scenario(here: Port) -> None:
        await asyncio.to_thread(asked, here)

    secured(Bounds()).run(scenario)
    assert caplog.records == []


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
