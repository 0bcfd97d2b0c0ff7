"""The sockets that are listened on: where they are, who may connect, and one line for what cannot be."""

import errno
import grp
import os
import socket
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from wirewatch.client import listens
from wirewatch.server import sockets
from wirewatch.server.peer import Peer, peer_of
from wirewatch.server.sockets import (
    ListenError,
    control,
    control_path,
    default_path,
    demo_path,
    local,
    tcp,
)


def said(make: Callable[[], socket.socket]) -> str:
    with pytest.raises(ListenError, match=r"^cannot listen on [^\n]+$") as caught:
        make()
    return str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_is_listened_on_at_once_and_again_after_a_restart(host: str) -> None:
    with closing(tcp(host, 0)) as server:
        assert server.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
        assert server.proto == socket.IPPROTO_TCP
        with socket.create_connection(server.getsockname()[:2]):
            pass


def test_a_port_that_is_taken_is_said_with_another_to_choose() -> None:
    with closing(tcp("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        other = port + 1 if port < 65535 else port - 1
        assert said(lambda: tcp("127.0.0.1", port)).endswith(f"such as --listen 127.0.0.1:{other}")


@pytest.mark.parametrize(
    ("number", "port", "words"),
    [
        (errno.EADDRINUSE, 65534, "such as --listen 127.0.0.1:65535"),
        (errno.EADDRINUSE, 65535, "such as --listen 127.0.0.1:65534"),
        (errno.EADDRNOTAVAIL, 65534, "Cannot assign requested address"),
    ],
)
def test_the_advice_for_a_port(number: int, port: int, words: str) -> None:
    told = vars(sockets)["_why"](OSError(number, os.strerror(number)), port)
    assert told.removeprefix("another program uses that port; choose one, ") == words


def test_an_error_without_a_number_is_said_in_its_own_words() -> None:
    assert vars(sockets)["_why"](OSError("idna says no"), 1) == "idna says no"


OTHER = os.getegid() or 1
"""A group that this process may give to a socket; as root it is not its own."""


@pytest.mark.parametrize(
    ("group", "expected"),
    [(None, os.getegid()), (str(OTHER), OTHER), (grp.getgrgid(OTHER).gr_name, OTHER)],
)
def test_a_local_socket_has_its_mode_and_group(tmp_path: Path, group: str | None, expected: int) -> None:
    path = tmp_path / "made" / "for" / "s"
    with closing(local(str(path), 0o660, group)):
        assert listens(str(path))
        found = path.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, expected)
    with closing(local(str(path))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_a_socket_that_is_answered_at_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with closing(local(path)):
        assert said(lambda: local(path)).endswith("another agent answers there")
        assert listens(path)


def test_a_file_is_never_removed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept", "utf-8")
    assert said(lambda: local(str(file))).endswith("not a socket")
    assert said(lambda: local(str(file / "below"))).endswith("File exists")
    assert file.read_text("utf-8") == "kept"


def test_the_socket_for_orders_is_beside_the_other_and_for_its_user_alone(tmp_path: Path) -> None:
    with closing(control(str(tmp_path / "wirewatch.sock"))):
        assert stat.S_IMODE((tmp_path / "control.sock").stat().st_mode) == 0o600
    assert said(lambda: control(str(tmp_path / "control.sock"))).endswith("for orders beside it")
    assert (control_path(""), control_path("/run/x/wirewatch.sock")) == ("", "/run/x/control.sock")


@pytest.mark.parametrize(
    ("runtime", "user", "uid", "expected"),
    [
        ("/run/a:/run/b", "/run/user/0", 0, "/run/a/wirewatch.sock"),
        ("", "/run/user/0", 0, "/run/wirewatch/wirewatch.sock"),
        ("", "/run/user/7", 7, "/run/user/7/wirewatch/wirewatch.sock"), ("", "", 7, ""),
    ],
)  # fmt: skip
def test_the_place_of_a_socket_that_nobody_names(
    monkeypatch: pytest.MonkeyPatch, runtime: str, user: str, uid: int, expected: str
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", runtime)
    monkeypatch.setenv("XDG_RUNTIME_DIR", user)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert default_path() == expected


@pytest.mark.parametrize(
    ("user", "uid", "expected"),
    [
        ("/run/user/7", 7, "/run/user/7/wirewatch-demo"), ("/run/user/0", 0, "/run/user/0/wirewatch-demo"),
        ("", 7, "/tmp/wirewatch-demo-7"), ("", 0, "/run/wirewatch-demo"),
    ],
)  # fmt: skip
def test_the_place_of_a_demo(monkeypatch: pytest.MonkeyPatch, user: str, uid: int, expected: str) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", user)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert demo_path() == f"{expected}/wirewatch.sock"


def test_a_socket_that_comes_to_nothing_is_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(ListenError, match="no such group") as caught:
        local(str(tmp_path / "s"), group="nobody-has-this-name")
    assert caught.value.__cause__
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_process_at_the_other_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        told = peer_of(ours)
    assert told == Peer(os.getpid(), os.geteuid(), os.getegid(), frozenset(os.getgroups()))
    assert [Peer(1, 2, 3, frozenset({4})).belongs(group) for group in (2, 3, 4)] == [False, True, True]
