"""Asking over a unix socket: a good answer, every bad one, and the deadline whatever the other side does."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.node.hw.unixserver import Behaviour, Listen, drain, listening, says
from tests.patience import HANGS
from wirewatch.client import STRANGE, NoAnswer, listens, request

GOOD = b'HTTP/1.1 503 Service Unavailable\r\ncontent-length: 11\r\nX: y\r\n\r\n{"ok": "no"}'[:-1]
SHORT = 0.3
SOON = HANGS


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Listen]:
    with listening(tmp_path) as start:
        yield start


def refused(path: str, deadline: float = SOON) -> str:
    with pytest.raises(NoAnswer) as error:
        request(path, "GET", "/health", None, deadline)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_an_answer_in_any_pieces(listen: Listen, piece: int) -> None:
    path = listen(says(GOOD, piece=piece))
    assert request(path, "GET", "/health", None, SOON) == (503, b'{"ok": "no"')


def test_an_answer_of_a_connection_that_stays_open_is_not_waited_for(listen: Listen) -> None:
    began = time.monotonic()
    assert request(listen(says(GOOD, stays=2 * HANGS)), "GET", "/", None, SOON)[0] == 503
    assert time.monotonic() - began < HANGS


def test_a_body_is_sent_whole(listen: Listen) -> None:
    asked: list[bytes] = []

    def behave(client: socket.socket) -> None:
        asked.append(drain(client))
        client.sendall(GOOD)

    body = b'{"why": "' + b"x" * 300_000 + b'"}'
    assert request(listen(behave), "POST", "/release", body, SOON)[0] == 503
    head, _, sent = asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /release HTTP/1.1\r\nHost: ")
    assert sent == body


def test_an_answer_without_a_body(listen: Listen) -> None:
    assert request(listen(says(b"HTTP/1.1 204 No\r\nContent-Length:0\r\n\r\n")), "GET", "/", None, SOON) == (
        204,
        b"",
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n1234",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nall of it",
        b"HTTP/1.1 two\r\ncontent-length: 1\r\n\r\n1",
        b"HTTP/1.1 20\r\ncontent-length: 1\r\n\r\n1",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"\xff" * 100_000,
    ],
)
def test_half_an_answer_and_no_http_are_reported(listen: Listen, answer: bytes) -> None:
    assert refused(listen(says(answer))) == STRANGE


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_a_connection_that_is_closed_before_an_answer_is_reported(listen: Listen, answer: bytes) -> None:
    assert refused(listen(says(answer))) == "the daemon closed the connection without an answer"


@pytest.mark.parametrize(
    "behave",
    [lambda _: time.sleep(3), says(GOOD[:-1], stays=3.0), says(GOOD * 50, piece=1, pause=0.05)],
    ids=["silent", "stops", "trickles"],
)
def test_the_deadline_is_of_all_of_it(listen: Listen, behave: Behaviour) -> None:
    assert refused(listen(behave), SHORT) == f"no answer within {SHORT:g} s"


def test_no_time_at_all_is_no_answer(listen: Listen) -> None:
    assert refused(listen(says(GOOD)), 0.0) == "no answer within 0 s"


def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    assert "no such socket" in refused(str(tmp_path / "none"))


def test_nothing_listens_where_no_socket_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    for path in ("", "x" * 120, str(tmp_path), str(tmp_path / "file"), str(tmp_path / "file" / "under")):
        assert not listens(path), path


def test_a_socket_where_nobody_listens_any_more(tmp_path: Path) -> None:
    path = tmp_path / "left"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    assert "nothing listens" in refused(str(path))


def test_a_file_and_a_name_that_is_too_long_are_no_sockets(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert refused(str(file))
    assert refused(str(tmp_path / ("x" * 200))) == "the path of a socket has at most 107 bytes"
    assert refused(str(tmp_path)) == "not a socket"


def test_who_finds_a_queue_waits_his_turn(tmp_path: Path) -> None:
    """A queue that is full refuses at once; a storm of callers must not read as "the daemon is gone"."""
    path = tmp_path / "busy"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(0)
        waiting = []
        for _ in range(8):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(0)
            waiting.append(client)
            if client.connect_ex(str(path)):
                break
        assert refused(str(path), SHORT) == f"no answer within {SHORT:g} s"

        def serve() -> None:
            time.sleep(SHORT)
            for client in waiting:
                client.close()
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, suppress(OSError, IndexError):
                        says(GOOD)(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert request(str(path), "GET", "/", None, SOON)[0] == 503
        server.shutdown(socket.SHUT_RDWR)
        thread.join(SOON)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answer=st.binary(max_size=80) | st.binary(max_size=40).map(lambda rest: GOOD[:30] + rest))
def test_whatever_is_answered_it_is_an_answer_or_none(listen: Listen, answer: bytes) -> None:
    path = listen(says(answer))
    try:
        status, _ = request(path, "GET", "/", None, SOON)
        assert 0 <= status < 1000
    except NoAnswer:
        pass


def test_a_name_that_no_socket_can_have_is_no_answer() -> None:
    assert "surrogates not allowed" in refused("\ud800")
