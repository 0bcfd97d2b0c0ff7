"""Asking a process of ours on this machine over its unix socket: one question, one answer, one deadline.

h11 and a socket of our own: http.client imports a mail parser and TLS, which costs more than the answer, and
its timeout is of one read, so that a daemon that trickles would hold the caller for ever.
"""

import socket
import time
from collections.abc import Sequence

import h11

LIMIT = 64 << 20
"""Bytes of an answer; more is not one of ours."""
STRANGE = "half an answer, or what answers there is not wirewatch"
Headers = Sequence[tuple[str, str]]
_PIECE = 1 << 16
_AGAIN = 0.01
"""Seconds between attempts while too many others wait to be let in."""


class NoAnswer(Exception):
    """Nobody answered, or only in part; the text is one line for the user and names the socket.

    `there`: whether somebody listens there, `heard`: whether the question may have been heard.
    """

    def __init__(self, text: str, *, there: bool = True, heard: bool = False) -> None:
        super().__init__(text)
        self.there, self.heard = there, heard


def request(
    path: str, method: str, target: str, body: bytes | None, deadline: float, who: str = "the daemon",
    headers: Headers = (),
) -> tuple[int, bytes]:  # fmt: skip
    """Ask over HTTP, `deadline` in seconds for all of it; `body` is JSON, `who` is asked, in words.

    Returns:
        Status and body.

    Raises:
        NoAnswer: no socket there, not allowed, refused, overdue, or half an answer.
    """
    end, heard = time.monotonic() + deadline, False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            _connect(server, path, end)
            client = h11.Connection(h11.CLIENT)
            server.settimeout(_left(end))
            heard = True
            server.sendall(_question(client, method, target, body, headers))
            return _answer(client, server, end)
    except (OSError, ValueError, h11.RemoteProtocolError) as error:
        there = not isinstance(error, FileNotFoundError | ConnectionRefusedError)
        raise NoAnswer(f"{path}: {_why(error, deadline, who)}", there=there, heard=heard) from error


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
        case h11.RemoteProtocolError():
            return STRANGE
        case _:
            return str(getattr(error, "strerror", None) or error)


def _question(client: h11.Connection, method: str, target: str, body: bytes | None, more: Headers) -> bytes:
    headers = [("Host", "localhost"), ("Connection", "close"), *more]
    if body is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    events = [h11.Request(method=method, target=target, headers=headers)]
    data = [client.send(event) for event in (*events, h11.Data(data=body or b""), h11.EndOfMessage())]
    return b"".join(part for part in data if part)


def _connect(server: socket.socket, path: str, end: float) -> None:
    """A unix socket whose queue is full refuses at once instead of letting wait."""
    while True:
        server.settimeout(_left(end))
        try:
            server.connect(path)
        except BlockingIOError:
            time.sleep(min(_AGAIN, _left(end)))
        else:
            return


def _answer(client: h11.Connection, server: socket.socket, end: float) -> tuple[int, bytes]:
    """Raises ValueError and RemoteProtocolError for what is no whole answer."""
    status, whole = 0, bytearray()
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            server.settimeout(_left(end))
            client.receive_data(server.recv(_PIECE))
        elif isinstance(event, h11.Response):
            status = event.status_code
            if not {b"content-length", b"transfer-encoding"} & {name for name, _ in event.headers}:
                raise ValueError(STRANGE)  # one that ends with the connection may be half of it
        elif isinstance(event, h11.Data):
            whole += event.data
            if len(whole) > LIMIT:
                raise ValueError(STRANGE)
        elif isinstance(event, h11.EndOfMessage):
            return status, bytes(whole)
        elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            raise ValueError(STRANGE)


def _left(end: float) -> float:
    """Seconds left, more than none; raises TimeoutError."""
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
