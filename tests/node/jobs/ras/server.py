"""A RAS of our own on real sockets: each connection is treated as the next turn of a list says."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.patience import HANGS

Turn = Callable[[socket.socket, "RasServer"], None]


@dataclass
class RasServer:
    """What listens at `port`; `heard` are the commands that came, a list for each connection."""

    port: int = 0
    heard: list[list[str]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def statuses(self) -> int:
        """How many connections made the job talk."""
        return sum(any("status" in command for command in commands) for commands in self.heard)


def answering(report: str, *, json: bool = True, after: float = 0.0, pieces: int = 1) -> Turn:
    """A live process; before 2.28.7 it knows no JSON. `after` seconds it has the report."""

    def turn(client: socket.socket, server: RasServer) -> None:
        heard: list[str] = []
        server.heard.append(heard)
        for raw in client.makefile("rb"):
            command = raw.decode().strip().lower()
            heard.append(command)
            if command.startswith("client protocol "):
                client.sendall(b"SERVER PROTOCOL 2\n")
            elif command.startswith("timeout ") or (json and command == "set format json"):
                client.sendall(b"OK\n")
            elif command in {"status", "verbose status"}:
                server.over.wait(after)
                data = report.encode()
                size = len(data) // pieces + 1
                for start in range(0, len(data), size):
                    client.sendall(data[start : start + size])
                return
            else:
                client.sendall(f"ERROR: Unknown command {command}\n".encode())

    return turn


def silent(_client: socket.socket, server: RasServer) -> None:
    """A stopped process: the kernel takes the connection, nobody answers."""
    server.heard.append([])
    server.over.wait()


def sending(data: bytes) -> Turn:
    """Whatever is asked."""

    def turn(client: socket.socket, server: RasServer) -> None:
        server.heard.append([])
        client.sendall(data)
        while client.recv(4096):
            pass

    return turn


def once(data: bytes) -> Turn:
    """These bytes and no more, whatever is asked."""

    def turn(client: socket.socket, server: RasServer) -> None:
        server.heard.append([])
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass

    return turn


def endless(head: bytes, part: bytes, pause: float = 0.0) -> Turn:
    """`head`, and then `part` again and again for as long as somebody takes it."""

    def turn(client: socket.socket, server: RasServer) -> None:
        server.heard.append([])
        client.sendall(head)
        while not server.over.is_set():
            client.sendall(part)
            if pause:
                time.sleep(pause)

    return turn


GREETED = b"SERVER PROTOCOL 2\nOK\nOK\n"
"""The answers to what is said before a report is asked for, all at once."""


@contextmanager
def serving(*turns: Turn, host: str = "127.0.0.1") -> Iterator[RasServer]:
    """A server that takes the turns one after the other, and again from the first."""
    server = RasServer()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    order = itertools.cycle(turns)
    with socket.create_server((host, 0), family=family) as listener:
        server.port = listener.getsockname()[1]
        threads: list[threading.Thread] = []

        def treat(client: socket.socket, turn: Turn) -> None:
            with client, suppress(OSError):
                turn(client, server)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threads.append(threading.Thread(target=treat, args=(client, next(order)), daemon=True))
                    threads[-1].start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield server
        finally:
            server.over.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(HANGS)
            for thread in threads:
                thread.join(HANGS)


def by_turns(reports: Sequence[str]) -> list[Turn]:
    """A live process for each of these reports."""
    return [answering(one) for one in reports]
