"""HTTP as a client: one request, its reply, one deadline for both; and asking our own processes.

It uses h11 and a socket. http.client imports a mail parser and TLS, which takes longer than the daemon's
answer. Its timeout is for each read alone, so that a server that trickles would hold the caller for ever.
"""

import os
import socket
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import h11

LIMIT = 64 << 20
"""Most bytes of an answer; our daemon sends less."""
STRANGE = "half an answer, or what answers there is not wirewatch"
LONGEST_PATH = 107
"""Most bytes of a unix socket's path."""
_DROPPED = (EOFError, ConnectionResetError, BrokenPipeError)
Headers = Sequence[tuple[str, str]]
_AGAIN = 0.01
"""Seconds between attempts to connect while the socket's queue is full."""


class NoAnswer(Exception):
    """No answer, or only half of it; the text is one line for the user and names the socket.

    `there`: whether a process may listen at the socket. `heard`: whether the request may have been received.
    `dropped`: the connection was closed without a word, as at a limit; another request may be answered.
    """

    def __init__(self, text: str, *, there: bool = True, heard: bool = False, dropped: bool = False) -> None:
        super().__init__(text)
        self.there, self.heard, self.dropped = there, heard, dropped


class NotHttp(ValueError):
    """The input is no reply over HTTP, not whole, or too long; the text says so of "it"."""


class Impostor(Exception):
    """Anybody may have placed the socket, and it is neither root's nor ours."""


_TEXTS: Sequence[tuple[type[Exception] | tuple[type[Exception], ...], str]] = (
    (TimeoutError, "no answer within {deadline:g} s"),
    (FileNotFoundError, "no such socket; is {who} running?"),
    (ConnectionRefusedError, "nothing listens there; {who} is not running"),
    (PermissionError, "not allowed; ask as the user that {who} runs as"),
    (_DROPPED, "{who} closed the connection without an answer"),
    (NotHttp, STRANGE),
)


class HttpReply(NamedTuple):
    """The reply to a request; `headers` by their names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def request(
    path: str, method: str, target: str, body: bytes | None, deadline: float, who: str = "the daemon",
    headers: Headers = (), *, known: bool = False,
) -> tuple[int, bytes]:  # fmt: skip
    """Send one request to a unix socket and return status and body; `deadline` in seconds for all of it.

    `body` is JSON, `who` names the server in errors. `known`: the server is root or this user, or the socket
    lies where nobody else can place one.

    Raises:
        NoAnswer: no socket there or possible, not allowed, refused, not known, overdue, or half an answer.
    """
    end, heard = time.monotonic() + deadline, False
    kind = () if body is None else (("Content-Type", "application/json"),)
    try:
        wrong = unfit(path)
        if wrong:
            raise NoAnswer(f"{path}: {wrong}" if path else wrong, there=False)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            _connect(server, path, end)
            if known:
                _know(server, path)
            heard = True
            head = (("Host", "localhost"), *headers, *kind)
            reply = exchange(server, method, target, head, body, end, LIMIT)
            return reply.status, reply.body
    except (OSError, EOFError, ValueError, Impostor) as error:
        there = not isinstance(error, FileNotFoundError | ConnectionRefusedError)
        why = next((text for kinds, text in _TEXTS if isinstance(error, kinds)), "")
        why = why.format(deadline=deadline, who=who) or str(getattr(error, "strerror", None) or error)
        dropped = isinstance(error, _DROPPED)
        raise NoAnswer(f"{path}: {why}", there=there, heard=heard, dropped=dropped) from error


def listens(path: str) -> bool:
    """Whether a process may listen at the socket; False where its file was left behind or is no socket."""
    if unfit(path):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.settimeout(0)
        try:
            server.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError, ValueError):
            return False
        except OSError:
            return True  # its queue is full, or it is not for us
    return True


def exchange(
    server: socket.socket, method: str, target: str, headers: Headers, body: bytes | None, end: float,
    limit: int,
) -> HttpReply:  # fmt: skip
    """Send a request and read its reply of at most `limit` bytes, until `end` (monotonic seconds).

    Raises:
    TimeoutError: that time is over.
    OSError: the connection broke.
    EOFError: nothing came.
    NotHttp: the input is no reply, not whole, or too long.
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
    # Where it closes before it has read everything, it may have said why.
    with suppress(BrokenPipeError, ConnectionResetError):
        server.sendall(b"".join(filter(None, map(client.send, events))))
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


def unfit(path: str) -> str:
    """Return why no socket can be at the path, in words; "" where a socket is or could be."""
    if not path:
        return "no socket is named"
    if len(os.fsencode(path)) > LONGEST_PATH:
        return f"the path of a socket has at most {LONGEST_PATH} bytes"
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - `check` waits for it
    except (OSError, ValueError):
        return ""
    return "" if stat.S_ISSOCK(mode) else "not a socket"


def _know(server: socket.socket, path: str) -> None:
    """Check the server; raises Impostor, and OSError where a folder cannot be looked at."""
    identity = server.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    user = int.from_bytes(identity[4:8], sys.byteorder)
    if user not in {0, os.geteuid()}:
        for name in (os.path.abspath(path), os.path.realpath(path)):  # noqa: PTH100 - a socket's, and its target's
            _placed(name, user)


def _placed(path: str, user: int) -> None:
    """Raise Impostor where any user except root and ours may place or replace the file at the path."""
    folder, owner, ours = path, user, (0, os.geteuid())
    while folder != os.path.sep:
        folder = os.path.dirname(folder)  # noqa: PTH120 - text, without a Path for each
        mode = os.stat(folder).st_mode  # noqa: PTH116
        # In a sticky folder, such as /tmp, nobody replaces what is another's.
        if mode & stat.S_IWOTH and not (mode & stat.S_ISVTX and owner in ours):
            raise Impostor(f"user {user} listens there, and every user may write in {folder}: not believed")
        owner = os.lstat(folder).st_uid


def _connect(server: socket.socket, path: str, end: float) -> None:
    """Connect, again and again while the queue is full: then a unix socket refuses instead of waiting."""
    while True:
        server.settimeout(left(end))
        try:
            server.connect(path)
        except BlockingIOError:
            time.sleep(min(_AGAIN, left(end)))
        else:
            return


def _reply(client: h11.Connection, server: socket.socket, end: float, limit: int) -> HttpReply:
    """Read the reply; raises EOFError, NotHttp and h11.RemoteProtocolError."""
    status, headers, whole = 0, dict[str, str](), bytearray()
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            server.settimeout(left(end))
            data = server.recv(1 << 16)
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
