"""`/health` documents as a daemon gives them, and servers that give them well or badly."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Behaviour = Callable[[socket.socket], None]


def finding(health: str = "failed", **changes: Any) -> dict[str, Any]:
    return {
        "rule": "nvlink.link_down", "health": health, "subject": {"gpu": "3", "uuid": "GPU-3", "link": "5"},
        "evidence": "down in 3 polls", "action": "reset the GPU", "since": 100.0, "id": "0123abcd",
        "stage": "live", "times": 1, "last": 0.0, "acknowledged": None, "suppressed": None,
        "suppressed_until": 0.0, **changes,
    }  # fmt: skip


def health(now: float, told: str = "ok", *findings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A document as of `now`, Unix seconds."""
    probe = {"at": now - 650, "age_seconds": 600.0, "fresh": True, "required": False}
    return {
        "schema": "wirewatch.health/1", "at": now, "health": told, "job_ready": told in {"ok", "degraded"},
        "polled_at": now - 3, "turning": True, "released_until": 0.0, "probe": probe,
        "findings": list(findings), "fail_on": ["unknown", "failed"], **changes,
    }  # fmt: skip


def reply(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def replying(data: bytes) -> Behaviour:
    """Answers with these bytes, and hangs up."""

    def behave(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(data)

    return behave


def trickling(data: bytes, every: float) -> Behaviour:
    """A byte at a time."""

    def behave(client: socket.socket) -> None:
        client.recv(65536)
        for number in range(len(data)):
            client.sendall(data[number : number + 1])
            time.sleep(every)

    return behave


def holding(data: bytes = b"") -> Behaviour:
    """Says so much, and then nothing for ever."""

    def behave(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(data)
        while client.recv(65536):
            pass

    return behave


@contextmanager
def server(folder: Path, behave: Behaviour) -> Iterator[str]:
    """A unix socket that behaves so to everybody who connects; its path."""
    path = str(folder / "wirewatch.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()
        accepting = threading.Thread(target=_accept, args=(listening, behave), daemon=True)
        accepting.start()
        try:
            yield path
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            # The next server may get this one's descriptor, on which this thread must not accept any more.
            accepting.join()


def _accept(listening: socket.socket, behave: Behaviour) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(client, behave), daemon=True).start()


def _serve(client: socket.socket, behave: Behaviour) -> None:
    with client:
        try:
            behave(client)
        except OSError:
            return
