"""Clients: sockets by the thousand, requests byte for byte, and a scraper as Prometheus is one."""

import asyncio
import errno
import http.client
import resource
import selectors
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

Address = tuple[str, int]
Place = Address | str
"""Of a port, or the path of a unix socket."""
WHOLE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
_ROOM = 256
"""Descriptors of our own beside the clients'."""


@contextmanager
def room(count: int) -> Iterator[None]:
    """Enough descriptors for so many clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + _ROOM)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def sources(count: int) -> list[str]:
    """So many loopback addresses, none of which another client uses."""
    return [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count)]


def client(place: Place, source: str = "", *, small: bool = False) -> socket.socket:
    """A socket that is on its way to its server; `small`: it takes few bytes at a time.

    Raises:
        OSError: refused, or a full queue.
    """
    made = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
    try:
        made.setblocking(False)  # noqa: FBT003
        if small:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        if source:
            made.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            made.bind((source, 0))
        code = made.connect_ex(place)
        if code not in {0, errno.EINPROGRESS}:
            raise OSError(code, errno.errorcode[code])  # noqa: TRY301 - the socket is closed below
    except BaseException:
        made.close()
        raise
    return made


_BIND_ADDRESS_NO_PORT = 24
"""IP_BIND_ADDRESS_NO_PORT: a port is chosen when the other end is known, so that they do not run out."""


class Crowd:
    """Many clients at once, each of which says the same and then waits; the ones put out come again.

    Args:
        first: bytes that each sends at once.
        drip: bytes that each sends again and again, one every `pause` seconds.
    """

    def __init__(
        self, place: Place, count: int, froms: Sequence[str], first: bytes = b"", drip: bytes = b"",
        *, pause: float = 1.0, reads: bool = True, again: bool = True,
    ) -> None:  # fmt: skip
        self._place, self._count, self._froms = place, count, froms or ("",)
        self._first, self._drip, self._pause = first, drip, pause
        self._reads, self._again = reads, again
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[socket.socket, int] = {}
        self.opened = self.closed = self.refused = self.peak = 0

    def hold(self, seconds: float) -> None:
        """Keep so many connected for so long."""
        end, next_drip, place = time.monotonic() + seconds, time.monotonic() + self._pause, 0
        while (now := time.monotonic()) < end:
            budget = self._count - len(self._sockets) if self._again or self.opened < self._count else 0
            for _ in range(min(budget, 500)):
                if not self._open(place):
                    break
                place += 1
            self.peak = max(self.peak, len(self._sockets))
            for key, events in self._selector.select(0.01):
                self._served(key.fileobj, events)  # type: ignore[arg-type]
            if self._drip and now >= next_drip:
                next_drip = now + self._pause
                self._drop_bytes()

    def close(self) -> None:
        for one in [*self._sockets]:
            one.close()
        self._sockets.clear()
        self._selector.close()

    def _open(self, number: int) -> bool:
        try:
            made = client(self._place, self._froms[number % len(self._froms)], small=not self._reads)
        except OSError:
            self.refused += 1
            return False
        self._sockets[made] = 0
        self._selector.register(made, selectors.EVENT_WRITE)
        self.opened += 1
        return True

    def _served(self, made: socket.socket, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                if self._first:
                    made.send(self._first)
                if self._reads:
                    self._selector.modify(made, selectors.EVENT_READ)
                else:
                    self._selector.unregister(made)
                return
            if made.recv(1 << 16):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._lose(made)

    def _lose(self, made: socket.socket) -> None:
        self.closed += 1
        with suppress(KeyError, ValueError):
            self._selector.unregister(made)
        del self._sockets[made]
        made.close()

    def _drop_bytes(self) -> None:
        for made, sent in [*self._sockets.items()]:
            try:
                made.send(self._drip[sent % len(self._drip) :][:1])
                self._sockets[made] = sent + 1
            except BlockingIOError:
                continue
            except OSError:
                self._lose(made)


@contextmanager
def crowd(*arguments: object, **given: object) -> Iterator[Crowd]:
    made = Crowd(*arguments, **given)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        made.close()


def say(place: Place, data: bytes, seconds: float = 10.0, source: str = "127.0.0.6") -> bytes:
    """What comes for these bytes until the other side ends it or is silent for a second; b"" for nothing."""
    family = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
    got, end = b"", time.monotonic() + seconds
    with socket.socket(family) as made:
        made.settimeout(1.0 if seconds > 1 else seconds)
        if family == socket.AF_INET:
            made.bind((source, 0))
        with suppress(OSError):
            made.connect(place)
            made.sendall(data)
            while time.monotonic() < end and not _whole(got) and (more := made.recv(1 << 16)):
                got += more
    return got


def _whole(answer: bytes) -> bool:
    """Whether an answer with a length has all of its body."""
    head, end, body = answer.partition(b"\r\n\r\n")
    _, _, length = head.lower().partition(b"content-length: ")
    return bool(end) and length.split(b"\r")[0].isdigit() and len(body) >= int(length.split(b"\r")[0])


def status(answer: bytes) -> int:
    """The first status of an answer; 0 for none."""
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else 0


class Kept:
    """A client that keeps its connection, as Prometheus does; one that was closed while idle opens again."""

    def __init__(self, address: Address, source: str, headers: dict[str, str], seconds: float = 10.0) -> None:
        self._address, self._source, self._headers, self._seconds = address, source, headers, seconds
        self._open: http.client.HTTPConnection | None = None
        self.again = 0

    def get(self, path: str) -> tuple[int, bytes]:
        """Raises OSError, http.client.HTTPException where there is no answer."""
        kept = self._open is not None
        try:
            return self._get(path)
        except (OSError, http.client.HTTPException):
            self.close()
            if not kept:
                raise
            self.again += 1
            return self._get(path)

    def _get(self, path: str) -> tuple[int, bytes]:
        if self._open is None:
            self._open = http.client.HTTPConnection(
                *self._address, timeout=self._seconds, source_address=(self._source, 0)
            )
        self._open.request("GET", path, headers=self._headers)
        reply = self._open.getresponse()
        body = reply.read()
        if reply.will_close:
            self.close()
        return reply.status, body

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


async def scrape(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], headers: Mapping[str, str]
) -> bytes:
    """One scrape over a connection that is kept; its body.

    Raises:
        OSError, EOFError, ValueError: none came, or half of one.
    """
    reader, writer = streams
    given = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: localhost\r\n{given}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r")[0]))
    if not head.startswith(b"http/1.1 200"):
        raise ConnectionError(head[:40].decode("latin-1"))
    return body
