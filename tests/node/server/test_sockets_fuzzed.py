"""Any bytes at the sockets of a daemon and of a prober: answers or none, and afterwards all is as before."""

import json
import socket
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.daemon.proberprocess import DEMO, ProberProcess
from tests.node.daemon.process import FAST, Daemon
from tests.patience import HANGS
from wirewatch.client import request

SOON = HANGS
HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
SAYS = b'{"by": "ann", "why": "it is so"}'
ORDER = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(SAYS), SAYS)
TOLD = (
    b'{"by": "ann", "result": {"at": 1.0, "member": "n1", "nodes": 1, "judged": true, "parts": [], '
    b'"measured": [["rails", null]], "partners": ["n2"]}}'
)
TELLS = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(TOLD), TOLD)
GOOD: Mapping[str, tuple[bytes, ...]] = {
    "questions": (
        b"GET /health" + HOST + b"\r\n", b"GET /metrics" + HOST + b"Accept: text/plain\r\n\r\n",
        b"HEAD /livez" + HOST + b"Connection: close\r\n\r\n", b"GET /api/v1/findings/x" + HOST + b"\r\n",
        b"GET / HTTP/1.0\r\n\r\n", b"OPTIONS *" + HOST + b"\r\n", b"GET http://a/livez" + HOST + b"\r\n",
        b"GET /readyz" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"GET /readyz" + HOST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"GET /livez" + HOST + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ),
    "control": (
        b"POST /resume" + HOST + ORDER, b"POST /findings/x" + HOST + ORDER, b"POST /topology" + HOST + ORDER,
        b"POST /pairs" + HOST + TELLS,
        b"GET /health" + HOST + b"\r\n", b"POST /resume" + HOST + b"Content-Length: 4\r\n\r\nnull",
    ),
    "prober": (
        b"GET /" + HOST + b"\r\n", b"POST /facts" + HOST + ORDER, b"POST /probe" + HOST + ORDER,
        b"POST /terms" + HOST + b"Wirewatch-Version: 1\r\n" + ORDER,
    ),
}  # fmt: skip
LINES = st.sampled_from(
    [
        b"\r\n", b"\n", b"\r\n\r\n", b"\0", b"\xff\xfe", b"HTTP/9.9", b"Content-Length: 5\r\n", b": x\r\n",
        b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: other\r\n", b" x\r\n", b"%00",
        b"X: " + b"y" * 20_000 + b"\r\n", b"A: b\r\n" * 300, b"ffffffffffffffff\r\n", b"GET", b"//",
        b"[" * 5000,
    ]
)  # fmt: skip
AT = st.integers(0, 400)


def cut(data: bytes, start: int, length: int, put: bytes) -> bytes:
    """With other bytes in the place of some."""
    start %= len(data) + 1
    return data[:start] + put + data[start + length :]


def requests(good: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Up to four requests after each other, with up to four pieces gone, or with others in their place."""
    steps = st.lists(
        st.tuples(AT, st.integers(0, 40), st.just(b"") | LINES | st.binary(max_size=6)), max_size=4
    )
    whole = st.lists(st.sampled_from(good), min_size=1, max_size=4).map(b"".join)
    return st.builds(lambda data, changes: reduce(lambda d, c: cut(d, *c), changes, data), whole, steps)


class Node:
    """A daemon and a prober over recordings, with the paths of their sockets."""

    def __init__(self, daemon: Daemon, prober: ProberProcess, folder: Path) -> None:
        self.daemon, self.prober = daemon, prober
        self.sockets = {
            "questions": str(folder / "wirewatch.sock"), "control": str(folder / "control.sock"),
            "prober": prober.socket,
        }  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    config = FAST.replace('socket = ""', f'socket = "{folder}/wirewatch.sock"')
    with Daemon(("--replay", "h200x1-idle"), folder, config) as daemon:
        daemon.ready()
        with ProberProcess(folder, ("--replay", DEMO)) as prober:
            yield Node(daemon, prober, folder)


def sent(path: str, data: bytes, piece: int) -> bytes:
    """All that is answered to these bytes, until the other side hangs up."""
    answer = b""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SOON)
        client.connect(path)
        try:
            for start in range(0, len(data), piece):
                client.sendall(data[start : start + piece])
            client.shutdown(socket.SHUT_WR)
            while more := client.recv(65536):
                answer += more
        except (BrokenPipeError, ConnectionResetError):
            pass
    return answer


@settings(max_examples=examples(600), suppress_health_check=list(HealthCheck))
@given(data=st.data(), name=st.sampled_from(tuple(GOOD)), piece=st.sampled_from([1 << 20, 100, 7]))
def test_any_bytes_are_answered_or_refused(node: Node, data: st.DataObject, name: str, piece: int) -> None:
    answer = sent(node.sockets[name], data.draw(requests(GOOD[name]) | st.binary(max_size=200)), piece)
    assert not answer or answer.startswith(b"HTTP/1.")
    assert b"HTTP/1.1 500" not in answer


def test_what_was_sent_has_changed_nothing(node: Node) -> None:
    """After the test above, and by itself: who asks now is answered, and no log has a traceback."""
    for name, path in node.sockets.items():
        for good in GOOD[name]:
            sent(path, good[: len(good) // 2], 1 << 20)
    status, body = request(node.sockets["questions"], "GET", "/health", None, SOON)
    assert (status, json.loads(body)["health"]) == (200, "ok")
    assert request(node.sockets["prober"], "GET", "/", None, SOON)[0] == 404
    for process in (node.daemon, node.prober):
        assert process.process.poll() is None
        assert "Traceback" not in process.log
        assert len(process.log) < 100_000
