"""Asking over a unix socket: a good answer, every bad one, and the deadline whatever the other side does."""

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.hw.unixserver import Behaviour, Listen, drain, listening, says
from tests.patience import HANGS
from tests.rows import each
from wirewatch import client
from wirewatch.client import STRANGE, NoAnswer, NotHttp, exchange, left, listens, request

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
    assert b"\r\nContent-Type: application/json\r\n" in head
    assert sent == body
    assert request(listen(behave), "GET", "/health", None, SOON)[0] == 503
    assert b"Content-" not in asked[1]


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


@pytest.mark.parametrize(
    ("behave", "words", "there", "heard", "dropped"),
    [
        (None, "no such socket", False, False, False),
        (lambda _: None, "closed the connection", True, True, True),
        (says(b"SSH-2.0\r\n\r\n"), STRANGE, True, True, False),
        (lambda _: time.sleep(1), "no answer within", True, True, False),
    ],
    ids=["no socket", "closed", "no HTTP", "silent"],
)
def test_who_asks_learns_whether_to_ask_again(
    listen: Listen, tmp_path: Path, *, behave: Behaviour | None, words: str, there: bool, heard: bool,
    dropped: bool,
) -> None:  # fmt: skip
    path = listen(behave) if behave else str(tmp_path / "none")
    with pytest.raises(NoAnswer, match=words) as told:
        request(path, "GET", "/", None, SHORT)
    assert (told.value.there, told.value.heard, told.value.dropped) == (there, heard, dropped)


def test_a_path_that_is_not_given_or_leads_through_a_file_is_said_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match=r"^no socket is named$") as told:
        request("", "GET", "/", None, SOON)
    assert not told.value.there
    (tmp_path / "file").touch()
    assert refused(str(tmp_path / "file" / "under")) == "Not a directory"


def test_a_full_queue_is_not_waited_for_by_who_asks_whether_anybody_listens(tmp_path: Path) -> None:
    path = str(tmp_path / "full")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(path)
        server.listen(0)
        first.connect(path)
        assert listens(path)


def test_a_server_that_does_not_read_a_body_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(TimeoutError):
        exchange(ours, "POST", "/", [("Host", "x")], b"x" * 8_000_000, time.monotonic() + SHORT, 1)


def test_no_time_is_left_at_the_deadline_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: 5.0))
    assert left(5.5) == 0.5
    with pytest.raises(TimeoutError):
        left(5.0)


@each(
    ("length", "declared", "limit", "words"),
    [
        (0, "content-length: 0", 0, ""), (1 << 20, "content-length: 1048576", 1 << 20, ""),
        ((1 << 20) + 1, "content-length: 1048577", 1 << 20, "it is larger than 1 MiB"),
        (4, "transfer-encoding: chunked", 4, ""), (4, "x: y", 4, "it does not say how long it is"),
        (4, "content-length: 5", 5, "it is no HTTP"),
    ],
)  # fmt: skip
def test_what_an_answer_must_say_of_its_length(length: int, declared: str, limit: int, words: str) -> None:
    ours, theirs = socket.socketpair()
    body = b"4\r\nxxxx\r\n0\r\n\r\n" if "chunked" in declared else b"x" * length

    def answer() -> None:
        with theirs:
            drain(theirs)
            theirs.sendall(f"HTTP/1.1 200 OK\r\nX-Own: \xe9\r\n{declared}\r\n\r\n".encode("latin-1") + body)

    thread = threading.Thread(target=answer)
    thread.start()
    with ours, pytest.raises(NotHttp, match=words) if words else nullcontext():
        reply = exchange(ours, "GET", "/", [("Host", "x")], None, time.monotonic() + SOON, limit)
        assert (reply.status, reply.headers["x-own"], reply.body) == (200, "\xe9", b"x" * length)
    thread.join()


def folder(path: Path, mode: int, owner: int) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, owner, -1)
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(
    ("mode", "owner", "user", "believed"),
    [
        (0o755, 7, 7, True), (0o777, 0, 7, False), (0o1777, 0, 7, False), (0o1777, 0, 0, True),
        (0o777, 0, 0, False),
    ],
)  # fmt: skip
def test_a_socket_of_another_user_counts_where_others_cannot_place_one(
    tmp_path: Path, *, mode: int, owner: int, user: int, believed: bool
) -> None:
    """The folder above is root's alone, or this one's mode alone decides."""
    place = folder(tmp_path / "one", mode, owner) / "s"
    with nullcontext() if believed else pytest.raises(Exception, match=rf"^user {user} listens there"):
        vars(client)["_placed"](str(place), user)


@pytest.mark.parametrize(("user", "looked"), [(0, False), (os.geteuid(), False), (os.geteuid() + 7, True)])
def test_the_folders_are_looked_at_for_a_socket_of_another_user_alone(
    monkeypatch: pytest.MonkeyPatch, *, user: int, looked: bool
) -> None:
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(client, "_placed", lambda path, of: seen.append((path, of)))
    identity = struct.pack("3i", 1, user, 2)
    vars(client)["_know"](SimpleNamespace(getsockopt=lambda *_: identity), "/run/s")
    assert seen == ([("/run/s", user), ("/run/s", user)] if looked else [])


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


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
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
