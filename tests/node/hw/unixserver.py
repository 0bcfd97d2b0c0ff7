"""A unix socket whose owner treats every client in one way."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Behaviour = Callable[[socket.socket], None]
Listen = Callable[[Behaviour], str]


def more(client: socket.socket) -> bytes:
    """Raises ConnectionError when no more comes."""
    data = client.recv(65536)
    if not data:
        raise ConnectionError
    return data


def drain(client: socket.socket) -> bytes:
    """What was asked, head and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += more(client)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
    while lengths and len(body) < int(lengths[0]):
        body += more(client)
    return head + b"\r\n\r\n" + body


@contextmanager
def listening(folder: Path) -> Iterator[Listen]:
    """Listens at as many sockets as are asked for; each treats everybody who comes in its way."""
    servers: list[socket.socket] = []

    def start(behave: Behaviour) -> str:
        path = folder / f"{len(servers)}.sock"
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen(8)
        servers.append(server)

        def serve() -> None:
            # Closed here: else the next server could get the descriptor on which this thread still accepts.
            with server, suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, suppress(OSError):
                        behave(client)

        threading.Thread(target=serve, daemon=True).start()
        return str(path)

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)


def says(answer: bytes, *, piece: int = 1 << 20, pause: float = 0.0, stays: float = 0.0) -> Behaviour:
    def behave(client: socket.socket) -> None:
        drain(client)
        for start in range(0, len(answer), piece):
            client.sendall(answer[start : start + piece])
            time.sleep(pause)
        time.sleep(stays)

    return behave
