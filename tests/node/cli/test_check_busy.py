"""A daemon that is there and answers badly is asked again where that helps, and is not one that is gone."""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.node.cli.checks import check
from tests.node.cli.replies import Behaviour, finding, health, reply, replying, server
from tests.patience import HANGS
from tests.processes import run_wirewatch
from wirewatch.cli.check import daemon
from wirewatch.cli.check.answer import Grounds
from wirewatch.cli.check.daemon import ask_daemon, daemon_address
from wirewatch.client import STRANGE, listens
from wirewatch.core.types import Health

SOON = HANGS
SHORT = 0.4
SAYS = """
import os, socket, sys
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    print("listening", flush=True)
    while True:
        client, _ = server.accept()
        try:
            client.recv(65536)
            client.sendall(bytes.fromhex(sys.argv[2]))
        except OSError:
            pass
        client.close()
"""


def failed() -> bytes:
    """The answer of a daemon that polled just now."""
    return reply(json.dumps(health(time.time(), "failed", finding())).encode(), "503 Service Unavailable")


def closes(_client: socket.socket) -> None:
    """At once, with the question unread."""


def resets(client: socket.socket) -> None:
    client.recv(65536)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def later(busy: Behaviour, times: int) -> Behaviour:
    """Busy so many times; then it says FAILED."""
    asked = count()

    def behave(client: socket.socket) -> None:
        (busy if next(asked) < times else replying(failed()))(client)

    return behave


def counted(behave: Behaviour) -> tuple[Behaviour, Callable[[], int]]:
    asked: list[int] = []

    def counting(client: socket.socket) -> None:
        asked.append(1)
        behave(client)

    return counting, lambda: len(asked)


BUSY = pytest.mark.parametrize(
    "busy",
    [
        closes, resets, replying(b""), replying(b"HTTP/1.1 20"), replying(reply(b"", "429 Too Many")),
        replying(reply(b"", "503 Busy")), replying(reply(b"busy\n", "503 Busy")),
        replying(reply(b'{"detail": "64 connections"}', "503 Busy")), replying(reply(b"late", "408 Timeout")),
    ],
    ids=["closes", "resets", "hangs up", "half a line", "429", "503", "503 text", "503 json", "408"],
)  # fmt: skip


@BUSY
def test_a_daemon_that_is_busy_is_asked_again(tmp_path: Path, busy: Behaviour) -> None:
    with server(tmp_path, later(busy, 2)) as path:
        answer = ask_daemon(path, SOON)
    assert isinstance(answer, Grounds)
    assert (answer.health, answer.source) == (Health.FAILED, "daemon")


@BUSY
def test_one_that_stays_busy_is_there_and_says_nothing(tmp_path: Path, busy: Behaviour) -> None:
    with server(tmp_path, busy) as path:
        answer = ask_daemon(path, SHORT)
    assert isinstance(answer, str)
    assert answer.startswith(f"{path}: the daemon ")
    assert answer.endswith(f", asked again for {SHORT:g} s")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (reply(b"sorry", "500 Internal Server Error"), "HTTP status 500 instead of a verdict"),
        (reply(b"{}", "404 Not Found"), "HTTP status 404 instead of a verdict"),
        (reply(failed()[-200:]), "not JSON"),
        (reply(b'{"schema": "wirewatch.health/9"}', "503 No"), "its schema is 'wirewatch.health/9'"),
        (reply(b" " * 10_000_000), "not JSON"),
        (reply(b'{"a": [' + b"0," * 5_000_000 + b"0]}"), "its schema is 'None'"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, STRANGE),
        (failed()[:-1], STRANGE),
        (b"\0" * 100_000, STRANGE),
    ],
    ids=["500", "404", "cut", "schema", "10 MB of space", "10 MB", "headers", "half", "garbage"],
)  # fmt: skip
def test_one_that_says_something_else_is_not_asked_again(tmp_path: Path, answer: bytes, why: str) -> None:
    behave, asked = counted(replying(answer))
    with server(tmp_path, behave) as path:
        told = ask_daemon(path, SOON)
    assert isinstance(told, str)
    assert told.startswith(f"{path}: {why}")
    assert asked() == 1


def test_the_exit_code_of_a_busy_daemon_is_that_of_unknown(tmp_path: Path) -> None:
    told = "the daemon closed the connection without an answer"
    with server(tmp_path, resets) as path:
        cached = ("--socket", path, "--cached", "--deadline", "0.5s")
        for more, code in (((), 3), (("--fail-on", "failed"), 0)):
            done = check(*cached, *more)
            assert (done.code, done.line.startswith(f"UNKNOWN; {path}: {told}")) == (code, True)
        own = check("--socket", path, "--deadline", "3s", "--json").document
    assert own["source"] == "own"
    assert own["why"].startswith(f"a poll without the daemon, since {path}: {told}, asked again for ")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in which every user may write, as /tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def impostor(path: Path) -> "subprocess.Popen[bytes]":
    """Another user's process, which says that all is well."""
    well = reply(json.dumps(health(time.time(), "ok")).encode())
    line = [sys.executable, "-I", "-S", "-c", SAYS, str(path), well.hex()]
    process = subprocess.Popen(line, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"listening\n"
    return process


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_no_other_process_may_stand_for_the_daemon(shared: Path) -> None:
    theirs, link = shared / "theirs", shared / "link.sock"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    link.symlink_to(theirs / "b.sock")
    for bound, asked in ((shared / "a.sock",) * 2, (theirs / "a.sock",) * 2, (theirs / "b.sock", link)):
        with impostor(bound) as process:
            told = ask_daemon(str(asked), SOON)
            refused = run_wirewatch("findings", "list", "--socket", str(asked))
            process.kill()
        said = f"user 65534 listens there, and every user may write in {shared}: not believed"
        assert told == f"{asked}: {said}"
        assert (refused.returncode, refused.stderr) == (69, f"wirewatch: {told}\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_the_user_of_the_service_is_believed_in_a_folder_that_is_given_to_it(shared: Path) -> None:
    """Root made it, so that nobody puts another in its place."""
    given = shared / "outer" / "given"
    given.mkdir(parents=True)
    os.chown(given, 65534, 65534)
    with impostor(given / "a.sock") as process:
        told = ask_daemon(str(given / "a.sock"), SOON)
        process.kill()
    assert isinstance(told, Grounds)


def test_what_a_daemon_left_behind_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / "wirewatch" / "wirewatch.sock"
    left.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    monkeypatch.setattr(daemon, "default_path", lambda: str(left))
    # A demo that runs on this machine is found before what is left behind.
    monkeypatch.setattr(daemon, "demo_path", lambda: str(tmp_path / "none"))
    with server(tmp_path, replying(failed())) as path:
        monkeypatch.setattr(daemon, "SYSTEM", path)
        assert daemon_address(None, None).socket == path
        assert (listens(path), listens(str(left)), listens(str(tmp_path / "none"))) == (True, False, False)
    assert daemon_address(None, None).socket == str(left)
