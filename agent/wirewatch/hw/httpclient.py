"""HTTP as a client: one request, its reply, one deadline for both; and asking our own processes.

h11 and a socket: http.client imports a mail parser and TLS, which takes longer than the daemon's answer, and
has a timeout for each read alone, so that a server that trickles would hold the caller for ever.
"""

import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

import h11

LIMIT = 64 << 20
"""Most bytes of an answer; our daemon sends less."""
STRANGE = "half an answer, or what answers there is not wirewatch"
Headers = Sequence[tuple[str, str]]
_PIECE = 1 << 16
_AGAIN = 0.01
"""Seconds between attempts to connect while the socket's queue is full."""


class NoAnswer(Exception):
    """No answer, or only half of one; the text is one line for the user and names the socket.

    `there`: whether a process may listen at the socket. `heard`: whether the request may have been received.
    """

    def __init__(self, text: str, *, there: bool = True, heard: bool = False) -> None:
        super().__init__(text)
        self.there, self.heard = there, heard


class NotHttp(ValueError):
    """What came is no reply over HTTP, no whole one, or too long; the text says so of "it"."""


class HttpReply(NamedTuple):
    """The reply to a request; `headers` by their names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def request(
    path: str, method: str, target: str, body: bytes | None, deadline: float, who: str = "the daemon",
    headers: Headers = (),
) -> tuple[int, bytes]:  # fmt: skip
    """Send one request to a unix socket; `deadline` in seconds for all of it.

    `body` is JSON, `who` names the server in errors.

    Returns:
        Status and body.

    Raises:
        NoAnswer: no socket there, not allowed, refused, overdue, or half an answer.
    """
    end, heard = time.monotonic() + deadline, False
    kind = () if body is None else (("Content-Type", "application/json"),)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            _connect(server, path, end)
            heard = True
            head = (("Host", "localhost"), *headers, *kind)
            reply = exchange(server, method, target, head, body, end, LIMIT)
            return reply.status, reply.body
    except (OSError, EOFError, ValueError) as error:
        there = not isinstance(error, FileNotFoundError | ConnectionRefusedError)
        raise NoAnswer(f"{path}: {_why(error, deadline, who)}", there=there, heard=heard) from error


def exchange(
    server: socket.socket, method: str, target: str, headers: Headers, body: bytes | None, end: float,
    limit: int,
) -> HttpReply:  # fmt: skip
    """Send a request and read its reply of at most `limit` bytes, until `end` (monotonic seconds).

    Raises:
        TimeoutError: that time is over.
        OSError: the connection broke.
        EOFError: nothing came.
        NotHttp: what came is no reply, no whole one, or too long.
    """
    client = h11.Connection(h11.CLIENT)
    head = [*headers, ("Connection", "close")]
    if body is not None:
        head.append(("Content-Length", str(len(body))))
    events = (
        h11.Request(method=method, target=target, headers=head), h11.Data(data=body or b""),
        h11.EndOfMessage(),
    )  # fmt: skip
    server.settimeout(left(end))
    server.sendall(b"".join(client.send(event) or b"" for event in events))
    try:
        return _reply(client, server, end, limit)
    except h11.RemoteProtocolError as error:
        raise NotHttp(f"it is no HTTP: {error}") from error


def left(end: float) -> float:
    """Seconds until `end` (monotonic), above 0; raises TimeoutError when it has passed."""
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _why(error: Exception, deadline: float, who: str) -> str:
    match error:
        case TimeoutError():
            return f"no answer within {deadline:g} s"
        case FileNotFoundError():
            return f"no such socket; does {who} run?"
        case ConnectionRefusedError():
            return f"nobody listens there; {who} does not run"
        case PermissionError():
            return f"not allowed; ask as the user that {who} runs as"
        case EOFError() | NotHttp():
            return STRANGE
        case _:
            return str(getattr(error, "strerror", None) or error)


def _connect(server: socket.socket, path: str, end: float) -> None:
    """Connect, again and again while the queue is full: a unix socket refuses then instead of waiting."""
    while True:
        server.settimeout(left(end))
        try:
            server.connect(path)
        except BlockingIOError:
            time.sleep(min(_AGAIN, left(end)))
        else:
            return


def _reply(client: h11.Connection, server: socket.socket, end: float, limit: int) -> HttpReply:
    """Raises EOFError, NotHttp and h11.RemoteProtocolError."""
    status, headers, whole = 0, dict[str, str](), bytearray()
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            server.settimeout(left(end))
            data = server.recv(_PIECE)
            if not data and not status:
                raise EOFError
            client.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
            if not {"content-length", "transfer-encoding"} & headers.keys():
                raise NotHttp("it does not say how long it is")  # what ends with the connection may be half
        elif isinstance(event, h11.Data):
            whole += event.data
            if len(whole) > limit:
                raise NotHttp(f"it is larger than {limit >> 20} MiB")
        elif isinstance(event, h11.EndOfMessage):
            return HttpReply(status, headers, bytes(whole))
        elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            raise NotHttp("the connection ended before it")
